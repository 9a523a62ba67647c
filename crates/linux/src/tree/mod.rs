//! Directory trees with contents that users control (LOCAL-F.8): copying, deleting, giving to a group, and btrfs
//! subvolumes.
//!
//! # Invariants
//! 1. No symbolic link is ever followed, and no name is looked up twice by path: every directory is opened relative
//!    to its open parent.
//! 2. The walk stays on one filesystem and inside one mount. A mount point or a foreign device inside the tree stops
//!    it with an error; deleting through a mount would delete somebody else's data. A change of ownership passes it by.
//! 3. Deleting needs a bounded number of descriptors, however deep the tree is.

mod btrfs;
mod copy;
mod own;
mod remove;

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, StatxAttributes, StatxFlags, fstat, openat2,
};
use rustix::io::Errno;

pub(crate) use btrfs::is_on_btrfs;
pub use btrfs::{is_btrfs, subvolume_create, subvolume_delete, subvolume_snapshot};
pub use copy::copy_tree;
pub use own::{Counts, GroupBits, Owned, Walk, is_owned, own_tree};
pub use remove::remove_tree;

use super::SysError;

#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error(transparent)]
    Sys(#[from] SysError),
    #[error("{} is a mount point; it is not entered", .0.display())]
    MountPoint(PathBuf),
    #[error("{} is on another filesystem or subvolume; it is not entered", .0.display())]
    OtherFilesystem(PathBuf),
    #[error("{} is nested deeper than {} directories", .path.display(), .limit)]
    TooDeep { path: PathBuf, limit: usize },
    #[error("{} was moved while the tree was walked", .0.display())]
    Moved(PathBuf),
}

impl TreeError {
    /// The kernel's error number, when the kernel is where the error came from.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            TreeError::Sys(error) => error.errno(),
            TreeError::MountPoint(_)
            | TreeError::OtherFilesystem(_)
            | TreeError::TooDeep { .. }
            | TreeError::Moved(_) => None,
        }
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens the root of a tree, which must be a directory and not a link to one.
fn open_root(path: &Path) -> Result<(OwnedFd, Stat), SysError> {
    let fd = rustix::fs::open(path, DIRECTORY, Mode::empty()).map_err(SysError::on("open the directory", path))?;
    let stat = fstat(&fd).map_err(SysError::on("inspect", path))?;
    Ok((fd, stat))
}

/// Opens the directory `name` of `parent` if it belongs to the same mount and the same filesystem.
fn open_child(parent: impl AsFd, name: &OsStr, device: u64, path: &Path) -> Result<OwnedFd, TreeError> {
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let fd = match openat2(parent, name, DIRECTORY, Mode::empty(), resolve) {
        Ok(fd) => fd,
        Err(Errno::XDEV) => return Err(TreeError::MountPoint(path.to_path_buf())),
        Err(errno) => return Err(SysError::on("open the directory", path)(errno).into()),
    };
    let stat = fstat(&fd).map_err(SysError::on("inspect", path))?;
    if stat.st_dev == device { Ok(fd) } else { Err(TreeError::OtherFilesystem(path.to_path_buf())) }
}

/// True when `fd` is the root of a mount: then the directory it covers is not what we would be looking at.
fn is_mount_root(fd: impl AsFd, path: &Path) -> Result<bool, SysError> {
    let answer = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE);
    let attributes = answer.map_err(SysError::on("inspect", path))?.stx_attributes;
    Ok(attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// The names in a directory, read in one go so that changing the directory cannot disturb the reading.
fn names(dir: impl AsFd, path: &Path) -> Result<Vec<CString>, SysError> {
    let read_error = || SysError::on("list", path);
    let mut entries = Dir::read_from(dir).map_err(read_error())?;
    let mut names = Vec::new();
    while let Some(entry) = entries.read() {
        let entry = entry.map_err(read_error())?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

fn as_name(name: &CString) -> &OsStr {
    OsStr::from_bytes(name.as_bytes())
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
mod own_tests;
#[cfg(test)]
mod tests;
