//! The slots a driver can fill: one small trait per CSI capability.
//!
//! A filled slot routes its RPCs and advertises its capability; an empty one answers UNIMPLEMENTED and advertises
//! nothing. There is no way to name a capability other than to fill its slot, and no trait method has a default body,
//! so a driver cannot advertise what it does not implement. Slots are filled with [`crate::ControllerSlots`] and
//! [`crate::NodeSlots`].
//!
//! Every method may be called again with the same arguments at any time, also after a crash half way through: it must
//! then end with the same answer. The SDK holds the object's lock while a method runs, and keeps it until the method
//! returns even when the caller has gone.

use std::fmt;
use std::path::Path;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use crate::error::Error;
use crate::types::*;

type Result<T> = std::result::Result<T, Error>;

/// Is the driver able to work?
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// Healthy, still starting: callers wait and do not restart it.
    Starting,
    /// Unhealthy or missing something it needs: callers may restart it.
    Unhealthy(String),
}

/// Tells readiness. Called often and from `Probe`: cheap, never blocking.
pub trait Health: Send + Sync + 'static {
    fn readiness(&self) -> Readiness;
}

/// Creates and deletes volumes: CREATE_DELETE_VOLUME.
#[async_trait]
pub trait Provisioner: Send + Sync + 'static {
    /// The id a volume of this name gets, when ids are derived from names. The SDK then locks both under one key.
    fn volume_id(&self, name: &str) -> Option<VolumeId>;

    /// Makes an empty volume, or finds the one of that name and answers as the first time.
    async fn create(&self, request: CreateVolume) -> Result<Volume>;

    /// Removes a volume. One that does not exist is deleted already.
    async fn delete(&self, volume: VolumeId, secrets: Secrets) -> Result<()>;

    /// Can the volume be used in *all* of these ways? An unknown volume is an error, an unfit one an answer.
    async fn validate(&self, request: ValidateVolume) -> Result<Support>;
}

/// Cuts snapshots and restores them: CREATE_DELETE_SNAPSHOT. Restoring belongs to it, so it cannot be left out.
#[async_trait]
pub trait SnapshotSource: Provisioner {
    /// As [`Provisioner::volume_id`], for snapshots.
    fn snapshot_id(&self, name: &str) -> Option<SnapshotId>;

    async fn create_snapshot(&self, request: CreateSnapshot) -> Result<Snapshot>;

    /// Removes a snapshot. One that does not exist is deleted already; a member of a group is refused.
    async fn delete_snapshot(&self, snapshot: SnapshotId, secrets: Secrets) -> Result<()>;

    async fn create_from_snapshot(&self, request: CreateVolume, source: SnapshotId) -> Result<Volume>;
}

/// Clones volumes: CLONE_VOLUME.
#[async_trait]
pub trait CloneSource: Provisioner {
    async fn create_from_volume(&self, request: CreateVolume, source: VolumeId) -> Result<Volume>;
}

/// Lists volumes: LIST_VOLUMES. The SDK makes the page tokens.
#[async_trait]
pub trait VolumeLister: Provisioner {
    async fn list_volumes(&self, page: Page<VolumeId>) -> Result<Vec<Volume>>;
}

/// Finds one volume: GET_VOLUME.
#[async_trait]
pub trait VolumeGetter: Provisioner {
    async fn get_volume(&self, volume: VolumeId) -> Result<Volume>;
}

/// Lists snapshots: LIST_SNAPSHOTS.
#[async_trait]
pub trait SnapshotLister: SnapshotSource {
    async fn list_snapshots(&self, filter: SnapshotFilter, page: Page<SnapshotId>) -> Result<Vec<Snapshot>>;
}

/// Finds one snapshot: GET_SNAPSHOT.
#[async_trait]
pub trait SnapshotGetter: SnapshotSource {
    async fn get_snapshot(&self, snapshot: SnapshotId, secrets: Secrets) -> Result<Snapshot>;
}

/// Tells free space: GET_CAPACITY.
#[async_trait]
pub trait CapacityReporter: Send + Sync + 'static {
    async fn capacity(&self, query: CapacityQuery) -> Result<Capacity>;
}

/// Expands volumes on the controller side: EXPAND_VOLUME, and the plugin's ONLINE or OFFLINE expansion.
#[async_trait]
pub trait ControllerExpander: Send + Sync + 'static {
    /// Offline-only drivers never see a published volume expanded by the caller's contract.
    fn mode(&self) -> ExpansionMode;

    /// Grows to at least the required size, never shrinks; a volume that is large enough is done already.
    async fn expand_volume(&self, request: ExpandVolume) -> Result<Expanded>;
}

/// Attaches volumes to nodes: PUBLISH_UNPUBLISH_VOLUME.
#[async_trait]
pub trait Attacher: Send + Sync + 'static {
    /// Answers with the publish context for the node's calls.
    async fn attach(&self, request: AttachVolume) -> Result<StringMap>;

    /// Not attached, or unknown and surely not attached, is detached already.
    async fn detach(&self, volume: VolumeId, from: DetachFrom, secrets: Secrets) -> Result<()>;
}

/// Attaches read-only: PUBLISH_READONLY. Requests with `readonly` reach only this trait.
#[async_trait]
pub trait ReadonlyAttacher: Attacher {
    async fn attach_readonly(&self, request: AttachVolume) -> Result<StringMap>;
}

