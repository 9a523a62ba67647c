//! More calls as tests write them: questions, copies of many, and the ways in which a call can be refused.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;

use csi::v1::volume_capability::AccessType;
use csi::v1::*;
use driver_sdk::testing::Clients;
use tonic::{Code, Response, Status};

use super::NODE;
use super::call::Use;

/// Fails unless the call was refused with this code, in words that contain all of these.
#[track_caller]
pub fn refused<T: Debug>(answer: Result<T, Status>, code: Code, words: &[&str]) -> String {
    let status = answer.expect_err("the call should be refused");
    assert_eq!(status.code(), code, "{}", status.message());
    for word in words {
        assert!(status.message().contains(word), "{word:?} is not in {:?}", status.message());
    }
    assert!(!status.message().contains('\n'), "one line: {:?}", status.message());
    status.message().to_owned()
}

pub fn with_flags<const N: usize>(capability: VolumeCapability, flags: [&str; N]) -> VolumeCapability {
    with_mount(capability, |volume| volume.mount_flags = flags.map(str::to_owned).to_vec())
}

pub fn with_group(capability: VolumeCapability, group: &str) -> VolumeCapability {
    with_mount(capability, |volume| volume.volume_mount_group = group.to_owned())
}

fn with_mount(
    mut capability: VolumeCapability,
    change: impl FnOnce(&mut volume_capability::MountVolume),
) -> VolumeCapability {
    match &mut capability.access_type {
        Some(AccessType::Mount(volume)) => change(volume),
        _ => panic!("not a mount capability"),
    }
    capability
}

pub fn stage_request(using: &Use) -> NodeStageVolumeRequest {
    NodeStageVolumeRequest {
        volume_id: using.id.clone(),
        staging_target_path: using.staging.to_str().unwrap().to_owned(),
        volume_capability: Some(using.capability.clone()),
        ..Default::default()
    }
}

pub fn publish_request(using: &Use) -> NodePublishVolumeRequest {
    NodePublishVolumeRequest {
        volume_id: using.id.clone(),
        staging_target_path: using.staging.to_str().unwrap().to_owned(),
        target_path: using.target.to_str().unwrap().to_owned(),
        volume_capability: Some(using.capability.clone()),
        readonly: using.readonly,
        ..Default::default()
    }
}

/// A publication of an inline volume with these attributes.
pub fn inline_request(using: &Use, attributes: BTreeMap<String, String>) -> NodePublishVolumeRequest {
    let mut request = NodePublishVolumeRequest { staging_target_path: String::new(), ..publish_request(using) };
    request.volume_context = attributes;
    request.volume_context.insert(driver_sdk::keys::EPHEMERAL.to_owned(), "true".to_owned());
    request
}

pub async fn publish_with(clients: &Clients, request: NodePublishVolumeRequest) -> Result<(), Status> {
    clients.node.clone().node_publish_volume(request).await.map(drop)
}

pub async fn attach_readonly(clients: &Clients, using: &Use) -> Result<BTreeMap<String, String>, Status> {
    let request = ControllerPublishVolumeRequest {
        volume_id: using.id.clone(),
        node_id: NODE.to_owned(),
        volume_capability: Some(using.capability.clone()),
        readonly: true,
        ..Default::default()
    };
    let answer = clients.controller.clone().controller_publish_volume(request).await?;
    Ok(answer.into_inner().publish_context)
}

pub async fn get(clients: &Clients, id: &str) -> Result<ControllerGetVolumeResponse, Status> {
    let request = ControllerGetVolumeRequest { volume_id: id.to_owned() };
    clients.controller.clone().controller_get_volume(request).await.map(Response::into_inner)
}

/// What the controller says about a volume's condition: abnormal or not, and why.
pub async fn condition(clients: &Clients, id: &str) -> (bool, String) {
    let condition = get(clients, id).await.unwrap().status.unwrap().volume_condition.unwrap();
    (condition.abnormal, condition.message)
}

pub async fn stats(clients: &Clients, id: &str, path: &Path) -> Result<NodeGetVolumeStatsResponse, Status> {
    let request = NodeGetVolumeStatsRequest {
        volume_id: id.to_owned(),
        volume_path: path.to_str().unwrap().to_owned(),
        ..Default::default()
    };
    clients.node.clone().node_get_volume_stats(request).await.map(Response::into_inner)
}

pub async fn list(clients: &Clients, max: i32, token: &str) -> Result<ListVolumesResponse, Status> {
    let request = ListVolumesRequest { max_entries: max, starting_token: token.to_owned() };
    clients.controller.clone().list_volumes(request).await.map(Response::into_inner)
}

