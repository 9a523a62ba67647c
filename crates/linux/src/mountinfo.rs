//! The mount table of our mount namespace, from `/proc/thread-self/mountinfo` (LOCAL-F.9).
//!
//! That of the thread, not of the process: what a thread mounts it sees here, also if it has a namespace of its own.
//!
//! The parser is pure; [`MountTable::read`] feeds it. Truth about what is mounted comes from here, never from records.
//!
//! # Invariants
//! 1. A table is one reading during which nothing was mounted or unmounted. Where mounts come and go all the time there is
//!    no such moment; then every mount that stood throughout is in it once, and of the others each is in it or not
//!    (LOCAL-R18).
//! 2. A line that cannot be parsed fails the whole reading. Skipping it could hide the mount that matters.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, major, minor, stat};

use super::SysError;

const MOUNTINFO: &str = "/proc/thread-self/mountinfo";

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub id: u64,
    pub parent: u64,
    /// The device of the superblock. Anonymous (major 0) for btrfs and virtual filesystems.
    pub major: u32,
    pub minor: u32,
    /// What part of the filesystem is mounted.
    pub root: PathBuf,
    /// True when `root` was removed after it was mounted.
    pub root_deleted: bool,
    pub mount_point: PathBuf,
    /// Options of this mount: `rw`, `nosuid`, `relatime`...
    pub options: Vec<String>,
    /// Whether what is mounted below it is seen in other mounts, too (`shared:`).
    pub shared: bool,
    pub fs_type: String,
    pub source: OsString,
    /// Options of the superblock, shared by all its mounts.
    pub super_options: Vec<String>,
}

impl Mount {
    /// True when nothing can be written through this mount: the mount or the superblock under it is read-only.
    pub fn is_read_only(&self) -> bool {
        self.has_option("ro") || self.is_filesystem_read_only()
    }

    /// True when nothing can be written to the filesystem through any of its mounts.
    pub fn is_filesystem_read_only(&self) -> bool {
        self.super_options.iter().any(|option| option == "ro")
    }

    pub fn has_option(&self, name: &str) -> bool {
        self.options.iter().any(|option| option == name)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum MountTableError {
    #[error(transparent)]
    Read(#[from] SysError),
    #[error("a line of the mount table is not understood: {0}")]
    Malformed(String),
}

/// All mounts of our namespace at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountTable {
    mounts: Vec<Mount>,
}

impl MountTable {
    /// Reads the table, again if it changed meanwhile, but not for ever: since 5.8 the kernel keeps its place between two
    /// mounts while it lists them, so that no reading loses a mount that did not go. (What is used here needs 5.12 anyway.)
    pub fn read() -> Result<MountTable, MountTableError> {
        const ATTEMPTS: usize = 4;
        let mut text = Vec::new();
        for _ in 0..ATTEMPTS {
            let watch = Watch::new()?;
            text = watch.read()?;
            if !watch.changed()? {
                break;
            }
        }
        MountTable::parse(&text)
    }

    /// Parses the text of a mountinfo file.
    pub fn parse(text: &[u8]) -> Result<MountTable, MountTableError> {
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mounts = lines.map(|line| {
            parse_line(line).ok_or_else(|| MountTableError::Malformed(String::from_utf8_lossy(line).into_owned()))
        });
        Ok(MountTable { mounts: mounts.collect::<Result<_, _>>()? })
    }

    pub fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.iter()
    }

    /// Every mount stacked at exactly `path`, the visible one last. `path` must be canonical, as the kernel prints it.
    pub fn at(&self, path: &Path) -> impl Iterator<Item = &Mount> + use<'_> {
        let mut waiting: Vec<&Mount> = self.mounts.iter().filter(|mount| mount.mount_point == path).collect();
        let mut layers = Vec::with_capacity(waiting.len());
        // A layer is mounted on the one under it, so it comes after its parent, whatever the order of the lines.
        while !waiting.is_empty() {
            let ids: BTreeSet<u64> = waiting.iter().map(|mount| mount.id).collect();
            let (upper, lower): (Vec<_>, Vec<_>) =
                waiting.iter().partition(|mount| mount.parent != mount.id && ids.contains(&mount.parent));
            if lower.is_empty() {
                layers.extend(upper);
                break;
            }
            layers.extend(lower);
            waiting = upper;
        }
        layers.into_iter()
    }

    /// The mount one sees at exactly `path`.
    pub fn top(&self, path: &Path) -> Option<&Mount> {
        self.at(path).last()
    }

