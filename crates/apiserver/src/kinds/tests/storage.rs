//! Classes, attachments and what CSI drivers report: API-C126 to API-C130, API-C143 and API-C150 to API-C168.

use super::*;
use crate::kinds::{DeleteAnswer, Versionless};
use serde_json::{Value, json};

fn named(name: &str, fields: Value) -> Value {
    let mut object = json!({"metadata": {"name": name}});
    merge(&mut object, fields);
    object
}

fn attachment(spec: Value) -> Value {
    named("va", json!({"spec": spec, "status": {"attached": true}}))
}

/// Rules: API-C126, API-C127
#[test]
fn a_class_gets_two_defaults_and_a_mark_in_its_row() {
    let mut class = named("conf-sc", json!({"provisioner": "d.io"}));
    class["metadata"]["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let (class, _) = create("StorageClass", class).expect("API-C126");
    assert_eq!(
        (class["reclaimPolicy"].as_str(), class["volumeBindingMode"].as_str()),
        (Some("Delete"), Some("Immediate"))
    );
    assert_eq!(class.get("allowVolumeExpansion"), None);
    let expected = json!(["conf-sc (default)", "d.io", "Delete", "Immediate", false]);
    assert_eq!(json!(cells("StorageClass", &class)), expected, "API-C127");
}

/// Rules: API-C128, API-K31, API-C143
#[test]
fn four_fields_of_a_class_never_change_and_the_rest_may() {
    let (old, _) = create("StorageClass", named("conf-sc", json!({"provisioner": "d.io"}))).expect("created");
    let change = json!({
        "provisioner": "q", "parameters": {"a": "b"}, "reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer",
    });
    let error = patch("StorageClass", &old, change).expect_err("API-C128");
    assert_eq!(error.details.map(|details| details.causes.len()), Some(4));
    assert!(
        error.message.contains("provisioner: Invalid value: \"q\": field is immutable"),
        "API-K31: {}",
        error.message
    );
    let free = json!({"allowVolumeExpansion": true, "mountOptions": ["ro"]});
    patch("StorageClass", &old, free).expect("API-C143");
}

/// Rules: API-C129, API-C130
#[test]
fn bad_classes_are_refused_in_the_references_words() {
    let term = json!({"matchLabelExpressions": [{"key": "a", "values": ["b"]}]});
    let many: serde_json::Map<String, Value> = (0..513).map(|key| (key.to_string(), json!(""))).collect();
    let cases = [
        (json!({"provisioner": ""}), "provisioner: Required value"),
        (
            json!({"reclaimPolicy": "Recycle"}),
            "reclaimPolicy: Unsupported value: \"Recycle\": supported values: \"Delete\", \"Retain\"",
        ),
        (json!({"volumeBindingMode": "Foo"}), "supported values: \"Immediate\", \"WaitForFirstConsumer\""),
        (json!({"allowedTopologies": [{}]}), "allowedTopologies[0].matchLabelExpressions: Duplicate value: \"\""),
        (
            json!({"allowedTopologies": [term, term]}),
            "allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\"",
        ),
        (
            json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["b", "b"]}]}]}),
            "allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: \"b\"",
        ),
        (
            json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "a"}]}]}),
            "allowedTopologies[0].matchLabelExpressions[0].values: Required value",
        ),
        (json!({"parameters": {"": "a"}}), "parameters: Invalid value: \"\": field can not be empty."),
        (json!({"parameters": {"a": "x".repeat(262_144)}}), "parameters: Too long: may not be more than 262144 bytes"),
        (json!({"parameters": many}), "parameters: Too long: may not be more than 512 bytes"),
    ];
    for (fields, expected) in cases {
        let mut class = named("x", json!({"provisioner": "d"}));
        merge(&mut class, fields);
        let text = message(create("StorageClass", class));
        assert!(text.contains(expected), "API-C129, API-C130: {text}");
    }
}

/// Rules: API-C150, API-C151, API-C152, API-C155, API-C153
#[test]
fn an_attachment_is_born_detached_and_its_wish_is_fixed() {
    let spec = json!({"attacher": "d.io", "nodeName": "n1", "source": {"persistentVolumeName": "conf-pv1"}});
    let (old, _) = create("VolumeAttachment", attachment(spec)).expect("API-C150");
    assert_eq!(old["status"], json!({"attached": false}));
    let text = message(patch("VolumeAttachment", &old, json!({"spec": {"nodeName": "n2"}})));
    let expected = "spec: Invalid value: {\"Attacher\":\"d.io\",\"Source\":{\"PersistentVolumeName\":\"conf-pv1\",\
                    \"InlineVolumeSpec\":null},\"NodeName\":\"n2\"}: field is immutable";
    assert!(text.contains(expected), "API-C151: {text}");
    let change = json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["x/y"]}, "status": {"attached": true}});
    let new = update("VolumeAttachment", &old, change, Endpoint::Status).expect("API-C152");
    assert_eq!(new["metadata"], old["metadata"]);
    assert_eq!(json!(cells("VolumeAttachment", &new)), json!(["va", "d.io", "conf-pv1", "n1", true]), "API-C155");
    assert_eq!(rules("VolumeAttachment").policy().versionless, Versionless::Refused, "API-C153");
}

