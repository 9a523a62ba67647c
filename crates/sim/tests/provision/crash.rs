//! The process dies between any two writes, and everything ends right.

use std::time::Duration;

use api::Uid;
use sim::faults::{Fair, Fate};
use tokio::time::sleep;

use crate::rig::{End, MINUTE, Rig, at_write, play};
use crate::storage::{Called, Turn};

/// More writes than any scenario has.
const MOST: u64 = 12;

/// Ends a claim's life in order, whatever there is of it.
async fn wind_up(rig: &Rig, claim: Option<&str>, uid: &Uid) {
    if let Some(claim) = claim {
        rig.delete_claim(claim).await;
    }
    rig.live(Fair, MINUTE).await;
    if let Some(volume) = rig.volume(uid).await {
        rig.release_for_good(&volume).await;
    }
    rig.live(Fair, 10 * MINUTE).await;
    assert_eq!(rig.volumes().await.len(), 0, "the volume is left");
    assert!(rig.storage.volumes().is_empty(), "leaked: {:?}", rig.storage.volumes());
    rig.at_rest().await;
}

/// Plays a life that dies at every write in turn, before and after it. Gives how many writes there are.
fn at_every_write(scenario: impl AsyncFn(&Rig, u64, Fate) -> End + Sync) -> u64 {
    for number in 1..=MOST {
        let mut died = false;
        for fate in [Fate::CrashBefore, Fate::CrashAfter] {
            println!("write {number}: {fate:?}");
            died |= play(async |rig| scenario(&rig, number, fate.clone()).await == End::Crashed);
        }
        if !died {
            return number - 1;
        }
    }
    panic!("more than {MOST} writes");
}

/// Rule: SIDECAR-P1
#[test]
fn provisioning_survives_a_crash_at_every_write() {
    let writes = at_every_write(async |rig, number, fate| {
        let uid = rig.claim("c").await;
        let end = rig.live(at_write(number, fate), MINUTE).await;
        rig.nothing_is_lost().await;
        rig.live(Fair, MINUTE).await;
        let volume = rig.volume(&uid).await.expect("the claim has its volume");
        assert_eq!(rig.storage.volumes().len(), 1, "exactly one exists");
        assert_eq!(volume.claim.as_ref().and_then(|claim| claim.uid.clone()), Some(uid.clone()));
        rig.at_rest().await;
        wind_up(rig, Some("c"), &uid).await;
        end
    });
    assert_eq!(writes, 3, "the intent, the volume, the intent's end");
}

/// Rules: SIDECAR-P2, SIDECAR-P3
#[test]
fn provisioning_survives_a_crash_at_every_write_and_the_end_of_the_claim() {
    at_every_write(async |rig, number, fate| {
        let uid = rig.claim("c").await;
        let end = rig.live(at_write(number, fate), MINUTE).await;
        rig.delete_claim("c").await;
        rig.nothing_is_lost().await;
        wind_up(rig, None, &uid).await;
        end
    });
}

/// Rule: SIDECAR-P16
#[test]
fn deletion_survives_a_crash_at_every_write() {
    let writes = at_every_write(async |rig, number, fate| {
        let uid = rig.claim("c").await;
        rig.live(Fair, MINUTE).await;
        rig.bind("c", &uid).await;
        rig.delete_claim("c").await;
        rig.release(&format!("pvc-{uid}")).await;
        let end = rig.live(at_write(number, fate), MINUTE).await;
        rig.nothing_is_lost().await;
        rig.live(Fair, MINUTE).await;
        assert!(rig.volume(&uid).await.is_none() && rig.storage.volumes().is_empty());
        assert_eq!(rig.storage.creates(), 1);
        rig.at_rest().await;
        end
    });
    assert_eq!(writes, 2, "the object, the finalizer");
}

/// external-provisioner #486: the answer is lost with the process, the claim goes away, and another process comes.
/// Rule: SIDECAR-P2
#[test]
fn a_claim_deleted_while_the_answer_is_lost_and_the_process_restarts_leaks_nothing() {
    for turn in [Turn::Kills, Turn::AnswerLost] {
        play(async |rig| {
            println!("{turn:?}");
            rig.storage.will_create([turn.clone()]);
            let uid = rig.claim("c").await;
            let kept = rig.live(Fair, Duration::from_millis(500)).await;
            assert_eq!(kept == End::Killed, matches!(turn, Turn::Kills));
            assert_eq!(rig.storage.volumes().len(), 1, "it was made");
            rig.delete_claim("c").await;
            rig.delete_class("fast").await;
            rig.nothing_is_lost().await;
            wind_up(&rig, None, &uid).await;
            let zones = rig.storage.calls().into_iter().filter_map(|call| match call {
                Called::Create { zone, .. } => Some(zone),
                _ => None,
            });
            assert!(zones.eq(["first", "first"]), "the same call, without claim and class");
        });
    }
}

