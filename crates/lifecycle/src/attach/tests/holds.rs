//! Whether an attachment that nobody wants may go: the truth table of ATTACH-6.4, as we want it.

use std::time::Duration;

use api::keys::annotation;
use api::node::Readiness;
use api::{Attachment, Node};
use serde_json::json;

use super::super::hold::{Held, Need, Telling, forced, usage};
use super::super::{Evidence, Hold, judge};
use super::{State, attachment, node, read, rules, tainted};
use crate::{Lookup, Reason as _, Standing};

fn about(attachment: &Attachment, node: Lookup<'_, Node>) -> Hold {
    let usage = usage(node, attachment.name());
    judge(&Held { attachment, need: Need::Unwanted, node, usage, rules: rules() })
}

fn on(node: &Node) -> Hold {
    about(&attachment("v", node.name(), State::Attached), Lookup::Found(node))
}

const FOREVER: Hold = Hold::InUse { ready: Readiness::Unknown, force_in: None };

/// Rule: ATTACH-6.4
#[test]
fn what_is_not_in_use_goes_on_a_ready_node_and_on_any_other() {
    for ready in ["True", "False", "Unknown"] {
        assert_eq!(on(&node("a", ready, &["other"], &["v"])), Hold::Free, "{ready}");
    }
}

/// Rules: ATTACH-D6, CTRL-13.44, CTRL-14.41
#[test]
fn what_a_ready_node_uses_stays_whatever_happens() {
    let ready = node("a", "True", &["v"], &["v"]);
    let stays = Hold::InUse { ready: Readiness::Ready, force_in: None };
    assert_eq!(on(&ready), stays);
    assert_eq!(on(&tainted(ready.clone())), stays, "the taint counts only on a node that is not ready");
    let mut held = Held {
        attachment: &attachment("v", "a", State::Attached),
        need: Need::Unwanted,
        node: Lookup::Found(&ready),
        usage: super::super::hold::Usage::Listed,
        rules: rules(),
    };
    held.rules.force_after = Some(Duration::from_secs(1));
    held.rules.unready_for = Some(Duration::from_secs(9));
    assert_eq!(judge(&held), stays, "no timer counts on a ready node");
}

#[test]
fn what_a_lost_node_uses_stays_for_ever_without_evidence() {
    assert_eq!(on(&node("a", "Unknown", &["v"], &["v"])), FOREVER);
    assert_eq!(FOREVER.standing(), Standing::Stuck);
    let text = FOREVER.to_string();
    assert!(text.contains("out-of-service") && text.contains("Node object is deleted"), "{text}");
}

/// Rule: ATTACH-D9
#[test]
fn the_taint_on_a_node_that_is_not_ready_is_evidence() {
    for ready in ["False", "Unknown"] {
        let hold = on(&tainted(node("a", ready, &["v"], &["v"])));
        assert_eq!(hold, Hold::Forced { evidence: Evidence::OutOfService }, "{ready}");
    }
}

#[test]
fn a_node_that_the_server_does_not_have_is_evidence_and_one_that_a_cache_lacks_is_not() {
    let attached = attachment("v", "a", State::Attached);
    assert_eq!(about(&attached, Lookup::Absent), Hold::Forced { evidence: Evidence::NodeGone });
    assert_eq!(about(&attached, Lookup::NotCached), Hold::NodeUnread);
    assert_eq!(about(&attachment("v", "a", State::Coming), Lookup::Absent), Hold::Free);
}

#[test]
fn what_the_driver_took_away_is_evidence() {
    let lost = node("a", "Unknown", &["v"], &["v"]);
    let hold = about(&attachment("v", "a", State::Coming), Lookup::Found(&lost));
    assert_eq!(hold, Hold::Forced { evidence: Evidence::Unpublished });
}

/// Rule: CTRL-14.39
#[test]
fn time_is_evidence_only_if_the_operator_said_so_and_counts_what_this_controller_saw() {
    let attached = attachment("v", "a", State::Attached);
    // By its own clock it has not been ready for ten minutes; that clock may be wrong.
    let lost = node("a", "False", &["v"], &["v"]);
    let seen = |patience: u64, seen: Option<u64>| {
        let mut rules = rules();
        rules.force_after = Some(Duration::from_secs(patience));
        rules.unready_for = seen.map(Duration::from_secs);
        let usage = super::super::hold::Usage::Listed;
        judge(&Held { attachment: &attached, need: Need::Unwanted, node: Lookup::Found(&lost), usage, rules })
    };
    let stays =
        |seconds: Option<u64>| Hold::InUse { ready: Readiness::NotReady, force_in: seconds.map(Duration::from_secs) };
    assert_eq!(seen(360, Some(361)), Hold::Forced { evidence: Evidence::NotReadyFor { seconds: 361 } });
    assert_eq!(seen(360, Some(359)), stays(Some(1)));
    assert_eq!(seen(360, Some(0)), stays(Some(360)));
    assert_eq!(seen(360, None), stays(None), "who did not measure forces nothing");
}

