//! Who keeps a block device or a mount busy, for the message that says so (NODE-31.26).
//!
//! The kernel answers EBUSY and does not say why. What can be seen without asking any filesystem is looked through: the mount
//! tables of all mount namespaces, what is built on the device, loop devices that have it as their file, and the open files of
//! processes.
//!
//! # Invariants
//! 1. Nothing here opens the device, follows a link or asks a filesystem, so that looking neither hangs nor holds.
//! 2. The look is bounded, and an answer that may be incomplete says so: [`Holders::is_complete`].
//! 3. It is a hint for people. Nobody decides anything by it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::loopdev;
use super::mountinfo::{Mount, MountTable};

/// So many open files are looked at, of all processes together.
const MOST_FILES: usize = 50_000;
/// So many other mount namespaces are looked at.
const MOST_NAMESPACES: usize = 64;
/// So many holders are named; the others are counted.
const NAMED: usize = 5;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    pub pid: u32,
    pub name: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// Somebody who keeps it busy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    Mount {
        point: PathBuf,
        /// Some process in the mount namespace that has the mount, if it is not ours.
        seen_by: Option<Process>,
    },
    /// A device that is built on it, such as one of device-mapper.
    Above(PathBuf),
    /// A loop device that has it as its file.
    Loop(PathBuf),
    Opener(Process),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount { point, seen_by: None } => write!(f, "it is mounted at {}", point.display()),
            Self::Mount { point, seen_by: Some(process) } => {
                write!(f, "it is mounted at {} in the mount namespace of {process}", point.display())
            }
            Self::Above(device) => write!(f, "{} is built on it", device.display()),
            Self::Loop(device) => write!(f, "{} has it as its file", device.display()),
            Self::Opener(process) => write!(f, "{process} has it open"),
        }
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holders {
    found: Vec<Holder>,
    missed: bool,
}

impl Holders {
    pub fn iter(&self) -> impl Iterator<Item = &Holder> {
        self.found.iter()
    }

    /// Whether everything could be looked at.
    pub fn is_complete(&self) -> bool {
        !self.missed
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    fn sorted(mut self) -> Self {
        self.found.sort();
        self.found.dedup();
        self
    }

    /// Takes what could be had. What has just gone is no gap; what may not be looked at is one.
    fn note<T>(&mut self, answer: io::Result<T>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // A process that has just ended.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => None,
            Err(_) => {
                self.missed = true;
                None
            }
        }
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.found.is_empty() {
            f.write_str("who holds it cannot be seen from here")?;
        }
        for (number, holder) in self.found.iter().take(NAMED).enumerate() {
            write!(f, "{}{holder}", if number == 0 { "" } else { ", " })?;
        }
        match self.found.len().saturating_sub(NAMED) {
            0 => {}
            more => write!(f, ", and {more} more")?,
        }
        if self.missed && !self.found.is_empty() {
            f.write_str(" (not everything could be looked at)")?;
        }
        Ok(())
    }
}

/// The mounts that keep the block device with this number busy, in all mount namespaces: whoever has only opened it may let
/// go in a moment, a mount does not.
pub fn mounts_of_device(major: u32, minor: u32) -> Holders {
    let mut holders = Holders::default();
    if let Some(name) = name_of(&mut holders, (major, minor)) {
        let mounts = mounts(&mut holders, |mount| holds(mount, (major, minor), &name));
        holders.found.extend(mounts);
    }
    holders.sorted()
}

/// Who keeps the block device with this number busy.
pub fn of_device(major: u32, minor: u32) -> Holders {
    let mut holders = mounts_of_device(major, minor);
    let Some(name) = name_of(&mut holders, (major, minor)) else { return holders };
    let names = names_of(&mut holders, &name);
    let above = holders.note(fs::read_dir(Path::new("/sys/class/block").join(&name).join("holders")));
    let above = above.into_iter().flatten().flatten().map(|entry| Path::new("/dev").join(entry.file_name()));
    holders.found.extend(above.map(Holder::Above));
    for name in &names {
        match loopdev::opened_as(name) {
            Ok(loops) => holders.found.extend(loops.into_iter().map(|status| Holder::Loop(status.device.path))),
            Err(_) => holders.missed = true,
        }
    }
    openers(&mut holders, |file| names.iter().any(|name| name == file));
    holders.sorted()
}

