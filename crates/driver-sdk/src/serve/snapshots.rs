//! Snapshots of single volumes.

use csi::v1::*;

use super::page::{cut, fit, page_size, parse_token};
use super::{ControllerService, Result, filled};
use crate::pipeline::{Hold, Key, Plan, Wanted};
use crate::types::{self, CreateSnapshot, Page, SnapshotFilter, SnapshotId, VolumeId};
use crate::validate;

impl ControllerService {
    pub(super) fn plan_create_snapshot(&self, wire: CreateSnapshotRequest) -> Result<Plan<CreateSnapshotResponse>> {
        let snapshots = filled(&self.table.snapshots, "CreateSnapshot")?;
        let source = validate::required("source_volume_id", wire.source_volume_id)?;
        let name = validate::name("name", wire.name)?;
        let secrets = validate::secrets(wire.secrets)?;
        let parameters = validate::map("parameters", wire.parameters)?;
        let key = match snapshots.snapshot_id(&name) {
            Some(id) => Key::Snapshot(id.into_string()),
            None => Key::SnapshotName(name.clone()),
        };
        let locks = Wanted::exclusive(key).and(Key::Volume(source.clone()), Hold::Shared);
        let request = CreateSnapshot { name, source: VolumeId::new(source), parameters, secrets };
        Ok(Plan::change(request.name.clone(), locks, async move {
            let snapshot = snapshots.create_snapshot(request).await?;
            Ok(CreateSnapshotResponse { snapshot: Some(wire_snapshot(snapshot)?) })
        }))
    }

    pub(super) fn plan_delete_snapshot(&self, wire: DeleteSnapshotRequest) -> Result<Plan<DeleteSnapshotResponse>> {
        let snapshots = filled(&self.table.snapshots, "DeleteSnapshot")?;
        let id = validate::required("snapshot_id", wire.snapshot_id)?;
        let secrets = validate::secrets(wire.secrets)?;
        let locks = Wanted::exclusive(Key::Snapshot(id.clone()));
        Ok(Plan::change(id.clone(), locks, async move {
            snapshots.delete_snapshot(SnapshotId::new(id), secrets).await?;
            Ok(DeleteSnapshotResponse {})
        }))
    }

    pub(super) fn plan_get_snapshot(&self, wire: GetSnapshotRequest) -> Result<Plan<GetSnapshotResponse>> {
        let getter = filled(&self.table.get_snapshot, "GetSnapshot")?;
        let id = validate::required("snapshot_id", wire.snapshot_id)?;
        let secrets = validate::secrets(wire.secrets)?;
        Ok(Plan::read(id.clone(), async move {
            let snapshot = getter.get_snapshot(SnapshotId::new(id), secrets).await?;
            Ok(GetSnapshotResponse { snapshot: Some(wire_snapshot(snapshot)?) })
        }))
    }

    pub(super) fn plan_list_snapshots(&self, wire: ListSnapshotsRequest) -> Result<Plan<ListSnapshotsResponse>> {
        let lister = filled(&self.table.list_snapshots, "ListSnapshots")?;
        let size = page_size(validate::max_entries("max_entries", wire.max_entries)?);
        let id = validate::optional("snapshot_id", wire.snapshot_id)?;
        let source = validate::optional("source_volume_id", wire.source_volume_id)?;
        let filter = SnapshotFilter {
            id: (!id.is_empty()).then(|| SnapshotId::new(id)),
            source: (!source.is_empty()).then(|| VolumeId::new(source)),
            secrets: validate::secrets(wire.secrets)?,
        };
        let after = parse_token(&wire.starting_token)?;
        Ok(Plan::read("", async move {
            let page = Page { after: after.clone().map(SnapshotId::new), limit: size + 1 };
            let found = lister.list_snapshots(filter, page).await?;
            let page = cut(found, size, after.as_deref(), |snapshot| snapshot.id.as_str())?;
            let entry = |snapshot: types::Snapshot| {
                let id = snapshot.id.as_str().to_owned();
                Ok((id, list_snapshots_response::Entry { snapshot: Some(wire_snapshot(snapshot)?) }))
            };
            let entries = page.entries.into_iter().map(entry).collect::<Result<_>>()?;
            let (entries, next_token) = fit(entries, page.next_token);
            Ok(ListSnapshotsResponse { entries, next_token })
        }))
    }
}

pub(super) fn wire_snapshot(snapshot: types::Snapshot) -> Result<Snapshot> {
    validate::checked_id("a snapshot id", snapshot.id.as_str())?;
    validate::checked_id("a snapshot's source id", snapshot.source.as_str())?;
    Ok(Snapshot {
        size_bytes: validate::bytes("a snapshot", snapshot.size)?,
        snapshot_id: snapshot.id.into_string(),
        source_volume_id: snapshot.source.into_string(),
        creation_time: Some(snapshot.created.into()),
        ready_to_use: snapshot.ready,
        group_snapshot_id: snapshot.group.map(|group| group.into_string()).unwrap_or_default(),
    })
}
