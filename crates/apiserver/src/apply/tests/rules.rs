//! The rules of API-4.6, one by one, mostly on a ConfigMap as the conformance checks API-C070 to API-C079 go.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{NOW, built_in, managed_fields, reset};
use crate::apply::{ApplyError, Force, Manager, Writer, clear, keep_times_if_unchanged};

const LATER: &str = "2031-01-01T00:00:00Z";

fn by<'a>(manager: &'a str) -> Writer<'a> {
    Writer { manager, now: NOW }
}

fn config(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s1"}, "data": data})
}

fn with_manager<T>(kind: &str, subresource: &str, test: impl FnOnce(&Manager<'_>) -> T) -> T {
    let reset = reset(subresource);
    let api_version = if kind == "CSINode" { "storage.k8s.io/v1" } else { "v1" };
    test(&built_in(kind, api_version, subresource, &reset))
}

fn applied(live: Option<&Value>, manager: &str, data: Value, force: Force) -> Result<Value, ApplyError> {
    with_manager("ConfigMap", "", |fields| fields.apply(live, &config(data), &by(manager), force))
}

fn updated(live: Option<&Value>, manager: &str, mut new: Value) -> Value {
    with_manager("ConfigMap", "", |fields| fields.update(live, &mut new, &by(manager)));
    new
}

/// The object as if it had been stored.
fn stored(mut object: Value) -> Value {
    object["metadata"]["uid"] = "u1".into();
    object
}

fn owner<'o>(object: &'o Value, manager: &str) -> &'o Value {
    let entries = managed_fields(object).as_array().map_or(&[][..], Vec::as_slice);
    entries.iter().find(|entry| entry["manager"] == manager).map_or(&Value::Null, |entry| &entry["fieldsV1"])
}

fn message(outcome: Result<Value, ApplyError>) -> String {
    outcome.expect_err("the apply is refused").to_string()
}

/// Rule: API-C070
#[test]
fn apply_creates_and_owns_what_it_sets() {
    let object = applied(None, "m1", json!({"a": "1", "b": "1"}), Force::Refuse).expect("nobody to conflict with");
    let entry = json!({
        "manager": "m1", "operation": "Apply", "apiVersion": "v1", "time": NOW,
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}},
    });
    assert_eq!(*managed_fields(&object), json!([entry]), "API-C070");
}

