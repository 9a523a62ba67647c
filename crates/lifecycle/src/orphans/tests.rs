//! What a driver has against what a cluster knows.

use api::object::UnixSeconds;
use api::{Attachment, CsiDriver, Word};
use serde_json::json;

use super::*;
use crate::bind::tests::{claim, class, over, read, volume};
use crate::table::Look;
use crate::table::tests::golden;

const DRIVER: &str = "d.example.com";

fn held(handle: &str) -> Held {
    Held { handle: handle.into(), bytes: 1 << 30, ..Held::default() }
}

fn driver(volumes: &[&str], snapshots: &[&str]) -> Driver {
    Driver {
        name: DRIVER.into(),
        volumes: Listed::All(volumes.iter().map(|handle| held(handle)).collect()),
        snapshots: Listed::All(snapshots.iter().map(|handle| held(handle)).collect()),
        place: None,
    }
}

fn named(name: &str, handle: &str) -> Volume {
    volume(name, json!({"spec": {"csi": {"driver": DRIVER, "volumeHandle": handle}}}))
}

/// A cluster in which everything that could name a volume was looked at.
fn cluster(volumes: Vec<Volume>) -> Picture {
    Picture {
        now: UnixSeconds(0),
        volumes: Listing::Seen(volumes),
        claims: Listing::Seen(Vec::new()),
        classes: Listing::Seen(Vec::new()),
        drivers: Listing::Seen(Vec::new()),
        attachments: Listing::Seen(Vec::new()),
        intents: Listing::Seen(Vec::new()),
        ..Picture::default()
    }
}

fn judge(driver: &Driver, picture: &Picture) -> Report {
    compare(Twice { before: driver, after: driver }, picture, &Listing::Seen(Vec::new()))
}

fn begun(by: &str) -> Begun {
    let key = Some(Key::namespaced("n", "c"));
    Begun { claim: "u".into(), key, by: Word::new(by), volume: "pvc-u".into(), node: None }
}

#[test]
fn a_volume_that_an_object_names_is_no_orphan_also_when_it_is_retained() {
    let released = json!({"status": {"phase": "Released"}, "spec": {"persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": DRIVER, "volumeHandle": "h-2"}}});
    let picture = cluster(vec![named("a", "h-1"), volume("b", released)]);
    let report = judge(&driver(&["h-1", "h-2"], &[]), &picture);
    assert!(report.agrees(), "{report:?}");
}

#[test]
fn a_volume_of_another_driver_with_the_same_handle_does_not_name_it() {
    let other = volume("a", json!({"spec": {"csi": {"driver": "other", "volumeHandle": "h-1"}}}));
    let report = judge(&driver(&["h-1"], &[]), &cluster(vec![other]));
    assert_eq!((report.deletable().count(), report.gone.len()), (1, 0), "{report:?}");
}

#[test]
fn whatever_could_still_mean_a_volume_keeps_it() {
    let unknown = driver(&["h-1"], &[]);
    let keeps = |picture: Picture| {
        let report = judge(&unknown, &picture);
        assert_eq!(report.deletable().count(), 0, "{report:?}");
        report.orphans[0].keep.clone()
    };
    let waits = claim(json!({"spec": {"storageClassName": "made"}}));
    let made = class("made", json!({}));
    let key = waits.key().clone();
    let waiting =
        Picture { claims: Listing::Seen(vec![waits]), classes: Listing::Seen(vec![made]), ..cluster(Vec::new()) };
    assert_eq!(keeps(waiting), [Keep::ClaimWaits { claim: key }]);
    let open = |by: &str| Picture { intents: Listing::Seen(vec![begun(by)]), ..cluster(Vec::new()) };
    let intent = Keep::Begun { volume: "pvc-u".into(), claim: Some(Key::namespaced("n", "c")) };
    assert_eq!(keeps(open(DRIVER)), std::slice::from_ref(&intent));
    assert_eq!(keeps(open("d-example-com-shortened")), [intent], "a label's letters prove nothing");
    let attachment: Attachment = read(json!({"metadata": {"name": "a"}, "spec": {"attacher": DRIVER, "nodeName": "n",
        "source": {"inlineVolumeSpec": {"csi": {"driver": DRIVER, "volumeHandle": "h-1"}}}}}));
    let attached = Picture { attachments: Listing::Seen(vec![attachment]), ..cluster(Vec::new()) };
    assert_eq!(keeps(attached), [Keep::Attached { attachment: "a".into() }]);
    for blind in [
        Picture { volumes: Listing::NotAllowed, ..cluster(Vec::new()) },
        Picture { claims: Listing::NotAllowed, ..cluster(Vec::new()) },
        Picture { intents: Listing::NotAllowed, ..cluster(Vec::new()) },
        Picture { attachments: Listing::Failed("boom".to_owned()), ..cluster(Vec::new()) },
    ] {
        assert!(matches!(keeps(blind)[..], [Keep::Unsure { .. }]));
    }
}

