//! The rules as tables.

use api::csi::CsiDriverSpec;
use api::{AccessMode, AccessModes, Amount, Claim, Pairs, Uid, Volume};
use serde_json::{Value, json};

use super::because::Stage;
use super::claim::{Asked, Place};
use super::expand::{self, Everywhere, Growth};
use super::state::{Class, Held, Origin, class};
use super::terms::{self, Owner, Ownership, WireMode};
use super::volume::{
    Alone, Attach, Attachment, Due, Holder, Observed, Removal, Sharing, Staging, Step, Wanted, Wish, decide,
};
use super::{Because, claim};
use crate::decision::{Lookup, Reason as _, Standing};
use crate::outcome::{Call, Code};

const ASKED: Held = Held::Maybe(Origin::Asked);
const SEEN: Held = Held::Maybe(Origin::Seen);
const RECORDED: Held = Held::Maybe(Origin::Recorded);

fn uid(text: &str) -> Uid {
    text.into()
}

fn wanted(pod: &str, held: Held) -> Wanted {
    Wanted { pod: uid(pod), held, due: Due::Nothing, context: None }
}

fn holder(pod: &str, held: Held, wish: Wish) -> Holder {
    Holder { pod: uid(pod), held, wish }
}

/// A driver that stages and need not attach; everything is known.
fn observed<'a>(device: Held, wanted: &'a [Wanted], holders: &'a [Holder]) -> Observed<'a> {
    Observed {
        attach: Attach::NotNeeded,
        driver: None,
        alone: Alone::No,
        staging: Staging::Needed,
        device,
        removal: Removal::Allowed,
        sharing: Sharing::Many,
        context: None,
        wanted,
        holders,
    }
}

fn steps(observed: &Observed<'_>) -> Vec<Step> {
    decide(observed).actions
}

/// Rules: NODE-10, NODE-6.2
#[test]
fn the_way_there_is_stage_then_publish() {
    let pod = [wanted("p", Held::No)];
    assert_eq!(steps(&observed(Held::No, &pod, &[])), [Step::Stage(uid("p"))]);
    assert_eq!(
        steps(&observed(ASKED, &pod, &[])),
        [Step::Stage(uid("p"))],
        "NODE-6.2: what is uncertain is asked again"
    );
    assert_eq!(steps(&observed(Held::Yes, &pod, &[])), [Step::Publish(uid("p"))]);
    let has = [holder("p", Held::Yes, Wish::Wanted)];
    let settled = [wanted("p", Held::Yes)];
    let decision = decide(&observed(Held::Yes, &settled, &has));
    assert!(decision.is_rest() && decision.because == Because::Ready);
}

/// Rules: NODE-13, NODE-30.8
#[test]
fn the_way_back_is_unpublish_unstage_forget() {
    let has = [holder("p", Held::Yes, Wish::Unwanted)];
    assert_eq!(steps(&observed(Held::Yes, &[], &has)), [Step::Unpublish(uid("p"))]);
    assert_eq!(steps(&observed(Held::Yes, &[], &[])), [Step::Unstage]);
    assert_eq!(steps(&observed(SEEN, &[], &[])), [Step::Unstage], "NODE-30.8");
    assert_eq!(steps(&observed(Held::No, &[], &[])), [Step::Forget]);
}

/// Rules: NODE-30.1, NODE-7
#[test]
fn nothing_is_taken_away_before_everything_is_known() {
    let has = [holder("p", Held::Yes, Wish::Unwanted)];
    let early = Observed { removal: Removal::NotYet, ..observed(Held::Yes, &[], &has) };
    assert_eq!((steps(&early), decide(&early).because), (Vec::new(), Because::NotKnownYet));
    let alone = Observed { removal: Removal::NotYet, ..observed(Held::Yes, &[], &[]) };
    assert_eq!(decide(&alone).because, Because::NotKnownYet);
    // Mounting is allowed meanwhile (NODE-7).
    let pod = [wanted("q", Held::No)];
    let both = Observed { removal: Removal::NotYet, ..observed(Held::Yes, &pod, &has) };
    assert_eq!(steps(&both), [Step::Publish(uid("q"))]);
}