/// Rule: API-C071
#[test]
fn another_value_of_an_owned_field_is_a_conflict_and_the_same_value_is_shared() {
    let live = stored(applied(None, "m1", json!({"a": "1"}), Force::Refuse).expect("a create"));
    let refusal = applied(Some(&live), "m2", json!({"a": "2"}), Force::Refuse).expect_err("m1 owns it");
    assert_eq!(refusal.to_string(), r#"Apply failed with 1 conflict: conflict with "m1": .data.a"#, "API-C071");
    let ApplyError::Conflict(conflicts) = refusal else { panic!("a conflict") };
    assert_eq!(
        (conflicts.0[0].message().as_str(), conflicts.0[0].field().as_str()),
        (r#"conflict with "m1""#, ".data.a")
    );
    let shared = applied(Some(&live), "m2", json!({"a": "1"}), Force::Refuse).expect("the same value");
    assert_eq!(
        (owner(&shared, "m1"), owner(&shared, "m2")),
        (&json!({"f:data": {"f:a": {}}}), &json!({"f:data": {"f:a": {}}}))
    );
}

/// Rule: API-C072
#[test]
fn force_takes_the_field_away() {
    let live = stored(applied(None, "m1", json!({"a": "1", "b": "1"}), Force::Refuse).expect("a create"));
    let object = applied(Some(&live), "m2", json!({"a": "2"}), Force::TakeOver).expect("forced");
    assert_eq!(object["data"], json!({"a": "2", "b": "1"}), "API-C072");
    assert_eq!(*owner(&object, "m1"), json!({"f:data": {"f:b": {}}}), "API-C072");
}

/// Rule: API-C073
#[test]
fn a_field_that_is_no_longer_applied_goes_unless_somebody_else_owns_it() {
    let live = stored(applied(None, "m1", json!({"a": "1", "b": "1"}), Force::Refuse).expect("a create"));
    let live = applied(Some(&live), "m2", json!({"a": "1"}), Force::Refuse).expect("shared");
    let object = applied(Some(&live), "m1", json!({"c": "1"}), Force::Refuse).expect("m1's own fields");
    assert_eq!(object["data"], json!({"a": "1", "c": "1"}), "API-C073");
}

/// Rules: API-C074, API-C075
#[test]
fn an_update_owns_what_it_changed_and_conflicts_name_its_version() {
    let live = stored(applied(None, "m2", json!({"a": "2", "b": "1"}), Force::Refuse).expect("a create"));
    let mut new = live.clone();
    new["data"]["a"] = "9".into();
    let live = updated(Some(&live), "upd", new);
    assert_eq!(*owner(&live, "upd"), json!({"f:data": {"f:a": {}}}), "API-C074");
    assert_eq!(*owner(&live, "m2"), json!({"f:data": {"f:b": {}}}), "API-C074");
    let text = message(applied(Some(&live), "m2", json!({"a": "2", "b": "1"}), Force::Refuse));
    assert_eq!(text, r#"Apply failed with 1 conflict: conflict with "upd" using v1: .data.a"#, "API-C075");
}

/// Rule: API-4.6
#[test]
fn several_conflicts_are_listed_by_owner() {
    let live = stored(applied(None, "m1", json!({"a": "1", "c": "1"}), Force::Refuse).expect("a create"));
    let mut new = live.clone();
    new["data"]["a"] = "9".into();
    let live = updated(Some(&live), "upd", new);
    let text = message(applied(Some(&live), "m3", json!({"a": "3", "c": "3"}), Force::Refuse));
    let expected =
        "Apply failed with 2 conflicts: conflicts with \"m1\":\n- .data.c\nconflicts with \"upd\" using v1:\n- .data.a";
    assert_eq!(text, expected, "API-4.6");
}

/// Rules: API-C076, API-4.6
#[test]
fn managed_fields_and_wrong_types_are_refused_in_a_configuration() {
    with_manager("ConfigMap", "", |fields| {
        let mut with_owners = config(json!({}));
        with_owners["metadata"]["managedFields"] = json!([]);
        let text = message(fields.apply(None, &with_owners, &by("m"), Force::Refuse));
        assert_eq!(text, "metadata.managedFields must be nil", "API-C076");
        let secret = json!({"apiVersion": "v1", "kind": "Secret"});
        assert_eq!(
            message(fields.apply(None, &secret, &by("m"), Force::Refuse)),
            "invalid object type: /v1, Kind=Secret",
            "API-4.6"
        );
    });
}

/// Rules: API-C080, API-4.4
#[test]
fn an_undeclared_field_is_named() {
    let claim =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c1"}, "spec": {"foo": 1}});
    let text = with_manager("PersistentVolumeClaim", "", |fields| {
        message(fields.apply(None, &claim, &by("m"), Force::Refuse))
    });
    let expected = "failed to create typed patch object (/c1; /v1, Kind=PersistentVolumeClaim): .spec.foo: field not declared in schema";
    assert_eq!(text, expected, "API-C080 and API-4.4");
}

/// Rules: API-C078, API-4.6, API-C079
#[test]
fn an_empty_list_of_owners_forgets_them_until_the_next_apply() {
    let live = stored(applied(None, "m1", json!({"a": "9"}), Force::Refuse).expect("a create"));
    for nothing in [json!([]), json!([{}])] {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = nothing;
        let cleared = updated(Some(&live), "upd", new);
        assert_eq!(*managed_fields(&cleared), Value::Null, "API-C078");
        let mut new = cleared.clone();
        new["data"]["b"] = "1".into();
        assert_eq!(*managed_fields(&updated(Some(&cleared), "upd", new)), Value::Null, "API-4.6");
        let text = message(applied(Some(&cleared), "m1", json!({"a": "1"}), Force::Refuse));
        assert_eq!(
            text, r#"Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a"#,
            "API-C079"
        );
    }
}

/// Rule: API-4.6
#[test]
fn owners_that_cannot_be_read_are_ignored_and_the_old_ones_kept() {
    let live = stored(applied(None, "m1", json!({"a": "1"}), Force::Refuse).expect("a create"));
    let mut new = live.clone();
    new["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Frob", "apiVersion": "v1"}]);
    assert_eq!(managed_fields(&updated(Some(&live), "upd", new)), managed_fields(&live), "API-4.6");
}

/// Rules: API-4.6, API-0.12
#[test]
fn a_create_is_tracked_and_a_write_that_changes_nothing_is_not() {
    let created = updated(None, "creator", config(json!({"a": "1"})));
    assert_eq!(*owner(&created, "creator"), json!({"f:data": {".": {}, "f:a": {}}}), "API-4.6");
    let live = stored(created);
    assert_eq!(managed_fields(&updated(Some(&live), "other", live.clone())), managed_fields(&live), "API-0.12");
    assert_eq!(
        *owner(&updated(None, "", config(json!({"a": "1"}))), "unknown"),
        json!({"f:data": {".": {}, "f:a": {}}})
    );
}

/// Rule: API-4.6
#[test]
fn a_change_of_times_alone_is_no_change() {
    let live = stored(applied(None, "m1", json!({"a": "1"}), Force::Refuse).expect("a create"));
    let mut new = live.clone();
    new["metadata"]["managedFields"][0]["time"] = LATER.into();
    let mut unchanged = new.clone();
    keep_times_if_unchanged(&live, &mut unchanged);
    assert_eq!(unchanged, live, "API-4.6");
    new["data"]["a"] = "2".into();
    let mut changed = new.clone();
    keep_times_if_unchanged(&live, &mut changed);
    assert_eq!(changed, new, "a change keeps its time");
}

/// Rule: API-4.6
#[test]
fn status_is_not_owned_through_the_object_nor_spec_through_status() {
    let claim = |phase: &str, volume: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "uid": "u"},
            "spec": {"volumeName": volume, "resources": {}}, "status": {"phase": phase}})
    };
    let mut created = claim("Pending", "v");
    with_manager("PersistentVolumeClaim", "", |fields| fields.update(None, &mut created, &by("m")));
    assert_eq!(*owner(&created, "m"), json!({"f:spec": {"f:volumeName": {}}}), "API-4.6");
    let mut status = claim("Bound", "w");
    with_manager("PersistentVolumeClaim", "status", |fields| fields.update(Some(&created), &mut status, &by("s")));
    assert_eq!(*owner(&status, "s"), json!({"f:status": {"f:phase": {}}}), "API-4.6");
    let last = managed_fields(&status).as_array().and_then(|entries| entries.last()).expect("two entries");
    assert_eq!(last["subresource"], "status", "API-4.6");
}

