use api::keys::{annotation, finalizer};
use api::{Claim, Grant, Key, Snapshot, SnapshotContent, Volume};
use serde_json::{Value, json};

use super::super::source::{self, BadSource, CloneSeen, Content, Crossing, ModeChange, Normal, SnapshotSeen, Wanted};
use super::*;
use crate::decision::Lookup;

const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

fn normal(spec: Value, crossing: Crossing, grants: &[Value]) -> Result<Normal, BadSource> {
    let grants: Vec<Grant> = grants.iter().cloned().map(read).collect();
    source::normalise(&claim(spec), crossing, &grants)
}

fn ours(wanted: Wanted) -> Result<Normal, BadSource> {
    Ok(Normal::Ours(wanted))
}

/// Rule: PROVISION-2.8
#[test]
fn the_data_source_wins_over_the_reference() {
    let spec = json!({
        "dataSource": {"kind": "PersistentVolumeClaim", "name": "a"},
        "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "b"},
    });
    assert_eq!(normal(spec, Crossing::Off, &[]), ours(Wanted::Clone(Key::namespaced("shop", "a"))));
    let spec = json!({"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "b"}});
    assert_eq!(normal(spec, Crossing::Off, &[]), ours(Wanted::Clone(Key::namespaced("shop", "b"))));
    assert_eq!(normal(json!({}), Crossing::Off, &[]), ours(Wanted::Nothing));
}

/// Rule: PROVISION-2.6
#[test]
fn a_source_without_a_name_or_of_the_wrong_group_is_wrong() {
    let nameless = json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": ""}});
    assert_eq!(normal(nameless, Crossing::Off, &[]), Err(BadSource::Nameless));
    let grouped = json!({"dataSource": {"apiGroup": "other", "kind": "VolumeSnapshot", "name": "s"}});
    assert_eq!(normal(grouped, Crossing::Off, &[]), Err(BadSource::Group { group: "other".to_owned() }));
}

fn crossing_spec() -> Value {
    json!({"dataSourceRef": {"apiGroup": SNAPSHOTS, "kind": "VolumeSnapshot", "name": "s", "namespace": "vault"}})
}

fn grant(from: &str, to: Value) -> Value {
    json!({"metadata": {"namespace": "vault", "name": "g"}, "spec": {
        "from": [{"group": "", "kind": "PersistentVolumeClaim", "namespace": from}], "to": [to]}})
}

/// Rule: PROVISION-2.8
#[test]
fn another_namespace_needs_the_gate_and_a_grant() {
    let off = normal(crossing_spec(), Crossing::Off, &[]);
    assert_eq!(off, Err(BadSource::CrossingOff { namespace: "vault".to_owned() }));
    let crosses = |crossing| source::crosses(&claim(crossing_spec()), crossing).map(str::to_owned);
    assert_eq!((crosses(Crossing::Off), crosses(Crossing::On)), (None, Some("vault".to_owned())));
    let wanted = || ours(Wanted::Snapshot(Key::namespaced("vault", "s")));
    let to = |name: Value| json!({"group": SNAPSHOTS, "kind": "VolumeSnapshot", "name": name});
    let rows = [
        (grant("shop", to(json!("s"))), true),
        (grant("shop", to(json!(""))), true),
        (grant("shop", json!({"group": SNAPSHOTS, "kind": "VolumeSnapshot"})), true),
        (grant("shop", to(json!("other"))), false),
        (grant("other", to(json!("s"))), false),
        (grant("shop", json!({"group": "", "kind": "VolumeSnapshot"})), false),
        (grant("shop", json!({"group": SNAPSHOTS, "kind": "PersistentVolumeClaim"})), false),
    ];
    for (grant, allowed) in rows {
        let answer = normal(crossing_spec(), Crossing::On, std::slice::from_ref(&grant));
        match allowed {
            true => assert_eq!(answer, wanted(), "{grant}"),
            false => assert!(matches!(answer, Err(BadSource::NotGranted { .. })), "{grant}: {answer:?}"),
        }
    }
}

/// A clone's source and its volume, each with changes.
fn clone_with(change: fn(&mut Value, &mut Value, &mut Value)) -> Result<Content, String> {
    let mut target = json!({});
    let mut source = json!({
        "metadata": {"namespace": "shop", "name": "src", "uid": "u-src"},
        "spec": {"storageClassName": "slow", "volumeName": "pv-src", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound"},
    });
    let mut volume = json!({
        "metadata": {"name": "pv-src", "uid": "u-pv"},
        "spec": {"csi": {"driver": DRIVER, "volumeHandle": "h-src"},
                 "claimRef": {"namespace": "shop", "name": "src", "uid": "u-src"}},
        "status": {"phase": "Bound"},
    });
    change(&mut target, &mut source, &mut volume);
    let (claim, source): (Claim, Claim) = (claim(target), read(source));
    let volume: Volume = read(volume);
    let seen = CloneSeen {
        claim: &claim,
        class: &class(json!({})),
        driver: DRIVER,
        source: Lookup::Found(&source),
        volume: Lookup::Found(&volume),
    };
    source::clone(&seen, &Key::namespaced("shop", "src")).map_err(|no| no.to_string())
}

/// Rule: PROVISION-2.8
#[test]
fn a_clone_takes_the_handle_of_its_source_and_classes_may_differ() {
    assert_eq!(clone_with(|_, _, _| {}), Ok(Content::Volume("h-src".to_owned())));
}

/// Rule: PROVISION-2.8
#[test]
fn a_clones_source_has_to_fulfil_every_condition() {
    type Change = fn(&mut Value, &mut Value, &mut Value);
    let rows: [(&str, Change); 11] = [
        ("Pending", |_, source, _| source["status"]["phase"] = json!("Pending")),
        ("being deleted", |_, source, _| source["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z")),
        ("storage class", |_, source, _| source["spec"]["storageClassName"] = json!("")),
        ("storage class", |target, _, _| target["storageClassName"] = json!("")),
        ("only 1073741824", |_, source, _| source["spec"]["resources"]["requests"]["storage"] = json!("2Gi")),
        ("not Bound to a volume", |_, source, _| source["spec"]["volumeName"] = json!("")),
        ("not one of a CSI driver", |_, _, volume| volume["spec"] = json!({"hostPath": {"path": "/x"}})),
        ("driver", |_, _, volume| volume["spec"]["csi"]["driver"] = json!("other")),
        ("does not belong", |_, _, volume| volume["spec"]["claimRef"]["uid"] = json!("another")),
        ("Released", |_, _, volume| volume["status"]["phase"] = json!("Released")),
        ("volume mode", |target, _, _| target["volumeMode"] = json!("Block")),
    ];
    for (words, change) in rows {
        let why = clone_with(change).unwrap_err();
        assert!(why.contains(words), "{words}: {why}");
    }
}

/// Rule: PROVISION-2.8
#[test]
fn a_clones_source_that_is_not_there_is_waited_for() {
    let (claim, class) = (claim(json!({})), class(json!({})));
    let seen =
        CloneSeen { claim: &claim, class: &class, driver: DRIVER, source: Lookup::Absent, volume: Lookup::Absent };
    let no = source::clone(&seen, &Key::namespaced("shop", "src")).unwrap_err();
    assert!(no.to_string().contains("does not exist"), "{no}");
}

/// A snapshot and its content, each with changes.
fn restore_with(modes: ModeChange, change: fn(&mut Value, &mut Value, &mut Value)) -> Result<Content, String> {
    let mut target = json!({});
    let mut snapshot = json!({
        "metadata": {"namespace": "shop", "name": "s", "uid": "u-s"},
        "status": {"boundVolumeSnapshotContentName": "content", "readyToUse": true, "restoreSize": "1Gi"},
    });
    let mut content = json!({
        "metadata": {"name": "content"},
        "spec": {"driver": DRIVER, "volumeSnapshotRef": {"namespace": "shop", "name": "s", "uid": "u-s"},
                 "sourceVolumeMode": "Filesystem"},
        "status": {"snapshotHandle": "h-s"},
    });
    change(&mut target, &mut snapshot, &mut content);
    let claim = claim(target);
    let (snapshot, content): (Snapshot, SnapshotContent) = (read(snapshot), read(content));
    let (snapshot, content) = (Lookup::Found(&snapshot), Lookup::Found(&content));
    let seen = SnapshotSeen { claim: &claim, driver: DRIVER, modes, snapshot, content };
    source::snapshot(&seen, &Key::namespaced("shop", "s")).map_err(|no| no.to_string())
}

/// Rule: PROVISION-2.8
#[test]
fn a_restore_takes_the_handle_of_its_content() {
    assert_eq!(restore_with(ModeChange::Guarded, |_, _, _| {}), Ok(Content::Snapshot("h-s".to_owned())));
}

/// Rule: PROVISION-2.8
#[test]
fn a_snapshot_has_to_fulfil_every_condition() {
    type Change = fn(&mut Value, &mut Value, &mut Value);
    let rows: [(&str, Change); 9] = [
        ("being deleted", |_, snapshot, _| {
            snapshot["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
        }),
        ("not bound", |_, snapshot, _| snapshot["status"]["boundVolumeSnapshotContentName"] = Value::Null),
        ("another snapshot", |_, _, content| content["spec"]["volumeSnapshotRef"]["uid"] = json!("x")),
        ("another snapshot", |_, _, content| content["spec"]["volumeSnapshotRef"]["name"] = json!("x")),
        ("driver", |_, _, content| content["spec"]["driver"] = json!("other")),
        ("not ready", |_, snapshot, _| snapshot["status"]["readyToUse"] = json!(false)),
        ("no handle", |_, _, content| content["status"]["snapshotHandle"] = Value::Null),
        ("only 1073741824", |_, snapshot, _| snapshot["status"]["restoreSize"] = json!("2Gi")),
        ("mode", |target, _, _| target["volumeMode"] = json!("Block")),
    ];
    for (words, change) in rows {
        let why = restore_with(ModeChange::Guarded, change).unwrap_err();
        assert!(why.contains(words), "{words}: {why}");
    }
}

/// Rules: PROVISION-2.8, SIDECAR-14.5.23
#[test]
fn a_restore_that_began_goes_on_while_its_snapshot_is_being_deleted() {
    let went_on = restore_with(ModeChange::Guarded, |_, snapshot, _| {
        snapshot["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
        snapshot["metadata"]["finalizers"] = json!([finalizer::SNAPSHOT_SOURCE_PROTECTION.text()]);
    });
    assert!(went_on.is_ok(), "SIDECAR-14.5.23: {went_on:?}");
}

/// Rule: PROVISION-2.8
#[test]
fn another_mode_is_allowed_by_the_contents_annotation_or_by_the_flag() {
    let free = restore_with(ModeChange::Free, |target, _, _| target["volumeMode"] = json!("Block"));
    assert!(free.is_ok());
    let annotated = restore_with(ModeChange::Guarded, |target, _, content| {
        target["volumeMode"] = json!("Block");
        content["metadata"]["annotations"] = json!({annotation::ALLOW_VOLUME_MODE_CHANGE.text(): "true"});
    });
    assert!(annotated.is_ok());
    let unsaid = restore_with(ModeChange::Guarded, |target, _, content| {
        target["volumeMode"] = json!("Block");
        content["spec"]["sourceVolumeMode"] = Value::Null;
    });
    assert!(unsaid.is_ok(), "what was not recorded is not guarded");
}
