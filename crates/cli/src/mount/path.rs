//! The machine's side: one bind mount, and its end.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use api::VolumeMode;
use linux::mountinfo::{Mount, MountTable};
use linux::mounts::{self, BindOptions, Force, UnmountError};

/// What shows that a directory is one that we keep data in: that of `orlop up`, a pool, and that of a machine that joined.
const DATA_OF_OURS: [&str; 3] = ["up.lock", "pool.json", "machine/joined.json"];

/// The path in full, its last part taken literally: what is mounted there may be dead.
pub(super) fn settle(path: &Path) -> anyhow::Result<PathBuf> {
    let full = std::path::absolute(path).with_context(|| format!("the path {}", path.display()))?;
    if full.parent().is_none() {
        bail!("/ is the root of this machine; name a directory of its own for the claim");
    }
    match linux::mountinfo::canonical_mount_point(&full) {
        Ok(Some(point)) => Ok(point),
        Ok(None) => {
            let parent = full.parent().unwrap_or(&full);
            bail!("{} does not exist: there is no directory {}", full.display(), parent.display())
        }
        Err(error) => Err(error).with_context(|| format!("the path {}", full.display())),
    }
}

/// Whether a volume of this mode can be shown there.
pub(super) fn check(path: &Path, mode: VolumeMode) -> anyhow::Result<()> {
    let found = fs::symlink_metadata(path);
    match (mode, found) {
        (VolumeMode::Filesystem, Ok(meta)) if meta.is_dir() => Ok(()),
        (VolumeMode::Filesystem, Ok(_)) => bail!("{} is not a directory", path.display()),
        (VolumeMode::Filesystem, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("{} does not exist; make the directory first", path.display())
        }
        (VolumeMode::Block, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            fs::write(path, "").with_context(|| format!("making the file {}", path.display()))
        }
        (VolumeMode::Block, Ok(meta)) if meta.is_dir() => {
            bail!("the claim is a raw block device, and {} is a directory; name a file", path.display())
        }
        (VolumeMode::Block, Ok(_)) => Ok(()),
        (_, Err(error)) => Err(error).with_context(|| format!("looking at {}", path.display())),
    }
}

/// Before anything is made for this path: what somebody else has mounted there stays, and files that a mount will hide are
/// mentioned.
pub(super) fn require_free(path: &Path) -> anyhow::Result<()> {
    let table = MountTable::read().context("reading the mount table")?;
    if let Some(there) = table.top(path) {
        bail!(
            "something else is mounted at {0} ({1}); unmount it, or choose another directory. Nothing was changed.",
            path.display(),
            there.fs_type
        );
    }
    if let Some(data) = path.ancestors().find(|above| DATA_OF_OURS.iter().any(|file| above.join(file).is_file())) {
        bail!(
            "{} belongs to Orlop itself, which works in {}; a mount there would hide what it needs. Choose another directory.",
            path.display(),
            data.display()
        );
    }
    if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
        eprintln!("orlop mount: note: {0} is not empty; its files are hidden until `orlop umount {0}`", path.display());
    }
    Ok(())
}

/// Where the agent shows the volume of a pod: the pod's uid is in the path, whatever the agent's directory is.
pub(super) fn of_pod(uid: &str, mode: VolumeMode) -> anyhow::Result<Option<PathBuf>> {
    let table = MountTable::read().context("reading the mount table")?;
    let ours = |mount: &&Mount| match mode {
        VolumeMode::Filesystem => mount.mount_point.to_string_lossy().contains(&format!("/pods/{uid}/volumes/")),
        VolumeMode::Block => mount.mount_point.ends_with(Path::new("dev").join(uid)),
    };
    Ok(table.iter().find(ours).map(|mount| mount.mount_point.clone()))
}

/// What a mount shows: a filesystem by its device number, and the directory or file of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    device: (u32, u32),
    root: PathBuf,
}

impl Shown {
    fn by(mount: &Mount) -> Self {
        Self { device: (mount.major, mount.minor), root: mount.root.clone() }
    }

    /// What a bind mount of this path would show.
    pub(super) fn at(source: &Path) -> anyhow::Result<Self> {
        let table = MountTable::read().context("reading the mount table")?;
        Self::in_table(&table, source).with_context(|| format!("{} is in no mount", source.display()))
    }

    fn in_table(table: &MountTable, source: &Path) -> Option<Self> {
        let mount = table.enclosing(source)?;
        let inside = source.strip_prefix(&mount.mount_point).ok()?;
        let root = if inside.as_os_str().is_empty() { mount.root.clone() } else { mount.root.join(inside) };
        Some(Self { device: (mount.major, mount.minor), root })
    }

    /// As the pod's annotation has it.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let root = super::spelled(&self.root)?;
        Ok(format!("{}:{} {root}", self.device.0, self.device.1))
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (device, root) = text.split_once(' ')?;
        let (major, minor) = device.split_once(':')?;
        Some(Self { device: (major.parse().ok()?, minor.parse().ok()?), root: root.into() })
    }
}

