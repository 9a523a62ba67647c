//! ListVolumes, ListSnapshots, ControllerGetVolume, GetCapacity, ValidateVolumeCapabilities and conditions.

use driver_sdk::{
    Access, Capacity, CapacityQuery, Condition, Error, Page, Parameters, Reason, Snapshot, SnapshotFilter, SnapshotId,
    Source, Support, ValidateVolume, Volume, VolumeId,
};

use super::create::choose_kind;
use super::snapshot::snapshot_answer;
use crate::core::{Core, Found, INLINE_PREFIX};
use crate::fault;
use crate::params;
use crate::pool::{Place, Pool};
use crate::record::{AccessKind, GroupRecord, Kind, ReadError, SnapshotRecord, SourceRef, VolumeRecord};

impl Core {
    pub fn list_volumes(&self, page: &Page<VolumeId>) -> Result<Vec<Volume>, Error> {
        let after = page.after.as_ref().map(VolumeId::as_str);
        let mut volumes = Vec::new();
        for (id, found) in self.sorted(Place::Volumes, after)? {
            if volumes.len() >= page.limit {
                break;
            }
            if id.starts_with(INLINE_PREFIX) {
                continue;
            }
            match found.object.record::<VolumeRecord>() {
                Ok(record) => volumes.push(volume_answer(&record)),
                Err(ReadError::Missing(_)) => {}
                // A damaged volume is listed, so that nobody takes it for gone; its condition says what is wrong.
                Err(_) => volumes.push(damaged_answer(&id, &found)),
            }
        }
        Ok(volumes)
    }

    pub fn get_volume(&self, id: &VolumeId) -> Result<Volume, Error> {
        self.volume(id).map(|(_, record)| volume_answer(&record))
    }

    pub fn list_snapshots(&self, filter: &SnapshotFilter, page: &Page<SnapshotId>) -> Result<Vec<Snapshot>, Error> {
        if let Some(id) = &filter.id {
            let found = match self.snapshot(id) {
                Ok((_, record)) => Some(snapshot_answer(&record)),
                // Its pool is missing: that is not the same as no snapshot.
                Err(error) if matches!(error.reason(), Reason::Unavailable(_)) => return Err(error),
                Err(_) => None,
            };
            let after = |snapshot: &Snapshot| page.after.as_ref().is_none_or(|after| snapshot.id > *after);
            let source = |snapshot: &Snapshot| filter.source.as_ref().is_none_or(|source| snapshot.source == *source);
            return Ok(found.into_iter().filter(after).filter(source).collect());
        }
        let mut snapshots = self.all_snapshots()?;
        snapshots.retain(|snapshot| {
            filter.source.as_ref().is_none_or(|source| snapshot.source == *source)
                && page.after.as_ref().is_none_or(|after| snapshot.id > *after)
        });
        snapshots.truncate(page.limit);
        Ok(snapshots)
    }

    /// Every snapshot, alone or in a group, in id order.
    fn all_snapshots(&self) -> Result<Vec<Snapshot>, Error> {
        let mut all = Vec::new();
        for (_, found) in self.sorted(Place::Snapshots, None)? {
            if let Ok(record) = found.object.record::<SnapshotRecord>() {
                all.push(snapshot_answer(&record));
            }
        }
        for (_, found) in self.sorted(Place::Groups, None)? {
            let Ok(group) = found.object.record::<GroupRecord>() else { continue };
            for number in 0..group.members.len() {
                if let Ok(record) = found.object.member(number).record::<SnapshotRecord>() {
                    all.push(snapshot_answer(&record));
                }
            }
        }
        all.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(all)
    }

    fn sorted(&self, place: Place, after: Option<&str>) -> Result<Vec<(String, Found<'_>)>, Error> {
        let mut all = Vec::new();
        for slot in &self.pools {
            // A list without the objects of a missing pool would tell that they are gone.
            let pool = self.pool(slot)?;
            let ids = pool.ids(place).map_err(|error| fault::io("listing the pool", error))?;
            for id in ids.into_iter().filter(|id| after.is_none_or(|after| id.as_str() > after)) {
                all.push((id.clone(), Found { pool, object: pool.object(place, &id) }));
            }
        }
        all.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(all)
    }

