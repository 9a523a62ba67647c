//! ResourceQuota: how much a namespace may use. Its usage is counted by a controller and charged by admission.

use super::cells::{self, AGE, Column, NAME, as_quantity};
use super::labels::invalid_each;
use super::read::{copy, entries, name, restore, set, texts, unchanged};
use super::time::Timestamp;
use super::{Policy, Rules, meta, names};
use crate::schema::quantity::Quantity;
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};

const COLUMNS: &[Column] = &[
    NAME,
    Column::text("Request", "Used and allowed requests."),
    Column::text("Limit", "Used and allowed limits."),
    AGE,
];

/// Resources without a prefix that can be limited.
/// Resources that are numbers of objects.
const COUNTED: [&str; 10] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
    "count/persistentvolumeclaims",
];
const STANDARD: [&str; 19] = [
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

#[derive(Debug)]
pub(crate) struct QuotaRules;

impl Rules for QuotaRules {
    fn policy(&self) -> Policy {
        Policy::NAMESPACED
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, quota: &Value, now: Timestamp) -> Vec<Value> {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        for (resource, hard) in entries(quota, "/status/hard") {
            let shown = |value: Option<Quantity>| value.unwrap_or_else(Quantity::zero).to_string();
            let used = quota.pointer("/status/used").and_then(|used| used.get(resource)).and_then(as_quantity);
            let cell = format!("{resource}: {}/{}", shown(used), shown(as_quantity(hard)));
            if resource.starts_with("limits.") { limits.push(cell) } else { requests.push(cell) }
        }
        vec![name(quota).into(), requests.join(", ").into(), limits.join(", ").into(), cells::age(quota, now)]
    }

    fn default(&self, quota: &mut Value) {
        for resources in ["/spec/hard", "/status/hard", "/status/used"] {
            cells::round_resources(quota, resources);
        }
    }

    fn prepare_create(&self, quota: &mut Value, _now: Timestamp) {
        set(quota, "/status", json!({}));
    }

    fn prepare_update(&self, quota: &mut Value, old: &Value, _now: Timestamp) {
        restore(quota, old, "/status");
    }

    fn validate_create(&self, quota: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(quota, &self.policy());
        errors.extend(validate_amounts(quota, "/spec/hard", "spec.hard"));
        errors.extend(validate_scopes(quota));
        errors
    }

    fn validate_update(&self, quota: &Value, old: &Value) -> FieldErrors {
        let mut errors = meta::validate_core_update(quota, old);
        errors.extend(validate_amounts(quota, "/spec/hard", "spec.hard"));
        errors.extend(validate_scopes(quota));
        if !unchanged(quota, old, "/spec/scopes") {
            errors.push(FieldError::immutable("spec.scopes", copy(quota, "/spec/scopes")));
        }
        errors
    }

    fn validate_status_update(&self, quota: &Value, old: &Value) -> FieldErrors {
        let mut errors = meta::validate_core_update(quota, old);
        errors.extend(validate_amounts(quota, "/status/hard", "status.hard"));
        errors.extend(validate_amounts(quota, "/status/used", "status.used"));
        errors
    }
}

fn validate_amounts(quota: &Value, pointer: &str, field: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for (resource, amount) in entries(quota, pointer) {
        let field = format!("{field}[{resource}]");
        errors.extend(invalid_each(&field, resource, names::qualified(resource)));
        if !resource.contains('/') && !STANDARD.contains(&resource) && !resource.contains("hugepages-") {
            errors.push(FieldError::invalid(&field, resource, "must be a standard resource for quota"));
        }
        errors.extend(cells::validate_not_negative(amount, &field));
        let whole = as_quantity(amount).is_none_or(|amount| amount.clone().round_up(0) == amount);
        if COUNTED.contains(&resource) && !whole {
            errors.push(FieldError::invalid(&field, amount.clone(), "must be an integer"));
        }
    }
    errors
}

fn validate_scopes(quota: &Value) -> FieldErrors {
    const SCOPES: [&str; 7] = [
        "BestEffort",
        "CrossNamespacePodAffinity",
        "NotBestEffort",
        "NotTerminating",
        "PriorityClass",
        "Terminating",
        "VolumeAttributesClass",
    ];
    let unknown = texts(quota, "/spec/scopes").into_iter().filter(|scope| !SCOPES.contains(scope)).count();
    let mut errors = FieldErrors::new();
    if unknown > 0 {
        // Each unknown scope is reported with the whole list, which is written once.
        let error = FieldError::invalid("spec.scopes", copy(quota, "/spec/scopes"), "unsupported scope");
        errors.push_times(&error, unknown);
    }
    errors
}
