//! Pods, as far as API-6.2 goes.

use super::*;
use crate::kinds::deletion::{Departure, Options, Outcome, decide};
use serde_json::{Value, json};

fn pod(spec: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "conf"},
        "spec": {"containers": [{"name": "c", "image": "img"}]},
    });
    merge(&mut pod["spec"], spec);
    pod
}

#[test]
fn a_new_pod_is_pending_with_its_defaults() {
    let volumes =
        json!([{"name": "a"}, {"name": "b", "secret": {"secretName": "s"}}, {"name": "h", "hostPath": {"path": "/x"}}]);
    let (created, _) = create("Pod", pod(json!({"volumes": volumes}))).expect("created");
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(created["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    let expected = json!({
        "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30, "securityContext": {}, "enableServiceLinks": true,
        "containers": [{
            "name": "c", "image": "img", "imagePullPolicy": "Always", "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }],
        "volumes": [
            {"name": "a", "emptyDir": {}}, {"name": "b", "secret": {"secretName": "s", "defaultMode": 420}},
            {"name": "h", "hostPath": {"path": "/x", "type": ""}},
        ],
    });
    assert_eq!(created["spec"], expected);
}

#[test]
fn images_without_a_fixed_version_are_always_pulled() {
    for (image, expected) in [
        ("a", "Always"),
        ("r:5000/a", "Always"),
        ("a:latest", "Always"),
        ("a:1", "IfNotPresent"),
        ("a@sha256:0", "IfNotPresent"),
    ] {
        let (created, _) = create("Pod", pod(json!({"containers": [{"name": "c", "image": image}]}))).expect("created");
        assert_eq!(created["spec"]["containers"][0]["imagePullPolicy"], expected, "{image}");
    }
}

#[test]
fn volumes_and_mounts_must_fit_together() {
    let mounted = |mounts: Value| json!({"containers": [{"name": "c", "image": "i", "volumeMounts": mounts}], "volumes": [{"name": "v"}]});
    let device = json!({"containers": [{"name": "c", "image": "i", "volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]}], "volumes": [{"name": "v"}]});
    let template = |metadata: Value| json!({"volumes": [{"name": "e", "ephemeral": {"volumeClaimTemplate": {"metadata": metadata, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}}}}]});
    let cases = [
        (json!({"containers": []}), "spec.containers: Required value"),
        (json!({"volumes": [{"name": "a"}, {"name": "a"}]}), "spec.volumes[1].name: Duplicate value: \"a\""),
        (
            json!({"volumes": [{"name": "a", "emptyDir": {}, "secret": {"secretName": "s"}}]}),
            "spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type",
        ),
        (
            json!({"volumes": [{"name": "a", "persistentVolumeClaim": {}}]}),
            "spec.volumes[0].persistentVolumeClaim.claimName: Required value",
        ),
        (json!({"volumes": [{"name": "a", "csi": {}}]}), "spec.volumes[0].csi.driver: Required value"),
        (
            mounted(json!([{"name": "w", "mountPath": "/a"}])),
            "spec.containers[0].volumeMounts[0].name: Not found: \"w\"",
        ),
        (
            mounted(json!([{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}])),
            "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/a\": must be unique",
        ),
        (
            mounted(json!([{"name": "v", "mountPath": "/a", "subPath": "a/../../b"}])),
            "spec.containers[0].volumeMounts.subPath: Invalid value: \"a/../../b\": must not contain '..'",
        ),
        (
            mounted(json!([{"name": "v", "mountPath": "/a", "subPathExpr": "/$(POD)"}])),
            "spec.containers[0].volumeMounts.subPathExpr: Invalid value: \"/$(POD)\": must be a relative path",
        ),
        (
            mounted(json!([{"name": "v", "mountPath": "/a", "subPath": "a", "subPathExpr": "b"}])),
            "spec.containers[0].volumeMounts[0].subPathExpr: Invalid value: \"b\": subPathExpr and subPath are mutually exclusive",
        ),
        (device, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"),
        (
            template(json!({"name": "x"})),
            "spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set",
        ),
        (
            json!({"restartPolicy": "Foo"}),
            "spec.restartPolicy: Unsupported value: \"Foo\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ),
    ];
    for (spec, expected) in cases {
        let text = message(create("Pod", pod(spec)));
        assert!(text.contains(expected), "{text}");
    }
    create("Pod", pod(template(json!({"labels": {"a": "b"}})))).expect("labels and annotations are fine");
}

/// Rule: API-0.9
#[test]
fn a_pod_changes_only_in_a_few_places() {
    let (old, _) = create("Pod", pod(json!({}))).expect("created");
    let mut container = old["spec"]["containers"][0].clone();
    container["image"] = json!("other");
    let new = patch(
        "Pod",
        &old,
        json!({"spec": {"containers": [container], "activeDeadlineSeconds": 5, "tolerations": [{"key": "a"}]}}),
    );
    assert_eq!(new.expect("allowed")["metadata"]["generation"], 2);
    let text = message(patch("Pod", &old, json!({"spec": {"nodeName": "n"}})));
    assert!(text.contains("spec: Forbidden: pod updates may not change fields other than"), "{text}");
    let status =
        json!({"metadata": {"ownerReferences": [{"uid": "u"}]}, "status": {"phase": "Running", "qosClass": null}});
    let new = update("Pod", &old, status, Endpoint::Status).expect("API-0.9");
    assert_eq!(new["metadata"], old["metadata"]);
    assert_eq!(new["status"], json!({"phase": "Running", "qosClass": "BestEffort"}));
}

#[test]
fn the_status_cell_is_the_most_telling_word() {
    let container = |state: Value| json!({"name": "c", "ready": false, "restartCount": 3, "state": state, "lastState": {"terminated": {"finishedAt": "2025-12-31T23:55:00Z"}}});
    let cases = [
        (json!({"phase": "Pending"}), "Pending", "0/1", "0"),
        (json!({"phase": "Failed", "reason": "Evicted"}), "Evicted", "0/1", "0"),
        (
            json!({"phase": "Running", "containerStatuses": [container(json!({"waiting": {"reason": "CrashLoopBackOff"}}))]}),
            "CrashLoopBackOff",
            "0/1",
            "3 (5m ago)",
        ),
        (
            json!({"phase": "Failed", "containerStatuses": [container(json!({"terminated": {"exitCode": 2}}))]}),
            "ExitCode:2",
            "0/1",
            "3 (5m ago)",
        ),
        (
            json!({"phase": "Running", "containerStatuses": [{"ready": true, "state": {"running": {}}}]}),
            "Running",
            "1/1",
            "0",
        ),
        (json!({"phase": "Pending", "initContainerStatuses": [{"state": {"running": {}}}]}), "Init:0/1", "0/1", "0"),
        (
            json!({"phase": "Pending", "initContainerStatuses": [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
            "Init:Error",
            "0/1",
            "0",
        ),
    ];
    for (status, expected, ready, restarts) in cases {
        let mut pod = pod(json!({"initContainers": [{"name": "i", "image": "i"}]}));
        pod["status"] = status;
        let row = cells("Pod", &pod);
        assert_eq!(
            (row[2].as_str(), row[1].as_str(), row[3].as_str()),
            (Some(expected), Some(ready), Some(restarts)),
            "{pod}"
        );
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let ended = pod["status"]["phase"] == "Failed";
        assert_eq!(cells("Pod", &pod)[2] == "Terminating", !ended, "{pod}");
        assert_eq!(rules("Pod").row_conditions(&pod).is_empty(), !ended);
    }
}

#[test]
fn a_deadline_comes_closer_and_tolerations_stay() {
    let (mut old, _) = create("Pod", pod(json!({"activeDeadlineSeconds": 30}))).expect("created");
    old["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 5}]);
    patch("Pod", &old, json!({"spec": {"activeDeadlineSeconds": 10}})).expect("closer");
    let refused = [
        (json!({"activeDeadlineSeconds": 40}), "must be less than or equal to previous value"),
        (json!({"activeDeadlineSeconds": -1}), "must be between 0 and 2147483647, inclusive"),
        (json!({"activeDeadlineSeconds": null}), "must not update from a positive integer to nil value"),
        (json!({"tolerations": []}), "existing toleration can not be modified except its tolerationSeconds"),
        (json!({"containers": []}), "pod updates may not add or remove containers"),
    ];
    for (spec, expected) in refused {
        let text = message(patch("Pod", &old, json!({"spec": spec})));
        assert!(text.contains(expected), "{text}");
    }
    let longer =
        json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 9}, {"key": "l", "operator": "Exists"}]);
    patch("Pod", &old, json!({"spec": {"tolerations": longer}})).expect("more of them, and for longer");
}

#[test]
fn a_container_may_not_ask_for_more_than_its_limit() {
    let resources = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}});
    let text =
        message(create("Pod", pod(json!({"containers": [{"name": "c", "image": "i", "resources": resources}]}))));
    assert!(text.contains("Invalid value: \"2\": must be less than or equal to cpu limit of 1"), "{text}");
}

#[test]
fn pods_get_their_grace_once_and_it_only_gets_shorter() {
    let (mut pod, _) = create("Pod", pod(json!({}))).expect("created");
    let Outcome::Remove(last) = decide(Departure::Pod, &pod, Options::default(), NOW) else { panic!("it never ran") };
    assert_eq!(last["metadata"]["deletionGracePeriodSeconds"], 0, "a client sees that it was marked before it went");
    pod["spec"]["nodeName"] = json!("n");
    let grace = |seconds| Options { grace_seconds: Some(seconds), ..Options::default() };
    let Outcome::Mark(dying) = decide(Departure::Pod, &pod, Options::default(), NOW) else { panic!("graceful") };
    assert_eq!(dying["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    assert_eq!(
        (&dying["metadata"]["deletionGracePeriodSeconds"], &dying["metadata"]["generation"]),
        (&json!(30), &json!(2))
    );
    assert_eq!(decide(Departure::Pod, &dying, grace(60), NOW), Outcome::Unchanged);
    let Outcome::Mark(sooner) = decide(Departure::Pod, &dying, grace(10), NOW) else { panic!("shorter") };
    assert_eq!(sooner["metadata"]["deletionTimestamp"], "2026-01-01T00:00:10Z");
    assert!(matches!(decide(Departure::Pod, &dying, grace(0), NOW), Outcome::Remove(_)));
    let Outcome::Mark(odd) = decide(Departure::Pod, &pod, grace(-5), NOW) else { panic!("negative is one") };
    assert_eq!(odd["metadata"]["deletionGracePeriodSeconds"], 1);
}

#[test]
fn quality_of_service_comes_from_requests_and_limits() {
    let with = |resources: Value| json!({"containers": [{"name": "c", "image": "i", "resources": resources}]});
    let cases = [
        (json!({}), "BestEffort"),
        (json!({"requests": {"cpu": "1"}}), "Burstable"),
        (json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
        (json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}), "Burstable"),
    ];
    for (resources, expected) in cases {
        let (created, _) = create("Pod", pod(with(resources))).expect("created");
        assert_eq!(created["status"]["qosClass"], expected);
    }
}