/// Who keeps what is mounted at this path busy: mounts below it, and processes that are in it or have files of it open.
pub fn of_mount(point: &Path) -> Holders {
    let mut holders = Holders::default();
    match MountTable::read() {
        Ok(table) => {
            let below = table.below(point).map(|mount| mount.mount_point.clone());
            holders.found.extend(below.map(|point| Holder::Mount { point, seen_by: None }));
        }
        Err(_) => holders.missed = true,
    }
    openers(&mut holders, |file| file.starts_with(point));
    holders.sorted()
}

/// What the kernel calls a device.
fn name_of(holders: &mut Holders, (major, minor): (u32, u32)) -> Option<OsString> {
    let place = holders.note(fs::read_link(format!("/sys/dev/block/{major}:{minor}")))?;
    place.file_name().map(OsStr::to_owned)
}

/// The paths by which our mount namespace reaches a device: its node, and what that is bound to.
fn names_of(holders: &mut Holders, name: &OsStr) -> Vec<PathBuf> {
    let mut names = vec![Path::new("/dev").join(name)];
    match MountTable::read() {
        Ok(table) => {
            names.extend(table.iter().filter(|mount| is_node(mount, name)).map(|mount| mount.mount_point.clone()))
        }
        Err(_) => holders.missed = true,
    }
    names
}

/// Whether a mount is of the filesystem on a device.
fn holds(mount: &Mount, number: (u32, u32), name: &OsStr) -> bool {
    // btrfs shows a number that is no device's.
    (mount.major, mount.minor) == number
        || (mount.fs_type == "btrfs" && Path::new("/dev").join(name).as_os_str() == mount.source)
}

/// Whether a mount is of a device's node. It holds nothing: only who opens it does.
fn is_node(mount: &Mount, name: &OsStr) -> bool {
    mount.fs_type == "devtmpfs" && mount.root == Path::new("/").join(name)
}

/// Mounts of all namespaces, each namespace once.
fn mounts(holders: &mut Holders, of_it: impl Fn(&Mount) -> bool) -> Vec<Holder> {
    let mut found = Vec::new();
    let mut take = |table: &MountTable, seen_by: Option<&Process>| {
        let ours = table.iter().filter(|mount| of_it(mount)).map(|mount| mount.mount_point.clone());
        found.extend(ours.map(|point| Holder::Mount { point, seen_by: seen_by.cloned() }));
    };
    match MountTable::read() {
        Ok(table) => take(&table, None),
        Err(_) => holders.missed = true,
    }
    let own = holders.note(fs::read_link("/proc/thread-self/ns/mnt"));
    let mut others: BTreeMap<PathBuf, u32> = BTreeMap::new();
    for pid in processes(holders) {
        if let Some(namespace) = holders.note(fs::read_link(format!("/proc/{pid}/ns/mnt")))
            && Some(&namespace) != own.as_ref()
        {
            others.entry(namespace).or_insert(pid);
        }
    }
    holders.missed |= others.len() > MOST_NAMESPACES;
    for pid in others.into_values().take(MOST_NAMESPACES) {
        let Some(text) = holders.note(fs::read(format!("/proc/{pid}/mountinfo"))) else { continue };
        match MountTable::parse(&text) {
            Ok(table) => take(&table, Some(&process(pid))),
            Err(_) => holders.missed = true,
        }
    }
    found
}

/// Processes with a file open, or a directory in use, that `is_it`. Only the links of `/proc` are read.
fn openers(holders: &mut Holders, is_it: impl Fn(&Path) -> bool) {
    let mut left = MOST_FILES;
    for pid in processes(holders) {
        let home = PathBuf::from(format!("/proc/{pid}"));
        let mut uses = ["cwd", "root"].iter().any(|link| fs::read_link(home.join(link)).is_ok_and(|path| is_it(&path)));
        let files = if uses { None } else { holders.note(fs::read_dir(home.join("fd"))) };
        for file in files.into_iter().flatten().flatten() {
            if left == 0 {
                holders.missed = true;
                break;
            }
            left -= 1;
            uses |= fs::read_link(file.path()).is_ok_and(|path| is_it(&path));
        }
        if uses {
            holders.found.push(Holder::Opener(process(pid)));
        }
    }
}

