//! PersistentVolumeClaim: API-C019, API-C067, API-C068, API-C107 and API-C132 to API-C148.

use super::*;
use serde_json::{Value, json};

fn bound(spec: Value) -> Value {
    let (mut claim, _) = create("PersistentVolumeClaim", claim(spec)).expect("created");
    claim["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
    claim
}

/// Rule: API-C019
#[test]
fn a_new_claim_is_pending_and_a_filesystem() {
    let mut given = claim(json!({"storageClassName": "sc0"}));
    given["status"] = json!({"phase": "Bound", "capacity": {"storage": "9Gi"}});
    let (created, warnings) = create("PersistentVolumeClaim", given).expect("API-C019");
    assert_eq!(created["spec"]["volumeMode"], "Filesystem");
    assert_eq!(created["status"], json!({"phase": "Pending"}));
    assert_eq!(warnings, Vec::<String>::new());
}

/// Rule: API-C136
#[test]
fn an_empty_spec_lacks_exactly_modes_and_a_size() {
    let given = json!({"metadata": {"name": "x", "namespace": "conf"}, "spec": {}});
    let error = create("PersistentVolumeClaim", given).expect_err("API-C136");
    let causes = error.details.expect("details").causes;
    let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
    assert_eq!(fields, ["spec.accessModes", "spec.resources[storage]"]);
    assert_eq!(causes[0].message, "Required value: at least 1 access mode is required");
}

#[test]
fn bad_specs_are_refused_in_the_references_words() {
    let source = json!({"apiGroup": "x.io", "kind": "Foo", "name": "n"});
    let cases = [
        (
            json!({"accessModes": ["Foo"]}),
            "spec.accessModes: Unsupported value: \"Foo\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\", \"ReadWriteOncePod\"",
        ),
        (
            json!({"accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]}),
            "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
        ),
        (
            json!({"resources": {"requests": {"storage": "0"}}}),
            "spec.resources[storage]: Invalid value: \"0\": must be greater than zero",
        ),
        (json!({"storageClassName": "A"}), "spec.storageClassName: Invalid value: \"A\""),
        (
            json!({"volumeMode": "Raw"}),
            "spec.volumeMode: Unsupported value: \"Raw\": supported values: \"Block\", \"Filesystem\"",
        ),
        (
            json!({"dataSourceRef": {"kind": "Foo", "name": "n"}}),
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        ),
        (
            json!({"dataSourceRef": source, "dataSource": {"kind": "PersistentVolumeClaim", "name": "m"}}),
            "spec: Invalid value: {}: must match dataSourceRef",
        ),
        (
            json!({"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
            "spec.selector.matchExpressions[0].values: Required value",
        ),
        (json!({"volumeAttributesClassName": "A"}), "spec.volumeAttributesClassName: Invalid value: \"A\""),
    ];
    for (spec, expected) in cases {
        let text = message(create("PersistentVolumeClaim", claim(spec)));
        assert!(text.contains(expected), "{text}");
    }
}

/// Rules: API-C133, API-C134, API-C132
#[test]
fn data_sources_are_dropped_or_mirrored() {
    let source = |group: Value, kind: &str| json!({"apiGroup": group, "kind": kind, "name": "n"});
    let snapshot = source(json!("snapshot.storage.k8s.io"), "VolumeSnapshot");
    let spec = |spec| create("PersistentVolumeClaim", claim(spec)).expect("created").0["spec"].clone();
    assert_eq!(spec(json!({"dataSource": source(json!("x.io"), "Foo")})).get("dataSource"), None, "API-C133");
    assert_eq!(spec(json!({"dataSource": snapshot}))["dataSourceRef"], snapshot, "API-C134");
    assert_eq!(spec(json!({"dataSourceRef": source(json!("x.io"), "Foo")}))["dataSource"]["kind"], "Foo");
    let elsewhere = json!({"kind": "PersistentVolumeClaim", "name": "n", "namespace": "other"});
    assert_eq!(spec(json!({"dataSourceRef": elsewhere})).get("dataSourceRef"), None, "the gate is off");
    assert_eq!(spec(json!({"storageClassName": ""}))["storageClassName"], "", "API-C132");
}

/// Rule: API-C135
#[test]
fn fractions_of_bytes_and_the_old_annotation_only_warn() {
    let (_, warnings) =
        create("PersistentVolumeClaim", claim(json!({"resources": {"requests": {"storage": "1500m"}}})))
            .expect("API-C135");
    let expected = "spec.resources.requests[storage]: fractional byte value \"1500m\" is invalid, must be an integer";
    assert_eq!(warnings, [expected]);
    let mut old_style = claim(json!({}));
    old_style["metadata"]["annotations"] = json!({"volume.beta.kubernetes.io/storage-class": "a"});
    let (_, warnings) = create("PersistentVolumeClaim", old_style).expect("accepted");
    assert!(warnings[0].contains("deprecated since v1.8; use \"storageClassName\" attribute instead"), "{warnings:?}");
}

/// Rules: API-C137, API-C138, API-C139
#[test]
fn an_unbound_claim_is_frozen_but_for_its_volume_and_its_class() {
    let (old, _) = create("PersistentVolumeClaim", claim(json!({}))).expect("created");
    let grown = patch("PersistentVolumeClaim", &old, json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
    let text = message(grown);
    let expected = "spec: Forbidden: spec is immutable after creation except resources.requests and \
                    volumeAttributesClassName for bound claims\n@@ -6,7 +6,7 @@\n";
    assert!(text.contains(expected), "API-C137: {text}");
    assert!(text.contains("-   \"storage\": \"1Gi\"\n+   \"storage\": \"2Gi\"\n"), "{text}");
    let named = patch("PersistentVolumeClaim", &old, json!({"spec": {"volumeName": "pvA"}})).expect("API-C138");
    assert_eq!(named["spec"]["volumeName"], "pvA");
    let text = message(patch("PersistentVolumeClaim", &named, json!({"spec": {"volumeName": "pvB"}})));
    assert!(text.contains("+ \"VolumeName\": \"pvB\""), "API-C139: {text}");
    let classed = patch("PersistentVolumeClaim", &old, json!({"spec": {"storageClassName": "a"}})).expect("was nil");
    message(patch("PersistentVolumeClaim", &classed, json!({"spec": {"storageClassName": "b"}})));
    let same = json!({"spec": {"resources": {"requests": {"storage": "1073741824"}}}});
    patch("PersistentVolumeClaim", &old, same).expect("another spelling of the same size is no change");
}

#[test]
fn changing_the_mode_is_refused_under_both_paths() {
    let (old, _) = create("PersistentVolumeClaim", claim(json!({}))).expect("created");
    let text = message(patch("PersistentVolumeClaim", &old, json!({"spec": {"volumeMode": "Block"}})));
    assert!(text.contains("spec: Forbidden: spec is immutable"), "{text}");
    assert!(text.contains("volumeMode: Invalid value: \"Block\": field is immutable"), "{text}");
}

/// Rules: API-C144, API-C145, API-C146, API-C147
#[test]
fn a_bound_claim_may_grow_and_shrink_above_its_capacity() {
    let sized = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let grown = patch("PersistentVolumeClaim", &bound(json!({})), sized("2Gi")).expect("API-C144");
    let shrunk = patch("PersistentVolumeClaim", &grown, sized("1536Mi")).expect("API-C145");
    let text = message(patch("PersistentVolumeClaim", &shrunk, sized("1Gi")));
    assert!(
        text.contains("spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"),
        "API-C146"
    );
    let attributed = patch("PersistentVolumeClaim", &shrunk, json!({"spec": {"volumeAttributesClassName": "v1"}}));
    let mut attributed = attributed.expect("API-C147");
    let cleared = json!({"spec": {"volumeAttributesClassName": null}});
    patch("PersistentVolumeClaim", &attributed, cleared.clone()).expect("nothing is in effect yet");
    attributed["status"]["currentVolumeAttributesClassName"] = json!("v1");
    let text = message(patch("PersistentVolumeClaim", &attributed, cleared));
    let expected = "spec.volumeAttributesClassName: Forbidden: update to nil is forbidden when \
                    status.currentVolumeAttributesClassName is not nil";
    assert!(text.contains(expected), "{text}");
}

/// Rules: API-0.19, API-C068, API-C148, API-C067
#[test]
fn status_keeps_the_spec_takes_metadata_and_checks_only_resizing() {
    let old = bound(json!({}));
    let change =
        json!({"metadata": {"labels": {"viastatus": "1"}}, "spec": {"volumeName": "x"}, "status": {"phase": "Any"}});
    let new = update("PersistentVolumeClaim", &old, change, Endpoint::Status).expect("API-0.19, API-C068");
    assert_eq!(new["spec"].get("volumeName"), None);
    assert_eq!(new["metadata"]["labels"], json!({"viastatus": "1"}));
    assert_eq!(new["status"]["phase"], "Any");
    let cases = [
        (
            json!({"allocatedResourceStatuses": {"storage": "Foo"}}),
            "status.allocatedResourceStatuses: Unsupported value: \"storage\": supported values: \"ControllerResizeInProgress\"",
        ),
        (
            json!({"allocatedResourceStatuses": {"cpu": "NodeResizePending"}}),
            "status.allocatedResourceStatuses: Unsupported value: \"cpu\": supported values: \"storage\"",
        ),
        (
            json!({"capacity": {"storage": "-1"}}),
            "status.capacity[storage]: Invalid value: -1: must be a valid resource quantity",
        ),
    ];
    for (status, expected) in cases {
        let text = message(update("PersistentVolumeClaim", &old, json!({"status": status}), Endpoint::Status));
        assert!(text.contains(expected), "API-C148: {text}");
    }
    let kept = patch("PersistentVolumeClaim", &old, json!({"status": {"phase": "Lost"}})).expect("API-C067");
    assert_eq!(kept["status"]["phase"], "Bound");
}

/// Rules: API-C107, API-C141, API-3.4
#[test]
fn rows_show_size_and_modes_only_of_bound_claims() {
    let (unbound, _) = create("PersistentVolumeClaim", claim(json!({"storageClassName": "sc0"}))).expect("created");
    let expected = json!(["c", "Pending", "", "", "", "sc0", "<unset>", "Filesystem"]);
    assert_eq!(json!(cells("PersistentVolumeClaim", &unbound)), expected, "API-C107");
    let bound = bound(json!({"storageClassName": "conf-sc", "volumeName": "pvA"}));
    let expected = json!(["c", "Bound", "pvA", "1Gi", "RWO", "conf-sc", "<unset>", "Filesystem"]);
    assert_eq!(json!(cells("PersistentVolumeClaim", &bound)), expected, "API-C141");
    let empty = rules("PersistentVolumeClaim").row(&json!({}), NOW);
    assert_eq!(json!(empty), json!(["", "", "", "", "", "", "<unset>", "<unknown>", "<unset>"]), "API-3.4, bookmarks");
}
