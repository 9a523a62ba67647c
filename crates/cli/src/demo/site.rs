//! The directory that everything of the demonstration is in, and what of it the kernel still holds.
//!
//! Dropping it takes everything away: mounts, loop devices, files. In a demonstration that succeeds there is nothing left
//! to take away but the directory, and that is looked at before.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use api::{Amount, Source, Volume};
use linux::loopdev::{self, LoopStatus};
use linux::mountinfo::{Mount, MountTable};
use linux::mounts;
use tempfile::TempDir;

use super::earlier;
use crate::usage;

/// How long a loop device may take to let go.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Site {
    directory: Option<TempDir>,
    /// Its name without links, as the mount table shows it.
    data: PathBuf,
    /// Says that it is in use.
    _lock: fs::File,
}

/// What the demonstration claims unless told otherwise: the first that fits. The last is the least that a filesystem takes.
const SIZES: [&str; 4] = ["1Gi", "256Mi", "64Mi", "32Mi"];
/// What the driver leaves free, and what else is written.
const BESIDE: u64 = 80 << 20;

/// How much room a claim needs: the driver promises no byte twice.
fn room_for(size: &Amount) -> u64 {
    u64::try_from(size.bytes()).unwrap_or(0).saturating_add(BESIDE)
}

/// What a volume is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Substance {
    Image { path: PathBuf, size: u64, used: u64 },
    Directory { path: PathBuf },
    Nothing,
}

impl Site {
    pub(super) fn make() -> anyhow::Result<Self> {
        let mine = fs::Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().prefix(earlier::PREFIX).permissions(mine).tempdir();
        let directory = directory.map_err(|error| {
            let place = std::env::temp_dir();
            let cause = anyhow!("{}", io::Error::from(error.kind()));
            cause
                .context(format!("no directory can be made in {}; name another place with TMPDIR=DIR", place.display()))
        })?;
        let data = directory.path().canonicalize().context("finding the directory that was just made")?;
        let lock = earlier::hold(&data).context("locking the directory that was just made")?;
        let site = Self { directory: Some(directory), data, _lock: lock };
        usage::require_room_for_sockets(&site.data)
            .with_context(|| format!("{} has a long name; TMPDIR=/tmp is shorter", std::env::temp_dir().display()))?;
        Ok(site)
    }

