//! Strategic merge patches, case by case, and as random cases whose outcome the reference library gave
//! (`vectors.jsonl`: kind, original, patch, and result or error).

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema::tables;

fn table(kind: &str) -> &'static Struct {
    match kind {
        "PersistentVolumeClaim" => &tables::persistent::PERSISTENT_VOLUME_CLAIM,
        "PersistentVolume" => &tables::persistent::PERSISTENT_VOLUME,
        "Pod" => &tables::pod::POD,
        "Node" => &tables::node::NODE,
        "ServiceAccount" => &tables::core::SERVICE_ACCOUNT,
        "CSINode" => &tables::storage::CSI_NODE,
        other => panic!("no table for {other}"),
    }
}

fn patched(kind: &str, original: Value, patch: Value) -> Result<Value, StrategicError> {
    apply(&original, patch.as_object().expect("a patch of these tests is a map"), table(kind))
}

fn claim(finalizers: Value, patch: Value) -> Result<Value, StrategicError> {
    let patched =
        patched("PersistentVolumeClaim", json!({"metadata": {"finalizers": finalizers}}), json!({"metadata": patch}))?;
    Ok(patched["metadata"]["finalizers"].clone())
}

#[test]
fn random_patches_have_the_outcome_of_the_reference() {
    for (number, line) in include_str!("vectors.jsonl").lines().enumerate() {
        let case: Value = serde_json::from_str(line).expect("vectors are JSON");
        let kind = case["kind"].as_str().expect("a case has a kind");
        let outcome = patched(kind, case["original"].clone(), case["patch"].clone());
        match case.get("error").and_then(Value::as_str) {
            None => assert_eq!(outcome.as_ref(), Ok(&case["result"]), "case {}", number + 1),
            Some(error) => {
                assert_eq!(outcome.map_err(|error| error.to_string()), Err(error.to_owned()), "case {}", number + 1);
            }
        }
    }
}

/// Rules: API-4.5, API-C062
#[test]
fn a_new_finalizer_comes_before_the_existing_ones() {
    assert_eq!(claim(json!(["a/b"]), json!({"finalizers": ["c/d"]})), Ok(json!(["c/d", "a/b"])), "API-4.5, API-C062");
    assert_eq!(claim(json!(["a/b"]), json!({"finalizers": ["a/b"]})), Ok(json!(["a/b"])));
}

/// Rule: API-C063
#[test]
fn a_finalizer_is_taken_out_of_the_list() {
    let patch = json!({"$deleteFromPrimitiveList/finalizers": ["x.io/y"]});
    assert_eq!(claim(json!(["a/b", "x.io/y"]), patch), Ok(json!(["a/b"])), "API-C063");
}

/// Rule: API-4.5
#[test]
fn set_element_order_decides_the_order() {
    let patch = json!({"$setElementOrder/finalizers": ["c", "a"], "finalizers": ["c"]});
    assert_eq!(claim(json!(["a", "b"]), patch), Ok(json!(["c", "a", "b"])), "API-4.5");
}

/// Rule: API-4.5
#[test]
fn a_new_driver_comes_before_the_existing_one() {
    let original = json!({"spec": {"drivers": [{"name": "old", "nodeID": "n"}]}});
    let patch = json!({"spec": {"drivers": [{"name": "new", "nodeID": "n"}]}});
    let patched = patched("CSINode", original, patch).expect("the patch applies");
    let names: Vec<&Value> =
        patched["spec"]["drivers"].as_array().expect("drivers").iter().map(|d| &d["name"]).collect();
    assert_eq!(names, ["new", "old"], "API-4.5");
}

/// Rule: API-C066
#[test]
fn a_condition_is_merged_by_its_type() {
    let original = json!({"status": {"conditions": [{"type": "Resizing", "status": "False", "reason": "x"}]}});
    let patch = json!({"status": {"conditions": [{"type": "Resizing", "status": "True"}]}});
    let patched = patched("PersistentVolumeClaim", original, patch).expect("the patch applies");
    assert_eq!(
        patched["status"]["conditions"],
        json!([{"type": "Resizing", "status": "True", "reason": "x"}]),
        "API-C066"
    );
}

#[test]
fn an_item_is_deleted_by_its_key_and_a_list_replaced_by_a_directive() {
    let original = json!({"spec": {"drivers": [{"name": "a"}, {"name": "b"}]}});
    let delete = json!({"spec": {"drivers": [{"$patch": "delete", "name": "a"}]}});
    assert_eq!(patched("CSINode", original.clone(), delete), Ok(json!({"spec": {"drivers": [{"name": "b"}]}})));
    let replace = json!({"spec": {"drivers": [{"$patch": "replace"}, {"name": "c"}]}});
    assert_eq!(patched("CSINode", original, replace), Ok(json!({"spec": {"drivers": [{"name": "c"}]}})));
}

