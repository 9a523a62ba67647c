//! A PersistentVolumeClaim, as far as storage needs it.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::access::{AccessModes, VolumeMode};
use crate::amount::Amount;
use crate::keys::{annotation, condition};
use crate::object::{Key, Kind, Meta, Object, Uid, UnixSeconds, Word};
use crate::selector::LabelSelector;

/// What a claim asks for and what it got.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Wire")]
pub struct Claim {
    pub meta: Meta,
    /// The field as it stands; [`Claim::class`] is what counts.
    pub class_field: Option<Word>,
    /// Empty until the claim has a volume, or names the one it wants.
    pub volume_name: Box<str>,
    pub access: AccessModes,
    pub mode: VolumeMode,
    /// Absent only in objects that passed no validation.
    pub request: Option<Amount>,
    pub selector: Option<Box<LabelSelector>>,
    pub source: Option<Box<DataSource>>,
    pub attributes_class: Option<Box<str>>,
    pub phase: ClaimPhase,
    pub status: Box<ClaimStatus>,
}

/// What others made known about a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimStatus {
    pub access: AccessModes,
    pub capacity: Option<Amount>,
    pub attributes_class: Option<Box<str>>,
    /// The class a running modification goes to.
    pub attributes_target: Option<Box<str>>,
    /// The size that a resize goes to.
    pub allocated: Option<Amount>,
    /// How far a resize has come.
    pub resize: Option<Word>,
    /// Its volume is not well, as a sidecar of ours wrote into the claim's conditions.
    pub abnormal: Option<Box<AbnormalVolume>>,
}

/// A driver's report of a volume in trouble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbnormalVolume {
    /// The driver's words.
    pub message: Box<str>,
    /// When it was first said, if the condition tells.
    pub since: Option<UnixSeconds>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum ClaimPhase {
    #[default]
    Pending,
    Bound,
    Lost,
}

impl ClaimPhase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Bound => "Bound",
            Self::Lost => "Lost",
        }
    }
}

/// Where a new volume's content comes from: `dataSource`, else `dataSourceRef` (PROVISION-2.8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSource {
    pub group: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    /// Only a reference can name another namespace.
    pub namespace: Option<Box<str>>,
    pub field: SourceField,
}

/// Which field a source was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceField {
    DataSource,
    DataSourceRef,
}

/// The class of a claim or a volume: the old annotation wins wherever it is present, even when it is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassName<'a> {
    /// Neither annotation nor field: a default may be filled in.
    Unset,
    /// An explicit empty name: no class, for ever.
    None,
    Named(&'a str),
}

impl<'a> ClassName<'a> {
    pub fn of(meta: &'a Meta, field: Option<&'a str>) -> Self {
        match meta.annotation(annotation::BETA_STORAGE_CLASS).or(field) {
            None => Self::Unset,
            Some("") => Self::None,
            Some(name) => Self::Named(name),
        }
    }

    /// The name to compare with another's: unset and none are both empty.
    pub fn text(self) -> &'a str {
        match self {
            Self::Unset | Self::None => "",
            Self::Named(name) => name,
        }
    }
}

impl Claim {
    pub fn class(&self) -> ClassName<'_> {
        ClassName::of(&self.meta, self.class_field.as_deref())
    }

    pub fn key(&self) -> &Key {
        &self.meta.key
    }

    pub fn uid(&self) -> &Uid {
        &self.meta.uid
    }

    pub fn namespace(&self) -> &str {
        self.meta.key.namespace().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.meta.key.name()
    }

    /// The first binding finished once.
    pub fn bind_completed(&self) -> bool {
        self.meta.annotation(annotation::BIND_COMPLETED).is_some()
    }

    /// Its pointer was chosen by the system.
    pub fn bound_by_controller(&self) -> bool {
        self.meta.annotation(annotation::BOUND_BY_CONTROLLER).is_some()
    }

    /// Has a volume and knows it for good: what a scheduler calls bound (SCHED-5.1).
    pub fn fully_bound(&self) -> bool {
        !self.volume_name.is_empty() && self.bind_completed()
    }

    /// The node chosen for it. The older key counts when the newer one is missing.
    pub fn selected_node(&self) -> Option<&str> {
        let chosen = |key| self.meta.annotation(key).filter(|node| !node.is_empty());
        chosen(annotation::SELECTED_NODE).or_else(|| chosen(annotation::ALPHA_SELECTED_NODE))
    }

    /// The provisioner that was asked to act.
    pub fn provisioner(&self) -> Option<&str> {
        let asked = |key| self.meta.annotation(key);
        asked(annotation::STORAGE_PROVISIONER).or_else(|| asked(annotation::BETA_STORAGE_PROVISIONER))
    }

    pub fn migrated_to(&self) -> Option<&str> {
        self.meta.annotation(annotation::MIGRATED_TO).filter(|driver| !driver.is_empty())
    }

    /// The VolumeAttributesClass asked for; unset and empty are the same.
    pub fn attributes_class(&self) -> &str {
        self.attributes_class.as_deref().unwrap_or_default()
    }

    /// How much it asks for; nothing if it does not say.
    pub fn size(&self) -> Amount {
        self.request.clone().unwrap_or_else(Amount::zero)
    }

    /// For drivers and sums. To compare sizes, compare [`Claim::size`].
    pub fn request_bytes(&self) -> i64 {
        self.request.as_ref().map_or(0, Amount::bytes)
    }
}

