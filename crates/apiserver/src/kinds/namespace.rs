//! Namespace: it outlives its deletion until its content is gone, so it has finalizers of its own in its spec.

use super::cells::{self, AGE, Column, NAME};
use super::labels::invalid_each;
use super::read::{deleting, insert, list, name, restore, set, set_default_text, text, texts};
use super::time::Timestamp;
use super::{NameRule, Policy, Rules, meta, names};
use crate::status::{FieldError, FieldErrors};
use serde_json::{Value, json};

const COLUMNS: &[Column] = &[NAME, Column::text("Status", "Whether the namespace is in use or being emptied."), AGE];

/// Lets a selector find a namespace by name.
const NAME_LABEL: &str = crate::keys::NAMESPACE_NAME;

#[derive(Debug)]
pub(crate) struct NamespaceRules;

impl Rules for NamespaceRules {
    fn policy(&self) -> Policy {
        Policy { names: NameRule::Label, ..Policy::CLUSTER }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, namespace: &Value, now: Timestamp) -> Vec<Value> {
        vec![name(namespace).into(), text(namespace, "/status/phase").into(), cells::age(namespace, now)]
    }

    fn default(&self, namespace: &mut Value) {
        force_name_label(namespace);
        set_default_text(namespace, "/status/phase", "Active");
    }

    fn prepare_create(&self, namespace: &mut Value, _now: Timestamp) {
        // A generated name came after the defaults.
        force_name_label(namespace);
        set(namespace, "/status", json!({"phase": "Active"}));
        if !texts(namespace, "/spec/finalizers").contains(&"kubernetes") {
            let mut finalizers = list(namespace, "/spec/finalizers").to_vec();
            finalizers.push("kubernetes".into());
            set(namespace, "/spec/finalizers", finalizers);
        }
    }

    fn prepare_update(&self, namespace: &mut Value, old: &Value, _now: Timestamp) {
        restore(namespace, old, "/spec/finalizers");
        restore(namespace, old, "/status");
        force_name_label(namespace);
    }

    fn prepare_status_update(&self, namespace: &mut Value, old: &Value, _now: Timestamp) {
        restore(namespace, old, "/spec");
        force_name_label(namespace);
    }

    fn validate_create(&self, namespace: &Value) -> FieldErrors {
        let mut errors = meta::validate_create(namespace, &self.policy());
        for finalizer in texts(namespace, "/spec/finalizers") {
            errors.extend(invalid_each("spec.finalizers", finalizer, names::qualified(finalizer)));
        }
        errors
    }

    fn validate_update(&self, namespace: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate_create(namespace);
        errors.extend(meta::validate_core_update(namespace, old));
        errors
    }

    fn validate_status_update(&self, namespace: &Value, old: &Value) -> FieldErrors {
        let mut errors = meta::validate_core_update(namespace, old);
        let (wanted, state) = if deleting(namespace) { ("Terminating", "not empty") } else { ("Active", "empty") };
        let phase = text(namespace, "/status/phase");
        if phase != wanted {
            let detail = format!("may only be '{wanted}' if `deletionTimestamp` is {state}");
            errors.push(FieldError::invalid("status.Phase", phase, detail));
        }
        errors
    }
}

fn force_name_label(namespace: &mut Value) {
    let name = name(namespace).to_string();
    if !name.is_empty() {
        insert(namespace, "/metadata/labels", NAME_LABEL, name);
    }
}

/// The namespace after a write to its finalize endpoint: only the finalizers of the spec are taken from the request.
pub fn finalized(requested: &Value, old: &Value) -> Value {
    let mut namespace = old.clone();
    restore(&mut namespace, requested, "/spec/finalizers");
    namespace
}
