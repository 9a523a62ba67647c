//! What Node and CSINode say over time: NODE-4.2 to NODE-4.4, NODE-31.15, NODE-31.32, NODE-32.5.

use std::time::Duration;

use api::keys::annotation;
use api::{Key, Kind};
use serde_json::json;
use tokio::time::sleep;

use crate::plugins::info;
use crate::stage::{GRACE, NODE, Stage, at_every_request, play, registry};

const SOCKET: &str = "/reg/d-reg.sock";
const ENDPOINT: &str = "/csi/d.sock";

fn csi_node(owner: &serde_json::Value, drivers: serde_json::Value) -> serde_json::Value {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": owner});
    json!({"metadata": {"name": NODE, "ownerReferences": [owner]}, "spec": {"drivers": drivers}})
}

/// Rule: NODE-31.15
#[test]
fn entries_of_an_earlier_life_go_after_the_grace_and_not_before_at_every_fault() {
    at_every_request(&registry(), async |stage: &Stage| {
        let node = stage.user.node(json!({})).await;
        let drivers = json!([{"name": "gone", "nodeID": "x"}, {"name": "d", "nodeID": "machine-7"}]);
        stage.user.create(Kind::CSI_NODE, csi_node(&node["metadata"]["uid"], drivers)).await;
        sleep(GRACE / 2).await;
        assert_eq!(stage.user.listed().await, ["gone", "d"], "whoever was there may come back");
        stage.shelf.driver("d", ENDPOINT);
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        stage.user.until("registered", async || socket.is_registered()).await;
        stage.user.until("the other is gone", async || stage.user.listed().await == ["d"]).await;
    });
}

/// Rule: NODE-4.2
#[test]
fn a_csinode_names_the_plugins_whose_volumes_go_through_drivers() {
    play(&registry(), async |stage: &Stage| {
        let node = stage.user.node(json!({})).await;
        // One that an agent made which translated nothing.
        stage.user.create(Kind::CSI_NODE, csi_node(&node["metadata"]["uid"], json!([]))).await;
        let named = async || {
            let csi_node = stage.user.our(Kind::CSI_NODE).await;
            let named = csi_node["metadata"]["annotations"][annotation::MIGRATED_PLUGINS.text()].clone();
            named.as_str().unwrap_or_default().to_owned()
        };
        stage.user.until("they are named", async || !named().await.is_empty()).await;
        let short = ["aws-ebs", "azure-disk", "azure-file", "cinder", "gce-pd", "portworx-volume", "vsphere-volume"];
        let full = short.map(|name| format!("{}{name}", api::keys::provisioner::IN_TREE_PREFIX));
        assert_eq!(named().await, full.join(","), "sorted");
    });
}

/// Rules: NODE-4.2, NODE-30.20
#[test]
fn a_csinode_of_a_namesake_is_made_anew_at_every_fault() {
    at_every_request(&registry(), async |stage: &Stage| {
        let node = stage.user.node(json!({})).await;
        let stranger = csi_node(&json!("00000000-0000-0000-0000-000000000001"), json!([{"name": "s", "nodeID": "x"}]));
        stage.user.create(Kind::CSI_NODE, stranger).await;
        let uid = node["metadata"]["uid"].clone();
        let ours = async || {
            let csi_node = stage.user.our(Kind::CSI_NODE).await;
            csi_node["metadata"]["ownerReferences"][0]["uid"] == uid && stage.user.listed().await.is_empty()
        };
        stage.user.until("it is ours", ours).await;
    });
}

/// Rule: NODE-4.4
#[test]
fn a_volume_without_a_slot_has_the_limit_read_again_at_once_if_it_is_followed() {
    play(&registry(), async |stage: &Stage| {
        stage.user.node(json!({})).await;
        let driver = stage.shelf.driver("d", ENDPOINT);
        driver.with().limit = 7;
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        stage.user.until("registered", async || socket.is_registered()).await;
        let count = async || stage.user.our(Kind::CSI_NODE).await["spec"]["drivers"][0]["allocatable"]["count"].clone();
        driver.with().limit = 5;
        stage.drivers().had_no_slot("d");
        stage.drivers().had_no_slot("nobody");
        sleep(Duration::from_secs(5)).await;
        assert_eq!(count().await, 7, "without a period nothing is followed");
        let spec = json!({"nodeAllocatableUpdatePeriodSeconds": 3600});
        stage.user.create(Kind::CSI_DRIVER, json!({"metadata": {"name": "d"}, "spec": spec})).await;
        sleep(Duration::from_secs(5)).await;
        stage.drivers().had_no_slot("d");
        let begun = tokio::time::Instant::now();
        stage.user.until("CSINode says so", async || count().await == 5).await;
        assert!(begun.elapsed() < Duration::from_secs(60), "long before the period is over");
    });
}

