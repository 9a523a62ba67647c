//! What a node is told, and what leaves it, in which order: ATTACH-6.7, ATTACH-D7 to ATTACH-D10.

use api::{AttachedVolume, Attachment, Node};
use serde_json::json;

use super::super::hold::Need;
use super::super::node::{Action, Freshness, Pace, Seen, View, decide};
use super::super::{Evidence, Hold, unique_name};
use super::{State, attachment, node, read, rules, tainted, unique};
use crate::Lookup;

fn plan(node: Lookup<'_, Node>, freshness: Freshness, attachments: &[(&Attachment, Need)]) -> Vec<Action> {
    let uniques: Vec<String> = ["v", "w"].map(unique).to_vec();
    let seen: Vec<Seen<'_>> = attachments
        .iter()
        .map(|(attachment, need)| {
            let handle = attachment.volume.as_deref().unwrap_or_default();
            let known =
                uniques.iter().find(|unique| unique.ends_with(&format!("^{}", handle.trim_start_matches("pv-"))));
            let unique = known.filter(|_| *need != Need::Unwanted).map(String::as_str);
            Seen { attachment, need: *need, unique }
        })
        .collect();
    decide(&View { node, freshness, attachments: &seen, rules: rules() }).actions
}

fn told(handles: &[&str]) -> Action {
    let entry = |handle: &&str| AttachedVolume { name: unique(handle).into(), device_path: "".into() };
    Action::Report { list: handles.iter().map(entry).collect(), pace: Pace::Now }
}

/// The same, but it may wait for more.
fn told_soon(handles: &[&str]) -> Action {
    match told(handles) {
        Action::Report { list, .. } => Action::Report { list, pace: Pace::Soon },
        other => other,
    }
}

/// Rules: CTRL-14.50a, CTRL-I13
#[test]
fn only_what_is_confirmed_is_reported() {
    let here = node("a", "True", &[], &[]);
    let (v, w) = (attachment("v", "a", State::Attached), attachment("w", "a", State::Coming));
    let actions = plan(Lookup::Found(&here), Freshness::Cached, &[(&v, Need::Wanted), (&w, Need::Wanted)]);
    assert_eq!(actions, [told_soon(&["v"])]);
    let knows = node("a", "True", &[], &["v"]);
    assert!(plan(Lookup::Found(&knows), Freshness::Cached, &[(&v, Need::Wanted), (&w, Need::Wanted)]).is_empty());
}

/// Rules: ATTACH-D7, ATTACH-D8, ATTACH-D9, CTRL-I14
#[test]
fn a_volume_is_unreported_then_looked_at_then_detached() {
    let v = attachment("v", "a", State::Attached);
    let told_of_it = node("a", "True", &[], &["v"]);
    assert_eq!(plan(Lookup::Found(&told_of_it), Freshness::Live, &[(&v, Need::Unwanted)]), [told(&[])]);
    let not_told = node("a", "True", &[], &[]);
    assert_eq!(plan(Lookup::Found(&not_told), Freshness::Cached, &[(&v, Need::Unwanted)]), [Action::ReadNode]);
    let detach = Action::Detach { at: 0, hold: Hold::Free };
    assert_eq!(plan(Lookup::Found(&not_told), Freshness::Live, &[(&v, Need::Unwanted)]), [detach]);
}

/// Rule: CTRL-13.31
#[test]
fn a_node_that_spoke_while_it_was_told_keeps_the_volume() {
    let v = attachment("v", "a", State::Attached);
    let uses_it_now = node("a", "True", &["v"], &[]);
    assert_eq!(plan(Lookup::Found(&uses_it_now), Freshness::Live, &[(&v, Need::Unwanted)]), [told(&["v"])]);
}

/// Rule: ATTACH-D7
#[test]
fn even_a_forced_detach_is_unreported_first() {
    let v = attachment("v", "a", State::Attached);
    let out = tainted(node("a", "False", &["v"], &["v"]));
    assert_eq!(plan(Lookup::Found(&out), Freshness::Live, &[(&v, Need::Unwanted)]), [told(&[])]);
    let out = tainted(node("a", "False", &["v"], &[]));
    let detach = Action::Detach { at: 0, hold: Hold::Forced { evidence: Evidence::OutOfService } };
    assert_eq!(plan(Lookup::Found(&out), Freshness::Live, &[(&v, Need::Unwanted)]), [detach]);
}

/// Rule: ATTACH-D8
#[test]
fn a_node_that_is_gone_loses_everything_at_once() {
    let (v, w) = (attachment("v", "a", State::Attached), attachment("w", "a", State::Leaving));
    assert_eq!(plan(Lookup::NotCached, Freshness::Cached, &[(&v, Need::Unwanted)]), [Action::ReadNode]);
    let detach = Action::Detach { at: 0, hold: Hold::Forced { evidence: Evidence::NodeGone } };
    assert_eq!(plan(Lookup::Absent, Freshness::Live, &[(&v, Need::Unwanted), (&w, Need::Unwanted)]), [detach]);
    assert!(plan(Lookup::Absent, Freshness::Live, &[(&v, Need::Wanted)]).is_empty(), "a pod there still wants it");
    assert!(plan(Lookup::NotCached, Freshness::Cached, &[]).is_empty(), "nothing to ask for");
}

