use std::collections::BTreeMap;

use api::Volume;
use api::keys::{annotation, finalizer, parameter};
use serde_json::{Value, json};

use super::super::answer::{Answer, Wrong, judge, persistent_volume};
use super::super::outline::{Findings, ReadOnly};
use super::super::plan::Plan;
use super::super::source::Content;
use super::super::topology::Term;
use super::*;

fn plan(spec: Value, parameters: Value, options: &Options) -> Plan {
    let (claim, class) = (claim(spec), class(parameters));
    outlined(&claim, &class, &all_abilities(), options).unwrap().plan(Findings::default())
}

fn simple() -> Plan {
    plan(json!({}), json!({}), &Options::default())
}

fn made(bytes: i64) -> Answer {
    Answer { id: "vol-1".to_owned(), bytes, ..Answer::default() }
}

fn place(zone: &str) -> Term {
    Term(BTreeMap::from([("zone".to_owned(), zone.to_owned())]))
}

/// Rules: PROVISION-2.10, SIDECAR-14.5.5
#[test]
fn a_volume_that_is_too_small_is_wrong_and_one_of_unsaid_size_is_not() {
    let plan = simple();
    assert_eq!(judge(&plan, &made(1 << 30)), Ok(()));
    assert_eq!(judge(&plan, &made(1 << 31)), Ok(()));
    assert_eq!(judge(&plan, &made(0)), Ok(()));
    let small = (1 << 30) - 1;
    assert_eq!(judge(&plan, &made(small)), Err(Wrong::TooSmall { asked: 1 << 30, got: small }), "SIDECAR-14.5.5");
    assert_eq!(judge(&plan, &Answer::default()), Err(Wrong::NoId));
}

/// Rule: PROVISION-2.8
#[test]
fn content_that_was_asked_for_must_be_confirmed() {
    let content = Some(Content::Snapshot("s".to_owned()));
    let plan = Plan { content: content.clone(), ..simple() };
    assert_eq!(judge(&plan, &made(0)), Err(Wrong::Empty));
    assert_eq!(judge(&plan, &Answer { content, ..made(0) }), Ok(()));
}

/// Rule: PROVISION-2.10
#[test]
fn the_volume_says_everything_about_itself() {
    let context = BTreeMap::from([("pool".to_owned(), "p".to_owned())]);
    let answer = Answer { context, ..made(2 << 30) };
    let options = Options { default_fstype: "ext4".to_owned(), ..Options::default() };
    let plan = plan(json!({"volumeAttributesClassName": "gold"}), json!({}), &options);
    let volume = persistent_volume(&plan, &answer, "77-5-disk");
    assert_eq!(volume["metadata"]["name"], "pvc-u-1");
    assert_eq!(volume["metadata"]["finalizers"], json!([finalizer::EXTERNAL_PROVISIONER.text()]));
    let spec = &volume["spec"];
    let wanted = json!({
        "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
        "mountOptions": ["noatime"], "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "fast",
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "shop", "name": "data-web-0",
                     "uid": "u-1", "resourceVersion": "41"},
        "volumeAttributesClassName": "gold",
        "csi": {"driver": DRIVER, "volumeHandle": "vol-1", "fsType": "ext4",
                "volumeAttributes": {parameter::PROVISIONER_IDENTITY: "77-5-disk", "pool": "p"}},
    });
    assert_eq!(*spec, wanted);
    let read: Volume = read(volume);
    assert_eq!((read.provisioned_by(), read.capacity_bytes()), (Some(DRIVER), 2 << 30));
}

/// Rule: PROVISION-2.10
#[test]
fn an_unsaid_size_is_the_one_that_was_asked_for() {
    assert_eq!(persistent_volume(&simple(), &made(0), "i")["spec"]["capacity"]["storage"], "1Gi");
}

/// Rule: PROVISION-2.10
#[test]
fn deletion_secrets_are_always_noted_and_others_where_they_belong() {
    let none = persistent_volume(&simple(), &made(0), "i");
    let notes = |volume: &Value| volume["metadata"]["annotations"].clone();
    assert_eq!(notes(&none)[annotation::DELETION_SECRET_NAME.text()], "");
    assert_eq!(notes(&none)[annotation::DELETION_SECRET_NAMESPACE.text()], "");
    assert_eq!(notes(&none)[annotation::MODIFY_SECRET_NAME.text()], Value::Null);
    let stem = parameter::DEFAULT_SECRET;
    let all = json!({format!("{stem}-name"): "s", format!("{stem}-namespace"): "n"});
    let volume = persistent_volume(&plan(json!({}), all, &Options::default()), &made(0), "i");
    assert_eq!(notes(&volume)[annotation::DELETION_SECRET_NAME.text()], "s");
    assert_eq!(notes(&volume)[annotation::MODIFY_SECRET_NAMESPACE.text()], "n");
    let fields = ["controllerPublish", "nodeStage", "nodePublish", "controllerExpand", "nodeExpand"];
    for field in fields {
        let reference = &volume["spec"]["csi"][format!("{field}SecretRef")];
        assert_eq!(*reference, json!({"namespace": "n", "name": "s"}), "{field}");
    }
}

/// Rule: PROVISION-2.10
#[test]
fn a_raw_volume_has_no_filesystem_and_a_readers_volume_is_read_only() {
    let options = Options { read_only: ReadOnly::ForReaders, ..Options::default() };
    let spec = json!({"volumeMode": "Block", "accessModes": ["ReadOnlyMany"]});
    let volume = persistent_volume(&plan(spec, json!({"fstype": "xfs"}), &options), &made(0), "i");
    assert_eq!(volume["spec"]["csi"]["fsType"], Value::Null);
    assert_eq!((&volume["spec"]["csi"]["readOnly"], &volume["spec"]["volumeMode"]), (&json!(true), &json!("Block")));
}

/// Rule: PROVISION-2.9
#[test]
fn places_become_node_affinity() {
    let answer = Answer { places: vec![place("a"), Term::default(), place("b")], ..made(0) };
    let volume = persistent_volume(&simple(), &answer, "i");
    let expression = |zone| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
    let terms = json!([expression("a"), expression("b")]);
    assert_eq!(volume["spec"]["nodeAffinity"], json!({"required": {"nodeSelectorTerms": terms}}));
    let unplaced = Plan { placed: false, ..simple() };
    assert_eq!(persistent_volume(&unplaced, &answer, "i")["spec"]["nodeAffinity"], Value::Null);
}

/// Rules: PROVISION-2.9, SIDECAR-13.7
#[test]
fn places_that_say_nothing_make_no_affinity() {
    for places in [vec![], vec![Term::default()]] {
        let volume = persistent_volume(&simple(), &Answer { places, ..made(0) }, "i");
        assert_eq!(volume["spec"]["nodeAffinity"], Value::Null);
    }
}
