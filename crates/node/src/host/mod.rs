//! What the agent asks of its machine.
//!
//! Any of these calls may hang in the kernel for as long as it likes: a network filesystem that is gone, a FUSE server that
//! stopped. So an implementation does each on the side, and answers [`HostError::Hung`] when it takes too long. What was
//! hung may still happen afterwards; a caller treats it as it treats a lost answer.
//!
//! # Invariants an implementation keeps
//! 1. No call waits for another path's call.
//! 2. A question that failed is an error, never the harmless answer.
//! 3. Removing never crosses a mount point and never follows a symbolic link.
//! 4. [`Host::write`] is all or nothing, also through a power cut.

mod linux;
#[cfg(test)]
pub(crate) mod rig;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::BoxFuture;

pub use linux::{LinuxHost, Options};

/// What an answer of the machine looks like.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, HostError>>;

/// Why the machine did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// It refused. `errno` is 0 where there was no number, as from a tool.
    #[error("could not {doing} {}: {message}", path.display())]
    Refused { doing: &'static str, path: PathBuf, errno: i32, message: String },
    /// A device could not be mounted as what it was taken for: there is something else on it (NODE-29.5).
    #[error("could not mount {} as {wanted}, because there is {there} on it: {message}", path.display())]
    WrongFilesystem { path: PathBuf, wanted: String, there: String, message: String },
    /// It did not answer in time, and may still do it.
    #[error("could not {doing} {} within {}s: the path does not answer", path.display(), waited.as_secs())]
    Hung { doing: &'static str, path: PathBuf, waited: Duration },
}

impl HostError {
    pub fn is_hung(&self) -> bool {
        matches!(self, Self::Hung { .. })
    }
}

/// What is at a path, seen without following a link at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Nothing,
    File,
    Directory,
    Symlink,
    /// A block or character device.
    Device,
    Other,
    /// A mount whose filesystem answers every question with this error: ENOTCONN, ESTALE, EIO and their like.
    Corrupted {
        errno: i32,
        message: String,
    },
}

/// What a path leads to, all links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Nothing,
    File,
    Directory,
    Socket,
    CharDevice,
    BlockDevice,
    Other,
}

/// Whose a path is, and what it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub kind: Kind,
    pub group: u32,
    /// The permissions alone.
    pub mode: u32,
}

/// A child of a directory, seen without asking the child itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub name: OsString,
    pub is_directory: bool,
}

/// One mount of this mount namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    /// Which filesystem: its device number, and the directory of it that is shown.
    pub device: (u32, u32),
    pub root: PathBuf,
    pub fs_type: String,
    pub source: OsString,
    pub read_only: bool,
    /// Whether other mount namespaces see what is mounted below it.
    pub shared: bool,
}

/// The mounts of this mount namespace, one consistent reading, in the order of the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mounts(pub Vec<Mount>);

impl Mounts {
    /// The mount that is seen at this path: the last one, if several lie on top of each other.
    pub fn at(&self, path: &Path) -> Option<&Mount> {
        self.0.iter().rev().find(|mount| mount.point == path)
    }

    /// The mounts at or below this path.
    pub fn under<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Mount> {
        self.0.iter().filter(move |mount| mount.point.starts_with(path))
    }

    /// The mount that a path is in: the topmost one at it, or at the nearest directory above it.
    pub fn enclosing(&self, path: &Path) -> Option<&Mount> {
        path.ancestors().find_map(|above| self.at(above))
    }

    /// The mounts that show exactly what is at this path, which need not be a mount itself (NODE-29.2). A mount at the
    /// path is not among them.
    pub fn references<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Mount> {
        let shown = self.enclosing(path).and_then(|mount| {
            let below = path.strip_prefix(&mount.point).ok()?;
            // Joining nothing would end the path with a slash.
            let root = if below.as_os_str().is_empty() { mount.root.clone() } else { mount.root.join(below) };
            Some((mount.device, root))
        });
        self.0.iter().filter(move |mount| {
            mount.point != path
                && shown.as_ref().is_some_and(|(device, root)| (mount.device, &mount.root) == (*device, root))
        })
    }

    /// The other places that show what is mounted at this path.
    pub fn copies<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Mount> {
        let shown = self.at(path).map(|mount| (mount.device, mount.root.clone()));
        self.0.iter().filter(move |mount| {
            mount.point != path
                && shown.as_ref().is_some_and(|shown| (mount.device, &mount.root) == (shown.0, &shown.1))
        })
    }
}

/// Whether writing through a mount is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    ReadWrite,
    ReadOnly,
}

/// A call of mount(8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountCall {
    pub fs_type: String,
    pub source: String,
    pub target: PathBuf,
    pub options: Vec<String>,
}

/// How hard to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// As users do: a busy mount is refused.
    No,
    /// For a filesystem whose server is gone.
    Yes,
    /// Out of the tree at once, for a corrupted mount that nothing else removes.
    Lazy,
}

/// Whose a volume's files become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ownership {
    pub root: PathBuf,
    pub group: u32,
    pub access: Access,
    pub when: When,
}

/// `fsGroupChangePolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Always,
    OnRootMismatch,
}

/// Told while ownership is changed: how many files are done.
pub type Progress<'a> = &'a (dyn Fn(u64) + Send + Sync);

/// What became of a change of ownership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owned {
    /// The root was right already, and the policy says that this is enough.
    Already,
    Changed {
        files: u64,
        /// Files that refused; the kernel's reason for each is in the log.
        refused: u64,
    },
}

/// How full a filesystem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub capacity: u64,
    pub available: u64,
    pub used: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub inodes_used: u64,
}

