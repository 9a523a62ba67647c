//! Every point between two writes (invariant 4 of `lifecycle::schedule`).

use control::schedule::Options;
use sim::faults::{Fate, Refusal};

use crate::rig::{Rig, Script, claim, claimed, class, in_faulty_rig, pod, volume};

/// A claim for a volume that exists and one for a volume to be made: three writes, then the pod has its node.
async fn both_ways(rig: Rig) {
    rig.nodes(&["a", "b"]).await;
    rig.create(class("late")).await;
    // Two of them, so that a scheduler that forgot its choice could take both.
    rig.create(volume("u", "2Gi", Some("a"))).await;
    rig.create(volume("v", "2Gi", Some("b"))).await;
    rig.create(claim("little", "1Gi")).await;
    rig.create(claim("large", "9Gi")).await;
    rig.create(pod("p", &["little", "large"])).await;
    rig.scheduled("p").await;
    rig.settle().await;
    let taken: Vec<&str> = ["u", "v"].into_iter().collect();
    let mut owners = Vec::new();
    for name in taken {
        owners.extend(claimed(&rig.get("persistentvolumes", name).await).map(str::to_owned));
    }
    assert_eq!(owners, ["little"], "{:#?}", rig.journal());
    let volumes = rig.list("persistentvolumes").await;
    assert_eq!(volumes.len(), 3, "one was made");
    let writes = rig.writes_of("scheduler");
    assert!(writes <= 5, "{writes} writes: {:#?}", rig.journal());
}

fn every_write_meets(fate: &Fate) {
    for write in 1..=3 {
        println!("write {write} meets {fate:?}");
        let script = Script { write, fate: fate.clone() };
        in_faulty_rig(Some(script), Options::default(), both_ways);
    }
}

#[test]
fn a_crash_before_any_write_is_made_good() {
    every_write_meets(&Fate::CrashBefore);
}

#[test]
fn a_crash_after_any_write_is_made_good() {
    every_write_meets(&Fate::CrashAfter);
}

#[test]
fn a_write_that_never_arrived_is_made_again() {
    every_write_meets(&Fate::RequestLost);
}

#[test]
fn a_write_whose_answer_was_lost_is_looked_for_not_repeated_blindly() {
    every_write_meets(&Fate::AnswerLost);
}

#[test]
fn a_conflict_is_no_error() {
    every_write_meets(&Fate::Refused(Refusal::Conflict));
}

#[test]
fn a_server_that_is_away_is_waited_for() {
    every_write_meets(&Fate::Refused(Refusal::Unavailable { seconds: 3 }));
}
