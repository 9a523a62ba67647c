//! PersistentVolume: a piece of storage. Its source never changes; how it may be used and by whom does.

use super::cells::{
    self, AGE, Column, NAME, VOLUME_MODES, access_modes, amount, beta_label_warning, class, lasting_label, or_unset,
    phase,
};
use super::labels::{invalid_each, validate_choice, validate_node_selector};
use super::read::{
    annotation, copy, entries, items_mut, list, name, present, remove, restore, same, set, set_default,
    set_default_text, text, unchanged,
};
use super::time::Timestamp;
use super::volume_source::{self, Affinity};
use super::{Policy, Rules, golang, meta, names};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};

const MOUNT_OPTIONS: &str = crate::keys::BETA_MOUNT_OPTIONS;
const TRANSITION: &str = "/status/lastPhaseTransitionTime";
const ATTRIBUTES_CLASS: &str = "/spec/volumeAttributesClassName";
const RECLAIM_POLICY: &str = "/spec/persistentVolumeReclaimPolicy";

const COLUMNS: &[Column] = &[
    NAME,
    Column::text("Capacity", "The size of the volume."),
    Column::text("Access Modes", "How the volume may be mounted."),
    Column::text("Reclaim Policy", "What happens to the data when the claim is gone."),
    Column::text("Status", "Whether the volume is free, bound or released."),
    Column::text("Claim", "The claim the volume belongs to."),
    Column::text("StorageClass", "The class of the volume."),
    Column::text("VolumeAttributesClass", "The attributes class of the volume."),
    Column::text("Reason", "Why the volume is in its status."),
    AGE,
    Column::text("VolumeMode", "Whether the volume holds a filesystem or is a raw block device.").wide(),
];

/// Sources whose code is gone, and the reference's words about each.
const DEAD_SOURCES: [(&str, &str); 6] = [
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
];

/// What some sources say when they say nothing.
const SOURCE_DEFAULTS: [(&str, &str, &str); 4] = [
    ("iscsi", "iscsiInterface", "default"),
    ("rbd", "pool", "rbd"),
    ("rbd", "user", "admin"),
    ("rbd", "keyring", "/etc/ceph/keyring"),
];

#[derive(Debug)]
pub(crate) struct VolumeRules;

impl Rules for VolumeRules {
    fn policy(&self) -> Policy {
        Policy::CLUSTER
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, volume: &Value, now: Timestamp) -> Vec<Value> {
        let claim = match present(volume, "/spec/claimRef") {
            Some(claim) => format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")),
            None => String::new(),
        };
        vec![
            name(volume).into(),
            amount(volume, "/spec/capacity/storage").into(),
            access_modes(volume, "/spec/accessModes").into(),
            text(volume, RECLAIM_POLICY).into(),
            phase(volume).into(),
            claim.into(),
            class(volume).into(),
            or_unset(volume, ATTRIBUTES_CLASS).into(),
            text(volume, "/status/reason").into(),
            cells::age(volume, now),
            or_unset(volume, "/spec/volumeMode").into(),
        ]
    }

    fn default(&self, volume: &mut Value) {
        cells::round_resources(volume, "/spec/capacity");
        set_default_text(volume, RECLAIM_POLICY, "Retain");
        set_default(volume, "/spec/volumeMode", "Filesystem");
        if present(volume, "/spec/hostPath").is_some() {
            set_default(volume, "/spec/hostPath/type", "");
        }
        for (source, field, value) in SOURCE_DEFAULTS {
            if present(volume, &format!("/spec/{source}")).is_some() {
                set_default_text(volume, &format!("/spec/{source}/{field}"), value);
            }
        }
        set_default_text(volume, "/status/phase", "Pending");
    }

    fn prepare_create(&self, volume: &mut Value, now: Timestamp) {
        set(volume, "/status", json!({"phase": "Pending", "lastPhaseTransitionTime": now.to_string()}));
    }

    fn prepare_update(&self, volume: &mut Value, old: &Value, _now: Timestamp) {
        restore(volume, old, "/status");
    }

    fn prepare_status_update(&self, volume: &mut Value, old: &Value, now: Timestamp) {
        restore(volume, old, "/spec");
        let moved = text(volume, "/status/phase") != text(old, "/status/phase");
        let new_time = present(volume, TRANSITION).is_some() && !unchanged(volume, old, TRANSITION);
        if moved && !new_time {
            set(volume, TRANSITION, now.to_string());
        } else if !moved && present(volume, TRANSITION).is_none() {
            restore(volume, old, TRANSITION);
        }
    }

    fn validate_create(&self, volume: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(volume, &self.policy());
        errors.extend(validate_spec(&volume["spec"], "spec", Use::Volume));
        errors.extend(validate_mount_options(volume));
        errors
    }

