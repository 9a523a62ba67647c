//! Attaching: ATTACH-A1 to ATTACH-A4, ATTACH-6.5, ATTACH-6.8.

use std::time::Duration;

use api::node::Readiness;
use serde_json::json;

use super::super::wish::{Action, Because, Holder, OVERDUE, Other, RestoreListing, Slot, Users, Wish, about, decide};
use super::super::{Hold, Target};
use super::{State, attachment, node, read, target};
use crate::{Lookup, Reason as _, Severity, Standing};

const ONE: &[&str] = &["ReadWriteOnce"];
const MANY: &[&str] = &["ReadWriteMany"];

struct Case {
    target: Target,
    node: api::Node,
    own: Option<api::Attachment>,
    others: Vec<(api::Attachment, Hold, bool)>,
    unconfirmed: Vec<Box<str>>,
    listing: RestoreListing,
    users: Users,
    slot: Slot,
    waited: Duration,
}

impl Case {
    fn new(modes: &[&str]) -> Self {
        Self {
            target: target("v", modes),
            node: node("b", "True", &[], &[]),
            own: None,
            others: Vec::new(),
            unconfirmed: Vec::new(),
            listing: RestoreListing::Unlisted,
            users: Users::default(),
            slot: Slot::Free,
            waited: Duration::ZERO,
        }
    }