    /// How large the claim is: as asked, or what there is room for. A claim that no volume can be made for would wait for
    /// room, and the demonstration with it.
    pub(super) fn size(&self, asked: Option<&str>) -> anyhow::Result<String> {
        let free = linux::statfs::free_space(&self.data).context("asking how much room there is")?;
        let sizes = asked.map_or(SIZES.to_vec(), |asked| vec![asked]);
        // What is no size at all is told by the server, in the words that every user gets.
        let fits = |size: &&str| Amount::parse(size).map_or(true, |size| room_for(&size) <= free);
        if let Some(size) = sizes.iter().copied().find(fits) {
            return Ok(size.to_owned());
        }
        let needed = sizes.last().and_then(|size| Amount::parse(size).ok()).map_or(0, |size| room_for(&size));
        bail!(
            "{} has {} MiB left, and {} MiB are needed{}",
            std::env::temp_dir().display(),
            free >> 20,
            needed >> 20,
            match asked {
                Some(_) => "; choose a smaller --size, or another place with TMPDIR=DIR",
                None => "; choose another place with TMPDIR=DIR",
            }
        )
    }

    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.data.join("kubeconfig")
    }

    fn pool(&self) -> PathBuf {
        self.data.join("pool")
    }

    /// A path below the directory, as short as it can be said.
    pub(super) fn short(&self, path: &Path) -> String {
        path.strip_prefix(&self.data).unwrap_or(path).display().to_string()
    }

    /// What the local driver made of a volume.
    pub(super) fn substance(&self, volume: &Volume) -> Substance {
        use std::os::unix::fs::MetadataExt as _;
        let Source::Csi { handle, .. } = &volume.source else { return Substance::Nothing };
        let object = self.pool().join("volumes").join(&**handle);
        let (image, directory) = (object.join("image"), object.join("data"));
        match (fs::metadata(&image), fs::metadata(&directory)) {
            (Ok(meta), _) => Substance::Image { path: image, size: meta.len(), used: meta.blocks() * 512 },
            (Err(_), Ok(_)) => Substance::Directory { path: directory },
            (Err(_), Err(_)) => Substance::Nothing,
        }
    }

    /// The mount that the agent made for a pod.
    pub(super) fn mount_of(&self, pod: &str) -> anyhow::Result<Mount> {
        let under = self.data.join("node/pods").join(pod);
        let table = MountTable::read().context("reading the mount table")?;
        let mount = table.below(&under).next().cloned();
        mount.with_context(|| format!("nothing is mounted under {}", under.display()))
    }

    /// What of volumes is left in the pool, in the mount table and on loop devices. The agent's own directory is a mount
    /// for as long as it runs, so that what it mounts below is seen elsewhere.
    pub(super) fn leftovers(&self) -> anyhow::Result<Vec<String>> {
        let mut left = Vec::new();
        let volumes = self.pool().join("volumes");
        for entry in fs::read_dir(&volumes).with_context(|| format!("reading {}", volumes.display()))? {
            left.push(format!("the file {}", entry.context("reading the pool")?.path().display()));
        }
        let agent = self.data.join("node");
        let table = MountTable::read().context("reading the mount table")?;
        let mounts = table.below(&self.data).filter(|mount| mount.mount_point != agent);
        left.extend(mounts.map(|mount| format!("the mount {}", mount.mount_point.display())));
        left.extend(
            loops(&self.data)?.iter().map(|status| format!("the loop device {}", status.device.path.display())),
        );
        Ok(left)
    }

    /// Takes the directory away, and says if that is not possible.
    pub(super) fn remove(mut self) -> anyhow::Result<()> {
        sweep(&self.data);
        match self.directory.take() {
            Some(directory) => directory.close().with_context(|| format!("removing {}", self.data.display())),
            None => Ok(()),
        }
    }

    /// Leaves the directory where it is.
    pub(super) fn keep(mut self) -> PathBuf {
        sweep(&self.data);
        if let Err(error) = earlier::disown(&self.data) {
            tracing::warn!(%error, "the next demonstration will take this one's directory away");
        }
        self.directory.take().map_or_else(|| self.data.clone(), TempDir::keep)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.directory.is_some() {
            sweep(&self.data);
        }
    }
}

/// Loop devices that hold a file of the pool. Where there are no loop devices, none does.
fn loops(data: &Path) -> anyhow::Result<Vec<LoopStatus>> {
    if !Path::new("/sys/block").exists() {
        return Ok(Vec::new());
    }
    let names = fs::read_dir("/sys/block").context("asking for loop devices")?.flatten();
    let mut found = Vec::new();
    for index in names.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("loop")?.parse::<u32>().ok()) {
        let file = fs::read_to_string(format!("/sys/block/loop{index}/loop/backing_file"));
        if file.is_ok_and(|file| Path::new(file.trim_end()).starts_with(data)) {
            found.extend(loopdev::status_of(index).context("asking for a loop device")?);
        }
    }
    Ok(found)
}

/// Takes away what a demonstration that went wrong left mounted and attached, the deepest first.
pub(super) fn sweep(data: &Path) {
    let table = MountTable::read().ok();
    let mut points: Vec<PathBuf> = Vec::new();
    if let Some(table) = &table {
        points.extend(table.below(data).map(|mount| mount.mount_point.clone()));
    }
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    for point in points {
        if let Err(error) = mounts::unmount_all(&point) {
            tracing::warn!(%error, "what the demonstration mounted is left");
        }
    }
    for status in loops(data).unwrap_or_default() {
        if let Err(error) = loopdev::detach_and_wait(&status.device, status.backing, PATIENCE) {
            tracing::warn!(%error, "a loop device of the demonstration is left");
        }
    }
}