#[test]
fn what_a_living_pod_may_want_stays() {
    let has = [holder("p", SEEN, Wish::Unclear)];
    assert!(decide(&observed(Held::Yes, &[], &has)).is_rest());
}

/// Rules: NODE-31.25, NODE-23, NODE-32.19
#[test]
fn without_its_driver_only_what_nobody_wants_goes_and_only_if_the_operator_says_so() {
    let gone = Because::DriverMissing { driver: "d".into() };
    let has = [holder("p", Held::Yes, Wish::Unwanted)];
    let waits = Observed { driver: Some(gone.clone()), ..observed(Held::Yes, &[], &has) };
    assert_eq!((steps(&waits), decide(&waits).because), (Vec::new(), gone.clone()), "NODE-23, NODE-32.19");
    fn alone(of: Observed<'_>) -> Observed<'_> {
        Observed { driver: Some(Because::DriverMissing { driver: "d".into() }), alone: Alone::Allowed, ..of }
    }
    let because = Because::Alone { driver: "d".into() };
    let decision = decide(&alone(observed(Held::Yes, &[], &has)));
    assert_eq!((decision.actions, decision.because), (vec![Step::Unpublish(uid("p"))], because.clone()));
    let decision = decide(&alone(observed(Held::Yes, &[], &[])));
    assert_eq!((decision.actions, decision.because), (vec![Step::Unstage], because));
    // Nothing before everything is known, and nothing that a pod wants, dead or not.
    let early = Observed { removal: Removal::NotYet, ..alone(observed(Held::Yes, &[], &has)) };
    assert_eq!(steps(&early), []);
    let wants = [wanted("p", Held::Corrupted)];
    let dead = [holder("p", Held::Corrupted, Wish::Wanted)];
    assert_eq!(steps(&alone(observed(Held::Corrupted, &wants, &dead))), []);
    assert_eq!(steps(&alone(observed(Held::Corrupted, &wants, &[]))), []);
}

/// Rule: NODE-7
#[test]
fn unmounting_comes_before_mounting() {
    let (pod, has) = ([wanted("new", Held::No)], [holder("old", Held::Yes, Wish::Unwanted)]);
    assert_eq!(steps(&observed(Held::Yes, &pod, &has)), [Step::Unpublish(uid("old")), Step::Publish(uid("new"))]);
}

#[test]
fn a_dead_mount_is_taken_down_to_the_stage_and_made_anew() {
    let pod = [wanted("p", Held::Corrupted)];
    let has = [holder("p", Held::Corrupted, Wish::Wanted)];
    assert_eq!(steps(&observed(Held::Corrupted, &pod, &has)), [Step::Unpublish(uid("p"))]);
    let gone = [wanted("p", Held::No)];
    assert_eq!(steps(&observed(Held::Corrupted, &gone, &[])), [Step::Unstage]);
    assert_eq!(steps(&observed(Held::No, &gone, &[])), [Step::Stage(uid("p"))]);
}

/// Rules: NODE-9, NODE-30.4, NODE-30.5, NODE-4.4, NODE-9.4
#[test]
fn the_handshake_comes_before_the_first_mount() {
    let pod = [wanted("p", Held::No)];
    let attach = |reported, listed, attachment| Attach::Needed { reported, listed, attachment };
    let because =
        |device: Held, attach: Attach<'_>| decide(&Observed { attach, ..observed(device, &pod, &[]) }).because;
    let attached = Attachment::Attached;
    assert_eq!(because(Held::No, attach(false, true, attached)), Because::NotReported, "NODE-30.4");
    assert_eq!(because(Held::No, attach(true, false, attached)), Because::NotAttached, "NODE-30.5");
    assert_eq!(because(Held::No, attach(true, true, Attachment::Missing)), Because::NotAttached);
    assert_eq!(because(Held::No, attach(true, true, Attachment::Waiting)), Because::NotAttached);
    assert_eq!(because(Held::No, attach(true, true, Attachment::Going)), Because::AttachmentGoing);
    let refused = because(Held::No, attach(true, true, Attachment::Refused("full")));
    assert_eq!(refused, Because::AttachFailed { message: "full".into() });
    let full = because(Held::No, attach(true, true, Attachment::Full("full")));
    assert_eq!(full, Because::NoSlot { message: "full".into() }, "NODE-4.4");
    assert_eq!(because(Held::No, attach(true, true, attached)), Because::Staging);
    // What an earlier run left was listed before; its attachment is looked at all the same (NODE-9.4).
    assert_eq!(because(SEEN, attach(false, false, attached)), Because::Staging);
    assert_eq!(because(SEEN, attach(false, false, Attachment::Going)), Because::AttachmentGoing);
}

/// Metadata without a mount or a device is what a reboot leaves. It is no proof that the volume is attached here.
#[test]
fn metadata_alone_does_not_replace_the_handshake() {
    let pod = [wanted("p", RECORDED)];
    let has = [holder("p", RECORDED, Wish::Wanted)];
    let because = |reported, listed, attachment| {
        let attach = Attach::Needed { reported, listed, attachment };
        decide(&Observed { attach, ..observed(RECORDED, &pod, &has) }).because
    };
    let attached = Attachment::Attached;
    assert_eq!(because(false, true, attached), Because::NotReported);
    assert_eq!(because(true, false, attached), Because::NotAttached);
    assert_eq!(because(true, true, Attachment::Waiting), Because::NotAttached);
    assert_eq!(because(true, true, attached), Because::Staging);
    // It is taken away as anything that may be there, with or without an attachment.
    let leaves = [holder("p", RECORDED, Wish::Unwanted)];
    let attach = Attach::Needed { reported: false, listed: false, attachment: Attachment::Missing };
    let gone = Observed { attach, ..observed(RECORDED, &[], &leaves) };
    assert_eq!(steps(&gone), [Step::Unpublish(uid("p"))]);
    assert_eq!(steps(&Observed { holders: &[], ..gone }), [Step::Unstage]);
}

/// Rule: NODE-9
#[test]
fn a_volume_for_one_pod_waits_for_the_other_one_to_leave() {
    let (pod, has) = ([wanted("b", Held::No)], [holder("a", SEEN, Wish::Wanted)]);
    let alone = Observed { sharing: Sharing::OnePod, ..observed(Held::Yes, &pod, &has) };
    assert_eq!(decide(&alone).because, Because::UsedByPod { pod: "a".into() });
    assert_eq!(steps(&observed(Held::Yes, &pod, &has)), [Step::Publish(uid("b"))]);
}

/// Rule: NODE-23
#[test]
fn what_works_goes_on_without_its_driver_and_nothing_is_taken_away_without_it() {
    let missing = || Some(Because::DriverMissing { driver: "d".into() });
    let republish = [Wanted { due: Due::Republish, ..wanted("p", Held::Yes) }];
    let has = [holder("p", Held::Yes, Wish::Wanted)];
    let lost = Observed { driver: missing(), ..observed(Held::Yes, &republish, &has) };
    assert_eq!(decide(&lost).because, Because::Ready);
    let leaving = [holder("p", Held::Yes, Wish::Unwanted)];
    let stuck = Observed { driver: missing(), ..observed(Held::Yes, &[], &leaving) };
    assert_eq!((decide(&stuck).because, steps(&stuck)), (missing().unwrap(), Vec::new()));
}

/// Rules: NODE-6.2, NODE-16
#[test]
fn growing_and_publishing_again_are_for_pods_that_have_the_volume() {
    let has = [holder("p", Held::Yes, Wish::Wanted)];
    let due = |due| [Wanted { due, ..wanted("p", Held::Yes) }];
    assert_eq!(steps(&observed(Held::Yes, &due(Due::Expand), &has)), [Step::Expand(uid("p"))]);
    assert_eq!(steps(&observed(Held::Yes, &due(Due::Republish), &has)), [Step::Republish(uid("p"))]);
    let again = due(Due::Republish);
    let inline = Observed { staging: Staging::NotNeeded, ..observed(Held::No, &again, &has) };
    assert_eq!(steps(&inline), [Step::Republish(uid("p"))], "NODE-16: nothing is staged for it");
}

/// Rule: NODE-6.1
#[test]
fn what_may_be_there_is_not_ready_and_is_not_gone() {
    for held in [ASKED, SEEN, RECORDED] {
        let (pod, has) = ([wanted("p", held)], [holder("p", held, Wish::Wanted)]);
        assert_eq!(steps(&observed(Held::Yes, &pod, &has)), [Step::Publish(uid("p"))], "only mounted is mounted");
        let leaves = [holder("p", held, Wish::Unwanted)];
        assert_eq!(steps(&observed(Held::Yes, &[], &leaves)), [Step::Unpublish(uid("p"))], "and it is unmounted");
        assert_eq!(steps(&observed(held, &[], &[])), [Step::Unstage], "the machine does not forget it");
    }
    let leaves = [holder("a", SEEN, Wish::Unwanted), holder("b", Held::Yes, Wish::Wanted)];
    let stays = [wanted("b", Held::Yes)];
    let decided = steps(&observed(Held::Yes, &stays, &leaves));
    assert_eq!(decided, [Step::Unpublish(uid("a"))], "while any pod may have it, it is not unstaged");
}

/// Rule: NODE-6.3
#[test]
fn errors_change_states_by_their_class() {
    let table = [
        (Held::No, Class::Final, Held::No),
        (Held::No, Class::Uncertain, ASKED),
        (Held::No, Class::Transient, Held::No),
        (ASKED, Class::Final, Held::No),
        (ASKED, Class::Uncertain, ASKED),
        (ASKED, Class::Transient, ASKED),
        (SEEN, Class::Final, SEEN),
        (SEEN, Class::Uncertain, SEEN),
        (RECORDED, Class::Final, RECORDED),
        (RECORDED, Class::Uncertain, RECORDED),
        (Held::Yes, Class::Final, Held::Yes),
        (Held::Yes, Class::Uncertain, Held::Yes),
    ];
    for (before, class, after) in table {
        assert_eq!(before.after_failure(class), after, "{before:?} {class:?}");
    }
    for before in [Held::No, ASKED, SEEN, Held::Yes] {
        assert_eq!(before.after_failed_removal(), SEEN, "{before:?}: it is taken away again");
    }
    assert_eq!(RECORDED.after_failed_removal(), RECORDED, "a failure is no proof that it is attached here");
}

/// Rule: NODE-8.3
#[test]
fn codes_have_upstreams_classes_where_those_are_safe() {
    use Code::*;
    for code in [Cancelled, DeadlineExceeded, ResourceExhausted, Aborted, Unavailable, None] {
        assert_eq!(class(Call::NodeStage, code, Held::No), Class::Uncertain, "{code}");
    }
    for code in [InvalidArgument, NotFound, FailedPrecondition, Unimplemented, OutOfRange] {
        assert_eq!(class(Call::NodePublish, code, Held::No), Class::Final, "{code}");
    }
    for code in [Internal, Unknown, DataLoss] {
        assert_eq!(class(Call::NodeStage, code, Held::No), Class::Uncertain, "{code}: a driver that broke halfway");
    }
    assert_eq!(
        class(Call::NodeStage, FailedPrecondition, ASKED),
        Class::Uncertain,
        "it says nothing about the first try"
    );
}

/// Rule: NODE-10.2
#[test]
fn access_modes_are_those_of_a_kubelet() {
    let none = AccessModes::default();
    let mode = |mode, apart| terms::access_mode(AccessModes::of(&[mode]), none, apart);
    assert_eq!(mode(AccessMode::ReadWriteOnce, false), WireMode::SingleNodeWriter);
    assert_eq!(mode(AccessMode::ReadWriteOnce, true), WireMode::SingleNodeMultiWriter);
    assert_eq!(mode(AccessMode::ReadWriteOncePod, false), WireMode::SingleNodeWriter);
    assert_eq!(mode(AccessMode::ReadWriteOncePod, true), WireMode::SingleNodeSingleWriter);
    assert_eq!(mode(AccessMode::ReadOnlyMany, true), WireMode::MultiNodeReaderOnly);
    assert_eq!(mode(AccessMode::ReadWriteMany, false), WireMode::MultiNodeMultiWriter);
    let unknown: AccessModes = serde_json::from_str(r#"["ReadWriteElsewhere"]"#).unwrap();
    assert_eq!(terms::access_mode(unknown, none, true), WireMode::Unknown, "anything else");
    assert_eq!(terms::access_mode(none, none, true), WireMode::SingleNodeMultiWriter, "inline");
}

/// Rule: NODE-31.17
#[test]
fn of_several_access_modes_those_of_the_claim_count_and_the_widest_of_them() {
    use AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce};
    let mode = |volume: &[AccessMode], claim: &[AccessMode]| {
        terms::access_mode(AccessModes::of(volume), AccessModes::of(claim), false)
    };
    let both = [ReadWriteOnce, ReadWriteMany];
    assert_eq!(mode(&both, &[ReadWriteOnce]), WireMode::SingleNodeWriter);
    assert_eq!(mode(&both, &[ReadWriteMany]), WireMode::MultiNodeMultiWriter, "upstream says that one node writes");
    assert_eq!(mode(&both, &both), WireMode::MultiNodeMultiWriter);
    assert_eq!(mode(&both, &[]), WireMode::MultiNodeMultiWriter, "a claim that nobody knows");
    assert_eq!(mode(&both, &[ReadOnlyMany, ReadWriteOnce]), WireMode::MultiNodeReaderOnly, "else the first");
}

fn driver(spec: Value) -> CsiDriverSpec {
    serde_json::from_value(spec).unwrap()
}

/// Rules: NODE-32.17, NODE-11.4
#[test]
fn groups_own_as_policy_filesystem_and_access_say() {
    let rwo = AccessModes::of(&[AccessMode::ReadWriteOnce]);
    let rwx = AccessModes::of(&[AccessMode::ReadWriteMany]);
    let base = Ownership {
        group: Some(5),
        driver_mounts_group: false,
        read_only: false,
        driver: None,
        fs_type: "ext4",
        inline: false,
        access: rwo,
    };
    let owner = |of: Ownership<'_>| terms::owner(&of).unwrap();
    assert_eq!(owner(base), Owner::Agent(5), "no CSIDriver is ReadWriteOnceWithFSType");
    assert_eq!(owner(Ownership { access: rwx, ..base }), Owner::Nobody);
    assert_eq!(owner(Ownership { fs_type: "", ..base }), Owner::Nobody);
    assert_eq!(owner(Ownership { inline: true, access: AccessModes::default(), ..base }), Owner::Agent(5));
    assert_eq!(owner(Ownership { read_only: true, ..base }), Owner::Nobody);
    assert_eq!(owner(Ownership { group: None, ..base }), Owner::Nobody);
    assert_eq!(owner(Ownership { driver_mounts_group: true, ..base }), Owner::Driver(5));
    let (none, file) = (driver(json!({"fsGroupPolicy": "None"})), driver(json!({"fsGroupPolicy": "File"})));
    assert_eq!(owner(Ownership { driver: Some(&none), ..base }), Owner::Nobody);
    assert_eq!(owner(Ownership { driver: Some(&file), fs_type: "", access: rwx, ..base }), Owner::Agent(5));
    assert!(terms::owner(&Ownership { driver: Some(&driver(json!({}))), ..base }).is_err(), "NODE-11.4");
}

/// Rules: NODE-12, NODE-5.5
#[test]
fn a_driver_says_which_volumes_it_makes() {
    assert!(terms::serves(None, false) && !terms::serves(None, true));
    let both = driver(json!({"volumeLifecycleModes": ["Persistent", "Ephemeral"]}));
    let one = driver(json!({"volumeLifecycleModes": ["Ephemeral"]}));
    assert!(terms::serves(Some(&both), true) && terms::serves(Some(&both), false));
    assert!(terms::serves(Some(&one), true) && !terms::serves(Some(&one), false));
    assert!(terms::attaches(None), "NODE-5.5");
    assert!(!terms::attaches(Some(&driver(json!({"attachRequired": false})))));
}

fn claim_with(members: Value, status: Value) -> Claim {
    let mut metadata = json!({"name": "c", "namespace": "n", "uid": "u"});
    for (key, value) in members.as_object().into_iter().flatten() {
        metadata[key] = value.clone();
    }
    let spec = json!({"volumeName": "v", "accessModes": ["ReadWriteOnce"]});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

fn volume_with(members: Value) -> Volume {
    let mut spec =
        json!({"claimRef": {"namespace": "n", "name": "c", "uid": "u"}, "csi": {"driver": "d", "volumeHandle": "h"}});
    for (key, value) in members.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": spec})).unwrap()
}

/// Rule: NODE-32.21
#[test]
fn a_claim_must_be_bound_ours_and_protected() {
    let pod = uid("pod");
    let asked = Asked { pod: &pod, claim: "n/c", ephemeral: false, mounts: true, devices: false };
    let bound = json!({"phase": "Bound"});
    let code = |asked: &Asked<'_>, found: Lookup<'_, Claim>| claim::claim(asked, found).map(drop).map_err(|b| b.code());
    assert_eq!(code(&asked, Lookup::Absent), Err("claim_missing"));
    assert_eq!(code(&asked, Lookup::Found(&claim_with(json!({}), json!({})))), Err("claim_not_bound"));
    assert_eq!(code(&asked, Lookup::Found(&claim_with(json!({}), bound.clone()))), Ok(()));
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(code(&asked, Lookup::Found(&claim_with(going, bound.clone()))), Err("claim_going"));
    let kept = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [api::keys::finalizer::PVC_PROTECTION.text()]});
    assert_eq!(code(&asked, Lookup::Found(&claim_with(kept, bound.clone()))), Ok(()));
    let ephemeral = Asked { ephemeral: true, ..asked };
    assert_eq!(code(&ephemeral, Lookup::Found(&claim_with(json!({}), bound.clone()))), Err("claim_not_ours"));
    let owner = json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod", "controller": true}]});
    assert_eq!(code(&ephemeral, Lookup::Found(&claim_with(owner, bound))), Ok(()));
}

