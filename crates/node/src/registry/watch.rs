//! Follows a directory of sockets (NODE-3.2, NODE-31.14).
//!
//! inotify tells what happens; a walk over the tree tells what is there. The walk is made at the start, every half minute,
//! and whenever inotify has lost count, so that nothing stays unseen. This is the one place of the agent that looks at a
//! directory without [`crate::host::Host`]: it is on the disk that the agent itself lives on, and holds no volumes.
//!
//! # Invariants
//! 1. A socket that was deleted and made again is told as gone and found, or as found again.
//! 2. Names that begin with a dot, files and directories alike, are nobody's business here.
//! 3. A watch is set before a directory is read, so that what comes in between is seen twice rather than never.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

use super::plugins::{Sighting, Tell};

/// How often the tree is walked beside the events.
const WALK: Duration = Duration::from_secs(30);
/// The same while there is no inotify.
const BLIND_WALK: Duration = Duration::from_secs(2);
/// Nobody nests sockets deeper; a tree that is deeper is a mistake.
const DEEPEST: usize = 16;
/// So many events are looked at before others have their turn.
const MOST_EVENTS: usize = 1024;
/// The directory's permissions (NODE-2).
const MODE: u32 = 0o750;

/// What tells one socket from another that had its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    /// When it was made: sockets that are found together are told in this order.
    made: (i64, i64),
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        // Not the time of the last change, which permissions move.
        let made = (metadata.mtime(), metadata.mtime_nsec());
        Self { made, device: metadata.dev(), inode: metadata.ino() }
    }
}

