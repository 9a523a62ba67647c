//! PersistentVolume: API-C111 to API-C125.

use super::*;
use serde_json::{Value, json};

fn affinity(value: &str) -> Value {
    let expression = json!({"key": "a", "operator": "In", "values": [value]});
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}})
}

/// Rule: API-C111
#[test]
fn a_new_volume_is_retained_and_pending_since_now() {
    let (created, _) = create("PersistentVolume", volume(json!({}))).expect("API-C111");
    assert_eq!(created["spec"]["persistentVolumeReclaimPolicy"], "Retain");
    assert_eq!(created["spec"]["volumeMode"], "Filesystem");
    assert_eq!(created["status"], json!({"phase": "Pending", "lastPhaseTransitionTime": "2026-01-01T00:00:00Z"}));
}

/// Rules: API-C112, API-C125
#[test]
fn a_row_lists_modes_in_a_fixed_order() {
    let spec = json!({
        "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany"], "storageClassName": "sc0",
        "claimRef": {"namespace": "conf", "name": "c1"},
    });
    let (mut created, _) = create("PersistentVolume", volume(spec)).expect("created");
    let expected =
        json!(["pv", "1Gi", "RWO,ROX,RWX", "Retain", "Pending", "conf/c1", "sc0", "<unset>", "", "Filesystem"]);
    assert_eq!(json!(cells("PersistentVolume", &created)), expected, "API-C112");
    created["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(cells("PersistentVolume", &created)[4], "Terminating", "API-C125");
}