/// Rules: NODE-5.4, NODE-9
#[test]
fn a_volume_must_be_the_claims_of_the_right_mode_and_in_reach() {
    let pod = uid("pod");
    let asked = Asked { pod: &pod, claim: "n/c", ephemeral: false, mounts: true, devices: false };
    let held = claim_with(json!({}), json!({"phase": "Bound"}));
    let labels: Pairs = [("zone", "a")].into_iter().collect();
    let place = Place { node: "node", labels: Some(&labels) };
    let code = |asked: &Asked<'_>, found: Lookup<'_, Volume>| {
        claim::volume(asked, &held, found, place).map(drop).map_err(|because| because.code())
    };
    assert_eq!(code(&asked, Lookup::Absent), Err("volume_missing"));
    assert_eq!(code(&asked, Lookup::Found(&volume_with(json!({})))), Ok(()));
    let other = json!({"claimRef": {"namespace": "n", "name": "c", "uid": "x"}});
    assert_eq!(code(&asked, Lookup::Found(&volume_with(other))), Err("volume_of_another"));
    let block = volume_with(json!({"volumeMode": "Block"}));
    assert_eq!(code(&asked, Lookup::Found(&block)), Err("mode_mismatch"));
    let device = Asked { mounts: false, devices: true, ..asked };
    assert_eq!(code(&device, Lookup::Found(&block)), Ok(()));
    assert_eq!(code(&Asked { mounts: true, ..device }, Lookup::Found(&block)), Err("mode_mismatch"), "used both ways");
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]);
    let far = json!({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}});
    assert_eq!(code(&asked, Lookup::Found(&volume_with(far))), Err("out_of_reach"), "NODE-9");
}

