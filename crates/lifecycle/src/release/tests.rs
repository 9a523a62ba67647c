//! BIND-4.4 and BIND-4.10.

use api::keys::{annotation, finalizer, provisioner};
use api::{Claim, Key, Volume, VolumePhase};
use serde_json::{Value, json};

use super::volume::{Action, Because, ClaimSeen, Plugin, Seen, Verdict, decide};
use crate::bind::tests::{BY_CONTROLLER, annotated, bond, claim, over, reservation, volume};
use crate::decision::{Lookup, Reason, Severity};
use crate::migration;

const HOST_PATH: Plugin<'static> = Plugin { name: provisioner::HOST_PATH, deletes: true, recycles: true };

fn decided(volume: &Volume, claim: ClaimSeen<'_>) -> Verdict {
    decide(&Seen { volume, claim, plugins: &[HOST_PATH] })
}

fn key() -> Key {
    Key::namespaced("n", "c")
}

fn phase(verdict: &Verdict) -> Option<VolumePhase> {
    match &verdict.actions[..] {
        [Action::SetPhase { phase, .. }] => Some(*phase),
        _ => None,
    }
}

fn in_phase(phase: &str) -> Value {
    json!({"status": {"phase": phase}})
}

fn policy(policy: &str) -> Value {
    json!({"spec": {"persistentVolumeReclaimPolicy": policy}})
}

fn made_by(name: &str) -> Value {
    json!({"metadata": {"annotations": {annotation::PROVISIONED_BY.text(): name}}})
}

fn all(patches: &[Value]) -> Value {
    patches.iter().cloned().fold(json!({}), over)
}

const GONE: ClaimSeen<'static> = ClaimSeen::Live(Lookup::Absent);

/// Rules: BIND-V1, BIND-V2
#[test]
fn a_volume_that_nobody_has_is_available_and_so_is_a_reserved_one() {
    assert_eq!(phase(&decided(&volume("v", in_phase("Pending")), ClaimSeen::Unnamed)), Some(VolumePhase::Available));
    let reserved = volume("v", over(reservation(), in_phase("Pending")));
    assert_eq!(phase(&decided(&reserved, ClaimSeen::Unnamed)), Some(VolumePhase::Available));
    assert!(decided(&volume("v", json!({})), ClaimSeen::Unnamed).is_rest());
}

/// Rules: BIND-V3, BIND-V4, CTRL-I1, CTRL-13.3, CTRL-13.2, CTRL-13.13
#[test]
fn a_claim_is_gone_only_when_the_server_says_so() {
    let bound = volume("v", over(bond(), in_phase("Bound")));
    let read = [Action::ReadClaim { key: key() }];
    assert_eq!(decided(&bound, ClaimSeen::NotCached).actions, read);
    let younger = claim(json!({"metadata": {"uid": "another"}}));
    assert_eq!(decided(&bound, ClaimSeen::Cached(&younger)).actions, read, "CTRL-13.3");
    assert_eq!(phase(&decided(&bound, GONE)), Some(VolumePhase::Released), "BIND-V4");
    let verdict = decided(&bound, ClaimSeen::Live(Lookup::Found(&younger)));
    assert_eq!(phase(&verdict), Some(VolumePhase::Released), "the name was used again");
}

/// Rule: CTRL-14.6
#[test]
fn a_volume_that_was_chosen_and_never_given_is_put_back_not_reclaimed() {
    let chosen = all(&[bond(), annotated(&[BY_CONTROLLER]), policy("Delete")]);
    let verdict = decided(&volume("v", chosen.clone()), GONE);
    assert!(matches!(verdict.actions[..], [Action::Erase { .. }]), "CTRL-14.6: {verdict:?}");
    // Made on demand for that claim, it is nobody else's.
    let made = all(&[chosen, made_by("d.example.com")]);
    assert_eq!(phase(&decided(&volume("v", made), GONE)), Some(VolumePhase::Released));
}

/// Rule: BIND-V5
#[test]
fn a_mode_that_cannot_match_is_said() {
    let block = volume("v", over(bond(), json!({"spec": {"volumeMode": "Block"}})));
    let verdict = decided(&block, ClaimSeen::Cached(&claim(json!({}))));
    let notice = verdict.because.notice().expect("an event");
    assert_eq!((notice.severity, notice.reason), (Severity::Warning, "VolumeMismatch"));
}

/// Rules: BIND-V6, BIND-V7
#[test]
fn it_is_the_claims_turn_and_then_the_volume_is_bound() {
    let bonded = volume("v", bond());
    let verdict = decided(&bonded, ClaimSeen::Cached(&claim(json!({}))));
    assert_eq!(verdict.actions, [Action::WakeClaim { key: key() }]);
    let pointing = claim(json!({"spec": {"volumeName": "v"}}));
    assert_eq!(phase(&decided(&bonded, ClaimSeen::Cached(&pointing))), Some(VolumePhase::Bound));
}

fn elsewhere() -> Claim {
    claim(json!({"spec": {"volumeName": "another"}}))
}

