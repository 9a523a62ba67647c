use serde_json::{Value, json};

use super::*;

fn node(labels: Value, annotations: Value) -> Node {
    let meta = json!({"name": "n", "uid": "node-uid", "labels": labels, "annotations": annotations});
    serde_json::from_value(json!({"metadata": meta})).expect("a node")
}

fn csi_node(drivers: Value) -> CsiNode {
    owned_by("node-uid", drivers)
}

fn owned_by(uid: &str, drivers: Value) -> CsiNode {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid});
    let annotations = json!({annotation::MIGRATED_PLUGINS.text(): "p"});
    let meta = json!({"name": "n", "ownerReferences": [owner], "annotations": annotations});
    serde_json::from_value(json!({"metadata": meta, "spec": {"drivers": drivers}})).expect("a CSINode")
}

fn said(driver: &str, topology: &[(&str, &str)]) -> Said {
    let topology = topology.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Said { driver: driver.to_owned(), node_id: "id".to_owned(), topology, limit: None }
}

fn nobody() -> BTreeSet<String> {
    BTreeSet::new()
}

fn look(node: &Node, csi_node: &CsiNode, said: &[Said], kept: Kept<'_>) -> Verdict {
    let observed = Observed { node: Lookup::Found(node), csi_node: Lookup::Found(csi_node), said, kept, migrated: "p" };
    decide(&observed)
}

fn change(verdict: &Verdict) -> &NodeChange {
    match verdict.decision.actions.as_slice() {
        [Action::ChangeNode(change)] => change,
        other => panic!("{other:?}"),
    }
}

fn drivers(verdict: &Verdict) -> &[NodeDriver] {
    match verdict.decision.actions.as_slice() {
        [Action::ChangeCsiNode { drivers, .. }] => drivers,
        other => panic!("{other:?}"),
    }
}

/// The Node after a change.
fn after(node: &Node, change: &NodeChange) -> Node {
    let mut labels: BTreeMap<String, String> = pairs(node.meta.labels.iter());
    let mut annotations: BTreeMap<String, String> = pairs(node.meta.annotations.iter());
    for (key, value) in &change.labels {
        put(&mut labels, key, value);
    }
    for (key, value) in &change.annotations {
        put(&mut annotations, key, value);
    }
    self::node(json!(labels), json!(annotations))
}

fn pairs<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn put(map: &mut BTreeMap<String, String>, key: &str, value: &Option<String>) {
    match value {
        Some(value) => drop(map.insert(key.to_owned(), value.clone())),
        None => drop(map.remove(key)),
    }
}

/// Everything that is decided until nothing is left to do.
fn settle(mut node: Node, mut csi_node: CsiNode, said: &[Said], kept: Kept<'_>) -> (Node, CsiNode, Vec<Because>) {
    let mut reasons = Vec::new();
    for _ in 0..10 {
        let verdict = look(&node, &csi_node, said, kept);
        reasons.push(verdict.decision.because.clone());
        match verdict.decision.actions.into_iter().next() {
            None => return (node, csi_node, reasons),
            Some(Action::ChangeNode(change)) => node = after(&node, &change),
            Some(Action::ChangeCsiNode { drivers, .. }) => csi_node.drivers = drivers.into(),
            Some(other) => panic!("{other:?}"),
        }
    }
    panic!("it never ends: {reasons:?}");
}

/// Rule: NODE-4.2
#[test]
fn a_csinode_is_made_for_this_node_and_a_namesakes_is_deleted_first() {
    let node = node(json!({}), json!({}));
    let (said, nobody) = ([], nobody());
    let base = Observed {
        node: Lookup::Found(&node),
        csi_node: Lookup::Absent,
        said: &said,
        kept: Kept::Only(&nobody),
        migrated: "p,q",
    };
    let created = decide(&base);
    let action = Action::CreateCsiNode { owner: "node-uid".into(), migrated: "p,q".to_owned() };
    assert_eq!(created.decision, Decision::act(Because::NoCsiNode, action));
    let foreign = owned_by("another-uid", json!([]));
    let deleted = decide(&Observed { csi_node: Lookup::Found(&foreign), ..base });
    assert_eq!(deleted.decision, Decision::act(Because::Foreign, Action::DeleteCsiNode));
    let unread = decide(&Observed { csi_node: Lookup::NotCached, ..base });
    assert_eq!(unread.decision.actions, [Action::ReadCsiNode]);
    let unread = decide(&Observed { node: Lookup::NotCached, ..base });
    assert_eq!(unread.decision.actions, [Action::ReadNode]);
    let nowhere = decide(&Observed { node: Lookup::Absent, ..base });
    assert_eq!(nowhere.decision, Decision::rest(Because::NoNode));
}

