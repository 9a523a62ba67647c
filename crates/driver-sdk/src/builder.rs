//! How a driver is put together: slots filled with objects, and nothing else.
//!
//! A chain method takes no argument, because the object given to `new` must itself implement the trait. So what is
//! advertised and what is called are the same thing. Filling a slot fills the slots of its supertraits as well.
//!
//! What cannot be written does not compile. Snapshots without a way to restore them, because restoring is a method of
//! the same trait:
//!
//! ```compile_fail,E0046
//! use driver_sdk::*;
//! # #[derive(Debug)] struct Mine;
//! # #[async_trait]
//! # impl Provisioner for Mine {
//! #     fn volume_id(&self, _: &str) -> Option<VolumeId> { None }
//! #     async fn create(&self, _: CreateVolume) -> Result<Volume, Error> { Err(Error::busy("")) }
//! #     async fn delete(&self, _: VolumeId, _: Secrets) -> Result<(), Error> { Ok(()) }
//! #     async fn validate(&self, _: ValidateVolume) -> Result<Support, Error> { Ok(Support::Yes) }
//! # }
//! #[async_trait]
//! impl SnapshotSource for Mine {
//!     fn snapshot_id(&self, _: &str) -> Option<SnapshotId> { None }
//!     async fn create_snapshot(&self, _: CreateSnapshot) -> Result<Snapshot, Error> { Err(Error::busy("")) }
//!     async fn delete_snapshot(&self, _: SnapshotId, _: Secrets) -> Result<(), Error> { Ok(()) }
//! }
//! ```
//!
//! Advertising what the object does not implement, here read-only attachment:
//!
//! ```compile_fail,E0277
//! use std::sync::Arc;
//! use driver_sdk::*;
//! # #[derive(Debug)] struct Mine;
//! #[async_trait]
//! impl Attacher for Mine {
//!     async fn attach(&self, _: AttachVolume) -> Result<StringMap, Error> { Ok(StringMap::new()) }
//!     async fn detach(&self, _: VolumeId, _: DetachFrom, _: Secrets) -> Result<(), Error> { Ok(()) }
//! }
//! let slots = ControllerSlots::new(Arc::new(Mine)).attachment().readonly_attachment();
//! ```
//!
//! A node that tells conditions and no usage, because conditions travel with the usage:
//!
//! ```compile_fail,E0277
//! use std::path::Path;
//! use driver_sdk::*;
//! # #[derive(Debug)] struct Mine;
//! # #[async_trait]
//! # impl NodePublisher for Mine {
//! #     fn info(&self) -> NodeInfo { NodeInfo { id: NodeId::new("n"), max_volumes: None } }
//! #     async fn publish(&self, _: PublishVolume) -> Result<(), Error> { Ok(()) }
//! #     async fn unpublish(&self, _: VolumeId, _: &Path) -> Result<(), Error> { Ok(()) }
//! # }
//! #[async_trait]
//! impl NodeHealth for Mine {
//!     async fn node_condition(&self, _: &VolumeId, _: &Path) -> Result<Condition, Error> {
//!         Ok(Condition::Normal("fine".into()))
//!     }
//! }
//! ```
//!
//! A capability by its number: there is no such method.
//!
//! ```compile_fail,E0599
//! use std::sync::Arc;
//! use driver_sdk::{ControllerSlots, csi::v1::controller_service_capability::rpc::Type};
//! let slots = ControllerSlots::new(Arc::new(())).capability(Type::CreateDeleteVolume);
//! ```

use std::fmt;
use std::sync::Arc;

use crate::server::Driver;
use crate::slots::*;
use crate::types::StringMap;

/// Who a driver is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    name: String,
    version: String,
    manifest: StringMap,
}

/// Why a name or version cannot be a driver's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadIdentity {
    #[error("driver name {name:?}: {why}")]
    Name { name: String, why: &'static str },
    #[error("the driver's version is empty")]
    EmptyVersion,
    #[error("the driver's version is longer than 128 bytes")]
    LongVersion,
}

