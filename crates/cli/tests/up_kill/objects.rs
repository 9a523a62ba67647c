//! Objects as these tests write them, and how they are told.

use serde_json::{Value, json};

pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(super) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub(super) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(super) const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

/// A claim of the default class.
pub(super) fn claim(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}})
}

/// A pod that asks for no machine: the stack has one.
pub(super) fn pod(name: &str, claim: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "automountServiceAccountToken": false,
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        "containers": [{"name": "main", "image": "example/main",
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}})
}

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("it has a name")
}

pub(super) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().expect("it has a uid")
}

pub(super) fn is_going(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The volume of a claim that is bound.
pub(super) fn volume_of(claim: &Value) -> Option<&str> {
    if claim["status"]["phase"] == "Bound" { claim["spec"]["volumeName"].as_str() } else { None }
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = |one: &Value| one["type"] == api::keys::condition::VOLUMES_READY && one["status"] == "True";
    conditions.is_some_and(|conditions| conditions.iter().any(ready))
}