/// Shows `source` at `path`, unless it is there already.
pub(super) fn show(source: &Path, path: &Path, read_only: bool) -> anyhow::Result<()> {
    let table = MountTable::read().context("reading the mount table")?;
    if let Some(there) = table.top(path) {
        let wanted = Shown::in_table(&table, source);
        match wanted.is_some_and(|wanted| wanted == Shown::by(there)) {
            true => return Ok(()),
            false => bail!("something else is mounted at {} ({})", path.display(), there.fs_type),
        }
    }
    let options = BindOptions { read_only, no_exec: false, no_suid: false, no_dev: false };
    mounts::bind(source, path, options).with_context(|| format!("showing the volume at {}", path.display()))
}

/// What lies at a path, from the point of view of whoever mounted a claim there.
#[derive(Debug, PartialEq, Eq)]
enum Layers<'a> {
    /// Nothing of ours: what may be there stays.
    NotOurs,
    /// Ours is seen.
    OursOnTop,
    /// Something else lies on ours.
    Covered(&'a Mount),
}

/// Judges the layers at a path, the lowest first. `ours` is what was mounted, where it is known. Where it is not, the lowest
/// layer is ours: `orlop mount` mounts only where nothing is mounted.
fn judge<'a>(layers: &[&'a Mount], ours: &[Shown]) -> Layers<'a> {
    let is_ours = |at: usize, mount: &Mount| match ours {
        [] => at == 0,
        ours => ours.contains(&Shown::by(mount)),
    };
    let last = layers.iter().enumerate().rev().find(|(at, mount)| is_ours(*at, mount));
    match (last, layers.last()) {
        (None, _) | (_, None) => Layers::NotOurs,
        (Some((at, _)), Some(_)) if at + 1 == layers.len() => Layers::OursOnTop,
        (Some(_), Some(top)) => Layers::Covered(top),
    }
}

/// Takes away what `orlop mount` shows there, dead or alive, and nothing else. A path in use stays as it is.
pub(super) fn hide(path: &Path, ours: &[Shown]) -> anyhow::Result<()> {
    loop {
        let table = MountTable::read().context("reading the mount table")?;
        let layers: Vec<&Mount> = table.at(path).collect();
        match judge(&layers, ours) {
            Layers::NotOurs => {
                if let Some(top) = layers.last() {
                    let shown = described(top);
                    eprintln!("orlop umount: note: {} stays mounted at {}: it is not ours", shown, path.display());
                }
                return Ok(());
            }
            Layers::Covered(top) => {
                bail!(
                    "{} is mounted over by {}; unmount it first. Nothing was changed.",
                    path.display(),
                    described(top)
                )
            }
            Layers::OursOnTop => {}
        }
        match mounts::unmount_top(path, Force::No) {
            Ok(_) => {}
            Err(UnmountError::Busy(_)) => {
                bail!("{0} is in use; `fuser -vm {0}` says by whom. Nothing was changed.", path.display())
            }
            Err(error) => return Err(error).with_context(|| format!("unmounting {}", path.display())),
        }
        if ours.is_empty() {
            return Ok(());
        }
    }
}

/// A mount as `findmnt` names it.
fn described(mount: &Mount) -> String {
    format!("{} ({})", mount.source.to_string_lossy(), mount.fs_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> MountTable {
        let lines = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            30 20 7:3 / /run/pods/uid/volumes/x rw - ext4 /dev/loop3 rw\n\
            31 20 7:3 / /mnt rw - ext4 /dev/loop3 rw\n\
            32 31 0:50 / /mnt rw - tmpfs scratch rw\n";
        MountTable::parse(lines.as_bytes()).unwrap()
    }

    #[test]
    fn what_lies_on_the_claim_is_named_and_not_taken_away() {
        let table = table();
        let ours = Shown::in_table(&table, Path::new("/run/pods/uid/volumes/x")).unwrap();
        let layers: Vec<&Mount> = table.at(Path::new("/mnt")).collect();
        for known in [vec![ours.clone()], Vec::new()] {
            let Layers::Covered(top) = judge(&layers, &known) else { panic!("{known:?}") };
            assert_eq!(described(top), "scratch (tmpfs)");
            assert_eq!(judge(&layers[..1], &known), Layers::OursOnTop);
        }
        assert_eq!(
            judge(&layers[1..], std::slice::from_ref(&ours)),
            Layers::NotOurs,
            "ours is gone, and another one is there"
        );
        assert_eq!(judge(&[], &[ours]), Layers::NotOurs);
    }

    #[test]
    fn what_is_shown_is_written_down_and_read_again() {
        let shown = Shown::in_table(&table(), Path::new("/srv/a b")).unwrap();
        assert_eq!(shown.text().unwrap(), "8:1 /srv/a b");
        assert_eq!(Shown::parse("8:1 /srv/a b"), Some(shown));
        assert_eq!(Shown::parse("8 /srv"), None);
    }
}