/// Rule: API-C154
#[test]
fn bad_attachments_are_refused_in_the_references_words() {
    let both = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let inline = json!({"inlineVolumeSpec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1"}, "volumeMode": "Block"}});
    let cases = [
        (json!({"attacher": "d", "nodeName": "n", "source": {}}), format!("spec.source: Required value: {both}")),
        (
            json!({"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "a", "inlineVolumeSpec": {}}}),
            format!("spec.source: Forbidden: {both}"),
        ),
        (
            json!({"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": ""}}),
            "must specify non empty persistentVolumeName".into(),
        ),
        (
            json!({"attacher": "", "nodeName": "n", "source": {"persistentVolumeName": "a"}}),
            "spec.attacher: Required value".into(),
        ),
        (
            json!({"attacher": "d", "nodeName": "N", "source": {"persistentVolumeName": "a"}}),
            "spec.nodeName: Invalid value: \"N\"".into(),
        ),
        (
            json!({"attacher": "d", "nodeName": "n", "source": inline}),
            "spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes"
                .into(),
        ),
        (
            json!({"attacher": "d", "nodeName": "n", "source": inline}),
            "spec.source.inlineVolumeSpec.volumeMode: Forbidden: may not specify volumeMode other than Filesystem"
                .into(),
        ),
    ];
    for (spec, expected) in cases {
        let text = message(create("VolumeAttachment", attachment(spec)));
        assert!(text.contains(&expected), "API-C154: {text}");
    }
}

/// Rule: API-0.18
#[test]
fn a_long_attach_error_is_refused_with_the_wrong_limit() {
    let spec = json!({"attacher": "d.io", "nodeName": "n1", "source": {"persistentVolumeName": "p"}});
    let (old, _) = create("VolumeAttachment", attachment(spec)).expect("created");
    let status = json!({"status": {"attachError": {"message": "x".repeat(1025), "errorCode": -1}}});
    let text = message(update("VolumeAttachment", &old, status, Endpoint::Status));
    assert!(
        text.contains("status.attachError.message: Too long: may not be more than 262144 bytes"),
        "API-0.18: {text}"
    );
    assert!(
        text.contains("status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive")
    );
}

/// Rules: API-C156, API-C157, API-C158
#[test]
fn a_driver_gets_seven_defaults_and_counts_changes() {
    let (old, _) = create("CSIDriver", named("conf.d.io", json!({"spec": {}}))).expect("API-C156");
    let expected = json!({
        "attachRequired": true, "podInfoOnMount": false, "volumeLifecycleModes": ["Persistent"], "storageCapacity": false,
        "fsGroupPolicy": "ReadWriteOnceWithFSType", "requiresRepublish": false, "seLinuxMount": false,
    });
    assert_eq!(old["spec"], expected);
    assert_eq!(old["metadata"].get("generation"), None);
    let text = message(patch("CSIDriver", &old, json!({"spec": {"attachRequired": false}})));
    assert!(text.contains("spec.attachedRequired: Invalid value: false: field is immutable"), "API-C157: {text}");
    let new = patch("CSIDriver", &old, json!({"spec": {"podInfoOnMount": true}})).expect("API-C158");
    assert_eq!(new["metadata"]["generation"], 1);
    let same = patch("CSIDriver", &new, json!({"metadata": {"labels": {"a": "b"}}})).expect("metadata only");
    assert_eq!(same["metadata"]["generation"], 1);
    let unset = patch("CSIDriver", &new, json!({"spec": {"fsGroupPolicy": null}})).expect("re-defaulted");
    assert_eq!(unset["spec"]["fsGroupPolicy"], "ReadWriteOnceWithFSType");
    assert_eq!(
        json!(cells("CSIDriver", &old)),
        json!(["conf.d.io", true, false, false, "<unset>", false, "Persistent"])
    );
}

#[test]
fn bad_drivers_are_refused_and_token_requests_warn() {
    let token = |audience: &str, seconds: i64| json!({"audience": audience, "expirationSeconds": seconds});
    let cases = [
        (json!({"fsGroupPolicy": "Foo"}), "supported values: \"File\", \"None\", \"ReadWriteOnceWithFSType\""),
        (
            json!({"volumeLifecycleModes": ["Foo"]}),
            "spec.volumeLifecycleModes: Unsupported value: \"Foo\": supported values: \"Persistent\", \"Ephemeral\"",
        ),
        (
            json!({"tokenRequests": [token("a", 600), token("a", 600)]}),
            "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
        ),
        (json!({"tokenRequests": [token("a", 599)]}), "may not specify a duration less than 10 minutes"),
        (json!({"tokenRequests": [token("a", 4_294_967_297)]}), "may not specify a duration larger than 2^32 seconds"),
        (json!({"nodeAllocatableUpdatePeriodSeconds": 9}), "must be greater than or equal to 10 seconds"),
        (json!({"serviceAccountTokenInSecrets": true}), "spec.serviceAccountTokenInSecrets: Invalid value: true"),
    ];
    for (spec, expected) in cases {
        let text = message(create("CSIDriver", named("d.io", json!({"spec": spec}))));
        assert!(text.contains(expected), "{text}");
    }
    let given = named("d.io", json!({"spec": {"tokenRequests": [token("a", 4_294_967_296)]}}));
    let (_, warnings) = create("CSIDriver", given).expect("accepted");
    assert!(warnings[0].starts_with("spec.serviceAccountTokenInSecrets is unset; if supported"), "{warnings:?}");
}

