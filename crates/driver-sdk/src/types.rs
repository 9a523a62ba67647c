//! Requests and answers in the driver's words: what passed validation, in types that cannot hold nonsense.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            pub fn new(id: impl Into<String>) -> Self {
                Self(id.into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }

            pub fn into_string(self) -> String {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// The driver's name for a volume: at most 128 bytes, stable, never reused for other data.
    VolumeId
);
id!(
    /// The driver's name for a snapshot.
    SnapshotId
);
id!(
    /// The driver's name for a group of snapshots cut together.
    GroupSnapshotId
);
id!(
    /// The driver's name for a node, as its `NodeGetInfo` gives it.
    NodeId
);

/// String maps as CSI uses them: parameters, contexts.
pub type StringMap = BTreeMap<String, String>;

/// Credentials of one request. They have no `Display`, and `Debug` shows keys only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(StringMap);

impl Secrets {
    pub fn new(values: StringMap) -> Self {
        Self(values)
    }

    /// The value of one secret. Whoever calls this keeps it out of logs, errors and command lines.
    pub fn expose(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// How a workload uses a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    pub access: Access,
    pub mode: AccessMode,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// A raw block device.
    Block,
    /// A mounted filesystem or directory.
    Mount(MountOptions),
}

#[derive(Clone, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// Absent means that the driver chooses.
    pub fs_type: Option<String>,
    /// May hold credentials, so `Debug` shows option names only.
    pub flags: Vec<String>,
    /// Set only when the driver fills the [`crate::MountGroup`] slot.
    pub group: Option<String>,
}

impl fmt::Debug for MountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.flags.iter().map(|flag| flag.split('=').next().unwrap_or_default()).collect();
        f.debug_struct("MountOptions")
            .field("fs_type", &self.fs_type)
            .field("flags", &names)
            .field("group", &self.group)
            .finish()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessMode {
    SingleNodeWriter,
    SingleNodeReaderOnly,
    MultiNodeReaderOnly,
    MultiNodeSingleWriter,
    MultiNodeMultiWriter,
    SingleNodeSingleWriter,
    SingleNodeMultiWriter,
}

impl AccessMode {
    /// Every mode, in the order of the wire.
    pub const ALL: [Self; 7] = [
        Self::SingleNodeWriter,
        Self::SingleNodeReaderOnly,
        Self::MultiNodeReaderOnly,
        Self::MultiNodeSingleWriter,
        Self::MultiNodeMultiWriter,
        Self::SingleNodeSingleWriter,
        Self::SingleNodeMultiWriter,
    ];

    pub fn is_multi_node(self) -> bool {
        match self {
            Self::MultiNodeReaderOnly | Self::MultiNodeSingleWriter | Self::MultiNodeMultiWriter => true,
            Self::SingleNodeWriter
            | Self::SingleNodeReaderOnly
            | Self::SingleNodeSingleWriter
            | Self::SingleNodeMultiWriter => false,
        }
    }

    pub fn is_read_only(self) -> bool {
        matches!(self, Self::SingleNodeReaderOnly | Self::MultiNodeReaderOnly)
    }

    /// The name the specification uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::SingleNodeWriter => "SINGLE_NODE_WRITER",
            Self::SingleNodeReaderOnly => "SINGLE_NODE_READER_ONLY",
            Self::MultiNodeReaderOnly => "MULTI_NODE_READER_ONLY",
            Self::MultiNodeSingleWriter => "MULTI_NODE_SINGLE_WRITER",
            Self::MultiNodeMultiWriter => "MULTI_NODE_MULTI_WRITER",
            Self::SingleNodeSingleWriter => "SINGLE_NODE_SINGLE_WRITER",
            Self::SingleNodeMultiWriter => "SINGLE_NODE_MULTI_WRITER",
        }
    }
}

/// How large a volume must and may be. `required` is 0 when unspecified; never above `limit`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CapacityRange {
    pub required: u64,
    pub limit: Option<u64>,
}

/// One place in the cluster's topology.
pub type Segments = StringMap;

/// Where a volume must, and would rather, be usable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopologyRequirement {
    pub requisite: Vec<Segments>,
    pub preferred: Vec<Segments>,
}

/// Class parameters, and the mutable ones that override them key by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    pub fixed: StringMap,
    /// Empty unless the driver fills the [`crate::Modifier`] slot; already checked by it.
    pub mutable: StringMap,
}

impl Parameters {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.mutable.get(key).or_else(|| self.fixed.get(key)).map(String::as_str)
    }
}

/// A volume is wanted. The name is the idempotency key: any Unicode but control characters, never a safe file name.
#[derive(Debug, Clone)]
pub struct CreateVolume {
    pub name: String,
    pub capacity: CapacityRange,
    /// At least one; all block or all mount is the driver's to demand.
    pub capabilities: Vec<Capability>,
    pub parameters: Parameters,
    pub secrets: Secrets,
    /// Present only when the driver fills the [`crate::Topology`] slot and the caller set it.
    pub topology: Option<TopologyRequirement>,
}

/// What a volume holds at birth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Snapshot(SnapshotId),
    Volume(VolumeId),
}

/// A volume as a controller sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub id: VolumeId,
    pub capacity: u64,
    /// Immutable, not secret, handed back on every later call.
    pub context: StringMap,
    pub source: Option<Source>,
}

#[derive(Debug, Clone)]
pub struct ValidateVolume {
    pub volume: VolumeId,
    pub context: StringMap,
    pub capabilities: Vec<Capability>,
    pub parameters: Parameters,
    pub secrets: Secrets,
}

