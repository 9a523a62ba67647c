//! Plans and creations: PROVISION-2.6 to PROVISION-2.10 as a driver, a user and the API see them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use api::Kind;
use api::keys::{annotation, finalizer, label, parameter};
use csi::v1::controller_service_capability::rpc::Type as Rpc;
use serde_json::json;
use tonic::Code;

use crate::driver::{Create, NAME};
use crate::stage::{Stage, claim, class, mishaps, options, play};

/// Rules: PROVISION-2.7, PROVISION-2.10
#[test]
fn a_claim_gets_a_volume_of_the_driver() {
    play(&options(), None, async |stage: Stage| {
        stage.make(&class(json!({"parameters": {"tier": "gold", parameter::FSTYPE.text(): "xfs"}}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        let volume = stage.volume_of("data").await.expect("it has a volume");
        assert_eq!((&volume["spec"]["csi"]["driver"], &volume["spec"]["csi"]["fsType"]), (&json!(NAME), &json!("xfs")));
        assert_eq!(volume["metadata"]["annotations"][annotation::PROVISIONED_BY.text()], NAME);
        let request = stage.driver.with().creates.remove(0);
        assert_eq!(volume["metadata"]["name"], request.name.as_str());
        assert_eq!(request.parameters, [("tier".to_owned(), "gold".to_owned())].into());
        assert_eq!(request.capacity_range.map(|range| (range.required_bytes, range.limit_bytes)), Some((1 << 30, 0)));
        stage.assert_volumes(1).await;
    });
}

/// A claim comes, gets its volume, and goes. Gives how many writes that took.
async fn whole_life(stage: Stage) -> usize {
    stage.make(&class(json!({}))).await;
    stage.make(&claim("data", json!({}))).await;
    stage.wait().await;
    assert!(stage.is_bound("data").await, "{:?}", stage.writes());
    stage.assert_volumes(1).await;
    stage.drop_claim("data").await;
    stage.wait().await;
    stage.assert_volumes(0).await;
    stage.writes().len()
}

#[test]
fn every_mishap_at_every_write_of_a_volumes_life_leaves_nothing_behind() {
    let writes = play(&options(), None, whole_life);
    println!("{writes} writes");
    for mishap in mishaps(writes) {
        println!("{mishap:?}");
        play(&options(), Some(mishap), whole_life);
    }
}

/// Rule: SIDECAR-13.36
#[test]
fn a_driver_that_is_away_is_waited_for_and_wakes_what_waited() {
    play(&options(), None, async |stage: Stage| {
        stage.make(&class(json!({}))).await;
        stage.wait().await;
        stage.driver.show(false);
        stage.make(&claim("data", json!({}))).await;
        stage.wait().await;
        let events = stage.events().await;
        assert!(events.iter().any(|event| event.contains("the driver is not connected")), "{events:?}");
        let before = tokio::time::Instant::now();
        stage.driver.show(true);
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        assert!(before.elapsed().as_secs() < 10, "the backoff was {:?}", before.elapsed());
    });
}

/// Rule: SIDECAR-P1
#[test]
fn a_driver_that_goes_away_between_plan_and_call_is_asked_again_with_the_same_request() {
    play(&options(), None, async |stage: Stage| {
        stage.driver.with().script.extend([Create::MadeBut(Code::Unavailable), Create::MadeBut(Code::Internal)]);
        stage.make(&class(json!({}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        let creates = stage.driver.with().creates.clone();
        assert_eq!(creates.len(), 3);
        assert!(creates.iter().all(|create| *create == creates[0]), "SIDECAR-P1: {creates:?}");
        stage.assert_volumes(1).await;
    });
}

/// Rules: PROVISION-2.10, SIDECAR-14.5.5
#[test]
fn a_volume_that_is_too_small_is_deleted_and_made_again() {
    play(&options(), None, async |stage: Stage| {
        stage.driver.with().script.push_back(Create::Short(5));
        stage.make(&class(json!({}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        assert_eq!(stage.driver.counts(), (1, 2), "SIDECAR-14.5.5");
        stage.assert_volumes(1).await;
    });
}

/// Rule: SIDECAR-P9
#[test]
fn a_volume_that_is_too_small_and_cannot_be_deleted_stays_an_open_intent() {
    play(&options(), None, async |stage: Stage| {
        stage.driver.with().script.push_back(Create::Short(5));
        stage.driver.with().delete_fails = Some(Code::Internal);
        stage.make(&class(json!({}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.until("it was tried", async |stage| !stage.driver.with().deletes.is_empty()).await;
        stage.drop_claim("data").await;
        stage.driver.with().delete_fails = None;
        stage.wait().await;
        stage.assert_volumes(0).await;
    });
}

/// Rules: PROVISION-2.7, PROVISION-2.6, PROVISION-2.11.4
#[test]
fn the_secret_reaches_the_driver_and_nothing_else() {
    let stem = parameter::PROVISIONER_SECRET;
    let parameters = json!({format!("{stem}-name"): "s-${pvc.name}", format!("{stem}-namespace"): "${pvc.namespace}"});
    play(&options(), None, async |stage: Stage| {
        stage.make(&class(json!({"parameters": parameters}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.wait().await;
        let events = stage.events().await;
        assert!(events.iter().any(|event| event.contains("the secret default/s-data does not exist")), "{events:?}");
        assert!(stage.driver.with().creates.is_empty(), "PROVISION-2.6: nothing is called without it");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "s-data"},
            "stringData": {"password": "hunter2"}});
        stage.make(&secret).await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        let request = stage.driver.with().creates.remove(0);
        assert_eq!(request.secrets, [("password".to_owned(), "hunter2".to_owned())].into());
        let volume = stage.volume_of("data").await.expect("it has a volume");
        assert_eq!(volume["metadata"]["annotations"][annotation::DELETION_SECRET_NAME.text()], "s-data");
        stage.drop_claim("data").await;
        stage.wait().await;
        let deleted = stage.driver.with().deletes.remove(0);
        assert_eq!(deleted.secrets, request.secrets, "PROVISION-2.11.4");
        let told = format!("{volume} {:?} {:?}", stage.events().await, stage.list(Kind::CONFIG_MAP).await);
        assert!(!told.contains("hunter2"), "{told}");
        stage.assert_volumes(0).await;
    });
}

/// Rule: PROVISION-2.11
#[test]
fn a_volume_goes_without_its_secret_if_that_is_gone() {
    let stem = parameter::PROVISIONER_SECRET;
    let parameters = json!({format!("{stem}-name"): "s", format!("{stem}-namespace"): "default"});
    play(&options(), None, async |stage: Stage| {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "s"},
            "stringData": {"password": "hunter2"}});
        stage.make(&secret).await;
        stage.make(&class(json!({"parameters": parameters}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        delete_secret(&stage, "s").await;
        stage.drop_claim("data").await;
        stage.wait().await;
        assert!(stage.driver.with().deletes.remove(0).secrets.is_empty());
        stage.assert_volumes(0).await;
    });
}

/// Rule: PROVISION-2.11
#[test]
fn a_volume_does_not_go_without_its_secret_only_because_nobody_can_read_it_now() {
    let stem = parameter::PROVISIONER_SECRET;
    let parameters = json!({format!("{stem}-name"): "s", format!("{stem}-namespace"): "default"});
    play(&options(), None, async |stage: Stage| {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "s"},
            "stringData": {"password": "hunter2"}});
        stage.make(&secret).await;
        stage.make(&class(json!({"parameters": parameters}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        stage.behind.no_secrets.store(true, Ordering::Relaxed);
        stage.drop_claim("data").await;
        stage.wait().await;
        assert!(stage.driver.with().deletes.is_empty(), "the driver would be asked by nobody it knows");
        stage.behind.no_secrets.store(false, Ordering::Relaxed);
        stage.until("it is gone", async |stage| stage.driver.names().is_empty()).await;
        assert!(!stage.driver.with().deletes.remove(0).secrets.is_empty());
        stage.assert_volumes(0).await;
    });
}

/// Secrets have no projection in this project, so that one is deleted through one of another kind's shape.
async fn delete_secret(stage: &Stage, name: &str) {
    #[derive(Debug, Clone, serde::Deserialize)]
    struct Secret {
        metadata: api::Meta,
    }
    impl api::Object for Secret {
        const KIND: Kind = Kind::SECRET;
        fn meta(&self) -> &api::Meta {
            &self.metadata
        }
    }
    let key = api::Key::namespaced("default", name);
    stage.client.delete::<Secret>(&key, &Default::default()).await.expect("it can be deleted");
}

/// Rules: PROVISION-2.11, SIDECAR-14.5.7
#[test]
fn nothing_is_deleted_while_it_is_attached_and_it_goes_at_once_afterwards() {
    play(&options(), None, async |stage: Stage| {
        stage.make(&class(json!({}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        let name = stage.driver.names().remove(0);
        let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "va"},
            "spec": {"attacher": "anybody", "nodeName": "n1", "source": {"persistentVolumeName": name}}});
        stage.make(&attachment).await;
        stage.drop_claim("data").await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let events = stage.events().await;
        assert!(!events.iter().any(|event| event.contains("still attached")), "nothing is wrong yet: {events:?}");
        stage.wait().await;
        assert!(stage.driver.with().deletes.is_empty(), "SIDECAR-14.5.7: attached or not, whoever attached it");
        let events = stage.events().await;
        assert!(events.iter().any(|event| event.contains("still attached to node n1")), "{events:?}");
        let key = api::Key::cluster("va");
        stage.client.delete::<api::Attachment>(&key, &Default::default()).await.expect("it can be deleted");
        let before = tokio::time::Instant::now();
        stage.until("it is gone", async |stage| stage.driver.names().is_empty()).await;
        assert!(before.elapsed().as_secs() < 10, "the backoff was {:?}", before.elapsed());
    });
}

/// A node that was restored from a backup may have volumes that no attachment tells of.
#[test]
fn nothing_is_deleted_after_a_restore_before_every_node_has_reported() {
    play(&options(), None, async |stage: Stage| {
        stage.make(&class(json!({}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        let mark = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1",
            "annotations": {annotation::RESTORED.text(): "7"}, "labels": {label::RESTORED.text(): "true"}}});
        stage.make(&mark).await;
        stage.drop_claim("data").await;
        stage.wait().await;
        assert!(stage.driver.with().deletes.is_empty(), "the node may have it");
        let events = stage.events().await;
        assert!(events.iter().any(|event| event.contains("node n1 has not reported yet")), "{events:?}");
        let key = api::Key::cluster("n1");
        stage.client.delete::<api::Node>(&key, &Default::default()).await.expect("it can be deleted");
        stage.until("it is gone", async |stage| stage.driver.names().is_empty()).await;
    });
}

/// Without the ability an attachment is only a note that a node uses the volume: its agent has to unstage first.
/// Rule: PROVISION-2.11.4
#[test]
fn nothing_is_deleted_under_an_attachment_of_a_driver_that_publishes_nothing() {
    play(&options(), None, async |stage: Stage| {
        stage.driver.with().rpcs.retain(|rpc| *rpc != Rpc::PublishUnpublishVolume);
        // The driver says what it can do when it connects.
        stage.driver.show(false);
        stage.driver.show(true);
        stage.make(&class(json!({}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        // It names another object: the volume is known by the handle that was published.
        let handle = stage.driver.names().remove(0);
        let note = json!({annotation::PUBLISHED_HANDLE.text(): handle});
        let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": "va", "annotations": note},
            "spec": {"attacher": NAME, "nodeName": "n1", "source": {"persistentVolumeName": "gone"}}});
        stage.make(&attachment).await;
        stage.drop_claim("data").await;
        stage.wait().await;
        assert!(stage.driver.with().deletes.is_empty(), "the node may have it staged");
        let key = api::Key::cluster("va");
        stage.client.delete::<api::Attachment>(&key, &Default::default()).await.expect("it can be deleted");
        let before = tokio::time::Instant::now();
        stage.until("it is gone", async |stage| stage.driver.names().is_empty()).await;
        assert!(before.elapsed().as_secs() < 10, "its end wakes the volume: {:?}", before.elapsed());
    });
}

/// Another node has no more room where nodes do not matter.
/// Rule: SIDECAR-14.5.2
#[test]
fn a_driver_without_topology_that_has_no_room_keeps_the_selected_node() {
    play(&options(), None, async |stage: Stage| {
        stage.make(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}})).await;
        stage.driver.with().script.push_back(Create::Fails(Code::ResourceExhausted));
        stage.make(&class(json!({"volumeBindingMode": "WaitForFirstConsumer"}))).await;
        let mut wish = claim("data", json!({}));
        wish["metadata"]["annotations"] = json!({annotation::SELECTED_NODE.text(): "n2"});
        stage.make(&wish).await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        let held = stage.get(Kind::CLAIM, "data").await.expect("it is there");
        assert_eq!(crate::stage::selected(&held), Some("n2"), "{held}");
        assert_eq!(stage.driver.with().creates.len(), 2, "the same node again");
    });
}

/// Rule: PROVISION-2.6
#[test]
fn a_populators_claim_is_left_alone_and_said() {
    play(&options(), None, async |stage: Stage| {
        stage.make(&class(json!({}))).await;
        let source = json!({"apiGroup": "cdi.example.com", "kind": "Import", "name": "i"});
        stage.make(&claim("data", json!({"dataSourceRef": source}))).await;
        stage.wait().await;
        assert!(stage.driver.with().creates.is_empty());
        let events = stage.events().await;
        assert!(
            events.iter().any(|event| event.starts_with("Provisioning: ") && event.contains("populator")),
            "{events:?}"
        );
    });
}

/// Rule: PROVISION-2.6
#[test]
fn an_unknown_reserved_parameter_is_said_and_nothing_is_written_before() {
    play(&options(), None, async |stage: Stage| {
        stage.make(&class(json!({"parameters": {format!("{}speling", parameter::PREFIX): "x"}}))).await;
        stage.make(&claim("src", json!({}))).await;
        stage.wait().await;
        let events = stage.events().await;
        assert!(events.iter().any(|event| event.contains("speling")), "{events:?}");
        assert!(!stage.holds(Kind::CLAIM, "src", finalizer::CLONING_PROTECTION).await);
    });
}

/// Rules: PROVISION-2.5, SIDECAR-14.5.2
#[test]
fn a_node_without_room_is_left_and_the_next_one_is_asked() {
    play(&options(), None, async |stage: Stage| {
        stage.driver.with().place = Some(("zone", "a".to_owned()));
        // The driver says what it can do when it connects.
        stage.driver.show(false);
        stage.driver.show(true);
        for (node, zone) in [("n1", "a"), ("n2", "b")] {
            stage
                .make(
                    &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": {"zone": zone}}}),
                )
                .await;
            let drivers = json!([{"name": NAME, "nodeID": node, "topologyKeys": ["zone"]}]);
            let csi_node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node},
                "spec": {"drivers": drivers}});
            stage.make(&csi_node).await;
        }
        stage.driver.with().script.push_back(Create::Fails(Code::ResourceExhausted));
        stage.make(&class(json!({"volumeBindingMode": "WaitForFirstConsumer"}))).await;
        let mut wish = claim("data", json!({}));
        wish["metadata"]["annotations"] = json!({annotation::SELECTED_NODE.text(): "n2"});
        stage.make(&wish).await;
        stage.wait().await;
        let held = stage.get(Kind::CLAIM, "data").await.expect("it is there");
        assert_eq!(crate::stage::selected(&held), None, "SIDECAR-14.5.2: {held}");
        let first = stage.driver.with().creates.remove(0).accessibility_requirements.expect("it has places");
        let zones =
            |terms: &[csi::v1::Topology]| terms.iter().map(|term| term.segments["zone"].clone()).collect::<Vec<_>>();
        assert_eq!(
            (zones(&first.requisite), zones(&first.preferred)),
            (vec!["a".into(), "b".into()], vec!["b".into(), "a".into()])
        );
        stage
            .change(Kind::CLAIM, "data", json!({"metadata": {"annotations": {annotation::SELECTED_NODE.text(): "n1"}}}))
            .await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        let volume = stage.volume_of("data").await.expect("it has a volume");
        let term = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
        assert_eq!(*term, json!({"key": "zone", "operator": "In", "values": ["a"]}));
    });
}

#[test]
fn a_volume_whose_context_cannot_be_stored_is_deleted_again_and_the_claim_says_why() {
    play(&options(), None, async |stage: Stage| {
        let answers = [Create::Context(3 << 20), Create::Context(5 << 20), Create::Context(300 << 10)];
        stage.driver.with().script.extend(answers);
        stage.make(&class(json!({}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        let events = stage.events().await;
        let told = "the driver's volume_context takes 3145732 bytes, and at most 262144 can be stored";
        assert!(
            events.iter().any(|event| event.starts_with("ProvisioningFailed") && event.contains(told)),
            "{events:#?}"
        );
        assert_eq!(stage.driver.counts(), (3, 4), "each of the three was deleted before it was made again");
        let stores = stage.writes().iter().filter(|write| *write == "POST /api/v1/persistentvolumes").count();
        assert_eq!(stores, 1, "what cannot be stored is not sent");
        stage.assert_volumes(1).await;
    });
}

#[test]
fn an_answer_that_is_too_large_to_be_read_leaves_the_intent_open_until_the_volume_is_known() {
    play(&options(), None, async |stage: Stage| {
        stage.driver.with().script.extend([Create::Context(20 << 20), Create::Context(20 << 20)]);
        stage.make(&class(json!({}))).await;
        stage.make(&claim("data", json!({}))).await;
        stage.until("the first answer came", async |stage| stage.driver.counts().1 > 0).await;
        stage.drop_claim("data").await;
        stage.wait().await;
        stage.assert_volumes(0).await;
        let events = stage.events().await;
        let told = "decoded message length too large";
        assert!(
            events.iter().any(|event| event.starts_with("ProvisioningFailed") && event.contains(told)),
            "{events:#?}"
        );
    });
}
