//! Files and directories.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use linux::mountinfo::{MountTable, canonical_mount_point};
use linux::{durable, mounts, statfs, tree};
use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, RawMode, StatxFlags, access, chmod, fstat, mkdirat, mknodat,
    open, renameat, rmdir, stat, statat, statx, symlinkat, unlink,
};
use rustix::io::Errno;

use super::isolate::Call;
use super::{failed, refused};
use crate::host::{Entry, Found, HostError, Kind, Seen, Usage};

/// What the agent reads whole is small; anything larger was not written by it.
const LARGEST: u64 = 16 << 20;

fn errno(call: &Call, errno: Errno) -> HostError {
    call.refused(errno.raw_os_error(), std::io::Error::from(errno).to_string())
}

pub(super) fn find(call: &Call) -> Result<Found, HostError> {
    match type_of(&call.path) {
        Ok(kind) => Ok(shown(kind)),
        // Some network filesystems say so of a root whose server lost it, and yet know the path (NODE-29.2). Whoever
        // made it just now is told apart by a second look.
        Err(Errno::NOENT) if access(&call.path, Access::EXISTS).is_ok() => {
            type_of(&call.path).map_or(Ok(corrupted(Errno::STALE)), |kind| Ok(shown(kind)))
        }
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(Found::Nothing),
        // Also what a plain directory says that we may not enter: it counts only where something is mounted.
        Err(Errno::ACCESS) if is_mounted(call)? => Ok(corrupted(Errno::ACCESS)),
        Err(Errno::ACCESS) => Err(errno(call, Errno::ACCESS)),
        Err(error) if mounts::is_corruption(error) => Ok(corrupted(error)),
        Err(error) => Err(errno(call, error)),
    }
}

fn type_of(path: &Path) -> Result<FileType, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let answer = statx(CWD, path, flags, StatxFlags::TYPE | StatxFlags::MODE)?;
    Ok(FileType::from_raw_mode(RawMode::from(answer.stx_mode)))
}

fn shown(kind: FileType) -> Found {
    match kind {
        FileType::RegularFile => Found::File,
        FileType::Directory => Found::Directory,
        FileType::Symlink => Found::Symlink,
        FileType::BlockDevice | FileType::CharacterDevice => Found::Device,
        FileType::Fifo | FileType::Socket | FileType::Unknown => Found::Other,
    }
}

fn corrupted(error: Errno) -> Found {
    Found::Corrupted { errno: error.raw_os_error(), message: std::io::Error::from(error).to_string() }
}

fn is_mounted(call: &Call) -> Result<bool, HostError> {
    let Some(point) = canonical_mount_point(&call.path).map_err(|error| failed(call, &error))? else {
        return Ok(false);
    };
    let table = MountTable::read().map_err(|error| refused(call, None, &error))?;
    Ok(table.top(&point).is_some())
}

pub(super) fn look(call: &Call) -> Result<Seen, HostError> {
    let seen = match stat(&call.path) {
        Ok(seen) => seen,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Seen { kind: Kind::Nothing, group: 0, mode: 0 }),
        Err(error) => return Err(errno(call, error)),
    };
    let kind = match FileType::from_raw_mode(seen.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Fifo | FileType::Symlink | FileType::Unknown => Kind::Other,
    };
    Ok(Seen { kind, group: seen.st_gid, mode: seen.st_mode & 0o7777 })
}

pub(super) fn list(call: &Call) -> Result<Vec<Entry>, HostError> {
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match open(&call.path, directory, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(error) => return Err(errno(call, error)),
    };
    let mut found = Vec::new();
    for entry in Dir::read_from(&fd).map_err(|error| errno(call, error))? {
        let entry = entry.map_err(|error| errno(call, error))?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            // Only few filesystems do not say.
            FileType::Unknown => kind_of(call, &fd, entry.file_name())?,
            kind => kind,
        };
        let name = OsString::from(std::ffi::OsStr::from_bytes(name));
        found.push(Entry { name, is_directory: kind == FileType::Directory });
    }
    found.sort();
    Ok(found)
}

fn kind_of(call: &Call, fd: &OwnedFd, name: &std::ffi::CStr) -> Result<FileType, HostError> {
    match statat(fd, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode)),
        Err(Errno::NOENT) => Ok(FileType::Unknown),
        Err(error) => Err(errno(call, error)),
    }
}

pub(super) fn read(call: &Call) -> Result<Option<Vec<u8>>, HostError> {
    // A pipe in the place of the file must not make us wait for its writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match open(&call.path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(errno(call, error)),
    };
    let stat = fstat(&fd).map_err(|error| errno(call, error))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(call.refused(0, "it is not a regular file"));
    }
    let mut content = Vec::new();
    let read = File::from(fd).take(LARGEST + 1).read_to_end(&mut content);
    read.map_err(|error| call.refused(error.raw_os_error().unwrap_or(0), error.to_string()))?;
    if content.len() as u64 > LARGEST {
        return Err(errno(call, Errno::FBIG));
    }
    Ok(Some(content))
}

/// On the filesystems we know, making a new file durable makes the directories durable that were made for it before.
pub(super) fn write(call: &Call, content: &[u8], mode: u32) -> Result<(), HostError> {
    let (directory, name) = split(call)?;
    durable::write_file_atomic(directory, name, content, mode).map_err(|error| failed(call, &error))
}