/// Rules: API-C159, API-C160, API-C161, API-C162
#[test]
fn drivers_of_a_node_keep_their_identity_but_not_their_limits() {
    let driver = |name: &str, id: &str| json!({"name": name, "nodeID": id, "topologyKeys": ["k/l"], "allocatable": {"count": 3}});
    let twice = named("n", json!({"spec": {"drivers": [driver("a", "x"), driver("a", "y")]}}));
    let text = message(create("CSINode", twice));
    assert!(text.contains("spec.drivers[1].name: Duplicate value: \"a\""), "API-C159: {text}");
    let (old, _) = create("CSINode", named("n", json!({"spec": {"drivers": [driver("a", "x")]}}))).expect("API-C160");
    let text = message(patch("CSINode", &old, json!({"spec": {"drivers": [driver("a", "z")]}})));
    let expected = "spec.drivers: Invalid value: {\"Name\":\"a\",\"NodeID\":\"z\",\"TopologyKeys\":[\"k/l\"],\
                    \"Allocatable\":null}: field is immutable";
    assert!(text.contains(expected), "API-C161: {text}");
    let mut roomier = driver("a", "x");
    roomier["allocatable"]["count"] = json!(9);
    patch("CSINode", &old, json!({"spec": {"drivers": [roomier, driver("b", "x")]}})).expect("API-C162");
    patch("CSINode", &old, json!({"spec": {"drivers": []}})).expect("drivers may leave");
    let cases = [
        (json!({"name": "a", "nodeID": ""}), "spec.drivers[0].nodeID: Required value"),
        (json!({"name": "a", "nodeID": "x".repeat(257)}), "must be 256 characters or less"),
        (json!({"name": "a", "nodeID": "x", "topologyKeys": ["b", "b"]}), "spec.drivers[0]: Duplicate value: \"b\""),
        (
            json!({"name": "a", "nodeID": "x", "allocatable": {"count": -1}}),
            "spec.drivers[0].allocatable.count: Invalid value: -1",
        ),
    ];
    for (driver, expected) in cases {
        let text = message(create("CSINode", named("n", json!({"spec": {"drivers": [driver]}}))));
        assert!(text.contains(expected), "{text}");
    }
}

/// Rules: API-C163, API-C164, API-C165, API-C166
#[test]
fn room_is_reported_for_a_fixed_place_and_class() {
    let mut capacity = named(
        "cap1",
        json!({"storageClassName": "conf-sc", "capacity": "10Gi", "nodeTopology": {"matchLabels": {"a": "b"}}}),
    );
    capacity["metadata"]["namespace"] = json!("conf");
    let (old, _) = create("CSIStorageCapacity", capacity).expect("API-C163");
    let text = message(patch("CSIStorageCapacity", &old, json!({"storageClassName": "x", "nodeTopology": null})));
    assert!(text.contains("storageClassName: Invalid value: \"x\": field is immutable"), "API-C164: {text}");
    assert!(text.contains("nodeTopology: Invalid value: null: field is immutable"), "{text}");
    let text = message(patch("CSIStorageCapacity", &old, json!({"capacity": "-1"})));
    assert!(text.contains("capacity: Invalid value: \"-1\": must be greater than or equal to 0"), "{text}");
    patch("CSIStorageCapacity", &old, json!({"capacity": "5Gi"})).expect("room changes");
    let names: Vec<&str> = rules("CSIStorageCapacity").columns().iter().map(|column| column.name).collect();
    assert_eq!(names, ["Name", "Created At"], "API-C165");
    assert_eq!(rules("CSIStorageCapacity").policy().delete_answer, DeleteAnswer::Status, "API-C166");
}

/// Rule: API-C168
#[test]
fn attributes_classes_never_change() {
    let class = named("conf-vac", json!({"driverName": "d.io", "parameters": {"a": "b"}}));
    let (old, _) = create("VolumeAttributesClass", class).expect("created");
    let text = message(patch("VolumeAttributesClass", &old, json!({"parameters": {"a": "c"}})));
    assert!(text.contains("parameters: Forbidden: updates to parameters are forbidden."), "API-C168: {text}");
    let empty = named("x", json!({"driverName": "d.io"}));
    let text = message(create("VolumeAttributesClass", empty));
    assert!(text.contains("parameters: Required value: must contain at least one key/value pair"), "{text}");
}
