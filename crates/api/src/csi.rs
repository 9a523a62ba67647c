//! What drivers and their controllers tell each other: CSIDriver, CSIStorageCapacity, VolumeAttachment.

use serde::Deserialize;

use crate::amount::Amount;
use crate::object::{Kind, Meta, Object, Pairs, UnixSeconds, Word};
use crate::selector::LabelSelector;

/// What a driver wants from Kubernetes.
#[derive(Debug, Clone, Deserialize)]
pub struct CsiDriver {
    #[serde(rename = "metadata")]
    pub meta: Meta,
    #[serde(default)]
    pub spec: CsiDriverSpec,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriverSpec {
    /// Absent means yes.
    pub attach_required: Option<bool>,
    pub storage_capacity: Option<bool>,
    /// Whether a pod may go only to nodes where the driver runs.
    pub prevent_pod_scheduling_if_missing: Option<bool>,
    /// Who gives a volume's files to a pod's group; absent only in objects that passed no defaulting.
    pub fs_group_policy: Option<Word>,
    /// Whether the driver wants to know for which pod a volume is.
    pub pod_info_on_mount: Option<bool>,
    /// The service account tokens that it wants.
    pub token_requests: Option<Box<[TokenRequest]>>,
    /// Whether a published volume is published again from time to time.
    pub requires_republish: Option<bool>,
    /// `Persistent`, `Ephemeral` or both.
    pub volume_lifecycle_modes: Option<Box<[Word]>>,
    pub se_linux_mount: Option<bool>,
    /// How often a node asks anew how many volumes fit.
    pub node_allocatable_update_period_seconds: Option<i64>,
    /// Whether tokens go into the secrets of a call, where logs do not see them.
    pub service_account_token_in_secrets: Option<bool>,
}

/// A service account token that a driver wants.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenRequest {
    /// Empty means the API server itself.
    pub audience: Box<str>,
    pub expiration_seconds: Option<i64>,
}

impl Object for CsiDriver {
    const KIND: Kind = Kind::CSI_DRIVER;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// How much room a class has in one part of the cluster.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    #[serde(rename = "metadata")]
    pub meta: Meta,
    #[serde(default = "Word::empty")]
    pub storage_class_name: Word,
    /// Absent means that no node has it.
    pub node_topology: Option<LabelSelector>,
    pub capacity: Option<Amount>,
    pub maximum_volume_size: Option<Amount>,
}

impl Capacity {
    /// The largest volume that may fit (SCHED-5.3).
    pub fn limit(&self) -> Option<&Amount> {
        self.maximum_volume_size.as_ref().or(self.capacity.as_ref())
    }
}

impl Object for Capacity {
    const KIND: Kind = Kind::CAPACITY;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// The wish that a volume be attached to a node, and what came of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "WireAttachment")]
pub struct Attachment {
    pub meta: Meta,
    pub attacher: Word,
    pub node: Word,
    /// The volume, unless it is one that stands in the pod itself.
    pub volume: Option<Box<str>>,
    /// The `spec` of a PersistentVolume that is stored nowhere else: an in-tree volume inside a pod, as its driver sees it.
    /// Rare, so it is kept as it came.
    pub inline: Option<Box<serde_json::Value>>,
    pub attached: bool,
    /// What the driver gave with the publication, for the node's half of it: `attachmentMetadata`.
    pub metadata: Pairs,
    pub attach_error: Option<Box<AttachmentError>>,
    pub detach_error: Option<Box<AttachmentError>>,
}

/// Why a volume could not be attached or detached, as the attacher last said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentError {
    pub message: Box<str>,
    pub time: Option<UnixSeconds>,
    /// The driver's gRPC code, where it gave one; 8 says that the node has no slot left.
    #[serde(rename = "errorCode")]
    pub code: Option<i32>,
}

impl Attachment {
    pub fn name(&self) -> &str {
        self.meta.key.name()
    }

    /// What went wrong last: with detaching, or else with attaching.
    pub fn error(&self) -> Option<&AttachmentError> {
        self.detach_error.as_deref().or(self.attach_error.as_deref())
    }
}

impl Object for Attachment {
    const KIND: Kind = Kind::ATTACHMENT;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Deserialize)]
struct WireAttachment {
    metadata: Meta,
    spec: WireAttachmentSpec,
    #[serde(default)]
    status: WireAttachmentStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireAttachmentSpec {
    attacher: Word,
    node_name: Word,
    #[serde(default)]
    source: WireAttachmentSource,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireAttachmentSource {
    persistent_volume_name: Option<Box<str>>,
    inline_volume_spec: Option<Box<serde_json::Value>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireAttachmentStatus {
    attached: bool,
    attachment_metadata: Pairs,
    attach_error: Option<Box<AttachmentError>>,
    detach_error: Option<Box<AttachmentError>>,
}

impl From<WireAttachment> for Attachment {
    fn from(wire: WireAttachment) -> Self {
        let WireAttachment { metadata, spec, status } = wire;
        Self {
            meta: metadata,
            attacher: spec.attacher,
            node: spec.node_name,
            volume: spec.source.persistent_volume_name,
            inline: spec.source.inline_volume_spec,
            attached: status.attached,
            metadata: status.attachment_metadata,
            attach_error: status.attach_error,
            detach_error: status.detach_error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attachment_says_what_is_attached_and_what_went_wrong() {
        let attachment: Attachment = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "csi-1", "uid": "u"},
            "spec": {"attacher": "d", "nodeName": "n", "source": {"inlineVolumeSpec": {"csi": {"driver": "d"}}}},
            "status": {"attached": false, "attachmentMetadata": {"lun": "3"}, "attachError": {
                "time": "2026-01-02T03:04:05Z", "message": "full", "errorCode": 8}},
        }))
        .unwrap();
        assert_eq!((attachment.volume.as_deref(), attachment.metadata.get("lun")), (None, Some("3")));
        assert_eq!(attachment.inline.as_ref().unwrap()["csi"]["driver"], "d");
        let error = attachment.error().unwrap();
        assert_eq!((&*error.message, error.code), ("full", Some(8)));
        assert_eq!(error.time.unwrap().to_string(), "2026-01-02T03:04:05Z");
    }

    #[test]
    fn an_attachment_that_nobody_looked_at_has_no_status() {
        let attachment: Attachment = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "csi-1"},
            "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
        }))
        .unwrap();
        assert!(!attachment.attached && attachment.error().is_none() && attachment.metadata.is_empty());
        assert_eq!(attachment.volume.as_deref(), Some("v"));
    }
}
