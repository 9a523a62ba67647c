//! VolumeAttachment: one volume on one node. The wish never changes; only its status does.

use super::cells::{self, AGE, Column, NAME};
use super::labels::{invalid_each, total_size};
use super::persistent_volume::{Use, validate_spec};
use super::read::{flag, name, number, optional_text, present, restore, set, set_default, text, unchanged};
use super::time::Timestamp;
use super::volume_source::validate_driver_name;
use super::{Policy, Rules, Versionless, golang, meta, names};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};

const COLUMNS: &[Column] = &[
    NAME,
    Column::text("Attacher", "The driver that attaches the volume."),
    Column::text("PV", "The volume."),
    Column::text("Node", "The node."),
    Column::of("Attached", "boolean", "Whether the volume is attached."),
    AGE,
];

const METADATA_BYTES: usize = 256 * 1024;
const MESSAGE_BYTES: usize = 1024;
const VOLUME_NAME: &str = "/spec/source/persistentVolumeName";

/// What a status update cannot touch besides the spec.
const KEPT: [&str; 5] = ["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp"];

#[derive(Debug)]
pub(crate) struct AttachmentRules;

impl Rules for AttachmentRules {
    fn policy(&self) -> Policy {
        Policy { versionless: Versionless::Refused, ..Policy::CLUSTER }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, attachment: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            name(attachment).into(),
            text(attachment, "/spec/attacher").into(),
            text(attachment, VOLUME_NAME).into(),
            text(attachment, "/spec/nodeName").into(),
            flag(attachment, "/status/attached").into(),
            cells::age(attachment, now),
        ]
    }

    fn default(&self, attachment: &mut Value) {
        set_default(attachment, "/status/attached", false);
    }

    fn prepare_create(&self, attachment: &mut Value, _now: Timestamp) {
        set(attachment, "/status", json!({"attached": false}));
    }

    fn prepare_update(&self, attachment: &mut Value, old: &Value, _now: Timestamp) {
        restore(attachment, old, "/status");
    }

    fn prepare_status_update(&self, attachment: &mut Value, old: &Value, _now: Timestamp) {
        restore(attachment, old, "/spec");
        for field in KEPT {
            restore(attachment, old, &format!("/metadata/{field}"));
        }
    }

    fn validate_create(&self, attachment: &Value) -> FieldErrors {
        let mut errors = self.validate_any(attachment);
        errors.extend(validate_volume_name(attachment));
        errors
    }

    fn validate_update(&self, attachment: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate_any(attachment);
        errors.extend(validate_volume_name(attachment));
        if !unchanged(attachment, old, "/spec") {
            let shown = golang::compact(&attachment["spec"], golang::ATTACHMENT_SPEC);
            errors.push(FieldError::invalid_shown("spec", shown, "field is immutable"));
        }
        errors
    }

    fn validate_status_update(&self, attachment: &Value, old: &Value) -> FieldErrors {
        self.validate_update(attachment, old)
    }
}

impl AttachmentRules {
    fn validate_any(&self, attachment: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(attachment, &self.policy());
        errors.extend(validate_driver_name(text(attachment, "/spec/attacher"), "spec.attacher"));
        errors.extend(validate_source(attachment));
        let node = text(attachment, "/spec/nodeName");
        errors.extend(invalid_each("spec.nodeName", node, names::subdomain(node)));
        if total_size(attachment, "/status/attachmentMetadata") > METADATA_BYTES {
            errors.push(FieldError::too_long("status.attachmentMetadata", METADATA_BYTES));
        }
        for field in ["attachError", "detachError"] {
            errors.extend(validate_error(&attachment["status"][field], &format!("status.{field}")));
        }
        errors
    }
}

fn validate_volume_name(attachment: &Value) -> FieldErrors {
    let volume = optional_text(attachment, VOLUME_NAME);
    let complaints =
        volume.map(|volume| invalid_each("spec.source.persistentVolumeName", volume, names::subdomain(volume)));
    complaints.into_iter().flatten().collect()
}

fn validate_source(attachment: &Value) -> FieldErrors {
    let both = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let inline = present(attachment, "/spec/source/inlineVolumeSpec");
    match (inline, optional_text(attachment, VOLUME_NAME)) {
        (None, None) => FieldError::required("spec.source", both).into(),
        (Some(_), Some(_)) => FieldError::forbidden("spec.source", both).into(),
        (None, Some("")) => {
            let detail = "must specify non empty persistentVolumeName";
            FieldError::required("spec.source.persistentVolumeName", detail).into()
        }
        (None, Some(_)) => FieldErrors::new(),
        (Some(spec), None) => validate_spec(spec, "spec.source.inlineVolumeSpec", Use::Inline),
    }
}

fn validate_error(error: &Value, field: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if text(error, "/message").len() > MESSAGE_BYTES {
        // The reference names the other limit (API-0.18).
        errors.push(FieldError::too_long(format!("{field}.message"), METADATA_BYTES));
    }
    if let Some(code) = number(error, "/errorCode").filter(|code| *code < 0) {
        let detail = format!("must be between 0 and {}, inclusive", i32::MAX);
        errors.push(FieldError::invalid(format!("{field}.errorCode"), code, detail));
    }
    errors
}
