//! Giving a tree to a group (NODE-14): what `fsGroup` of a pod does to its volumes.
//!
//! # Invariants
//! 1. Children come before their directory and the root comes last, so that a walk that was cut short is seen by looking
//!    at the root ([`is_owned`]).
//! 2. Each file is opened once, without following a link, and changed through that descriptor: whoever swaps a file for a
//!    link meanwhile changes nothing outside the tree.
//! 3. A bounded number of descriptors, however deep the tree is, and memory for the directories of one path only.
//! 4. What is right already is not touched.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, chmod, chownat, fstat, openat, openat2,
};
use rustix::io::Errno;

use super::{DIRECTORY, TreeError, as_name, kind, open_root};
use crate::SysError;

/// How many directories of the current path are kept open.
const OPEN: usize = 64;

/// How often the walk reports.
const REPORT_EVERY: u64 = 128;

/// What a group may do with the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBits {
    ReadWrite,
    ReadOnly,
}

impl GroupBits {
    fn file(self) -> u32 {
        match self {
            GroupBits::ReadWrite => 0o660,
            GroupBits::ReadOnly => 0o440,
        }
    }

    /// A directory can be entered, and what is made in it belongs to the group.
    fn directory(self) -> u32 {
        self.file() | 0o2110
    }
}

/// Whether the walk goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walk {
    GoOn,
    Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub files: u64,
    /// Files that could not be given to the group, or not opened for it.
    pub refused: u64,
}

/// How a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owned {
    Done(Counts),
    /// It was told to stop; the root is as it was.
    Stopped(Counts),
}

/// Whether the root of a tree looks as a finished walk leaves it.
pub fn is_owned(root: &Path, group: u32, bits: GroupBits) -> Result<bool, SysError> {
    let (_, stat) = open_root(root)?;
    let wanted = bits.directory();
    Ok(stat.st_gid == group && stat.st_mode & wanted == wanted)
}

/// Gives `root` and everything below it to `group`. `report` hears how many files are done, and says whether to go on.
pub fn own_tree(
    root: &Path,
    group: u32,
    bits: GroupBits,
    report: &mut dyn FnMut(u64) -> Walk,
) -> Result<Owned, TreeError> {
    let (fd, stat) = open_root(root)?;
    let mut walk = Ownership { group, bits, report, counts: Counts::default() };
    let mut path = root.to_path_buf();
    let mut stack = vec![match walk.enter(fd, stat, &path)? {
        Some(frame) => frame,
        None => return Ok(Owned::Stopped(walk.counts)),
    }];
    while let Some(frame) = stack.last_mut() {
        let Some(name) = frame.directories.pop() else {
            walk.leave(&mut stack, &path)?;
            path.pop();
            continue;
        };
        let entry = path.join(as_name(&name));
        let Some((child, stat)) = open_directory(frame.fd(&path)?, &name, &entry)? else { continue };
        match walk.enter(child, stat, &entry)? {
            Some(frame) => stack.push(frame),
            None => return Ok(Owned::Stopped(walk.counts)),
        }
        path = entry;
        close_far(&mut stack);
    }
    Ok(Owned::Done(walk.counts))
}

/// A directory on the way down, whose files are done and whose directories are not.
struct Frame {
    /// `None` while the walk is far below.
    fd: Option<OwnedFd>,
    stat: Stat,
    directories: Vec<CString>,
}

impl Frame {
    fn fd(&self, path: &Path) -> Result<&OwnedFd, SysError> {
        self.fd.as_ref().ok_or_else(|| SysError::on("come back to", path)(Errno::BADF))
    }
}

fn close_far(stack: &mut [Frame]) {
    if let Some(far) = stack.len().checked_sub(OPEN + 1) {
        stack[far].fd = None;
    }
}

struct Ownership<'a> {
    group: u32,
    bits: GroupBits,
    report: &'a mut dyn FnMut(u64) -> Walk,
    counts: Counts,
}

