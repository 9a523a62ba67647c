//! The kernel of a machine, as far as storage sees it: filesystems, mounts and loop devices. No time, no faults, no chance.
//!
//! A path is walked as Linux walks it: name by name, through mounts and symbolic links. What Linux refuses is refused here
//! with the same number.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use node::host::{Access, Entry, Force, Mount, Mounts};
use rustix::io::Errno;

/// An answer of the kernel.
pub type Done<T> = Result<T, Errno>;

/// More links on one way than this are a circle.
const MOST_LINKS: u32 = 40;

/// What a name in a filesystem stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Directory(Owner),
    File(Owner, Vec<u8>),
    Symlink(PathBuf),
    /// A block device.
    Device(Owner),
}

/// Whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub mode: u32,
    pub group: u32,
}

impl Owner {
    pub(super) fn new(mode: u32) -> Self {
        Self { mode, group: 0 }
    }
}

impl Node {
    pub(super) fn owner(&mut self) -> Option<&mut Owner> {
        match self {
            Self::Directory(owner) | Self::File(owner, _) | Self::Device(owner) => Some(owner),
            Self::Symlink(_) => None,
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        matches!(self, Self::Directory(_))
    }
}

/// How long a filesystem lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasts {
    /// It is on a disk of this machine.
    Always,
    /// Until it is mounted nowhere.
    WhileMounted,
}

#[derive(Debug, Clone)]
pub(super) struct Filesystem {
    pub(super) fs_type: String,
    pub(super) source: String,
    lasts: Lasts,
    /// By path from its root, which is `/`.
    pub(super) nodes: BTreeMap<PathBuf, Node>,
    /// What it answers to every question, if it is broken.
    broken: Option<Errno>,
}

impl Filesystem {
    fn new(fs_type: &str, source: &str, lasts: Lasts) -> Self {
        let nodes = [(PathBuf::from("/"), Node::Directory(Owner::new(0o755)))].into();
        Self { fs_type: fs_type.to_owned(), source: source.to_owned(), lasts, nodes, broken: None }
    }
}

#[derive(Debug, Clone)]
struct Mounted {
    point: PathBuf,
    filesystem: u32,
    root: PathBuf,
    access: Access,
    shared: bool,
}

/// Whether a link at the end of a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Followed,
    Seen,
}

/// Where a path leads.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    /// The path without links.
    pub(super) path: PathBuf,
    pub(super) filesystem: u32,
    /// Inside the filesystem.
    pub(super) inner: PathBuf,
    access: Access,
}

/// What is to be mounted: the filesystem of a device or a server, or an empty one.
#[derive(Debug, Clone, Copy)]
pub struct Superblock<'a> {
    pub fs_type: &'a str,
    pub source: &'a str,
}

/// The state of one machine.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub(super) filesystems: BTreeMap<u32, Filesystem>,
    mounts: Vec<Mounted>,
    /// Loop devices and what they hold open.
    loops: BTreeMap<u32, PathBuf>,
    /// Paths that a process uses: what is mounted there is busy.
    used: Vec<PathBuf>,
    next: u32,
}

const DISK: u32 = 1;
const DEVICES: u32 = 2;

impl Kernel {
    /// A machine with an empty disk.
    pub(super) fn new() -> Self {
        let disk = Filesystem::new("ext4", "/dev/sda1", Lasts::Always);
        let mut kernel = Self {
            filesystems: [(DISK, disk)].into(),
            mounts: Vec::new(),
            loops: BTreeMap::new(),
            used: Vec::new(),
            next: DEVICES + 1,
        };
        kernel.boot();
        kernel
    }

