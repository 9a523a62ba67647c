//! Group snapshots: several volumes cut at one moment.
//!
//! All filesystems are frozen, all images copied, all thawed. The members live inside the group's directory, so one
//! rename makes the whole group appear or nothing of it. Volumes whose writers cannot be stopped are refused.

use std::fs;

use driver_sdk::{CreateGroupSnapshot, Error, GroupSnapshot, GroupSnapshotId, Kind, Snapshot, failpoint};

use super::copy::Origin;
use super::snapshot::{snapshot_answer, snapshot_record, time};
use crate::core::{Core, Found};
use crate::fault;
use crate::loss;
use crate::pool::{Draft, Hold, Object, Place, Promise};
use crate::record::{GroupRecord, SnapshotRecord};

impl Core {
    pub fn create_group(&self, request: &CreateGroupSnapshot) -> Result<GroupSnapshot, Error> {
        let id = Self::group_id(&request.name).into_string();
        let sources: Vec<String> = request.sources.iter().map(|id| id.as_str().to_owned()).collect();
        if let Some(found) = self.find_open(Place::Groups, &id)? {
            let record: GroupRecord = found.object.record().map_err(fault::record)?;
            if record.name == request.name && record.sources == sources && record.parameters == request.parameters {
                return group_answer(&found, &record);
            }
            return Err(Error::exists(format!(
                "a group snapshot named {:?} exists with other volumes or parameters",
                request.name
            )));
        }
        let mut origins = Vec::new();
        let mut locks = Vec::new();
        for source in &request.sources {
            let (found, record, lock) = self.held_volume(source, Hold::Shared)?;
            locks.push(lock);
            origins.push(Origin::of_volume(found, &record));
        }
        self.cut_group(&id, request, &origins)
    }

    fn cut_group(
        &self,
        id: &str,
        request: &CreateGroupSnapshot,
        origins: &[Origin<'_>],
    ) -> Result<GroupSnapshot, Error> {
        let Some(first) = origins.first() else {
            return Err(Error::invalid("source_volume_ids", "at least one volume is required"));
        };
        let pool = first.found.pool;
        if let Some(other) = origins.iter().find(|origin| origin.found.pool.root != pool.root) {
            return Err(Error::precondition(format!(
                "{} and {} are in different pools and cannot be cut together",
                first.id, other.id
            )));
        }
        let allocated = origins.iter().map(Origin::allocated).sum();
        let space = pool.reserve(Promise { size: allocated, need: allocated })?;
        failpoint::hit("group.reserved");
        let draft = Draft::begin(pool, id)?;
        let members = members_of(&draft, origins)?;
        let created_ms = self.cut(&members)?;
        failpoint::hit("group.cut");
        let record = GroupRecord {
            id: id.to_owned(),
            name: request.name.clone(),
            created_ms,
            sources: origins.iter().map(|origin| origin.id.clone()).collect(),
            members: (0..origins.len()).map(|number| format!("{id}.{number}")).collect(),
            parameters: request.parameters.clone(),
        };
        for (origin, member) in &members {
            loss::copy_mark(&origin.found.object, &origin.id, member)?;
        }
        for ((origin, member), member_id) in members.iter().zip(&record.members) {
            let mut snapshot = snapshot_record(member_id, &request.name, origin, created_ms);
            snapshot.group = Some(id.to_owned());
            member.write_record(&snapshot).map_err(fault::sys)?;
        }
        draft.object().draft_record(&record).map_err(fault::sys)?;
        failpoint::hit("group.record_written");
        let object = draft.commit(Place::Groups)?;
        origins.iter().for_each(|origin| pool.mark_shared(&origin.id));
        drop(space);
        failpoint::hit("group.committed");
        group_answer(&Found { pool, object }, &record)
    }

    pub fn get_group(&self, id: &GroupSnapshotId) -> Result<GroupSnapshot, Error> {
        let missing = || Error::not_found(Kind::GroupSnapshot, id.as_str());
        let found = self.find(Place::Groups, id.as_str())?.ok_or_else(missing)?;
        let record: GroupRecord = found.object.record().map_err(fault::record)?;
        group_answer(&found, &record)
    }

    pub fn delete_group(&self, id: &GroupSnapshotId) -> Result<(), Error> {
        let Some(found) = self.find(Place::Groups, id.as_str())? else { return Ok(()) };
        let lock = self.hold(&found, Hold::Exclusive)?;
        failpoint::hit("group_delete.checked");
        let trashed = found.pool.discard(Place::Groups, id.as_str())?;
        failpoint::hit("group_delete.discarded");
        trashed.remove();
        self.drop_copies_of(id.as_str());
        found.pool.forget_shares();
        drop(lock);
        Ok(())
    }
}

fn members_of<'o>(draft: &Draft<'_>, origins: &'o [Origin<'o>]) -> Result<Vec<(&'o Origin<'o>, Object)>, Error> {
    let mut members = Vec::new();
    for (number, origin) in origins.iter().enumerate() {
        let member = draft.object().member(number);
        fs::create_dir(member.dir()).map_err(|error| fault::io(format!("making {}", member.dir().display()), error))?;
        members.push((origin, member));
    }
    Ok(members)
}

fn group_answer(found: &Found<'_>, record: &GroupRecord) -> Result<GroupSnapshot, Error> {
    let snapshots: Result<Vec<Snapshot>, Error> = (0..record.members.len())
        .map(|number| {
            let member: SnapshotRecord = found.object.member(number).record().map_err(fault::record)?;
            Ok(snapshot_answer(&member))
        })
        .collect();
    Ok(GroupSnapshot { id: GroupSnapshotId::new(&record.id), snapshots: snapshots?, created: time(record.created_ms) })
}