/// Ids of the snapshots of a volume, over as many pages as it takes.
pub async fn snapshots_of(clients: &Clients, source: &str, max: i32) -> Result<Vec<String>, Status> {
    let (mut ids, mut token) = (Vec::new(), String::new());
    loop {
        let request = ListSnapshotsRequest {
            max_entries: max,
            starting_token: token,
            source_volume_id: source.to_owned(),
            ..Default::default()
        };
        let page = clients.controller.clone().list_snapshots(request).await?.into_inner();
        assert!(max == 0 || page.entries.len() <= usize::try_from(max).unwrap());
        ids.extend(page.entries.into_iter().map(|entry| entry.snapshot.unwrap().snapshot_id));
        token = page.next_token;
        if token.is_empty() {
            return Ok(ids);
        }
    }
}

pub async fn capacity(clients: &Clients, request: GetCapacityRequest) -> Result<GetCapacityResponse, Status> {
    clients.controller.clone().get_capacity(request).await.map(Response::into_inner)
}

/// Bytes that can still be promised.
pub async fn available(clients: &Clients) -> u64 {
    let answer = capacity(clients, GetCapacityRequest::default()).await.unwrap();
    u64::try_from(answer.available_capacity).unwrap()
}

pub async fn modify(clients: &Clients, id: &str, changes: BTreeMap<String, String>) -> Result<(), Status> {
    let request =
        ControllerModifyVolumeRequest { volume_id: id.to_owned(), mutable_parameters: changes, ..Default::default() };
    clients.controller.clone().controller_modify_volume(request).await.map(drop)
}

pub async fn create_group(clients: &Clients, name: &str, sources: &[&str]) -> Result<VolumeGroupSnapshot, Status> {
    let request = CreateVolumeGroupSnapshotRequest {
        name: name.to_owned(),
        source_volume_ids: sources.iter().map(|id| (*id).to_owned()).collect(),
        ..Default::default()
    };
    let answer = clients.group.clone().create_volume_group_snapshot(request).await?;
    Ok(answer.into_inner().group_snapshot.expect("an answer has a group"))
}

pub async fn get_group(clients: &Clients, group: &VolumeGroupSnapshot) -> Result<VolumeGroupSnapshot, Status> {
    let request = GetVolumeGroupSnapshotRequest {
        group_snapshot_id: group.group_snapshot_id.clone(),
        snapshot_ids: member_ids(group),
        ..Default::default()
    };
    let answer = clients.group.clone().get_volume_group_snapshot(request).await?;
    Ok(answer.into_inner().group_snapshot.expect("an answer has a group"))
}

pub async fn delete_group(clients: &Clients, group: &VolumeGroupSnapshot) -> Result<(), Status> {
    let request = DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: group.group_snapshot_id.clone(),
        snapshot_ids: member_ids(group),
        ..Default::default()
    };
    clients.group.clone().delete_volume_group_snapshot(request).await.map(drop)
}

fn member_ids(group: &VolumeGroupSnapshot) -> Vec<String> {
    group.snapshots.iter().map(|snapshot| snapshot.snapshot_id.clone()).collect()
}

/// One message of a stream of block metadata: the volume's size and its ranges.
pub type Batch = (u64, Vec<std::ops::Range<u64>>);

pub async fn allocated(clients: &Clients, snapshot: &str, from: i64, max: i32) -> Result<Vec<Batch>, Status> {
    let request = GetMetadataAllocatedRequest {
        snapshot_id: snapshot.to_owned(),
        starting_offset: from,
        max_results: max,
        ..Default::default()
    };
    let mut stream = clients.metadata.clone().get_metadata_allocated(request).await?.into_inner();
    let mut batches = Vec::new();
    while let Some(message) = stream.message().await? {
        batches.push((u64::try_from(message.volume_capacity_bytes).unwrap(), ranges(message.block_metadata)));
    }
    Ok(batches)
}

pub async fn changed(clients: &Clients, base: &str, target: &str, from: i64, max: i32) -> Result<Vec<Batch>, Status> {
    let request = GetMetadataDeltaRequest {
        base_snapshot_id: base.to_owned(),
        target_snapshot_id: target.to_owned(),
        starting_offset: from,
        max_results: max,
        ..Default::default()
    };
    let mut stream = clients.metadata.clone().get_metadata_delta(request).await?.into_inner();
    let mut batches = Vec::new();
    while let Some(message) = stream.message().await? {
        batches.push((u64::try_from(message.volume_capacity_bytes).unwrap(), ranges(message.block_metadata)));
    }
    Ok(batches)
}

fn ranges(blocks: Vec<BlockMetadata>) -> Vec<std::ops::Range<u64>> {
    let number = |value: i64| u64::try_from(value).unwrap();
    blocks
        .into_iter()
        .map(|block| number(block.byte_offset)..number(block.byte_offset) + number(block.size_bytes))
        .collect()
}