/// Rule: CTRL-13.42
#[test]
fn a_new_node_object_that_has_not_spoken_frees_nothing() {
    let mut new = node("a", "Unknown", &[], &[]);
    new.ready_since = None;
    new.meta.created.0 += 86_400;
    assert_eq!(on(&new), Hold::Unsaid);
    new.ready = Readiness::Ready;
    assert_eq!(on(&new), Hold::Free, "its agent has spoken");
    let mut bare = node("a", "Unknown", &[], &[]);
    bare.ready_since = None;
    assert_eq!(on(&bare), Hold::Free, "it was there before the attachment, and would have said so");
}

fn restored(mut node: Node) -> Node {
    node.meta.annotations = read(json!({annotation::MANAGED_ATTACH.text(): "true", annotation::RESTORED.text(): "7"}));
    node
}

/// The list in a backup does not name what the node has mounted since.
#[test]
fn a_restored_node_that_has_not_spoken_frees_nothing() {
    let silent = restored(node("a", "True", &[], &[]));
    assert_eq!(on(&silent), Hold::Restored);
    assert!(!Hold::Restored.goes() && Hold::Restored.telling() == Telling::AsBefore);
    assert_eq!(on(&tainted(restored(node("a", "False", &[], &[])))), Hold::Free, "an operator answers for it");
    assert_eq!(on(&node("a", "True", &[], &[])), Hold::Free, "its agent has spoken");
}

/// A restore forgets that a volume is attached; that is no word of the driver.
#[test]
fn a_restored_attachment_that_is_in_use_stays_although_it_is_not_confirmed() {
    let node = node("a", "True", &["v"], &[]);
    let mut unconfirmed = attachment("v", "a", State::Coming);
    assert_eq!(
        about(&unconfirmed, Lookup::Found(&node)),
        Hold::Forced { evidence: Evidence::Unpublished },
        "one that was never attached"
    );
    unconfirmed.meta.annotations = read(json!({annotation::RESTORED.text(): "7"}));
    let stays = Hold::InUse { ready: Readiness::Ready, force_in: None };
    assert_eq!(about(&unconfirmed, Lookup::Found(&node)), stays);
}

/// Rule: CTRL-14.44
#[test]
fn a_node_that_attaches_by_itself_and_an_attachment_of_another_maker_are_left_alone() {
    let mut own = node("a", "True", &[], &["v"]);
    own.meta.annotations = Default::default();
    assert_eq!(on(&own), Hold::Unmanaged);
    let managed = node("a", "True", &[], &[]);
    let mut theirs = attachment("v", "a", State::Attached);
    theirs.meta.key = api::Key::cluster("by-hand");
    assert_eq!(about(&theirs, Lookup::Found(&managed)), Hold::NotOurs);
}

/// Rule: ATTACH-6.8
#[test]
fn an_attachment_on_its_way_out_says_what_the_attacher_says() {
    let mut leaving = attachment("v", "a", State::Leaving);
    assert_eq!(about(&leaving, Lookup::Absent), Hold::Leaving { error: None });
    leaving.detach_error = read(json!({"message": "busy"}));
    let hold = about(&leaving, Lookup::Absent);
    assert_eq!((hold.clone(), hold.standing()), (Hold::Leaving { error: Some("busy".into()) }, Standing::Stuck));
}

/// Rules: CTRL-14.36, CTRL-14.50
#[test]
fn a_handle_with_a_caret_and_a_volume_whose_object_is_gone_are_known_by_name() {
    assert_eq!(
        about(&attachment("x^y", "a", State::Attached), Lookup::Found(&node("a", "True", &["x^y"], &[]))),
        Hold::InUse { ready: Readiness::Ready, force_in: None }
    );
}

#[test]
fn the_event_of_a_forced_detach_names_volume_node_and_evidence() {
    for evidence in
        [Evidence::NodeGone, Evidence::OutOfService, Evidence::Unpublished, Evidence::NotReadyFor { seconds: 9 }]
    {
        let notice = forced(&attachment("v", "a", State::Attached), evidence);
        for part in ["\"pv-v\"", "node \"a\"", &evidence.to_string()] {
            assert!(notice.message.contains(part), "{part}: {}", notice.message);
        }
    }
}
