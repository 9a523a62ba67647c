//! What becomes of a claim: PROVISION-2.4 and PROVISION-2.5.

use std::time::Duration;

use api::keys::annotation;
use api::{Claim, Key, Kind};
use control::handoff::Asked;
use control::provision::Unplanned;
use lifecycle::outcome::Retry;
use lifecycle::{Notice, Severity};
use serde_json::json;
use sim::faults::{Fair, Fate, Refusal};
use tokio::time::sleep;

use crate::rig::{End, MINUTE, NAMESPACE, on_path, play, requests};
use crate::storage::{Called, DRIVER, Turn};

/// Rule: PROVISION-2.4.8
#[test]
fn a_claim_gets_a_volume_for_one_journal_write_and_one_create() {
    play(async |rig| {
        let uid = rig.claim("c").await;
        assert_eq!(rig.live(Fair, MINUTE).await, End::Stopped);
        let volume = rig.volume(&uid).await.expect("it was made");
        assert_eq!(volume.claim.as_ref().and_then(|claim| claim.uid.clone()), Some(uid.clone()));
        assert_eq!(rig.events("c").await, ["Provisioning", "ProvisioningSucceeded"]);
        let name = format!("pvc-{uid}");
        let create = Called::Create { name: name.clone(), zone: "first".to_owned() };
        assert_eq!(rig.storage.calls(), [create, Called::Stored { name }]);
        assert_eq!(requests(&rig.world, &["POST", "/persistentvolumes", "201"]), 1);
        assert_eq!(requests(&rig.world, &["/configmaps", "201"]), 1, "the intent");
        assert_eq!(
            requests(&rig.world, &["PATCH", "/configmaps", "200"]),
            1,
            "its end, alone because nothing else came"
        );
        assert_eq!(requests(&rig.world, &["PATCH"]), 1 + requests(&rig.world, &["PATCH", "/events"]), "nothing else");
        rig.at_rest().await;
    });
}

#[test]
fn many_claims_share_one_journal_write() {
    play(async |rig| {
        for number in 0..80 {
            rig.claim(&format!("c{number}")).await;
        }
        rig.live(Fair, MINUTE).await;
        assert_eq!((rig.storage.creates(), rig.volumes().await.len()), (80, 80));
        let writes = requests(&rig.world, &["/configmaps", " 201"]) + requests(&rig.world, &["PATCH", "/configmaps"]);
        assert!(writes <= 5, "{writes} writes of the journal for 80 claims");
        rig.at_rest().await;
    });
}

/// Rule: PROVISION-2.4
#[test]
fn a_claim_that_is_going_is_not_begun() {
    play(async |rig| {
        rig.claim("c").await;
        let key = Key::namespaced(NAMESPACE, "c");
        rig.user.delete::<Claim>(&key, &runtime::client::Preconditions::default()).await.unwrap();
        rig.live(Fair, MINUTE).await;
        assert_eq!(rig.storage.calls(), [], "PROVISION-2.4");
    });
}

/// Rules: PROVISION-2.4.3, PROVISION-2.14
#[test]
fn a_binder_beside_us_asks_without_a_write() {
    play(async |rig| {
        let uid = rig.claim_with("c", json!({})).await;
        rig.live(Fair, MINUTE).await;
        assert_eq!(rig.storage.calls(), [], "PROVISION-2.4.3: nobody asked");
        let component = rig.world.component("both", Fair);
        let process = sim::Process::new(&rig.world, &component, 7);
        let options = control::provision::Options::new("fake_host_1", NAMESPACE);
        let engine = control::provision::Engine::new(&process.context, rig.storage.clone(), options);
        let handoff = process.context.handoff.clone();
        let stop = runtime::Stop::never();
        let work = async {
            let asking = async {
                sleep(MINUTE).await;
                handoff.ask(DRIVER, &Asked { claim: Key::namespaced(NAMESPACE, "c"), uid: uid.clone() });
                sleep(Duration::from_millis(10)).await;
            };
            tokio::select! {
                () = asking => {}
                () = engine.run(&stop) => {}
            }
        };
        let metrics = process.context.metrics.clone();
        process.run(&stop, work).await;
        assert!(rig.volume(&uid).await.is_some(), "woken at once");
        let counted = r#"controller_persistentvolumeclaim_provision_total{class="fast",source=""} 1"#;
        assert!(metrics.encode().contains(counted), "PROVISION-2.14");
    });
}

/// Rule: PROVISION-2.4.6
#[test]
fn a_class_that_comes_late_wakes_its_claims() {
    play(async |rig| {
        rig.delete_class("fast").await;
        let uid = rig.claim("c").await;
        let late = async {
            sleep(20 * MINUTE).await;
            assert_eq!(rig.storage.creates(), 0);
            rig.class("fast", json!({})).await;
            sleep(Duration::from_secs(1)).await;
            assert_eq!(rig.storage.creates(), 1, "no backoff is waited for");
        };
        rig.live_beside(Fair, late).await;
        assert!(rig.volume(&uid).await.is_some());
    });
}

