//! The definitions of snapshots: whole, understood, and with the rules that users meet.

use serde_json::{Value, json};

use super::definitions;
use crate::crd::prepared::Schema;
use crate::crd::{self, validate};
use crate::kinds::read;

fn schema<'a>(definitions: &'a [Value], kind: &str, version: &str) -> &'a Value {
    let of_kind = definitions.iter().find(|definition| definition["spec"]["names"]["kind"] == kind);
    let versions = read::list(of_kind.expect("the kind is defined"), "/spec/versions");
    let of_name = versions.iter().find(|known| known["name"] == version).expect("the version is defined");
    &of_name["schema"]["openAPIV3Schema"]
}

fn complaints(kind: &str, version: &str, new: Value, old: Option<Value>) -> Vec<String> {
    let definitions = definitions();
    let errors = validate::validate(&Schema::new(schema(&definitions, kind, version).clone()), &new, old.as_ref());
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn every_definition_passes_the_rules_of_its_kind() {
    for mut definition in definitions() {
        let name = read::name(&definition).to_owned();
        crd::RULES.default(&mut definition);
        let errors: Vec<String> = crd::RULES.validate_create(&definition).iter().map(ToString::to_string).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
}

#[test]
fn every_field_says_what_it_is() {
    fn look(schema: &Value, path: &str) {
        for (name, schema) in read::entries(schema, "/properties") {
            let path = format!("{path}.{name}");
            let known = path.ends_with(".metadata") || !read::text(schema, "/description").is_empty();
            assert!(known, "{path} has no description");
            look(schema, &path);
        }
    }
    for definition in definitions() {
        for version in read::list(&definition, "/spec/versions") {
            look(&version["schema"]["openAPIV3Schema"], read::name(&definition));
        }
    }
}

#[test]
fn a_snapshot_has_exactly_one_source_and_keeps_it() {
    let from = |source: Value| json!({"spec": {"source": source}});
    let claim = || from(json!({"persistentVolumeClaimName": "c"}));
    assert!(complaints("VolumeSnapshot", "v1", claim(), None).is_empty());
    let exactly = "spec.source: Invalid value: \"object\": exactly one of volumeSnapshotContentName and \
                   persistentVolumeClaimName must be set";
    let both = from(json!({"persistentVolumeClaimName": "c", "volumeSnapshotContentName": "v"}));
    assert_eq!(complaints("VolumeSnapshot", "v1", both, None), [exactly]);
    let moved = from(json!({"persistentVolumeClaimName": "d"}));
    let frozen = "spec.source.persistentVolumeClaimName: Invalid value: \"d\": persistentVolumeClaimName is immutable";
    assert_eq!(complaints("VolumeSnapshot", "v1", moved, Some(claim())), [frozen]);
    let swapped = from(json!({"volumeSnapshotContentName": "v"}));
    let kept = "spec.source: Invalid value: \"object\": persistentVolumeClaimName is required once set";
    assert_eq!(complaints("VolumeSnapshot", "v1", swapped, Some(claim())), [kept]);
}

#[test]
fn a_class_name_may_be_absent_but_not_empty() {
    let snapshot = json!({"spec": {"source": {"persistentVolumeClaimName": "c"}, "volumeSnapshotClassName": ""}});
    let empty = "spec.volumeSnapshotClassName: Invalid value: \"\": volumeSnapshotClassName must not be the empty \
                 string when set";
    assert_eq!(complaints("VolumeSnapshot", "v1", snapshot, None), [empty]);
}

#[test]
fn a_restore_size_is_a_quantity_on_the_snapshot_and_bytes_on_the_content() {
    let snapshot =
        |size: Value| json!({"spec": {"source": {"persistentVolumeClaimName": "c"}}, "status": {"restoreSize": size}});
    assert!(complaints("VolumeSnapshot", "v1", snapshot(json!("1Gi")), None).is_empty());
    assert_eq!(complaints("VolumeSnapshot", "v1", snapshot(json!("a lot")), None).len(), 1);
    let reference = json!({"name": "s", "namespace": "n"});
    let mut content = json!({
        "spec": {"deletionPolicy": "Delete", "driver": "d", "source": {"volumeHandle": "h"},
                 "volumeSnapshotRef": reference},
        "status": {"restoreSize": 1},
    });
    assert!(complaints("VolumeSnapshotContent", "v1", content.clone(), None).is_empty());
    content["status"]["restoreSize"] = (-1).into();
    assert_eq!(complaints("VolumeSnapshotContent", "v1", content, None).len(), 1);
}

#[test]
fn a_group_is_bound_once_in_every_version_but_the_first() {
    let content = |uid: Value| {
        let mut reference = json!({"name": "g", "namespace": "n"});
        if !uid.is_null() {
            reference["uid"] = uid;
        }
        json!({"spec": {"deletionPolicy": "Retain", "driver": "d", "source": {"volumeHandles": ["h"]},
                        "volumeGroupSnapshotRef": reference}})
    };
    let kind = "VolumeGroupSnapshotContent";
    assert!(complaints(kind, "v1", content(json!("u")), Some(content(Value::Null))).is_empty());
    let frozen = "spec.volumeGroupSnapshotRef: Invalid value: \"object\": volumeGroupSnapshotRef.uid is immutable \
                  once set";
    assert_eq!(complaints(kind, "v1beta2", content(json!("v")), Some(content(json!("u")))), [frozen]);
    assert!(complaints(kind, "v1beta1", content(json!("v")), Some(content(json!("u")))).is_empty());
}
