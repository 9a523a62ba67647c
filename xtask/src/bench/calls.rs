//! A CSI client with just the calls a bench needs.

use std::collections::BTreeMap;
use std::path::Path;

use csi::v1::controller_client::ControllerClient;
use csi::v1::identity_client::IdentityClient;
use csi::v1::node_client::NodeClient;
use csi::v1::volume_capability::{AccessMode, AccessType, MountVolume, access_mode};
use csi::v1::*;
use tonic::transport::Channel;

/// One connection to a driver.
#[derive(Debug, Clone)]
pub(super) struct Client {
    identity: IdentityClient<Channel>,
    controller: ControllerClient<Channel>,
    node: NodeClient<Channel>,
}

/// A volume that exists, and what attaching it gave.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub(super) id: String,
    context: BTreeMap<String, String>,
    attached: BTreeMap<String, String>,
}

fn capability() -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: access_mode::Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

impl Client {
    pub(super) async fn connect(socket: &Path) -> anyhow::Result<Self> {
        let channel = csi::connect(&format!("unix://{}", socket.display()).parse()?).await?;
        Ok(Self {
            identity: IdentityClient::new(channel.clone()),
            controller: ControllerClient::new(channel.clone()),
            node: NodeClient::new(channel),
        })
    }

    pub(super) async fn probe(&mut self) -> anyhow::Result<()> {
        self.identity.probe(ProbeRequest {}).await?;
        Ok(())
    }

    pub(super) async fn create(&mut self, name: &str, bytes: i64) -> anyhow::Result<Made> {
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            volume_capabilities: vec![capability()],
            ..Default::default()
        };
        let volume = self.controller.create_volume(request).await?.into_inner().volume.unwrap_or_default();
        Ok(Made { id: volume.volume_id, context: volume.volume_context, attached: BTreeMap::new() })
    }

    pub(super) async fn delete(&mut self, id: &str) -> anyhow::Result<()> {
        let request = DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        self.controller.delete_volume(request).await?;
        Ok(())
    }

    pub(super) async fn attach(&mut self, volume: &mut Made) -> anyhow::Result<()> {
        let node_id = self.node.node_get_info(NodeGetInfoRequest {}).await?.into_inner().node_id;
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.id.clone(),
            node_id,
            volume_capability: Some(capability()),
            volume_context: volume.context.clone(),
            ..Default::default()
        };
        volume.attached = self.controller.controller_publish_volume(request).await?.into_inner().publish_context;
        Ok(())
    }

    pub(super) async fn detach(&mut self, volume: &Made) -> anyhow::Result<()> {
        let request = ControllerUnpublishVolumeRequest { volume_id: volume.id.clone(), ..Default::default() };
        self.controller.controller_unpublish_volume(request).await?;
        Ok(())
    }

    pub(super) async fn stage(&mut self, volume: &Made, path: &Path) -> anyhow::Result<()> {
        let request = NodeStageVolumeRequest {
            volume_id: volume.id.clone(),
            publish_context: volume.attached.clone(),
            staging_target_path: text(path),
            volume_capability: Some(capability()),
            volume_context: volume.context.clone(),
            ..Default::default()
        };
        self.node.node_stage_volume(request).await?;
        Ok(())
    }

    pub(super) async fn unstage(&mut self, volume: &Made, path: &Path) -> anyhow::Result<()> {
        let request = NodeUnstageVolumeRequest { volume_id: volume.id.clone(), staging_target_path: text(path) };
        self.node.node_unstage_volume(request).await?;
        Ok(())
    }

    pub(super) async fn publish(&mut self, volume: &Made, stage: &Path, target: &Path) -> anyhow::Result<()> {
        let request = NodePublishVolumeRequest {
            volume_id: volume.id.clone(),
            publish_context: volume.attached.clone(),
            staging_target_path: text(stage),
            target_path: text(target),
            volume_capability: Some(capability()),
            volume_context: volume.context.clone(),
            ..Default::default()
        };
        self.node.node_publish_volume(request).await?;
        Ok(())
    }

    pub(super) async fn unpublish(&mut self, volume: &Made, target: &Path) -> anyhow::Result<()> {
        let request = NodeUnpublishVolumeRequest { volume_id: volume.id.clone(), target_path: text(target) };
        self.node.node_unpublish_volume(request).await?;
        Ok(())
    }

    pub(super) async fn snapshot(&mut self, volume: &Made, name: &str) -> anyhow::Result<String> {
        let request =
            CreateSnapshotRequest { source_volume_id: volume.id.clone(), name: name.to_owned(), ..Default::default() };
        let snapshot = self.controller.create_snapshot(request).await?.into_inner().snapshot.unwrap_or_default();
        anyhow::ensure!(snapshot.ready_to_use, "the snapshot is not ready when the call returns");
        Ok(snapshot.snapshot_id)
    }

    pub(super) async fn delete_snapshot(&mut self, id: String) -> anyhow::Result<()> {
        let request = DeleteSnapshotRequest { snapshot_id: id, ..Default::default() };
        self.controller.delete_snapshot(request).await?;
        Ok(())
    }
}