/// Rules: NODE-4.4, NODE-32.5
#[test]
fn the_limit_is_asked_for_from_time_to_time_and_only_csinode_changes() {
    play(&registry(), async |stage: &Stage| {
        stage.user.node(json!({})).await;
        let spec = json!({"attachRequired": true, "nodeAllocatableUpdatePeriodSeconds": 60});
        stage.user.create(Kind::CSI_DRIVER, json!({"metadata": {"name": "d"}, "spec": spec})).await;
        let driver = stage.shelf.driver("d", ENDPOINT);
        driver.with().limit = 5;
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        stage.user.until("registered", async || socket.is_registered()).await;
        let (asked, nodes) = (stage.writes("NodeGetInfo"), stage.writes("/nodes/node-1"));
        driver.with().limit = 3_000_000_000;
        driver.with().node_id = "not the business of a refresh".to_owned();
        sleep(Duration::from_secs(50)).await;
        assert_eq!(stage.writes("NodeGetInfo"), asked, "the first time comes after a full period");
        let count = async |count: i64| {
            let csi_node = stage.user.our(Kind::CSI_NODE).await;
            csi_node["spec"]["drivers"][0]["allocatable"]["count"] == count
                && csi_node["spec"]["drivers"][0]["nodeID"] == "machine-7"
        };
        stage.user.until("it is clamped", async || count(i64::from(i32::MAX)).await).await;
        assert_eq!(stage.writes("/nodes/node-1"), nodes, "{:?}", stage.log());
        driver.with().limit = 9;
        assert_eq!(stage.registry().refresh("d").await.expect("it answers"), Some(9));
        assert!(count(9).await, "NODE-4.4: on demand, for ResourceExhausted");
        driver.with().limit = 0;
        assert_eq!(stage.registry().refresh("d").await.expect("it answers"), None);
        assert!(stage.user.our(Kind::CSI_NODE).await["spec"]["drivers"][0]["allocatable"].is_null());
        let error = stage.registry().refresh("nobody").await.expect_err("nobody is registered");
        assert!(error.to_string().contains("nobody"), "{error}");
    });
}

/// Rule: NODE-31.32
#[test]
fn a_driver_that_was_restarted_is_asked_again_and_may_say_something_else() {
    play(&registry(), async |stage: &Stage| {
        stage.user.node(json!({})).await;
        let driver = stage.shelf.driver("d", ENDPOINT);
        driver.with().topology.insert("zone".to_owned(), "a".to_owned());
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        stage.user.until("registered", async || socket.is_registered()).await;
        driver.with().topology.insert("zone".to_owned(), "b".to_owned());
        driver.with().node_id = "machine-8".to_owned();
        driver.restart();
        let moved = async || {
            let (node, csi_node) = (stage.user.our(Kind::NODE).await, stage.user.our(Kind::CSI_NODE).await);
            node["metadata"]["labels"]["zone"] == "b" && csi_node["spec"]["drivers"][0]["nodeID"] == "machine-8"
        };
        stage.user.until("everybody knows", moved).await;
        assert_eq!(stage.drivers().get("d").map(|registered| registered.node_id.clone()).as_deref(), Some("machine-8"));
    });
}

/// Rule: NODE-31.15
#[test]
fn what_somebody_else_takes_off_is_put_back() {
    play(&registry(), async |stage: &Stage| {
        stage.user.node(json!({})).await;
        let driver = stage.shelf.driver("d", ENDPOINT);
        driver.with().topology.insert("zone".to_owned(), "a".to_owned());
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        stage.user.until("registered", async || socket.is_registered()).await;
        let key = Key::cluster(NODE);
        stage.user.patch(Kind::CSI_NODE, &key, json!({"spec": {"drivers": []}})).await;
        stage.user.patch(Kind::NODE, &key, json!({"metadata": {"labels": {"zone": null}, "annotations": null}})).await;
        let back = async || {
            stage.user.our(Kind::NODE).await["metadata"]["labels"]["zone"] == "a" && stage.user.listed().await == ["d"]
        };
        stage.user.until("it is back", back).await;
    });
}