/// Rule: CTRL-13.33
#[test]
fn what_is_going_or_gone_is_not_reported() {
    let v = attachment("v", "a", State::Leaving);
    let here = node("a", "True", &["v"], &["v", "w"]);
    assert_eq!(plan(Lookup::Found(&here), Freshness::Cached, &[(&v, Need::Wanted)]), [told(&[])]);
}

/// Rule: CTRL-13.42
#[test]
fn a_recreated_node_is_told_again() {
    let v = attachment("v", "a", State::Attached);
    let here = node("a", "True", &[], &[]);
    assert_eq!(plan(Lookup::Found(&here), Freshness::Cached, &[(&v, Need::Wanted)]), [told(&["v"])]);
}

#[test]
fn the_second_node_of_a_volume_for_one_is_not_told_and_not_untold() {
    let v = attachment("v", "a", State::Attached);
    assert!(plan(Lookup::Found(&node("a", "True", &["v"], &[])), Freshness::Cached, &[(&v, Need::Second)]).is_empty());
    assert!(
        plan(Lookup::Found(&node("a", "True", &["v"], &["v"])), Freshness::Cached, &[(&v, Need::Second)]).is_empty()
    );
}

/// Rule: CTRL-14.32
#[test]
fn paths_and_other_plugins_entries_stay_as_they_are() {
    let mut here = node("a", "True", &[], &[]);
    let foreign = AttachedVolume { name: "example.com/iscsi/1".into(), device_path: "/dev/a".into() };
    let with_path = AttachedVolume { name: unique_name(super::DRIVER, "v").into(), device_path: "/dev/b".into() };
    here.attached = Box::new([foreign.clone(), with_path.clone()]);
    let (v, w) = (attachment("v", "a", State::Attached), attachment("w", "a", State::Attached));
    let actions = plan(Lookup::Found(&here), Freshness::Cached, &[(&v, Need::Wanted), (&w, Need::Wanted)]);
    let w = AttachedVolume { name: unique("w").into(), device_path: "".into() };
    assert_eq!(actions, [Action::Report { list: vec![foreign, with_path, w], pace: Pace::Now }]);
}

/// Rules: ATTACH-D6, CTRL-14.36
#[test]
fn an_unwanted_volume_that_is_in_use_stays_reported_also_if_its_object_is_gone() {
    let v = attachment("v", "a", State::Attached);
    let here = node("a", "True", &["v"], &["v"]);
    assert!(plan(Lookup::Found(&here), Freshness::Cached, &[(&v, Need::Unwanted)]).is_empty());
}

/// Rule: ATTACH-6.1
#[test]
fn a_node_that_attaches_by_itself_is_told_nothing() {
    let v = attachment("v", "a", State::Attached);
    let mut own = node("a", "True", &[], &[]);
    own.meta.annotations = Default::default();
    assert!(plan(Lookup::Found(&own), Freshness::Live, &[(&v, Need::Wanted)]).is_empty());
}

/// Rule: CTRL-14.43
#[test]
fn news_waits_only_while_more_of_it_is_on_its_way() {
    let here = node("a", "True", &[], &[]);
    let (v, w) = (attachment("v", "a", State::Attached), attachment("w", "a", State::Coming));
    let both = |w: &Attachment, need| plan(Lookup::Found(&here), Freshness::Cached, &[(&v, Need::Wanted), (w, need)]);
    assert_eq!(both(&w, Need::Wanted), [told_soon(&["v"])]);
    let mut failing = w.clone();
    failing.attach_error = read(json!({"message": "no", "time": null}));
    assert_eq!(both(&failing, Need::Wanted), [told(&["v"])], "nobody knows when it comes");
    assert_eq!(both(&attachment("w", "a", State::Attached), Need::Wanted), [told(&["v", "w"])]);
    assert_eq!(both(&attachment("w", "a", State::Leaving), Need::Unwanted), [told(&["v"])]);
}

/// Rules: ATTACH-6.7, CTRL-13.31
#[test]
fn what_comes_before_a_detach_never_waits() {
    let (v, w) = (attachment("v", "a", State::Attached), attachment("w", "a", State::Attached));
    let coming = attachment("x", "a", State::Coming);
    let all = [(&v, Need::Wanted), (&w, Need::Unwanted), (&coming, Need::Wanted)];
    // It has to be taken off the list.
    let listed = node("a", "True", &[], &["w"]);
    assert_eq!(plan(Lookup::Found(&listed), Freshness::Cached, &all), [told(&["v"])]);
    // It is not on the list, but goes: the report is before it.
    let unlisted = node("a", "True", &[], &[]);
    assert_eq!(plan(Lookup::Found(&unlisted), Freshness::Cached, &all), [told(&["v"])]);
}
