//! Files that survive a power cut in one piece (LOCAL-F.10).
//!
//! # Invariants
//! 1. A reader of the final name sees the old bytes or the new bytes, never a mixture and never nothing.
//! 2. When a function returns success the change is on disk, name included.
//! 3. A crash leaves at worst a file whose name starts with [`TEMP_PREFIX`]; those are garbage by definition.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, fsync, open, openat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::SysError;

/// Names of half-written files start with this; whoever owns the directory may delete them at start.
pub const TEMP_PREFIX: &str = ".tmp-";

/// What a written file outlives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// A power cut.
    PowerCut,
    /// A power cut, once the caller has synced the directory.
    PowerCutOnceDirectoryIsSynced,
    /// The end of this process, which is enough for what is only true until the next boot.
    Process,
}

/// Writes `bytes` as the file `name` of the directory `dir`, replacing what was there, to outlive a power cut.
pub fn write_file_atomic(dir: &Path, name: &OsStr, bytes: &[u8], mode: u32) -> Result<(), SysError> {
    write_file(dir, name, bytes, (mode, Lasting::PowerCut))
}

/// As [`write_file_atomic`], with less where less is enough. A reader sees the old file or the new one, whole.
pub fn write_file(dir: &Path, name: &OsStr, bytes: &[u8], (mode, lasting): (u32, Lasting)) -> Result<(), SysError> {
    let target = dir.join(name);
    let dir_fd = open_dir(dir)?;
    let (temp_name, mut temp) = create_temp(&dir_fd, dir, name, mode)?;
    let written = temp
        .write_all(bytes)
        .and_then(|()| if lasting == Lasting::Process { Ok(()) } else { temp.sync_all() })
        .map_err(SysError::on("write", &target))
        .and_then(|()| renameat(&dir_fd, &temp_name, &dir_fd, name).map_err(SysError::on("replace", &target)));
    if let Err(error) = written {
        // Best effort: a file that stays behind carries the temp prefix and is collected at the next start.
        let _ = unlinkat(&dir_fd, &temp_name, AtFlags::empty());
        return Err(error);
    }
    match lasting {
        Lasting::PowerCut => fsync(&dir_fd).map_err(SysError::on("make the name durable in", dir)),
        Lasting::PowerCutOnceDirectoryIsSynced | Lasting::Process => Ok(()),
    }
}

/// As [`write_file_atomic`], into the file `room` of the same directory, which has its space already, and which then becomes
/// `name`. For a full disk: no block is asked for on filesystems that write in place. After a crash `room` may hold a part of
/// the bytes; `name` is old or new.
pub fn write_file_into_room(dir: &Path, room: &OsStr, name: &OsStr, bytes: &[u8]) -> Result<(), SysError> {
    let (room_path, target) = (dir.join(room), dir.join(name));
    let dir_fd = open_dir(dir)?;
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&dir_fd, room, flags, Mode::empty()).map_err(SysError::on("open", &room_path))?);
    let written = file.write_all(bytes).and_then(|()| file.set_len(bytes.len() as u64)).and_then(|()| file.sync_all());
    written.map_err(SysError::on("write", &room_path))?;
    renameat(&dir_fd, room, &dir_fd, name).map_err(SysError::on("replace", &target))?;
    fsync(&dir_fd).map_err(SysError::on("make the name durable in", dir))
}

fn create_temp(dir_fd: &OwnedFd, dir: &Path, name: &OsStr, mode: u32) -> Result<(PathBuf, File), SysError> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        let mut temp = std::ffi::OsString::from(TEMP_PREFIX);
        temp.push(format!("{}-{}-", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        temp.push(name);
        match openat(dir_fd, &temp, flags, Mode::from_raw_mode(mode)) {
            Ok(fd) => return Ok((temp.into(), File::from(fd))),
            // In a container every incarnation has the same process id; a leftover of the last one is stepped over.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(SysError::on("create a file in", dir)(errno)),
        }
    }
}

fn open_dir(dir: &Path) -> Result<OwnedFd, SysError> {
    open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(SysError::on("open the directory", dir))
}

/// Makes creations, renames and removals in `dir` durable.
pub fn fsync_dir(dir: &Path) -> Result<(), SysError> {
    fsync(open_dir(dir)?).map_err(SysError::on("make the names durable in", dir))
}

/// What became of a rename that must not replace anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Renamed {
    Done,
    /// The new name is taken; nothing was changed.
    NameTaken,
}

/// Renames `from` to `to` unless `to` exists (LOCAL-R1), and makes it durable.
///
/// A rename is one change of the filesystem, so syncing either of the two directories makes both sides of it durable; the
/// caller says which one others look at.
pub fn rename_noreplace(from: &Path, to: &Path, sync: Side) -> Result<Renamed, SysError> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(Renamed::NameTaken),
        Err(errno) => return Err(SysError::on("rename to", to)(errno)),
    }
    let side = match sync {
        Side::Old => from,
        Side::New => to,
    };
    if let Some(parent) = side.parent() {
        fsync_dir(parent)?;
    }
    Ok(Renamed::Done)
}

/// Which directory of a rename is synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Old,
    New,
}

/// Makes a file's content durable, naming it in the error.
pub fn fsync_file(file: impl AsFd, path: &Path) -> Result<(), SysError> {
    fsync(file).map_err(SysError::on("make durable", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(dir: &Path) -> Vec<std::ffi::OsString> {
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    /// Rule: LOCAL-F.10
    #[test]
    fn a_file_is_replaced_whole_and_leaves_no_temp() {
        let dir = tempfile::tempdir().unwrap();
        let name = OsStr::new("record.json");
        write_file_atomic(dir.path(), name, b"old, and longer", 0o600).unwrap();
        write_file_atomic(dir.path(), name, b"new", 0o600).unwrap();
        let path = dir.path().join(name);
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(dir.path()), [name]);
    }

    #[test]
    fn a_failed_replacement_keeps_the_old_state_and_removes_its_temp() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("taken")).unwrap();
        let error = write_file_atomic(dir.path(), OsStr::new("taken"), b"x", 0o600).unwrap_err();
        assert!(error.is(Errno::ISDIR), "{error:?}");
        assert_eq!(names(dir.path()), ["taken"]);
    }

    #[test]
    fn reserved_room_becomes_the_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("room"), [0; 4096]).unwrap();
        write_file_into_room(dir.path(), OsStr::new("room"), OsStr::new("mark"), b"lost").unwrap();
        assert_eq!(std::fs::read(dir.path().join("mark")).unwrap(), b"lost");
        assert_eq!(names(dir.path()), ["mark"]);
        let error = write_file_into_room(dir.path(), OsStr::new("room"), OsStr::new("mark"), b"x").unwrap_err();
        assert!(error.is(Errno::NOENT), "{error:?}");
    }

    /// Rule: LOCAL-R1
    #[test]
    fn rename_refuses_a_taken_name() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&a, "a").unwrap();
        std::fs::write(&b, "b").unwrap();
        assert_eq!(rename_noreplace(&a, &b, Side::New).unwrap(), Renamed::NameTaken);
        assert_eq!(std::fs::read(&b).unwrap(), b"b");
        std::fs::remove_file(&b).unwrap();
        assert_eq!(rename_noreplace(&a, &b, Side::New).unwrap(), Renamed::Done);
        assert_eq!(std::fs::read(&b).unwrap(), b"a");
    }
}
