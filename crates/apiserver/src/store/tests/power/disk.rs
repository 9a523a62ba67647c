//! A disk with a cache: what was synced is there after a power cut, of the rest anything may be.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::Random;
use super::recording::Operation;

const SECTOR: usize = 512;

/// Files by path below the root, with their content.
pub(super) type Files = BTreeMap<PathBuf, Vec<u8>>;

/// What of the unsynced is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    All,
    Nothing,
    /// All that came after some moment.
    Tail,
    /// All that came before some moment.
    Head,
    /// One sector.
    One,
    /// Any sectors and names.
    Some,
    /// Most sectors and names.
    Most,
}

impl Loss {
    pub(super) const ALL: [Self; 9] =
        [Self::All, Self::Nothing, Self::Tail, Self::Tail, Self::Head, Self::One, Self::Some, Self::Some, Self::Most];

    /// Which of `count` changes stay.
    fn kept(self, count: usize, random: &mut Random) -> BTreeSet<usize> {
        let at = random.below(count as u64 + 1) as usize;
        let one_in = |limit: u64, random: &mut Random| (0..count).filter(|_| random.below(limit) == 0).collect();
        match self {
            Self::All => BTreeSet::new(),
            Self::Nothing => (0..count).collect(),
            Self::Tail => (0..at).collect(),
            Self::Head => (at..count).collect(),
            Self::One => (0..count).filter(|number| *number != at).collect(),
            Self::Some => one_in(2, random),
            Self::Most => one_in(6, random),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
}

/// A file: what is safe, and what was done to it since. A directory has its names in the disk's lists.
#[derive(Debug, Clone)]
struct Inode {
    kind: Kind,
    synced: Vec<u8>,
    changes: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    /// Never across the border of a sector.
    Write {
        offset: usize,
        data: Vec<u8>,
    },
    Resize(usize),
}

impl Change {
    fn make(&self, content: &mut Vec<u8>) {
        match self {
            Self::Resize(length) => content.resize(*length, 0),
            Self::Write { offset, data } => {
                content.resize(content.len().max(offset + data.len()), 0);
                content[*offset..offset + data.len()].copy_from_slice(data);
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Naming {
    Give(PathBuf, usize),
    Take(PathBuf),
}

impl Naming {
    fn path(&self) -> &Path {
        match self {
            Self::Give(path, _) | Self::Take(path) => path,
        }
    }

    fn make(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Give(path, inode) => drop(names.insert(path.clone(), *inode)),
            Self::Take(path) => drop(names.remove(path)),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    inodes: Vec<Inode>,
    /// As programs see them.
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    /// A rename is one change: both of its names or none.
    namings: Vec<Vec<Naming>>,
}

impl Disk {
    pub(super) fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Create(path) => self.create(path, Kind::File),
            Operation::CreateDirectory(path) => self.create(path, Kind::Directory),
            Operation::Write { path, offset, data } => {
                let inode = self.inode(path);
                let (mut offset, mut data) = (*offset, data.as_slice());
                while !data.is_empty() {
                    let (sector, rest) = data.split_at(data.len().min(SECTOR - offset % SECTOR));
                    inode.changes.push(Change::Write { offset, data: sector.to_vec() });
                    offset += sector.len();
                    data = rest;
                }
            }
            Operation::Resize { path, length } => self.inode(path).changes.push(Change::Resize(*length)),
            Operation::Rename { from, to } => {
                let inode = self.names[from];
                self.name(vec![Naming::Take(from.clone()), Naming::Give(to.clone(), inode)]);
            }
            Operation::Remove(path) => self.name(vec![Naming::Take(path.clone())]),
            Operation::Sync(path) => {
                let inode = self.inode(path);
                let changes = std::mem::take(&mut inode.changes);
                changes.iter().for_each(|change| change.make(&mut inode.synced));
            }
            Operation::SyncDirectory(directory) => {
                let inside = |naming: &Vec<Naming>| naming.iter().any(|one| one.path().parent() == Some(directory));
                let (synced, left) = std::mem::take(&mut self.namings).into_iter().partition(inside);
                self.namings = left;
                let synced: Vec<Vec<Naming>> = synced;
                synced.iter().flatten().for_each(|naming| naming.make(&mut self.synced_names));
            }
            Operation::Acknowledge(_) => {}
        }
    }

    fn create(&mut self, path: &Path, kind: Kind) {
        let inode = self.inodes.len();
        self.inodes.push(Inode { kind, synced: Vec::new(), changes: Vec::new() });
        self.name(vec![Naming::Give(path.to_owned(), inode)]);
    }

    /// The files that can be reached: every directory above has its name.
    fn reachable<'a>(&self, names: &'a BTreeMap<PathBuf, usize>) -> impl Iterator<Item = (&'a PathBuf, &Inode)> {
        let above = |path: &Path| path.ancestors().skip(1).all(|dir| dir == Path::new("") || names.contains_key(dir));
        let files = names.iter().filter(move |(path, _)| above(path));
        files.map(|(path, inode)| (path, &self.inodes[*inode])).filter(|(_, inode)| inode.kind == Kind::File)
    }

    fn name(&mut self, naming: Vec<Naming>) {
        naming.iter().for_each(|one| one.make(&mut self.names));
        self.namings.push(naming);
    }

    fn inode(&mut self, path: &Path) -> &mut Inode {
        let inode = *self.names.get(path).unwrap_or_else(|| panic!("{} was never made", path.display()));
        &mut self.inodes[inode]
    }

    /// As programs see it.
    pub(super) fn cached(&self) -> Files {
        let content = |inode: &Inode| {
            let mut content = inode.synced.clone();
            inode.changes.iter().for_each(|change| change.make(&mut content));
            content
        };
        self.reachable(&self.names).map(|(path, inode)| (path.clone(), content(inode))).collect()
    }

    pub(super) fn after_power_cut(&self, loss: Loss, random: &mut Random) -> Files {
        let mut names = self.synced_names.clone();
        for kept in loss.kept(self.namings.len(), random) {
            self.namings[kept].iter().for_each(|naming| naming.make(&mut names));
        }
        let mut content = |inode: &Inode| {
            let mut content = inode.synced.clone();
            for kept in loss.kept(inode.changes.len(), random) {
                inode.changes[kept].make(&mut content);
            }
            content
        };
        self.reachable(&names).map(|(path, inode)| (path.clone(), content(inode))).collect()
    }
}

/// Makes real files of it.
pub(super) fn write_out(files: &Files, root: &Path) {
    fs::create_dir_all(root).unwrap();
    for (path, content) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}
