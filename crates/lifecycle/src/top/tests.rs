//! What is full, on a cluster with and without anybody who measures.

use api::object::UnixSeconds;
use api::{Attachment, Capacity, CsiNode, Node, Pod};
use serde_json::{Value, json};

use super::*;
use crate::attach::unique_name;
use crate::bind::tests::{claim, read, volume};
use crate::explain::Listing;
use crate::measured::queues;
use crate::table::Look;
use crate::table::tests::golden;

const DRIVER: &str = "d.example.com";

fn bound(name: &str, namespace: &str) -> Claim {
    claim(json!({"metadata": {"name": name, "namespace": namespace},
        "spec": {"volumeName": format!("v-{name}")}, "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}}))
}

fn attachment(name: &str, node: &str) -> Attachment {
    read(json!({"metadata": {"name": format!("csi-{name}-{node}")}, "spec": {"attacher": DRIVER, "nodeName": node,
        "source": {"persistentVolumeName": format!("v-{name}")}}, "status": {"attached": true}}))
}

fn node(name: &str, ready: &str, in_use: &[&str]) -> Node {
    let names: Vec<String> = in_use.iter().map(|handle| unique_name(DRIVER, handle)).collect();
    read(json!({"metadata": {"name": name}, "status": {
        "conditions": [{"type": "Ready", "status": ready}], "volumesInUse": names}}))
}

fn csi_node(name: &str, count: Value) -> CsiNode {
    read(json!({"metadata": {"name": name}, "spec": {"drivers": [
        {"name": DRIVER, "nodeID": "i", "allocatable": {"count": count}}]}}))
}

fn capacity(name: &str, topology: Value, amounts: (&str, Value)) -> Capacity {
    read(json!({"metadata": {"name": name, "namespace": "s"}, "storageClassName": "fast", "nodeTopology": topology,
        "capacity": amounts.0, "maximumVolumeSize": amounts.1}))
}

fn cluster() -> Picture {
    let csi = |handle: &str| json!({"spec": {"csi": {"driver": DRIVER, "volumeHandle": handle}}});
    let pod: Pod =
        read(json!({"metadata": {"name": "p", "namespace": "shop", "uid": "p"}, "spec": {"nodeName": "node-2",
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "unattached"}}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"running": {}}}]}}));
    Picture {
        now: UnixSeconds(0),
        claims: Listing::Seen(vec![
            bound("half", "shop"),
            bound("full", "shop"),
            bound("unattached", "shop"),
            bound("other", "elsewhere"),
            claim(json!({"metadata": {"name": "pending", "namespace": "shop"}})),
        ]),
        volumes: Listing::Seen(vec![volume("v-half", csi("h-half")), volume("v-full", csi("h-full"))]),
        pods: Listing::Seen(vec![pod]),
        nodes: Listing::Seen(vec![
            node("node-1", "True", &["h-half", "h-inline"]),
            node("node-2", "False", &[]),
            node("node-3", "True", &["h-lost"]),
        ]),
        csi_nodes: Listing::Seen(vec![csi_node("node-1", json!(3)), csi_node("node-2", json!(null))]),
        attachments: Listing::Seen(vec![
            attachment("half", "node-1"),
            attachment("full", "node-1"),
            attachment("nobody", "node-2"),
        ]),
        capacities: Listing::Seen(vec![
            capacity("b", json!({"matchLabels": {"zone": "b"}}), ("5Gi", json!("1Gi"))),
            capacity("a", json!({}), ("1500Mi", json!(null))),
            capacity("c", json!(null), ("0", json!(null))),
        ]),
        ..Picture::default()
    }
}

fn measured() -> Measured {
    let stats = |claim: &str, used: u64| {
        let labels = format!(r#"{{namespace="shop",persistentvolumeclaim="{claim}"}}"#);
        format!(
            "kubelet_volume_stats_used_bytes{labels} {used}\nkubelet_volume_stats_capacity_bytes{labels} 2147483648\n\
             kubelet_volume_stats_available_bytes{labels} {}\n",
            2_147_483_648 - used
        )
    };
    let mut usages = Usages::default();
    usages.add(&(stats("half", 1 << 30) + &stats("full", 2_100_000_000)));
    usages.add(r#"kubelet_volume_stats_health_status_abnormal{namespace="shop",persistentvolumeclaim="full"} 1"#);
    let text = "workqueue_depth{name=\"idle\"} 0\nworkqueue_depth{name=\"claims\"} 3\n\
                workqueue_longest_running_processor_seconds{name=\"claims\"} 2.25\n";
    let queues = queues(text).into_iter().map(|queue| ("127.0.0.1:8080".into(), queue)).collect();
    let node = |name: &str| Unreachable {
        what: format!("usage of the volumes on node {name}"),
        node: Some(name.into()),
        why: "not served".into(),
    };
    // The volumes of node-1 were measured all the same, and on node-3 nothing is mounted that could be.
    let unreachable = vec![node("node-1"), node("node-2"), node("node-3")];
    Measured { usages, queues, unreachable }
}

#[test]
fn the_fullest_comes_first_and_what_is_not_reachable_is_named() {
    let top = arrange(&cluster(), measured(), None);
    golden("top/golden/all.txt", &top.text(Look::PLAIN));
    golden("top/golden/all_wide.txt", &top.text(Look::WIDE));
    golden("top/golden/all.json", &format!("{:#}\n", top.value()));
}

#[test]
fn the_api_alone_shows_places_and_room() {
    let top = arrange(&cluster(), Measured::default(), Some("shop"));
    golden("top/golden/api_only.txt", &top.text(Look::PLAIN));
    assert!(top.claims.iter().all(|filling| filling.claim.namespace() == Some("shop")));
}

#[test]
fn a_volume_that_is_attached_and_used_takes_one_place_and_an_unknown_one_takes_one_too() {
    let places = arrange(&cluster(), Measured::default(), None).places;
    let taken: Vec<(&str, usize, Limit)> =
        places.iter().map(|places| (&*places.node, places.taken, places.limit)).collect();
    let expected = [("node-1", 3, Limit::Of(3)), ("node-2", 1, Limit::None), ("node-3", 1, Limit::Unregistered)];
    assert_eq!(taken, expected);
}

#[test]
fn an_empty_cluster_has_nothing_to_show() {
    let picture = Picture { now: UnixSeconds(0), ..Picture::default() };
    assert_eq!(arrange(&picture, Measured::default(), None).text(Look::PLAIN), "There is nothing to show.\n");
}
