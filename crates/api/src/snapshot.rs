//! Sources of content: VolumeSnapshot, VolumeSnapshotContent, and the grants that let them cross namespaces.

use serde::Deserialize;

use crate::access::VolumeMode;
use crate::amount::Amount;
use crate::object::{Key, Kind, Meta, Object, Uid, Word};

/// A user's snapshot.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "WireSnapshot")]
pub struct Snapshot {
    pub meta: Meta,
    /// The content it is bound to.
    pub content: Option<Box<str>>,
    pub ready: bool,
    pub restore_size: Option<Amount>,
    /// The claim it is taken of, in its own namespace.
    pub claim: Option<Box<str>>,
    /// What the driver last answered, if it refused.
    pub error: Option<Box<str>>,
}

impl Object for Snapshot {
    const KIND: Kind = Kind::SNAPSHOT;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Deserialize)]
struct WireSnapshot {
    metadata: Meta,
    #[serde(default)]
    spec: WireSnapshotSpec,
    #[serde(default)]
    status: WireSnapshotStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireSnapshotSpec {
    source: WireSnapshotSource,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireSnapshotSource {
    persistent_volume_claim_name: Option<Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireSnapshotStatus {
    bound_volume_snapshot_content_name: Option<Box<str>>,
    ready_to_use: bool,
    restore_size: Option<Amount>,
    error: Option<WireError>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireError {
    message: Option<Box<str>>,
}

impl From<WireSnapshot> for Snapshot {
    fn from(wire: WireSnapshot) -> Self {
        let WireSnapshot { metadata, spec, status } = wire;
        Self {
            meta: metadata,
            content: status.bound_volume_snapshot_content_name,
            ready: status.ready_to_use,
            restore_size: status.restore_size,
            claim: spec.source.persistent_volume_claim_name,
            error: status.error.and_then(|error| error.message),
        }
    }
}

/// The driver's side of a snapshot.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "WireContent")]
pub struct SnapshotContent {
    pub meta: Meta,
    pub driver: Word,
    /// Whom it says it belongs to.
    pub snapshot: Key,
    pub snapshot_uid: Uid,
    pub handle: Option<Box<str>>,
    /// The snapshot that was there before the content, which then names it from the start.
    pub given_handle: Option<Box<str>>,
    pub mode: Option<VolumeMode>,
}

impl Object for SnapshotContent {
    const KIND: Kind = Kind::SNAPSHOT_CONTENT;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Deserialize)]
struct WireContent {
    metadata: Meta,
    spec: WireContentSpec,
    #[serde(default)]
    status: WireContentStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireContentSpec {
    driver: Word,
    #[serde(default)]
    volume_snapshot_ref: WireRef,
    #[serde(default)]
    source: WireContentSource,
    source_volume_mode: Option<VolumeMode>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireContentSource {
    snapshot_handle: Option<Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireRef {
    namespace: Box<str>,
    name: Box<str>,
    uid: Uid,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireContentStatus {
    snapshot_handle: Option<Box<str>>,
}

impl From<WireContent> for SnapshotContent {
    fn from(wire: WireContent) -> Self {
        let WireContent { metadata, spec, status } = wire;
        let WireRef { namespace, name, uid } = spec.volume_snapshot_ref;
        Self {
            meta: metadata,
            driver: spec.driver,
            snapshot: Key::namespaced(&namespace, &name),
            snapshot_uid: uid,
            handle: status.snapshot_handle,
            given_handle: spec.source.snapshot_handle,
            mode: spec.source_volume_mode,
        }
    }
}

/// Who may use what from another namespace.
#[derive(Debug, Clone, Deserialize)]
pub struct Grant {
    #[serde(rename = "metadata")]
    pub meta: Meta,
    pub spec: GrantSpec,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GrantSpec {
    #[serde(default)]
    pub from: Vec<GrantFrom>,
    #[serde(default)]
    pub to: Vec<GrantTo>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GrantFrom {
    pub group: Box<str>,
    pub kind: Box<str>,
    pub namespace: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GrantTo {
    pub group: Box<str>,
    pub kind: Box<str>,
    /// Absent or empty means any.
    pub name: Option<Box<str>>,
}

impl Object for Grant {
    const KIND: Kind = Kind::REFERENCE_GRANT;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}
