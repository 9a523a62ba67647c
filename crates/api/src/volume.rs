//! A PersistentVolume, as far as storage needs it.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::access::{AccessModes, VolumeMode};
use crate::amount::Amount;
use crate::claim::{Claim, ClassName, storage};
use crate::keys::annotation;
use crate::object::{Key, Kind, Meta, Object, Pairs, Uid, Word};
use crate::selector::NodeSelector;

/// What a volume offers and who has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Wire")]
pub struct Volume {
    pub meta: Meta,
    /// The field as it stands; [`Volume::class`] is what counts.
    pub class_field: Option<Word>,
    pub access: AccessModes,
    pub mode: VolumeMode,
    /// Absent only in objects that passed no validation.
    pub capacity: Option<Amount>,
    pub claim: Option<Box<ClaimRef>>,
    pub reclaim: ReclaimPolicy,
    pub affinity: Option<Box<NodeSelector>>,
    pub attributes_class: Option<Box<str>>,
    pub source: Source,
    /// What its driver needs to publish it, where that is a secret. Names may be empty.
    pub publish_secret: Option<Box<SecretName>>,
    pub phase: VolumePhase,
    pub message: Option<Box<str>>,
}

/// Which secret, without its values.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct SecretName {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

/// Whom a volume belongs to. Without a uid it is a reservation, with one a bond (CTRL-13.13).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRef {
    pub key: Key,
    pub uid: Option<Uid>,
}

impl ClaimRef {
    /// Whether this names the claim: by name, and by uid where it has one.
    pub fn designates(&self, claim: &Claim) -> bool {
        self.key == claim.meta.key && self.uid.as_ref().is_none_or(|uid| *uid == claim.meta.uid)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum ReclaimPolicy {
    Retain,
    Delete,
    Recycle,
    /// Neither of the three. Nothing is done to the data, and it is said.
    #[serde(other)]
    Unknown,
}

impl ReclaimPolicy {
    pub fn name(self) -> &'static str {
        match self {
            Self::Retain => "Retain",
            Self::Delete => "Delete",
            Self::Recycle => "Recycle",
            Self::Unknown => "Unknown",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum VolumePhase {
    #[default]
    Pending,
    Available,
    Bound,
    Released,
    Failed,
}

impl VolumePhase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Available => "Available",
            Self::Bound => "Bound",
            Self::Released => "Released",
            Self::Failed => "Failed",
        }
    }
}

/// What a volume is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Csi {
        driver: Word,
        handle: Box<str>,
    },
    HostPath {
        path: Box<str>,
    },
    Local {
        path: Box<str>,
    },
    Nfs {
        server: Box<str>,
        path: Box<str>,
    },
    /// Another plugin's: its field in the object, and what stands there. Rare, so it is kept as it came.
    Other {
        field: Box<str>,
        value: Box<serde_json::Value>,
    },
    /// No source at all, which validation refuses.
    Missing,
}

impl Volume {
    pub fn class(&self) -> ClassName<'_> {
        ClassName::of(&self.meta, self.class_field.as_deref())
    }

    pub fn name(&self) -> &str {
        self.meta.key.name()
    }

    pub fn bound_by_controller(&self) -> bool {
        self.meta.annotation(annotation::BOUND_BY_CONTROLLER).is_some()
    }

    /// Who made it, if it was made on demand.
    pub fn provisioned_by(&self) -> Option<&str> {
        self.meta.annotation(annotation::PROVISIONED_BY).filter(|name| !name.is_empty())
    }

    pub fn migrated_to(&self) -> Option<&str> {
        self.meta.annotation(annotation::MIGRATED_TO).filter(|driver| !driver.is_empty())
    }

    /// The VolumeAttributesClass it has; unset and empty are the same.
    pub fn attributes_class(&self) -> &str {
        self.attributes_class.as_deref().unwrap_or_default()
    }

    /// How large it is; nothing if it does not say.
    pub fn size(&self) -> Amount {
        self.capacity.clone().unwrap_or_else(Amount::zero)
    }

    /// For sums. To compare sizes, compare [`Volume::size`].
    pub fn capacity_bytes(&self) -> i64 {
        self.capacity.as_ref().map_or(0, Amount::bytes)
    }

    /// Whether its `claimRef` names this claim.
    pub fn designates(&self, claim: &Claim) -> bool {
        self.claim.as_ref().is_some_and(|reference| reference.designates(claim))
    }

    /// Whether a pod on this node could reach it. A volume without affinity is reachable from everywhere.
    pub fn reachable_from(&self, node: &str, labels: &Pairs) -> bool {
        self.affinity.as_ref().is_none_or(|affinity| affinity.matches(node, labels))
    }
}