/// A part of a volume that a container gets, as a bind mount outside the volume (NODE-25).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubPath {
    /// The volume's mount, which nothing may lead out of.
    pub volume: PathBuf,
    /// Relative, without `..`.
    pub sub_path: PathBuf,
    pub target: PathBuf,
    pub access: Access,
}

/// Whether files of this machine have SELinux contexts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selinux {
    Off,
    On {
        /// What files in containers have unless somebody says otherwise, if the policy says so.
        files: Option<String>,
    },
}

/// The machine. Every method says in its error what it did and to which path.
pub trait Host: Send + Sync + fmt::Debug + 'static {
    /// The mount table, which is the truth about what is mounted.
    fn mounts(&self) -> Answer<'_, Mounts>;
    /// What names this run of the kernel and no other. `None` on a machine that does not say.
    fn boot(&self) -> Answer<'_, Option<String>> {
        Box::pin(std::future::ready(Ok(None)))
    }
    fn find<'a>(&'a self, path: &'a Path) -> Answer<'a, Found>;
    /// What is at the end of a path, all links followed. A machine that knows no owners says 0, and calls every device a
    /// block device.
    fn look<'a>(&'a self, path: &'a Path) -> Answer<'a, Seen> {
        Box::pin(async move {
            let end = match self.find(path).await? {
                Found::Symlink => self.resolve(path).await?,
                _ => path.to_path_buf(),
            };
            let kind = match self.find(&end).await? {
                Found::Nothing => Kind::Nothing,
                Found::File => Kind::File,
                Found::Directory => Kind::Directory,
                Found::Device => Kind::BlockDevice,
                Found::Symlink | Found::Other => Kind::Other,
                Found::Corrupted { errno, message } => {
                    return Err(HostError::Refused { doing: "look at", path: end, errno, message });
                }
            };
            Ok(Seen { kind, group: 0, mode: 0 })
        })
    }
    /// Children in the order of their names, without touching them: they may be dead mounts. Nothing there is no child.
    fn list<'a>(&'a self, path: &'a Path) -> Answer<'a, Vec<Entry>>;
    /// `None` if there is no such file.
    fn read<'a>(&'a self, path: &'a Path) -> Answer<'a, Option<Vec<u8>>>;
    /// Replaces a file as a whole; it is on disk afterwards.
    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8], mode: u32) -> Answer<'a, ()>;
    /// Makes a directory and those above it. One that is there keeps its mode.
    fn make_directory<'a>(&'a self, path: &'a Path, mode: u32) -> Answer<'a, ()>;
    /// Makes an empty file, unless there is one.
    fn make_file<'a>(&'a self, path: &'a Path, mode: u32) -> Answer<'a, ()>;
    fn set_mode<'a>(&'a self, path: &'a Path, mode: u32) -> Answer<'a, ()>;
    /// Makes a symbolic link, in place of the one there may be.
    fn link<'a>(&'a self, target: &'a Path, link: &'a Path) -> Answer<'a, ()>;
    /// Where a path leads, all links followed.
    fn resolve<'a>(&'a self, path: &'a Path) -> Answer<'a, PathBuf>;
    /// Unlinks a file or a symbolic link; nothing there is a success.
    fn remove_file<'a>(&'a self, path: &'a Path) -> Answer<'a, ()>;
    /// Removes an empty directory; nothing there is a success, a mount point or content is refused.
    fn remove_directory<'a>(&'a self, path: &'a Path) -> Answer<'a, ()>;
    /// Removes a directory with everything in it, and refuses at the first mount point it meets.
    fn remove_tree<'a>(&'a self, path: &'a Path) -> Answer<'a, ()>;

    /// Shows a directory or a file (a device, too) at another path, read-only from the first moment if it is to be.
    fn bind<'a>(&'a self, source: &'a Path, target: &'a Path, access: Access) -> Answer<'a, ()>;
    /// A bind mount of a directory onto itself that shares what is mounted below, unless it is shared already.
    fn make_shared<'a>(&'a self, path: &'a Path) -> Answer<'a, ()>;
    fn mount<'a>(&'a self, call: &'a MountCall) -> Answer<'a, ()>;
    /// Unmounts the topmost mount of a path; nothing mounted there is a success.
    fn unmount<'a>(&'a self, path: &'a Path, force: Force) -> Answer<'a, ()>;
    /// Formats a block device unless there is a filesystem, checks it if there is one, and mounts it (NODE-29.5).
    fn format_and_mount<'a>(&'a self, device: &'a Path, call: &'a MountCall) -> Answer<'a, ()>;
    /// Grows the filesystem that is mounted here to the size of its device (NODE-29.6).
    fn grow<'a>(&'a self, mounted: &'a Path) -> Answer<'a, ()>;
    fn expose<'a>(&'a self, sub_path: &'a SubPath) -> Answer<'a, ()>;

    /// Lets a loop device hold this device node open, so that the kernel does not give its number away; gives its path.
    fn hold<'a>(&'a self, device: &'a Path) -> Answer<'a, PathBuf>;
    /// Ends what [`Host::hold`] began; nothing held is a success.
    fn let_go<'a>(&'a self, device: &'a Path) -> Answer<'a, ()>;

    /// Gives a volume's files to a group, the root last. It may take long: it has no deadline of its own, and ends early
    /// when its future is dropped.
    fn own<'a>(&'a self, ownership: &'a Ownership, progress: Progress<'a>) -> Answer<'a, Owned>;
    fn usage<'a>(&'a self, path: &'a Path) -> Answer<'a, Usage>;

    fn selinux(&self) -> Answer<'_, Selinux> {
        Box::pin(std::future::ready(Ok(Selinux::Off)))
    }
    /// Gives a file or a directory, and nothing in it, an SELinux context.
    fn set_label<'a>(&'a self, _path: &'a Path, _label: &'a str) -> Answer<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}