/// Tells which nodes a volume is attached to: LIST_VOLUMES_PUBLISHED_NODES.
#[async_trait]
pub trait AttachmentLister: Attacher + VolumeLister {
    async fn attached_nodes(&self, volume: &VolumeId) -> Result<Vec<NodeId>>;
}

/// Tells a volume's condition on the controller side: VOLUME_CONDITION.
#[async_trait]
pub trait ControllerHealth: Send + Sync + 'static {
    async fn volume_condition(&self, volume: &VolumeId) -> Result<Condition>;
}

/// Changes volumes in place: MODIFY_VOLUME. Checking is apart from applying, so that a wrong key changes nothing.
#[async_trait]
pub trait Modifier: Provisioner {
    /// Are all of these keys known and all values legal? Also asked before a create.
    fn check(&self, changes: &StringMap) -> Result<()>;

    async fn modify(&self, request: ModifyVolume) -> Result<()>;
}

/// Cuts several volumes at one moment: the GroupController service.
#[async_trait]
pub trait GroupSnapshotter: SnapshotSource {
    /// As [`Provisioner::volume_id`], for groups.
    fn group_id(&self, name: &str) -> Option<GroupSnapshotId>;

    /// All members at one moment, or none and nothing left.
    async fn create_group(&self, request: CreateGroupSnapshot) -> Result<GroupSnapshot>;

    async fn get_group(&self, group: GroupSnapshotId, secrets: Secrets) -> Result<GroupSnapshot>;

    /// Removes the group and its members. The SDK has compared the member list.
    async fn delete_group(&self, group: GroupSnapshotId, secrets: Secrets) -> Result<()>;
}

/// Which bytes a snapshot holds.
pub struct BlockMap {
    /// Size of the volume the ranges lie in.
    pub capacity: u64,
    pub kind: BlockMapKind,
    /// Ascending and not overlapping; the SDK checks it, batches them and cuts what ends before the start.
    pub ranges: BoxStream<'static, Result<BlockRange>>,
}

impl fmt::Debug for BlockMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockMap").field("capacity", &self.capacity).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Tells allocated and changed ranges: the SnapshotMetadata service.
#[async_trait]
pub trait SnapshotMetadata: SnapshotSource {
    async fn allocated(&self, snapshot: SnapshotId, from: u64, secrets: Secrets) -> Result<BlockMap>;

    async fn changed(&self, base: SnapshotId, target: SnapshotId, from: u64, secrets: Secrets) -> Result<BlockMap>;
}

/// Tells where volumes and nodes are: VOLUME_ACCESSIBILITY_CONSTRAINTS. The only way topology leaves a driver.
#[async_trait]
pub trait Topology: Send + Sync + 'static {
    fn node_segments(&self) -> Segments;

    async fn volume_segments(&self, volume: &VolumeId) -> Result<Vec<Segments>>;
}

/// Shows volumes to workloads on this node. Every node driver fills it.
#[async_trait]
pub trait NodePublisher: Send + Sync + 'static {
    fn info(&self) -> NodeInfo;

    async fn publish(&self, request: PublishVolume) -> Result<()>;

    /// Unmounts and removes what `publish` made at the target. Nothing there is unpublished already.
    async fn unpublish(&self, volume: VolumeId, target: &Path) -> Result<()>;
}

/// Makes a volume ready once per node: STAGE_UNSTAGE_VOLUME. `publish` then always has a staging path.
#[async_trait]
pub trait NodeStager: NodePublisher {
    async fn stage(&self, request: StageVolume) -> Result<()>;

    async fn unstage(&self, volume: VolumeId, staging: &Path) -> Result<()>;
}

/// Tells usage: GET_VOLUME_STATS.
#[async_trait]
pub trait NodeStats: NodePublisher {
    async fn stats(&self, query: StatsQuery) -> Result<Vec<Usage>>;
}

/// Tells a volume's condition on the node: VOLUME_CONDITION.
#[async_trait]
pub trait NodeHealth: NodeStats {
    async fn node_condition(&self, volume: &VolumeId, path: &Path) -> Result<Condition>;
}

/// Expands on the node: EXPAND_VOLUME.
#[async_trait]
pub trait NodeExpander: NodePublisher {
    /// Answers with the size after the call, when known.
    async fn node_expand(&self, request: NodeExpand) -> Result<Option<u64>>;
}

/// Gives a mounted volume to a group: VOLUME_MOUNT_GROUP. Without it a request with a group is refused.
pub trait MountGroup: NodePublisher {
    /// Is this a group the driver can apply?
    fn check_group(&self, group: &str) -> Result<()>;
}

/// Knows where a volume is published, so that the SDK can hold the single-writer rules: SINGLE_NODE_MULTI_WRITER on
/// both sides.
#[async_trait]
pub trait WriterTracking: NodePublisher {
    /// All publications of the volume on this node, from what the kernel says rather than from memory.
    async fn published(&self, volume: &VolumeId) -> Result<Vec<Publication>>;
}

/// Serves inline volumes, which exist only while published. Nothing on the wire tells of it.
#[async_trait]
pub trait EphemeralInline: NodePublisher {
    async fn publish_ephemeral(&self, request: PublishEphemeral) -> Result<()>;

    /// Destroys an inline volume without context or secrets. Other volumes are [`Inline::NotInline`].
    async fn unpublish_ephemeral(&self, volume: VolumeId, target: &Path) -> Result<Inline>;
}