    /// What is on the disk stays, and nothing else does.
    pub(super) fn boot(&mut self) {
        self.filesystems.retain(|_, held| held.lasts == Lasts::Always);
        self.filesystems.insert(DEVICES, Filesystem::new("devtmpfs", "devtmpfs", Lasts::WhileMounted));
        self.loops.clear();
        self.used.clear();
        if let Some(disk) = self.filesystems.get_mut(&DISK) {
            disk.nodes.entry("/dev".into()).or_insert(Node::Directory(Owner::new(0o755)));
        }
        let mount = |point: &str, filesystem| Mounted {
            point: point.into(),
            filesystem,
            root: "/".into(),
            access: Access::ReadWrite,
            shared: false,
        };
        self.mounts = vec![mount("/", DISK), mount("/dev", DEVICES)];
    }

    /// The mount table, without what a machine has from the start.
    pub fn mounts(&self) -> Mounts {
        let shown = |mounted: &Mounted| {
            let filesystem = self.filesystems.get(&mounted.filesystem);
            Mount {
                point: mounted.point.clone(),
                device: (0, mounted.filesystem),
                root: mounted.root.clone(),
                fs_type: filesystem.map(|held| held.fs_type.clone()).unwrap_or_default(),
                source: filesystem.map(|held| held.source.clone().into()).unwrap_or_default(),
                read_only: mounted.access == Access::ReadOnly,
                shared: mounted.shared,
            }
        };
        Mounts(self.mounts.iter().map(shown).collect())
    }

    /// The loop devices, and what each holds.
    pub fn loops(&self) -> impl Iterator<Item = (PathBuf, &Path)> {
        self.loops.iter().map(|(number, held)| (loop_path(*number), held.as_path()))
    }

    /// The mount that is seen at a path: the deepest, and the last of several; what a later mount covers is not seen.
    fn mount_of(&self, path: &Path) -> Option<&Mounted> {
        let covered = |at: usize, mounted: &Mounted| {
            let later = &self.mounts[at + 1..];
            later.iter().any(|other| other.point != mounted.point && mounted.point.starts_with(&other.point))
        };
        let around = self.mounts.iter().enumerate().filter(|(_, mounted)| path.starts_with(&mounted.point));
        let seen = around.filter(|(at, mounted)| !covered(*at, mounted));
        seen.max_by_key(|(at, mounted)| (mounted.point.components().count(), *at)).map(|(_, mounted)| mounted)
    }

    /// Where a path without links is.
    fn spot(&self, path: &Path) -> Done<Spot> {
        let mounted = self.mount_of(path).ok_or(Errno::NOENT)?;
        if let Some(errno) = self.filesystems.get(&mounted.filesystem).and_then(|held| held.broken) {
            return Err(errno);
        }
        let rest = path.strip_prefix(&mounted.point).map_err(|_| Errno::NOENT)?;
        let inner = if rest.as_os_str().is_empty() { mounted.root.clone() } else { mounted.root.join(rest) };
        Ok(Spot { path: path.to_owned(), filesystem: mounted.filesystem, inner, access: mounted.access })
    }

    pub(super) fn node(&self, spot: &Spot) -> Option<&Node> {
        self.filesystems.get(&spot.filesystem)?.nodes.get(&spot.inner)
    }

