//! BIND-4.3 to BIND-4.8 on objects as the wire has them.

mod claims;
mod joining;
mod shelves;

use std::sync::Arc;

use api::keys::{Annotation, annotation};
use api::{Claim, Class, Object, Volume};
use serde_json::{Value, json};

use super::shelf::Shelf;

pub(crate) fn read<T: Object>(value: Value) -> T {
    serde_json::from_value(value).expect("the object is well formed")
}

/// Puts `patch` over `base`, member by member.
pub(crate) fn over(mut base: Value, patch: Value) -> Value {
    match (&mut base, patch) {
        (Value::Object(base), Value::Object(patch)) => {
            for (key, value) in patch {
                let under = base.remove(&key).unwrap_or(Value::Null);
                base.insert(key, over(under, value));
            }
        }
        (base, patch) => *base = patch,
    }
    base
}

/// A claim for 2Gi of class `fast`.
pub(crate) fn claim(patch: Value) -> Claim {
    let base = json!({
        "metadata": {"name": "c", "namespace": "n", "uid": "claim-uid", "resourceVersion": "5"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                 "resources": {"requests": {"storage": "2Gi"}}},
        "status": {"phase": "Pending"},
    });
    read(over(base, patch))
}

/// A free volume of 2Gi of class `fast`.
pub(crate) fn volume(name: &str, patch: Value) -> Volume {
    let base = json!({
        "metadata": {"name": name, "uid": format!("{name}-uid"), "resourceVersion": "7"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "capacity": {"storage": "2Gi"},
                 "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": "d", "volumeHandle": name}},
        "status": {"phase": "Available"},
    });
    read(over(base, patch))
}

pub(crate) fn class(name: &str, patch: Value) -> Class {
    let base = json!({"metadata": {"name": name}, "provisioner": "d.example.com", "volumeBindingMode": "Immediate"});
    read(over(base, patch))
}

/// What a `claimRef` to the claim of [`claim`] looks like, with its uid.
pub(crate) fn bond() -> Value {
    json!({"spec": {"claimRef": {"namespace": "n", "name": "c", "uid": "claim-uid"}}})
}

/// The same as a user writes it.
pub(crate) fn reservation() -> Value {
    json!({"spec": {"claimRef": {"namespace": "n", "name": "c"}}})
}

pub(crate) fn annotated(keys: &[Annotation]) -> Value {
    let pairs: serde_json::Map<String, Value> = keys.iter().map(|key| (key.text().to_owned(), json!("yes"))).collect();
    json!({"metadata": {"annotations": pairs}})
}

pub(crate) const COMPLETED: Annotation = annotation::BIND_COMPLETED;
pub(crate) const BY_CONTROLLER: Annotation = annotation::BOUND_BY_CONTROLLER;

pub(crate) fn shelf(volumes: impl IntoIterator<Item = Volume>) -> Shelf {
    let mut shelf = Shelf::default();
    for volume in volumes {
        shelf.put(Arc::new(volume));
    }
    shelf
}