#[test]
fn an_intent_of_another_driver_keeps_nothing() {
    let other: CsiDriver = read(json!({"metadata": {"name": "other.example.com"}}));
    let picture = Picture {
        drivers: Listing::Seen(vec![other]),
        intents: Listing::Seen(vec![begun("other.example.com")]),
        ..cluster(Vec::new())
    };
    assert_eq!(judge(&driver(&["h-1"], &[]), &picture).deletable().count(), 1);
}

#[test]
fn an_intent_whose_volume_is_stored_is_at_its_end_and_keeps_nothing() {
    let csi = json!({"spec": {"csi": {"driver": DRIVER, "volumeHandle": "h-1"}}});
    let bond = json!({"spec": {"claimRef": {"namespace": "n", "name": "c", "uid": "u"}}});
    let stored = volume("pvc-u", over(csi, bond));
    let picture = Picture { intents: Listing::Seen(vec![begun(DRIVER)]), ..cluster(vec![stored]) };
    let report = judge(&driver(&["h-1", "h-2"], &[]), &picture);
    let unknown: Vec<&str> = report.deletable().map(|orphan| &*orphan.held.handle).collect();
    assert_eq!(unknown, ["h-2"], "{report:?}");
}

#[test]
fn a_volume_that_nodes_have_is_kept() {
    let mut unknown = driver(&[], &[]);
    unknown.volumes = Listed::All(vec![Held { nodes: vec!["i-7".into()], ..held("h-1") }]);
    let report = judge(&unknown, &cluster(Vec::new()));
    assert_eq!(report.orphans[0].keep, [Keep::Published { nodes: vec!["i-7".into()] }]);
}

#[test]
fn what_comes_or_goes_while_we_look_is_neither_unknown_nor_gone() {
    let (before, after) = (driver(&["goes"], &[]), driver(&["comes"], &[]));
    let picture = cluster(vec![named("a", "goes"), named("b", "comes")]);
    let report = compare(Twice { before: &before, after: &after }, &picture, &Listing::Seen(Vec::new()));
    assert!(report.agrees(), "{report:?}");
    let report = compare(Twice { before: &before, after: &after }, &cluster(Vec::new()), &Listing::NotServed);
    assert!(report.agrees(), "one is not there any more, the other not yet stored: {report:?}");
}

#[test]
fn an_object_whose_volume_is_gone_is_told_unless_it_is_going_itself() {
    let going = over(
        json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["x/f"]}}),
        json!({"spec": {"csi": {"driver": DRIVER, "volumeHandle": "h-3"}}}),
    );
    let picture = cluster(vec![named("a", "h-1"), named("b", "h-2"), volume("c", going)]);
    let report = judge(&driver(&["h-1"], &[]), &picture);
    let gone: Vec<&str> = report.gone.iter().map(|gone| &*gone.object).collect();
    assert_eq!(gone, ["b"]);
}

