//! Deleting a tree.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags, openat, statat, unlinkat};
use rustix::io::Errno;

use super::{TreeError, as_name, is_mount_root, kind, names, open_child, open_root};
use crate::SysError;

/// How deep the walk goes before it moves a directory up to the root of the tree instead, where it is met again.
const DEPTH: usize = 64;

/// Deletes the directory `path` and everything in it. A tree that is already gone is success.
pub fn remove_tree(path: &Path) -> Result<(), TreeError> {
    let (root, stat) = match open_root(path) {
        Ok(opened) => opened,
        Err(error) if error.is(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if is_mount_root(&root, path)? {
        return Err(TreeError::MountPoint(path.to_path_buf()));
    }
    let mut removal = Removal { root: &root, device: stat.st_dev, hoisted: 0 };
    // Each pass empties the root; directories moved up by a pass are taken by the next.
    loop {
        removal.empty(&root, path, 0)?;
        match rustix::fs::rmdir(path) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) if removal.hoisted > 0 => removal.hoisted = 0,
            Err(errno) => return Err(SysError::on("remove the directory", path)(errno).into()),
        }
    }
}

struct Removal<'a> {
    root: &'a OwnedFd,
    device: u64,
    /// Directories moved to the root since the last pass.
    hoisted: u64,
}

impl Removal<'_> {
    /// Removes everything inside `dir`.
    fn empty(&mut self, dir: &OwnedFd, path: &Path, depth: usize) -> Result<(), TreeError> {
        for name in names(dir, path)? {
            let entry = path.join(as_name(&name));
            match unlink(dir, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                // Linux says EISDIR, POSIX says EPERM; both may mean a directory.
                Err(Errno::ISDIR | Errno::PERM) if is_directory(dir, &name) => {
                    self.remove_directory(dir, &name, &entry, depth)?;
                }
                Err(Errno::BUSY) => return Err(TreeError::MountPoint(entry)),
                Err(errno) => return Err(SysError::on("remove", &entry)(errno).into()),
            }
        }
        Ok(())
    }

    fn remove_directory(&mut self, dir: &OwnedFd, name: &CString, path: &Path, depth: usize) -> Result<(), TreeError> {
        let child = open_child(dir, as_name(name), self.device, path)?;
        if depth >= DEPTH {
            return Ok(self.hoist(dir, name, path)?);
        }
        self.empty(&child, path, depth + 1)?;
        drop(child);
        match unlink(dir, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::BUSY) => Err(TreeError::MountPoint(path.to_path_buf())),
            Err(errno) => Err(SysError::on("remove the directory", path)(errno).into()),
        }
    }

    /// Moves a directory from the depth to the root of the tree.
    fn hoist(&mut self, dir: &OwnedFd, name: &CString, path: &Path) -> Result<(), SysError> {
        loop {
            let up = format!(".deep-{}", self.hoisted);
            self.hoisted += 1;
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(dir, name, self.root, OsStr::new(&up), flags) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(SysError::on("move up", path)(errno)),
            }
        }
    }
}

fn is_directory(dir: &OwnedFd, name: &CString) -> bool {
    statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| kind(&stat) == FileType::Directory)
}

/// Unlinks a name; when that is forbidden, lifts the immutable and append-only flags that may forbid it and retries.
fn unlink(dir: &OwnedFd, name: &CString, flags: AtFlags) -> Result<(), Errno> {
    match unlinkat(dir, name, flags) {
        Err(Errno::PERM) => {
            unprotect(dir);
            let no_block = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let is_plain = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| matches!(kind(&stat), FileType::RegularFile | FileType::Directory));
            if is_plain && let Ok(fd) = openat(dir, name, no_block, Mode::empty()) {
                unprotect(&File::from(fd));
            }
            unlinkat(dir, name, flags)
        }
        answer => answer,
    }
}

/// Best effort: whether it helped shows when the removal is tried again.
fn unprotect(fd: &impl AsFd) {
    let protection = IFlags::IMMUTABLE | IFlags::APPEND;
    if let Ok(flags) = ioctl_getflags(fd)
        && flags.intersects(protection)
    {
        let _ = ioctl_setflags(fd, flags - protection);
    }
}
