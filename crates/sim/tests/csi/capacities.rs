//! CSIStorageCapacity objects: PROVISION-2.12.

use std::time::Duration;

use api::Kind;
use api::keys::label;
use control::capacity::{self, Owner, OwnerLevel};
use control::provision::csi::SidecarOptions;
use lifecycle::capacity::Immediate;
use runtime::queue::Backoff;
use serde_json::{Value, json};

use crate::driver::NAME;
use crate::stage::{Stage, claim, class, mishaps, options, play};

fn telling() -> SidecarOptions {
    let capacity = capacity::Options {
        namespace: "default".to_owned(),
        immediate: Immediate::Told,
        poll: Duration::from_secs(60),
        workers: 1,
        timeout: Duration::from_secs(10),
        backoff: Backoff::default(),
        owner: Owner { level: OwnerLevel::None, pod: api::Key::namespaced("default", "") },
        node: None,
    };
    SidecarOptions { capacity: Some(capacity), ..options() }
}

async fn make_node(stage: &Stage, name: &str, zone: &str) {
    stage
        .make(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": zone}}}))
        .await;
    let drivers = json!([{"name": NAME, "nodeID": name, "topologyKeys": ["zone"]}]);
    let csi_node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
        "spec": {"drivers": drivers}});
    stage.make(&csi_node).await;
}

/// Zones and amounts, in order.
async fn told(stage: &Stage) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let one = |object: &Value| (text(&object["nodeTopology"]["matchLabels"]["zone"]), text(&object["capacity"]));
    let mut all: Vec<_> = stage.list(Kind::CAPACITY).await.iter().map(one).collect();
    all.sort();
    all
}

fn pair(zone: &str, amount: &str) -> (String, String) {
    (zone.to_owned(), amount.to_owned())
}

async fn two_zones(stage: &Stage) {
    stage.make(&class(json!({}))).await;
    for (node, zone) in [("n1", "a"), ("n2", "b"), ("n3", "a")] {
        make_node(stage, node, zone).await;
    }
}

/// Rule: PROVISION-2.12
#[test]
fn each_place_of_a_class_has_one_object_with_upstreams_labels() {
    play(&telling(), None, async |stage: Stage| {
        two_zones(&stage).await;
        stage.wait().await;
        assert_eq!(told(&stage).await, [pair("a", "100Gi"), pair("b", "100Gi")]);
        let object = stage.list(Kind::CAPACITY).await.remove(0);
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels[label::CAPACITY_DRIVER.text()], NAME);
        assert_eq!(labels[label::CAPACITY_MANAGED_BY.text()], api::keys::value::CAPACITY_MANAGER);
        assert!(object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("csisc-")), "{object}");
        assert_eq!(object["storageClassName"], "fast");
    });
}

/// Rule: PROVISION-2.12
#[test]
fn room_is_asked_again_after_the_poll_interval_and_written_only_if_it_changed() {
    play(&telling(), None, async |stage: Stage| {
        two_zones(&stage).await;
        stage.wait().await;
        let (writes, asked) = (stage.writes().len(), stage.driver.with().asked.len());
        tokio::time::sleep(Duration::from_secs(601)).await;
        assert_eq!(stage.writes().len(), writes);
        let polls = stage.driver.with().asked.len() - asked;
        assert!((18..=22).contains(&polls), "two items, ten minutes: {polls}");
        stage.driver.with().room = 1 << 30;
        stage.until("it is told", async |stage| told(stage).await == [pair("a", "1Gi"), pair("b", "1Gi")]).await;
    });
}

/// Rule: PROVISION-2.12
#[test]
fn a_volume_that_comes_or_goes_is_told_at_once() {
    play(&telling(), None, async |stage: Stage| {
        two_zones(&stage).await;
        stage.wait().await;
        stage.driver.with().room = 50 << 30;
        stage.make(&claim("data", json!({}))).await;
        let before = tokio::time::Instant::now();
        stage.until("it is told", async |stage| told(stage).await[0] == pair("a", "50Gi")).await;
        assert!(before.elapsed().as_secs() < 20, "{:?}", before.elapsed());
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        stage.driver.with().room = 60 << 30;
        stage.drop_claim("data").await;
        stage.until("it is gone", async |stage| stage.driver.names().is_empty()).await;
        let before = tokio::time::Instant::now();
        stage.until("it is told", async |stage| told(stage).await[0] == pair("a", "60Gi")).await;
        assert!(before.elapsed().as_secs() < 20, "{:?}", before.elapsed());
    });
}

