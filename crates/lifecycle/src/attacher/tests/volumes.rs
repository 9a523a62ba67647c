//! ATTACHER-3.3 and ATTACHER-3.8.

use api::Volume;
use api::keys::annotation;
use serde_json::{Value, json};

use super::super::Attacher;
use super::super::volume::{Action, Because, decide, matters};
use super::{DRIVER, FINALIZER};

fn volume(metadata: Value, source: Value) -> Volume {
    let mut spec = source;
    spec["accessModes"] = json!(["ReadWriteOnce"]);
    let mut volume = json!({"metadata": metadata, "spec": spec});
    volume["metadata"]["name"] = json!("v");
    serde_json::from_value(volume).unwrap()
}

fn csi() -> Value {
    json!({"csi": {"driver": DRIVER, "volumeHandle": "h"}})
}

/// Rule: ATTACHER-3.8
#[test]
fn a_volume_on_its_way_out_is_let_go_once_nothing_attaches_it() {
    let attacher = Attacher::new(DRIVER, "");
    let going = volume(json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-02T03:04:05Z"}), csi());
    assert!(matters(&going, &attacher));
    assert_eq!(decide(&going, &attacher, None).actions, [Action::RemoveFinalizer]);
    let used = decide(&going, &attacher, Some("csi-1"));
    assert_eq!((used.is_rest(), used.because), (true, Because::Attached { attachment: "csi-1".to_owned() }));
}

/// Rules: ATTACHER-3.3, ATTACHER-3.8
#[test]
fn a_volume_that_lives_or_is_not_held_is_left_alone() {
    let attacher = Attacher::new(DRIVER, "");
    let lives = volume(json!({"finalizers": [FINALIZER]}), csi());
    assert!(!matters(&lives, &attacher) && decide(&lives, &attacher, None).is_rest());
    let theirs = json!({"finalizers": ["external-attacher/other"], "deletionTimestamp": "2026-01-02T03:04:05Z"});
    let theirs = volume(theirs, csi());
    assert!(!matters(&theirs, &attacher) && decide(&theirs, &attacher, None).is_rest());
}

/// Rules: ATTACHER-3.3, ATTACHER-3.8
#[test]
fn an_in_tree_volume_that_is_not_left_to_us_any_more_is_let_go() {
    let driver = "ebs.csi.aws.com";
    let attacher = Attacher::new(driver, "");
    let source = json!({"awsElasticBlockStore": {"volumeID": "vol-1"}});
    let held = json!({"finalizers": [attacher.finalizer]});
    let back = volume(held.clone(), source.clone());
    assert_eq!(decide(&back, &attacher, None).actions, [Action::RemoveFinalizer]);
    let mut migrated = held;
    migrated["annotations"] = json!({annotation::MIGRATED_TO.text(): driver});
    let ours = volume(migrated, source);
    assert!(!matters(&ours, &attacher) && decide(&ours, &attacher, None).is_rest());
}