fn split(call: &Call) -> Result<(&Path, &std::ffi::OsStr), HostError> {
    match (call.path.parent(), call.path.file_name()) {
        (Some(parent), Some(name)) => Ok((parent, name)),
        _ => Err(errno(call, Errno::INVAL)),
    }
}

pub(super) fn make_directory(call: &Call, mode: u32) -> Result<(), HostError> {
    make_one(call, &call.path, mode)?;
    let seen = stat(&call.path).map_err(|error| errno(call, error))?;
    if FileType::from_raw_mode(seen.st_mode) == FileType::Directory {
        return Ok(());
    }
    Err(errno(call, Errno::NOTDIR))
}

/// Makes a directory, and those above it first if it cannot be made without.
fn make_one(call: &Call, path: &Path, mode: u32) -> Result<(), HostError> {
    let make = || match mkdirat(CWD, path, Mode::from_raw_mode(mode)) {
        // The umask took a part of the mode away.
        Ok(()) => change_mode(path, mode),
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    };
    match (make(), path.parent()) {
        (Err(Errno::NOENT), Some(above)) => {
            make_one(call, above, mode)?;
            make().map_err(|error| errno(call, error))
        }
        (answer, _) => answer.map_err(|error| errno(call, error)),
    }
}

pub(super) fn make_file(call: &Call, mode: u32) -> Result<(), HostError> {
    match mknodat(CWD, &call.path, FileType::RegularFile, Mode::from_raw_mode(mode), 0) {
        Ok(()) => change_mode(&call.path, mode).map_err(|error| errno(call, error)),
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(errno(call, error)),
    }
}

pub(super) fn set_mode(call: &Call, mode: u32) -> Result<(), HostError> {
    change_mode(&call.path, mode).map_err(|error| errno(call, error))
}

/// Follows no link at the end of the path, whoever puts one there.
fn change_mode(path: &Path, mode: u32) -> Result<(), Errno> {
    let fd = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    // A descriptor for the path alone opens no device and no pipe; its mode is changed through its entry in /proc.
    chmod(format!("/proc/self/fd/{}", fd.as_raw_fd()), Mode::from_raw_mode(mode))
}

/// The new link takes the place of the old one in one step.
pub(super) fn link(call: &Call, target: &Path) -> Result<(), HostError> {
    match statat(CWD, &call.path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) if FileType::from_raw_mode(there.st_mode) != FileType::Symlink => {
            return Err(call.refused(Errno::EXIST.raw_os_error(), "there is something else than a symbolic link"));
        }
        Ok(_) | Err(Errno::NOENT) => {}
        Err(error) => return Err(errno(call, error)),
    }
    let (directory, name) = split(call)?;
    let mut temporary = OsString::from(durable::TEMP_PREFIX);
    temporary.push(format!("{}-link-", std::process::id()));
    temporary.push(name);
    let temporary = directory.join(temporary);
    let made = match symlinkat(target, CWD, &temporary) {
        // What a crash has left.
        Err(Errno::EXIST) => unlink(&temporary).and_then(|()| symlinkat(target, CWD, &temporary)),
        answer => answer,
    };
    let placed = made.and_then(|()| renameat(CWD, &temporary, CWD, &call.path));
    placed.map_err(|error| {
        // Best effort: it carries the prefix of what is garbage.
        let _ = unlink(&temporary);
        errno(call, error)
    })
}

pub(super) fn resolve(call: &Call) -> Result<PathBuf, HostError> {
    std::fs::canonicalize(&call.path)
        .map_err(|error| call.refused(error.raw_os_error().unwrap_or(0), error.to_string()))
}

pub(super) fn remove_file(call: &Call) -> Result<(), HostError> {
    match unlink(&call.path) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(error) => Err(errno(call, error)),
    }
}

pub(super) fn remove_directory(call: &Call) -> Result<(), HostError> {
    match rmdir(&call.path) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(errno(call, error)),
    }
}

/// If anything is mounted below, nothing is removed at all; what is mounted meanwhile stops the walk (NODE-29.7).
pub(super) fn remove_tree(call: &Call) -> Result<(), HostError> {
    if let Some(path) = canonical_mount_point(&call.path).map_err(|error| failed(call, &error))? {
        let table = MountTable::read().map_err(|error| refused(call, None, &error))?;
        if let Some(mount) = table.iter().find(|mount| mount.mount_point.starts_with(&path)) {
            let message = format!("something is mounted at {}", mount.mount_point.display());
            return Err(call.refused(Errno::BUSY.raw_os_error(), message));
        }
    }
    tree::remove_tree(&call.path).map_err(|error| match error {
        tree::TreeError::Sys(error) => failed(call, &error),
        tree::TreeError::MountPoint(_) => refused(call, Some(Errno::BUSY), &error),
        error => refused(call, error.errno(), &error),
    })
}

pub(super) fn usage(call: &Call) -> Result<Usage, HostError> {
    let usage = statfs::usage(&call.path).map_err(|error| failed(call, &error))?;
    let inodes = usage.inodes.unwrap_or(statfs::Inodes { total: 0, used: 0, free: 0 });
    Ok(Usage {
        capacity: usage.total,
        available: usage.available,
        used: usage.used,
        inodes: inodes.total,
        inodes_free: inodes.free,
        inodes_used: inodes.used,
    })
}