impl Ownership<'_> {
    /// Does the files of a directory and remembers its directories; `None` when told to stop.
    fn enter(&mut self, fd: OwnedFd, stat: Stat, path: &Path) -> Result<Option<Frame>, TreeError> {
        let mut directories = Vec::new();
        let mut entries = Dir::read_from(&fd).map_err(SysError::on("list", path))?;
        while let Some(entry) = entries.read() {
            let entry = entry.map_err(SysError::on("list", path))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let found = match entry.file_type() {
                FileType::Directory => Found::Directory,
                _ => self.file(&fd, name, path)?,
            };
            match found {
                Found::Directory => directories.push(name.to_owned()),
                Found::File if self.count() == Walk::Stop => return Ok(None),
                Found::File | Found::Nothing => {}
            }
        }
        Ok(Some(Frame { fd: Some(fd), stat, directories }))
    }

    /// Changes the last directory of the stack, all of which is done, and opens the one above it again if need be.
    fn leave(&mut self, stack: &mut Vec<Frame>, path: &Path) -> Result<(), TreeError> {
        let Some(frame) = stack.pop() else { return Ok(()) };
        let fd = frame.fd(path)?;
        self.change(fd, &frame.stat, path);
        let _ = self.count();
        if let Some(above) = stack.last_mut().filter(|above| above.fd.is_none()) {
            above.fd = Some(open_parent(fd, &above.stat, path)?);
        }
        Ok(())
    }

    fn file(&mut self, dir: &OwnedFd, name: &std::ffi::CStr, path: &Path) -> Result<Found, TreeError> {
        let entry = || path.join(std::ffi::OsStr::new(name.to_string_lossy().as_ref()));
        let fd = match openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(Found::Nothing),
            Err(errno) => return Err(SysError::on("inspect", &entry())(errno).into()),
        };
        let stat = fstat(&fd).map_err(|errno| SysError::on("inspect", &entry())(errno))?;
        if kind(&stat) == FileType::Directory {
            return Ok(Found::Directory);
        }
        self.change(&fd, &stat, path);
        Ok(Found::File)
    }

    /// Refusals are counted and logged, and stop nothing.
    fn change(&mut self, fd: &OwnedFd, stat: &Stat, path: &Path) {
        if let Err(errno) = change(fd, stat, self.group, self.bits) {
            self.counts.refused += 1;
            tracing::debug!(path = %path.display(), %errno, "a file was not given to the group of its pod");
        }
    }

    fn count(&mut self) -> Walk {
        self.counts.files += 1;
        if self.counts.files.is_multiple_of(REPORT_EVERY) { (self.report)(self.counts.files) } else { Walk::GoOn }
    }
}

enum Found {
    File,
    Directory,
    /// It is gone since the directory was read.
    Nothing,
}

fn change(fd: &OwnedFd, stat: &Stat, group: u32, bits: GroupBits) -> Result<(), Errno> {
    if stat.st_gid != group {
        chownat(fd, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)?;
    }
    let wanted = match kind(stat) {
        FileType::Symlink => return Ok(()),
        FileType::Directory => bits.directory(),
        _ => bits.file(),
    };
    // A change of the group takes set-id bits away; they come back with the mode the file had.
    let changed = stat.st_gid != group && stat.st_mode & 0o6000 != 0;
    if changed || stat.st_mode & wanted != wanted {
        // The descriptor is for its path only, so the mode is changed through its entry in /proc.
        chmod(format!("/proc/self/fd/{}", fd.as_raw_fd()), Mode::from_raw_mode((stat.st_mode | wanted) & 0o7777))?;
    }
    Ok(())
}

/// Opens a directory for the walk; `None` if another filesystem is mounted there, or if it is none any more.
fn open_directory(dir: &OwnedFd, name: &CString, path: &Path) -> Result<Option<(OwnedFd, Stat)>, TreeError> {
    let inside = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let fd = match openat2(dir, name, DIRECTORY, Mode::empty(), inside) {
        Ok(fd) => fd,
        Err(Errno::XDEV | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(errno) => return Err(SysError::on("open the directory", path)(errno).into()),
    };
    let stat = fstat(&fd).map_err(SysError::on("inspect", path))?;
    Ok(Some((fd, stat)))
}

/// Goes back up, if the directory above is still the one the walk came from.
fn open_parent(fd: &OwnedFd, expected: &Stat, path: &Path) -> Result<OwnedFd, TreeError> {
    let parent = openat(fd, "..", DIRECTORY, Mode::empty()).map_err(SysError::on("go back up from", path))?;
    let stat = fstat(&parent).map_err(SysError::on("go back up from", path))?;
    if (stat.st_dev, stat.st_ino) == (expected.st_dev, expected.st_ino) {
        return Ok(parent);
    }
    Err(TreeError::Moved(PathBuf::from(path)))
}
