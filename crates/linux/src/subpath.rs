//! A part of a volume, shown at a place of its own (NODE-25).
//!
//! Who writes into the volume can put a symbolic link anywhere, at any moment. So the way down is the kernel's: it is
//! told that nothing may lead out of the volume, and what it opened is what is bound. No path is looked up twice.
//!
//! # Invariants
//! 1. What is shown lies inside the volume, whatever links there are and whenever they change. Links that stay inside
//!    work.
//! 2. Directories that are missing are made one at a time, each below the one that was opened before it, with the mode of
//!    the volume's root.
//! 3. A target that shows the right thing already is left alone.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fchmod, fstat, mkdirat, mknodat, open, openat, openat2, stat,
};
use rustix::io::Errno;

use super::SysError;
use super::mountinfo::{MountTable, canonical_mount_point};
use super::mounts::{BindOptions, Force, MountError, UnmountError, bind_open, unmount_top};

#[derive(Debug, thiserror::Error)]
pub enum SubPathError {
    #[error("{} is not a relative path without `..`", .0.display())]
    NotInside(PathBuf),
    #[error("{} leads out of the volume", .0.display())]
    LeadsOut(PathBuf),
    #[error(transparent)]
    Sys(#[from] SysError),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Unmount(#[from] UnmountError),
}

/// What became of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposed {
    Mounted,
    /// It showed this already.
    Already,
}

const TARGET_FILE: u32 = 0o640;
const TARGET_DIRECTORY: u32 = 0o750;

/// Shows `sub_path` of `volume` at `target`, whose directory is there, read-only from the first moment if it is to be.
pub fn expose(volume: &Path, sub_path: &Path, target: &Path, read_only: bool) -> Result<Exposed, SubPathError> {
    if sub_path.as_os_str().is_empty() || !sub_path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(SubPathError::NotInside(sub_path.to_path_buf()));
    }
    let root = open(volume, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(SysError::on("open the volume", volume))?;
    let part = match inside(&root, sub_path) {
        Err(Errno::NOENT) => make(&root, volume, sub_path)?,
        answer => answer.map_err(|errno| refused(volume, sub_path, errno))?,
    };
    let found = fstat(&part).map_err(SysError::on("inspect", sub_path))?;
    make_target(target, FileType::from_raw_mode(found.st_mode))?;
    if replace_other(target, &found, volume, read_only)? == Exposed::Already {
        return Ok(Exposed::Already);
    }
    let options = BindOptions { read_only, ..BindOptions::default() };
    bind_open(&part, &volume.join(sub_path), target, options)?;
    Ok(Exposed::Mounted)
}

/// Opens a path of the volume, by the rule that nothing leads out.
fn inside(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    const ATTEMPTS: usize = 64;
    let rule = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..ATTEMPTS {
        // The kernel asks to try again when something was renamed while it looked.
        match openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), rule) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            answer => return answer,
        }
    }
    Err(Errno::AGAIN)
}

fn refused(volume: &Path, sub_path: &Path, errno: Errno) -> SubPathError {
    match errno {
        Errno::XDEV | Errno::LOOP => SubPathError::LeadsOut(sub_path.to_path_buf()),
        errno => SysError::on("open", &volume.join(sub_path))(errno).into(),
    }
}

/// Makes the directories that are missing on the way to `sub_path`, and opens the last.
fn make(root: &OwnedFd, volume: &Path, sub_path: &Path) -> Result<OwnedFd, SubPathError> {
    let mode = fstat(root).map_err(SysError::on("inspect", volume))?.st_mode & 0o7777;
    let mut above: Option<OwnedFd> = None;
    let mut way = PathBuf::new();
    for part in sub_path.components() {
        way.push(part);
        let next = match inside(root, &way) {
            Err(Errno::NOENT) => make_one(above.as_ref().unwrap_or(root), part.as_ref(), mode)
                .and_then(|()| inside(root, &way))
                .map_err(|errno| refused(volume, &way, errno))?,
            answer => answer.map_err(|errno| refused(volume, &way, errno))?,
        };
        above = Some(next);
    }
    above.ok_or_else(|| SubPathError::NotInside(sub_path.to_path_buf()))
}

/// A link that leads nowhere is in the way, and stays: making what it names could make it outside.
fn make_one(above: &OwnedFd, name: &Path, mode: u32) -> Result<(), Errno> {
    match mkdirat(above, name, Mode::from_raw_mode(mode)) {
        Ok(()) => {
            let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = openat(above, name, directory, Mode::empty())?;
            // The umask took a part of the mode away.
            fchmod(&made, Mode::from_raw_mode(mode))
        }
        Err(errno) => Err(errno),
    }
}

fn make_target(target: &Path, kind: FileType) -> Result<(), SysError> {
    let made = match kind {
        FileType::Directory => mkdirat(CWD, target, Mode::from_raw_mode(TARGET_DIRECTORY)),
        _ => mknodat(CWD, target, FileType::RegularFile, Mode::from_raw_mode(TARGET_FILE), 0),
    };
    match made {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(SysError::on("create", target)(errno)),
    }
}

/// Unmounts what is at the target, unless it is what should be.
fn replace_other(target: &Path, wanted: &Stat, volume: &Path, read_only: bool) -> Result<Exposed, SubPathError> {
    let Some(point) = canonical_mount_point(target)? else { return Ok(Exposed::Mounted) };
    let table = MountTable::read().map_err(UnmountError::from)?;
    let Some(mount) = table.top(&point) else { return Ok(Exposed::Mounted) };
    let same = stat(target).is_ok_and(|shown| (shown.st_dev, shown.st_ino) == (wanted.st_dev, wanted.st_ino));
    // A bind mount of what is read-only is read-only, too.
    let volume = std::fs::canonicalize(volume).map_err(SysError::on("resolve", volume))?;
    let read_only = read_only || table.enclosing(&volume).is_some_and(|mount| mount.has_option("ro"));
    if same && mount.has_option("ro") == read_only {
        return Ok(Exposed::Already);
    }
    for _ in table.at(&point) {
        unmount_top(target, Force::No)?;
    }
    Ok(Exposed::Mounted)
}

#[cfg(test)]
#[path = "subpath_tests.rs"]
mod tests;