/// Rules: PROVISION-2.4.1, SIDECAR-13.5, SIDECAR-14.5.3
#[test]
fn what_is_invalid_is_not_repeated_until_something_changed_or_the_longest_interval_passed() {
    play(async |rig| {
        rig.storage.will_create([Turn::Refuses(Retry::Changed), Turn::Refuses(Retry::Changed)]);
        let uid = rig.claim("c").await;
        let script = async {
            sleep(4 * MINUTE).await;
            let key = Key::namespaced(NAMESPACE, "c");
            rig.patch(Kind::CLAIM, &key, json!({"metadata": {"labels": {"touched": "yes"}}})).await;
            sleep(Duration::from_secs(50)).await;
            assert_eq!(rig.storage.creates(), 1, "within five minutes (SIDECAR-14.5.3)");
            sleep(Duration::from_secs(20)).await;
            assert_eq!(rig.storage.creates(), 2, "after five minutes");
            rig.delete_class("fast").await;
            rig.class("fast", json!({})).await;
            sleep(Duration::from_secs(1)).await;
            assert_eq!(rig.storage.creates(), 3, "another class of that name");
        };
        rig.live_beside(Fair, script).await;
        assert!(rig.volume(&uid).await.is_some());
        assert_eq!(rig.events("c").await, ["Provisioning", "ProvisioningFailed", "ProvisioningSucceeded"]);
    });
}

/// Rules: PROVISION-2.5, SIDECAR-14.5.2, SIDECAR-P6
#[test]
fn a_claim_without_room_goes_to_another_node_and_its_intent_is_closed_first() {
    play(async |rig| {
        rig.delete_class("fast").await;
        rig.class("fast", json!({"volumeBindingMode": "WaitForFirstConsumer"})).await;
        rig.storage.will_create([Turn::Refuses(Retry::Elsewhere)]);
        let asked = json!({annotation::STORAGE_PROVISIONER.text(): DRIVER, annotation::SELECTED_NODE.text(): "full"});
        let uid = rig.claim_with("c", asked).await;
        let key = Key::namespaced(NAMESPACE, "c");
        let script = async {
            sleep(20 * MINUTE).await;
            assert_eq!(rig.storage.creates(), 1, "not before it was scheduled again (SIDECAR-14.5.2)");
            assert_eq!(rig.get::<Claim>(&key).await.unwrap().selected_node(), None);
            let chosen = json!({"metadata": {"annotations": {annotation::SELECTED_NODE.text(): "roomy"}}});
            rig.patch(Kind::CLAIM, &key, chosen).await;
            sleep(MINUTE).await;
        };
        rig.live_beside(Fair, script).await;
        assert!(rig.volume(&uid).await.is_some());
        let lines = rig.world.journal().lines();
        let at = |what: &str| lines.iter().position(|line| line.contains(" provisioner ") && line.contains(what));
        assert!(
            at("PATCH /api/v1/namespaces/default/configmaps") < at("PATCH /api/v1/namespaces/default/persistentvol")
        );
        rig.at_rest().await;
    });
}

/// Rule: PROVISION-2.5
#[test]
fn without_a_node_no_room_is_plain_backoff() {
    play(async |rig| {
        rig.storage.will_create([Turn::Refuses(Retry::Elsewhere), Turn::Refuses(Retry::Later)]);
        rig.storage.will_plan([Unplanned::NotYet { message: "the source is not ready".to_owned() }]);
        let uid = rig.claim("c").await;
        rig.live(Fair, MINUTE).await;
        assert!(rig.volume(&uid).await.is_some());
        assert_eq!(rig.storage.creates(), 3);
        rig.at_rest().await;
    });
}

/// Rule: PROVISION-2.5
#[test]
fn a_plan_that_is_somebody_elses_is_forgotten_without_a_retry() {
    play(async |rig| {
        let notice =
            Notice { severity: Severity::Normal, reason: "Provisioning", message: "a populator does".to_owned() };
        let message = "not ours".to_owned();
        rig.storage.will_plan([Unplanned::Ignored { message, notice: Some(notice) }]);
        let uid = rig.claim("c").await;
        rig.live(Fair, 10 * MINUTE).await;
        assert_eq!((rig.storage.creates(), rig.volume(&uid).await), (0, None));
        assert_eq!(requests(&rig.world, &["/configmaps", "201"]), 0, "nothing was begun");
    });
}

/// Rules: PROVISION-2.10, SIDECAR-14.5.4
#[test]
fn a_volume_that_cannot_be_stored_is_kept_and_stored_later() {
    play(async |rig| {
        let uid = rig.claim("c").await;
        let refuse = on_path("/persistentvolumes", 10, Fate::Refused(Refusal::Gone));
        rig.live(refuse, 30 * MINUTE).await;
        assert!(rig.volume(&uid).await.is_some());
        assert_eq!((rig.storage.creates(), rig.storage.deletes()), (1, 0), "checklist 4");
        rig.at_rest().await;
    });
}

/// Rule: SIDECAR-14.5.1
#[test]
fn a_claim_that_goes_while_the_answer_is_awaited_ends_as_a_volume_to_be_released() {
    play(async |rig| {
        rig.storage.will_create([Turn::AnswerLost, Turn::RequestLost]);
        let uid = rig.claim("c").await;
        let script = async {
            sleep(Duration::from_millis(500)).await;
            rig.delete_claim("c").await;
            sleep(MINUTE).await;
        };
        rig.live_beside(Fair, script).await;
        let volume = rig.volume(&uid).await.expect("it is stored for the binder to release");
        rig.release(volume.name()).await;
        rig.live(Fair, MINUTE).await;
        assert_eq!((rig.volumes().await.len(), rig.storage.volumes().len()), (0, 0));
        rig.at_rest().await;
    });
}