    fn with<T>(&self, ask: impl FnOnce(&Wish<'_>) -> T) -> T {
        let others: Vec<Other<'_>> = self
            .others
            .iter()
            .map(|(attachment, hold, told)| Other { attachment, hold: hold.clone(), told: *told })
            .collect();
        ask(&Wish {
            target: &self.target,
            node_name: "b",
            node: Lookup::Found(&self.node),
            own: self.own.as_ref(),
            others: &others,
            doubts: &[],
            unconfirmed: &self.unconfirmed,
            listing: self.listing,
            users: &self.users,
            slot: self.slot,
            waited: self.waited,
        })
    }

    fn because(&self) -> Because {
        self.with(about)
    }
}

fn lost() -> Hold {
    Hold::InUse { ready: Readiness::Unknown, force_in: None }
}

/// Rule: ATTACH-A4
#[test]
fn a_wanted_volume_is_attached() {
    let decision = Case::new(ONE).with(decide);
    assert_eq!((decision.because, decision.actions), (Because::Attach { node: "b".into() }, vec![Action::Attach]));
}

/// Rules: ATTACH-A3, CTRL-14.31
#[test]
fn a_volume_for_one_node_waits_for_any_attachment_elsewhere() {
    for state in [State::Coming, State::Attached, State::Leaving] {
        let mut case = Case::new(ONE);
        case.others = vec![(attachment("v", "a", state), lost(), false)];
        let decision = case.with(decide);
        assert!(decision.actions.is_empty());
        let holder = Holder { node: "a".into(), hold: lost() };
        let expected = Because::Held { volume: "pv-v".into(), holders: vec![holder], users: Users::default() };
        assert_eq!((decision.because.standing(), decision.because), (Standing::Stuck, expected));
    }
}

/// Rule: ATTACH-6.5
#[test]
fn a_volume_for_many_nodes_goes_to_many() {
    let mut case = Case::new(MANY);
    case.others = vec![(attachment("v", "a", State::Attached), Hold::Wanted, true)];
    assert_eq!(case.with(decide).actions, [Action::Attach]);
}

/// Rule: ATTACH-A3
#[test]
fn the_event_of_a_held_volume_has_upstreams_words_the_holder_and_what_releases_it() {
    let mut case = Case::new(ONE);
    case.others = vec![(attachment("v", "a", State::Attached), lost(), true)];
    let message = |case: &Case| case.because().notice().unwrap().message;
    let text = message(&case);
    let start = "Waiting for detach for volume \"pv-v\" Volume is already exclusively attached to one node, waiting on \
                 detach before it can be attached to another node; node \"a\" has it: ";
    assert!(text.starts_with(start) && text.contains("when its Node object is deleted"), "{text}");
    case.users = Users { here: vec!["p".into(), "q".into()], elsewhere: 0 };
    assert!(message(&case).contains("Volume is already used by pod(s) p, q;"), "{}", message(&case));
    case.users.elsewhere = 2;
    assert!(message(&case).contains("pod(s) p, q and 2 pod(s) in different namespaces;"), "{}", message(&case));
    case.users.here.clear();
    assert!(message(&case).contains("already used by 2 pod(s) in different namespaces;"), "{}", message(&case));
}

/// Rule: CTRL-14.48
#[test]
fn the_event_changes_with_the_blocking_set() {
    let mut case = Case::new(ONE);
    case.others = vec![(attachment("v", "a", State::Attached), Hold::Wanted, true)];
    let first = case.because().notice();
    case.others = vec![(attachment("v", "c", State::Attached), Hold::Wanted, true)];
    assert_ne!(first, case.because().notice());
}

/// Rule: CTRL-13.32
#[test]
fn an_error_is_said_and_ends_nothing() {
    let mut case = Case::new(ONE);
    let mut own = attachment("v", "b", State::Coming);
    own.attach_error = read(json!({"message": "no slot", "errorCode": 8}));
    case.own = Some(own);
    let decision = case.with(decide);
    assert!(decision.actions.is_empty());
    assert_eq!(decision.because, Because::Failed { volume: "pv-v".into(), message: "no slot".into(), code: Some(8) });
    let notice = decision.because.notice().unwrap();
    assert_eq!((notice.reason, notice.severity), ("FailedAttachVolume", Severity::Warning));
    assert_eq!(notice.message, "AttachVolume.Attach failed for volume \"pv-v\" : no slot");
}

/// Rule: ATTACH-6.8
#[test]
fn an_attacher_that_says_nothing_is_named_after_two_minutes() {
    let mut case = Case::new(ONE);
    case.own = Some(attachment("v", "b", State::Coming));
    assert_eq!(case.because().code(), "attaching");
    assert_eq!(case.because().notice(), None);
    case.waited = OVERDUE;
    let message = case.because().notice().unwrap().message;
    let end = "timed out waiting for external-attacher of d.example.com CSI driver to attach volume v";
    assert!(message.ends_with(end), "{message}");
}

/// Rule: CTRL-13.40
#[test]
fn an_attachment_on_its_way_out_is_waited_for() {
    let mut case = Case::new(ONE);
    case.own = Some(attachment("v", "b", State::Leaving));
    assert_eq!(case.because(), Because::Leaving { volume: "pv-v".into(), error: None });
    assert_eq!(case.because().notice(), None, "it is the ordinary way of things");
}

/// Rule: ATTACH-A2
#[test]
fn what_is_attached_is_told_to_the_node_and_then_settled() {
    let mut case = Case::new(ONE);
    case.own = Some(attachment("v", "b", State::Attached));
    assert_eq!(case.because().code(), "unreported");
    case.node = node("b", "True", &[], &["v"]);
    assert_eq!((case.because().code(), case.because().standing()), ("attached", Standing::Settled));
    let notice = case.because().notice().unwrap();
    assert_eq!(notice.reason, "SuccessfulAttachVolume");
    assert_eq!(notice.message, "AttachVolume.Attach succeeded for volume \"pv-v\" ");
}

/// Rule: CTRL-I15
#[test]
fn of_two_nodes_with_a_volume_for_one_the_one_that_was_told_first_counts() {
    let mut case = Case::new(ONE);
    case.own = Some(attachment("v", "b", State::Attached));
    case.others = vec![(attachment("v", "a", State::Attached), Hold::Wanted, true)];
    assert_eq!(case.because().code(), "second");
    case.node = node("b", "True", &[], &["v"]);
    case.others[0].2 = false;
    assert_eq!(case.because().code(), "attached");
}

/// Rule: ATTACH-6.1
#[test]
fn nothing_is_attached_to_a_node_that_is_missing_or_attaches_by_itself() {
    let case = Case::new(ONE);
    let missing = case.with(|wish| about(&Wish { node: Lookup::NotCached, ..*wish }));
    assert_eq!(missing, Because::NodeMissing { node: "b".into() });
    let mut case = Case::new(ONE);
    case.node.meta.annotations = Default::default();
    assert_eq!(case.because(), Because::Unmanaged { node: "b".into() });
}

/// Rule: CTRL-14.46
#[test]
fn a_driver_gets_so_much_to_do_at_once_and_no_more() {
    let mut case = Case::new(ONE);
    case.slot = Slot::Full { limit: 2 };
    let decision = case.with(decide);
    assert_eq!((decision.because.code(), decision.actions.len()), ("queued", 0));
}

#[test]
fn a_volume_for_one_node_is_not_told_before_all_nodes_have_spoken_after_a_restore() {
    let mut case = Case::new(ONE);
    case.own = Some(attachment("v", "b", State::Attached));
    case.unconfirmed = vec!["c".into()];
    let because = case.because();
    assert_eq!(because, Because::Unconfirmed { volume: "pv-v".into(), nodes: vec!["c".into()] });
    assert!(because.notice().is_some() && because.to_string().ends_with(": c"), "{because}");
    case.unconfirmed.clear();
    assert!(matches!(case.because(), Because::Unreported { .. }));
}

#[test]
fn after_a_restore_a_volume_for_one_node_is_not_attached_while_another_node_may_have_it() {
    let mut case = Case::new(ONE);
    case.unconfirmed = vec!["c".into()];
    let decision = case.with(decide);
    let waits = Because::Unconfirmed { volume: "pv-v".into(), nodes: vec!["c".into()] };
    assert_eq!((decision.because, decision.actions), (waits, Vec::new()));
    let mut shared = Case::new(MANY);
    shared.unconfirmed = vec!["c".into()];
    assert_eq!(shared.with(decide).actions, [Action::Attach]);
}

/// What the node has must be attached there before it can be detached, whatever else is attached where.
#[test]
fn after_a_restore_a_volume_that_a_node_lists_gets_its_attachment() {
    let mut case = Case::new(ONE);
    case.listing = RestoreListing::Listed;
    case.others = vec![(attachment("v", "a", State::Coming), Hold::Wanted, false)];
    let decision = case.with(decide);
    assert_eq!((decision.because, decision.actions), (Because::Recover { node: "b".into() }, vec![Action::Attach]));
}
