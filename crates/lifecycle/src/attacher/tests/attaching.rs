//! SIDECAR-1.6, ATTACHER-3.2, ATTACHER-3.4 to ATTACHER-3.6.

use serde_json::json;

use super::super::attachment::Phase;
use super::super::publication::{Origin, Target};
use super::super::{Because, Handler, finalizer_of, lists_publications};
use super::*;
use crate::decision::{Reason as _, Standing};
use crate::provision::csi::access::Access;
use crate::provision::csi::plan::Shape;

fn target() -> Target {
    Target { handle: "h".to_owned(), node_id: "id".to_owned(), secret: None }
}

fn published(world: &World) -> super::super::Publication {
    match world.action() {
        Some(Action::Publish(publication, _)) => *publication,
        other => panic!("{other:?}"),
    }
}

/// Rule: ATTACHER-3.4
#[test]
fn finalizers_are_named_after_the_driver() {
    assert_eq!(finalizer_of(DRIVER), FINALIZER);
    assert_eq!(finalizer_of("a/b_"), "external-attacher/a-b-X");
}

/// Rule: ATTACHER-3.2
#[test]
fn the_handler_follows_from_what_the_driver_can_do() {
    let all = [Ability::ControllerService, Ability::Publish, Ability::ListVolumes, Ability::ListPublishedNodes];
    assert_eq!(Handler::of(&all.into()), Handler::Csi);
    assert!(lists_publications(&all.into()));
    for missing in all {
        let rest: Abilities = all.into_iter().filter(|ability| *ability != missing).collect();
        let trivial = matches!(missing, Ability::ControllerService | Ability::Publish);
        assert_eq!(Handler::of(&rest), if trivial { Handler::Trivial } else { Handler::Csi }, "{missing}");
        assert!(!lists_publications(&rest), "{missing}");
    }
}

/// Rule: ATTACHER-3.5
#[test]
fn a_trivial_driver_needs_nothing_but_the_word() {
    let world = world().with(|world| world.has = [Ability::ControllerService].into());
    let bare = world.with(|world| (world.volume, world.node) = (Err(NotRead), Err(NotRead)));
    assert_eq!(bare.action(), Some(Action::RecordAttached { metadata: pairs(&[]) }));
    let told = bare.with(|world| world.attachment["status"] = json!({"attached": true}));
    assert!(told.decide().is_rest());
    assert!(told.deleted().decide().is_rest(), "nothing of ours holds it");
}

#[test]
fn an_error_does_not_outlive_the_success_that_followed() {
    let status = json!({"attached": true, "attachmentMetadata": {"lun": "3"},
        "attachError": {"time": "2026-01-01T00:00:00Z", "message": "m"}});
    let stale = world().recorded().with(|world| world.attachment["status"] = status.clone());
    assert_eq!(stale.action(), Some(Action::RecordAttached { metadata: pairs(&[("lun", "3")]) }));
    let trivial = stale.with(|world| world.has = [Ability::ControllerService].into());
    assert!(matches!(trivial.action(), Some(Action::RecordAttached { .. })));
}

/// Rule: ATTACHER-3.6
#[test]
fn everything_is_read_before_anything_is_written() {
    let world = world().secretive().with(|world| {
        (world.volume, world.node) = (Err(NotRead), Err(NotRead));
    });
    assert_eq!(world.action(), Some(Action::ReadVolume { name: "v".to_owned() }));
    let world = World { volume: self::world().secretive().volume, ..world };
    assert_eq!(world.action(), Some(Action::ReadNode { name: "n".to_owned() }));
    let world = World { node: self::world().node, ..world };
    assert_eq!(world.action(), Some(Action::ReadSecret(keys())));
}

/// Rules: ATTACHER-3.6, SIDECAR-14.5.9
#[test]
fn the_volume_is_guarded_then_the_attachment_then_the_driver_called() {
    let world = world().with(|world| {
        if let Ok(Some(volume)) = &mut world.volume {
            volume["metadata"]["finalizers"] = json!(["example.com/theirs"]);
        }
    });
    assert_eq!(world.action(), Some(Action::GuardVolume));
    let world = World { volume: self::world().volume, ..world };
    assert_eq!(world.action(), Some(Action::Record(target())));
    let world = world.recorded();
    assert!(matches!(world.action(), Some(Action::Publish(_, to)) if to == target()));
    let context = pairs(&[("lun", "3")]);
    let world = world.with(|world| world.progress = Progress::Published { target: target(), context: context.clone() });
    assert_eq!(world.action(), Some(Action::RecordAttached { metadata: context }));
    let status = json!({"attached": true, "attachmentMetadata": {"lun": "3"}});
    assert!(world.with(|world| world.attachment["status"] = status).decide().is_rest());
}

