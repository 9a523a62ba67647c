//! The driver's synchronous heart: pools, and how an id becomes an object in one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use driver_sdk::id::derive_id;
use driver_sdk::{Error, GroupSnapshotId, Kind, SnapshotId, VolumeId};

use crate::config::{Attachment, Config, ConfigError, Role};
use crate::fault;
use crate::keys;
use crate::pool::{Hold, HoldError, Object, ObjectLock, OpenError, Orphan, Place, Pool};
use crate::record::{ReadError, SnapshotRecord, VolumeRecord};

const VOLUME_PREFIX: &str = "vol-";
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

#[derive(Debug)]
pub struct Core {
    pub(crate) config: Config,
    pub(crate) pools: Vec<Pool>,
    /// Notes of another boot describe mounts that are gone (fact 30).
    pub(crate) boot_id: String,
    /// Volumes attached per node, for the limit. Only the controller's process attaches.
    attached: Mutex<BTreeMap<String, BTreeSet<String>>>,
    orphans: Vec<Orphan>,
}

impl Core {
    /// Opens all pools and brings them back to order. Nothing is served before this is done.
    pub fn start(config: Config) -> Result<Self, StartError> {
        config.check().map_err(StartError::Config)?;
        let boot_id =
            fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(StartError::BootId)?.trim().to_owned();
        let mut pools = Vec::new();
        let mut orphans = Vec::new();
        for entry in &config.pools {
            let pool = Pool::open(entry, &config)?;
            let recover = |source| StartError::Recover { pool: pool.name.clone(), source };
            let done = pool.recover(config.role, &boot_id).map_err(recover)?;
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
            orphans.extend(done.orphans);
            pools.push(pool);
        }
        let core = Self { config, pools, boot_id, attached: Mutex::default(), orphans };
        core.count_attachments();
        Ok(core)
    }

    /// What recovery found and did not touch.
    pub fn orphans(&self) -> &[Orphan] {
        &self.orphans
    }

    fn count_attachments(&self) {
        if self.config.role == Role::Node || self.config.attachment == Attachment::Off {
            return;
        }
        let mut attached = self.attached();
        for pool in &self.pools {
            for id in pool.ids(Place::Volumes).unwrap_or_default() {
                for node in pool.object(Place::Volumes, &id).attachments().unwrap_or_default().nodes.into_keys() {
                    attached.entry(node).or_default().insert(id.clone());
                }
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

    /// Finds an object by id. An id that we never give out is not looked for: it might be a path.
    pub(crate) fn find(&self, place: Place, id: &str) -> Option<Found<'_>> {
        if !is_ours(id) {
            return None;
        }
        self.pools.iter().find_map(|pool| pool.existing(place, id).map(|object| Found { pool, object }))
    }

    /// The volume of this id with its record.
    pub(crate) fn volume(&self, id: &VolumeId) -> Result<(Found<'_>, VolumeRecord), Error> {
        let found =
            self.find(Place::Volumes, id.as_str()).ok_or_else(|| Error::not_found(Kind::Volume, id.as_str()))?;
        match found.object.record() {
            Ok(record) => Ok((found, record)),
            // Between our look and the read it was deleted.
            Err(ReadError::Missing(_)) if !found.object.dir().exists() => {
                Err(Error::not_found(Kind::Volume, id.as_str()))
            }
            Err(error) => Err(fault::record(error)),
        }
    }

    /// The snapshot of this id, alone or member of a group.
    pub(crate) fn snapshot(&self, id: &SnapshotId) -> Result<(Found<'_>, SnapshotRecord), Error> {
        let missing = || Error::not_found(Kind::Snapshot, id.as_str());
        let found = match id.as_str().split_once('.') {
            None => self.find(Place::Snapshots, id.as_str()).ok_or_else(missing)?,
            Some((group, number)) => {
                let number: usize = number.parse().map_err(|_| missing())?;
                let group = self.find(Place::Groups, group).ok_or_else(missing)?;
                Found { pool: group.pool, object: group.object.member(number) }
            }
        };
        match found.object.record() {
            Ok(record) => Ok((found, record)),
            Err(ReadError::Missing(_)) if !found.object.dir().exists() => Err(missing()),
            Err(error) => Err(fault::record(error)),
        }
    }

    /// Holds an object against other processes for as long as the lock lives.
    pub(crate) fn hold(&self, found: &Found<'_>, hold: Hold) -> Result<ObjectLock, Error> {
        let name = found.object.dir().file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.object.hold(hold).map_err(|error| match error {
            HoldError::Busy => Error::busy(format!("{name} is being worked on by another process; repeat the call")),
            HoldError::Gone => Error::not_found(Kind::Volume, name),
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