/// Answer to "can this volume be used so?".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    Yes,
    /// With the reason.
    No(String),
}

#[derive(Debug, Clone)]
pub struct CreateSnapshot {
    pub name: String,
    pub source: VolumeId,
    pub parameters: StringMap,
    pub secrets: Secrets,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub id: SnapshotId,
    pub source: VolumeId,
    /// The smallest volume it can be restored to.
    pub size: u64,
    /// The moment of the cut, stored once.
    pub created: SystemTime,
    pub ready: bool,
    pub group: Option<GroupSnapshotId>,
}

/// Which snapshots to list. Both filters may be set; both must then match.
#[derive(Debug, Clone, Default)]
pub struct SnapshotFilter {
    pub id: Option<SnapshotId>,
    pub source: Option<VolumeId>,
    pub secrets: Secrets,
}

/// One page of a listing in id order: entries after `after`, at most `limit`.
#[derive(Debug, Clone)]
pub struct Page<Id> {
    pub after: Option<Id>,
    pub limit: usize,
}

#[derive(Debug, Clone)]
pub struct CreateGroupSnapshot {
    pub name: String,
    /// Sorted, without duplicates, at least one.
    pub sources: Vec<VolumeId>,
    pub parameters: StringMap,
    pub secrets: Secrets,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSnapshot {
    pub id: GroupSnapshotId,
    pub snapshots: Vec<Snapshot>,
    pub created: SystemTime,
}

#[derive(Debug, Clone, Default)]
pub struct CapacityQuery {
    pub capabilities: Vec<Capability>,
    pub parameters: StringMap,
    pub topology: Option<Segments>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capacity {
    pub available: u64,
    pub largest_volume: Option<u64>,
    pub smallest_volume: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct ExpandVolume {
    pub volume: VolumeId,
    pub capacity: CapacityRange,
    pub capability: Option<Capability>,
    pub secrets: Secrets,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expanded {
    pub capacity: u64,
    pub node_must_expand: bool,
}

/// When a driver can expand on the controller side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpansionMode {
    Online,
    Offline,
}

#[derive(Debug, Clone)]
pub struct ModifyVolume {
    pub volume: VolumeId,
    /// At least one, all accepted by [`crate::Modifier::check`].
    pub changes: StringMap,
    pub secrets: Secrets,
}

#[derive(Debug, Clone)]
pub struct AttachVolume {
    pub volume: VolumeId,
    pub node: NodeId,
    pub capability: Capability,
    pub context: StringMap,
    pub secrets: Secrets,
}

/// Which nodes to detach from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetachFrom {
    Node(NodeId),
    AllNodes,
}

/// How a volume is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    Normal(String),
    Abnormal(String),
}

#[derive(Debug, Clone)]
pub struct StageVolume {
    pub volume: VolumeId,
    pub staging: PathBuf,
    pub capability: Capability,
    pub publish_context: StringMap,
    pub volume_context: StringMap,
    pub secrets: Secrets,
}

#[derive(Debug, Clone)]
pub struct PublishVolume {
    pub volume: VolumeId,
    pub target: PathBuf,
    /// Always set when the driver fills the [`crate::NodeStager`] slot.
    pub staging: Option<PathBuf>,
    pub capability: Capability,
    pub readonly: bool,
    pub publish_context: StringMap,
    pub volume_context: StringMap,
    pub secrets: Secrets,
    /// Equal for two requests that differ at most in target, secrets and tokens. Keep it with the publication and give
    /// it back in [`crate::WriterTracking::published`].
    pub fingerprint: String,
}

/// One place where a volume is published on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    pub target: PathBuf,
    pub mode: AccessMode,
    /// `None` when the driver knows of the publication but lost what was asked for it.
    pub fingerprint: Option<String>,
}

/// An inline volume: it lives exactly as long as this publication.
#[derive(Debug, Clone)]
pub struct PublishEphemeral {
    pub volume: VolumeId,
    pub target: PathBuf,
    pub capability: Capability,
    pub readonly: bool,
    /// The pod's `volumeAttributes`, with the pod's identity under well-known keys.
    pub attributes: StringMap,
    pub secrets: Secrets,
}

/// What `unpublish_ephemeral` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inline {
    /// It was an inline volume (or a remnant of one) and is gone.
    Gone,
    /// It is an ordinary volume, or unknown: the ordinary unpublish must decide.
    NotInline,
}

#[derive(Debug, Clone)]
pub struct StatsQuery {
    pub volume: VolumeId,
    /// As the caller sent it: possibly relative, possibly of another volume. Neither is an invalid argument.
    pub path: PathBuf,
    pub staging: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    Inodes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub unit: Unit,
    pub total: u64,
    pub used: u64,
    pub available: u64,
}

#[derive(Debug, Clone)]
pub struct NodeExpand {
    pub volume: VolumeId,
    /// As the caller sent it; see [`StatsQuery::path`].
    pub path: PathBuf,
    pub staging: Option<PathBuf>,
    /// Absent: grow to the size of the device.
    pub capacity: Option<CapacityRange>,
    pub capability: Option<Capability>,
    pub secrets: Secrets,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    pub id: NodeId,
    /// `None`: the caller decides.
    pub max_volumes: Option<u64>,
}

/// A run of bytes in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRange {
    pub offset: u64,
    pub length: u64,
}

/// Is every range of a block map equally long?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockMapKind {
    FixedLength,
    VariableLength,
}