#[test]
fn a_volume_of_another_machine_is_not_called_gone() {
    let on = |name: &str, handle: &str, machine: &str| {
        let terms = json!([{"matchExpressions": [{"key": "machine", "operator": "In", "values": [machine]}]}]);
        volume(
            name,
            json!({"spec": {"csi": {"driver": DRIVER, "volumeHandle": handle},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}),
        )
    };
    let node = |name: &str| read(json!({"metadata": {"name": name, "labels": {"machine": name}}}));
    let picture = Picture {
        nodes: Listing::Seen(vec![node("alpha"), node("beta")]),
        ..cluster(vec![
            on("here", "h-1", "alpha"),
            on("lost", "h-2", "alpha"),
            on("there", "h-3", "beta"),
            on("far", "h-4", "gamma"),
        ])
    };
    let content: SnapshotContent = read(json!({"metadata": {"name": "copy"}, "spec": {"driver": DRIVER,
        "volumeSnapshotRef": {"namespace": "n", "name": "s"}}, "status": {"snapshotHandle": "s-1"}}));
    let place = Some(BTreeMap::from([("machine".to_owned(), "alpha".to_owned())]));
    let has = Driver { place, ..driver(&["h-1"], &[]) };
    let report = compare(Twice { before: &has, after: &has }, &picture, &Listing::Seen(vec![content]));
    assert_eq!(report.gone.iter().map(|gone| &*gone.object).collect::<Vec<_>>(), ["lost"]);
    golden("orphans/golden/elsewhere.txt", &report.text(Look::PLAIN));
    let unplaced = judge(&driver(&["h-1"], &[]), &picture);
    assert_eq!((unplaced.gone.len(), unplaced.elsewhere.len()), (3, 0), "a driver of the whole cluster can tell");
}

#[test]
fn a_driver_that_cannot_list_says_nothing_about_anything() {
    let mute = Driver {
        name: DRIVER.into(),
        volumes: Listed::CannotList,
        snapshots: Listed::Failed("ListSnapshots: Unavailable: busy".to_owned()),
        place: None,
    };
    let report = judge(&mute, &cluster(vec![named("a", "h-1")]));
    assert!(report.agrees() && report.volumes.is_none(), "{report:?}");
    golden("orphans/golden/mute.txt", &report.text(Look::PLAIN));
}

#[test]
fn only_what_two_looks_found_is_deleted() {
    let (first, second) = (driver(&["old"], &[]), driver(&["old", "new"], &[]));
    let (first, second) = (judge(&first, &cluster(Vec::new())), judge(&second, &cluster(Vec::new())));
    let handles: Vec<&str> = second.deletable_since(&first).map(|orphan| &*orphan.held.handle).collect();
    assert_eq!(handles, ["old"]);
}

#[test]
fn snapshots_are_known_by_their_contents() {
    let content = |name: &str, spec: Value, status: Value| -> SnapshotContent {
        let spec = over(json!({"driver": DRIVER, "volumeSnapshotRef": {"namespace": "n", "name": name}}), spec);
        read(json!({"metadata": {"name": name}, "spec": spec, "status": status}))
    };
    let known = vec![
        content("made", json!({}), json!({"snapshotHandle": "s-1"})),
        content("given", json!({"source": {"snapshotHandle": "s-2"}}), json!({})),
        content("gone", json!({}), json!({"snapshotHandle": "s-9"})),
    ];
    let mut has = driver(&[], &["s-1", "s-2", "s-3"]);
    if let Listed::All(snapshots) = &mut has.snapshots {
        snapshots.push(Held { group: Some("g-1".into()), ..held("s-4") });
    }
    let look = |contents: Vec<SnapshotContent>| {
        compare(Twice { before: &has, after: &has }, &cluster(Vec::new()), &Listing::Seen(contents))
    };
    let report = look(known.clone());
    let unknown: Vec<&str> = report.deletable().map(|orphan| &*orphan.held.handle).collect();
    assert_eq!((unknown, report.orphans.len()), (vec!["s-3"], 2), "{report:?}");
    assert_eq!(report.gone[0].sentence(), "the driver has no snapshot \"s-9\"; VolumeSnapshot n/gone has it");
    let waits = content("waits", json!({"source": {"volumeHandle": "h"}}), json!({}));
    let report = look(known.into_iter().chain([waits]).collect());
    assert_eq!(report.deletable().count(), 0, "{report:?}");
}

#[test]
fn a_comparison_reads_well() {
    let mut has = driver(&["h-1", "h-2"], &["s-1"]);
    if let Listed::All(volumes) = &mut has.volumes {
        volumes.push(Held { nodes: vec!["i-7".into()], ..held("h-3") });
    }
    let bond = json!({"spec": {"claimRef": {"namespace": "n", "name": "c", "uid": "u"}}});
    let csi = json!({"spec": {"csi": {"driver": DRIVER, "volumeHandle": "h-9"}}});
    let picture = cluster(vec![named("a", "h-1"), volume("b", over(csi, bond))]);
    let report = judge(&has, &picture);
    golden("orphans/golden/mixed.txt", &report.text(Look::PLAIN));
    golden("orphans/golden/mixed.json", &format!("{:#}\n", report.value()));
    let report = judge(&driver(&["h-1"], &[]), &cluster(vec![named("a", "h-1")]));
    let said =
        "Driver d.example.com has 1 volume and 0 snapshots; the cluster knows them all, and they are all there.\n";
    assert_eq!(report.text(Look::PLAIN), said);
}
