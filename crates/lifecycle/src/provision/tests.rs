//! The rules of PROVISION-2.4, PROVISION-2.5 and PROVISION-2.11, each by its number.

use api::keys::{annotation, finalizer, provisioner};
use api::{Claim, Class, Key, ReclaimPolicy, Uid, Volume};
use serde_json::{Value, json};

use super::claim::{self, Beside, ClaimSeen, Held};
use super::delete::{self, Backing, TwinsSeen, VolumeSeen};
use super::intent::IntentOrigin::{Earlier, EarlierUnwanted, Here};
use super::intent::{self, Attempt};
use super::{Names, delete_failed, failed};
use crate::bind::tests::{bond, claim, class, over, volume};
use crate::decision::{Lookup, Reason, Severity, Standing};
use crate::outcome::Retry;

const OURS: &str = "d.example.com";
/// A plugin that we took over from.
const OLD: &str = provisioner::NFS;
const NODE: &str = "node-7";

fn names() -> Vec<String> {
    vec![OURS.to_owned(), OLD.to_owned()]
}

fn annotations(pairs: &[(&str, &str)]) -> Value {
    let pairs: serde_json::Map<String, Value> =
        pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    json!({"metadata": {"annotations": pairs}})
}

fn asked() -> Value {
    annotations(&[(annotation::STORAGE_PROVISIONER.text(), OURS)])
}

/// Decides about a claim that the cache shows, with class `fast`.
fn about(claim: &Claim, class: Option<&Class>) -> claim::Verdict {
    let names = names();
    let (names, beside) = (Names(&names), Beside::NotAsked);
    claim::decide(&claim::Seen { claim: ClaimSeen::Cached(claim), class, namesake: None, names, beside, held: None })
}

fn wanted(verdict: &claim::Verdict) -> bool {
    matches!(verdict.actions[..], [claim::Action::Provision { .. }])
}

/// Rules: PROVISION-2.4.8, PROVISION-2.4.d, PROVISION-2.4.3
#[test]
fn a_claim_that_names_us_and_a_class_of_ours_gets_a_volume() {
    let verdict = about(&claim(asked()), Some(&class("fast", json!({}))));
    assert!(wanted(&verdict), "{verdict:?}");
    let notice = verdict.because.notice().unwrap();
    assert_eq!((notice.severity, notice.reason), (Severity::Normal, "Provisioning"), "PROVISION-2.4.d");
    let beta = claim(annotations(&[(annotation::BETA_STORAGE_PROVISIONER.text(), OURS)]));
    assert!(wanted(&about(&beta, Some(&class("fast", json!({}))))), "PROVISION-2.4.3: the older key counts");
}

