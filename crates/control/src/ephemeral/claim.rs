//! The claim that is made for a pod's volume: the template, and the pod as its owner (PROTECT-EV4).

use api::{Pod, PodSource, PodVolume};
use serde_json::{Value, json};

/// The claim for a volume of a pod; none if the volume brings no template.
pub(super) fn body(pod: &Pod, volume: &PodVolume) -> Option<Value> {
    let PodSource::Ephemeral { template } = &volume.source else { return None };
    let mut metadata = json!({
        "name": pod.ephemeral_claim(volume),
        "namespace": pod.namespace(),
        "ownerReferences": [{
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.name(),
            "uid": pod.meta.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    });
    for field in ["labels", "annotations"] {
        if let Some(pairs) = template.pointer(&format!("/metadata/{field}")) {
            metadata[field] = pairs.clone();
        }
    }
    let spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
    Some(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: PROTECT-EV4
    #[test]
    fn labels_annotations_and_spec_come_from_the_template_and_the_pod_owns_it() {
        let template = json!({
            "metadata": {"name": "ignored", "labels": {"a": "1"}, "annotations": {"b": "2"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]},
        }))
        .unwrap();
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true, "blockOwnerDeletion": true});
        let expected = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "p-v", "namespace": "n", "labels": {"a": "1"}, "annotations": {"b": "2"}, "ownerReferences": [owner]},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        assert_eq!(body(&pod, &pod.volumes[0]), Some(expected));
    }
}
