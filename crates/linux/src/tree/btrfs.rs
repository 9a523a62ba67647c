//! btrfs subvolumes: directories that can be snapshotted in one step (LOCAL-F.4).

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;

use super::open_root;
use crate::{SysError, ioctl};

/// `BTRFS_SUPER_MAGIC` of statfs.
const BTRFS_SUPER_MAGIC: u64 = 0x9123_683e;

/// Whether `path` is on btrfs.
pub fn is_btrfs(path: &Path) -> Result<bool, SysError> {
    let stat = rustix::fs::statfs(path).map_err(SysError::on("read the filesystem type of", path))?;
    Ok(stat.f_type as u64 == BTRFS_SUPER_MAGIC)
}

/// Whether this open file is on btrfs.
pub(crate) fn is_on_btrfs(file: impl AsFd) -> rustix::io::Result<bool> {
    Ok(rustix::fs::fstatfs(file)?.f_type as u64 == BTRFS_SUPER_MAGIC)
}

/// Makes an empty subvolume `name` in the directory `parent`.
pub fn subvolume_create(parent: &Path, name: &OsStr) -> Result<(), SysError> {
    let (dir, _) = open_root(parent)?;
    ioctl::btrfs_subvolume_create(&dir, name).map_err(SysError::on("create the subvolume", &parent.join(name)))
}

/// Makes `name` in `parent` a snapshot of the subvolume `source`. Subvolumes inside it appear as empty directories.
pub fn subvolume_snapshot(source: &Path, parent: &Path, name: &OsStr, read_only: bool) -> Result<(), SysError> {
    let (from, _) = open_root(source)?;
    let (dir, _) = open_root(parent)?;
    ioctl::btrfs_snapshot_create(&dir, from.as_fd(), name, read_only)
        .map_err(SysError::on("create the snapshot", &parent.join(name)))
}

/// Removes the subvolume `name` of `parent`, contents included. Its space comes back later, in the background.
pub fn subvolume_delete(parent: &Path, name: &OsStr) -> Result<(), SysError> {
    let (dir, _) = open_root(parent)?;
    ioctl::btrfs_subvolume_destroy(&dir, name).map_err(SysError::on("delete the subvolume", &parent.join(name)))
}