/// Rules: PROVISION-2.4.0, PROVISION-2.4.2
#[test]
fn a_claim_that_is_gone_or_has_a_volume_or_is_going_gets_none() {
    let (names, fast) = (names(), class("fast", json!({})));
    let (names, beside) = (Names(&names), Beside::Asked);
    let gone = claim::Seen { claim: ClaimSeen::Gone, class: None, namesake: None, names, beside, held: None };
    assert_eq!(claim::decide(&gone).because, claim::Because::ClaimGone, "PROVISION-2.4.0");
    let has = about(&claim(over(asked(), json!({"spec": {"volumeName": "v"}}))), Some(&fast));
    assert_eq!(has.because, claim::Because::HasVolume { volume: "v".into() }, "PROVISION-2.4.2");
    let going = over(asked(), json!({"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}}));
    assert_eq!(about(&claim(going), Some(&fast)).because, claim::Because::ClaimGoing, "PROVISION-2.4");
}

/// Rules: PROVISION-2.4.3, PROVISION-2.4.5
#[test]
fn only_who_is_asked_acts() {
    let fast = class("fast", json!({}));
    let asked_for = annotation::STORAGE_PROVISIONER.text();
    let migrated = annotation::MIGRATED_TO.text();
    let cases = [
        (json!({}), false),
        (annotations(&[(asked_for, "another")]), false),
        (annotations(&[(asked_for, OLD)]), false),
        (annotations(&[(asked_for, OLD), (migrated, OURS)]), true),
        (annotations(&[(asked_for, "another"), (migrated, OURS)]), false),
        (annotations(&[(asked_for, OURS), (migrated, "another")]), true),
    ];
    for (patch, expected) in cases {
        assert_eq!(wanted(&about(&claim(patch.clone()), Some(&fast))), expected, "{patch}");
    }
    let names = names();
    let (names, beside, unasked) = (Names(&names), Beside::Asked, claim(json!({})));
    let seen = claim::Seen {
        claim: ClaimSeen::Cached(&unasked),
        class: Some(&fast),
        namesake: None,
        names,
        beside,
        held: None,
    };
    assert!(wanted(&claim::decide(&seen)), "a binder in this process asks without a write");
}

/// Rules: PROVISION-2.4.6, PROVISION-2.4.7, PROVISION-2.4.c, PROVISION-2.4.e
#[test]
fn the_class_says_who_and_when() {
    let missing = about(&claim(asked()), None);
    assert_eq!(missing.because, claim::Because::ClassMissing { class: "fast".into() }, "PROVISION-2.4.6");
    assert_eq!(missing.because.standing(), Standing::Stuck);
    let none = about(&claim(over(asked(), json!({"spec": {"storageClassName": ""}}))), None);
    assert_eq!(none.because, claim::Because::NoClass);
    let foreign = about(&claim(asked()), Some(&class("fast", json!({"provisioner": "another"}))));
    assert!(matches!(foreign.because, claim::Because::ClassOfAnother { .. }), "c");
    let delayed = class("fast", json!({"volumeBindingMode": "WaitForFirstConsumer"}));
    assert_eq!(about(&claim(asked()), Some(&delayed)).because, claim::Because::NoNode { class: "fast".into() });
    for (key, mode) in [
        (annotation::SELECTED_NODE, &delayed),
        (annotation::ALPHA_SELECTED_NODE, &delayed),
        (annotation::SELECTED_NODE, &class("fast", json!({}))),
    ] {
        let chosen = claim(over(asked(), annotations(&[(key.text(), NODE)])));
        let expected = [claim::Action::Provision { node: Some(NODE.into()) }];
        assert_eq!(about(&chosen, Some(mode)).actions, expected, "e: {key}, whatever the binding mode");
    }
}

/// Rules: PROVISION-2.4.a, SIDECAR-13.4
#[test]
fn the_name_is_looked_up_as_it_really_is() {
    let (names, fast, asking) = (names(), class("fast", json!({})), claim(asked()));
    let decided = |namesake: &Volume| {
        claim::decide(&claim::Seen {
            claim: ClaimSeen::Cached(&asking),
            class: Some(&fast),
            namesake: Some(namesake),
            names: Names(&names),
            beside: Beside::NotAsked,
            held: None,
        })
        .because
    };
    assert_eq!(decided(&volume("v", bond())), claim::Because::Provisioned { volume: "v".into() });
    let taken = decided(&volume("v", json!({})));
    assert_eq!(taken, claim::Because::NameTaken { volume: "v".into() });
    assert_eq!(taken.notice().unwrap().reason, "ProvisioningFailed");
}

/// Rule: PROVISION-2.4.1
#[test]
fn what_was_refused_as_invalid_waits_until_class_or_claim_changed() {
    let (names, asking) = (names(), claim(asked()));
    let decided = |now: &Claim, class: &Class| {
        let uid = Uid::from("class-1");
        let held = Some(Held { claim: &asking, class: &uid, message: "bad parameter" });
        let (names, beside) = (Names(&names), Beside::NotAsked);
        let class = Some(class);
        claim::decide(&claim::Seen { claim: ClaimSeen::Cached(now), class, namesake: None, names, beside, held })
    };
    let first = class("fast", json!({"metadata": {"uid": "class-1"}}));
    let second = class("fast", json!({"metadata": {"uid": "class-2"}}));
    assert!(matches!(decided(&asking, &first).because, claim::Because::HeldBack { .. }));
    assert!(wanted(&decided(&asking, &second)), "the class was made anew");
    let larger = claim(over(asked(), json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}})));
    assert!(wanted(&decided(&larger, &first)), "the claim asks for something else");
    let touched = claim(over(asked(), json!({"metadata": {"resourceVersion": "9"}})));
    assert!(!wanted(&decided(&touched, &first)), "a write alone changes nothing");
}

/// Rule: PROVISION-2.4.2
#[test]
fn a_claim_that_was_served_is_read_before_it_is_served_again() {
    let (names, fast, asking) = (names(), class("fast", json!({})), claim(asked()));
    let decided = |claim| {
        let (names, beside) = (Names(&names), Beside::NotAsked);
        claim::decide(&claim::Seen { claim, class: Some(&fast), namesake: None, names, beside, held: None })
    };
    let read = [claim::Action::ReadClaim { key: Key::namespaced("n", "c") }];
    assert_eq!(decided(ClaimSeen::Served(&asking)).actions, read);
    assert!(wanted(&decided(ClaimSeen::Live(&asking))));
}