    fn validate_update(&self, volume: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate_create(volume);
        // The reference checks the whole volume a second time; causes show it.
        errors.extend(meta::validate_create(volume, &self.policy()));
        errors.extend(validate_spec(&volume["spec"], "spec", Use::Volume));
        errors.extend(validate_source_kept(volume, old));
        if !unchanged(volume, old, "/spec/volumeMode") {
            errors.push(FieldError::immutable("volumeMode", copy(volume, "/spec/volumeMode")));
        }
        errors.extend(validate_affinity_kept(volume, old));
        if present(old, ATTRIBUTES_CLASS).is_some() && present(volume, ATTRIBUTES_CLASS).is_none() {
            let detail = "update from non-nil value to nil is forbidden";
            errors.push(FieldError::forbidden("spec.volumeAttributesClassName", detail));
        }
        errors
    }

    fn warnings(&self, volume: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut warnings: Vec<String> = cells::beta_class_warning(volume).into_iter().collect();
        if annotation(volume, MOUNT_OPTIONS).is_some() {
            warnings.push(format!(
                "metadata.annotations[{MOUNT_OPTIONS}]: deprecated since v1.31; use \"mountOptions\" attribute instead"
            ));
        }
        if text(volume, RECLAIM_POLICY) == "Recycle" {
            warnings.push(
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
                 approach is to use dynamic provisioning."
                    .into(),
            );
        }
        warnings.extend(affinity_warnings(volume));
        for (source, words) in DEAD_SOURCES {
            if present(volume, &format!("/spec/{source}")).is_some() {
                warnings.push(format!("spec.{source}: {words}"));
            }
        }
        warnings
    }
}

/// Whether a spec describes a volume or stands inline in an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Volume,
    Inline,
}

pub(crate) fn validate_spec(spec: &Value, field: &str, used: Use) -> FieldErrors {
    let mut errors = match used {
        Use::Volume => FieldErrors::new(),
        Use::Inline => validate_inline_head(spec, field),
    };
    if list(spec, "/accessModes").is_empty() {
        errors.push(FieldError::required(format!("{field}.accessModes"), ""));
    }
    errors.extend(cells::validate_access_modes(spec, &format!("{field}.accessModes")));
    if used == Use::Volume {
        errors.extend(validate_capacity(spec, field));
    }
    errors.extend(validate_reclaim_policy(spec, field, used));
    let affinity = match present(spec, "/nodeAffinity") {
        Some(affinity) => {
            errors.extend(validate_affinity(affinity, field, used));
            Affinity::Given
        }
        None => Affinity::Absent,
    };
    errors.extend(volume_source::validate(spec, field, affinity));
    if text(spec, "/persistentVolumeReclaimPolicy") == "Recycle" && is_root(spec) {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(FieldError::forbidden(format!("{field}.persistentVolumeReclaimPolicy"), detail));
    }
    errors.extend(validate_classes_and_mode(spec, field, used));
    errors
}

fn validate_inline_head(spec: &Value, field: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let forbidden = "may not be specified in the context of inline volumes";
    if present(spec, "/claimRef").is_some() {
        errors.push(FieldError::forbidden(format!("{field}.claimRef"), forbidden));
    }
    if !entries(spec, "/capacity").is_empty() {
        errors.push(FieldError::forbidden(format!("{field}.capacity"), forbidden));
    }
    if present(spec, "/csi").is_none() {
        let detail = "has to be specified in the context of inline volumes";
        errors.push(FieldError::required(format!("{field}.csi"), detail));
    }
    errors
}

fn validate_capacity(spec: &Value, field: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let field = format!("{field}.capacity");
    let capacity = entries(spec, "/capacity");
    if capacity.is_empty() {
        errors.push(FieldError::required(&field, ""));
    }
    if capacity.len() != 1 || capacity[0].0 != "storage" {
        errors.push(FieldError::not_supported(&field, copy(spec, "/capacity"), &["storage"]));
    }
    for (resource, amount) in capacity {
        let field = format!("{field}[{resource}]");
        errors.extend(cells::validate_basic(amount, &field));
        errors.extend(cells::validate_positive(amount, &field));
    }
    errors
}

fn validate_reclaim_policy(spec: &Value, field: &str, used: Use) -> Option<FieldError> {
    let field = format!("{field}.persistentVolumeReclaimPolicy");
    match (used, text(spec, "/persistentVolumeReclaimPolicy")) {
        (_, "") | (Use::Inline, "Retain") => None,
        (Use::Inline, _) => Some(FieldError::forbidden(field, "may only be Retain in the context of inline volumes")),
        (Use::Volume, "Delete" | "Recycle" | "Retain") => None,
        (Use::Volume, other) => Some(FieldError::not_supported(field, other, &["Delete", "Recycle", "Retain"])),
    }
}

fn validate_affinity(affinity: &Value, field: &str, used: Use) -> FieldErrors {
    let field = format!("{field}.nodeAffinity");
    match (used, present(affinity, "/required")) {
        (Use::Inline, _) => {
            FieldError::forbidden(field, "may not be specified in the context of inline volumes").into()
        }
        (Use::Volume, Some(required)) => validate_node_selector(required, &format!("{field}.required")),
        (Use::Volume, None) => {
            FieldError::required(format!("{field}.required"), "must specify required node constraints").into()
        }
    }
}

