//! Taking and giving back the path of a unix socket.
//!
//! Both happen under a lock on the parent directory (`flock`, which any process may take on a directory it can read and
//! which leaves no trace). Two of our processes therefore never look at the path and act on it at the same time.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener as StdListener;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::{UnixListener, UnixStream};

use super::peer::UnixPeer;
use super::{BindError, SocketMode};

/// How many clients may wait to be accepted. The kernel lowers it to its own limit.
const BACKLOG: i32 = 1024;

const LOCK_RETRY: Duration = Duration::from_millis(5);
/// Two seconds. A bind takes well under a millisecond, so whoever holds the lock longer is not one of us.
const BIND_TRIES: u32 = 400;
/// A tenth of a second. Leaving a dead socket behind is better than a process that does not end.
const RELEASE_TRIES: u32 = 20;

/// What tells one file from all others that exist at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// Our right to a socket's path. Dropping it removes the path, if it still leads to our socket.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    name: PathBuf,
    directory: File,
    id: FileId,
}

/// Claims `path` and listens on it.
pub(super) fn claim(path: &Path, mode: SocketMode) -> Result<(Claim, UnixListener), BindError> {
    let directory = open_directory(path)?;
    let _lock = DirectoryLock::take(&directory, BIND_TRIES)
        .map_err(|error| locked(error, path))?
        .ok_or_else(|| BindError::DirectoryLocked { directory: parent(path).to_owned() })?;
    make_room(path, &directory)?;
    // The copy shares our lock, so a claim that is dropped below removes the socket without waiting for it.
    let kept = directory.try_clone().map_err(failed("keeping open the directory of", path))?;
    let socket = bind(path, mode)?;
    let claim = Claim::of_bound(path, kept, mode)?;
    rustix::net::listen(&socket, BACKLOG).map_err(|errno| failed("listening on", path)(errno.into()))?;
    let listener = UnixListener::from_std(StdListener::from(socket)).map_err(failed("registering", path))?;
    Ok((claim, listener))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

fn open_directory(path: &Path) -> Result<File, BindError> {
    let directory = parent(path);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(directory, flags, Mode::empty()).map(File::from).map_err(|errno| match errno {
        Errno::NOENT => BindError::NoDirectory { directory: directory.to_owned() },
        Errno::NOTDIR => BindError::NotADirectory { directory: directory.to_owned() },
        errno => failed("opening the directory", directory)(errno.into()),
    })
}

fn locked(errno: Errno, path: &Path) -> BindError {
    failed("locking the directory", parent(path))(errno.into())
}

/// Makes a [`BindError`] of an answer of the kernel.
fn failed<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> BindError + 'a {
    move |source| match source.kind() {
        io::ErrorKind::PermissionDenied => BindError::PermissionDenied { doing, path: path.to_owned(), source },
        _ => BindError::Io { doing, target: path.display().to_string(), source },
    }
}

/// A lock on a directory, for as long as the value lives.
struct DirectoryLock<'a>(&'a File);

impl<'a> DirectoryLock<'a> {
    /// Tries `tries` times; `None` if somebody else had the lock each time.
    fn take(directory: &'a File, tries: u32) -> Result<Option<Self>, Errno> {
        for attempt in 0..tries {
            if attempt > 0 {
                thread::sleep(LOCK_RETRY);
            }
            match rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(Self(directory))),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(None)
    }
}

impl Drop for DirectoryLock<'_> {
    fn drop(&mut self) {
        // Closing the directory would do it too, but a child process may hold a copy of the descriptor until its exec.
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

/// Removes a socket nobody serves. Anything else at `path` is an error.
fn make_room(path: &Path, directory: &File) -> Result<(), BindError> {
    let name = name(path);
    let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failed("looking at", path)(errno.into())),
    };
    if let Some(kind) = kind_unless_socket(&stat) {
        return Err(BindError::NotASocket { path: path.to_owned(), kind });
    }
    match ask(path)? {
        Occupant::Alive { pid } => return Err(BindError::InUse { path: path.to_owned(), pid }),
        Occupant::Dead => {}
    }
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) => tracing::info!(path = %path.display(), "removed the socket of a process that is gone"),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(failed("removing the stale socket", path)(errno.into())),
    }
    Ok(())
}

/// The last part of the path. [`crate::Endpoint::check`] refuses a path without one.
fn name(path: &Path) -> &Path {
    path.file_name().map_or(path, Path::new)
}