fn ended(stored: Option<&Volume>, attempt: Attempt<'_>) -> intent::Verdict {
    let uid = Uid::from("claim-uid");
    intent::decide(&intent::Seen {
        uid: &uid,
        volume_name: "v",
        claim: None,
        stored,
        twin: None,
        origin: Here,
        attempt,
    })
}

/// Rules: SIDECAR-P1, SIDECAR-P2, SIDECAR-P3, SIDECAR-P4, SIDECAR-P5, SIDECAR-P6
#[test]
fn a_begun_creation_is_repeated_until_it_is_stored_or_refused() {
    assert_eq!(ended(None, Attempt::Open).actions, [intent::Action::Create]);
    assert_eq!(ended(None, Attempt::Open).because, intent::Because::Orphaned, "SIDECAR-P2: the claim is gone");
    let made = volume("v", bond());
    assert_eq!(ended(None, Attempt::Made(&made)).actions, [intent::Action::Store]);
    let stored = ended(Some(&made), Attempt::Made(&made));
    assert_eq!(stored.actions, [intent::Action::Close]);
    assert_eq!(stored.because.notice().unwrap().reason, "ProvisioningSucceeded");
    assert_eq!(ended(Some(&made), Attempt::Open).actions, [intent::Action::Close], "stored by a process before us");
    for retry in [Retry::Later, Retry::Elsewhere, Retry::Changed] {
        assert_eq!(ended(None, Attempt::Refused(retry)).actions, [intent::Action::Close]);
    }
}

/// Rule: SIDECAR-P4
#[test]
fn the_claim_changes_what_is_said_and_not_what_is_done() {
    let uid = Uid::from("claim-uid");
    let decided = |claim: &Claim| {
        let (claim, attempt) = (Some(claim), Attempt::Open);
        intent::decide(&intent::Seen {
            uid: &uid,
            volume_name: "v",
            claim,
            stored: None,
            twin: None,
            origin: Here,
            attempt,
        })
    };
    let waiting = decided(&claim(json!({})));
    let elsewhere = decided(&claim(json!({"spec": {"volumeName": "another"}})));
    assert_eq!((&waiting.because, &elsewhere.because), (&intent::Because::Wanted, &intent::Because::Orphaned));
    assert_eq!(waiting.actions, elsewhere.actions);
}

