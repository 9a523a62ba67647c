//! The driver's synchronous heart: pools, and how an id becomes an object in one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use driver_sdk::id::derive_id;
use driver_sdk::{Error, GroupSnapshotId, Kind, SnapshotId, VolumeId};

use crate::config::{Attachment, Config, ConfigError, PoolConfig, Role};
use crate::fault;
use crate::keys;
use crate::loss::UnnotedLoss;
use crate::pool::{Hold, HoldError, Object, ObjectLock, OpenError, Place, Pool};
use crate::record::{ReadError, SnapshotRecord, VolumeRecord};
use crate::space::FrozenVolumes;

pub(crate) const VOLUME_PREFIX: &str = "vol-";
const SNAPSHOT_PREFIX: &str = "snap-";
const GROUP_PREFIX: &str = "group-";
pub(crate) use crate::pool::INLINE_PREFIX;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the configuration cannot be used: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Config(Vec<ConfigError>),
    #[error("opening a pool")]
    Pool(#[from] OpenError),
    #[error("bringing pool {pool:?} back to order")]
    Recover {
        pool: String,
        #[source]
        source: Error,
    },
    #[error("reading the machine's boot id")]
    BootId(#[source] io::Error),
}

/// An object and the pool it is in.
#[derive(Debug, Clone)]
pub(crate) struct Found<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) object: Object,
}

/// A configured pool: open, or missing until its disk is there.
#[derive(Debug)]
pub(crate) struct PoolSlot {
    entry: PoolConfig,
    open: OnceLock<Pool>,
    /// Held while the pool is being opened, so that it is opened once.
    opening: Mutex<()>,
}

#[derive(Debug)]
pub struct Core {
    pub(crate) config: Config,
    pub(crate) pools: Vec<PoolSlot>,
    /// Notes of another boot describe mounts that are gone (LOCAL-0.30).
    pub(crate) boot_id: String,
    /// Volumes attached per node, for the limit. Only the controller's process attaches.
    attached: Mutex<BTreeMap<String, BTreeSet<String>>>,
    /// Volumes that are frozen because their pool is full.
    pub(crate) frozen: Mutex<FrozenVolumes>,
    /// What the last look at the pools' space found, as text for metrics.
    pub(crate) measured: Mutex<String>,
    /// Lost writes that could not be noted beside their volume, by the volume's directory. The kernel tells of them once only.
    pub(crate) unnoted_losses: Mutex<BTreeMap<PathBuf, UnnotedLoss>>,
}

impl PoolSlot {
    pub(crate) fn name(&self) -> &str {
        &self.entry.name
    }

    /// The pool, if it was there when it was last looked for.
    pub(crate) fn opened(&self) -> Option<&Pool> {
        self.open.get()
    }
}

impl Core {
    /// Opens all pools and brings them back to order. Nothing is served before this is done. A pool that is remembered and
    /// not there is left out; it is looked for again by the calls that need it.
    pub fn start(config: Config) -> Result<Self, StartError> {
        config.check().map_err(StartError::Config)?;
        let boot_id =
            fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(StartError::BootId)?.trim().to_owned();
        let slot =
            |entry: &PoolConfig| PoolSlot { entry: entry.clone(), open: OnceLock::new(), opening: Mutex::default() };
        let pools = config.pools.iter().map(slot).collect();
        let core = Self {
            config,
            pools,
            boot_id,
            attached: Mutex::default(),
            frozen: Mutex::default(),
            measured: Mutex::default(),
            unnoted_losses: Mutex::default(),
        };
        for slot in &core.pools {
            match core.open_pool(&slot.entry) {
                Ok(pool) => drop(slot.open.set(pool)),
                Err(StartError::Pool(OpenError::Missing(error))) => tracing::error!("{error}"),
                Err(error) => return Err(error),
            }
        }
        if core.config.role != Role::Node {
            core.drop_dead_copies();
        }
        Ok(core)
    }

    /// Clears what waits in the pools' hidden folders as far as it can be cleared now: deleted objects that could not
    /// be removed, and unfinished copies that can never go on.
    pub fn clear_leftovers(&self) {
        self.open_pools().for_each(Pool::empty_stuck_trash);
        if self.config.role != Role::Node {
            self.drop_dead_copies();
        }
    }

