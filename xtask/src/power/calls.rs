//! The CSI calls that the machine makes, for volumes of every kind.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use csi::v1::controller_client::ControllerClient;
use csi::v1::node_client::NodeClient;
use csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode};
use csi::v1::*;
use tonic::Status;
use tonic::transport::Channel;

/// A sort of volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VolumeSort {
    Filesystem(&'static str),
    Block,
    Directory,
}

/// The volumes that are written, one of each kind: name, sort and size.
pub(super) const KINDS: [(&str, VolumeSort, i64); 5] = [
    ("ext4", VolumeSort::Filesystem("ext4"), 32 << 20),
    ("xfs", VolumeSort::Filesystem("xfs"), 300 << 20),
    ("btrfs", VolumeSort::Filesystem("btrfs"), 256 << 20),
    ("block", VolumeSort::Block, 4 << 20),
    ("directory", VolumeSort::Directory, 4 << 20),
];

impl VolumeSort {
    fn capability(self) -> VolumeCapability {
        let access = match self {
            Self::Filesystem(fs) => AccessType::Mount(MountVolume { fs_type: fs.to_owned(), ..Default::default() }),
            Self::Directory => AccessType::Mount(MountVolume::default()),
            Self::Block => AccessType::Block(BlockVolume {}),
        };
        let mode = access_mode::Mode::SingleNodeWriter.into();
        VolumeCapability { access_mode: Some(AccessMode { mode }), access_type: Some(access) }
    }

    fn parameters(self, provisioning: &str) -> BTreeMap<String, String> {
        let mut parameters = BTreeMap::new();
        let mut insert = |key: &str, value: &str| parameters.insert(key.to_owned(), value.to_owned());
        if self == Self::Directory {
            insert("kind", "directory");
        } else {
            insert("kind", "image");
            insert("provisioning", provisioning);
        }
        parameters
    }

    pub(super) fn has_filesystem(self) -> bool {
        self != Self::Block
    }
}

/// A connection to the driver.
#[derive(Debug, Clone)]
pub(super) struct DriverCalls {
    /// `thin` or `thick`, of new images.
    provisioning: &'static str,
    controller: ControllerClient<Channel>,
    node: NodeClient<Channel>,
}

impl DriverCalls {
    pub(super) async fn connect(socket: &Path, provisioning: &'static str) -> anyhow::Result<Self> {
        let channel = csi::connect(&format!("unix://{}", socket.display()).parse()?).await?;
        Ok(Self { provisioning, controller: ControllerClient::new(channel.clone()), node: NodeClient::new(channel) })
    }

    /// Makes a volume, or finds the one of that name; gives its id.
    pub(super) async fn create(&self, name: &str, sort: VolumeSort, bytes: i64) -> anyhow::Result<String> {
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            volume_capabilities: vec![sort.capability()],
            parameters: sort.parameters(self.provisioning),
            ..Default::default()
        };
        let answer =
            self.controller.clone().create_volume(request).await.with_context(|| format!("creating {name}"))?;
        Ok(answer.into_inner().volume.context("an answer without a volume")?.volume_id)
    }

    pub(super) async fn delete(&self, id: &str) -> anyhow::Result<()> {
        let request = DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        self.controller.clone().delete_volume(request).await.with_context(|| format!("deleting {id}"))?;
        Ok(())
    }

    pub(super) async fn snapshot(&self, name: &str, source: &str) -> anyhow::Result<String> {
        let request =
            CreateSnapshotRequest { source_volume_id: source.to_owned(), name: name.to_owned(), ..Default::default() };
        let answer =
            self.controller.clone().create_snapshot(request).await.with_context(|| format!("snapshot {name}"))?;
        Ok(answer.into_inner().snapshot.context("an answer without a snapshot")?.snapshot_id)
    }

    pub(super) async fn delete_snapshot(&self, id: &str) -> anyhow::Result<()> {
        let request = DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
        self.controller.clone().delete_snapshot(request).await.with_context(|| format!("deleting {id}"))?;
        Ok(())
    }

    /// All volumes, each with what is wrong with it, if anything.
    pub(super) async fn volumes(&self) -> anyhow::Result<BTreeMap<String, Option<String>>> {
        let answer = self.controller.clone().list_volumes(ListVolumesRequest::default()).await?.into_inner();
        let read = |entry: list_volumes_response::Entry| {
            let condition = entry.status.and_then(|status| status.volume_condition);
            let trouble = condition.filter(|condition| condition.abnormal).map(|condition| condition.message);
            Some((entry.volume?.volume_id, trouble))
        };
        Ok(answer.entries.into_iter().filter_map(read).collect())
    }

    pub(super) async fn snapshots(&self) -> anyhow::Result<Vec<String>> {
        let answer = self.controller.clone().list_snapshots(ListSnapshotsRequest::default()).await?.into_inner();
        Ok(answer.entries.into_iter().filter_map(|entry| Some(entry.snapshot?.snapshot_id)).collect())
    }

    /// Stages a volume and shows it at the target.
    pub(super) async fn bring_up(
        &self,
        id: &str,
        sort: VolumeSort,
        staging: &Path,
        target: &Path,
    ) -> anyhow::Result<()> {
        std::fs::create_dir_all(staging)?;
        let (staging, target) = (staging.display().to_string(), target.display().to_string());
        let stage = NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: staging.clone(),
            volume_capability: Some(sort.capability()),
            ..Default::default()
        };
        self.node.clone().node_stage_volume(stage).await.with_context(|| format!("staging {id}"))?;
        let publish = NodePublishVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: staging,
            target_path: target,
            volume_capability: Some(sort.capability()),
            ..Default::default()
        };
        self.node.clone().node_publish_volume(publish).await.with_context(|| format!("publishing {id}"))?;
        Ok(())
    }

    pub(super) async fn unpublish(&self, id: &str, target: &Path) -> Result<(), Status> {
        let request =
            NodeUnpublishVolumeRequest { volume_id: id.to_owned(), target_path: target.display().to_string() };
        self.node.clone().node_unpublish_volume(request).await.map(drop)
    }

    pub(super) async fn unstage(&self, id: &str, staging: &Path) -> Result<(), Status> {
        let staging_target_path = staging.display().to_string();
        let request = NodeUnstageVolumeRequest { volume_id: id.to_owned(), staging_target_path };
        self.node.clone().node_unstage_volume(request).await.map(drop)
    }
}