/// Rule: API-4.6
#[test]
fn entries_are_sorted_by_operation_time_and_manager() {
    let entry = |manager: &str, operation: &str, time: &str, field: &str| {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {field: {}}}})
    };
    let mut live = stored(config(json!({"a": "1", "b": "1", "c": "1", "d": "1"})));
    live["metadata"]["managedFields"] = json!([
        entry("b", "Update", "2020-01-01T00:00:00Z", "f:a"),
        entry("a", "Update", "2020-01-01T00:00:00Z", "f:b"),
        entry("z", "Apply", "2021-01-01T00:00:00Z", "f:c"),
    ]);
    let mut new = live.clone();
    new["data"]["d"] = "2".into();
    let sorted = updated(Some(&live), "0", new);
    let names: Vec<&Value> =
        managed_fields(&sorted).as_array().expect("entries").iter().map(|e| &e["manager"]).collect();
    assert_eq!(names, ["z", "a", "b", "0"], "API-4.6");
}

/// Rule: API-4.6
#[test]
fn the_oldest_updates_are_thrown_together_beyond_ten() {
    let mut live = stored(updated(None, "w00", config(json!({"k00": "v"}))));
    for number in 1..12 {
        let mut new = live.clone();
        new["data"][format!("k{number:02}")] = "v".into();
        live = updated(Some(&live), &format!("w{number:02}"), new);
    }
    let entries = managed_fields(&live).as_array().expect("entries");
    assert_eq!(entries.len(), 10, "API-4.6");
    let ancient = json!({"f:data": {".": {}, "f:k00": {}, "f:k01": {}, "f:k02": {}}});
    assert_eq!(*owner(&live, "ancient-changes"), ancient, "API-4.6");
}

/// Rule: API-4.6
#[test]
fn kubectl_takes_over_what_client_side_apply_left_and_the_annotation_follows() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let mut first = config(json!({"a": "1", "b": "1"}));
    first["metadata"]["annotations"] = json!({annotation: config(json!({"a": "1"})).to_string()});
    let live = stored(updated(None, "kubectl-client-side-apply", first));
    let object = applied(Some(&live), "kubectl", json!({"a": "2"}), Force::Refuse).expect("its own field");
    assert_eq!(object["data"]["a"], "2", "API-4.6");
    let text = object["metadata"]["annotations"][annotation].as_str().expect("the annotation stays");
    assert_eq!(text, format!("{}\n", config(json!({"a": "2"}))), "API-4.6");
    let refused = message(applied(Some(&live), "kubectl", json!({"b": "2"}), Force::Refuse));
    assert!(refused.contains(r#"conflict with "kubectl-client-side-apply" using v1: .data.b"#), "{refused}");
    let other = applied(Some(&live), "other", json!({"a": "2"}), Force::Refuse);
    assert!(matches!(other, Err(ApplyError::Conflict(_))), "only kubectl is special");
}

const NAMES: &[&str] =
    &["metadata", "spec", "drivers", "name", "finalizers", "labels", "managedFields", "fieldsV1", "a"];

fn any_json() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        Just(json!(1.5)),
        proptest::sample::select(NAMES).prop_map(Value::from),
    ];
    scalar.prop_recursive(5, 40, 4, |inner| {
        let field = (proptest::sample::select(NAMES).prop_map(str::to_owned), inner.clone());
        prop_oneof![
            proptest::collection::vec(inner, 0..4).prop_map(Value::from),
            proptest::collection::vec(field, 0..4).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_input_makes_it_panic_and_a_forced_apply_can_be_repeated(live in any_json(), new in any_json()) {
        with_manager("CSINode", "", |fields| {
            let mut config = new.clone();
            fields.update(Some(&live), &mut config, &by("m"));
            clear(&mut config);
            if let Value::Object(config) = &mut config {
                config.insert("apiVersion".to_owned(), "storage.k8s.io/v1".into());
                config.insert("kind".to_owned(), "CSINode".into());
            }
            if let Ok(once) = fields.apply(Some(&live), &config, &by("m"), Force::TakeOver) {
                let twice = fields.apply(Some(&once), &config, &by("m"), Force::Refuse);
                prop_assert_eq!(twice.as_ref(), Ok(&once));
            }
            Ok(())
        })?;
    }
}
