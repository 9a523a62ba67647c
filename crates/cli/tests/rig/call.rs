//! CSI calls as tests write them: short to say, with defaults for what does not matter.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use csi::v1::volume_capability::access_mode::Mode;
use csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use csi::v1::*;
use driver_sdk::testing::Clients;
use tonic::Status;

use super::NODE;

/// A mount capability for one writer, with the filesystem named if not empty.
pub fn mount(fs: &str) -> VolumeCapability {
    let volume = MountVolume { fs_type: fs.to_owned(), ..Default::default() };
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(volume)),
    }
}

pub fn block() -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Block(BlockVolume {})),
    }
}

pub fn with_mode(mut capability: VolumeCapability, mode: Mode) -> VolumeCapability {
    capability.access_mode = Some(AccessMode { mode: mode.into() });
    capability
}

pub fn map<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, String> {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

pub fn create_request(name: &str, size: u64, capability: VolumeCapability) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: i64::try_from(size).unwrap(), limit_bytes: 0 }),
        volume_capabilities: vec![capability],
        ..Default::default()
    }
}

pub fn from_snapshot(id: &str) -> Option<VolumeContentSource> {
    Some(VolumeContentSource { r#type: Some(Type::Snapshot(SnapshotSource { snapshot_id: id.to_owned() })) })
}

pub fn from_volume(id: &str) -> Option<VolumeContentSource> {
    Some(VolumeContentSource { r#type: Some(Type::Volume(VolumeSource { volume_id: id.to_owned() })) })
}

/// A volume on its way to a workload: the same capability and paths in every call.
#[derive(Debug, Clone)]
pub struct Use {
    pub id: String,
    pub capability: VolumeCapability,
    pub staging: PathBuf,
    pub target: PathBuf,
    pub readonly: bool,
}

impl Use {
    /// Paths of its own below the scratch folder. The staging directory is made, as a caller does.
    pub fn new(scratch: &super::Scratch, id: &str, capability: VolumeCapability) -> Self {
        let staging = scratch.dir(&format!("staging-{id}"));
        let target = scratch.dir("targets").join(id);
        Self { id: id.to_owned(), capability, staging, target, readonly: false }
    }

    pub fn at(mut self, target: impl AsRef<Path>) -> Self {
        self.target = target.as_ref().to_owned();
        self
    }

    pub fn readonly(mut self) -> Self {
        self.readonly = true;
        self
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

pub async fn create(clients: &Clients, name: &str, size: u64, capability: VolumeCapability) -> Result<Volume, Status> {
    create_with(clients, create_request(name, size, capability)).await
}

pub async fn create_with(clients: &Clients, request: CreateVolumeRequest) -> Result<Volume, Status> {
    let answer = clients.controller.clone().create_volume(request).await?;
    Ok(answer.into_inner().volume.expect("an answer has a volume"))
}

pub async fn delete(clients: &Clients, id: &str) -> Result<(), Status> {
    let request = DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
    clients.controller.clone().delete_volume(request).await.map(drop)
}

pub async fn attach(clients: &Clients, using: &Use) -> Result<(), Status> {
    let request = ControllerPublishVolumeRequest {
        volume_id: using.id.clone(),
        node_id: NODE.to_owned(),
        volume_capability: Some(using.capability.clone()),
        ..Default::default()
    };
    clients.controller.clone().controller_publish_volume(request).await.map(drop)
}

pub async fn detach(clients: &Clients, id: &str) -> Result<(), Status> {
    let request =
        ControllerUnpublishVolumeRequest { volume_id: id.to_owned(), node_id: NODE.to_owned(), ..Default::default() };
    clients.controller.clone().controller_unpublish_volume(request).await.map(drop)
}

pub async fn stage(clients: &Clients, using: &Use) -> Result<(), Status> {
    let request = NodeStageVolumeRequest {
        volume_id: using.id.clone(),
        staging_target_path: text(&using.staging),
        volume_capability: Some(using.capability.clone()),
        ..Default::default()
    };
    clients.node.clone().node_stage_volume(request).await.map(drop)
}

pub async fn unstage(clients: &Clients, using: &Use) -> Result<(), Status> {
    let request = NodeUnstageVolumeRequest { volume_id: using.id.clone(), staging_target_path: text(&using.staging) };
    clients.node.clone().node_unstage_volume(request).await.map(drop)
}

pub async fn publish(clients: &Clients, using: &Use) -> Result<(), Status> {
    let request = NodePublishVolumeRequest {
        volume_id: using.id.clone(),
        staging_target_path: text(&using.staging),
        target_path: text(&using.target),
        volume_capability: Some(using.capability.clone()),
        readonly: using.readonly,
        ..Default::default()
    };
    clients.node.clone().node_publish_volume(request).await.map(drop)
}

pub async fn unpublish(clients: &Clients, using: &Use) -> Result<(), Status> {
    let request = NodeUnpublishVolumeRequest { volume_id: using.id.clone(), target_path: text(&using.target) };
    clients.node.clone().node_unpublish_volume(request).await.map(drop)
}

/// Attach, stage and publish.
pub async fn bring_up(clients: &Clients, using: &Use) -> Result<(), Status> {
    attach(clients, using).await?;
    stage(clients, using).await?;
    publish(clients, using).await
}

/// Unpublish, unstage and detach.
pub async fn bring_down(clients: &Clients, using: &Use) -> Result<(), Status> {
    unpublish(clients, using).await?;
    unstage(clients, using).await?;
    detach(clients, &using.id).await
}

pub async fn snapshot(clients: &Clients, name: &str, source: &str) -> Result<Snapshot, Status> {
    let request =
        CreateSnapshotRequest { name: name.to_owned(), source_volume_id: source.to_owned(), ..Default::default() };
    let answer = clients.controller.clone().create_snapshot(request).await?;
    Ok(answer.into_inner().snapshot.expect("an answer has a snapshot"))
}

pub async fn delete_snapshot(clients: &Clients, id: &str) -> Result<(), Status> {
    let request = DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
    clients.controller.clone().delete_snapshot(request).await.map(drop)
}

pub async fn expand(clients: &Clients, id: &str, size: u64) -> Result<ControllerExpandVolumeResponse, Status> {
    let range = CapacityRange { required_bytes: i64::try_from(size).unwrap(), limit_bytes: 0 };
    let request =
        ControllerExpandVolumeRequest { volume_id: id.to_owned(), capacity_range: Some(range), ..Default::default() };
    clients.controller.clone().controller_expand_volume(request).await.map(tonic::Response::into_inner)
}

pub async fn node_expand(clients: &Clients, id: &str, path: &Path) -> Result<u64, Status> {
    let request = NodeExpandVolumeRequest { volume_id: id.to_owned(), volume_path: text(path), ..Default::default() };
    let answer = clients.node.clone().node_expand_volume(request).await?.into_inner();
    Ok(u64::try_from(answer.capacity_bytes).unwrap())
}