/// Rule: NODE-4.3
#[test]
fn the_node_first_then_csinode() {
    let nobody = nobody();
    let one = Said { limit: Some(7), ..said("d", &[("zone", "a"), ("area", "b")]) };
    let kept = Kept::Only(&nobody);
    let (node, csi_node, reasons) = settle(node(json!({}), json!({})), csi_node(json!([])), &[one], kept);
    assert_eq!(reasons, [Because::NodeLacks, Because::CsiNodeDiffers, Because::Announced]);
    assert_eq!(node.meta.annotation(annotation::NODE_IDS), Some(r#"{"d":"id"}"#));
    assert_eq!((node.meta.label("zone"), node.meta.label("area")), (Some("a"), Some("b")));
    let entry = csi_node.driver("d").expect("it is listed");
    assert_eq!(entry.topology_keys().iter().map(|key| &**key).collect::<Vec<_>>(), ["area", "zone"]);
    assert_eq!(entry.allocatable, Some(Allocatable { count: Some(7) }));
}

/// Rule: NODE-32.5
#[test]
fn how_many_volumes_fit_is_said_as_the_api_can_say_it() {
    assert_eq!(Said::limit_of(0), None);
    assert_eq!(Said::limit_of(-3), None);
    assert_eq!(Said::limit_of(39), Some(39));
    assert_eq!(Said::limit_of(i64::from(i32::MAX) + 5), Some(i32::MAX));
}

/// Rules: NODE-32.5, NODE-4.3
#[test]
fn another_limit_touches_csinode_only() {
    let node = node(json!({}), json!({annotation::NODE_IDS.text(): r#"{"d":"id"}"#}));
    let listed = csi_node(json!([{"name": "d", "nodeID": "id", "topologyKeys": null, "allocatable": {"count": 3}}]));
    let (more, nobody) = (Said { limit: Some(4), ..said("d", &[]) }, nobody());
    let verdict = look(&node, &listed, &[more], Kept::Only(&nobody));
    assert_eq!(drivers(&verdict)[0].allocatable, Some(Allocatable { count: Some(4) }));
    let same = Said { limit: Some(3), ..said("d", &[]) };
    let verdict = look(&node, &listed, &[same], Kept::Only(&nobody));
    assert!(verdict.decision.is_rest(), "NODE-4.3: nothing is written when nothing changed: {verdict:?}");
}

/// Rules: NODE-4.3, NODE-32.4
#[test]
fn a_label_with_another_value_refuses_the_driver_and_nobody_else() {
    let nobody = nobody();
    let both = [said("wrong", &[("zone", "b"), ("rack", "1")]), said("right", &[("zone", "a")])];
    let verdict = look(&node(json!({"zone": "a"}), json!({})), &csi_node(json!([])), &both, Kept::Only(&nobody));
    let refusal = &verdict.refused["wrong"];
    let collision = Refusal::Collision { key: "zone".to_owned(), wanted: "b".to_owned(), found: "a".to_owned() };
    assert_eq!(*refusal, collision);
    assert!(!verdict.refused.contains_key("right"));
    assert!(change(&verdict).labels.is_empty(), "nothing of the refused driver is written");
}

/// Rule: NODE-4.3
#[test]
fn two_drivers_share_a_key_only_with_equal_values() {
    let nobody = nobody();
    let three = [said("one", &[("zone", "a")]), said("two", &[("zone", "a")]), said("three", &[("zone", "b")])];
    let verdict = look(&node(json!({}), json!({})), &csi_node(json!([])), &three, Kept::Only(&nobody));
    assert_eq!(verdict.refused.keys().collect::<Vec<_>>(), ["three"]);
    let text = verdict.refused["three"].to_string();
    assert!(text.contains("\"one\"") && text.contains("\"b\""), "{text}");
}

/// Rule: NODE-4.3
#[test]
fn what_the_api_would_refuse_is_refused_for_its_driver_alone() {
    let nobody = nobody();
    let rows = [
        (Said { node_id: String::new(), ..said("d", &[]) }, "node_id"),
        (Said { node_id: "x".repeat(257), ..said("d", &[]) }, "257"),
        (said("d", &[("zone", "not a value")]), "cannot be a label"),
        (said("d", &[("UPPER.example/zone", "a")]), "cannot be a label"),
        (said("d", &[("", "a")]), "cannot be a label"),
    ];
    for (bad, words) in rows {
        let both = [bad, said("good", &[])];
        let verdict = look(&node(json!({}), json!({})), &csi_node(json!([])), &both, Kept::Only(&nobody));
        assert!(verdict.refused["d"].to_string().contains(words), "{}", verdict.refused["d"]);
        assert_eq!(verdict.refused.len(), 1);
    }
}

/// Rules: NODE-4.3, NODE-32.3, NODE-31.15
#[test]
fn a_driver_that_left_goes_from_csinode_first_and_then_from_the_node() {
    let (one, nobody) = ([said("d", &[("zone", "a")])], nobody());
    let (with, listed, _) =
        settle(node(json!({"own": "x"}), json!({})), csi_node(json!([])), &one, Kept::Only(&nobody));
    let (left, empty, reasons) = settle(with, listed, &[], Kept::Only(&nobody));
    assert_eq!(reasons, [Because::CsiNodeDiffers, Because::NodeHasOld, Because::Announced]);
    assert!(empty.drivers.is_empty());
    assert_eq!(left.meta.annotations.iter().count(), 0, "{:?}", left.meta.annotations);
    assert_eq!(pairs(left.meta.labels.iter()), pairs([("own", "x")].into_iter()), "NODE-31.15");
}

/// Rule: NODE-31.14
#[test]
fn a_driver_that_left_a_moment_ago_stays_as_it_was() {
    let (one, nobody) = ([said("d", &[("zone", "a")])], nobody());
    let kept = BTreeSet::from(["d".to_owned()]);
    let (with, listed, _) = settle(node(json!({}), json!({})), csi_node(json!([])), &one, Kept::Only(&nobody));
    let verdict = look(&with, &listed, &[], Kept::Only(&kept));
    assert!(verdict.decision.is_rest(), "{verdict:?}");
    let verdict = look(&with, &listed, &[], Kept::Everybody);
    assert!(verdict.decision.is_rest(), "nothing goes when the agent has just started: {verdict:?}");
}

/// Rule: NODE-31.15
#[test]
fn labels_that_were_there_before_us_or_were_changed_since_stay() {
    let (one, nobody) = ([said("d", &[("zone", "a"), ("rack", "1")])], nobody());
    let (with, listed, _) =
        settle(node(json!({"zone": "a"}), json!({})), csi_node(json!([])), &one, Kept::Only(&nobody));
    let mut labels = pairs(with.meta.labels.iter());
    labels.insert("rack".to_owned(), "2".to_owned());
    let changed = node(json!(labels), json!(pairs(with.meta.annotations.iter())));
    let (left, ..) = settle(changed, listed, &[], Kept::Only(&nobody));
    assert_eq!(pairs(left.meta.labels.iter()), labels);
    assert_eq!(left.meta.annotation(annotation::TOPOLOGY_LABELS), None);
}

/// Rule: NODE-31.15
#[test]
fn a_driver_that_moved_changes_its_own_label_and_its_entry() {
    let nobody = nobody();
    let kept = Kept::Only(&nobody);
    let (before, after) = ([said("d", &[("zone", "a")])], [said("d", &[("zone", "b"), ("rack", "1")])]);
    let (with, listed, _) = settle(node(json!({}), json!({})), csi_node(json!([])), &before, kept);
    let (moved, listed, reasons) = settle(with, listed, &after, kept);
    let expected = [Because::NodeLacks, Because::EntryReplaced, Because::CsiNodeDiffers, Because::Announced];
    assert_eq!(reasons, expected, "fields of an entry cannot be changed by a write");
    assert_eq!(moved.meta.label("zone"), Some("b"));
    assert_eq!(listed.driver("d").map(|entry| entry.topology_keys().len()), Some(2));
}

/// Rule: NODE-31.15
#[test]
fn entries_nobody_stands_behind_go_and_annotations_nobody_can_read_are_written_anew() {
    let stale = json!([{"name": "gone", "nodeID": "x"}, {"name": "d", "nodeID": "id", "topologyKeys": []}]);
    let broken = node(json!({}), json!({annotation::NODE_IDS.text(): "{not json"}));
    let nobody = nobody();
    let (healed, listed, _) = settle(broken, csi_node(stale), &[said("d", &[])], Kept::Only(&nobody));
    assert_eq!(listed.drivers.iter().map(|entry| &*entry.name).collect::<Vec<_>>(), ["d"]);
    assert_eq!(healed.meta.annotation(annotation::NODE_IDS), Some(r#"{"d":"id"}"#));
}
