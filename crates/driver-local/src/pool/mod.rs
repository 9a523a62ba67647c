//! A pool: a directory that holds volumes, snapshots and groups, each in a directory of its own.
//!
//! ```text
//! pool.json                       identity; a directory without it is not a pool
//! volumes/<id>/   record.json  image | data/  attach.json  node.json
//! snapshots/<id>/ record.json  image | data/
//! groups/<id>/    record.json  <n>/ (a snapshot's directory)
//! .tmp/<id>/      being built: appears in its place by one rename
//! .trash/<id>.<n>/ being removed: left its place by one rename
//! .ballast                        blocks that are given up when the pool is full
//! .lock.controller .lock.node     held by the running driver, with its process id inside
//! ```
//!
//! # Invariants
//! 1. A directory in `volumes`, `snapshots` or `groups` is complete: it came there by a rename after everything in it
//!    was on disk, and leaves by a rename.
//! 2. Nothing under `.tmp` or `.trash` was ever acknowledged. Both may be removed, except a copy that can be resumed.
//! 3. One process per role holds a pool.

mod ballast;
mod draft;
mod ledger;
mod object;
mod open;
mod recover;
mod registry;

pub use ballast::Ballast;
pub use draft::Draft;
pub use ledger::{Claim, Holding, Promise, Reservation, Space, available};
pub use object::{Hold, HoldError, Object, ObjectLock};
pub use open::OpenError;
pub(crate) use recover::{COPY_INTENT, DOOMED, INLINE_PREFIX};
pub use recover::{Orphan, Recovered, leftovers};
pub use registry::{Forgotten, forget_pool};

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use driver_sdk::Error;
use linux::loopdev::LoopSupport;

use crate::config::PoolConfig;
use crate::record::Provisioning;
use crate::space::Level;

/// Where complete objects live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Volumes,
    Snapshots,
    Groups,
}

impl Place {
    pub const ALL: [Self; 3] = [Self::Volumes, Self::Snapshots, Self::Groups];

    fn folder(self) -> &'static str {
        match self {
            Self::Volumes => "volumes",
            Self::Snapshots => "snapshots",
            Self::Groups => "groups",
        }
    }
}

/// How a pool makes copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copying {
    /// Files share extents until written: instant.
    Reflink,
    /// Every byte is copied.
    Full,
}

/// What a pool can do, found out by trying at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features {
    pub copying: Copying,
    /// Directories can be subvolumes: instant and atomic snapshots of directory volumes.
    pub subvolumes: bool,
    pub loop_devices: LoopSupport,
    /// Who else takes space from the pool's filesystem.
    pub tenancy: Tenancy,
    /// Blocks can be allocated before they are written.
    pub allocates: bool,
}

/// Who uses the filesystem of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tenancy {
    /// The pool is the root of a filesystem that is mounted for it.
    Alone,
    /// The pool is a directory of a filesystem that others write to as well.
    Shared,
}

#[derive(Debug)]
pub struct Pool {
    pub name: String,
    pub root: PathBuf,
    /// As configured; `root` is the same place without links.
    entry: PoolConfig,
    state_dir: Option<PathBuf>,
    pub uuid: String,
    pub features: Features,
    pub overcommit: f64,
    /// Provisioning of image volumes whose class names none.
    pub provisioning: Provisioning,
    pub reserve: u64,
    /// Only one process makes objects here, so the ledger in memory is exact.
    sole_writer: bool,
    ledger: Mutex<ledger::Ledger>,
    /// What is in the trash and could not be removed.
    stuck_trash: Mutex<Vec<Object>>,
    /// What the last look at its space found.
    pub(crate) level: Mutex<Level>,
    _instance: Vec<OwnedFd>,
}

impl Pool {
    pub fn object(&self, place: Place, id: &str) -> Object {
        Object::at(self.root.join(place.folder()).join(id))
    }

    /// The object, if it is there. A disk that does not answer is an error, and not the absence of the object.
    pub fn existing(&self, place: Place, id: &str) -> Result<Option<Object>, Error> {
        let object = self.object(place, id);
        match object.dir().symlink_metadata() {
            Ok(meta) => Ok(meta.is_dir().then_some(object)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                Err(Error::unavailable(format!("pool {:?} cannot be searched for {id}", self.name)).because(error))
            }
        }
    }

    /// Ids in one place, sorted.
    pub fn ids(&self, place: Place) -> io::Result<Vec<String>> {
        let mut ids = names(&self.folder(place))?;
        ids.sort_unstable();
        Ok(ids)
    }

    pub fn folder(&self, place: Place) -> PathBuf {
        self.root.join(place.folder())
    }

    pub(crate) fn tmp(&self) -> PathBuf {
        self.root.join(".tmp")
    }

    pub(crate) fn trash(&self) -> PathBuf {
        self.root.join(".trash")
    }
}

/// Names in a folder that are text; others cannot be ours.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        if let Ok(name) = OsString::into_string(entry?.file_name()) {
            found.push(name);
        }
    }
    Ok(found)
}
