//! ATTACHER-3.7, ATTACHER-3.9.

use serde_json::json;

use super::super::attachment::{Phase, is_named_after, not_unpublished, recorded};
use super::super::listing::{Agreement, Listing, compare};
use super::super::publication::{Origin, Target};
use super::super::{Because, Handler};
use super::*;
use crate::outcome::{Code, Outcome};

fn target() -> Target {
    Target { handle: "h".to_owned(), node_id: "id".to_owned(), secret: None }
}

/// Rules: ATTACHER-3.7, SIDECAR-A7
#[test]
fn what_was_written_down_is_taken_back_without_volume_and_node() {
    let world = world().attached().deleted().with(|world| (world.volume, world.node) = (Ok(None), Ok(None)));
    assert_eq!(world.action(), Some(Action::Unpublish(target(), Origin::Csi)));
    let world = World { volume: Err(NotRead), node: Err(NotRead), ..world };
    assert_eq!(world.action(), Some(Action::Unpublish(target(), Origin::Csi)), "nothing has to be read");
}

/// Rule: SIDECAR-1.8
#[test]
fn an_attempt_of_unknown_outcome_is_taken_back_as_any_other() {
    let world = world().recorded().deleted();
    assert_eq!(world.action(), Some(Action::Unpublish(target(), Origin::Csi)));
}

/// Rule: ATTACHER-3.7.5
#[test]
fn the_finalizer_falls_first_and_then_the_status_is_told() {
    let done = |world: &mut World| world.progress = Progress::Unpublished(target());
    let world = world().attached().deleted().with(done);
    assert_eq!(world.action(), Some(Action::LetGo));
    let world = world.with(|world| world.attachment["metadata"]["finalizers"] = json!(["example.com/theirs"]));
    assert_eq!(world.action(), Some(Action::RecordDetached));
    let world = world.with(|world| world.attachment["status"] = json!({"attached": false}));
    assert!(world.decide().is_rest());
}

/// Rules: ATTACHER-3.7, ATTACHER-3.9
#[test]
fn without_our_finalizer_there_is_nothing_to_take_back_unless_the_driver_says_so() {
    let free = |world: &mut World| world.attachment["metadata"]["finalizers"] = json!(["example.com/theirs"]);
    let world = world().attached().deleted().with(free);
    assert!(world.decide().is_rest(), "whatever the status says");
    let world = world.with(|world| world.forced = Forced::Yes);
    assert!(matches!(world.action(), Some(Action::Unpublish(to, _)) if to == target()));
}

/// Rule: SIDECAR-A5
#[test]
fn taking_back_an_earlier_attempt_is_not_taking_back_the_one_that_was_written_down_since() {
    let earlier = Target { node_id: "old".to_owned(), ..target() };
    let world = world().recorded().deleted().with(|world| world.progress = Progress::Unpublished(earlier));
    assert_eq!(world.action(), Some(Action::Unpublish(target(), Origin::Csi)));
}

/// As upstream's attacher leaves it: the node's id, and nothing about the volume.
fn upstreams() -> World {
    world().attached().deleted().with(|world| {
        world.attachment["metadata"]["annotations"] = json!({annotation::NODE_ID.text(): "old"});
    })
}

