//! One instance per node: PROVISION-2.13.

use std::time::Duration;

use api::Kind;
use api::keys::annotation;
use control::provision;
use control::provision::csi::{NodeMode, Options, SidecarOptions};
use serde_json::json;
use tonic::Code;

use crate::driver::Create;
use crate::stage::{Stage, claim, class, mishaps, options, play, selected};

fn on_node(name: &str) -> SidecarOptions {
    let (base_delay, max_delay) = (Duration::from_secs(20), Duration::from_secs(60));
    let node = NodeMode { name: name.to_owned(), immediate: true, base_delay, max_delay };
    let base = options();
    SidecarOptions {
        provisioner: Options { node: Some(node), ..base.provisioner },
        engine: provision::Options { instance: Some(name.to_owned()), ..base.engine },
        ..base
    }
}

/// The driver says what it can do when it connects.
fn place(stage: &Stage, zone: &str) {
    stage.driver.with().place = Some(("zone", zone.to_owned()));
    stage.driver.show(false);
    stage.driver.show(true);
}

/// Rule: PROVISION-2.13
#[test]
fn a_claim_that_nobody_was_selected_for_is_taken_by_who_has_room() {
    play(&on_node("n1"), None, async |stage: Stage| {
        place(&stage, "a");
        stage.make(&class(json!({"volumeBindingMode": "Immediate"}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        let held = stage.get(Kind::CLAIM, "data").await.expect("it is there");
        assert_eq!(selected(&held), Some("n1"));
        let asked = stage.driver.with().asked.remove(0);
        assert_eq!((asked.volume_capabilities.len(), asked.accessible_topology.is_some()), (1, true));
        let request = stage.driver.with().creates.remove(0).accessibility_requirements.expect("it has places");
        assert_eq!((request.requisite.len(), request.preferred.len()), (1, 1), "its own place only");
    });
}

/// Rules: PROVISION-2.4.4, PROVISION-2.13
#[test]
fn a_claim_of_another_node_is_not_ours_and_costs_nothing() {
    play(&on_node("n1"), None, async |stage: Stage| {
        place(&stage, "a");
        stage.make(&class(json!({"volumeBindingMode": "Immediate"}))).await;
        let mut wish = claim("data", json!({}));
        wish["metadata"]["annotations"] = json!({annotation::SELECTED_NODE.text(): "n2"});
        stage.make(&wish).await;
        stage.wait().await;
        assert!(stage.driver.with().creates.is_empty());
        assert!(stage.driver.with().asked.is_empty());
    });
}

/// Rule: PROVISION-2.13
#[test]
fn without_room_a_claim_is_left_to_others_and_taken_when_there_is_room() {
    play(&on_node("n1"), None, async |stage: Stage| {
        place(&stage, "a");
        stage.driver.with().room = 5;
        stage.make(&class(json!({"volumeBindingMode": "Immediate"}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.wait().await;
        let held = stage.get(Kind::CLAIM, "data").await.expect("it is there");
        assert_eq!(selected(&held), None);
        assert!(stage.driver.with().creates.is_empty());
        stage.driver.with().room = 10 << 30;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
    });
}

/// Rule: PROVISION-2.13
#[test]
fn a_node_that_had_no_room_after_all_gives_the_claim_back() {
    play(&on_node("n1"), None, async |stage: Stage| {
        place(&stage, "a");
        stage.driver.with().script.push_back(Create::Fails(Code::ResourceExhausted));
        stage.make(&class(json!({"volumeBindingMode": "Immediate"}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        assert_eq!(stage.driver.with().creates.len(), 2, "the race began anew");
        stage.assert_volumes(1).await;
    });
}

/// Rule: PROVISION-2.11.4
#[test]
fn a_volume_that_is_elsewhere_is_not_ours_to_delete() {
    play(&on_node("n1"), None, async |stage: Stage| {
        place(&stage, "a");
        stage.make(&class(json!({"volumeBindingMode": "Immediate"}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        place(&stage, "b");
        stage.drop_claim("data").await;
        stage.wait().await;
        assert!(stage.driver.with().deletes.is_empty());
        stage.assert_volumes(1).await;
    });
}

/// A claim is won and gets its volume. Gives how many writes that took.
async fn won(stage: Stage) -> usize {
    place(&stage, "a");
    stage.make(&class(json!({"volumeBindingMode": "Immediate"}))).await;
    stage.make(&claim("data", json!({}))).await;
    stage.wait().await;
    assert!(stage.is_bound("data").await, "{:?}", stage.writes());
    stage.assert_volumes(1).await;
    stage.writes().len()
}

#[test]
fn every_mishap_at_every_write_ends_with_one_volume() {
    let writes = play(&on_node("n1"), None, won);
    println!("{writes} writes");
    for mishap in mishaps(writes) {
        println!("{mishap:?}");
        play(&on_node("n1"), Some(mishap), won);
    }
}
