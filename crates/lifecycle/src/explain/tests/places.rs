//! Delayed binding: pods, nodes, topology and room.

use api::Claim;
use api::keys::annotation::{SELECTED_NODE, STORAGE_PROVISIONER};
use serde_json::json;

use super::{EARLIER, LATELY, Picture, check, empty, event, lease, node, pod, row, seen};
use crate::bind::tests::{claim, class, over, read};
use crate::decision::Standing::{Stuck, Waiting};
use crate::explain;

const DRIVER: &str = "d.example.com";

fn delayed(patch: serde_json::Value) -> Picture {
    let class = class("fast", over(json!({"volumeBindingMode": "WaitForFirstConsumer"}), patch));
    Picture {
        claims: seen([unplaced()]),
        classes: seen([class]),
        leases: seen([lease("d-example-com", "host_1", LATELY)]),
        nodes: seen([node("node-2", json!({}))]),
        ..empty()
    }
}

fn unplaced() -> Claim {
    claim(json!({"metadata": {"creationTimestamp": EARLIER}}))
}

fn placed(on: &str) -> Claim {
    claim(json!({"metadata": {"creationTimestamp": EARLIER, "annotations": {
        SELECTED_NODE.text(): on, STORAGE_PROVISIONER.text(): DRIVER}}}))
}

#[test]
fn a_claim_that_waits_for_a_pod_says_that_this_is_normal_or_that_it_never_ends() {
    let claim = unplaced();
    let with = |pods| Picture { pods, ..delayed(json!({})) };
    let message = "0/3 nodes are available: 3 node(s) did not have enough free storage.";
    let refused = Picture {
        events: seen([event("Pod", ("p", "p-uid"), "FailedScheduling", message)]),
        ..with(seen([pod("p", json!({}))]))
    };
    let two = pod(
        "p",
        json!({"spec": {"volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "more", "persistentVolumeClaim": {"claimName": "nowhere"}}]}}),
    );
    let says = "persistentvolumeclaim \"nowhere\" not found";
    let unschedulable =
        json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": says}]}});
    let condition = pod(
        "p",
        over(
            json!({"spec": {"volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "more", "persistentVolumeClaim": {"claimName": "nowhere"}}]}}),
            unschedulable,
        ),
    );
    let elsewhere = json!({"spec": {"nodeSelector": {"disk": "ssd"}}});
    let nowhere = Picture { pods: seen([pod("p", elsewhere)]), ..delayed(json!({})) };
    let gated = pod("p", json!({"spec": {"schedulingGates": [{"name": "g"}]}}));
    let pinned = pod("p", json!({"spec": {"nodeName": "node-1"}}));
    check(
        "pods.txt",
        &[
            row("31: no pod yet", explain::claim(&with(seen([])), &claim), Waiting, "bind/no_pod"),
            row("31: past the scheduler", explain::claim(&with(seen([pinned])), &claim), Stuck, "around/pod_pinned"),
            row("44: refused", explain::claim(&refused, &claim), Waiting, "around/pod_refused"),
            row(
                "refused, as the pod says",
                explain::claim(&with(seen([condition])), &claim),
                Stuck,
                "schedule/unready",
            ),
            row("unnoticed", explain::claim(&with(seen([two])), &claim), Stuck, "schedule/unready"),
            row(
                "unnoticed, and nothing is wrong",
                explain::claim(&with(seen([pod("p", json!({}))])), &claim),
                Waiting,
                "around/pod_unnoticed",
            ),
            row("no node would do", explain::claim(&nowhere, &claim), Stuck, "schedule/refused"),
            row("gated", explain::claim(&with(seen([gated])), &claim), Stuck, "around/pod_gated"),
        ],
    );
}

#[test]
fn a_node_or_a_place_where_no_volume_can_be_made_is_named() {
    let zone = json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}]});
    let csi = |drivers: serde_json::Value| -> api::CsiNode {
        read(json!({"metadata": {"name": "node-1"}, "spec": {"drivers": drivers}}))
    };
    let known = |picture: Picture| Picture { drivers: seen([read(json!({"metadata": {"name": DRIVER}}))]), ..picture };
    let on = |picture, labels| Picture { nodes: seen([node("node-1", labels)]), ..known(picture) };
    let keyed = csi(json!([{"name": DRIVER, "nodeID": "1", "topologyKeys": ["zone"]}]));
    let bare = Picture { csi_nodes: seen([csi(json!([]))]), ..on(delayed(json!({})), json!({})) };
    let unlabelled = Picture { csi_nodes: seen([keyed]), ..on(delayed(json!({})), json!({})) };
    let immediate = Picture {
        classes: seen([class("fast", zone.clone())]),
        nodes: seen([node("node-1", json!({"zone": "c"}))]),
        ..delayed(json!({}))
    };
    let elsewhere = on(delayed(zone.clone()), json!({"zone": "c"}));
    let nowhere = Picture { pods: seen([pod("p", json!({}))]), ..on(delayed(zone), json!({"zone": "c"})) };
    check(
        "places.txt",
        &[
            row(
                "20: the node is gone",
                explain::claim(&delayed(json!({})), &placed("node-1")),
                Stuck,
                "around/node_gone",
            ),
            row("25: no driver there", explain::claim(&bare, &placed("node-1")), Waiting, "around/node_lacks_driver"),
            row("no label", explain::claim(&unlabelled, &placed("node-1")), Stuck, "around/topology_key_missing"),
            row("6: another zone", explain::claim(&elsewhere, &placed("node-1")), Stuck, "around/topology_excludes"),
            row("6: no such zone", explain::claim(&immediate, &asked()), Stuck, "around/topology_excludes"),
            row("6: no such zone for a pod", explain::claim(&nowhere, &unplaced()), Stuck, "around/topology_excludes"),
        ],
    );
}

fn asked() -> Claim {
    claim(json!({"metadata": {"creationTimestamp": EARLIER, "annotations": {STORAGE_PROVISIONER.text(): DRIVER}}}))
}

#[test]
fn room_is_compared_with_what_the_driver_publishes() {
    let driver: api::CsiDriver = read(json!({"metadata": {"name": DRIVER}, "spec": {"storageCapacity": true}}));
    let capacity = |name: &str, amount: &str| -> api::Capacity {
        read(json!({"metadata": {"name": name, "namespace": "storage"}, "storageClassName": "fast", "capacity": amount,
                    "nodeTopology": {"matchLabels": {"zone": name}}}))
    };
    let publishing = |capacities| Picture {
        drivers: seen([driver.clone()]),
        capacities,
        pods: seen([pod("p", json!({}))]),
        nodes: seen([node("node-1", json!({"zone": "a"}))]),
        ..delayed(json!({}))
    };
    let little = || publishing(seen([capacity("a", "1Gi"), capacity("b", "500Mi")]));
    let there = || publishing(seen([capacity("a", "1Gi"), capacity("b", "9Gi")]));
    check(
        "room.txt",
        &[
            row("44: nowhere", explain::claim(&little(), &unplaced()), Stuck, "around/no_room"),
            row("44: nothing published", explain::claim(&publishing(seen([])), &unplaced()), Stuck, "around/no_room"),
            row("44: only where there is no node", explain::claim(&there(), &unplaced()), Stuck, "schedule/refused"),
            row("44: not on its node", explain::claim(&there(), &placed("node-1")), Stuck, "around/no_room"),
        ],
    );
}