    /// What a class could still get. A question about another node or class has the answer 0, not an error.
    pub fn capacity(&self, query: &CapacityQuery) -> Result<Capacity, Error> {
        let (key, node) = self.segment();
        if query.topology.as_ref().is_some_and(|segments| segments.get(&key).is_some_and(|value| *value != node)) {
            return Ok(Capacity { available: 0, largest_volume: Some(0), smallest_volume: None });
        }
        let mount = [driver_sdk::Capability {
            access: Access::Mount(driver_sdk::MountOptions::default()),
            mode: driver_sdk::AccessMode::SingleNodeWriter,
        }];
        let capabilities = if query.capabilities.is_empty() { &mount[..] } else { &query.capabilities[..] };
        let parameters = Parameters { fixed: query.parameters.clone(), mutable: Default::default() };
        let spec = params::spec(&parameters, capabilities)?;
        // A pool that is missing has no room, and takes none from the others.
        let pools: Vec<&Pool> = self.pools.iter().filter_map(|slot| self.pool(slot).ok()).collect();
        let pools = pools.into_iter().filter(|pool| spec.pool.as_ref().is_none_or(|name| pool.name == *name));
        let mut available = 0u64;
        let mut largest = 0;
        let mut smallest = None;
        for pool in pools {
            let Ok(kind) = choose_kind(pool, &spec) else { continue };
            let least = params::smallest(spec.access, self.choose_fs(kind, &spec)?);
            smallest = Some(least);
            let left = pool.available()? / params::BLOCK * params::BLOCK;
            // Too little for even the smallest volume of this sort is nothing: whoever places a small claim must not be
            // told that it fits.
            if left >= least {
                available = available.saturating_add(left);
                largest = largest.max(left.min(self.config.largest_volume));
            }
        }
        Ok(Capacity { available, largest_volume: Some(largest), smallest_volume: smallest })
    }

    pub fn validate_volume(&self, request: &ValidateVolume) -> Result<Support, Error> {
        let (_, record) = self.volume(&request.volume)?;
        for capability in &request.capabilities {
            let (asked, fs) = match &capability.access {
                Access::Block => (AccessKind::Block, None),
                Access::Mount(options) => (AccessKind::Mount, options.fs_type.as_deref()),
            };
            if asked != record.access {
                return Ok(Support::No("the volume is either block or mount, and the other is asked for".to_owned()));
            }
            match (fs.map(str::parse::<linux::fs::FsType>), record.format.fs()) {
                (Some(Err(_)), _) => {
                    return Ok(Support::No(format!("filesystem {:?} is not known here", fs.unwrap_or_default())));
                }
                (Some(Ok(fs)), Some(has)) if fs != has => {
                    return Ok(Support::No(format!("the volume is {has}, not {fs}")));
                }
                _ => {}
            }
        }
        if !request.parameters.fixed.is_empty() && request.parameters.fixed != record.asked_parameters {
            return Ok(Support::No("the volume was made with other parameters".to_owned()));
        }
        Ok(Support::Yes)
    }

    /// How a volume is doing, as far as the pool shows.
    pub fn volume_condition(&self, id: &VolumeId) -> Result<Condition, Error> {
        let found = self
            .find(Place::Volumes, id.as_str())?
            .ok_or_else(|| Error::not_found(driver_sdk::Kind::Volume, id.as_str()))?;
        let record: VolumeRecord = match found.object.record() {
            Ok(record) => record,
            Err(error) => return Ok(Condition::Abnormal(error.to_string())),
        };
        if let Err(error) = found.object.attachments() {
            return Ok(Condition::Abnormal(error.to_string()));
        }
        if let Some(why) = data_fault(&found, &record) {
            return Ok(Condition::Abnormal(why));
        }
        if let Some(why) = self.loss_condition(&found, &record.id) {
            return Ok(Condition::Abnormal(why));
        }
        let fine = || Condition::Normal("the data is there and the pool has space".to_owned());
        Ok(self.space_condition(id)?.unwrap_or_else(fine))
    }
}

/// What is wrong with a volume's data, if anything.
pub(crate) fn data_fault(found: &Found<'_>, record: &VolumeRecord) -> Option<String> {
    match record.kind {
        Kind::Image => match std::fs::metadata(found.object.image()) {
            Ok(meta) if meta.len() < record.size => {
                Some(format!("its image has {} bytes and should have {}", meta.len(), record.size))
            }
            Ok(_) => None,
            Err(error) => Some(format!("its image cannot be read: {error}")),
        },
        Kind::Directory | Kind::Subvolume => match std::fs::metadata(found.object.data()) {
            Ok(_) => None,
            Err(error) => Some(format!("its directory cannot be read: {error}")),
        },
    }
}

pub(crate) fn volume_answer(record: &VolumeRecord) -> Volume {
    Volume {
        id: VolumeId::new(&record.id),
        capacity: record.size,
        context: Default::default(),
        source: record.source.as_ref().map(|source| match source {
            SourceRef::Snapshot(id) => Source::Snapshot(SnapshotId::new(id)),
            SourceRef::Volume(id) => Source::Volume(VolumeId::new(id)),
        }),
    }
}

fn damaged_answer(id: &str, found: &Found<'_>) -> Volume {
    let size = std::fs::metadata(found.object.image()).map_or(0, |meta| meta.len());
    Volume { id: VolumeId::new(id), capacity: size, context: Default::default(), source: None }
}