/// Follows `root` until it is dropped.
pub(super) async fn run(root: &Path, tell: &Tell<'_>) {
    let mut watcher = Watcher::new(root, tell);
    loop {
        watcher.walk();
        let wait = if watcher.events.is_some() { WALK } else { BLIND_WALK };
        let next = Instant::now() + wait;
        loop {
            tokio::select! {
                biased;
                heard = watcher.hear() => if heard == Heard::LostCount { break },
                () = sleep_until(next) => break,
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Everything,
    /// Events are missing, or the root itself is gone: the tree has to be walked.
    LostCount,
}

struct Watcher<'a> {
    root: PathBuf,
    tell: &'a Tell<'a>,
    /// `None` if the kernel gives none: then only walks find anything.
    events: Option<AsyncFd<OwnedFd>>,
    directories: BTreeMap<i32, PathBuf>,
    /// The directory above the root. The root itself does not tell of its end while somebody's socket in it is open.
    above: Option<i32>,
    known: BTreeMap<PathBuf, Identity>,
}

/// One event, taken out of the kernel's buffer.
struct Event {
    directory: i32,
    flags: ReadFlags,
    name: Option<PathBuf>,
}

impl<'a> Watcher<'a> {
    fn new(root: &Path, tell: &'a Tell<'a>) -> Self {
        let events = open().inspect_err(|error| {
            tracing::warn!(%error, directory = %root.display(), "no inotify; the directory is walked every two seconds");
        });
        Self {
            root: root.to_owned(),
            tell,
            events: events.ok(),
            directories: BTreeMap::new(),
            above: None,
            known: BTreeMap::new(),
        }
    }

    /// Compares what is there with what was told.
    fn walk(&mut self) {
        if let Err(error) = DirBuilder::new().recursive(true).mode(MODE).create(&self.root) {
            tracing::warn!(%error, directory = %self.root.display(), "cannot make the directory of plugin sockets");
        }
        self.look_above();
        let mut found = BTreeMap::new();
        self.collect(&self.root.clone(), 0, &mut found);
        let gone: Vec<PathBuf> = self.known.keys().filter(|path| !found.contains_key(*path)).cloned().collect();
        for path in gone {
            self.lose(&path);
        }
        let mut new: Vec<(Identity, PathBuf)> = found.into_iter().map(|(path, identity)| (identity, path)).collect();
        new.sort();
        for (identity, path) in new {
            self.find(path, identity);
        }
    }

    fn look_above(&mut self) {
        let (Some(events), Some(above)) = (&self.events, self.root.parent()) else { return };
        let wanted = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
        self.above = inotify::add_watch(events.get_ref(), above, wanted | WatchFlags::ONLYDIR).ok();
    }

    /// Watches a directory and all below it, and notes their sockets.
    fn collect(&mut self, directory: &Path, depth: usize, found: &mut BTreeMap<PathBuf, Identity>) {
        if depth > DEEPEST {
            tracing::warn!(directory = %directory.display(), "too deep; sockets below it are not looked for");
            return;
        }
        self.listen(directory);
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(%error, directory = %directory.display(), "cannot read a directory of plugin sockets");
                return;
            }
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if is_hidden(&path) {
                continue;
            }
            match kind(&path) {
                Thing::Socket(identity) => drop(found.insert(path, identity)),
                Thing::Directory => self.collect(&path, depth + 1, found),
                Thing::Other => {}
            }
        }
    }

    fn listen(&mut self, directory: &Path) {
        let Some(events) = &self.events else { return };
        let wanted = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        match inotify::add_watch(events.get_ref(), directory, wanted) {
            Ok(watch) => drop(self.directories.insert(watch, directory.to_owned())),
            Err(Errno::NOENT) => {}
            Err(error) => {
                tracing::warn!(%error, directory = %directory.display(), "cannot watch a directory; it is walked");
            }
        }
    }

    /// Waits for events and applies them.
    async fn hear(&mut self) -> Heard {
        let Some(events) = &mut self.events else { return std::future::pending().await };
        let batch = match events.readable_mut().await {
            Ok(mut ready) => {
                let (batch, drained) = read(ready.get_inner());
                if drained {
                    ready.clear_ready();
                }
                batch
            }
            Err(error) => {
                tracing::warn!(%error, "inotify ended; the directory of plugin sockets is walked");
                self.events = None;
                return Heard::LostCount;
            }
        };
        let mut heard = Heard::Everything;
        for event in batch {
            if self.apply(event) == Heard::LostCount {
                heard = Heard::LostCount;
            }
        }
        heard
    }

    fn apply(&mut self, event: Event) -> Heard {
        if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            tracing::info!("inotify lost events; the directory of plugin sockets is walked");
            return Heard::LostCount;
        }
        if event.flags.contains(ReadFlags::IGNORED) {
            let gone = self.directories.remove(&event.directory);
            return if gone.is_some_and(|path| path == self.root) { Heard::LostCount } else { Heard::Everything };
        }
        if self.above == Some(event.directory) {
            if event.name.as_deref().map(Path::as_os_str) != self.root.file_name() {
                return Heard::Everything;
            }
            if event.flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
                self.lose(&self.root.clone());
            }
            return Heard::LostCount;
        }
        let Some(directory) = self.directories.get(&event.directory).cloned() else { return Heard::Everything };
        let Some(name) = event.name else {
            // The directory itself. Its parent tells of the others; nobody tells of the root.
            return if directory == self.root { Heard::LostCount } else { Heard::Everything };
        };
        let path = directory.join(name);
        if is_hidden(&path) {
            return Heard::Everything;
        }
        if event.flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            self.lose(&path);
        }
        if event.flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            self.look(&path);
        }
        Heard::Everything
    }

    fn look(&mut self, path: &Path) {
        match kind(path) {
            Thing::Socket(identity) => self.find(path.to_owned(), identity),
            Thing::Directory => {
                let mut found = BTreeMap::new();
                self.collect(path, 1, &mut found);
                for (path, identity) in found {
                    self.find(path, identity);
                }
            }
            Thing::Other => {}
        }
    }

    fn find(&mut self, path: PathBuf, identity: Identity) {
        if self.known.get(&path) == Some(&identity) {
            return;
        }
        let Some(socket) = path.to_str().map(str::to_owned) else {
            tracing::warn!(path = %path.display(), "the path of a plugin's socket is not UTF-8; it is ignored");
            return;
        };
        self.known.insert(path, identity);
        (self.tell)(Sighting::Found { socket });
    }

    /// A path is gone, and with it everything below it.
    fn lose(&mut self, path: &Path) {
        let below: Vec<PathBuf> = self.known.keys().filter(|known| known.starts_with(path)).cloned().collect();
        for socket in below {
            self.known.remove(&socket);
            (self.tell)(Sighting::Gone { socket: socket.to_string_lossy().into_owned() });
        }
        let watches: Vec<i32> =
            self.directories.iter().filter(|(_, held)| held.starts_with(path)).map(|(watch, _)| *watch).collect();
        for watch in watches {
            self.directories.remove(&watch);
            // A directory that was moved away is still watched; one that is deleted is not.
            if let Some(events) = &self.events {
                let _ = inotify::remove_watch(events.get_ref(), watch);
            }
        }
    }
}

#[allow(
    deprecated,
    reason = "its successor is unsafe for the sake of types whose descriptor may change; an OwnedFd's never does"
)]
fn open() -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?)
}

/// What is ready now, and whether that was all.
fn read(fd: &OwnedFd) -> (Vec<Event>, bool) {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(fd, &mut buffer);
    let mut batch = Vec::new();
    loop {
        // A bound, so that a directory in which somebody makes files without end does not keep everybody else waiting.
        if batch.len() >= MOST_EVENTS && reader.is_buffer_empty() {
            return (batch, false);
        }
        match reader.next() {
            Ok(event) => {
                let name = event.file_name().map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())));
                batch.push(Event { directory: event.wd(), flags: event.events(), name });
            }
            Err(Errno::INTR) => {}
            Err(_) => return (batch, true),
        }
    }
}

enum Thing {
    Socket(Identity),
    Directory,
    Other,
}

/// What a path leads to. A link may lead to a socket; to a directory it is not followed, since it could lead back.
fn kind(path: &Path) -> Thing {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Thing::Other };
    let metadata = match metadata.file_type().is_symlink() {
        true => match fs::metadata(path) {
            Ok(target) if target.file_type().is_socket() => target,
            Ok(_) | Err(_) => return Thing::Other,
        },
        false => metadata,
    };
    match metadata.file_type() {
        kind if kind.is_socket() => Thing::Socket(Identity::of(&metadata)),
        kind if kind.is_dir() => Thing::Directory,
        _ => Thing::Other,
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"."))
}
