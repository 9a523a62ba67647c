//! Field sets: their form in managedFields, their algebra, and how they are read off values.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{reset, table};
use crate::apply::{FieldSet, FieldsError, Json, Shape, Step, compare, fields_of, merge, path_text, remove};
use crate::schema::types::Type;

fn set(fields: Value) -> FieldSet {
    FieldSet::decode(&fields).expect("the fields can be read")
}

fn fields(kind: &str, value: Value) -> Value {
    fields_of(&value, shape(kind)).encode()
}

fn shape(kind: &str) -> Shape<'static> {
    Shape::Table(Type::Struct(table(kind)))
}

/// Rule: API-4.6
#[test]
fn every_kind_of_step_survives_a_round_trip() {
    let fields = json!({
        "f:spec": {".": {}, "f:l": {"k:{\"name\":\"a\",\"port\":1}": {".": {}, "f:x": {}}, "v:\"s\"": {}, "v:1": {}, "i:3": {}}},
    });
    assert_eq!(set(fields.clone()).encode(), fields, "API-4.6");
}

#[test]
fn steps_print_as_conflicts_name_them() {
    let key = Step::Key(vec![("name".into(), Json("a\"b".into())), ("port".into(), Json(80.into()))]);
    let path = [Step::field("spec"), key, Step::Value(Json("x".into())), Step::Index(2)];
    assert_eq!(path_text(&path), ".spec[name=\"a\\\"b\",port=80][=\"x\"][2]");
}

#[test]
fn characters_that_old_entries_escape_are_escaped() {
    let step = Step::Value(Json("a<b>&c".into()));
    assert_eq!(step.encode(), r#"v:"a\u003cb\u003e\u0026c""#);
    assert_eq!(Step::decode(&step.encode()), Ok(step));
}

#[test]
fn steps_of_an_unknown_type_are_left_out_and_broken_ones_refused() {
    assert_eq!(set(json!({"x:new": {"f:a": {}}, "f:b": {}})).encode(), json!({"f:b": {}}));
    for broken in [json!({"f": {}}), json!({"fa": {}}), json!({"k:[]": {}}), json!({"i:x": {}}), json!({"v:{": {}})] {
        assert!(matches!(FieldSet::decode(&broken), Err(FieldsError::Step(_))), "{broken}");
    }
    assert!(matches!(FieldSet::decode(&json!({"f:a": 1})), Err(FieldsError::NotAMap(_))));
}

#[test]
fn a_parent_and_its_fields_are_apart_in_the_algebra() {
    let both = set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
    let parent = FieldSet::of(&[&["a"]]);
    assert_eq!(both.difference(&parent).encode(), json!({"f:a": {"f:b": {}}, "f:c": {}}));
    assert_eq!(both.without_below(&parent).encode(), json!({"f:c": {}}));
    assert_eq!(both.intersection(&parent).encode(), json!({"f:a": {}}));
    assert_eq!(both.below(&Step::field("a")).map(FieldSet::encode), Some(json!({"f:b": {}})));
}

/// Rules: API-4.5, API-4.6
#[test]
fn leaves_atomic_values_and_map_keys_are_fields() {
    let claim = json!({
        "metadata": {"labels": {"a": "1"}, "finalizers": ["x/y"]},
        "spec": {"accessModes": ["ReadWriteOnce"], "selector": {"matchLabels": {"a": "b"}}, "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"conditions": [{"type": "Resizing", "status": "True"}]},
    });
    let expected = json!({
        "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"x/y\"": {}}},
        "f:spec": {"f:accessModes": {}, "f:selector": {}, "f:resources": {"f:requests": {"f:storage": {}}}},
        "f:status": {"f:conditions": {"k:{\"type\":\"Resizing\"}": {".": {}, "f:type": {}, "f:status": {}}}},
    });
    assert_eq!(fields("PersistentVolumeClaim", claim), expected, "API-4.5 and API-4.6");
}

/// Rule: API-4.5
#[test]
fn a_port_without_protocol_has_the_default_one_in_its_key() {
    let pod = json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}});
    let ports = &fields("Pod", pod)["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"]["f:ports"];
    assert_eq!(
        *ports,
        json!({"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}),
        "API-4.5"
    );
}

#[test]
fn a_comparison_tells_added_modified_and_removed_fields() {
    let old = json!({"data": {"a": "1", "b": "1"}});
    let new = json!({"data": {"b": "2", "c": "1"}});
    let found = compare(&old, &new, shape("ConfigMap")).expect("both fit");
    assert_eq!(found.added, FieldSet::of(&[&["data", "c"]]));
    assert_eq!(found.modified, FieldSet::of(&[&["data", "b"]]));
    assert_eq!(found.removed, FieldSet::of(&[&["data", "a"]]));
}

#[test]
fn merged_lists_follow_the_configuration_and_keep_the_rest_in_place() {
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    let merged = merge(&finalizers(json!(["a", "b", "c"])), &finalizers(json!(["c", "x", "a"])), shape("ConfigMap"));
    assert_eq!(merged, Ok(finalizers(json!(["b", "c", "x", "a"]))));
}

#[test]
fn removal_leaves_emptied_containers() {
    let object = json!({"data": {"a": "1"}, "metadata": {"name": "n"}});
    let left = remove(&object, &FieldSet::of(&[&["data", "a"]]), shape("ConfigMap"));
    assert_eq!(left, json!({"data": {}, "metadata": {"name": "n"}}));
}

/// Rule: API-4.6
#[test]
fn reset_fields_go_with_everything_below() {
    let status = set(json!({"f:status": {"f:phase": {}}, "f:spec": {"f:volumeName": {}}}));
    assert_eq!(status.without_below(&reset("")).encode(), json!({"f:spec": {"f:volumeName": {}}}), "API-4.6");
}

fn any_set() -> impl Strategy<Value = FieldSet> {
    let step = prop_oneof![
        "[a-c]".prop_map(|name| Step::Field(name.into())),
        "[a-b]".prop_map(|name| Step::Key(vec![("k".to_owned(), Json(name.into()))])),
        (0_i64..2).prop_map(|number| Step::Value(Json(number.into()))),
        (0_i64..2).prop_map(Step::Index),
    ];
    proptest::collection::vec(proptest::collection::vec(step, 1..4), 0..8).prop_map(|paths| {
        let mut set = FieldSet::new();
        paths.iter().for_each(|path| set.insert(path));
        set
    })
}

proptest! {
    #[test]
    fn the_algebra_is_that_of_sets_of_paths(left in any_set(), right in any_set()) {
        for path in left.paths().into_iter().chain(right.paths()) {
            let (in_left, in_right) = (left.contains(&path), right.contains(&path));
            prop_assert_eq!(left.union(&right).contains(&path), in_left || in_right);
            prop_assert_eq!(left.intersection(&right).contains(&path), in_left && in_right);
            prop_assert_eq!(left.difference(&right).contains(&path), in_left && !in_right);
        }
        prop_assert!(left.difference(&left).is_empty());
        prop_assert_eq!(FieldSet::decode(&left.encode()), Ok(left));
    }
}
