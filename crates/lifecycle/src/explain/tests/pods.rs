//! Pods that do not get their volumes, or do not let go of them.

use api::{Attachment, Claim, CsiNode, Node, Pod, Volume};
use serde_json::{Value, json};

use super::{EARLIER, Picture, check, empty, event, pod, row, seen};
use crate::attach::{attachment_name, unique_name};
use crate::bind::tests::{COMPLETED, annotated, bond, claim, over, read, volume};
use crate::decision::Standing::{Settled, Stuck, Waiting};
use crate::explain;

const DRIVER: &str = "d.example.com";
const HANDLE: &str = "h-1";

fn bound() -> Claim {
    let status =
        json!({"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"]}});
    claim(over(over(annotated(&[COMPLETED]), json!({"spec": {"volumeName": "v"}})), status))
}

fn held() -> Volume {
    let csi = json!({"spec": {"csi": {"driver": DRIVER, "volumeHandle": HANDLE}}, "status": {"phase": "Bound"}});
    volume("v", over(bond(), csi))
}

fn web(patch: Value) -> Pod {
    pod("web", over(json!({"spec": {"nodeName": "node-1"}}), patch))
}

fn attachment(node: &str, patch: Value) -> Attachment {
    let base = json!({
        "metadata": {"name": attachment_name(DRIVER, HANDLE, node), "creationTimestamp": EARLIER},
        "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": "v"}},
        "status": {"attached": true},
    });
    read(over(base, patch))
}

fn machine(name: &str, patch: Value) -> Node {
    let managed = api::keys::annotation::MANAGED_ATTACH.text();
    let base = json!({
        "metadata": {"name": name, "annotations": {managed: "true"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    read(over(base, patch))
}

fn told() -> Value {
    json!({"status": {"volumesAttached": [{"name": unique_name(DRIVER, HANDLE), "devicePath": ""}]}})
}

fn drivers(names: &[&str]) -> CsiNode {
    let drivers: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "nodeID": "1", "allocatable": {"count": 1}})).collect();
    read(json!({"metadata": {"name": "node-1"}, "spec": {"drivers": drivers}}))
}

/// Everything is as it should be, and the mount is missing.
fn around(pod: &Pod) -> Picture {
    Picture {
        claims: seen([bound()]),
        volumes: seen([held()]),
        pods: seen([pod.clone()]),
        nodes: seen([machine("node-1", told()), machine("node-2", json!({}))]),
        csi_nodes: seen([drivers(&[DRIVER])]),
        attachments: seen([attachment("node-1", json!({}))]),
        ..empty()
    }
}

fn condition(status: &str, reason: &str, message: &str) -> Value {
    let kind = api::keys::condition::VOLUMES_READY;
    json!({"status": {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}})
}

#[test]
fn a_pod_without_its_volumes_says_who_has_to_move() {
    let pod = web(json!({}));
    let elsewhere = |node: Node| Picture {
        attachments: seen([attachment("node-2", json!({}))]),
        nodes: seen([machine("node-1", json!({})), node]),
        ..around(&pod)
    };
    let user = super::pod("other", json!({"spec": {"nodeName": "node-2"}, "status": {"phase": "Running"}}));
    let used = Picture { pods: seen([pod.clone(), user]), ..elsewhere(machine("node-2", json!({}))) };
    let dead = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}],
                                 "volumesInUse": [unique_name(DRIVER, HANDLE)]}});
    let full = json!({"status": {"attached": false,
                                 "attachError": {"message": "no more slots", "errorCode": 8, "time": EARLIER}}});
    let refused = Picture { attachments: seen([attachment("node-1", full)]), ..around(&pod) };
    let silent =
        Picture { attachments: seen([attachment("node-1", json!({"status": {"attached": false}}))]), ..around(&pod) };
    let unregistered = Picture { csi_nodes: seen([drivers(&["other"])]), ..around(&pod) };
    let message = "MountVolume.SetUp failed for volume \"v\" : rpc error: code = Internal desc = mkfs failed";
    let failing = Picture { events: seen([event("Pod", ("web", "web-uid"), "FailedMount", message)]), ..around(&pod) };
    let hung = web(condition("False", "Hung", "could not look at /x/mount within 10s: the path does not answer"));
    let down =
        machine("node-1", over(told(), json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})));
    let not_ready = Picture { nodes: seen([down]), ..around(&pod) };
    let device = web(condition(
        "False",
        "ModeMismatch",
        "data: the volume \"v\" has volumeMode Block, and the pod uses it as a filesystem",
    ));
    let missing = Picture { claims: seen([]), ..around(&pod) };
    check(
        "pod-volumes.txt",
        &[
            row("10, 32: another pod has it elsewhere", explain::pod(&used, &pod), Waiting, "attach/held"),
            row(
                "9, 12: a dead node has it",
                explain::pod(&elsewhere(machine("node-2", dead)), &pod),
                Stuck,
                "attach/in_use",
            ),
            row("19: the node is full", explain::pod(&refused, &pod), Waiting, "attach/attach_failed"),
            row("the attacher says nothing", explain::pod(&silent, &pod), Waiting, "attach/attach_overdue"),
            row("21: the driver is not registered", explain::pod(&unregistered, &pod), Waiting, "node/driver_missing"),
            row("29: kubelet cannot mount it", explain::pod(&failing, &pod), Waiting, "around/agent_says"),
            row("36: the mount hangs", explain::pod(&around(&hung), &hung), Waiting, "node/hung"),
            row("its node is down", explain::pod(&not_ready, &pod), Waiting, "around/pod_node_not_ready"),
            row("nobody has said anything", explain::pod(&around(&pod), &pod), Waiting, "around/agent_silent"),
            row("it is no filesystem", explain::pod(&around(&device), &device), Waiting, "around/agent_says"),
            row("its claim is missing", explain::pod(&missing, &pod), Waiting, "node/claim_missing"),
        ],
    );
}