impl Identity {
    /// `name` is a domain-like name such as `local.csi.example.org`; `version` is free text, the same for all parts of
    /// one release.
    pub fn new(name: &str, version: &str) -> Result<Self, BadIdentity> {
        if let Some(why) = fault_of_name(name) {
            return Err(BadIdentity::Name { name: name.to_owned(), why });
        }
        match version.len() {
            0 => Err(BadIdentity::EmptyVersion),
            1..=128 => Ok(Self { name: name.to_owned(), version: version.to_owned(), manifest: StringMap::new() }),
            _ => Err(BadIdentity::LongVersion),
        }
    }

    /// Adds what operators may want to know, such as a build id. Opaque to callers.
    #[must_use]
    pub fn manifest(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.manifest.insert(key.into(), value.into());
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn manifest_entries(&self) -> &StringMap {
        &self.manifest
    }
}

/// The specification's rules and the stricter one of csi-sanity: a letter at both ends (LOCAL-0.3).
fn fault_of_name(name: &str) -> Option<&'static str> {
    let bytes = name.as_bytes();
    if !(2..=63).contains(&bytes.len()) {
        return Some("must have 2 to 63 characters");
    }
    if !bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.')) {
        return Some("may hold only letters, digits, dots and dashes");
    }
    if !bytes[0].is_ascii_alphabetic() || !bytes[bytes.len() - 1].is_ascii_alphabetic() {
        return Some("must begin and end with a letter");
    }
    name.split('.')
        .any(|label| label.is_empty() || label.starts_with('-') || label.ends_with('-'))
        .then_some("must be parts joined by dots, each with a letter or digit at both ends")
}

macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($slot:ident: $trait:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Default)]
        pub(crate) struct $name {
            $(pub(crate) $slot: Option<Arc<dyn $trait>>,)*
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut filled = f.debug_set();
                $(if self.$slot.is_some() {
                    filled.entry(&stringify!($slot));
                })*
                filled.finish()
            }
        }
    };
}

table!(
    /// The controller side, as filled.
    ControllerTable {
        provisioner: Provisioner,
        snapshots: SnapshotSource,
        clones: CloneSource,
        list_volumes: VolumeLister,
        get_volume: VolumeGetter,
        list_snapshots: SnapshotLister,
        get_snapshot: SnapshotGetter,
        capacity: CapacityReporter,
        expansion: ControllerExpander,
        attachment: Attacher,
        readonly_attachment: ReadonlyAttacher,
        list_attachments: AttachmentLister,
        health: ControllerHealth,
        modification: Modifier,
        group_snapshots: GroupSnapshotter,
        snapshot_metadata: SnapshotMetadata,
    }
);

table!(
    /// The node side, as filled. `publisher` is always there: [`NodeSlots::new`] demands it.
    NodeTable {
        publisher: NodePublisher,
        staging: NodeStager,
        stats: NodeStats,
        health: NodeHealth,
        expansion: NodeExpander,
        mount_group: MountGroup,
        writer_tracking: WriterTracking,
        ephemeral_inline: EphemeralInline,
    }
);

impl ControllerTable {
    fn is_empty(&self) -> bool {
        // Every other slot fills one of these, or is one of these.
        self.provisioner.is_none()
            && self.capacity.is_none()
            && self.expansion.is_none()
            && self.attachment.is_none()
            && self.health.is_none()
    }
}

/// The controller side of a driver: one object and the slots it fills.
pub struct ControllerSlots<P> {
    object: Arc<P>,
    table: ControllerTable,
}