    /// Follows a path to something that exists.
    pub(super) fn walk(&self, path: &Path, last: Last) -> Done<Spot> {
        let mut todo: VecDeque<OsString> = names(path).collect();
        let mut at = PathBuf::from("/");
        let mut links = 0;
        while let Some(name) = todo.pop_front() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&name);
            match self.node(&self.spot(&next)?).ok_or(Errno::NOENT)? {
                Node::Symlink(target) if !todo.is_empty() || last == Last::Followed => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::LOOP);
                    }
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    names(target).collect::<Vec<_>>().into_iter().rev().for_each(|name| todo.push_front(name));
                }
                found if !found.is_directory() && !todo.is_empty() => return Err(Errno::NOTDIR),
                _ => at = next,
            }
        }
        self.spot(&at)
    }

    /// Follows a path to its last name, which need not exist. What is mounted there is not asked.
    fn name(&self, path: &Path) -> Done<PathBuf> {
        let (parent, name) = split(path)?;
        let parent = self.walk(parent, Last::Followed)?;
        match self.node(&parent) {
            Some(Node::Directory(_)) => Ok(parent.path.join(name)),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn get(&self, path: &Path, last: Last) -> Done<&Node> {
        self.node(&self.walk(path, last)?).ok_or(Errno::NOENT)
    }

    pub(super) fn change(&mut self, spot: &Spot) -> Done<&mut BTreeMap<PathBuf, Node>> {
        if spot.access == Access::ReadOnly {
            return Err(Errno::ROFS);
        }
        self.filesystems.get_mut(&spot.filesystem).map(|held| &mut held.nodes).ok_or(Errno::NOENT)
    }

    /// What is at a path, without following a link at its end.
    pub fn look(&self, path: &Path) -> Done<Option<&Node>> {
        match self.get(path, Last::Seen) {
            Ok(node) => Ok(Some(node)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    pub fn list(&self, path: &Path) -> Done<Vec<Entry>> {
        let spot = match self.walk(path, Last::Followed) {
            Ok(spot) => spot,
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(errno) => return Err(errno),
        };
        if !self.node(&spot).is_some_and(Node::is_directory) {
            return Err(Errno::NOTDIR);
        }
        let entry = |(name, node): (&OsStr, &Node)| Entry { name: name.to_owned(), is_directory: node.is_directory() };
        Ok(self.children(&spot).map(entry).collect())
    }

    /// The children of a directory in its own filesystem.
    pub(super) fn children<'a>(&'a self, spot: &'a Spot) -> impl Iterator<Item = (&'a OsStr, &'a Node)> {
        let nodes = self.filesystems.get(&spot.filesystem).into_iter().flat_map(|held| &held.nodes);
        let below = nodes.filter(|(path, _)| path.parent() == Some(&spot.inner));
        below.filter_map(|(path, node)| Some((path.file_name()?, node)))
    }

    pub fn read(&self, path: &Path) -> Done<Option<Vec<u8>>> {
        match self.get(path, Last::Followed) {
            Ok(Node::File(_, content)) => Ok(Some(content.clone())),
            Ok(Node::Directory(_)) => Err(Errno::ISDIR),
            Ok(_) => Err(Errno::INVAL),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    pub fn write(&mut self, path: &Path, content: &[u8], mode: u32) -> Done<()> {
        let spot = self.spot(&self.name(path)?)?;
        if self.node(&spot).is_some_and(Node::is_directory) {
            return Err(Errno::ISDIR);
        }
        self.change(&spot)?.insert(spot.inner.clone(), Node::File(Owner::new(mode), content.to_owned()));
        Ok(())
    }

    pub fn make_directory(&mut self, path: &Path, mode: u32) -> Done<()> {
        let mut at = PathBuf::from("/");
        for name in names(path) {
            at.push(name);
            match self.get(&at, Last::Followed) {
                Ok(Node::Directory(_)) => {}
                Ok(_) => return Err(Errno::NOTDIR),
                Err(Errno::NOENT) => self.make(&at, Node::Directory(Owner::new(mode)))?,
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Gives a free name a meaning.
    pub fn make(&mut self, path: &Path, node: Node) -> Done<()> {
        let spot = self.spot(&self.name(path)?)?;
        match self.node(&spot) {
            Some(_) => Err(Errno::EXIST),
            None => {
                self.change(&spot)?.insert(spot.inner.clone(), node);
                Ok(())
            }
        }
    }

    pub fn set_mode(&mut self, path: &Path, mode: u32) -> Done<()> {
        let spot = self.walk(path, Last::Followed)?;
        let owner = self.change(&spot)?.get_mut(&spot.inner).and_then(Node::owner).ok_or(Errno::NOENT)?;
        owner.mode = mode;
        Ok(())
    }

    /// Makes a link, in place of the one there may be.
    pub fn link(&mut self, target: &Path, link: &Path) -> Done<()> {
        let spot = self.spot(&self.name(link)?)?;
        match self.node(&spot) {
            None | Some(Node::Symlink(_)) => {
                self.change(&spot)?.insert(spot.inner.clone(), Node::Symlink(target.to_owned()));
                Ok(())
            }
            Some(_) => Err(Errno::EXIST),
        }
    }

    pub fn resolve(&self, path: &Path) -> Done<PathBuf> {
        self.walk(path, Last::Followed).map(|spot| spot.path)
    }

    pub fn remove_file(&mut self, path: &Path) -> Done<()> {
        let Some(spot) = self.to_remove(path)? else { return Ok(()) };
        if self.node(&spot).is_some_and(Node::is_directory) {
            return Err(Errno::ISDIR);
        }
        self.change(&spot)?.remove(&spot.inner);
        Ok(())
    }

    pub fn remove_directory(&mut self, path: &Path) -> Done<()> {
        let Some(spot) = self.to_remove(path)? else { return Ok(()) };
        if !self.node(&spot).is_some_and(Node::is_directory) {
            return Err(Errno::NOTDIR);
        }
        if self.children(&spot).next().is_some() {
            return Err(Errno::NOTEMPTY);
        }
        self.change(&spot)?.remove(&spot.inner);
        Ok(())
    }

    pub fn remove_tree(&mut self, path: &Path) -> Done<()> {
        let Some(spot) = self.to_remove(path)? else { return Ok(()) };
        if !self.node(&spot).is_some_and(Node::is_directory) {
            return Err(Errno::NOTDIR);
        }
        if self.mounts.iter().any(|mounted| mounted.point.starts_with(&spot.path)) {
            return Err(Errno::BUSY);
        }
        self.change(&spot)?.retain(|held, _| !held.starts_with(&spot.inner));
        Ok(())
    }

    /// What a removal is about, if there is something. A mount point is not removed.
    fn to_remove(&self, path: &Path) -> Done<Option<Spot>> {
        let name = match self.name(path) {
            Ok(name) => name,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        if self.mounts.iter().any(|mounted| mounted.point == name) {
            return Err(Errno::BUSY);
        }
        let spot = self.spot(&name)?;
        Ok(self.node(&spot).is_some().then_some(spot))
    }

    /// Shows what is at one path at another one.
    pub fn bind(&mut self, source: &Path, target: &Path, access: Access) -> Done<()> {
        let from = self.walk(source, Last::Followed)?;
        let to = self.walk(target, Last::Followed)?;
        let kinds = [&from, &to].map(|spot| self.node(spot).is_some_and(Node::is_directory));
        if kinds[0] != kinds[1] {
            return Err(Errno::NOTDIR);
        }
        let access = if from.access == Access::ReadOnly { Access::ReadOnly } else { access };
        let Spot { filesystem, inner: root, .. } = from;
        self.mounts.push(Mounted { point: to.path, filesystem, root, access, shared: false });
        Ok(())
    }

    pub fn make_shared(&mut self, path: &Path) -> Done<()> {
        let spot = self.walk(path, Last::Followed)?;
        if self.mount_of(&spot.path).is_some_and(|mounted| mounted.shared) {
            return Ok(());
        }
        if !self.mounts.iter().any(|mounted| mounted.point == spot.path) {
            self.bind(&spot.path, &spot.path, Access::ReadWrite)?;
        }
        if let Some(mounted) = self.mounts.iter_mut().rev().find(|mounted| mounted.point == spot.path) {
            mounted.shared = true;
        }
        Ok(())
    }

    /// Mounts a filesystem. One source is one filesystem, wherever it is shown.
    pub fn mount(&mut self, superblock: Superblock<'_>, target: &Path, access: Access) -> Done<()> {
        let spot = self.walk(target, Last::Followed)?;
        if !self.node(&spot).is_some_and(Node::is_directory) {
            return Err(Errno::NOTDIR);
        }
        let Superblock { fs_type, source } = superblock;
        let alike = |held: &Filesystem| (&*held.fs_type, &*held.source) == (fs_type, source);
        let known = self.filesystems.iter().find(|(_, held)| fs_type != "tmpfs" && alike(held));
        let filesystem = match known {
            Some((number, _)) => *number,
            None => {
                let number = self.next;
                self.next += 1;
                self.filesystems.insert(number, Filesystem::new(fs_type, source, Lasts::WhileMounted));
                number
            }
        };
        self.mounts.push(Mounted { point: spot.path, filesystem, root: "/".into(), access, shared: false });
        Ok(())
    }

    /// Unmounts the topmost mount of a path, which need not answer.
    pub fn unmount(&mut self, path: &Path, force: Force) -> Done<()> {
        let point = match self.name(path) {
            Ok(name) => name,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let Some(at) = self.mounts.iter().rposition(|mounted| mounted.point == point) else { return Ok(()) };
        let below = |mounted: &Mounted| mounted.point != point && mounted.point.starts_with(&point);
        let alone = self.mounts.iter().filter(|mounted| mounted.point == point).count() == 1;
        if force == Force::Lazy {
            self.mounts.remove(at);
            if alone {
                self.mounts.retain(|mounted| !below(mounted));
            }
        } else {
            let used = |path: &PathBuf| path.starts_with(&point);
            if alone && (self.mounts.iter().any(below) || self.used.iter().chain(self.loops.values()).any(used)) {
                return Err(Errno::BUSY);
            }
            self.mounts.remove(at);
        }
        self.forget_unmounted();
        Ok(())
    }

    fn forget_unmounted(&mut self) {
        let mounts = &self.mounts;
        self.filesystems.retain(|number, held| {
            held.lasts == Lasts::Always || mounts.iter().any(|mounted| mounted.filesystem == *number)
        });
    }

    /// From now on the filesystem that is mounted here answers everything with this error, wherever it is shown.
    pub(super) fn corrupt(&mut self, point: &Path, errno: Errno) -> bool {
        let Some(mounted) = self.mounts.iter().rev().find(|mounted| mounted.point == point) else { return false };
        let Some(held) = self.filesystems.get_mut(&mounted.filesystem) else { return false };
        held.broken = Some(errno);
        true
    }

    /// Whether a filesystem of this source is broken.
    pub(crate) fn is_broken(&self, source: &str) -> bool {
        self.filesystems.values().any(|held| held.source == source && held.broken.is_some())
    }

    /// A process begins or ends to use what is below a path.
    pub(super) fn occupy(&mut self, path: &Path) {
        self.used.push(path.to_owned());
    }

    pub(super) fn vacate(&mut self, path: &Path) {
        self.used.retain(|used| used != path);
    }

    /// A loop device holds a device open.
    pub fn hold(&mut self, device: &Path) -> Done<PathBuf> {
        let spot = self.walk(device, Last::Followed)?;
        if !matches!(self.node(&spot), Some(Node::Device(_))) {
            return Err(Errno::NOTBLK);
        }
        if let Some((number, _)) = self.loops.iter().find(|(_, held)| **held == spot.path) {
            return Ok(loop_path(*number));
        }
        let number = (0..).find(|number| !self.loops.contains_key(number)).unwrap_or_default();
        let path = loop_path(number);
        self.make(&path, Node::Device(Owner::new(0o660)))?;
        self.loops.insert(number, spot.path);
        Ok(path)
    }

    pub fn let_go(&mut self, device: &Path) -> Done<()> {
        let name = match self.walk(device, Last::Followed) {
            Ok(spot) => spot.path,
            Err(_) => device.to_owned(),
        };
        let held = self.loops.iter().find(|(_, held)| **held == name).map(|(number, _)| *number);
        if let Some(number) = held {
            self.loops.remove(&number);
            self.remove_file(&loop_path(number))?;
        }
        Ok(())
    }
}

fn loop_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

fn names(path: &Path) -> impl Iterator<Item = OsString> + use<> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect::<Vec<_>>().into_iter()
}

fn split(path: &Path) -> Done<(&Path, &OsStr)> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((parent, name)),
        _ => Err(Errno::BUSY),
    }
}