    /// Every mount of the superblock on this device.
    pub fn of_device(&self, major: u32, minor: u32) -> impl Iterator<Item = &Mount> {
        self.mounts.iter().filter(move |mount| (mount.major, mount.minor) == (major, minor))
    }

    /// Every bind mount of the block device node with this device number.
    ///
    /// Such a mount shows the filesystem of the node (devtmpfs), so the node itself is asked (LOCAL-F.9 "block bind").
    pub fn of_block_node(&self, node_major: u32, node_minor: u32) -> impl Iterator<Item = &Mount> {
        let may_be_node = |mount: &&Mount| {
            matches!(mount.fs_type.as_str(), "devtmpfs" | "tmpfs" | "ramfs") && mount.root != Path::new("/")
        };
        self.mounts.iter().filter(may_be_node).filter(move |mount| match stat(&mount.mount_point) {
            Ok(node) => {
                FileType::from_raw_mode(node.st_mode) == FileType::BlockDevice
                    && (major(node.st_rdev), minor(node.st_rdev)) == (node_major, node_minor)
            }
            // Hidden under another mount or removed: nobody can reach a device through it.
            Err(_) => false,
        })
    }

    /// The mount that `path` is in: the last one that stands at it or above it. `path` must be canonical.
    pub fn enclosing(&self, path: &Path) -> Option<&Mount> {
        let point = self.mounts.iter().filter(|mount| path.starts_with(&mount.mount_point));
        let deepest = point.max_by_key(|mount| mount.mount_point.components().count())?;
        self.top(&deepest.mount_point)
    }

    /// Every mount strictly below `path`.
    pub fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Mount> {
        self.mounts.iter().filter(move |mount| mount.mount_point != path && mount.mount_point.starts_with(path))
    }
}

/// Tells whether mounts came or went, without reading the table.
///
/// The kernel does not tell of a filesystem that became read-only by itself, nor of a renamed directory above a mount.
#[derive(Debug)]
pub struct Watch {
    file: File,
}

impl Watch {
    /// Watches from now on the namespace of this thread.
    pub fn new() -> Result<Watch, SysError> {
        let file = File::open(MOUNTINFO).map_err(SysError::on("open", Path::new(MOUNTINFO)))?;
        Ok(Watch { file })
    }

    fn read(&self) -> Result<Vec<u8>, SysError> {
        let mut text = Vec::new();
        (&self.file).read_to_end(&mut text).map_err(SysError::on("read", Path::new(MOUNTINFO)))?;
        Ok(text)
    }

    /// Whether there was a change since this was asked last. Ask before reading: what happens meanwhile is told next time.
    pub fn changed(&self) -> Result<bool, SysError> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let events = PollFlags::PRI | PollFlags::ERR;
        loop {
            let mut fds = [PollFd::new(&self.file, events)];
            match poll(&mut fds, Some(&now)) {
                Ok(_) => return Ok(fds[0].revents().intersects(events)),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(SysError::on("watch", Path::new(MOUNTINFO))(errno)),
            }
        }
    }
}

/// `id parent major:minor root mount-point options tag* - fstype source super-options`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let mut device = fields.next()?.split(|byte| *byte == b':');
    let (major, minor) = (number(device.next()?)?, number(device.next()?)?);
    let root = fields.next()?;
    let mount_point = path(fields.next()?);
    let options = list(fields.next()?);
    let mut shared = false;
    loop {
        match fields.next()? {
            b"-" => break,
            tag => shared |= tag.starts_with(b"shared:"),
        }
    }
    let fs_type = String::from_utf8(unescape(fields.next()?)).ok()?;
    // The kernel prints an empty source as nothing at all, which leaves an empty field.
    let source = OsString::from_vec(unescape(fields.next()?));
    let super_options = list(fields.next()?);
    let (root, root_deleted) = match root.strip_suffix(b"//deleted") {
        Some(root) => (path(root), true),
        None => (path(root), false),
    };
    Some(Mount {
        id,
        parent,
        major,
        minor,
        root,
        root_deleted,
        mount_point,
        options,
        shared,
        fs_type,
        source,
        super_options,
    })
}

fn number<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn path(field: &[u8]) -> PathBuf {
    OsString::from_vec(unescape(field)).into()
}

fn list(field: &[u8]) -> Vec<String> {
    field.split(|byte| *byte == b',').map(|option| String::from_utf8_lossy(&unescape(option)).into_owned()).collect()
}