#[test]
fn a_new_item_goes_where_a_deleted_one_left_room() {
    let names = |list: &[&str]| list.iter().map(|name| json!({"name": name})).collect::<Vec<Value>>();
    let original = json!({"spec": {"drivers": names(&["a", "b", "unknown-to-the-client"])}});
    let order = names(&["b", "new"]);
    let with_deletion = json!({"spec": {"$setElementOrder/drivers": order,
        "drivers": [{"name": "new"}, {"$patch": "delete", "name": "a"}]}});
    let want = json!({"spec": {"drivers": names(&["b", "unknown-to-the-client", "new"])}});
    assert_eq!(patched("CSINode", original, with_deletion), Ok(want));
}

/// Rule: API-4.5
#[test]
fn retain_keys_drops_the_other_members_of_a_union() {
    let original = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
    let volume = json!({"name": "v", "hostPath": {"path": "/"}, "$retainKeys": ["name", "hostPath"]});
    let patch = json!({"spec": {"volumes": [volume]}});
    let want = json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}});
    assert_eq!(patched("Pod", original.clone(), patch), Ok(want), "API-4.5");
    let outside = json!({"spec": {"volumes": [{"name": "v", "hostPath": {}, "$retainKeys": ["name"]}]}});
    assert_eq!(patched("Pod", original, outside), Err(StrategicError::BadDirective("retainKeys")));
}

/// Rule: API-4.5
#[test]
fn lists_without_a_strategy_are_replaced_and_null_deletes() {
    let original = json!({"spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "x"}});
    let patch = json!({"spec": {"accessModes": ["ReadOnlyMany"], "volumeName": null}});
    let want = json!({"spec": {"accessModes": ["ReadOnlyMany"]}});
    assert_eq!(patched("PersistentVolumeClaim", original, patch), Ok(want), "API-4.5");
}

/// Rule: API-4.5
#[test]
fn directives_of_a_wrong_type_are_errors() {
    let original = json!({"metadata": {"finalizers": ["a"]}});
    let unknown = patched("PersistentVolumeClaim", original.clone(), json!({"metadata": {"$patch": 1}}));
    let text = "unknown patch type: %!s(int64=1) in map: map[$patch:1]".to_owned();
    assert_eq!(unknown, Err(StrategicError::Internal(text)), "API-4.5: 500");
    let order = claim(json!(["a"]), json!({"$setElementOrder/finalizers": "a"}));
    assert!(matches!(order, Err(StrategicError::Internal(_))), "API-4.5: 500");
    let prefix = claim(json!(["a"]), json!({"$deleteFromPrimitiveListX/finalizers": ["a"]}));
    assert_eq!(prefix, Err(StrategicError::BadDirective("primitive list")));
    let lists = claim(json!([["a"]]), json!({"finalizers": ["b"]}));
    assert_eq!(lists, Err(StrategicError::ListOfLists));
}

const NAMES: &[&str] = &[
    "metadata",
    "finalizers",
    "ownerReferences",
    "uid",
    "spec",
    "accessModes",
    "$patch",
    "$retainKeys",
    "$setElementOrder/finalizers",
    "$setElementOrder/ownerReferences",
    "$deleteFromPrimitiveList/finalizers",
    "delete",
    "replace",
];

fn any_json() -> impl Strategy<Value = Value> {
    let text = || proptest::sample::select(NAMES);
    let scalar = prop_oneof![Just(Value::Null), any::<i8>().prop_map(Value::from), text().prop_map(Value::from)];
    scalar.prop_recursive(5, 40, 4, move |inner| {
        let field = (text().prop_map(str::to_owned), inner.clone());
        prop_oneof![
            proptest::collection::vec(inner, 0..4).prop_map(Value::from),
            proptest::collection::vec(field, 0..4).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_patch_makes_it_panic_and_an_empty_one_changes_nothing(original in any_json(), patch in any_json()) {
        let claim = table("PersistentVolumeClaim");
        if let (Value::Object(_), Value::Object(patch)) = (&original, &patch) {
            prop_assert_eq!(apply(&original, &Fields::new(), claim), Ok(original.clone()));
            drop(apply(&original, patch, claim));
        }
    }
}
