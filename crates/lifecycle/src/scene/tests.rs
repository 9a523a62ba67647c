//! Ways as they are drawn: what is on them, what stands for what is missing, and when each stage was reached.

use std::collections::BTreeMap;

use api::object::UnixSeconds;
use api::{Attachment, Capacity, Claim, Event, Key, Node, Pod, Uid, Volume};
use serde_json::{Value, json};

use super::*;
use crate::bind::tests::{annotated, bond, claim, class, over, read, volume};
use crate::explain::Listing;

/// 2026-01-02T03:04:05Z.
const CREATED: &str = "2026-01-02T03:04:05Z";
const SECOND: i64 = 1_767_323_045;
const NODE: &str = "n1";

fn seen<T>(items: Vec<T>) -> Listing<T> {
    Listing::Seen(items)
}

/// Everything could be looked at, and these objects were there.
fn picture(claims: Vec<Claim>, volumes: Vec<Volume>, pods: Vec<Pod>, attachments: Vec<Attachment>) -> Picture {
    let managed = api::keys::annotation::MANAGED_ATTACH.text();
    let node: Node = read(json!({"metadata": {"name": NODE, "annotations": {managed: "true"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
                   "volumesAttached": [{"name": crate::attach::unique_name("d", "v"), "devicePath": ""}]}}));
    Picture {
        now: UnixSeconds(SECOND + 60),
        claims: seen(claims),
        volumes: seen(volumes),
        classes: seen(vec![class("fast", json!({}))]),
        pods: seen(pods),
        nodes: seen(vec![node]),
        csi_nodes: seen(vec![read(json!({"metadata": {"name": NODE}, "spec": {"drivers": [
            {"name": "d", "nodeID": "x", "allocatable": {"count": 8}}]}}))]),
        drivers: seen(vec![read(json!({"metadata": {"name": "d"}, "spec": {"attachRequired": true}}))]),
        attachments: seen(attachments),
        capacities: seen(vec![]),
        leases: seen(vec![]),
        events: seen(vec![]),
        intents: seen(vec![]),
        namespaces: seen(vec![]),
        ..Picture::default()
    }
}

fn bound_claim() -> Claim {
    let keys = annotated(&[crate::bind::tests::COMPLETED]);
    let bound = json!({"metadata": {"creationTimestamp": CREATED}, "spec": {"volumeName": "v"},
        "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}}});
    claim(over(keys, bound))
}

fn its_volume() -> Volume {
    let made = api::keys::annotation::PROVISIONED_BY.text();
    let bound =
        json!({"metadata": {"annotations": {made: "d"}, "creationTimestamp": CREATED}, "status": {"phase": "Bound"}});
    volume("v", over(bond(), bound))
}

fn pod(name: &str, node: &str, ready: Value) -> Pod {
    let kind = api::keys::condition::VOLUMES_READY;
    let condition = json!({"type": kind, "status": ready, "lastTransitionTime": CREATED});
    read(json!({
        "metadata": {"name": name, "namespace": "n", "uid": format!("{name}-uid"), "creationTimestamp": CREATED},
        "spec": {"nodeName": node, "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]},
        "status": {"phase": "Pending", "conditions": if ready.is_null() { json!([]) } else { json!([condition]) }},
    }))
}

fn attachment(node: &str, attached: bool) -> Attachment {
    read(json!({
        "metadata": {"name": crate::attach::attachment_name("d", "v", node), "uid": format!("{node}-va")},
        "spec": {"attacher": "d", "nodeName": node, "source": {"persistentVolumeName": "v"}},
        "status": {"attached": attached},
    }))
}

fn id() -> WayId {
    WayId::Claim(Key::namespaced("n", "c"))
}

fn drawn(picture: &Picture) -> Way {
    way(picture, &id(), &Moments::default()).expect("it is there")
}

fn stages(way: &Way) -> Vec<(&'static str, When)> {
    way.stages.iter().map(|stage| (stage.name, stage.when)).collect()
}

#[test]
fn a_claim_that_a_pod_has_mounted_is_drawn_from_end_to_end() {
    let pods = vec![pod("web", NODE, json!("True"))];
    let picture = picture(vec![bound_claim()], vec![its_volume()], pods, vec![attachment(NODE, true)]);
    let way = drawn(&picture);
    assert_eq!(way.claim.as_ref().map(|claim| (claim.state.as_str(), claim.tone)), Some(("Bound", Tone::Settled)));
    assert_eq!(way.volume.as_ref().map(|volume| &*volume.name), Some("v"));
    let [branch] = &*way.branches else { panic!("one node: {:?}", way.branches) };
    assert_eq!(branch.attachment.as_ref().map(|held| held.state.as_str()), Some("attached"));
    assert_eq!(branch.node.as_ref().map(|node| node.state.as_str()), Some("Ready"));
    assert_eq!(branch.pods[0].state, "mounted");
    assert_eq!((way.tone, way.id.as_str()), (Tone::Settled, "claim/n/c"));
    let why = explain(&picture, &id()).expect("it is there");
    assert_eq!(why.tone, Tone::Settled, "{}", why.sentence);
    assert_eq!(ways(&picture).into_iter().collect::<Vec<_>>(), [id()], "the volume has no way of its own");
}

#[test]
fn each_node_is_a_branch_and_pods_without_one_come_last() {
    let pods = vec![pod("waits", "", Value::Null), pod("web", NODE, json!("False")), pod("far", "n2", Value::Null)];
    let held = vec![attachment(NODE, true), attachment("n2", false)];
    let way = drawn(&picture(vec![bound_claim()], vec![its_volume()], pods, held));
    let names: Vec<_> = way.branches.iter().map(|branch| branch.node.as_ref().map(|node| &*node.name)).collect();
    assert_eq!(names, [Some(NODE), Some("n2"), None]);
    assert_eq!(way.branches[1].node.as_ref().map(|node| node.state.as_str()), Some("gone"), "nobody has heard of it");
    assert_eq!(way.branches[2].pods[0].state, "no node");
    assert_eq!(way.tone, Tone::Stuck, "the worst counts");
}

#[test]
fn a_node_that_could_not_be_looked_at_is_not_called_gone() {
    let pods = vec![pod("web", "n9", Value::Null)];
    let mut picture = picture(vec![bound_claim()], vec![its_volume()], pods, vec![]);
    picture.nodes = Listing::NotAllowed;
    let way = drawn(&picture);
    assert_eq!(way.branches[0].node.as_ref().map(|node| node.state.as_str()), Some("not seen"));
}

#[test]
fn a_driver_that_attaches_nothing_needs_no_attachment() {
    let pods = vec![pod("web", NODE, json!("True"))];
    let mut picture = picture(vec![bound_claim()], vec![its_volume()], pods, vec![]);
    picture.drivers = seen(vec![read(json!({"metadata": {"name": "d"}, "spec": {"attachRequired": false}}))]);
    let way = drawn(&picture);
    assert_eq!(way.branches[0].attachment.as_ref().map(|held| held.state.as_str()), Some("not needed"));
}

#[test]
fn a_claim_that_waits_says_what_explain_says() {
    let waiting = claim(json!({"metadata": {"creationTimestamp": CREATED}, "spec": {"storageClassName": "nowhere"}}));
    let picture = picture(vec![waiting.clone()], vec![], vec![pod("web", "", Value::Null)], vec![]);
    let why = explain(&picture, &id()).expect("it is there");
    let said = crate::explain::claim(&picture, &waiting);
    assert_eq!((&why.sentence, &why.fix, why.tone), (&said.sentence, &said.fix, Tone::Stuck));
    assert_eq!(why.command, "orlop explain pvc/c -n n");
    let ahead = stages(&drawn(&picture));
    assert_eq!(ahead[0], ("created", When::Told { at: SECOND * 1000 }));
    let rest: Vec<_> = ahead.iter().filter(|(_, when)| *when == When::Ahead).map(|(name, _)| *name).collect();
    assert_eq!(rest, ["provisioned", "bound", "scheduled", "mounted"]);
}

#[test]
fn a_volume_that_is_not_well_and_a_machine_in_trouble_say_what_explain_says() {
    let kind = api::keys::condition::VOLUME_ABNORMAL;
    for (said, state, tone) in [
        ("writes were lost: x (EIO). What was written before", "lost writes", Tone::Stuck),
        ("pool missing: \"p\" is not at /p: gone", "pool missing", Tone::Waiting),
        ("pool full: \"p\" at /p has 1 MiB left", "pool full", Tone::Waiting),
    ] {
        let mut marked = bound_claim();
        let conditions = json!({"status": {"conditions": [{"type": kind, "status": "True", "message": said}]}});
        marked.status.abnormal = claim(conditions).status.abnormal;
        let pods = vec![pod("web", NODE, json!("True"))];
        let picture = picture(vec![marked.clone()], vec![its_volume()], pods, vec![attachment(NODE, true)]);
        let way = drawn(&picture);
        assert_eq!(way.volume.map(|volume| volume.state), Some(state.to_owned()));
        let why = explain(&picture, &id()).expect("it is there");
        let told = crate::explain::claim(&picture, &marked);
        assert_eq!((&why.sentence, &why.fix, why.tone), (&told.sentence, &told.fix, tone), "{said}");
    }
    let mut picture = picture(vec![bound_claim()], vec![its_volume()], vec![], vec![attachment(NODE, true)]);
    let refused: Event = read(json!({"metadata": {"name": "e", "namespace": "default"}, "reason": "NodeNameInUse",
        "message": "another machine uses this node's name: x", "involvedObject": {"kind": "Node", "name": NODE}}));
    picture.node_events = seen(vec![refused.clone()]);
    picture.events = seen(vec![refused]);
    assert_eq!(machines(&picture)[0].state, "Ready, name in use");
    assert_eq!(sayings(&picture, 1).len(), 1);
    assert!(explain(&picture, &id()).is_some_and(|why| why.sentence.contains("two machines use the node name \"n1\"")));
    let node: Node = read(json!({"metadata": {"name": NODE}, "status": {"conditions": [
        {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": CREATED}]}}));
    picture.nodes = seen(vec![node]);
    picture.node_events = seen(vec![]);
    assert_eq!(machines(&picture)[0].state, "lost");
    assert!(explain(&picture, &id()).is_some_and(|why| why.sentence.contains("machine \"n1\" is lost")));
}

#[test]
fn a_claim_that_pods_miss_and_a_volume_that_no_claim_has_are_ways_too() {
    let picture = picture(vec![], vec![volume("spare", json!({}))], vec![pod("web", "", Value::Null)], vec![]);
    let all: Vec<String> = ways(&picture).iter().map(ToString::to_string).collect();
    assert_eq!(all, ["claim/n/c", "volume/spare"]);
    let way = drawn(&picture);
    assert_eq!(way.claim.map(|claim| claim.state), Some("missing".to_owned()));
    let spare = super::way(&picture, &WayId::Volume("spare".into()), &Moments::default()).expect("it is there");
    assert!(spare.claim.is_none() && spare.branches.is_empty());
    assert!(explain(&picture, &id()).is_some_and(|why| why.tone > Tone::Settled));
}

#[test]
fn a_volume_made_for_a_claim_is_on_the_claims_way_before_it_is_named() {
    let open = claim(json!({}));
    let picture = picture(vec![open], vec![volume("v", bond())], vec![], vec![]);
    assert_eq!(drawn(&picture).volume.map(|volume| volume.name), Some("v".into()));
    assert_eq!(ways(&picture).len(), 1);
    assert!(super::way(&picture, &WayId::Volume("v".into()), &Moments::default()).is_none());
}

#[test]
fn who_saw_it_knows_better_than_a_whole_second_and_who_came_later_does_not() {
    let (uid, mut moments) = (Uid::from("u"), Moments::default());
    let told = Some(UnixSeconds(100));
    assert_eq!(moments.when(&uid, Moment::Created, None), When::Unknown);
    assert_eq!(moments.when(&uid, Moment::Created, told), When::Told { at: 100_000 });
    moments.note(&uid, Moment::Created, 100_420);
    moments.note(&uid, Moment::Created, 999_999);
    assert_eq!(moments.when(&uid, Moment::Created, told), When::Seen { at: 100_420 }, "the first time counts");
    assert_eq!(moments.when(&uid, Moment::Created, Some(UnixSeconds(97))), When::Told { at: 97_000 });
    assert_eq!(moments.when(&uid, Moment::Created, None), When::Seen { at: 100_420 });
    moments.forget(&uid);
    assert_eq!(moments.when(&uid, Moment::Created, None), When::Unknown);
}

#[test]
fn the_stages_of_a_way_are_in_order_and_say_who_knows_their_time() {
    let pods = vec![pod("web", NODE, json!("True"))];
    let picture = picture(vec![bound_claim()], vec![its_volume()], pods, vec![attachment(NODE, true)]);
    let mut moments = Moments::default();
    moments.note(&Uid::from("claim-uid"), Moment::Bound, SECOND * 1000 + 300);
    let way = way(&picture, &id(), &moments).expect("it is there");
    let told = When::Told { at: SECOND * 1000 };
    let bound = When::Seen { at: SECOND * 1000 + 300 };
    let expected = [
        ("created", told),
        ("provisioned", told),
        ("bound", bound),
        ("created", told),
        ("scheduled", When::Unknown),
        ("attached", When::Unknown),
        ("mounted", told),
    ];
    assert_eq!(stages(&way), expected);
}

#[test]
fn a_pool_is_what_was_given_and_what_is_published_or_else_asked() {
    let mut picture = picture(vec![bound_claim()], vec![its_volume()], vec![], vec![attachment(NODE, true)]);
    let asked = BTreeMap::from([(
        "d.example.com".to_owned(),
        Room { place: "in its pool".to_owned(), free: 7, largest: None },
    )]);
    let pool = pools(&picture, &asked).remove(0);
    assert_eq!((&*pool.class, pool.volumes, pool.given, pool.rooms[0].free), ("fast", 1, 2 << 30, 7));
    let published: Capacity = read(json!({"metadata": {"name": "x", "namespace": "k"}, "storageClassName": "fast",
        "capacity": "5Gi", "maximumVolumeSize": "1Gi", "nodeTopology": {"matchLabels": {"zone": "a"}}}));
    picture.capacities = seen(vec![published]);
    let pool = pools(&picture, &asked).remove(0);
    assert_eq!(pool.rooms, [Room { place: "a".to_owned(), free: 5 << 30, largest: Some(1 << 30) }]);
    let machine = machines(&picture).remove(0);
    assert_eq!((machine.attached, machine.slots, machine.tone), (1, Some(8), Tone::Settled));
}

#[test]
fn events_about_storage_are_told_the_newest_first_and_without_control_characters() {
    let event = |name: &str, kind: &str, reason: &str, at: &str| -> Event {
        read(json!({"metadata": {"name": name, "namespace": "n"}, "reason": reason, "message": "a\u{1b}[31m\nb",
            "involvedObject": {"kind": kind, "namespace": "n", "name": "x"}, "lastTimestamp": at}))
    };
    let mut picture = picture(vec![], vec![], vec![], vec![]);
    picture.events = seen(vec![
        event("old", "PersistentVolumeClaim", "Provisioning", CREATED),
        event("pulled", "Pod", "Pulled", CREATED),
        event("new", "Pod", "FailedMount", "2026-01-02T03:05:05Z"),
    ]);
    let told = sayings(&picture, 10);
    let names: Vec<&str> = told.iter().map(|saying| &*saying.reason).collect();
    assert_eq!(names, ["FailedMount", "Provisioning"]);
    assert_eq!(told[0].message, "a [31m b");
    assert_eq!(sayings(&picture, 1).len(), 1);
}
