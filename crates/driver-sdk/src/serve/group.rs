//! The GroupController service: several volumes cut at one moment.

use std::collections::BTreeSet;

use csi::v1::group_controller_server::GroupController;
use csi::v1::*;
use tonic::{Request, Response, Status};

use super::snapshots::wire_snapshot;
use super::{ControllerService, Result, filled};
use crate::error::{Error, Reason};
use crate::pipeline::{Hold, Key, Plan, Wanted, call, method};
use crate::types::{self, CreateGroupSnapshot, GroupSnapshotId, VolumeId};
use crate::{capabilities, validate};

type Answer<T> = std::result::Result<Response<T>, Status>;

#[tonic::async_trait]
impl GroupController for ControllerService {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<GroupControllerGetCapabilitiesRequest>,
    ) -> Answer<GroupControllerGetCapabilitiesResponse> {
        self.shared.pipeline.inline(method::GROUP_CONTROLLER_GET_CAPABILITIES, || {
            Ok(GroupControllerGetCapabilitiesResponse { capabilities: capabilities::group(&self.shared.definition) })
        })
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<CreateVolumeGroupSnapshotRequest>,
    ) -> Answer<CreateVolumeGroupSnapshotResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::CREATE_VOLUME_GROUP_SNAPSHOT, request, |wire| self.plan_create_group(wire)).await
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<DeleteVolumeGroupSnapshotRequest>,
    ) -> Answer<DeleteVolumeGroupSnapshotResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::DELETE_VOLUME_GROUP_SNAPSHOT, request, |wire| self.plan_delete_group(wire)).await
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<GetVolumeGroupSnapshotRequest>,
    ) -> Answer<GetVolumeGroupSnapshotResponse> {
        let pipeline = &self.shared.pipeline;
        pipeline.handle(method::GET_VOLUME_GROUP_SNAPSHOT, request, |wire| self.plan_get_group(wire)).await
    }
}

impl ControllerService {
    fn plan_create_group(
        &self,
        wire: CreateVolumeGroupSnapshotRequest,
    ) -> Result<Plan<CreateVolumeGroupSnapshotResponse>> {
        let groups = filled(&self.table.group_snapshots, "CreateVolumeGroupSnapshot")?;
        let name = validate::name("name", wire.name)?;
        if wire.source_volume_ids.is_empty() {
            return Err(validate::missing("source_volume_ids"));
        }
        let sources = wire.source_volume_ids.into_iter().map(|id| validate::required("source_volume_ids", id));
        let sources = sources.collect::<Result<BTreeSet<String>>>()?;
        let secrets = validate::secrets(wire.secrets)?;
        let parameters = validate::map("parameters", wire.parameters)?;
        let key = match groups.group_id(&name) {
            Some(id) => Key::Group(id.into_string()),
            None => Key::GroupName(name.clone()),
        };
        let locks =
            sources.iter().fold(Wanted::exclusive(key), |locks, id| locks.and(Key::Volume(id.clone()), Hold::Shared));
        let sources = sources.into_iter().map(VolumeId::new).collect();
        let request = CreateGroupSnapshot { name, sources, parameters, secrets };
        Ok(Plan::change(request.name.clone(), locks, async move {
            let group = groups.create_group(request).await?;
            Ok(CreateVolumeGroupSnapshotResponse { group_snapshot: Some(wire_group(group)?) })
        }))
    }

    fn plan_delete_group(
        &self,
        wire: DeleteVolumeGroupSnapshotRequest,
    ) -> Result<Plan<DeleteVolumeGroupSnapshotResponse>> {
        let groups = filled(&self.table.group_snapshots, "DeleteVolumeGroupSnapshot")?;
        let id = validate::required("group_snapshot_id", wire.group_snapshot_id)?;
        let members = members(wire.snapshot_ids)?;
        let secrets = validate::secrets(wire.secrets)?;
        let pipeline = self.shared.pipeline.clone();
        let wanted = Wanted::exclusive(Key::Group(id.clone()));
        Ok(Plan::change(id.clone(), wanted, async move {
            let id = GroupSnapshotId::new(id);
            let group = match groups.get_group(id.clone(), secrets.clone()).await {
                Ok(group) => group,
                Err(error) if matches!(error.reason(), Reason::NotFound { .. }) => {
                    return Ok(DeleteVolumeGroupSnapshotResponse {});
                }
                Err(error) => return Err(error),
            };
            compare(&group, &members)?;
            // Nobody may restore a member while it goes away.
            let keys = group.snapshots.iter().map(|snapshot| Key::Snapshot(snapshot.id.as_str().to_owned()));
            let wanted = keys.fold(Wanted::none(), |wanted, key| wanted.and(key, Hold::Exclusive));
            let _guard = call::holder().map(|holder| pipeline.locks.acquire(wanted, holder)).transpose()?;
            groups.delete_group(id, secrets).await?;
            Ok(DeleteVolumeGroupSnapshotResponse {})
        }))
    }

    fn plan_get_group(&self, wire: GetVolumeGroupSnapshotRequest) -> Result<Plan<GetVolumeGroupSnapshotResponse>> {
        let groups = filled(&self.table.group_snapshots, "GetVolumeGroupSnapshot")?;
        let id = validate::required("group_snapshot_id", wire.group_snapshot_id)?;
        let members = members(wire.snapshot_ids)?;
        let secrets = validate::secrets(wire.secrets)?;
        Ok(Plan::read(id.clone(), async move {
            let group = groups.get_group(GroupSnapshotId::new(id), secrets).await?;
            compare(&group, &members)?;
            Ok(GetVolumeGroupSnapshotResponse { group_snapshot: Some(wire_group(group)?) })
        }))
    }
}

/// The list that a caller believes to be the group's. Required by the specification, left out by callers (LOCAL-0.5).
fn members(ids: Vec<String>) -> Result<BTreeSet<String>> {
    ids.into_iter().map(|id| validate::required("snapshot_ids", id)).collect()
}

fn compare(group: &types::GroupSnapshot, listed: &BTreeSet<String>) -> Result<()> {
    let equal = || {
        let actual: BTreeSet<&str> = group.snapshots.iter().map(|snapshot| snapshot.id.as_str()).collect();
        listed.iter().map(String::as_str).eq(actual)
    };
    match listed.is_empty() || equal() {
        true => Ok(()),
        false => Err(Error::invalid("snapshot_ids", format!("are not the members of group {:?}", group.id.as_str()))),
    }
}

fn wire_group(group: types::GroupSnapshot) -> Result<VolumeGroupSnapshot> {
    let types::GroupSnapshot { id, snapshots, created } = group;
    validate::checked_id("a group snapshot id", id.as_str())?;
    let member = |mut snapshot: types::Snapshot| match snapshot.group.get_or_insert_with(|| id.clone()) == &id {
        true => wire_snapshot(snapshot),
        false => Err(validate::bug("a member of a group names another group")),
    };
    let snapshots = snapshots.into_iter().map(member).collect::<Result<Vec<_>>>()?;
    let ready_to_use = snapshots.iter().all(|snapshot| snapshot.ready_to_use);
    let group_snapshot_id = id.into_string();
    Ok(VolumeGroupSnapshot { group_snapshot_id, snapshots, creation_time: Some(created.into()), ready_to_use })
}
