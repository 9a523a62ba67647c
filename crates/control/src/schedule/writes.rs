//! What the scheduler writes, each with what it expects to find.

use api::keys::annotation;
use api::{Key, Kind, Pod, Revision, Uid};
use runtime::Patch;
use serde_json::{Value, json};

/// The claim is meant for a node, or for none any more.
pub(super) fn selected_node(uid: &Uid, revision: Revision, node: Option<&str>) -> Patch {
    let mut annotations = json!({annotation::SELECTED_NODE.0: node});
    if node.is_none() {
        // The older key would go on to count.
        annotations[annotation::ALPHA_SELECTED_NODE.0] = Value::Null;
    }
    let revision = revision.to_string();
    let metadata = json!({"uid": uid.as_str(), "resourceVersion": revision, "annotations": annotations});
    Patch::Merge(json!({"metadata": metadata}))
}

/// The pod goes to a node: only this very pod, should another have taken its name.
pub(super) fn binding(pod: &Key, uid: &Uid, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": pod.namespace(), "name": pod.name(), "uid": uid.as_str()},
        "target": {"apiVersion": "v1", "kind": Kind::NODE.kind, "name": node},
    })
}

/// The condition PodScheduled says why the pod has no node. Other conditions stay as they are.
pub(super) fn unscheduled(pod: &Pod, reason: &str, message: &str, now: &str) -> Patch {
    let meta = &pod.meta;
    let condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": message,
        "lastProbeTime": null,
        "lastTransitionTime": now,
    });
    Patch::Strategic(json!({
        "metadata": {"uid": meta.uid.as_str(), "resourceVersion": meta.revision.to_string()},
        "status": {"conditions": [condition]},
    }))
}
