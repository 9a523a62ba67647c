//! The machine's side: one bind mount, and its end.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use api::VolumeMode;
use linux::mountinfo::{Mount, MountTable};
use linux::mounts::{self, BindOptions, UnmountError};

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

/// Shows `source` at `path`, unless it is there already.
pub(super) fn show(source: &Path, path: &Path, read_only: bool) -> anyhow::Result<()> {
    let table = MountTable::read().context("reading the mount table")?;
    if let Some(there) = table.top(path) {
        let wanted = table.top(source);
        match wanted.is_some_and(|wanted| shows(wanted) == shows(there)) {
            true => return Ok(()),
            false => bail!("something else is mounted at {} ({})", path.display(), there.fs_type),
        }
    }
    let options = BindOptions { read_only, no_exec: false, no_suid: false, no_dev: false };
    mounts::bind(source, path, options).with_context(|| format!("showing the volume at {}", path.display()))
}

fn shows(mount: &Mount) -> (u32, u32, &Path) {
    (mount.major, mount.minor, &mount.root)
}

/// Takes away what is shown there. A path in use stays as it is.
pub(super) fn hide(path: &Path) -> anyhow::Result<()> {
    match mounts::unmount_all(path) {
        Ok(_) => Ok(()),
        Err(UnmountError::Busy(_)) => {
            bail!("{0} is in use; `fuser -vm {0}` says by whom. Nothing was changed.", path.display())
        }
        Err(error) => Err(error).with_context(|| format!("unmounting {}", path.display())),
    }
}