/// Rule: PROVISION-2.10
#[test]
fn what_cannot_be_stored_under_its_name_is_undone_unless_somebody_has_it() {
    let made = volume("v", bond());
    let stranger = volume("v", json!({"spec": {"csi": {"volumeHandle": "strange"}}}));
    assert_eq!(ended(Some(&stranger), Attempt::Open).actions, [intent::Action::Create], "first find what we began");
    assert_eq!(ended(Some(&stranger), Attempt::Made(&made)).actions, [intent::Action::Undo]);
    assert_eq!(ended(Some(&stranger), Attempt::Undone).actions, [intent::Action::Close]);
    let twin = volume("v", over(bond(), json!({"spec": {"csi": {"volumeHandle": "earlier"}}})));
    assert_eq!(ended(Some(&twin), Attempt::Made(&made)).actions, [intent::Action::Undo], "ours, but of another handle");
    let same = ended(Some(&volume("v", json!({}))), Attempt::Made(&made));
    assert_eq!(same.actions, [intent::Action::Close], "what another object is made of is never deleted");
    assert!(matches!(same.because, intent::Because::SourceTaken { .. }));
    let uid = Uid::from("claim-uid");
    let (stored, twin, attempt) = (Some(&stranger), Some(&made), Attempt::Made(&made));
    let elsewhere =
        intent::decide(&intent::Seen { uid: &uid, volume_name: "v", claim: None, stored, twin, origin: Here, attempt });
    assert!(matches!(elsewhere.because, intent::Because::SourceTaken { .. }), "a static volume under another name");
    let going = volume("v", over(bond(), json!({"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}})));
    assert_eq!(ended(Some(&going), Attempt::Open).actions, [intent::Action::Create], "it may stand for an earlier one");
}

/// A volume that an operator kept is found by an intent that is older than his decision.
#[test]
fn an_earlier_intent_never_has_a_kept_volume_deleted() {
    let (uid, made) = (Uid::from("claim-uid"), volume("v", bond()));
    let decided = |twin, origin| {
        let attempt = Attempt::Made(&made);
        intent::decide(&intent::Seen { uid: &uid, volume_name: "v", claim: None, stored: None, twin, origin, attempt })
    };
    assert_eq!(decided(None, Here).actions, [intent::Action::Store], "its claim may go, and the volume with it");
    assert_eq!(decided(None, Earlier).actions, [intent::Action::Store]);
    assert_eq!(decided(None, EarlierUnwanted).actions, [intent::Action::StoreRetained]);
    assert_eq!(decided(None, EarlierUnwanted).because.notice().unwrap().reason, "VolumeRetained");
    let kept = volume("kept", json!({}));
    let going = volume("kept", json!({"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}}));
    for origin in [Here, Earlier, EarlierUnwanted] {
        assert_eq!(decided(Some(&kept), origin).actions, [intent::Action::Close], "{origin:?}");
    }
    for origin in [Here, Earlier] {
        assert!(decided(Some(&going), origin).is_rest(), "{origin:?}: whether the volume goes with it is not known");
    }
    assert_eq!(decided(Some(&going), EarlierUnwanted).actions, [intent::Action::Close], "no claim waits for an answer");
    let waiting = claim(json!({}));
    assert_eq!(intent::IntentOrigin::earlier(Some(&waiting)), Earlier);
    for over in [None, Some(claim(json!({"spec": {"volumeName": "v"}})))] {
        assert_eq!(intent::IntentOrigin::earlier(over.as_ref()), EarlierUnwanted);
    }
}

fn guarded() -> Value {
    json!({"metadata": {"finalizers": [finalizer::EXTERNAL_PROVISIONER.text()]}})
}

fn made_by(name: &str) -> Value {
    annotations(&[(annotation::PROVISIONED_BY.text(), name)])
}

fn state(phase: &str, policy: &str) -> Value {
    let spec = json!({"spec": {"persistentVolumeReclaimPolicy": policy}, "status": {"phase": phase}});
    over(over(bond(), made_by(OURS)), spec)
}

fn deleted(volume: &Volume, claim: Lookup<'_, Claim>, backing: Backing) -> delete::Verdict {
    let (names, volume) = (names(), VolumeSeen::Live(volume));
    let twins = TwinsSeen::None;
    delete::decide(&delete::Seen { volume, claim, names: Names(&names), backing, twins })
}

fn first(volume: &Volume) -> delete::Verdict {
    deleted(volume, Lookup::Absent, Backing::Unknown)
}

/// Rule: PROVISION-2.11.1
#[test]
fn a_volume_is_ours_by_its_maker_or_by_its_driver() {
    let migrated = over(made_by(OLD), annotations(&[(annotation::MIGRATED_TO.text(), OURS)]));
    let cases = [
        (made_by(OURS), true),
        (made_by("another"), false),
        (made_by(OLD), false),
        (migrated, true),
        (json!({"spec": {"csi": {"driver": OURS}}}), true),
        (over(made_by("another"), json!({"spec": {"csi": {"driver": OURS}}})), false),
        (json!({}), false),
    ];
    for (patch, expected) in cases {
        let names = names();
        assert_eq!(delete::is_ours(&volume("v", patch.clone()), Names(&names)), expected, "{patch}");
    }
    let nobody: [String; 0] = [];
    assert!(!delete::is_ours(&volume("v", json!({"spec": {"csi": {"driver": ""}}})), Names(&nobody)));
}

/// Rules: PROVISION-2.11.2, SIDECAR-P17, SIDECAR-14.5.8
#[test]
fn the_finalizer_follows_policy_and_phase() {
    let add = [delete::Action::AddFinalizer];
    let remove = [delete::Action::RemoveFinalizer];
    assert_eq!(first(&volume("v", state("Bound", "Delete"))).actions, add);
    assert_eq!(first(&volume("v", state("Released", "Delete"))).actions, add, "SIDECAR-P17: released before we saw it");
    assert!(first(&volume("v", state("Available", "Delete"))).is_rest());
    assert!(first(&volume("v", over(state("Bound", "Delete"), guarded()))).is_rest());
    for policy in ["Retain", "Recycle"] {
        let verdict = first(&volume("v", over(state("Bound", policy), guarded())));
        assert_eq!(verdict.actions, remove, "{policy} (PROVISION-2.11.2, SIDECAR-14.5.8)");
        assert!(first(&volume("v", state("Bound", policy))).is_rest());
    }
    let strange = first(&volume("v", over(state("Released", "Shred"), guarded())));
    assert_eq!(strange.because, delete::Because::Kept { policy: ReclaimPolicy::Unknown });
    assert!(strange.is_rest(), "nothing is done about a policy that nobody knows");
}

/// Rule: PROVISION-2.11.3
#[test]
fn only_a_released_volume_with_policy_delete_and_our_finalizer_is_deleted() {
    for phase in ["Pending", "Available", "Bound", "Failed"] {
        let held = volume("v", over(state(phase, "Delete"), guarded()));
        assert!(first(&held).is_rest(), "{phase}");
    }
    let released = volume("v", over(state("Released", "Delete"), guarded()));
    assert_eq!(first(&released).actions, [delete::Action::DeleteBacking]);
    let (names, volume_seen, claim) = (names(), VolumeSeen::Cached(&released), Lookup::Absent);
    let (names, backing) = (Names(&names), Backing::Unknown);
    let cached = delete::decide(&delete::Seen { volume: volume_seen, claim, names, backing, twins: TwinsSeen::None });
    assert_eq!(cached.actions, [delete::Action::ReadVolume], "it may be somebody else's by now");
    let going = json!({"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}});
    let going_guarded = volume("v", over(over(state("Released", "Delete"), guarded()), going.clone()));
    assert_eq!(first(&going_guarded).actions, [delete::Action::DeleteBacking]);
    assert_eq!(first(&volume("v", over(state("Released", "Delete"), going))).because, delete::Because::LetGo);
}

#[test]
fn a_live_claim_forbids_deletion_and_a_missing_one_is_asked_for() {
    let released = volume("v", over(state("Released", "Delete"), guarded()));
    let decided = |claim: Lookup<'_, Claim>| deleted(&released, claim, Backing::Unknown);
    let read = [delete::Action::ReadClaim { key: Key::namespaced("n", "c") }];
    assert_eq!(decided(Lookup::NotCached).actions, read);
    for points_at in ["", "v"] {
        let lives = claim(json!({"spec": {"volumeName": points_at}}));
        assert!(matches!(decided(Lookup::Found(&lives)).because, delete::Because::ClaimLives { .. }));
    }
    let elsewhere = claim(json!({"spec": {"volumeName": "another"}}));
    let younger = claim(json!({"metadata": {"uid": "younger"}}));
    for done in [&elsewhere, &younger] {
        assert_eq!(decided(Lookup::Found(done)).actions, [delete::Action::DeleteBacking]);
    }
    let unnamed = volume("v", over(over(state("Released", "Delete"), guarded()), json!({"spec": {"claimRef": null}})));
    assert_eq!(first(&unnamed).because, delete::Because::Unclaimed);
}

/// Rule: PROVISION-2.11.6
#[test]
fn the_object_goes_after_its_backing_and_the_finalizer_last() {
    let released = over(state("Released", "Delete"), guarded());
    let going = json!({"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}});
    let decided = |patch: Value| deleted(&volume("v", patch), Lookup::NotCached, Backing::Gone);
    assert_eq!(decided(released.clone()).actions, [delete::Action::DeleteObject]);
    assert_eq!(decided(over(released, going.clone())).actions, [delete::Action::RemoveFinalizer]);
    assert_eq!(decided(over(state("Released", "Delete"), going)).because, delete::Because::Gone);
}

/// Rule: PROVISION-2.5
#[test]
fn failures_are_told_with_upstreams_reasons() {
    let notice = failed("fast", "no room");
    assert_eq!(notice.reason, "ProvisioningFailed");
    assert_eq!(notice.message, "failed to provision volume with StorageClass \"fast\": no room");
    assert_eq!(delete_failed("in use").reason, "VolumeFailedDelete");
}

#[test]
fn a_handle_that_another_volume_keeps_is_not_deleted() {
    let released = volume("v", over(state("Released", "Delete"), guarded()));
    let names = names();
    let decided = |twins| {
        let (volume, claim) = (VolumeSeen::Live(&released), Lookup::Absent);
        delete::decide(&delete::Seen { volume, claim, names: Names(&names), backing: Backing::Unknown, twins })
    };
    let twin = volume("twin", json!({}));
    let kept = decided(TwinsSeen::Kept(&twin));
    assert!(kept.is_rest() && matches!(kept.because, delete::Because::Shared { .. }), "{kept:?}");
    assert_eq!(decided(TwinsSeen::NotRead).actions, [delete::Action::ReadTwins]);
    assert_eq!(decided(TwinsSeen::None).actions, [delete::Action::DeleteBacking]);
    for (phase, policy, keeps) in [
        ("Released", "Delete", false),
        ("Released", "Retain", true),
        ("Bound", "Delete", true),
        ("Available", "Delete", true),
        ("Failed", "Delete", true),
    ] {
        assert_eq!(delete::keeps(&volume("twin", state(phase, policy))), keeps, "{phase} {policy}");
    }
}
