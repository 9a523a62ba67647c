//! Namespaces, nodes, secrets, config maps, accounts, leases, events, quotas, limits and roles.

use super::*;
use crate::kinds::{Birth, Update, before_create, before_update, deletion, event, namespace_finalized};
use crate::status::{ApiError, Resource};
use serde_json::{Value, json};

fn object(fields: Value) -> Value {
    let mut object = json!({"metadata": {"name": "x", "namespace": "conf"}});
    merge(&mut object, fields);
    object
}

/// Rules: API-C018, API-C183, API-C185
#[test]
fn a_namespace_waits_for_its_content() {
    let (namespace, _) = create("Namespace", json!({"metadata": {"name": "conf"}})).expect("API-C018");
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(namespace["status"], json!({"phase": "Active"}));
    assert_eq!(namespace["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "conf"}));
    let change = json!({"metadata": {"labels": null}, "spec": {"finalizers": []}, "status": {"phase": "x"}});
    let kept = patch("Namespace", &namespace, change).expect("kept");
    assert_eq!(kept, namespace);
    let departure = deletion::Departure::of("Namespace");
    let deletion::Outcome::Mark(dying) = deletion::decide(departure, &namespace, deletion::Options::default(), NOW)
    else {
        panic!("API-C183")
    };
    assert_eq!(dying["status"]["phase"], "Terminating");
    assert_eq!(dying["metadata"].get("deletionGracePeriodSeconds"), None);
    assert_eq!(deletion::decide(departure, &dying, deletion::Options::default(), NOW), deletion::Outcome::Unchanged);
    assert!(!deletion::completed_by("Namespace", &dying));
    let done = namespace_finalized(&json!({"metadata": {"name": "conf"}, "spec": {"finalizers": []}}), &dying);
    assert_eq!(done["metadata"], dying["metadata"], "only the finalizers of the spec are taken");
    assert!(deletion::completed_by("Namespace", &done), "API-C185");
    let text = message(create("Namespace", json!({"metadata": {"name": "a.b"}})));
    assert!(text.contains("must not contain dots"), "{text}");
}

#[test]
fn a_node_is_what_its_conditions_and_labels_say() {
    let node = |status: Value, unschedulable: bool| json!({"metadata": {"name": "n"}, "spec": {"unschedulable": unschedulable}, "status": {"conditions": status}});
    let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
    let cases = [
        (node(ready("True"), false), "Ready"),
        (node(ready("Unknown"), false), "NotReady"),
        (node(json!([]), false), "Unknown"),
        (node(ready("True"), true), "Ready,SchedulingDisabled"),
    ];
    for (node, expected) in cases {
        assert_eq!(cells("Node", &node)[1], expected);
    }
    let mut node = node(ready("True"), false);
    node["metadata"]["labels"] = json!({"node-role.kubernetes.io/b": "", "kubernetes.io/role": "a", "x": "y"});
    node["status"]["capacity"] = json!({"cpu": "1"});
    let (created, _) = create("Node", node).expect("created");
    assert_eq!(cells("Node", &created)[2], "a,b");
    assert_eq!(created["status"]["allocatable"], json!({"cpu": "1"}), "status is stored at create");
}

/// Rules: API-C192, API-C193
#[test]
fn string_data_is_for_writing_only() {
    let given = object(json!({"stringData": {"a": "b"}, "data": {"a": "eA==", "c": "eQ=="}}));
    let (secret, _) = create("Secret", given).expect("API-C192");
    assert_eq!(secret["data"], json!({"a": "Yg==", "c": "eQ=="}));
    assert_eq!((secret.get("stringData"), secret["type"].as_str()), (None, Some("Opaque")));
    let text = message(patch("Secret", &secret, json!({"type": "x"})));
    assert!(text.contains("type: Invalid value: \"x\": field is immutable"), "API-C193: {text}");
    assert_eq!(json!(cells("Secret", &secret)), json!(["x", "Opaque", 2]));
}

#[test]
fn secrets_of_known_types_need_their_keys_and_never_show_values() {
    let cases = [
        ("kubernetes.io/tls", json!({"tls.crt": ""}), "data[tls.key]: Required value"),
        ("kubernetes.io/basic-auth", json!({}), "data[password]: Required value"),
        ("kubernetes.io/ssh-auth", json!({}), "data[ssh-privatekey]: Required value"),
        (
            "kubernetes.io/service-account-token",
            json!({}),
            "metadata.annotations[kubernetes.io/service-account.name]: Required value",
        ),
        (
            "kubernetes.io/dockerconfigjson",
            json!({".dockerconfigjson": "aHVzaA=="}),
            "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\"",
        ),
        ("Opaque", json!({"a b": ""}), "data[a b]: Invalid value: \"a b\": a valid config key must consist of"),
    ];
    for (kind, data, expected) in cases {
        let text = message(create("Secret", object(json!({"type": kind, "data": data}))));
        assert!(text.contains(expected) && !text.contains("hush"), "{text}");
    }
}

#[test]
fn immutable_maps_stay_as_they_are() {
    let given = object(json!({"immutable": true, "data": {"a": "b"}}));
    let (old, _) = create("ConfigMap", given).expect("created");
    let text = message(patch("ConfigMap", &old, json!({"immutable": false, "data": {"a": "c"}})));
    let expected = "[immutable: Forbidden: field is immutable when `immutable` is set, data: Forbidden: field is immutable \
                    when `immutable` is set]";
    assert!(text.contains(expected), "{text}");
    let large = object(json!({"data": {"a": "x".repeat(1024 * 1024 + 1)}}));
    assert!(message(create("ConfigMap", large)).contains("[]: Too long: may not be more than 1048576 bytes"));
    let twice = object(json!({"data": {"a": "b"}, "binaryData": {"a": "Yg=="}}));
    assert!(message(create("ConfigMap", twice)).contains("duplicate of key present in binaryData"));
}

#[test]
fn leases_accounts_quotas_and_limits_are_checked_for_sense() {
    let (account, _) =
        create("ServiceAccount", object(json!({"secrets": [{"name": "s", "namespace": "n"}]}))).expect("ok");
    assert_eq!(account["secrets"], json!([{"name": "s"}]));
    let limit = |limit: Value| object(json!({"spec": {"limits": [limit]}}));
    let cases = [
        (
            "Lease",
            object(json!({"spec": {"leaseDurationSeconds": 0}})),
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "Lease",
            object(json!({"spec": {"leaseTransitions": -1}})),
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "ResourceQuota",
            object(json!({"spec": {"hard": {"foo": "1"}}})),
            "spec.hard[foo]: Invalid value: \"foo\": must be a standard resource for quota",
        ),
        (
            "ResourceQuota",
            object(json!({"spec": {"hard": {"pods": "-1"}}})),
            "spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (
            "LimitRange",
            limit(json!({"type": "PersistentVolumeClaim"})),
            "either minimum or maximum storage value is required, but neither was provided",
        ),
        (
            "LimitRange",
            limit(json!({"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}})),
            "min value 2 is greater than max value 1",
        ),
    ];
    for (kind, object, expected) in cases {
        let text = message(create(kind, object));
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_quota_shows_what_its_status_says() {
    let (mut quota, _) =
        create("ResourceQuota", object(json!({"spec": {"hard": {"requests.storage": "4Gi"}}, "status": {"used": {}}})))
            .expect("ok");
    assert_eq!(json!(cells("ResourceQuota", &quota)), json!(["x", "", ""]), "empty until a controller ran");
    quota["status"] = json!({"hard": {"requests.storage": "4Gi", "limits.cpu": "2", "pods": "9"}, "used": {"requests.storage": "1Gi"}});
    assert_eq!(
        json!(cells("ResourceQuota", &quota)),
        json!(["x", "pods: 0/9, requests.storage: 1Gi/4Gi", "limits.cpu: 0/2"])
    );
}

fn new_event() -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e1", "namespace": "conf"},
        "regarding": {"kind": "PersistentVolumeClaim", "namespace": "conf", "name": "c1"}, "reason": "R", "note": "n",
        "type": "Normal", "action": "A", "reportingController": "x.io/c", "reportingInstance": "i",
        "eventTime": "2026-01-01T00:00:00.123456Z",
    })
}

fn create_event(group: &str, mut event: Value) -> Result<Value, ApiError> {
    let rules = rules_for(group, "Event").expect("built in");
    let birth = Birth { now: NOW, uid: "u" };
    before_create(rules, Resource::new(group, "Event"), &mut event, birth)?;
    Ok(event)
}

/// Rules: API-C189, API-C190
#[test]
fn one_event_has_two_views() {
    let created = create_event("events.k8s.io", new_event()).expect("API-C189");
    let core = event::to_core(&created);
    assert_eq!(
        (core["message"].as_str(), core["reportingComponent"].as_str()),
        (Some("n"), Some("x.io/c")),
        "API-C190"
    );
    assert_eq!(core["apiVersion"], "v1");
    assert_eq!(event::from_core(&core), created);
}

/// Rules: API-C188, API-C187
#[test]
fn bad_events_are_refused_in_the_references_words() {
    let mut old_style = new_event();
    merge(&mut old_style, json!({"eventTime": null, "type": null}));
    let text = message(create_event("events.k8s.io", old_style));
    assert!(
        text.contains("eventTime: Required value") && text.contains("type: Invalid value: \"\": has invalid value: "),
        "API-C188: {text}"
    );
    let core = json!({"metadata": {"name": "e0", "namespace": "conf"}, "involvedObject": {"kind": "PersistentVolume", "name": "p"}});
    let text = message(create_event("", core.clone()));
    assert!(
        text.contains("involvedObject.namespace: Invalid value: \"\": does not match event.namespace"),
        "API-C187: {text}"
    );
    let mut in_default = core;
    in_default["metadata"]["namespace"] = json!("default");
    create_event("", in_default).expect("cluster-scoped objects are reported in default");
    let mut long = new_event();
    merge(
        &mut long,
        json!({"action": "x".repeat(129), "note": "x".repeat(1025), "series": {"count": 1}, "deprecatedCount": 1}),
    );
    let text = message(create_event("events.k8s.io", long));
    for expected in [
        "action: Invalid value: \"\": can have at most 128 characters",
        "message: Invalid value: \"\": can have at most 1024 characters",
        "series.count: Invalid value: \"\": should be at least 2",
        "count: Invalid value: \"\": needs to be unset",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn only_the_series_of_an_event_changes() {
    let mut old = create_event("events.k8s.io", new_event()).expect("created");
    old["metadata"]["resourceVersion"] = json!("1");
    let rules = rules_for("events.k8s.io", "Event").expect("built in");
    let update = Update { old: &old, endpoint: Endpoint::Main, now: NOW };
    let mut counted = old.clone();
    counted["series"] = json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"});
    before_update(rules, Resource::new("", "Event"), &mut counted, update).expect("series");
    let mut reworded = old.clone();
    reworded["note"] = json!("other");
    let text = message(before_update(rules, Resource::new("", "Event"), &mut reworded, update));
    assert!(text.contains("message: Invalid value: \"other\": field is immutable"), "{text}");
}

#[test]
fn an_event_row_prefers_the_series() {
    let mut core = event::to_core(&new_event());
    core["eventTime"] = json!("2025-12-31T23:59:00.000000Z");
    let row = rules_for("", "Event").expect("built in").row(&core, NOW);
    let expected = json!(["60s", "Normal", "R", "persistentvolumeclaim/c1", "", "x.io/c, i", "n", "60s", 1, "e1"]);
    assert_eq!(json!(row), expected);
    core["series"] = json!({"count": 5, "lastObservedTime": "2025-12-31T23:59:50.000000Z"});
    let row = rules_for("", "Event").expect("built in").row(&core, NOW);
    assert_eq!((row[0].clone(), row[8].clone()), (json!("10s"), json!(5)));
}

#[test]
fn roles_and_bindings_are_checked_for_sense() {
    let role = |rule: Value| object(json!({"rules": [rule]}));
    let binding = |change: Value| {
        let mut binding =
            object(json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]}));
        merge(&mut binding, change);
        binding
    };
    let cases = [
        (
            "Role",
            role(json!({"apiGroups": [""], "resources": ["pods"]})),
            "rules[0].verbs: Required value: verbs must contain at least one value",
        ),
        (
            "Role",
            role(json!({"verbs": ["get"], "resources": ["pods"]})),
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
        ),
        (
            "Role",
            role(json!({"verbs": ["get"], "nonResourceURLs": ["/x"]})),
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
        ),
        (
            "RoleBinding",
            binding(json!({"roleRef": {"kind": "Foo"}})),
            "roleRef.kind: Unsupported value: \"Foo\": supported values: \"Role\", \"ClusterRole\"",
        ),
        (
            "ClusterRoleBinding",
            binding(json!({"subjects": [{"kind": "ServiceAccount", "name": "s"}], "roleRef": {"kind": "ClusterRole"}})),
            "subjects[0].namespace: Required value",
        ),
    ];
    for (kind, object, expected) in cases {
        let text = message(create(kind, object));
        assert!(text.contains(expected), "{text}");
    }
    let (old, _) = create("RoleBinding", binding(json!({"metadata": {"name": "system:x"}}))).expect("any path segment");
    assert_eq!(old["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    let text = message(patch("RoleBinding", &old, json!({"roleRef": {"name": "other"}})));
    assert!(text.contains("roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"other\"}: cannot change roleRef"), "{text}");
    assert_eq!(json!(cells("RoleBinding", &old)), json!(["system:x", "Role/r", "u", "", ""]));
}