macro_rules! fill {
    ($($(#[$doc:meta])* $slot:ident: $trait:ident $(, also $parent:ident)*;)*) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $slot(mut self) -> Self
        where
            P: $trait,
        {
            $(self = self.$parent();)*
            self.table.$slot = Some(self.object.clone());
            self
        })*
    };
}

impl<P: Send + Sync + 'static> ControllerSlots<P> {
    /// No slot is filled yet.
    pub fn new(object: Arc<P>) -> Self {
        Self { object, table: ControllerTable::default() }
    }

    fill! {
        /// CREATE_DELETE_VOLUME.
        provisioner: Provisioner;
        /// CREATE_DELETE_SNAPSHOT, and restoring.
        snapshots: SnapshotSource, also provisioner;
        /// CLONE_VOLUME.
        clones: CloneSource, also provisioner;
        /// LIST_VOLUMES.
        list_volumes: VolumeLister, also provisioner;
        /// GET_VOLUME.
        get_volume: VolumeGetter, also provisioner;
        /// LIST_SNAPSHOTS.
        list_snapshots: SnapshotLister, also snapshots;
        /// GET_SNAPSHOT.
        get_snapshot: SnapshotGetter, also snapshots;
        /// GET_CAPACITY.
        capacity: CapacityReporter;
        /// EXPAND_VOLUME, and the plugin's ONLINE or OFFLINE expansion.
        expansion: ControllerExpander;
        /// PUBLISH_UNPUBLISH_VOLUME.
        attachment: Attacher;
        /// PUBLISH_READONLY.
        readonly_attachment: ReadonlyAttacher, also attachment;
        /// LIST_VOLUMES_PUBLISHED_NODES.
        list_attachments: AttachmentLister, also attachment, also list_volumes;
        /// VOLUME_CONDITION in listings.
        health: ControllerHealth;
        /// MODIFY_VOLUME.
        modification: Modifier, also provisioner;
        /// The GroupController service.
        group_snapshots: GroupSnapshotter, also snapshots;
        /// The SnapshotMetadata service.
        snapshot_metadata: SnapshotMetadata, also snapshots;
    }
}

impl<P> fmt::Debug for ControllerSlots<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.table, f)
    }
}

/// The node side of a driver: one object and the slots it fills.
pub struct NodeSlots<N> {
    object: Arc<N>,
    table: NodeTable,
}

macro_rules! fill_node {
    ($($(#[$doc:meta])* $slot:ident: $trait:ident $(, also $parent:ident)*;)*) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $slot(mut self) -> Self
        where
            N: $trait,
        {
            $(self = self.$parent();)*
            self.table.$slot = Some(self.object.clone());
            self
        })*
    };
}

impl<N: NodePublisher> NodeSlots<N> {
    /// Publishing, which every node driver does.
    pub fn new(object: Arc<N>) -> Self {
        let table = NodeTable { publisher: Some(object.clone()), ..NodeTable::default() };
        Self { object, table }
    }

    fill_node! {
        /// STAGE_UNSTAGE_VOLUME.
        staging: NodeStager;
        /// GET_VOLUME_STATS.
        stats: NodeStats;
        /// VOLUME_CONDITION, told together with the usage.
        health: NodeHealth, also stats;
        /// EXPAND_VOLUME.
        expansion: NodeExpander;
        /// VOLUME_MOUNT_GROUP.
        mount_group: MountGroup;
        /// SINGLE_NODE_MULTI_WRITER, on the controller side too.
        writer_tracking: WriterTracking;
        /// Inline volumes. Nothing is advertised.
        ephemeral_inline: EphemeralInline;
    }
}

impl<N> fmt::Debug for NodeSlots<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.table, f)
    }
}

/// Everything a driver is, whichever part of it one process serves.
pub(crate) struct Definition {
    pub(crate) identity: Identity,
    pub(crate) health: Arc<dyn Health>,
    pub(crate) controller: Option<ControllerTable>,
    pub(crate) node: Option<NodeTable>,
    pub(crate) topology: Option<Arc<dyn Topology>>,
}

