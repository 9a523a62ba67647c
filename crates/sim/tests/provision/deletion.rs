//! When a volume goes: PROVISION-2.11.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::keys::finalizer;
use api::{Key, Kind, Volume};
use runtime::client::Preconditions;
use serde_json::{Value, json};
use sim::faults::{Fair, Fate, Refusal};
use tokio::time::sleep;

use crate::rig::{Deaf, MINUTE, on_path, play};
use crate::storage::{DRIVER, Turn};

const OURS: &str = finalizer::EXTERNAL_PROVISIONER.text();

/// A volume that somebody made by hand.
fn by_hand(policy: &str, finalizers: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": "static", "finalizers": finalizers},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": policy, "csi": {"driver": DRIVER, "volumeHandle": "by-hand"}}})
}

/// Rule: PROVISION-2.11.2
#[test]
fn the_finalizer_follows_policy_and_phase_also_on_static_volumes() {
    play(async |rig| {
        let key = Key::cluster("static");
        rig.user.create::<Value>(Kind::VOLUME, None, &by_hand("Delete", json!([]))).await.unwrap();
        let guarded = async || rig.get::<Volume>(&key).await.is_some_and(|volume| volume.meta.has_finalizer(OURS));
        let script = async {
            sleep(MINUTE).await;
            assert!(!guarded().await, "not before it is bound");
            rig.set_phase("static", "Bound").await;
            sleep(Duration::from_secs(1)).await;
            assert!(guarded().await, "1: static volumes count");
            rig.patch(Kind::VOLUME, &key, json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})).await;
            sleep(Duration::from_secs(1)).await;
            assert!(!guarded().await, "checklist 8");
        };
        rig.live_beside(Fair, script).await;
        let kept = rig.get::<Volume>(&key).await.unwrap().meta.finalizers;
        assert!(kept.iter().any(|held| *held == *finalizer::PV_PROTECTION.text()), "those of others stay: {kept:?}");
        assert_eq!(rig.storage.calls(), []);
    });
}

/// Rules: PROVISION-2.11.3, SIDECAR-P17
#[test]
fn a_volume_that_is_deleted_before_its_claim_waits_for_the_release() {
    play(async |rig| {
        let uid = rig.claim("c").await;
        let name = format!("pvc-{uid}");
        let script = async {
            sleep(MINUTE).await;
            rig.bind("c", &uid).await;
            rig.user.delete::<Volume>(&Key::cluster(&name), &Preconditions::default()).await.unwrap();
            sleep(20 * MINUTE).await;
            assert_eq!(rig.storage.deletes(), 0, "the claim still has it");
            rig.delete_claim("c").await;
            rig.release(&name).await;
            sleep(MINUTE).await;
        };
        rig.live_beside(Fair, script).await;
        assert_eq!((rig.storage.creates(), rig.storage.deletes(), rig.storage.volumes().len()), (1, 1, 0));
        rig.at_rest().await;
    });
}

/// Rule: PROVISION-2.11.3
#[test]
fn a_released_volume_whose_claim_lives_is_not_deleted() {
    play(async |rig| {
        let uid = rig.claim("c").await;
        let name = format!("pvc-{uid}");
        let script = async {
            sleep(MINUTE).await;
            rig.bind("c", &uid).await;
            // Nobody should do this, and it must not cost the data.
            rig.release(&name).await;
            sleep(20 * MINUTE).await;
            assert_eq!(rig.storage.deletes(), 0);
            rig.delete_claim("c").await;
            sleep(Duration::from_secs(1)).await;
            assert_eq!(rig.storage.deletes(), 1, "the end of the claim wakes it");
        };
        rig.live_beside(Fair, script).await;
        rig.at_rest().await;
    });
}

/// A released volume that an administrator gives to another claim, seen late.
/// Rule: PROVISION-2.11.3
#[test]
fn a_volume_that_was_freed_meanwhile_is_not_deleted() {
    play(async |rig| {
        let uid = rig.claim("c").await;
        let name = format!("pvc-{uid}");
        rig.live(Fair, MINUTE).await;
        rig.delete_claim("c").await;
        let deaf = Arc::new(Mutex::new(false));
        let script = async {
            sleep(MINUTE).await;
            *deaf.lock().unwrap() = true;
            rig.release(&name).await;
            rig.patch(Kind::VOLUME, &Key::cluster(&name), json!({"spec": {"claimRef": null}})).await;
            rig.set_phase(&name, "Available").await;
            sleep(60 * MINUTE).await;
        };
        // Each event comes ten minutes after the one before: for ten minutes it looks released.
        rig.live_beside(Deaf::to("persistentvolumes", &deaf), script).await;
        assert_eq!((rig.storage.deletes(), rig.storage.volumes().len()), (0, 1));
    });
}

/// Rule: PROVISION-2.11.3
#[test]
fn a_volume_that_is_kept_by_policy_is_not_deleted() {
    play(async |rig| {
        rig.delete_class("fast").await;
        rig.class("fast", json!({"reclaimPolicy": "Retain"})).await;
        let uid = rig.claim("c").await;
        rig.live(Fair, MINUTE).await;
        rig.delete_claim("c").await;
        rig.set_phase(&format!("pvc-{uid}"), "Released").await;
        rig.live(Fair, 20 * MINUTE).await;
        assert_eq!((rig.storage.deletes(), rig.storage.volumes().len()), (0, 1));
        assert!(!rig.volume(&uid).await.unwrap().meta.has_finalizer(OURS));
    });
}

/// Rule: PROVISION-2.11.5
#[test]
fn a_deletion_that_fails_is_told_and_repeated() {
    play(async |rig| {
        let uid = rig.claim("c").await;
        let name = format!("pvc-{uid}");
        rig.live(Fair, MINUTE).await;
        rig.delete_claim("c").await;
        rig.release(&name).await;
        rig.storage.will_delete([Turn::RequestLost, Turn::AnswerLost]);
        rig.live(Fair, MINUTE).await;
        assert_eq!((rig.storage.deletes(), rig.volumes().await.len()), (3, 0));
        assert_eq!(rig.events(&name).await, ["VolumeFailedDelete"]);
        rig.at_rest().await;
    });
}

/// Rules: PROVISION-2.11.6, SIDECAR-13.21, SIDECAR-P16
#[test]
fn what_was_deleted_once_is_not_deleted_again_when_the_api_fails() {
    for fate in [Fate::Refused(Refusal::Conflict), Fate::Refused(Refusal::Gone), Fate::RequestLost, Fate::AnswerLost] {
        for part in ["DELETE", "PATCH"] {
            play(async |rig| {
                println!("{part} {fate:?}");
                let uid = rig.claim("c").await;
                rig.live(Fair, MINUTE).await;
                rig.delete_claim("c").await;
                rig.release(&format!("pvc-{uid}")).await;
                let fates = match part {
                    "DELETE" => on_path("/persistentvolumes", 1, fate.clone()),
                    _ => on_path("/persistentvolumes", 2, fate.clone()),
                };
                rig.live(fates, 10 * MINUTE).await;
                assert_eq!((rig.storage.deletes(), rig.volumes().await.len()), (1, 0), "SIDECAR-13.21, SIDECAR-P16");
                rig.at_rest().await;
            });
        }
    }
}