/// Rules: ATTACHER-3.7, SIDECAR-13.15
#[test]
fn of_upstreams_attachments_the_volume_tells_the_handle_and_the_note_the_node() {
    let old = Target { node_id: "old".to_owned(), ..target() };
    assert_eq!(upstreams().action(), Some(Action::Unpublish(old.clone(), Origin::Csi)), "not what the node is now");
    let gone = upstreams().with(|world| world.node = Ok(None));
    assert_eq!(gone.action(), Some(Action::Unpublish(old, Origin::Csi)));
    let unread = upstreams().with(|world| world.volume = Err(NotRead));
    assert_eq!(unread.action(), Some(Action::ReadVolume { name: "v".to_owned() }));
    // A volume on its way out is exactly the one to detach.
    let going = upstreams().with(|world| {
        if let Ok(Some(volume)) = &mut world.volume {
            volume["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        }
    });
    assert!(matches!(going.action(), Some(Action::Unpublish(..))));
}

/// Rule: ATTACHER-3.7.3
#[test]
fn without_a_note_the_node_says_its_id() {
    let bare = upstreams().with(|world| world.attachment["metadata"]["annotations"] = json!({}));
    assert_eq!(bare.action(), Some(Action::Unpublish(target(), Origin::Csi)));
    let gone = bare.with(|world| world.node = Ok(None));
    assert!(gone.refusal().contains("\"n\""));
}

/// Rule: SIDECAR-A7
#[test]
fn what_nobody_can_name_is_not_forgotten() {
    let lost = upstreams().with(|world| world.volume = Ok(None));
    let said = lost.refusal();
    assert!(said.contains(FINALIZER) && said.contains("\"v\""), "{said}");
    assert_eq!(lost.action(), Some(Action::Complain(Phase::Detach)));
}

/// Rule: SIDECAR-A7
#[test]
fn the_driver_is_asked_which_volume_an_attachment_was_named_after() {
    let lost = upstreams().with(|world| {
        world.volume = Ok(None);
        world.has.insert(Ability::ListVolumes);
    });
    assert_eq!(lost.action(), Some(Action::FindHandle));
    let found = lost.with(|world| world.listed = Ok(Some("h".to_owned())));
    let old = Target { node_id: "old".to_owned(), ..target() };
    assert_eq!(found.action(), Some(Action::Unpublish(old, Origin::Csi)));
    let unknown = found.with(|world| world.listed = Ok(None));
    assert!(unknown.refusal().contains(FINALIZER), "a driver that lists nothing like it may have forgotten it");
}

#[test]
fn an_attachments_name_tells_the_handle_it_was_made_of() {
    let name = crate::attach::attachment_name(DRIVER, "h", "n");
    let named = world().with(|world| world.attachment["metadata"]["name"] = json!(name));
    let attachment: Attachment = serde_json::from_value(named.attachment).unwrap();
    assert!(is_named_after(&attachment, "h") && !is_named_after(&attachment, "other"));
}

/// Rules: ATTACHER-3.7.2, SIDECAR-13.16
#[test]
fn a_secret_is_read_and_one_that_is_gone_does_not_hold_the_volume() {
    let world = world().attached().deleted().with(|world| {
        world.attachment["metadata"]["annotations"][annotation::PUBLISH_SECRET.text()] = json!("ns/keys");
    });
    assert_eq!(world.action(), Some(Action::ReadSecret(keys())));
    let secret = Some(keys());
    let held = world.with(|world| world.secret = Some((keys(), "")));
    let with_secret = Target { secret, ..target() };
    assert_eq!(held.action(), Some(Action::Unpublish(with_secret.clone(), Origin::Csi)));
    let missing = held.with(|world| world.secret = Some((keys(), "the secret ns/keys does not exist")));
    assert_eq!(missing.action(), Some(Action::Unpublish(with_secret, Origin::Csi)));
    assert_eq!(missing.decide().because, Because::LeavingWithoutSecret);
}

/// Rule: SIDECAR-1.8
#[test]
fn only_a_driver_that_never_publishes_may_not_know_the_call() {
    for code in Code::NUMBERED.into_iter().filter(|code| *code != Code::Ok) {
        assert_ne!(not_unpublished(Handler::Csi, code), Outcome::Done, "{code}: any error is repeated (SIDECAR-1.8)");
        let done = not_unpublished(Handler::Trivial, code) == Outcome::Done;
        assert_eq!(done, code == Code::Unimplemented, "{code}");
    }
    assert_eq!(not_unpublished(Handler::Csi, Code::None), Outcome::Unknown);
}

#[test]
fn what_a_driver_published_before_it_stopped_doing_so_is_taken_back() {
    let world = world().attached().deleted().with(|world| world.has.clear());
    assert_eq!(world.action(), Some(Action::Unpublish(target(), Origin::Csi)));
}

#[test]
fn the_record_counts_only_under_our_finalizer() {
    let read = |world: World| -> Attachment { serde_json::from_value(world.attachment).unwrap() };
    assert_eq!(recorded(&read(world().recorded()), FINALIZER), Some(target()));
    assert_eq!(recorded(&read(world().recorded()), "external-attacher/other"), None);
    assert_eq!(recorded(&read(world()), FINALIZER), None);
}

/// Rules: ATTACHER-3.9, SIDECAR-14.5.12
#[test]
fn the_drivers_list_contradicts_in_both_directions() {
    let attacher = Attacher::new(DRIVER, "");
    let agreement = |world: World, nodes: &[&str]| {
        let attachment: Attachment = serde_json::from_value(world.attachment).unwrap();
        let mut listing = Listing::default();
        listing.add("h".to_owned(), nodes.iter().map(|node| (*node).to_owned()));
        compare(&attachment, &attacher, (None, None), &listing)
    };
    assert_eq!(agreement(world().attached(), &["other", "id"]), Agreement::Agreed);
    assert_eq!(agreement(world().attached(), &["other"]), Agreement::Contradicted);
    assert_eq!(agreement(world().recorded(), &["id"]), Agreement::Contradicted);
    assert_eq!(agreement(world().recorded(), &[]), Agreement::Agreed);
    assert_eq!(agreement(world(), &["id"]), Agreement::Unknown, "nobody knows which publication it stands for");
}

/// Rule: ATTACHER-3.9
#[test]
fn caches_tell_what_an_attachment_of_upstreams_stands_for() {
    let attacher = Attacher::new(DRIVER, "");
    let attachment: Attachment = serde_json::from_value(world().attachment).unwrap();
    let Ok(Some(volume)) = world().volume else { panic!("there is one") };
    let Ok(Some(node)) = world().node else { panic!("there is one") };
    let volume: api::Volume = serde_json::from_value(volume).unwrap();
    let node: CsiNode = serde_json::from_value(node).unwrap();
    let mut listing = Listing::default();
    listing.add("h".to_owned(), ["id".to_owned()]);
    let compared = compare(&attachment, &attacher, (Some(&volume), Some(&node)), &listing);
    assert_eq!(compared, Agreement::Contradicted);
}

/// Rule: ATTACHER-3.9
#[test]
fn migrated_handles_are_repaired_before_they_are_compared() {
    let driver = "pd.csi.storage.gke.io";
    let attacher = Attacher::new(driver, "");
    let inline = json!({"accessModes": ["ReadWriteOnce"], "csi": {"driver": driver,
        "volumeHandle": "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"}});
    let attachment: Attachment = serde_json::from_value(json!({
        "metadata": {"name": "csi-1", "annotations": {annotation::NODE_ID.text(): "projects/p/zones/z/instances/i"}},
        "spec": {"attacher": driver, "nodeName": "n", "source": {"inlineVolumeSpec": inline}},
        "status": {"attached": true},
    }))
    .unwrap();
    let mut listing = Listing::default();
    listing.add("projects/p/zones/z/disks/d".to_owned(), ["projects/p/zones/z/instances/i".to_owned()]);
    assert_eq!(compare(&attachment, &attacher, (None, None), &listing), Agreement::Agreed);
}
