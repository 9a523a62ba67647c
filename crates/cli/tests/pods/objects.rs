//! Objects as these tests write them.

use serde_json::{Value, json};

use super::cluster::Node;

pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(super) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub(super) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(super) const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

pub(super) fn class(node: &Node) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": node.name},
        "provisioner": node.driver_name(), "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})
}

pub(super) fn claim(name: &str, node: &Node) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": node.name,
                 "resources": {"requests": {"storage": "64Mi"}}}})
}

/// A pod on a node with one volume of this source.
pub(super) fn pod(name: &str, node: &Node, source: &Value) -> Value {
    let mut volume = source.clone();
    volume["name"] = json!("data");
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": node.name,
        "automountServiceAccountToken": false,
        "volumes": [volume],
        "containers": [{"name": "main", "image": "example/main",
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}})
}

pub(super) fn of_claim(claim: &str) -> Value {
    json!({"persistentVolumeClaim": {"claimName": claim}})
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = |one: &Value| one["type"] == api::keys::condition::VOLUMES_READY && one["status"] == "True";
    conditions.is_some_and(|conditions| conditions.iter().any(ready))
}