impl Object for Volume {
    const KIND: Kind = Kind::VOLUME;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: Meta,
    #[serde(default)]
    spec: WireSpec,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    storage_class_name: Option<Word>,
    access_modes: AccessModes,
    volume_mode: Option<VolumeMode>,
    capacity: BTreeMap<Box<str>, serde_json::Value>,
    claim_ref: Option<WireClaimRef>,
    persistent_volume_reclaim_policy: Option<ReclaimPolicy>,
    node_affinity: Option<WireAffinity>,
    volume_attributes_class_name: Option<Box<str>>,
    mount_options: serde::de::IgnoredAny,
    csi: Option<WireCsi>,
    host_path: Option<WirePath>,
    local: Option<WirePath>,
    nfs: Option<WireNfs>,
    /// Whatever is left is another plugin's source.
    #[serde(flatten)]
    other: BTreeMap<Box<str>, serde_json::Value>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireClaimRef {
    namespace: Box<str>,
    name: Box<str>,
    uid: Option<Uid>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireAffinity {
    required: Option<Box<NodeSelector>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireCsi {
    driver: Option<Word>,
    volume_handle: Box<str>,
    controller_publish_secret_ref: Option<Box<SecretName>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WirePath {
    path: Box<str>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireNfs {
    server: Box<str>,
    path: Box<str>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireStatus {
    phase: Option<VolumePhase>,
    message: Option<Box<str>>,
}

impl WireSpec {
    fn source(&mut self) -> Source {
        if let Some(WireCsi { driver, volume_handle, .. }) = self.csi.take() {
            let driver = driver.unwrap_or_else(|| Word::new(""));
            return Source::Csi { driver, handle: volume_handle };
        }
        if let Some(WirePath { path }) = self.host_path.take() {
            return Source::HostPath { path };
        }
        if let Some(WirePath { path }) = self.local.take() {
            return Source::Local { path };
        }
        if let Some(WireNfs { server, path }) = self.nfs.take() {
            return Source::Nfs { server, path };
        }
        match std::mem::take(&mut self.other).into_iter().find(|(_, value)| value.is_object()) {
            Some((field, value)) => Source::Other { field, value: Box::new(value) },
            None => Source::Missing,
        }
    }
}

impl From<Wire> for Volume {
    fn from(wire: Wire) -> Self {
        let Wire { metadata, mut spec, status } = wire;
        Self {
            meta: metadata,
            publish_secret: spec.csi.as_mut().and_then(|csi| csi.controller_publish_secret_ref.take()),
            source: spec.source(),
            class_field: spec.storage_class_name,
            access: spec.access_modes,
            mode: spec.volume_mode.unwrap_or_default(),
            capacity: storage(&spec.capacity),
            claim: spec.claim_ref.map(|WireClaimRef { namespace, name, uid }| {
                Box::new(ClaimRef { key: Key::namespaced(&namespace, &name), uid: uid.filter(|uid| !uid.is_empty()) })
            }),
            reclaim: spec.persistent_volume_reclaim_policy.unwrap_or(ReclaimPolicy::Retain),
            affinity: spec.node_affinity.and_then(|affinity| affinity.required),
            attributes_class: spec.volume_attributes_class_name,
            phase: status.phase.unwrap_or_default(),
            message: status.message.filter(|message| !message.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(spec: serde_json::Value) -> Volume {
        let metadata = serde_json::json!({"name": "v", "uid": "u", "resourceVersion": "7"});
        serde_json::from_value(serde_json::json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn a_csi_volume_is_read_from_the_wire() {
        let volume = volume(serde_json::json!({
            "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": "d", "volumeHandle": "h", "volumeAttributes": {"a": "b"},
                    "controllerPublishSecretRef": {"namespace": "n", "name": "s"}},
            "claimRef": {"namespace": "n", "name": "c", "uid": "x"},
        }));
        assert_eq!(volume.source, Source::Csi { driver: "d".into(), handle: "h".into() });
        assert_eq!((volume.capacity_bytes(), volume.reclaim), (2 << 30, ReclaimPolicy::Delete));
        assert_eq!(volume.claim.unwrap().key, Key::namespaced("n", "c"));
        assert_eq!(volume.phase, VolumePhase::Pending);
        assert_eq!(volume.publish_secret.as_deref(), Some(&SecretName { namespace: "n".into(), name: "s".into() }));
    }

    #[test]
    fn a_source_of_another_plugin_is_kept_as_it_came() {
        let volume = volume(serde_json::json!({"awsElasticBlockStore": {"volumeID": "vol-1"}, "mountOptions": ["ro"]}));
        let Source::Other { field, value } = volume.source else { panic!("{:?}", volume.source) };
        assert_eq!((&*field, &value["volumeID"]), ("awsElasticBlockStore", &serde_json::json!("vol-1")));
    }

    #[test]
    fn a_reference_with_an_empty_uid_is_a_reservation() {
        let volume = volume(serde_json::json!({"claimRef": {"namespace": "n", "name": "c", "uid": ""}}));
        assert_eq!(volume.claim.unwrap().uid, None);
    }
}
