//! Pods that want the same.

use api::keys::provisioner;
use serde_json::{Value, json};

use crate::rig::{Rig, claim, claimed, class, in_rig, pod, volume};

/// The pods that have a node.
async fn with_nodes(rig: &Rig) -> Vec<String> {
    let pods = rig.list("pods").await;
    let has_node = |pod: &&Value| pod["spec"]["nodeName"].is_string();
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    pods.iter().filter(has_node).map(name).collect()
}

/// Rule: CTRL-I12
#[test]
fn of_two_pods_one_gets_the_last_volume_and_the_other_the_next() {
    in_rig(|rig| async move {
        rig.nodes(&["a"]).await;
        let mut bare = class("late");
        bare["provisioner"] = json!(provisioner::NONE);
        rig.create(bare).await;
        rig.create(claim("c", "1Gi")).await;
        rig.create(claim("d", "1Gi")).await;
        rig.create(volume("v", "2Gi", None)).await;
        rig.create(pod("p", &["c"])).await;
        rig.create(pod("q", &["d"])).await;
        rig.scheduled("p").await;
        let nothing = "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind.";
        rig.unscheduled("q", nothing).await;
        rig.settle().await;
        assert_eq!(with_nodes(&rig).await, ["p"]);
        rig.create(volume("w", "2Gi", None)).await;
        rig.scheduled("q").await;
        assert_eq!(claimed(&rig.get("persistentvolumes", "w").await), Some("d"));
    });
}

async fn telling_driver(rig: &Rig, capacity: &str) {
    rig.create(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "d.example.com"},
                      "spec": {"storageCapacity": true}}))
        .await;
    rig.create(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
                      "metadata": {"name": "all", "namespace": "default"}, "storageClassName": "late",
                      "nodeTopology": {}, "capacity": capacity}))
        .await;
}

/// Rule: CTRL-14.22
#[test]
fn of_two_pods_one_gets_the_last_room() {
    in_rig(|rig| async move {
        rig.nodes(&["a"]).await;
        rig.create(class("late")).await;
        telling_driver(&rig, "5Gi").await;
        rig.sleep(true);
        rig.create(claim("c", "4Gi")).await;
        rig.create(claim("d", "4Gi")).await;
        rig.create(pod("p", &["c"])).await;
        rig.create(pod("q", &["d"])).await;
        let no_room = "0/1 nodes are available: 1 node(s) did not have enough free storage.";
        rig.unscheduled("q", no_room).await;
        rig.sleep(false);
        rig.scheduled("p").await;
        // The driver says what is left, and later that it has more.
        rig.patch("csistoragecapacities", "all", json!({"capacity": "1Gi"})).await;
        rig.settle().await;
        assert_eq!(with_nodes(&rig).await, ["p"], "the volume of p is made, and was taken off");
        rig.patch("csistoragecapacities", "all", json!({"capacity": "8Gi"})).await;
        rig.scheduled("q").await;
    });
}

/// Rule: SCHED-5.3
#[test]
fn room_that_is_never_written_anew_is_trusted_again_after_a_minute() {
    in_rig(|rig| async move {
        rig.nodes(&["a"]).await;
        rig.create(class("late")).await;
        telling_driver(&rig, "5Gi").await;
        rig.create(claim("c", "4Gi")).await;
        rig.create(pod("p", &["c"])).await;
        rig.scheduled("p").await;
        rig.create(claim("d", "4Gi")).await;
        rig.create(pod("q", &["d"])).await;
        let no_room = "0/1 nodes are available: 1 node(s) did not have enough free storage.";
        rig.unscheduled("q", no_room).await;
        rig.scheduled("q").await;
    });
}

/// Rule: SCHED-5.9
#[test]
fn a_claim_for_one_pod_waits_until_that_pod_is_gone() {
    in_rig(|rig| async move {
        rig.nodes(&["a"]).await;
        rig.create(class("late")).await;
        let mut exclusive = claim("c", "1Gi");
        exclusive["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
        rig.create(exclusive).await;
        let mut room = volume("v", "2Gi", None);
        room["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
        rig.create(room).await;
        rig.create(pod("p", &["c"])).await;
        rig.create(pod("q", &["c"])).await;
        rig.scheduled("p").await;
        let in_use = "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with \
                      ReadWriteOncePod access mode already in-use by another pod.";
        rig.unscheduled("q", in_use).await;
        rig.settle().await;
        assert_eq!(with_nodes(&rig).await, ["p"]);
        rig.delete_pod("p").await;
        rig.scheduled("q").await;
    });
}

/// Rule: SCHED-5.9
#[test]
fn a_node_takes_no_more_volumes_than_its_driver_says() {
    in_rig(|rig| async move {
        rig.nodes(&["a"]).await;
        rig.create(class("late")).await;
        let driver = json!({"name": "d.example.com", "nodeID": "a", "topologyKeys": null, "allocatable": {"count": 1}});
        rig.create(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "a"},
                          "spec": {"drivers": [driver]}}))
            .await;
        for (claimed, name) in [("c", "p"), ("d", "q")] {
            rig.create(claim(claimed, "1Gi")).await;
            rig.create(pod(name, &[claimed])).await;
        }
        rig.scheduled("p").await;
        rig.unscheduled("q", "0/1 nodes are available: 1 node(s) exceed max volume count.").await;
        rig.delete_pod("p").await;
        rig.scheduled("q").await;
    });
}

/// Rule: CTRL-13.28
#[test]
fn two_pods_share_a_claim_and_its_node() {
    in_rig(|rig| async move {
        rig.nodes(&["a", "b"]).await;
        rig.create(class("late")).await;
        rig.create(claim("c", "1Gi")).await;
        rig.create(pod("p", &["c"])).await;
        rig.create(pod("q", &["c"])).await;
        let (p, q) = (rig.scheduled("p").await, rig.scheduled("q").await);
        assert_eq!(p["spec"]["nodeName"], q["spec"]["nodeName"]);
    });
}