/// Rules: NODE-18.1, NODE-18.2
#[test]
fn a_node_grows_a_filesystem_when_it_is_its_turn() {
    let size = |text: &str| Amount::parse(text).unwrap();
    let growth = |status: Value, everywhere| expand::growth(&claim_with(json!({}), status), &size("3Gi"), everywhere);
    let status = |capacity: &str, resize: Option<&str>| {
        let mut status = json!({"capacity": {"storage": capacity}, "allocatedResources": {"storage": "3Gi"}});
        if let Some(resize) = resize {
            status["allocatedResourceStatuses"] = json!({"storage": resize});
        }
        status
    };
    let grow = |mark| Growth::Grow { target: size("3Gi"), mark, tracked: true };
    assert_eq!(growth(status("1Gi", Some("NodeResizePending")), Everywhere::No), grow(true));
    assert_eq!(growth(status("1Gi", Some("NodeResizeInProgress")), Everywhere::No), grow(false));
    for other in ["ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInfeasible"] {
        assert_eq!(growth(status("1Gi", Some(other)), Everywhere::No), Growth::NotAllowed, "{other}");
    }
    assert_eq!(growth(status("1Gi", None), Everywhere::No), Growth::NotAllowed);
    assert_eq!(growth(status("3Gi", None), Everywhere::No), Growth::Done { size: size("3Gi") });
    assert_eq!(growth(status("3Gi", None), Everywhere::Yes), grow(false), "other nodes grow it for themselves");
    let plain = |capacity: &str| json!({"capacity": {"storage": capacity}});
    let untracked = Growth::Grow { target: size("3Gi"), mark: false, tracked: false };
    assert_eq!(growth(plain("1Gi"), Everywhere::No), untracked, "NODE-18.2");
    assert_eq!(growth(plain("3Gi"), Everywhere::No), Growth::Done { size: size("3Gi") });
}