fn processes(holders: &mut Holders) -> Vec<u32> {
    let entries = holders.note(fs::read_dir("/proc"));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut pids: Vec<u32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

fn process(pid: u32) -> Process {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = if name.trim().is_empty() { "of an unknown name".to_owned() } else { name.trim().to_owned() };
    Process { pid, name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::FsType;
    use crate::loopdev::Attach;
    use crate::mounts::{MountFlags, mount_fs, unmount_all};
    use crate::patience::{Next, Patience};
    use crate::rig::{Rig, needs};

    /// Rule: NODE-31.26
    #[test]
    fn a_mount_of_a_device_is_told_by_number_or_source_and_one_of_its_node_by_name() {
        let text = b"40 27 7:3 / /pods/a rw - ext4 /dev/loop3 rw\n\
            41 27 0:44 / /pods/b rw - btrfs /dev/loop3 rw\n\
            42 27 0:6 /loop3 /pods/c rw - devtmpfs devtmpfs rw\n\
            43 27 7:4 / /pods/d rw - ext4 /dev/loop4 rw\n\
            44 27 0:6 /loop33 /pods/e rw - devtmpfs devtmpfs rw\n";
        let table = MountTable::parse(text).unwrap();
        let ids = |is_it: &dyn Fn(&Mount) -> bool| -> Vec<u64> {
            table.iter().filter(|mount| is_it(mount)).map(|mount| mount.id).collect()
        };
        assert_eq!(ids(&|mount| holds(mount, (7, 3), "loop3".as_ref())), [40, 41]);
        assert_eq!(ids(&|mount| is_node(mount, "loop3".as_ref())), [42]);
    }

    /// Rule: NODE-31.26
    #[test]
    fn the_words_name_a_few_and_count_the_rest() {
        let process = |pid| Process { pid, name: "mkfs".to_owned() };
        let nobody = Holders::default();
        assert_eq!(nobody.to_string(), "who holds it cannot be seen from here");
        let found = (1..8).map(|pid| Holder::Opener(process(pid))).collect();
        let many = Holders { found, missed: true }.to_string();
        assert!(many.starts_with("process 1 (mkfs) has it open, process 2"), "{many}");
        assert!(many.ends_with("and 2 more (not everything could be looked at)"), "{many}");
        let elsewhere = Holder::Mount { point: "/x".into(), seen_by: Some(process(9)) };
        assert_eq!(elsewhere.to_string(), "it is mounted at /x in the mount namespace of process 9 (mkfs)");
    }

    /// Rule: NODE-31.26
    #[test]
    fn the_holders_of_a_real_device_are_found() {
        needs!(FsType::Ext4);
        let rig = Rig::new();
        let (_image, attached) = rig.formatted("a.img", FsType::Ext4, 32 << 20);
        let of = |holders: Holders| holders.iter().cloned().collect::<Vec<_>>();
        let me = Holder::Opener(process(std::process::id()));
        let device = &attached.device;
        assert!(of(of_device(device.major, device.minor)).contains(&me));
        let target = rig.dir("mnt");
        mount_fs(&device.path, &target, "ext4", &MountFlags::default()).unwrap();
        let node = std::fs::File::open(&device.path).unwrap();
        let how = Attach { read_only: true, autoclear: true, direct_io: false, block_size: 512 };
        let above = loopdev::attach(&node, how).unwrap();
        drop((node, attached.fd));
        // Another test may have this device open for a moment, to see what it is.
        let mut patience = Patience::of(std::time::Duration::from_secs(10));
        let mut found = of(of_device(device.major, device.minor));
        while found.contains(&me) && patience.wait() == Next::LookAgain {
            found = of(of_device(device.major, device.minor));
        }
        assert!(found.contains(&Holder::Mount { point: target.clone(), seen_by: None }), "{found:?}");
        assert!(found.contains(&Holder::Loop(above.device.path.clone())), "{found:?}");
        assert!(!found.contains(&me), "{found:?}");
        drop(above);
        let file = std::fs::File::create(target.join("open")).unwrap();
        assert!(of(of_mount(&target)).contains(&me));
        drop(file);
        assert!(!of(of_mount(&target)).contains(&me));
        unmount_all(&target).unwrap();
    }
}