/// Rules: API-C113, API-C114, API-C115, API-C116
#[test]
fn bad_volumes_are_refused_in_the_references_words() {
    let secret = json!({"csi": {"nodePublishSecretRef": {"name": "a"}}});
    let cases = [
        (json!({"hostPath": {"path": "/x"}}), "spec.csi: Forbidden: may not specify more than 1 volume type"),
        (json!({"csi": null}), "spec: Required value: must specify a volume type"),
        (
            json!({"accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]}),
            "may not use ReadWriteOncePod with other access modes",
        ),
        (json!({"accessModes": null}), "spec.accessModes: Required value"),
        (
            json!({"capacity": {"cpu": "1"}}),
            "spec.capacity: Unsupported value: {\"cpu\":\"1\",\"storage\":\"1Gi\"}: supported values: \"storage\"",
        ),
        (
            json!({"capacity": {"storage": "0"}}),
            "spec.capacity[storage]: Invalid value: \"0\": must be greater than zero",
        ),
        (json!({"capacity": null}), "spec.capacity: Required value"),
        (
            json!({"csi": null, "local": {"path": "/x"}}),
            "spec.nodeAffinity: Required value: Local volume requires node affinity",
        ),
        (
            json!({"csi": null, "local": {"path": "/a/../b"}, "nodeAffinity": affinity("n")}),
            "spec.local.path: Invalid value: \"/a/../b\": must not contain '..'",
        ),
        (
            json!({"csi": null, "hostPath": {"path": "/", "type": ""}, "persistentVolumeReclaimPolicy": "Recycle"}),
            "may not be 'recycle' for a hostPath mount of '/'",
        ),
        (
            json!({"csi": null, "hostPath": {"path": "/x", "type": "Foo"}}),
            "spec.hostPath.type: Unsupported value: \"Foo\"",
        ),
        (
            json!({"csi": null, "nfs": {"server": "s", "path": "a"}}),
            "spec.nfs.path: Invalid value: \"a\": must be an absolute path",
        ),
        (json!({"csi": {"volumeHandle": ""}}), "spec.csi.volumeHandle: Required value"),
        (json!({"csi": {"driver": "x".repeat(64)}}), "spec.csi.driver: Too long: may not be more than 63 bytes"),
        (secret, "spec.csi.nodePublishSecretRef.namespace: Required value"),
        (
            json!({"nodeAffinity": {}}),
            "spec.nodeAffinity.required: Required value: must specify required node constraints",
        ),
        (json!({"persistentVolumeReclaimPolicy": "Foo"}), "supported values: \"Delete\", \"Recycle\", \"Retain\""),
        (
            json!({"volumeAttributesClassName": ""}),
            "spec.volumeAttributesClassName: Required value: an empty string is disallowed",
        ),
        (
            json!({"csi": null, "nfs": {"server": "s", "path": "/"}, "volumeAttributesClassName": "a"}),
            "spec.csi: Required value: has to be specified when using volumeAttributesClassName",
        ),
    ];
    for (spec, expected) in cases {
        let text = message(create("PersistentVolume", volume(spec)));
        assert!(text.contains(expected), "API-C113 to API-C116: {text}");
    }
}

/// Rule: API-0.20
#[test]
fn the_secret_for_staging_is_never_looked_at() {
    let staged = volume(json!({"csi": {"nodeStageSecretRef": {"name": ""}, "driver": "D.IO"}}));
    create("PersistentVolume", staged).expect("API-0.20, and drivers may have capitals");
}

/// Rules: API-C117, API-C118
#[test]
fn the_source_never_changes_but_for_a_first_expansion_secret() {
    let (old, _) = create("PersistentVolume", volume(json!({}))).expect("created");
    let text = message(patch("PersistentVolume", &old, json!({"spec": {"csi": {"volumeHandle": "h2"}}})));
    let expected =
        "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n@@ ";
    assert!(
        text.contains(expected) && text.contains("-  \"VolumeHandle\": \"h\",\n+  \"VolumeHandle\": \"h2\",\n"),
        "API-C117: {text}"
    );
    let secret = |name: &str| json!({"spec": {"csi": {"controllerExpandSecretRef": {"name": name, "namespace": "b"}}}});
    let with_secret = patch("PersistentVolume", &old, secret("a")).expect("API-C118");
    message(patch("PersistentVolume", &with_secret, secret("c")));
}

/// Rules: API-C119, API-C121, API-C122
#[test]
fn immutable_paths_are_printed_without_their_parent() {
    let (old, _) = create("PersistentVolume", volume(json!({}))).expect("created");
    let text = message(patch("PersistentVolume", &old, json!({"spec": {"volumeMode": "Block"}})));
    assert!(text.contains("is invalid: volumeMode: Invalid value: \"Block\": field is immutable"), "API-C119: {text}");
    let placed = patch("PersistentVolume", &old, json!({"spec": {"nodeAffinity": affinity("b")}})).expect("API-C121");
    let text = message(patch("PersistentVolume", &placed, json!({"spec": {"nodeAffinity": affinity("c")}})));
    let expected = "nodeAffinity: Invalid value: {\"Required\":{\"NodeSelectorTerms\":[{\"MatchExpressions\":[{\"Key\":\"a\",\
                    \"Operator\":\"In\",\"Values\":[\"c\"]}],\"MatchFields\":null}]}}: field is immutable, except for \
                    updating from beta label to GA";
    assert!(text.contains(expected), "API-C122: {text}");
}

#[test]
fn beta_labels_may_get_their_lasting_names() {
    let zone = |key: &str| {
        json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": "In", "values": ["z"]}]}]}}})
    };
    let (old, warnings) =
        create("PersistentVolume", volume(zone("failure-domain.beta.kubernetes.io/zone"))).expect("created");
    assert!(warnings[0].contains("use \"topology.kubernetes.io/zone\" instead"), "{warnings:?}");
    patch("PersistentVolume", &old, json!({"spec": zone("topology.kubernetes.io/zone")})).expect("renamed");
    message(patch("PersistentVolume", &old, json!({"spec": zone("topology.kubernetes.io/region")})));
}

/// Rule: API-C120
#[test]
fn everything_about_use_may_change() {
    let spec = json!({"claimRef": {"name": "c", "namespace": "n"}});
    let (old, _) = create("PersistentVolume", volume(spec)).expect("created");
    let change = json!({"spec": {
        "capacity": {"storage": "5Gi"}, "accessModes": ["ReadOnlyMany"], "storageClassName": "o",
        "persistentVolumeReclaimPolicy": "Delete", "mountOptions": ["ro"], "claimRef": null,
    }});
    patch("PersistentVolume", &old, change).expect("API-C120");
}

/// Rule: API-C123
#[test]
fn a_phase_change_notes_its_time_unless_the_client_does() {
    let (mut old, _) = create("PersistentVolume", volume(json!({}))).expect("created");
    let (before, given) = ("2025-01-01T00:00:00Z", "2025-06-01T00:00:00Z");
    old["status"]["lastPhaseTransitionTime"] = json!(before);
    let cases = [
        (json!({"phase": "Available"}), "2026-01-01T00:00:00Z"),
        (json!({"phase": "Whatever", "lastPhaseTransitionTime": given}), given),
        (json!({"reason": "r", "lastPhaseTransitionTime": null}), before),
    ];
    for (status, expected) in cases {
        let new = update("PersistentVolume", &old, json!({"status": status}), Endpoint::Status).expect("API-C123");
        assert_eq!(new["status"]["lastPhaseTransitionTime"], expected);
    }
}

#[test]
fn capacities_keep_thousandths_at_most() {
    let (created, _) = create("PersistentVolume", volume(json!({"capacity": {"storage": "1u"}}))).expect("rounded up");
    assert_eq!(created["spec"]["capacity"]["storage"], "1m");
}