/// Rule: NODE-31.3
#[test]
fn a_refusal_to_grow_keeps_its_class() {
    use expand::Verdict;
    for code in [Code::DeadlineExceeded, Code::Unavailable, Code::Aborted, Code::Internal, Code::None] {
        assert_eq!(expand::verdict(code), Verdict::Again, "{code}");
    }
    for code in [Code::InvalidArgument, Code::NotFound, Code::OutOfRange] {
        assert_eq!(expand::verdict(code), Verdict::Infeasible, "{code}");
    }
    assert_eq!(expand::verdict(Code::FailedPrecondition), Verdict::NotWhileInUse);
    assert_eq!(expand::verdict(Code::PermissionDenied), Verdict::Failed);
}

/// Rules: NODE-26, NODE-31.22
#[test]
fn failures_become_upstreams_events_and_waiting_for_attach_becomes_none() {
    let failed = |stage| Because::Failed { stage, volume: "v".into(), message: "no".into() };
    let reason = |because: &Because| because.notice().map(|notice| notice.reason);
    assert_eq!(reason(&failed(Stage::SetUp)), Some("FailedMount"));
    for (stage, words) in [
        (Stage::MapAttach, "MapVolume.WaitForAttach"),
        (Stage::SetUpDevice, "MapVolume.SetUpDevice"),
        (Stage::MapDevice, "MapVolume.MapPodDevice"),
    ] {
        assert_eq!(reason(&failed(stage)), Some("FailedMapVolume"));
        assert_eq!(failed(stage).to_string(), format!("{words} failed for volume \"v\" : no"));
    }
    assert_eq!(reason(&failed(Stage::Expand)), Some("VolumeResizeFailed"));
    assert_eq!(reason(&failed(Stage::TearDown)), Some("FailedUnmount"), "NODE-31.22");
    assert_eq!(failed(Stage::SetUp).to_string(), "MountVolume.SetUp failed for volume \"v\" : no");
    assert_eq!((reason(&Because::NotAttached), Because::NotAttached.standing()), (None, Standing::Waiting));
}