/// Rule: PROVISION-2.12
#[test]
fn objects_follow_nodes_and_classes_and_are_repaired_when_others_touch_them() {
    play(&telling(), None, async |stage: Stage| {
        two_zones(&stage).await;
        stage.wait().await;
        stage.change(Kind::NODE, "n2", json!({"metadata": {"labels": {"zone": "c"}}})).await;
        stage.until("it moved", async |stage| told(stage).await == [pair("a", "100Gi"), pair("c", "100Gi")]).await;
        let name = stage.list(Kind::CAPACITY).await[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        stage.change(Kind::CAPACITY, &name, json!({"capacity": "7"})).await;
        stage.until("it is repaired", async |stage| told(stage).await.iter().all(|(_, room)| room == "100Gi")).await;
        let key = api::Key::namespaced("default", &name);
        stage.client.delete::<api::Capacity>(&key, &Default::default()).await.expect("it can be deleted");
        stage.until("it is back", async |stage| told(stage).await.len() == 2).await;
        stage.client.delete::<api::Class>(&api::Key::cluster("fast"), &Default::default()).await.expect("it can go");
        stage.until("nothing is told", async |stage| told(stage).await.is_empty()).await;
    });
}

/// Rule: PROVISION-2.12
#[test]
fn duplicates_and_strays_with_our_labels_go() {
    play(&telling(), None, async |stage: Stage| {
        // Nothing begins before the driver is there.
        stage.driver.show(false);
        let labels = json!({label::CAPACITY_DRIVER.text(): NAME,
            label::CAPACITY_MANAGED_BY.text(): api::keys::value::CAPACITY_MANAGER});
        for (name, zone) in [("old-1", "a"), ("old-2", "a"), ("stray", "z")] {
            stage
                .make(&json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
                    "metadata": {"namespace": "default", "name": name, "labels": labels},
                    "storageClassName": "fast", "nodeTopology": {"matchLabels": {"zone": zone}}, "capacity": "1"}))
                .await;
        }
        two_zones(&stage).await;
        stage.driver.show(true);
        stage.wait().await;
        assert_eq!(told(&stage).await, [pair("a", "100Gi"), pair("b", "100Gi")]);
        assert!(stage.get(Kind::CAPACITY, "old-1").await.is_some(), "what upstream made is kept and used");
    });
}

/// Room is told. Gives how many writes that took.
async fn both_told(stage: Stage) -> usize {
    two_zones(&stage).await;
    stage.wait().await;
    assert_eq!(told(&stage).await, [pair("a", "100Gi"), pair("b", "100Gi")], "{:?}", stage.writes());
    stage.writes().len()
}

#[test]
fn every_mishap_at_every_write_leaves_one_object_per_place() {
    let writes = play(&telling(), None, both_told);
    for mishap in mishaps(writes) {
        println!("{mishap:?}");
        play(&telling(), Some(mishap), both_told);
    }
}

/// Rule: PROVISION-2.12
#[test]
fn the_drivers_parameters_are_those_of_create_volume() {
    play(&telling(), None, async |stage: Stage| {
        let own = api::keys::parameter::FSTYPE.text();
        stage.make(&class(json!({"parameters": {"tier": "gold", own: "xfs"}}))).await;
        make_node(&stage, "n1", "a").await;
        stage.wait().await;
        let asked = stage.driver.with().asked.remove(0);
        assert_eq!(asked.parameters, [("tier".to_owned(), "gold".to_owned())].into());
        assert!(asked.volume_capabilities.is_empty());
    });
}

/// Rule: PROVISION-2.12
#[test]
fn what_should_be_there_and_what_is_are_counted_when_somebody_looks() {
    play(&telling(), None, async |stage: Stage| {
        two_zones(&stage).await;
        stage.wait().await;
        let shows = |name: &str, number: u64| stage.metrics().lines().any(|line| line == format!("{name} {number}"));
        assert!(shows("csistoragecapacities_desired_goal", 2) && shows("csistoragecapacities_desired_current", 2));
        assert!(shows("csistoragecapacities_obsolete", 0));
        make_node(&stage, "n4", "c").await;
        stage.until("the third zone is told", async |stage| told(stage).await.len() == 3).await;
        assert!(shows("csistoragecapacities_desired_goal", 3) && shows("csistoragecapacities_desired_current", 3));
    });
}
