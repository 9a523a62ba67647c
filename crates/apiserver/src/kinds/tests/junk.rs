//! No object, however broken, makes a rule panic: decoding keeps most of these out, but the rules do not rely on it.

use super::*;
use crate::kinds::{Birth, Rules, Update, before_create, before_update};
use crate::status::Resource;
use serde_json::{Value, json};

/// One object per storage kind with most of its fields.
fn storage_samples() -> Vec<(&'static str, &'static str, Value)> {
    let expression = json!({"key": "a", "operator": "In", "values": ["b"]});
    vec![
        (
            "",
            "PersistentVolumeClaim",
            json!({"spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Block",
            "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [expression]},
            "dataSourceRef": {"apiGroup": "a", "kind": "K", "name": "n"},
        }, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "allocatedResourceStatuses": {"storage": "x"}}}),
        ),
        (
            "",
            "PersistentVolume",
            json!({"spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "claimRef": {"name": "c"},
                "csi": {"driver": "d", "volumeHandle": "h", "nodePublishSecretRef": {"name": "a", "namespace": "b"}},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression], "matchFields": [expression]}]}},
            }}),
        ),
        (
            "storage.k8s.io",
            "StorageClass",
            json!({"provisioner": "d", "parameters": {"a": "b"}, "allowedTopologies": [{"matchLabelExpressions": [expression]}]}),
        ),
        (
            "storage.k8s.io",
            "VolumeAttachment",
            json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"inlineVolumeSpec": {"csi": {}}}}, "status": {"attachError": {"message": "m"}}}),
        ),
        (
            "storage.k8s.io",
            "CSIDriver",
            json!({"spec": {"tokenRequests": [{"audience": "a", "expirationSeconds": 1}], "volumeLifecycleModes": ["Persistent"]}}),
        ),
        (
            "storage.k8s.io",
            "CSINode",
            json!({"spec": {"drivers": [{"name": "a", "nodeID": "i", "topologyKeys": ["k"], "allocatable": {"count": 1}}]}}),
        ),
        (
            "storage.k8s.io",
            "CSIStorageCapacity",
            json!({"storageClassName": "a", "capacity": "1", "nodeTopology": {"matchLabels": {"a": "b"}}}),
        ),
        ("storage.k8s.io", "VolumeAttributesClass", json!({"driverName": "a", "parameters": {"a": "b"}})),
    ]
}

/// As [`storage_samples`], for the other kinds.
fn other_samples() -> Vec<(&'static str, &'static str, Value)> {
    let pod = json!({"containers": [{
        "name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}, "ports": [{"containerPort": 1}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}], "env": [{"name": "e", "valueFrom": {"fieldRef": {}}}],
        "livenessProbe": {},
    }], "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {}}}}]});
    let statuses = json!([{"name": "c", "state": {"terminated": {"exitCode": 1}}, "lastState": {"terminated": {"finishedAt": "x"}}}]);
    vec![
        ("", "Namespace", json!({"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})),
        (
            "",
            "Node",
            json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}, "status": {"capacity": {"cpu": "1"}, "conditions": [{"type": "Ready"}], "addresses": [{"type": "InternalIP"}]}}),
        ),
        (
            "",
            "Pod",
            json!({"spec": pod, "status": {"phase": "Running", "conditions": [{"type": "Ready"}], "containerStatuses": statuses, "podIPs": [{"ip": "1"}]}}),
        ),
        (
            "",
            "Secret",
            json!({"type": "kubernetes.io/dockercfg", "data": {".dockercfg": "e30="}, "stringData": {"a": "b"}, "immutable": true}),
        ),
        ("", "ConfigMap", json!({"data": {"a": "b"}, "binaryData": {"c": "Yg=="}, "immutable": true})),
        ("", "ServiceAccount", json!({"secrets": [{"name": "a"}]})),
        (
            "",
            "Event",
            json!({"involvedObject": {"kind": "K", "name": "n"}, "series": {"count": 2}, "eventTime": "x", "source": {"component": "c"}}),
        ),
        (
            "events.k8s.io",
            "Event",
            json!({"regarding": {"kind": "K", "name": "n"}, "series": {"count": 2}, "eventTime": "x", "type": "Normal"}),
        ),
        (
            "",
            "ResourceQuota",
            json!({"spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}, "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}),
        ),
        ("", "LimitRange", json!({"spec": {"limits": [{"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "1"}}]}})),
        ("coordination.k8s.io", "Lease", json!({"spec": {"leaseDurationSeconds": 1, "leaseTransitions": 1}})),
        ("rbac.authorization.k8s.io", "Role", json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/"]}]})),
        (
            "rbac.authorization.k8s.io",
            "RoleBinding",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]}),
        ),
    ]
}

/// Every place in `value`, as a JSON pointer.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_string());
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), found)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| places(value, &format!("{at}/{index}"), found));
        }
        _ => {}
    }
}

fn exercise(rules: &dyn Rules, object: &Value, other: &Value) {
    let kind = Resource::new("", "Kind");
    let mut defaulted = object.clone();
    rules.default(&mut defaulted);
    // Whether it is refused does not matter here.
    let _ = before_create(rules, kind, &mut defaulted.clone(), Birth { now: NOW, uid: "u" });
    for (new, old) in [(&defaulted, other), (other, &defaulted)] {
        for endpoint in [Endpoint::Main, Endpoint::Status] {
            let _ = before_update(rules, kind, &mut new.clone(), Update { old, endpoint, now: NOW });
        }
    }
    rules.warnings(&defaulted, Some(other));
    rules.row_conditions(&defaulted);
    assert_eq!(rules.row(&defaulted, NOW).len(), rules.columns().len());
}

#[test]
fn broken_objects_are_refused_or_shown_but_never_fatal() {
    let junk = [json!(null), json!(-5), json!("x"), json!([null, 1, {}]), json!({"a": {"b": 1}})];
    for (group, kind, sample) in storage_samples().into_iter().chain(other_samples()) {
        let rules = rules_for(group, kind).expect("built in");
        let mut sample = sample;
        let metadata = json!({"name": "x", "namespace": "n", "labels": {"a": "b"}, "finalizers": ["x.io/y"], "resourceVersion": "1",
            "ownerReferences": [{"uid": "u"}], "annotations": {"a": "b"}, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"});
        merge(&mut sample, json!({ "metadata": metadata }));
        let mut pointers = Vec::new();
        places(&sample, "", &mut pointers);
        for pointer in pointers.iter().skip(1) {
            for value in &junk {
                let mut broken = sample.clone();
                if let Some(place) = broken.pointer_mut(pointer) {
                    *place = value.clone();
                }
                exercise(rules, &broken, &sample);
            }
        }
    }
}