fn kind_unless_socket(stat: &Stat) -> Option<&'static str> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Socket => None,
        FileType::RegularFile => Some("a regular file"),
        FileType::Directory => Some("a directory"),
        FileType::Symlink => Some("a symbolic link"),
        FileType::Fifo => Some("a named pipe"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        FileType::Unknown => Some("something unknown"),
    }
}

/// What a connection attempt says about the socket in our way.
enum Occupant {
    Alive {
        pid: Option<i32>,
    },
    /// No process listens. One of ours that has bound and does not listen yet would hold the directory's lock.
    Dead,
}

fn ask(path: &Path) -> Result<Occupant, BindError> {
    let socket = stream_socket(path)?;
    let address = address(path)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => Ok(Occupant::Alive { pid: listening_process(socket) }),
        // The queue of a listening socket is full, or the socket is bound and of another type.
        Err(Errno::AGAIN | Errno::PROTOTYPE) => Ok(Occupant::Alive { pid: None }),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(Occupant::Dead),
        Err(errno) => Err(failed("connecting to the socket already at", path)(errno.into())),
    }
}

fn listening_process(socket: OwnedFd) -> Option<i32> {
    let stream = UnixStream::from_std(StdStream::from(socket)).ok()?;
    UnixPeer::of(&stream)?.pid
}

fn stream_socket(path: &Path) -> Result<OwnedFd, BindError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|errno| failed("making a socket for", path)(errno.into()))
}

fn address(path: &Path) -> Result<SocketAddrUnix, BindError> {
    SocketAddrUnix::new(path).map_err(|errno| failed("making an address of", path)(errno.into()))
}

/// Makes the socket and its path.
fn bind(path: &Path, mode: SocketMode) -> Result<OwnedFd, BindError> {
    let socket = stream_socket(path)?;
    // The kernel gives the path the mode of the socket less the umask, so from its first moment the path has no
    // permission that was not asked for.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode.bits()))
        .map_err(|errno| failed("setting the mode of", path)(errno.into()))?;
    rustix::net::bind(&socket, &address(path)?).map_err(|errno| match errno {
        // Somebody who does not know our lock made it since we looked.
        Errno::ADDRINUSE => BindError::InUse { path: path.to_owned(), pid: None },
        errno => failed("binding", path)(errno.into()),
    })?;
    Ok(socket)
}

impl Claim {
    /// Notes which file was just bound, and gives it back the permissions the umask took.
    fn of_bound(path: &Path, directory: File, mode: SocketMode) -> Result<Self, BindError> {
        let name = name(path).to_owned();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, &name, flags, Mode::empty())
            .map_err(|errno| failed("looking at", path)(errno.into()))?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| failed("looking at", path)(errno.into()))?;
        let claim = Self { path: path.to_owned(), name, directory, id: FileId::of(&stat) };
        if Mode::from_raw_mode(stat.st_mode) != Mode::from_raw_mode(mode.bits()) {
            // By descriptor, so that a link put there meanwhile is not followed.
            let file = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
            rustix::fs::chmod(file, Mode::from_raw_mode(mode.bits()))
                .map_err(|errno| failed("setting the mode of", path)(errno.into()))?;
        }
        Ok(claim)
    }

    /// Removes the path if it is still ours (LOCAL-R7: during a rolling restart it may be the next instance's).
    fn release(&self) -> Result<Released, Errno> {
        let Some(_lock) = DirectoryLock::take(&self.directory, RELEASE_TRIES)? else { return Ok(Released::Locked) };
        let stat = match rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(Released::NotOurs),
            Err(errno) => return Err(errno),
        };
        if FileId::of(&stat) != self.id {
            return Ok(Released::NotOurs);
        }
        rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty())?;
        Ok(Released::Removed)
    }
}

/// What became of the path.
#[derive(Debug)]
enum Released {
    Removed,
    NotOurs,
    Locked,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let path = self.path.display();
        match self.release() {
            Ok(Released::Removed) => {}
            Ok(Released::NotOurs) => tracing::debug!(%path, "the socket is gone or another instance's; left alone"),
            Ok(Released::Locked) => tracing::warn!(%path, "the directory is locked; the dead socket stays"),
            Err(error) => tracing::warn!(%path, %error, "cannot remove the socket"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: WIRE-B.6
    #[test]
    fn from_its_first_moment_the_path_is_open_to_nobody_else() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("csi.sock");
        // Bound, and nothing more: what a client would find between two system calls of ours.
        let _socket = bind(&path, SocketMode::default()).expect("binding");
        let stat = rustix::fs::lstat(&path).expect("the path exists");
        assert_eq!(Mode::from_raw_mode(stat.st_mode) - Mode::from_raw_mode(0o600), Mode::empty());
    }
}