#[test]
fn a_pod_that_has_its_volumes_is_well() {
    let ready = web(condition("True", "ready", "all volumes are mounted"));
    let explanation = explain::pod(&around(&ready), &ready);
    assert_eq!(explanation.standing, Settled, "{explanation}");
    assert!(explanation.healthy());
}

#[test]
fn a_pod_that_has_its_volumes_on_a_node_that_attaches_by_itself_is_well() {
    let ready = web(condition("True", "ready", "all volumes are mounted"));
    let alone: Node = read(json!({"metadata": {"name": "node-1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    for attachments in [vec![attachment("node-1", json!({}))], vec![]] {
        let nodes = seen([alone.clone()]);
        let picture = Picture { nodes, attachments: explain::Listing::Seen(attachments), ..around(&ready) };
        let explanation = explain::pod(&picture, &ready);
        assert_eq!(explanation.standing, Settled, "{explanation}");
    }
}

#[test]
fn a_pod_that_does_not_go_says_who_holds_it() {
    let metadata = json!({"metadata": {"deletionTimestamp": EARLIER, "deletionGracePeriodSeconds": 1800}});
    let pod = web(metadata.clone());
    let message = "UnmountVolume.TearDown failed for volume \"v\" : target is busy";
    let busy = Picture { events: seen([event("Pod", ("web", "web-uid"), "FailedUnmount", message)]), ..around(&pod) };
    let gone = Picture { nodes: seen([]), ..around(&pod) };
    let kept = web(over(metadata, json!({"metadata": {"finalizers": [api::keys::finalizer::HOST_MOUNT.text()]}})));
    check(
        "pods-going.txt",
        &[
            row("its mount is busy", explain::pod(&busy, &pod), Waiting, "around/pod_leaving"),
            row("11: its node is gone", explain::pod(&gone, &pod), Stuck, "around/pod_node_gone"),
            row("a machine still uses it", explain::pod(&around(&kept), &kept), Waiting, "around/pod_leaving"),
        ],
    );
}
