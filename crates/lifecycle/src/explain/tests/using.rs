//! Bound claims whose pods cannot use them.

use serde_json::json;

use super::{Picture, check, empty, event, pod, row, seen};
use crate::bind::tests::{COMPLETED, annotated, bond, claim, over, read, volume};
use crate::decision::Standing::{Settled, Stuck, Waiting};
use crate::explain;

fn bound() -> api::Claim {
    let status =
        json!({"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"]}});
    claim(over(over(annotated(&[COMPLETED]), json!({"spec": {"volumeName": "v"}})), status))
}

fn around<const N: usize>(pods: [api::Pod; N]) -> Picture {
    let held = volume("v", over(bond(), json!({"status": {"phase": "Bound"}})));
    Picture { pods: seen(pods), volumes: seen([held]), ..empty() }
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
    let ready = json!([{"type": api::keys::condition::VOLUMES_READY, "status": "True"}]);
    let settled = pod("web-0", json!({"spec": {"nodeName": "node-1"}, "status": {"conditions": ready}}));
    let past = Picture { events: said("FailedMount", mount), ..around([settled]) };
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
            row("29: it is not the volume", explain::claim(&other, &bound()), Settled, "bind/bound"),
            row("29: it was mounted since", explain::claim(&past, &bound()), Settled, "bind/bound"),
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
