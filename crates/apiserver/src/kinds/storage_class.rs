//! StorageClass: how volumes are made. What a provisioner already acted on cannot change afterwards.

use super::cells::{self, AGE, Column, NAME, beta_label_warning};
use super::labels::{Topology, invalid_each, total_size, validate_choice, validate_topology};
use super::read::{annotation, copy, entries, flag, list, name, present, set_default, text, unchanged};
use super::time::Timestamp;
use super::{Policy, Rules, meta, names};
use crate::status::{FieldError, FieldErrors};
use serde_json::Value;
use std::collections::BTreeMap;

const COLUMNS: &[Column] = &[
    NAME,
    Column::text("Provisioner", "Who makes volumes of this class."),
    Column::text("ReclaimPolicy", "What happens to the data when a claim is gone."),
    Column::text("VolumeBindingMode", "When a claim gets its volume."),
    Column::text("AllowVolumeExpansion", "Whether claims of this class may grow."),
    AGE,
];

/// The annotations that make a class the default, new and old.
const DEFAULT_MARKS: [&str; 2] = [crate::keys::DEFAULT_CLASS, crate::keys::BETA_DEFAULT_CLASS];

const IMMUTABLE: [&str; 4] = ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"];
const MOST_PARAMETERS: usize = 512;
const PARAMETER_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct StorageClassRules;

/// Whether claims without a class get this one.
pub(crate) fn is_default(class: &Value) -> bool {
    DEFAULT_MARKS.iter().any(|mark| annotation(class, mark) == Some("true"))
}

impl Rules for StorageClassRules {
    fn policy(&self) -> Policy {
        Policy::CLUSTER
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, class: &Value, now: Timestamp) -> Vec<Value> {
        let mark = if is_default(class) { " (default)" } else { "" };
        vec![
            format!("{}{mark}", name(class)).into(),
            text(class, "/provisioner").into(),
            text(class, "/reclaimPolicy").into(),
            text(class, "/volumeBindingMode").into(),
            flag(class, "/allowVolumeExpansion").into(),
            cells::age(class, now),
        ]
    }

    fn default(&self, class: &mut Value) {
        set_default(class, "/reclaimPolicy", "Delete");
        set_default(class, "/volumeBindingMode", "Immediate");
    }

    fn validate_create(&self, class: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(class, &self.policy());
        errors.extend(validate_provisioner(text(class, "/provisioner"), "provisioner"));
        errors.extend(validate_parameters(class, Parameters::Optional));
        errors.extend(validate_choice(class, "/reclaimPolicy", "reclaimPolicy", &["Delete", "Retain"]));
        let modes = ["Immediate", "WaitForFirstConsumer"];
        errors.extend(validate_choice(class, "/volumeBindingMode", "volumeBindingMode", &modes));
        errors.extend(validate_topologies(class));
        errors
    }

    fn validate_update(&self, class: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate_create(class);
        errors.extend(meta::validate_core_update(class, old));
        for field in IMMUTABLE {
            let pointer = format!("/{field}");
            if !unchanged(class, old, &pointer) {
                errors.push(FieldError::immutable(field, copy(class, &pointer)));
            }
        }
        errors
    }

    fn warnings(&self, class: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        for (index, term) in list(class, "/allowedTopologies").iter().enumerate() {
            for (place, expression) in list(term, "/matchLabelExpressions").iter().enumerate() {
                let field = format!("allowedTopologies[{index}].matchLabelExpressions[{place}].key");
                let key = text(expression, "/key");
                // The reference leaves the label's name out here.
                let warning = beta_label_warning(key, &field);
                warnings.extend(warning.map(|warning| warning.replacen(&format!("{key} is "), "", 1)));
            }
        }
        warnings
    }
}

/// A driver as classes name it: a qualified name, whatever its case.
pub(crate) fn validate_provisioner(provisioner: &str, field: &str) -> FieldErrors {
    if provisioner.is_empty() {
        return FieldError::required(field, "").into();
    }
    let lower = provisioner.to_lowercase();
    invalid_each(field, &lower, names::qualified(&lower))
}

/// Whether a class needs parameters at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parameters {
    Optional,
    Required,
}

pub(crate) fn validate_parameters(class: &Value, needed: Parameters) -> FieldErrors {
    let parameters = entries(class, "/parameters");
    if parameters.len() > MOST_PARAMETERS {
        return FieldError::too_long("parameters", MOST_PARAMETERS).into();
    }
    let mut errors = FieldErrors::new();
    if parameters.iter().any(|(key, _)| key.is_empty()) {
        errors.push(FieldError::invalid("parameters", "", "field can not be empty."));
    }
    if total_size(class, "/parameters") > PARAMETER_BYTES {
        errors.push(FieldError::too_long("parameters", PARAMETER_BYTES));
    }
    if needed == Parameters::Required && parameters.is_empty() {
        errors.push(FieldError::required("parameters", "must contain at least one key/value pair"));
    }
    errors
}

fn validate_topologies(class: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let Some(terms) = present(class, "/allowedTopologies").and_then(Value::as_array) else { return errors };
    // The reference starts with one empty entry per term, so an empty term always looks like a repetition (API-0.18).
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    seen.insert(Value::Object(Topology::new()).to_string(), terms.len());
    for (index, term) in terms.iter().enumerate() {
        let field = format!("allowedTopologies[{index}]");
        let (topology, complaints) = validate_topology(term, &field);
        errors.extend(complaints);
        let before = seen.entry(Value::Object(topology).to_string()).or_default();
        errors.push_times(&FieldError::duplicate(format!("{field}.matchLabelExpressions"), ""), *before);
        *before += 1;
    }
    errors
}