/// Rules: ATTACHER-3.6, ATTACHER-3.9
#[test]
fn what_is_attached_rests_unless_the_driver_denies_it() {
    assert!(world().attached().decide().is_rest());
    let world = world().attached().with(|world| world.forced = Forced::Yes);
    assert!(matches!(world.action(), Some(Action::Publish(..))));
}

/// Rule: ATTACHER-3.6.9
#[test]
fn a_name_changed_by_hand_is_written_again_before_the_call() {
    let world = world().recorded().with(|world| world.attachment["metadata"]["finalizers"] = json!([]));
    assert_eq!(world.action(), Some(Action::Record(target())));
}

/// Rule: SIDECAR-A5
#[test]
fn an_attempt_under_the_nodes_old_id_is_taken_back_first() {
    let old = Target { node_id: "old".to_owned(), ..target() };
    let world = world().recorded().with(|world| {
        world.attachment["metadata"]["annotations"][annotation::NODE_ID.text()] = json!("old");
    });
    assert_eq!(world.action(), Some(Action::Unpublish(old.clone(), Origin::Csi)));
    assert_eq!(world.decide().because, Because::Moved { from: "old".to_owned(), to: "id".to_owned() });
    let undone = world.with(|world| world.progress = Progress::Unpublished(old));
    assert_eq!(undone.action(), Some(Action::Record(target())));
    // An attachment that we do not hold was never published: the note is just overwritten.
    let free = undone.with(|world| {
        world.attachment["metadata"]["finalizers"] = json!([]);
        world.progress = Progress::Nothing;
    });
    assert_eq!(free.action(), Some(Action::Record(target())));
}

/// Rule: SIDECAR-A5
#[test]
fn the_old_id_counts_also_where_upstream_wrote_nothing_but_the_node() {
    let world = world().recorded().with(|world| {
        world.attachment["metadata"]["annotations"] = json!({annotation::NODE_ID.text(): "old"});
    });
    let old = Target { node_id: "old".to_owned(), ..target() };
    assert_eq!(world.action(), Some(Action::Unpublish(old, Origin::Csi)));
}