/// Rules: BIND-V8, CTRL-13.10
#[test]
fn a_volume_made_for_a_claim_that_took_another_is_released() {
    let loser = all(&[bond(), made_by("d.example.com"), policy("Delete")]);
    let verdict = decided(&volume("v", loser), ClaimSeen::Cached(&elsewhere()));
    assert_eq!(phase(&verdict), Some(VolumePhase::Released));
}

/// Rules: BIND-V9a, BIND-V9b, CTRL-I5, CTRL-13.10
#[test]
fn a_volume_whose_claim_took_another_is_given_back_and_a_users_word_stays() {
    let chosen = volume("v", over(bond(), annotated(&[BY_CONTROLLER])));
    assert!(
        matches!(decided(&chosen, ClaimSeen::Cached(&elsewhere())).actions[..], [Action::Erase { .. }]),
        "BIND-V9a"
    );
    let written = volume("v", bond());
    assert!(
        matches!(decided(&written, ClaimSeen::Cached(&elsewhere())).actions[..], [Action::ClearUid { .. }]),
        "BIND-V9b"
    );
}

fn released(patches: &[Value]) -> Verdict {
    let volume = volume("v", over(all(&[bond(), in_phase("Released")]), all(patches)));
    decided(&volume, GONE)
}

fn host_path() -> Value {
    json!({"spec": {"csi": null, "hostPath": {"path": "/tmp/x"}}})
}

/// Rules: BIND-4.10, BIND-4.13.5, BIND-4.13.6
#[test]
fn a_released_volume_is_kept_deleted_or_emptied_as_its_policy_says() {
    assert_eq!(released(&[policy("Retain")]).because, Because::Retained { claim: key() });
    let external = released(&[policy("Delete"), made_by("d.example.com")]);
    assert_eq!(external.because, Because::DeletedElsewhere { by: "d.example.com".into() });
    let fixed = released(&[policy("Delete")]);
    assert_eq!(fixed.because, Because::DeletedElsewhere { by: "d".into() }, "a CSI volume is its driver's to delete");
    assert!(matches!(released(&[policy("Delete"), host_path()]).actions[..], [Action::Delete { .. }]));
    assert!(matches!(released(&[policy("Recycle"), host_path()]).actions[..], [Action::Recycle { .. }]));
    let verdict = released(&[policy("Compost")]);
    assert_eq!(phase(&verdict), Some(VolumePhase::Failed));
    assert_eq!(verdict.because.notice().map(|notice| notice.reason), Some("VolumeUnknownReclaimPolicy"));
}

/// Rules: BIND-4.10, CTRL-14.16
#[test]
fn what_nobody_can_delete_fails_and_says_so() {
    let verdict = released(&[policy("Delete"), json!({"spec": {"csi": null, "local": {"path": "/mnt"}}})]);
    assert_eq!(phase(&verdict), Some(VolumePhase::Failed));
    assert_eq!(verdict.because.notice().map(|notice| notice.reason), Some("VolumeFailedDelete"));
    let verdict = released(&[policy("Recycle")]);
    assert_eq!(verdict.because, Because::NoRecycler);
}

/// Rule: BIND-4.10
#[test]
fn a_volume_that_moved_to_csi_is_left_to_its_driver() {
    let plugin = migration::plugin_of("ebs.csi.aws.com").expect("it is in the table");
    let marked = json!({"metadata": {"annotations": {annotation::MIGRATED_TO.text(): "ebs.csi.aws.com"}}});
    let verdict = released(&[policy("Delete"), made_by(&plugin), marked]);
    assert_eq!(verdict.because, Because::DeletedElsewhere { by: "ebs.csi.aws.com".into() });
}

/// Rules: BIND-V0, BIND-4.13.7, BIND-4.11
#[test]
fn finalizers_follow_provisioner_and_policy() {
    let maintained = |patches: &[Value]| match decided(&volume("v", all(patches)), ClaimSeen::Unnamed).actions.pop() {
        Some(Action::Maintain { add, remove, .. }) => Some((add, remove)),
        _ => None,
    };
    let in_tree = made_by(provisioner::HOST_PATH);
    let held = |name: &str| json!({"metadata": {"finalizers": [name]}});
    let wanted = (Some(finalizer::PV_CONTROLLER), Vec::new());
    assert_eq!(maintained(&[in_tree.clone(), policy("Delete")]), Some(wanted));
    let retained = [in_tree.clone(), policy("Retain"), held(finalizer::PV_CONTROLLER.text())];
    assert_eq!(maintained(&retained), Some((None, vec![finalizer::PV_CONTROLLER])), "BIND-4.13.7");
    let foreign = [in_tree, policy("Retain"), held(finalizer::EXTERNAL_PROVISIONER.text())];
    assert_eq!(maintained(&foreign), Some((None, vec![finalizer::EXTERNAL_PROVISIONER])));
    assert_eq!(maintained(&[made_by("d.example.com"), policy("Delete")]), None, "an external one is not ours to keep");
}
