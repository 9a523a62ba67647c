//! What the driver is told at start, checked once.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::record::Provisioning;
use linux::fs::FsType;

/// Where the driver takes the time from.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    pub fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        let since = (self.0)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// Which half of the driver this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    All,
    Controller,
    Node,
}

/// One pool: a directory, and the name classes call it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    pub name: String,
    pub path: PathBuf,
}

/// May a directory that is no pool yet become one?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingPool {
    /// An empty or absent directory becomes a pool.
    Create,
    /// It is an error: the directory may be the mount point of a disk that is not there yet.
    Refuse,
}

/// Are volumes attached to nodes before they are staged?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// The driver does not offer attaching.
    Off,
    /// Attaching is offered and demanded, up to a number of volumes per node.
    On { limit: Option<u64> },
}

#[derive(Debug, Clone)]
pub struct Config {
    pub driver_name: String,
    pub node_id: String,
    pub role: Role,
    pub pools: Vec<PoolConfig>,
    pub missing_pool: MissingPool,
    /// Where known pools are remembered, outside of the pools. `None` remembers none: a pool whose disk is not mounted then
    /// looks like an empty directory.
    pub state_dir: Option<PathBuf>,
    pub attachment: Attachment,
    /// How many bytes may be promised per byte of pool. 1.0 promises no space twice.
    pub overcommit: f64,
    /// Bytes of each pool that are never promised.
    pub reserve: u64,
    pub default_fs: FsType,
    pub largest_volume: u64,
    /// How long a filesystem may stay frozen for a snapshot.
    pub freeze_budget: Duration,
    /// Command line of the process that thaws if we die; mount points are appended.
    pub freeze_guard: Vec<OsString>,
    /// As `freeze_guard`, for volumes that stay frozen until their pool has space: it thaws only if we die.
    pub hold_guard: Vec<OsString>,
    /// Provisioning of image volumes whose class names none. `None` chooses by pool: thick where others use the filesystem.
    pub provisioning: Option<Provisioning>,
    pub clock: Clock,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("no pool given: name at least one directory with --pool")]
    NoPool,
    #[error("two pools are called {0:?}: give one of them another name (--pool NAME=DIR)")]
    SameName(String),
    #[error("the pool directory {0} is given twice")]
    SamePath(PathBuf),
    #[error("pool name {0:?} is not usable: letters, digits, '-', '_' and '.', at most 63")]
    BadPoolName(String),
    #[error("node id {id:?} is not usable: {why}")]
    BadNodeId { id: String, why: &'static str },
    #[error("overcommit must be at least 1.0 and at most 1000, not {0}")]
    BadOvercommit(String),
}

impl Config {
    /// All faults at once, so that a user mends them in one go.
    pub fn check(&self) -> Result<(), Vec<ConfigError>> {
        let mut faults = Vec::new();
        if self.pools.is_empty() {
            faults.push(ConfigError::NoPool);
        }
        for (at, pool) in self.pools.iter().enumerate() {
            if !is_label(&pool.name) {
                faults.push(ConfigError::BadPoolName(pool.name.clone()));
            }
            if self.pools[..at].iter().any(|other| other.name == pool.name) {
                faults.push(ConfigError::SameName(pool.name.clone()));
            }
            if self.pools[..at].iter().any(|other| other.path == pool.path) {
                faults.push(ConfigError::SamePath(pool.path.clone()));
            }
        }
        // The node id is also the value of our topology segment, which has the stricter rules (WIRE-B.4).
        if !is_label(&self.node_id) {
            let why =
                "a topology value has 1 to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends";
            faults.push(ConfigError::BadNodeId { id: self.node_id.clone(), why });
        }
        if !(1.0..=1000.0).contains(&self.overcommit) {
            faults.push(ConfigError::BadOvercommit(self.overcommit.to_string()));
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

fn is_label(text: &str) -> bool {
    let ends = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    text.len() <= 63
        && ends(text.chars().next())
        && ends(text.chars().last())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.'))
}