    fn open_pool(&self, entry: &PoolConfig) -> Result<Pool, StartError> {
        let pool = Pool::open(entry, &self.config)?;
        let recover = |source| StartError::Recover { pool: pool.name.clone(), source };
        let done = pool.recover(self.config.role, &self.boot_id).map_err(recover)?;
        tracing::info!(
            pool = %pool.name,
            drafts_removed = done.drafts_removed,
            copies_to_resume = done.copies_to_resume,
            trash_removed = done.trash_removed,
            loops_released = done.loops_released,
            thawed = done.thawed,
            "the pool is in order"
        );
        for orphan in &done.orphans {
            tracing::error!(path = %orphan.path.display(), why = %orphan.why, "left alone: not a whole object");
        }
        pool.load_ballast();
        self.count_attachments(&pool);
        Ok(pool)
    }

    /// The pool of a slot, if it is there now. One that was missing is opened when it has come back.
    pub(crate) fn pool<'a>(&'a self, slot: &'a PoolSlot) -> Result<&'a Pool, Error> {
        if let Some(pool) = slot.open.get() {
            pool.confirm()?;
            return Ok(pool);
        }
        let _opening = slot.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = slot.open.get() {
            return Ok(pool);
        }
        match self.open_pool(&slot.entry) {
            Ok(pool) => {
                tracing::info!(pool = %pool.name, "the pool that was missing is back");
                Ok(slot.open.get_or_init(|| pool))
            }
            Err(StartError::Pool(OpenError::Missing(error))) => Err(error.into()),
            Err(error) => {
                Err(Error::unavailable(format!("pool missing: {:?} cannot be opened", slot.entry.name)).because(error))
            }
        }
    }

    /// Pools that were open when they were last looked at.
    pub(crate) fn open_pools(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter().filter_map(PoolSlot::opened)
    }

    /// The pool that classes call by this name.
    pub(crate) fn pool_named(&self, name: &str) -> Result<&Pool, Error> {
        match self.pools.iter().find(|slot| slot.entry.name == name) {
            Some(slot) => self.pool(slot),
            None => {
                let known: Vec<&str> = self.pools.iter().map(|slot| slot.entry.name.as_str()).collect();
                Err(Error::invalid("parameters", format!("pool {name:?} is not one of {}", known.join(", "))))
            }
        }
    }

    fn count_attachments(&self, pool: &Pool) {
        if self.config.role == Role::Node || self.config.attachment == Attachment::Off {
            return;
        }
        let mut attached = self.attached();
        for id in pool.ids(Place::Volumes).unwrap_or_default() {
            for node in pool.object(Place::Volumes, &id).attachments().unwrap_or_default().nodes.into_keys() {
                attached.entry(node).or_default().insert(id.clone());
            }
        }
    }

    pub(crate) fn attached(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<String>>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn volume_id(name: &str) -> VolumeId {
        VolumeId::new(derive_id(VOLUME_PREFIX, "volume", name))
    }

    pub fn snapshot_id(name: &str) -> SnapshotId {
        SnapshotId::new(derive_id(SNAPSHOT_PREFIX, "snapshot", name))
    }

    pub fn group_id(name: &str) -> GroupSnapshotId {
        GroupSnapshotId::new(derive_id(GROUP_PREFIX, "group", name))
    }

    /// The id under which an inline volume is kept: the caller chose its own, which need not be a file name.
    pub(crate) fn inline_id(id: &VolumeId) -> String {
        derive_id(INLINE_PREFIX, "inline", id.as_str())
    }

    /// Our topology segment.
    pub(crate) fn segment(&self) -> (String, String) {
        (keys::topology_key(&self.config.driver_name), self.config.node_id.clone())
    }

    pub(crate) fn attach_required(&self) -> bool {
        matches!(self.config.attachment, Attachment::On { .. })
    }

    /// Finds an object by id. An id that we never give out is not looked for: it might be a path. While a pool is missing,
    /// an id that no other pool has may be in that one: then this is an error, and never `None`.
    pub(crate) fn find(&self, place: Place, id: &str) -> Result<Option<Found<'_>>, Error> {
        if let Some(found) = self.find_open(place, id)? {
            return Ok(Some(found));
        }
        if !is_ours(id) {
            return Ok(None);
        }
        let mut missing = None;
        for slot in &self.pools {
            match self.pool(slot) {
                // It may have come back just now, and the directory may have been empty a moment ago.
                Ok(pool) => {
                    if let Some(object) = pool.existing(place, id)? {
                        return Ok(Some(Found { pool, object }));
                    }
                }
                Err(error) => missing = missing.or(Some(error)),
            }
        }
        missing.map_or(Ok(None), Err)
    }