/// Rules: ATTACHER-3.6.1, ATTACHER-3.6.2, ATTACHER-3.6.4, ATTACHER-3.6.7, ATTACHER-3.6.8
#[test]
fn nothing_is_written_about_what_cannot_be_but_why() {
    let rows: [(&str, World); 9] = [
        ("names no volume", world().with(|world| world.attachment["spec"]["source"] = json!({}))),
        (
            "only one of the two",
            world().with(|world| world.attachment["spec"]["source"]["inlineVolumeSpec"] = json!({"csi": {}})),
        ),
        ("\"v\" does not exist", world().with(|world| world.volume = Ok(None))),
        (
            "marked for deletion",
            world().with(|world| {
                if let Ok(Some(volume)) = &mut world.volume {
                    volume["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
                }
            }),
        ),
        ("not a volume of a CSI driver", world().with(|world| spec(world)["csi"] = json!(null))),
        ("other.example.com", world().with(|world| spec(world)["csi"]["driver"] = json!("other.example.com"))),
        ("\"n\" does not exist", world().with(|world| world.node = Ok(None))),
        ("does not list driver", world().with(|world| world.attacher = Attacher::new("x", "")).of("x")),
        (
            "without a name or a namespace",
            world().with(|world| spec(world)["csi"]["controllerPublishSecretRef"] = json!({"name": "keys"})),
        ),
    ];
    for (words, world) in rows {
        let said = world.refusal();
        assert!(said.contains(words), "{said:?} says nothing of {words:?}");
        assert_eq!(world.action(), Some(Action::Complain(Phase::Attach)));
        assert!(matches!(world.decide().because.standing(), Standing::Stuck | Standing::Waiting));
    }
}

fn spec(world: &mut World) -> &mut Value {
    match &mut world.volume {
        Ok(Some(volume)) => &mut volume["spec"],
        Ok(None) | Err(NotRead) => panic!("there is a volume"),
    }
}

impl World {
    /// The attachment and its volume are this driver's.
    fn of(self, driver: &str) -> Self {
        self.with(|world| {
            world.attachment["spec"]["attacher"] = json!(driver);
            spec(world)["csi"]["driver"] = json!(driver);
        })
    }
}

/// Rule: ATTACHER-3.6.7
#[test]
fn a_secret_that_is_not_there_keeps_a_volume_from_being_attached() {
    let world = world().secretive().with(|world| world.secret = Some((keys(), "the secret ns/keys does not exist")));
    assert_eq!(world.refusal(), "the secret ns/keys does not exist");
    let world = world.with(|world| world.secret = Some((keys(), "")));
    let recorded = Target { secret: Some(keys()), ..target() };
    assert_eq!(world.action(), Some(Action::Record(recorded)));
}

/// Rule: SIDECAR-1.6
#[test]
fn the_whole_set_of_access_modes_becomes_one_capability() {
    use Ability::SingleNodeMultiWriter as Fine;
    let rows: [(&[&str], &[Ability], Option<Access>); 9] = [
        (&["ReadWriteOnce"], &[], Some(Access::SingleNodeWriter)),
        (&["ReadWriteOnce"], &[Fine], Some(Access::SingleNodeMultiWriter)),
        (&["ReadWriteOncePod"], &[], Some(Access::SingleNodeWriter)),
        (&["ReadWriteOncePod"], &[Fine], Some(Access::SingleNodeSingleWriter)),
        (&["ReadOnlyMany"], &[Fine], Some(Access::MultiNodeReaderOnly)),
        (&["ReadOnlyMany", "ReadWriteMany"], &[], Some(Access::MultiNodeMultiWriter)),
        (&["ReadOnlyMany", "ReadWriteOnce"], &[], None),
        (&["ReadWriteOncePod", "ReadWriteOnce"], &[Fine], None),
        (&[], &[], None),
    ];
    for (modes, more, access) in rows {
        let world = world().recorded().with(|world| {
            world.has.extend(more);
            spec(world)["accessModes"] = json!(modes);
        });
        match access {
            Some(access) => assert_eq!(published(&world).access, access, "{modes:?}"),
            None => assert!(!world.refusal().is_empty(), "{modes:?}"),
        }
    }
}

/// Rule: ATTACHER-3.6.5
#[test]
fn reading_only_is_asked_of_drivers_that_know_it() {
    let world = world().recorded().with(|world| spec(world)["csi"]["readOnly"] = json!(true));
    assert!(published(&world).read_only);
    let world = world.with(|world| world.has.retain(|ability| *ability != Ability::PublishReadOnly));
    assert!(!published(&world).read_only);
}

/// Rule: ATTACHER-3.6.6
#[test]
fn a_filesystem_or_a_block_device() {
    let world = world().recorded().with(|world| world.attacher = Attacher::new(DRIVER, "ext4"));
    assert_eq!(published(&world).shape, Shape::Mount { fstype: Some("ext4".to_owned()) });
    let world = world.with(|world| {
        spec(world)["csi"]["fsType"] = json!("xfs");
        spec(world)["mountOptions"] = json!(["noatime"]);
    });
    let publication = published(&world);
    assert_eq!(publication.shape, Shape::Mount { fstype: Some("xfs".to_owned()) });
    assert_eq!(publication.mount_options, ["noatime"]);
    let world = world.with(|world| spec(world)["volumeMode"] = json!("Block"));
    assert_eq!(published(&world).shape, Shape::Block);
}

/// Rules: ATTACHER-3.6.4, SIDECAR-1.10
#[test]
fn an_in_tree_volume_is_translated() {
    let world = world().with(|world| {
        world.attacher = Attacher::new("ebs.csi.aws.com", "");
        world.attachment["spec"]["attacher"] = json!("ebs.csi.aws.com");
        world.node = Ok(Some(json!({"metadata": {"name": "n"}, "spec": {"drivers": [
            {"name": "ebs.csi.aws.com", "nodeID": "i-1"}]}})));
        world.volume = Ok(Some(json!({
            "metadata": {"name": "v", "finalizers": ["external-attacher/ebs-csi-aws-com"]},
            "spec": {"accessModes": ["ReadWriteOnce"],
                "awsElasticBlockStore": {"volumeID": "vol-1", "fsType": "ext4", "readOnly": true}},
        })));
    });
    let Some(Action::Record(target)) = world.action() else { panic!("{:?}", world.decide()) };
    assert_eq!((target.handle.as_str(), target.node_id.as_str()), ("vol-1", "i-1"));
    let world = world.with(|world| {
        world.attachment["metadata"]["finalizers"] = json!(["external-attacher/ebs-csi-aws-com"]);
        world.attachment["metadata"]["annotations"] =
            json!({annotation::NODE_ID.text(): "i-1", annotation::PUBLISHED_HANDLE.text(): "vol-1"});
    });
    let publication = published(&world);
    assert_eq!((publication.origin, publication.read_only), (Origin::Migrated, true));
}

/// Rule: ATTACHER-3.6.4
#[test]
fn an_inline_volume_must_be_a_csi_one_and_needs_no_guard() {
    let inline = |spec: Value| {
        world().with(|world| {
            world.attachment["spec"]["source"] = json!({"inlineVolumeSpec": spec});
            world.volume = Err(NotRead);
        })
    };
    assert!(inline(json!({"awsElasticBlockStore": {"volumeID": "vol-1"}})).refusal().contains("inline volume"));
    let fit = inline(json!({"accessModes": ["ReadWriteOnce"], "csi": {"driver": DRIVER, "volumeHandle": "h"}}));
    assert_eq!(fit.action(), Some(Action::Record(target())));
}

/// Rule: ATTACHER-3.3
#[test]
fn another_drivers_attachment_is_not_ours() {
    let world = world().with(|world| world.attachment["spec"]["attacher"] = json!("other.example.com"));
    assert!(world.decide().is_rest() && world.deleted().decide().is_rest());
}

/// The volume is in the cache only, and nobody holds it.
fn unread() -> World {
    world().with(|world| {
        let read = std::mem::replace(&mut world.volume, Err(NotRead));
        world.cached = read.ok().flatten();
        change(world, |volume| volume["metadata"]["finalizers"] = json!(null));
    })
}

/// Changes what the cache holds of the volume.
fn change(world: &mut World, change: impl FnOnce(&mut Value)) {
    change(world.cached.as_mut().unwrap());
}

/// Rule: ATTACHER-3.6.3
#[test]
fn a_volume_that_is_not_guarded_need_not_be_read_first() {
    assert_eq!(unread().action(), Some(Action::GuardVolume), "the answer to that write is the volume");
    let read = Some(Action::ReadVolume { name: "v".to_owned() });
    for speaks_against in [
        json!({"metadata": {"finalizers": [FINALIZER]}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}),
        json!({"spec": {"csi": {"driver": "other.example.com"}}}),
        json!({"spec": {"accessModes": ["ReadWriteOncePod", "ReadWriteMany"]}}),
        json!({"spec": {"csi": {"controllerPublishSecretRef": {"name": "keys", "namespace": "ns"}}}}),
    ] {
        let world = unread().with(|world| change(world, |volume| merge(volume, &speaks_against)));
        assert_eq!(world.action(), read, "{speaks_against}");
    }
    assert_eq!(unread().with(|world| world.node = Err(NotRead)).action(), read);
    assert_eq!(unread().with(|world| world.cached = None).action(), read);
}

fn merge(into: &mut Value, from: &Value) {
    match from {
        Value::Object(members) => members.iter().for_each(|(key, value)| merge(&mut into[key], value)),
        other => *into = other.clone(),
    }
}

/// What whoever makes the attachment of the cached volume may write on it.
fn foreseen(world: &World) -> Option<Target> {
    let volume: Volume = serde_json::from_value(world.cached.clone()?).unwrap();
    let node: CsiNode = serde_json::from_value(world.node.as_ref().ok()?.clone()?).unwrap();
    Target::foreseen(&volume, &node, &world.attacher, &world.has)
}

/// Rules: ATTACHER-3.4, ATTACHER-3.6.9
#[test]
fn what_is_written_on_a_new_attachment_is_what_the_attacher_would_write() {
    assert_eq!(foreseen(&unread()), Some(target()));
    let secretive = unread().with(|world| {
        let secret = json!({"name": "keys", "namespace": "ns"});
        change(world, |volume| volume["spec"]["csi"]["controllerPublishSecretRef"] = secret);
    });
    assert_eq!(foreseen(&secretive), Some(Target { secret: Some(keys()), ..target() }));
    let noted: Vec<Option<String>> =
        foreseen(&secretive).unwrap().annotations().into_iter().map(|(_, value)| value).collect();
    assert_eq!(noted, ["id", "h", "ns/keys"].map(|text| Some(text.to_owned())));
    let recorded = unread().recorded().with(|world| world.volume = self::world().volume);
    assert!(matches!(recorded.action(), Some(Action::Publish(_, at)) if at == target()), "nothing is left to write");
}

#[test]
fn nothing_is_foreseen_of_what_cannot_be_carried_out() {
    let no_name = json!({"name": "", "namespace": "ns"});
    for world in [
        unread().with(|world| world.has = [Ability::ControllerService].into()),
        unread().with(|world| world.attacher = Attacher::new("other.example.com", "")),
        unread().with(|world| world.node = Ok(Some(json!({"metadata": {"name": "n"}, "spec": {"drivers": []}})))),
        unread().with(|world| change(world, |pv| pv["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z"))),
        unread().with(|world| change(world, |pv| pv["spec"]["csi"]["controllerPublishSecretRef"] = no_name.clone())),
        unread()
            .with(|world| change(world, |pv| pv["spec"]["accessModes"] = json!(["ReadWriteOncePod", "ReadWriteMany"]))),
    ] {
        assert_eq!(foreseen(&world), None);
    }
}