/// A pod that wants the volume with this SELinux level.
fn labelled(pod: &str, held: Held, level: &str) -> Wanted {
    let context = super::selinux::Label::parse(&format!("u:r:t:{level}"));
    assert!(context.is_some());
    Wanted { context, ..wanted(pod, held) }
}

/// Rules: NODE-15.6, NODE-30.15, NODE-32.22
#[test]
fn a_pod_with_another_context_waits_until_everything_was_taken_away() {
    let (old, new) = (labelled("old", Held::Yes, "s0:c1"), labelled("new", Held::No, "s0:c2"));
    let context = old.context.clone();
    let (both, has) = ([old.clone(), new.clone()], [holder("old", Held::Yes, Wish::Wanted)]);
    let waits = Observed { context: context.as_ref(), ..observed(Held::Yes, &both, &has) };
    assert!(decide(&waits).actions.is_empty(), "the first keeps it");
    let told = super::standing(&waits, &new);
    assert_eq!(told, Because::OtherContext { has: old.context.clone(), wants: new.context.clone() });
    assert!(told.to_string().contains("u:r:t:s0:c1") && told.to_string().contains("u:r:t:s0:c2"), "{told}");
    let (only, leaving) = ([new.clone()], [holder("old", Held::Yes, Wish::Unwanted)]);
    let leaves = Observed { context: context.as_ref(), ..observed(Held::Yes, &only, &leaving) };
    assert_eq!(steps(&leaves), [Step::Unpublish(uid("old"))]);
    let staged = Observed { context: context.as_ref(), ..observed(Held::Yes, &only, &[]) };
    assert_eq!(steps(&staged), [Step::Unstage], "NODE-32.22: a full unstage between them");
    let gone = Observed { context: context.as_ref(), ..observed(Held::No, &only, &[]) };
    assert_eq!(steps(&gone), [Step::Stage(uid("new"))]);
    let early = Observed { removal: Removal::NotYet, ..staged };
    assert!(steps(&early).is_empty(), "nothing is taken away before all pods are known");
}

/// Rule: NODE-15.6
#[test]
fn of_two_contexts_at_once_the_older_pods_comes_first() {
    let both = [labelled("a", Held::No, "s0:c1"), labelled("b", Held::No, "s0:c2")];
    let nothing = observed(Held::No, &both, &[]);
    assert_eq!(steps(&nothing), [Step::Stage(uid("a"))]);
    let alike = [labelled("a", Held::No, "s0:c1"), labelled("b", Held::No, "s0:c1")];
    assert_eq!(steps(&observed(Held::No, &alike, &[])), [Step::Stage(uid("a")), Step::Stage(uid("b"))]);
    let plain = [wanted("a", Held::Yes), labelled("b", Held::No, "s0:c1")];
    let has = [holder("a", Held::Yes, Wish::Wanted)];
    let observed = observed(Held::Yes, &plain, &has);
    assert!(matches!(super::standing(&observed, &plain[1]), Because::OtherContext { has: None, wants: Some(_) }));
}