/// Rule: SIDECAR-P1
#[test]
fn the_topology_of_the_first_attempt_is_repeated_after_a_restart() {
    play(async |rig| {
        rig.storage.will_create([Turn::Kills]);
        let uid = rig.claim("c").await;
        assert_eq!(rig.live(Fair, MINUTE).await, End::Killed);
        rig.storage.move_to("second");
        rig.live(Fair, MINUTE).await;
        let name = format!("pvc-{uid}");
        let create = Called::Create { name: name.clone(), zone: "first".to_owned() };
        assert_eq!(rig.storage.calls(), [create.clone(), create, Called::Stored { name }]);
        rig.claim("later").await;
        rig.live(Fair, MINUTE).await;
        assert!(matches!(&rig.storage.calls()[3], Called::Create { zone, .. } if zone == "second"));
        rig.at_rest().await;
    });
}

#[test]
fn an_intent_whose_end_was_not_written_is_harmless_because_the_volume_is_there() {
    play(async |rig| {
        let uid = rig.claim("c").await;
        rig.live(Fair, Duration::from_millis(500)).await;
        assert!(rig.volume(&uid).await.is_some());
        assert_eq!(rig.intents().await.len(), 1, "its end was lingering");
        rig.live(Fair, MINUTE).await;
        assert_eq!(rig.storage.creates(), 1, "the next process finds the volume and makes nothing");
        rig.at_rest().await;
    });
}

/// Rule: SIDECAR-P16
#[test]
fn a_deletion_that_was_called_and_not_answered_is_repeated() {
    play(async |rig| {
        let uid = rig.claim("c").await;
        rig.live(Fair, MINUTE).await;
        rig.delete_claim("c").await;
        rig.release(&format!("pvc-{uid}")).await;
        rig.storage.will_delete([Turn::Kills]);
        assert_eq!(rig.live(Fair, MINUTE).await, End::Killed);
        assert!(rig.volume(&uid).await.is_some(), "the object still stands for it");
        rig.live(Fair, MINUTE).await;
        assert!(rig.volume(&uid).await.is_none());
        assert_eq!(rig.storage.deletes(), 2);
        rig.at_rest().await;
    });
}

/// Claim and volume go while the end of the intent still lingers: were it not written first, the next process would take
/// the deleted volume for one that was never made.
#[test]
fn a_volume_is_not_deleted_before_its_intent_is_closed() {
    let writes = at_every_write(async |rig, number, fate| {
        let uid = rig.claim("c").await;
        let script = async {
            sleep(Duration::from_millis(100)).await;
            rig.delete_claim("c").await;
            if let Some(volume) = rig.volume(&uid).await {
                rig.release(volume.name()).await;
            }
            sleep(MINUTE).await;
        };
        let end = rig.live_beside(at_write(number, fate), script).await;
        if end == End::Crashed && rig.get::<api::Claim>(&api::Key::namespaced("default", "c")).await.is_some() {
            rig.delete_claim("c").await;
        }
        let emptied = rig.storage.deletes() > 0;
        wind_up(rig, None, &uid).await;
        assert!(!emptied || rig.storage.creates() == 1, "it was made again: {:?}", rig.storage.calls());
        end
    });
    assert_eq!(writes, 5, "the intent, the volume, the intent's end, the object, the finalizer");
}

/// A claim that goes at any moment while its volume is being made slowly.
/// Rules: SIDECAR-P2, SIDECAR-P3
#[test]
fn a_claim_may_go_at_any_moment() {
    for millis in (0..4000).step_by(250) {
        play(async |rig| {
            println!("after {millis} ms");
            rig.storage.will_create([Turn::Takes(Duration::from_secs(2))]);
            let uid = rig.claim("c").await;
            let script = async {
                sleep(Duration::from_millis(millis)).await;
                rig.delete_claim("c").await;
                sleep(MINUTE).await;
            };
            rig.live_beside(Fair, script).await;
            wind_up(&rig, None, &uid).await;
        });
    }
}
