//! CreateSnapshot, DeleteSnapshot, GetSnapshot.
//!
//! Once a snapshot is there, a repeat answers with that cut and never makes another. Snapshots do not depend on their
//! source: a volume can go while its snapshots stay.

use std::time::{Duration, SystemTime};

use driver_sdk::{CreateSnapshot, Error, GroupSnapshotId, Snapshot, SnapshotId, VolumeId, failpoint};

use super::copy::Origin;
use crate::core::Core;
use crate::fault;
use crate::pool::{Hold, Place, Promise};
use crate::record::{Provisioning, SnapshotRecord};

impl Core {
    pub fn create_snapshot(&self, request: &CreateSnapshot) -> Result<Snapshot, Error> {
        if let Some(key) = request.parameters.keys().find(|key| !key.starts_with(crate::keys::CALLER_PREFIX)) {
            return Err(Error::invalid("parameters", format!("unknown key {key:?}; snapshots take no parameters")));
        }
        let id = Self::snapshot_id(&request.name).into_string();
        if let Some(found) = self.find_open(Place::Snapshots, &id)? {
            let record: SnapshotRecord = found.object.record().map_err(fault::record)?;
            if record.name == request.name && record.source == request.source.as_str() {
                return Ok(snapshot_answer(&record));
            }
            return Err(Error::exists(format!(
                "a snapshot named {:?} exists, of volume {}",
                request.name, record.source
            )));
        }
        let (found, volume, lock) = self.held_volume(&request.source, Hold::Shared)?;
        let origin = Origin::of_volume(found, &volume);
        let pool = origin.found.pool;
        let allocated = origin.allocated();
        let space = pool.reserve(Promise { size: allocated, need: allocated })?;
        failpoint::hit("snapshot.reserved");
        let created_ms = self.config.clock.now_ms();
        let draft = self.draft_copy(pool, &id, &origin, Provisioning::Thin)?;
        let record = snapshot_record(&id, &request.name, &origin, created_ms);
        draft.object().draft_record(&record).map_err(fault::sys)?;
        failpoint::hit("snapshot.record_written");
        draft.commit(Place::Snapshots)?;
        pool.mark_shared(&origin.id);
        drop((space, lock));
        failpoint::hit("snapshot.committed");
        Ok(snapshot_answer(&record))
    }

    pub fn delete_snapshot(&self, id: &SnapshotId) -> Result<(), Error> {
        if let Some((group, _)) = id.as_str().split_once('.')
            && self.find(Place::Groups, group)?.is_some()
        {
            return Err(Error::invalid("snapshot_id", format!("{id} belongs to the group {group}; delete the group")));
        }
        self.drop_drafts(id.as_str());
        let Some(found) = self.find(Place::Snapshots, id.as_str())? else { return Ok(()) };
        let lock = self.hold(&found, Hold::Exclusive)?;
        // What is damaged, or of a newer program, only a person removes (LOCAL-R27, LOCAL-R29).
        let _: SnapshotRecord = found.object.record().map_err(fault::record)?;
        failpoint::hit("snapshot_delete.checked");
        let trashed = found.pool.discard(Place::Snapshots, id.as_str())?;
        failpoint::hit("snapshot_delete.discarded");
        trashed.remove();
        self.drop_copies_of(id.as_str());
        found.pool.forget_shares();
        drop(lock);
        Ok(())
    }

    pub fn get_snapshot(&self, id: &SnapshotId) -> Result<Snapshot, Error> {
        self.snapshot(id).map(|(_, record)| snapshot_answer(&record))
    }
}

pub(super) fn snapshot_record(id: &str, name: &str, origin: &Origin<'_>, created_ms: u64) -> SnapshotRecord {
    SnapshotRecord {
        id: id.to_owned(),
        name: name.to_owned(),
        source: origin.id.clone(),
        created_ms,
        size: origin.size,
        kind: origin.kind,
        access: origin.access,
        format: origin.format.clone(),
        block_size: origin.block_size,
        group: None,
    }
}

pub(super) fn snapshot_answer(record: &SnapshotRecord) -> Snapshot {
    Snapshot {
        id: SnapshotId::new(&record.id),
        source: VolumeId::new(&record.source),
        size: record.size,
        created: time(record.created_ms),
        ready: true,
        group: record.group.as_ref().map(GroupSnapshotId::new),
    }
}

pub(super) fn time(ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
}
