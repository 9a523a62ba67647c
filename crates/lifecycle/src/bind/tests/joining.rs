use api::keys::annotation;
use api::{AccessMode, AccessModes, ClaimPhase};
use serde_json::{Value, json};

use super::{COMPLETED, annotated, bond, claim, class, over, shelf, volume};
use crate::bind::claim::{Action, ClassSeen, Seen, Supply, VolumeSeen, decide};
use crate::bind::status::{Field, Status};
use crate::decision::{Decision, Lookup};

/// Decides and writes until rest; every decision is made anew, so each is also a restart after a crash (CTRL-I9).
/// Rules: BIND-W1, BIND-W2, BIND-W3, BIND-W4, CTRL-I9, CTRL-13.11
#[test]
fn four_writes_join_claim_and_volume_and_every_prefix_goes_on() {
    let fast = class("fast", json!({}));
    let (mut on_claim, mut on_volume) = (json!({}), json!({}));
    let mut writes = Vec::new();
    loop {
        let (claim, volume) = (claim(on_claim.clone()), volume("v", on_volume.clone()));
        let shelf = shelf([volume.clone()]);
        let seen = match claim.volume_name.is_empty() {
            true => VolumeSeen::Open(shelf.offer(&claim)),
            false => VolumeSeen::Named(Lookup::Found(&volume)),
        };
        let class = ClassSeen::Found { class: &fast, supply: Supply::External };
        let Decision { actions, .. } = decide(&Seen { claim: &claim, volume: seen, class, pods: &[] });
        let Some(action) = actions.into_iter().next() else { break };
        let patch: (Option<Value>, Option<Value>) = match action {
            Action::Reserve { chosen: true, .. } => (None, Some(bond())),
            Action::MarkBound { .. } => (None, Some(json!({"status": {"phase": "Bound"}}))),
            Action::Point { chosen: true, .. } => {
                (Some(over(annotated(&[COMPLETED]), json!({"spec": {"volumeName": "v"}}))), None)
            }
            Action::SetStatus(Status { phase: ClaimPhase::Bound, .. }) => {
                let status =
                    json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}});
                (Some(json!({"status": status})), None)
            }
            other => panic!("not one of the four writes: {other:?}"),
        };
        writes.push(if patch.0.is_some() { "claim" } else { "volume" });
        on_claim = over(on_claim, patch.0.unwrap_or(json!({})));
        on_volume = over(on_volume, patch.1.unwrap_or(json!({})));
        assert!(writes.len() <= 4, "it never ends");
    }
    assert_eq!(writes, ["volume", "volume", "claim", "claim"]);
}

fn bound_status(on_claim: Value, on_volume: Value) -> Option<Status> {
    let claim = claim(over(over(annotated(&[COMPLETED]), json!({"spec": {"volumeName": "v"}})), on_claim));
    let volume = volume("v", over(over(bond(), json!({"status": {"phase": "Bound"}})), on_volume));
    let seen = VolumeSeen::Named(Lookup::Found(&volume));
    let verdict = decide(&Seen { claim: &claim, volume: seen, class: ClassSeen::None, pods: &[] });
    match verdict.actions.into_iter().next() {
        Some(Action::SetStatus(status)) => Some(status),
        None => None,
        Some(other) => panic!("{other:?}"),
    }
}

/// Rules: CTRL-I8, CTRL-13.14
#[test]
fn capacity_and_attributes_class_are_written_with_the_phase_and_never_after_it() {
    let gold = json!({"spec": {"volumeAttributesClassName": "gold"}});
    let status = bound_status(json!({}), gold);
    let status = status.expect("the phase changes");
    assert!(matches!(&status.capacity, Field::Set(Some(amount)) if amount.text() == "2Gi"));
    let before =
        json!({"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}});
    assert_eq!(bound_status(before.clone(), json!({})), None, "a resizer's capacity is left alone");
    let modes = json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}});
    let status = bound_status(before, modes).expect("the access modes are behind");
    assert_eq!((status.capacity, status.attributes_class), (Field::Keep, Field::Keep));
    assert_eq!(status.access, AccessModes::of(&[AccessMode::ReadWriteOnce, AccessMode::ReadOnlyMany]));
}

/// Rule: BIND-4.5
#[test]
fn while_a_filesystem_still_has_to_grow_the_claim_keeps_its_old_size() {
    let key = annotation::PRE_RESIZE_CAPACITY.text();
    let grown = json!({"metadata": {"annotations": {key: "1Gi"}}, "spec": {"capacity": {"storage": "9Gi"}}});
    let status = bound_status(json!({}), grown).expect("the phase changes");
    assert!(matches!(&status.capacity, Field::Set(Some(amount)) if amount.text() == "1Gi"), "BIND-4.5");
}
