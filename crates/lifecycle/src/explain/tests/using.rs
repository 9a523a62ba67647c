//! Bound claims whose pods cannot use them.

use serde_json::json;

use super::{Picture, check, empty, event, pod, row, seen};
use crate::bind::tests::{COMPLETED, annotated, bond, claim, class, over, read, volume};
use crate::decision::Standing::{Settled, Stuck, Waiting};
use crate::explain;

fn bound() -> api::Claim {
    let status =
        json!({"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"]}});
    claim(over(over(annotated(&[COMPLETED]), json!({"spec": {"volumeName": "v"}})), status))
}

fn around<const N: usize>(pods: [api::Pod; N]) -> Picture {
    let held = volume("v", over(bond(), json!({"status": {"phase": "Bound"}})));
    let unattached: api::CsiDriver = read(json!({"metadata": {"name": "d"}, "spec": {"attachRequired": false}}));
    Picture { pods: seen(pods), volumes: seen([held]), claims: seen([bound()]), drivers: seen([unattached]), ..empty() }
}

/// A node whose volumes are attached by a controller.
fn machine(name: &str) -> api::Node {
    let managed = api::keys::annotation::MANAGED_ATTACH.text();
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    read(json!({"metadata": {"name": name, "annotations": {managed: "true"}}, "status": ready}))
}

#[test]
fn a_pod_that_cannot_use_its_volume_says_what_keeps_it() {
    let starting = || pod("web-0", json!({"spec": {"nodeName": "node-1"}}));
    let running = |name| pod(name, json!({"spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}}));
    let attachment = |status: serde_json::Value| -> api::Attachment {
        let source = json!({"persistentVolumeName": "v"});
        read(json!({"metadata": {"name": "csi-1"}, "spec": {"attacher": "d", "nodeName": "node-2", "source": source},
                    "status": status}))
    };
    let said = |reason: &str, message: &str| seen([event("Pod", ("web-0", "web-0-uid"), reason, message)]);
    let multi = "Multi-Attach error for volume \"v\" Volume is already exclusively attached to one node";
    let elsewhere = Picture {
        attachments: seen([attachment(json!({"attached": true}))]),
        events: said("FailedAttachVolume", multi),
        ..around([starting()])
    };
    let mount = "MountVolume.SetUp failed for volume \"v\" : rpc error: code = Internal desc = mkfs failed";
    let failing = Picture { events: said("FailedMount", mount), ..around([starting()]) };
    let other = Picture { events: said("FailedMount", "configmap \"x\" is missing"), ..around([starting()]) };
    let ready = json!({"type": api::keys::condition::VOLUMES_READY, "status": "True", "reason": "Ready"});
    let shown = pod("web-0", json!({"spec": {"nodeName": "node-1"}, "status": {"conditions": [ready]}}));
    let over_now = Picture { events: said("FailedMount", mount), ..around([shown]) };
    let error = json!({"attached": false, "attachError": {"message": "no more slots"}});
    let refused = Picture { attachments: seen([attachment(error)]), ..around([starting()]) };
    let made_for = json!({"metadata": {"name": "c"}, "spec": {"volumes": null}});
    let ephemeral = json!({"spec": {"volumes": [{"name": "c", "ephemeral": {"volumeClaimTemplate": {}}}]}});
    let mut named = bound();
    named.meta.key = named.meta.key.sibling("c-c");
    let foreign = Picture { pods: seen([pod("c", over(made_for, ephemeral))]), ..around([]) };
    let mut given = volume("v", over(bond(), json!({"status": {"phase": "Bound"}})));
    given.claim.as_mut().unwrap().key = named.meta.key.clone();
    let foreign = Picture { volumes: seen([given]), ..foreign };
    check(
        "using.txt",
        &[
            row(
                "10, 32: attached elsewhere",
                explain::claim(&elsewhere, &bound()),
                Waiting,
                "around/attached_elsewhere",
            ),
            row("29: it cannot be mounted", explain::claim(&failing, &bound()), Waiting, "around/pod_not_started"),
            row("29: it could not, and has it now", explain::claim(&over_now, &bound()), Settled, "bind/bound"),
            row("29: it is not the volume", explain::claim(&other, &bound()), Settled, "bind/bound"),
            row("19: it cannot be attached", explain::claim(&refused, &bound()), Waiting, "around/attach_failed"),
            row(
                "7: two pods write",
                explain::claim(&around([running("a"), running("b")]), &bound()),
                Settled,
                "bind/bound",
            ),
            row("a claim in the way of a pod's own", explain::claim(&foreign, &named), Stuck, "ephemeral/not_owned"),
        ],
    );
}

#[test]
fn a_bound_claim_whose_pod_waits_for_something_else_says_for_what() {
    let on = |name: &str, node: &str| pod(name, json!({"spec": {"nodeName": node}}));
    let attached = |status: serde_json::Value| -> api::Attachment {
        let name = crate::attach::attachment_name("d", "v", "node-1");
        let spec = json!({"attacher": "d", "nodeName": "node-1", "source": {"persistentVolumeName": "v"}});
        read(json!({"metadata": {"name": name, "creationTimestamp": super::LATELY}, "spec": spec, "status": status}))
    };
    let required = |pods: [api::Pod; 1]| Picture {
        drivers: seen([]),
        nodes: seen([machine("node-1"), machine("node-2")]),
        classes: seen([class("fast", json!({}))]),
        ..around(pods)
    };
    let silent = Picture {
        attachments: seen([attached(json!({"attached": false}))]),
        leases: seen([super::lease("external-attacher-leader-d", "", super::EARLIER)]),
        ..required([on("web-0", "node-1")])
    };
    let selector = json!({"spec": {"nodeSelector": {"disk": "ssd"}}});
    let unplaced = required([pod("web-0", selector)]);
    let asks = |size: &str, status: serde_json::Value| {
        let request = json!({"spec": {"resources": {"requests": {"storage": size}}}});
        let patch = over(over(annotated(&[COMPLETED]), json!({"spec": {"volumeName": "v"}})), request);
        let held =
            json!({"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"]}});
        claim(over(over(patch, held), json!({"status": status})))
    };
    let resizing = |status: &str| json!({"allocatedResources": {"storage": "4Gi"}, "allocatedResourceStatuses": {"storage": status}});
    let grows = |status| explain::claim(&around([]), &asks("4Gi", status));
    let secret = "MountVolume.SetUp failed for volume \"v\" : secrets \"creds\" not found";
    let events = seen([event("Pod", ("web-0", "web-0-uid"), "FailedMount", secret)]);
    let no_secret = Picture { events, ..around([on("web-0", "node-1")]) };
    let apart = Picture { pods: seen([on("a", "node-1"), on("b", "node-2")]), ..around([]) };
    check(
        "using_waits.txt",
        &[
            row("12: the attacher says nothing", explain::claim(&silent, &bound()), Waiting, "attach/attaching"),
            row("its pod fits nowhere", explain::claim(&unplaced, &bound()), Stuck, "schedule/refused"),
            row("17: nobody makes it larger", grows(json!({})), Waiting, "around/growing"),
            row("17: the filesystem follows", grows(resizing("NodeResizePending")), Waiting, "around/growing"),
            row("17: it never will", grows(resizing("ControllerResizeInfeasible")), Stuck, "around/growing"),
            row("29: a secret is missing", explain::claim(&no_secret, &bound()), Waiting, "around/pod_not_started"),
            row("7: two pods on two nodes", explain::claim(&apart, &bound()), Settled, "bind/bound"),
        ],
    );
}