/// Why slots do not make a driver: the few rules that types do not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    #[error("the driver has neither controller nor node slots")]
    Empty,
    #[error("controller slots were given and none is filled")]
    EmptyController,
    #[error("attachment needs node slots: callers learn the node's id from the node side")]
    AttachmentWithoutNode,
    #[error("topology needs node slots: callers learn the node's segments from the node side")]
    TopologyWithoutNode,
    #[error("controller health needs list_volumes or get_volume: conditions are told nowhere else")]
    HealthWithoutReader,
}

struct AlwaysReady;

impl Health for AlwaysReady {
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }
}

/// Collects the parts of a [`Driver`].
pub struct DriverBuilder {
    definition: Definition,
}

impl DriverBuilder {
    pub(crate) fn new(identity: Identity) -> Self {
        let health = Arc::new(AlwaysReady);
        Self { definition: Definition { identity, health, controller: None, node: None, topology: None } }
    }

    /// What `Probe` asks. Without it the driver is always ready.
    #[must_use]
    pub fn health(mut self, health: Arc<dyn Health>) -> Self {
        self.definition.health = health;
        self
    }

    #[must_use]
    pub fn controller<P>(mut self, slots: ControllerSlots<P>) -> Self {
        self.definition.controller = Some(slots.table);
        self
    }

    #[must_use]
    pub fn node<N>(mut self, slots: NodeSlots<N>) -> Self {
        self.definition.node = Some(slots.table);
        self
    }

    /// VOLUME_ACCESSIBILITY_CONSTRAINTS.
    #[must_use]
    pub fn topology(mut self, topology: Arc<impl Topology>) -> Self {
        self.definition.topology = Some(topology);
        self
    }

    pub fn build(self) -> Result<Driver, DefinitionError> {
        let Definition { controller, node, topology, .. } = &self.definition;
        if controller.is_none() && node.is_none() {
            return Err(DefinitionError::Empty);
        }
        if let Some(table) = controller {
            if table.is_empty() {
                return Err(DefinitionError::EmptyController);
            }
            if table.attachment.is_some() && node.is_none() {
                return Err(DefinitionError::AttachmentWithoutNode);
            }
            if table.health.is_some() && table.list_volumes.is_none() && table.get_volume.is_none() {
                return Err(DefinitionError::HealthWithoutReader);
            }
        }
        if topology.is_some() && node.is_none() {
            return Err(DefinitionError::TopologyWithoutNode);
        }
        Ok(Driver::new(self.definition))
    }
}

impl fmt::Debug for DriverBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.definition, f)
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition")
            .field("identity", &self.identity)
            .field("controller", &self.controller)
            .field("node", &self.node)
            .field("topology", &self.topology.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: LOCAL-0.3, WIRE-B.3
    #[test]
    fn names_follow_the_specification_and_sanity() {
        for good in ["ab", "local.csi.orlop.dev", "a-b.c1d", "A9.b", &format!("a{}b", "x".repeat(61))] {
            assert!(Identity::new(good, "1").is_ok(), "{good}");
        }
        for bad in ["", "a", "1a", "a1", "-ab", "ab-", "a..b", "a.-b", "a-.b", "a_b", "a b", "é.b", &"x".repeat(64)] {
            assert!(matches!(Identity::new(bad, "1"), Err(BadIdentity::Name { .. })), "{bad}");
        }
        assert_eq!(Identity::new("ab", ""), Err(BadIdentity::EmptyVersion));
        assert_eq!(Identity::new("ab", &"1".repeat(129)), Err(BadIdentity::LongVersion));
    }

    /// Rule: LOCAL-E.3
    #[test]
    fn a_driver_without_slots_cannot_be_built() {
        let identity = Identity::new("ab.cd", "1").unwrap();
        assert_eq!(DriverBuilder::new(identity.clone()).build().unwrap_err(), DefinitionError::Empty);
        let hollow = DriverBuilder::new(identity).controller(ControllerSlots::new(Arc::new(())));
        assert_eq!(hollow.build().unwrap_err(), DefinitionError::EmptyController);
    }
}