/// Whether a hostPath means the root directory, however it is written.
fn is_root(spec: &Value) -> bool {
    let path = text(spec, "/hostPath/path");
    path.starts_with('/') && path.split('/').all(|element| ["", ".", ".."].contains(&element))
}

fn validate_classes_and_mode(spec: &Value, field: &str, used: Use) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let class = text(spec, "/storageClassName");
    match used {
        _ if class.is_empty() => {}
        Use::Inline => {
            let detail = "may not be specified in the context of inline volumes";
            errors.push(FieldError::forbidden(format!("{field}.storageClassName"), detail));
        }
        Use::Volume => {
            errors.extend(invalid_each(&format!("{field}.storageClassName"), class, names::subdomain(class)));
        }
    }
    let mode = format!("{field}.volumeMode");
    match used {
        Use::Volume => errors.extend(validate_choice(spec, "/volumeMode", &mode, &VOLUME_MODES)),
        Use::Inline if !["", "Filesystem"].contains(&text(spec, "/volumeMode")) => {
            let detail = "may not specify volumeMode other than Filesystem in the context of inline volumes";
            errors.push(FieldError::forbidden(mode, detail));
        }
        Use::Inline => {}
    }
    if let (Use::Volume, Some(class)) = (used, present(spec, "/volumeAttributesClassName")) {
        let field_class = format!("{field}.volumeAttributesClassName");
        match class.as_str().unwrap_or_default() {
            "" => errors.push(FieldError::required(field_class, "an empty string is disallowed")),
            class => errors.extend(invalid_each(&field_class, class, names::subdomain(class))),
        }
        if present(spec, "/csi").is_none() {
            let detail = "has to be specified when using volumeAttributesClassName";
            errors.push(FieldError::required(format!("{field}.csi"), detail));
        }
    }
    errors
}

fn validate_mount_options(volume: &Value) -> Option<FieldError> {
    annotation(volume, MOUNT_OPTIONS)?;
    let supported =
        |source: &str| !["hostPath", "local", "csi", "fc", "flexVolume", "scaleIO", "portworxVolume"].contains(&source);
    if volume_source::given(&volume["spec"]).any(|(source, _)| supported(source)) {
        return None;
    }
    let detail = "may not specify mount options for this volume type";
    Some(FieldError::forbidden(format!("metadata.annotations.{MOUNT_OPTIONS}"), detail))
}

/// The source is fixed; only a missing secret for expansion may be added.
fn validate_source_kept(volume: &Value, old: &Value) -> Option<FieldError> {
    let mut source = volume_source::only_sources(&volume["spec"]);
    let before = volume_source::only_sources(&old["spec"]);
    if present(&before, "/csi").is_some() && present(&before, "/csi/controllerExpandSecretRef").is_none() {
        remove(&mut source, "/csi/controllerExpandSecretRef");
    }
    if same(Some(&source), Some(&before)) {
        return None;
    }
    let detail = format!(
        "spec.persistentvolumesource is immutable after creation\n{}",
        golang::diff(&before, &source, golang::VOLUME_SOURCE)
    );
    Some(FieldError::forbidden("spec.persistentvolumesource", detail))
}

/// Node affinity may be set once, then only its beta labels may get their lasting names.
fn validate_affinity_kept(volume: &Value, old: &Value) -> Option<FieldError> {
    let before = present(old, "/spec/nodeAffinity")?;
    let affinity = volume.pointer("/spec/nodeAffinity");
    let mut renamed = before.clone();
    if let Some(affinity) = affinity {
        rename_labels(&mut renamed, affinity);
    }
    if same(affinity, Some(&renamed)) {
        return None;
    }
    let shown = match affinity {
        Some(affinity) if !affinity.is_null() => golang::compact(affinity, golang::NODE_AFFINITY),
        _ => "null".into(),
    };
    let detail = "field is immutable, except for updating from beta label to GA";
    Some(FieldError::invalid_shown("nodeAffinity", shown, detail))
}

/// Gives the labels of `old` their lasting names where `new` has them at the same place.
fn rename_labels(old: &mut Value, new: &Value) {
    let terms = "/required/nodeSelectorTerms";
    for (term, new_term) in items_mut(old, terms).zip(list(new, terms)) {
        let expressions = items_mut(term, "/matchExpressions").zip(list(new_term, "/matchExpressions"));
        for (expression, new_expression) in expressions {
            if lasting_label(text(expression, "/key")) == Some(text(new_expression, "/key")) {
                set(expression, "/key", text(new_expression, "/key"));
            }
        }
    }
}

fn affinity_warnings(volume: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let pointer = "/spec/nodeAffinity/required/nodeSelectorTerms";
    for (index, term) in list(volume, pointer).iter().enumerate() {
        for (place, expression) in list(term, "/matchExpressions").iter().enumerate() {
            let field = format!("spec.nodeAffinity.required.nodeSelectorTerms[{index}].matchExpressions[{place}].key");
            warnings.extend(beta_label_warning(text(expression, "/key"), &field));
        }
    }
    warnings
}