/// Undoes the kernel's `\ooo` escapes. A backslash that starts no escape stands for itself.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        match (byte, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    out
}

/// `path` as the kernel prints it: the parent resolved, the last component taken literally.
///
/// The last component is never looked at, because a corrupted mount there would fail the lookup.
/// `None` when the parent does not exist, so that nothing can be mounted there.
pub fn canonical_mount_point(path: &Path) -> Result<Option<PathBuf>, SysError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(SysError::on("use as a mount point", path)(rustix::io::Errno::INVAL));
    };
    let parent = if parent.as_os_str().as_bytes().is_empty() { Path::new(".") } else { parent };
    match std::fs::canonicalize(parent) {
        Ok(parent) => Ok(Some(parent.join(name))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SysError::on("resolve", parent)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: &str = "\
22 27 0:21 / /proc rw,nosuid,relatime shared:5 master:1 - proc proc rw
40 27 7:0 / /pods/a\\040b rw,relatime - ext4 /dev/loop0 rw,errors=continue
43 42 0:6 /loop1 /pods/block rw,relatime - devtmpfs devtmpfs rw,mode=755
42 27 7:1 /sub//deleted /pods/block ro - xfs /dev/loop1 rw
44 27 0:50 / /empty rw - tmpfs  rw
";

    /// Rule: LOCAL-F.9
    #[test]
    fn escapes_tags_and_deleted_roots_are_understood() {
        let table = MountTable::parse(SAMPLE.as_bytes()).unwrap();
        let mount = table.at(Path::new("/pods/a b")).next().unwrap();
        assert_eq!((mount.id, mount.major, mount.minor, mount.fs_type.as_str()), (40, 7, 0, "ext4"));
        assert!(!mount.is_read_only() && !mount.shared);
        assert!(table.top(Path::new("/proc")).unwrap().shared);
        assert_eq!(table.enclosing(Path::new("/pods/a b/c")).unwrap().id, 40);
        let deleted = table.of_device(7, 1).next().unwrap();
        assert!(deleted.root_deleted && deleted.is_read_only());
        assert_eq!(deleted.root, Path::new("/sub"));
        assert_eq!(table.top(Path::new("/empty")).unwrap().source, "");
        assert_eq!(table.below(Path::new("/pods")).count(), 3);
        assert_eq!(table.below(Path::new("/pod")).count(), 0);
    }

    #[test]
    fn layers_come_bottom_first_whatever_the_line_order() {
        let table = MountTable::parse(SAMPLE.as_bytes()).unwrap();
        let ids: Vec<u64> = table.at(Path::new("/pods/block")).map(|mount| mount.id).collect();
        assert_eq!(ids, [42, 43]);
        assert_eq!(table.top(Path::new("/pods/block")).unwrap().id, 43);
    }

    /// Rule: LOCAL-R18
    #[test]
    fn a_torn_line_fails_the_whole_reading() {
        let error = MountTable::parse(b"22 27 0:21 / /proc rw - proc proc rw\n23 27 0:2").unwrap_err();
        assert!(matches!(error, MountTableError::Malformed(line) if line == "23 27 0:2"));
    }

    #[test]
    fn the_real_table_has_a_root() {
        let table = MountTable::read().unwrap();
        assert!(table.top(Path::new("/")).is_some());
    }

    fn escape(path: &[u8]) -> Vec<u8> {
        let special = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\\');
        path.iter()
            .flat_map(|byte| if special(byte) { format!("\\{byte:03o}").into_bytes() } else { vec![*byte] })
            .collect()
    }

    proptest! {
        #[test]
        fn any_path_survives_the_kernel_escaping(tail in prop::collection::vec(1u8.., 0..60)) {
            let mut mount_point = b"/".to_vec();
            mount_point.extend(tail);
            let mut line = b"1 2 8:1 / ".to_vec();
            line.extend(escape(&mount_point));
            line.extend(b" rw,noexec shared:1 - ext4 /dev/sda1 ro\n");
            let table = MountTable::parse(&line).unwrap();
            let mount = table.iter().next().unwrap();
            prop_assert_eq!(mount.mount_point.as_os_str().as_bytes(), &mount_point[..]);
            prop_assert!(mount.is_read_only() && mount.has_option("noexec"));
        }

        #[test]
        fn arbitrary_bytes_never_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = MountTable::parse(&text);
        }
    }
}