impl Object for Claim {
    const KIND: Kind = Kind::CLAIM;

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
    volume_name: Box<str>,
    access_modes: AccessModes,
    volume_mode: Option<VolumeMode>,
    resources: WireResources,
    selector: Option<Box<LabelSelector>>,
    data_source: Option<WireSource>,
    data_source_ref: Option<WireSource>,
    volume_attributes_class_name: Option<Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireResources {
    requests: BTreeMap<Box<str>, serde_json::Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireSource {
    api_group: Option<Box<str>>,
    kind: Box<str>,
    name: Box<str>,
    namespace: Option<Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    phase: Option<ClaimPhase>,
    access_modes: AccessModes,
    capacity: BTreeMap<Box<str>, serde_json::Value>,
    current_volume_attributes_class_name: Option<Box<str>>,
    modify_volume_status: Option<WireModify>,
    allocated_resources: BTreeMap<Box<str>, serde_json::Value>,
    allocated_resource_statuses: BTreeMap<Box<str>, Word>,
    conditions: Option<Vec<WireCondition>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCondition {
    #[serde(rename = "type")]
    kind: Box<str>,
    status: Box<str>,
    #[serde(default)]
    message: Option<Box<str>>,
    #[serde(default)]
    last_transition_time: Option<UnixSeconds>,
}

fn abnormal(conditions: Vec<WireCondition>) -> Option<Box<AbnormalVolume>> {
    let said = |one: &WireCondition| &*one.kind == condition::VOLUME_ABNORMAL && &*one.status == "True";
    let found = conditions.into_iter().find(said)?;
    Some(Box::new(AbnormalVolume { message: found.message.unwrap_or_default(), since: found.last_transition_time }))
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireModify {
    target_volume_attributes_class_name: Option<Box<str>>,
}

impl WireSource {
    fn read(self, field: SourceField) -> DataSource {
        let Self { api_group, kind, name, namespace } = self;
        let namespace = namespace.filter(|namespace| !namespace.is_empty() && field == SourceField::DataSourceRef);
        DataSource { group: api_group.unwrap_or_default(), kind, name, namespace, field }
    }
}

/// The storage entry of a resource list. A number is as good as its text.
pub(crate) fn storage(list: &BTreeMap<Box<str>, serde_json::Value>) -> Option<Amount> {
    match list.get("storage")? {
        serde_json::Value::String(text) => Amount::parse(text).ok(),
        other => Amount::parse(&other.to_string()).ok(),
    }
}

impl From<Wire> for Claim {
    fn from(wire: Wire) -> Self {
        let Wire { metadata, spec, mut status } = wire;
        let reference = spec.data_source_ref.map(|source| source.read(SourceField::DataSourceRef));
        let source = spec.data_source.map(|source| source.read(SourceField::DataSource));
        Self {
            meta: metadata,
            class_field: spec.storage_class_name,
            volume_name: spec.volume_name,
            access: spec.access_modes,
            mode: spec.volume_mode.unwrap_or_default(),
            request: storage(&spec.resources.requests),
            selector: spec.selector,
            source: source.or(reference).map(Box::new),
            attributes_class: spec.volume_attributes_class_name,
            phase: status.phase.unwrap_or_default(),
            status: Box::new(ClaimStatus {
                access: status.access_modes,
                capacity: storage(&status.capacity),
                allocated: storage(&status.allocated_resources),
                resize: status.allocated_resource_statuses.remove("storage").filter(|word| !word.is_empty()),
                attributes_class: status.current_volume_attributes_class_name,
                abnormal: status.conditions.and_then(abnormal),
                attributes_target: status
                    .modify_volume_status
                    .and_then(|modify| modify.target_volume_attributes_class_name),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(json: serde_json::Value) -> Claim {
        serde_json::from_value(json).unwrap()
    }

    fn meta(annotations: serde_json::Value) -> serde_json::Value {
        serde_json::json!({"name": "c", "namespace": "n", "uid": "u", "resourceVersion": "7", "annotations": annotations})
    }

    #[test]
    fn a_claim_is_read_from_the_wire() {
        let claim = claim(serde_json::json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": meta(serde_json::json!({})),
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}},
                     "storageClassName": "fast", "volumeMode": "Block"},
            "status": {"phase": "Bound", "capacity": {"storage": "3Gi"}},
        }));
        assert_eq!((claim.namespace(), claim.name()), ("n", "c"));
        assert_eq!(claim.class(), ClassName::Named("fast"));
        assert_eq!((claim.request_bytes(), claim.mode), (2 << 30, VolumeMode::Block));
        assert_eq!(claim.status.capacity.as_ref().unwrap().text(), "3Gi");
        assert_eq!(claim.phase, ClaimPhase::Bound);
    }

    #[test]
    fn the_old_class_annotation_wins_even_when_it_is_empty() {
        let beta = annotation::BETA_STORAGE_CLASS.text();
        let spec = serde_json::json!({"storageClassName": "fast"});
        let with =
            |value: &str| claim(serde_json::json!({"metadata": meta(serde_json::json!({beta: value})), "spec": spec}));
        assert_eq!(with("slow").class(), ClassName::Named("slow"));
        assert_eq!(with("").class(), ClassName::None);
        let unset = claim(serde_json::json!({"metadata": meta(serde_json::json!({}))}));
        assert_eq!(unset.class(), ClassName::Unset);
    }

    #[test]
    fn the_data_source_wins_over_its_reference() {
        let spec = serde_json::json!({
            "dataSource": {"kind": "PersistentVolumeClaim", "name": "a"},
            "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "a", "namespace": "other"},
        });
        let claim = claim(serde_json::json!({"metadata": meta(serde_json::json!({})), "spec": spec}));
        let source = claim.source.unwrap();
        assert_eq!((source.field, source.namespace), (SourceField::DataSource, None));
    }
}