    /// As [`Self::find`], in those pools only that are open: `None` does not say that the object exists nowhere.
    pub(crate) fn find_open(&self, place: Place, id: &str) -> Result<Option<Found<'_>>, Error> {
        if !is_ours(id) {
            return Ok(None);
        }
        for pool in self.open_pools() {
            if let Some(object) = pool.existing(place, id)? {
                return Ok(Some(Found { pool, object }));
            }
        }
        Ok(None)
    }

    /// The volume of this id with its record.
    pub(crate) fn volume(&self, id: &VolumeId) -> Result<(Found<'_>, VolumeRecord), Error> {
        let missing = || Error::not_found(Kind::Volume, id.as_str());
        let found = self.find(Place::Volumes, id.as_str())?.ok_or_else(missing)?;
        match found.object.record() {
            Ok(record) => Ok((found, record)),
            // Between our look and the read it was deleted, or its pool went away.
            Err(ReadError::Missing(_)) if !found.object.dir().exists() => {
                found.pool.confirm()?;
                Err(missing())
            }
            Err(error) => Err(fault::record(error)),
        }
    }

    /// As [`Self::volume`], held: the record is read once the volume is locked, so that no other process changes it meanwhile.
    pub(crate) fn held_volume(
        &self,
        id: &VolumeId,
        hold: Hold,
    ) -> Result<(Found<'_>, VolumeRecord, ObjectLock), Error> {
        let (found, _) = self.volume(id)?;
        let lock = self.hold(&found, hold)?;
        let record = found.object.record().map_err(fault::record)?;
        Ok((found, record, lock))
    }

    /// The snapshot of this id, alone or member of a group.
    pub(crate) fn snapshot(&self, id: &SnapshotId) -> Result<(Found<'_>, SnapshotRecord), Error> {
        let missing = || Error::not_found(Kind::Snapshot, id.as_str());
        let found = match id.as_str().split_once('.') {
            None => self.find(Place::Snapshots, id.as_str())?.ok_or_else(missing)?,
            Some((group, number)) => {
                let number: usize = number.parse().map_err(|_| missing())?;
                let group = self.find(Place::Groups, group)?.ok_or_else(missing)?;
                Found { pool: group.pool, object: group.object.member(number) }
            }
        };
        match found.object.record() {
            Ok(record) => Ok((found, record)),
            Err(ReadError::Missing(_)) if !found.object.dir().exists() => {
                found.pool.confirm()?;
                Err(missing())
            }
            Err(error) => Err(fault::record(error)),
        }
    }

    /// Holds an object against other processes for as long as the lock lives.
    pub(crate) fn hold(&self, found: &Found<'_>, hold: Hold) -> Result<ObjectLock, Error> {
        let name = found.object.dir().file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.object.hold(hold).map_err(|error| match error {
            HoldError::Busy => Error::busy(format!("{name} is being worked on by another process; repeat the call")),
            HoldError::Gone => match found.pool.confirm() {
                Ok(()) => Error::not_found(Kind::Volume, name),
                Err(missing) => missing.into(),
            },
            HoldError::Io(source) => fault::io(format!("locking {name}"), source),
        })
    }
}

/// Ids are a known prefix, 26 letters of base32 and, for members of groups, a number.
pub(crate) fn is_ours(id: &str) -> bool {
    let prefixes = [VOLUME_PREFIX, SNAPSHOT_PREFIX, GROUP_PREFIX, INLINE_PREFIX];
    let Some(rest) = prefixes.iter().find_map(|prefix| id.strip_prefix(prefix)) else { return false };
    rest.len() == 26 && rest.bytes().all(|byte| byte.is_ascii_lowercase() || (b'2'..=b'7').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: WIRE-B.4, LOCAL-E.4
    #[test]
    fn ids_are_safe_file_names_whatever_the_name_is() {
        for name in ["a", "../../etc/passwd", "x/y", "\u{1f600}", &"n".repeat(128)] {
            for id in [Core::volume_id(name).into_string(), Core::snapshot_id(name).into_string()] {
                assert!(is_ours(&id), "{id}");
            }
        }
    }

    #[test]
    fn an_id_that_could_be_a_path_is_never_looked_for() {
        for id in [
            "..",
            "vol-..",
            "../vol-aaaaaaaaaaaaaaaaaaaaaaaaaa",
            "fake-vol-id",
            "",
            "vol-",
            "vol-aaaaaaaaaaaaaaaaaaaaaaaaa/",
        ] {
            assert!(!is_ours(id), "{id}");
        }
    }
}
