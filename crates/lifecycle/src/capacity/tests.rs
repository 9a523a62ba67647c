//! PROVISION-2.12.

use std::collections::BTreeMap;

use api::{CsiNode, Pairs};
use serde_json::json;

use super::*;

const DRIVER: &str = "disk.example.com";

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[derive(Debug)]
struct Cluster(Vec<(CsiNode, Pairs)>);

impl Nodes for Cluster {
    fn visit(&self, visit: &mut dyn FnMut(&CsiNode, &Pairs)) {
        self.0.iter().for_each(|(csi_node, labels)| visit(csi_node, labels));
    }
}

fn node(driver: &str, keys: Value, labels: &[(&str, &str)]) -> (CsiNode, Pairs) {
    let drivers = json!([{"name": driver, "nodeID": "x", "topologyKeys": keys}]);
    (read(json!({"metadata": {"name": "n"}, "spec": {"drivers": drivers}})), labels.iter().copied().collect())
}

fn place(zone: &str) -> Term {
    Term(BTreeMap::from([("zone".to_owned(), zone.to_owned())]))
}

fn object(name: &str, created: &str, more: Value) -> Capacity {
    let mut all = json!({
        "metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "3", "creationTimestamp": created},
        "storageClassName": "fast", "nodeTopology": {"matchLabels": {"zone": "a"}}, "capacity": "1Gi",
    });
    for (key, value) in more.as_object().unwrap() {
        all[key] = value.clone();
    }
    read(all)
}

const EARLY: &str = "2027-01-01T00:00:00Z";
const LATE: &str = "2027-01-02T00:00:00Z";

/// Rules: PROVISION-2.12, SIDECAR-13.27
#[test]
fn nodes_that_share_a_place_are_one_place() {
    let cluster = Cluster(vec![
        node(DRIVER, json!(["zone"]), &[("zone", "a")]),
        node(DRIVER, json!(["zone"]), &[("zone", "a"), ("rack", "1")]),
        node(DRIVER, json!(["zone"]), &[("zone", "b")]),
        node(DRIVER, json!(["zone"]), &[]),
        node("other", json!(["zone"]), &[("zone", "c")]),
    ]);
    assert_eq!(places(DRIVER, &cluster), BTreeSet::from([place("a"), place("b")]));
}

/// Rule: PROVISION-2.12
#[test]
fn a_driver_without_keys_is_everywhere() {
    let cluster = Cluster(vec![node(DRIVER, json!([]), &[("zone", "a")]), node(DRIVER, Value::Null, &[])]);
    assert_eq!(places(DRIVER, &cluster), BTreeSet::from([Term::default()]));
}

/// Rule: PROVISION-2.12
#[test]
fn immediate_classes_are_told_only_if_asked_and_an_unsaid_mode_counts_as_delayed() {
    let class = |mode: Value| -> Class {
        read(json!({"metadata": {"name": "fast"}, "provisioner": DRIVER, "volumeBindingMode": mode}))
    };
    let rows =
        [(json!("Immediate"), false, true), (json!("WaitForFirstConsumer"), true, true), (Value::Null, true, true)];
    for (mode, skipped, told) in rows {
        let class = class(mode.clone());
        let is = |immediate| is_told(&class, DRIVER, immediate);
        assert_eq!((is(Immediate::Skipped), is(Immediate::Told)), (skipped, told), "{mode}");
    }
    assert!(!is_told(&class(Value::Null), "other", Immediate::Told));
}

/// Rule: PROVISION-2.12
#[test]
fn an_object_stands_for_its_class_and_place() {
    let item = item_of(&object("o", EARLY, json!({}))).unwrap();
    assert_eq!(item, Item { class: "fast".to_owned(), place: place("a") });
    let strange = json!({"nodeTopology": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}});
    assert_eq!(item_of(&object("o", EARLY, strange)), None);
    assert_eq!(item_of(&object("o", EARLY, json!({"nodeTopology": null}))), None);
}

/// Rule: PROVISION-2.12
#[test]
fn duplicates_go_and_the_oldest_stays() {
    let (first, second) = (object("b", EARLY, json!({})), object("a", LATE, json!({})));
    assert_eq!(step(true, &[&second, &first]), Step::Remove(vec!["a"]));
    assert_eq!(step(true, &[&first]), Step::Ask { held: Some("b") });
    assert_eq!(step(true, &[]), Step::Ask { held: None });
    assert_eq!(step(false, &[&second, &first]), Step::Remove(vec!["b", "a"]), "nobody wants it: both go");
    assert_eq!(step(false, &[]), Step::Remove(Vec::new()));
}

/// Rule: PROVISION-2.12
#[test]
fn an_object_is_written_only_if_room_limit_or_owner_differ() {
    let owner: Owner =
        read(json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "u", "controller": true}));
    let (nobody, somebody) = (OwnedBy(None), OwnedBy(Some(owner)));
    let plain = object("o", EARLY, json!({}));
    let room = Room { bytes: 1 << 30, largest: None };
    assert_eq!(change(&plain, room, &nobody), None);
    let less = change(&plain, Room { bytes: 0, ..room }, &nobody).unwrap();
    assert_eq!((&less["capacity"], &less["metadata"]["resourceVersion"]), (&json!("0"), &json!("3")));
    let limited = change(&plain, Room { largest: Some(5), ..room }, &nobody).unwrap();
    assert_eq!(limited["maximumVolumeSize"], "5");
    let owned = change(&plain, room, &somebody).unwrap();
    assert_eq!(owned["metadata"]["ownerReferences"][0]["uid"], "u");
    let limit = object("o", EARLY, json!({"maximumVolumeSize": "5"}));
    assert_eq!(change(&limit, room, &nobody).unwrap()["maximumVolumeSize"], Value::Null, "a limit that is gone");
}
