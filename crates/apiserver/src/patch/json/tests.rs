//! JSON patch, case by case; outcomes were compared with the reference server's library on random patches.

use serde_json::{Value, json};

use super::*;

fn patched(document: Value, patch: Value) -> Result<Value, JsonPatchError> {
    JsonPatch::decode(&patch)?.apply(document)
}

fn why(document: Value, patch: Value) -> Inapplicable {
    match patched(document, patch) {
        Err(JsonPatchError::NotApplicable(why)) => why,
        other => panic!("expected an inapplicable patch, got {other:?}"),
    }
}

/// Rule: API-4.5
#[test]
fn every_operation_does_what_the_rfc_says() {
    let document = json!({"a": {"b": [1, 2]}, "c": "x"});
    let patch = json!([
        {"op": "test", "path": "/c", "value": "x"},
        {"op": "add", "path": "/a/b/1", "value": 9},
        {"op": "add", "path": "/a/b/-", "value": 3},
        {"op": "remove", "path": "/a/b/0"},
        {"op": "replace", "path": "/c", "value": "y"},
        {"op": "copy", "from": "/c", "path": "/d"},
        {"op": "move", "from": "/a/b", "path": "/e"},
    ]);
    assert_eq!(patched(document, patch), Ok(json!({"a": {}, "c": "y", "d": "y", "e": [9, 2, 3]})), "API-4.5");
}

/// Rule: API-C060
#[test]
fn a_failed_test_is_not_applicable() {
    let patch = json!([{"op": "test", "path": "/metadata/name", "value": "q"}]);
    let document = json!({"metadata": {"name": "c1"}});
    assert_eq!(why(document, patch), Inapplicable::TestFailed("/metadata/name".to_owned()), "API-C060");
}

/// Rules: API-C061, API-0.13
#[test]
fn remove_of_a_missing_key_is_not_applicable_but_replace_adds_it() {
    let document = json!({"labels": {"a": "1"}});
    let remove = json!([{"op": "remove", "path": "/labels/none"}]);
    assert!(matches!(why(document.clone(), remove), Inapplicable::MissingPath { operation: "remove", .. }), "API-C061");
    let replace = json!([{"op": "replace", "path": "/labels/none", "value": "2"}]);
    assert_eq!(patched(document, replace), Ok(json!({"labels": {"a": "1", "none": "2"}})), "API-0.13");
}

/// Rule: API-0.13
#[test]
fn append_to_a_missing_list_is_not_applicable() {
    let patch = json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "x/y"}]);
    assert!(
        matches!(why(json!({"metadata": {}}), patch), Inapplicable::MissingPath { operation: "add", .. }),
        "API-0.13"
    );
}

#[test]
fn negative_indexes_count_from_the_end() {
    let patch = json!([{"op": "remove", "path": "/l/-1"}, {"op": "add", "path": "/l/-1", "value": 9}]);
    assert_eq!(patched(json!({"l": [1, 2, 3]}), patch), Ok(json!({"l": [1, 2, 9]})));
    let far = json!([{"op": "remove", "path": "/l/-9"}]);
    assert_eq!(why(json!({"l": [1]}), far), Inapplicable::BadIndex("-9".to_owned()));
}

#[test]
fn a_missing_key_tests_equal_to_null_and_escapes_are_understood() {
    let patch = json!([{"op": "test", "path": "/none"}, {"op": "add", "path": "/a~1b~0c", "value": 1}]);
    assert_eq!(patched(json!({}), patch), Ok(json!({"a/b~c": 1})));
}

/// Rule: API-4.5
#[test]
fn what_is_not_a_list_of_maps_is_undecodable() {
    for patch in [json!({}), json!("x"), json!([1]), json!([["op"]])] {
        assert!(matches!(patched(json!({}), patch), Err(JsonPatchError::Undecodable(_))), "API-4.5: 400");
    }
}

#[test]
fn operations_without_sense_are_not_applicable() {
    let unknown = json!([{"op": "frob", "path": "/a"}]);
    assert_eq!(why(json!({}), unknown), Inapplicable::UnknownOperation("frob".to_owned()));
    let pathless = json!([{"op": "add", "value": 1}]);
    assert_eq!(why(json!({}), pathless), Inapplicable::MissingField { operation: "add", field: "path" });
    let root = json!([{"op": "replace", "path": "", "value": 1}]);
    assert_eq!(why(json!({}), root), Inapplicable::BadRoot);
}

#[test]
fn ten_thousand_operations_are_the_limit() {
    let test = json!({"op": "test", "path": "/a"});
    let allowed = Value::Array(vec![test.clone(); MAX_OPERATIONS]);
    assert_eq!(patched(json!({}), allowed), Ok(json!({})));
    let too_many = Value::Array(vec![test; MAX_OPERATIONS + 1]);
    let refusal = patched(json!({}), too_many).expect_err("one operation too many");
    assert_eq!(refusal.to_string(), "The allowed maximum operations in a JSON patch is 10000, got 10001");
}

#[test]
fn copies_cannot_blow_the_document_up() {
    let mut patch = vec![json!({"op": "add", "path": "/l", "value": ["0123456789"]})];
    for _ in 0..40 {
        patch.push(json!({"op": "copy", "from": "/l", "path": "/m"}));
        patch.push(json!({"op": "move", "from": "/m", "path": "/l/-"}));
    }
    assert_eq!(why(json!({}), Value::Array(patch)), Inapplicable::CopiesTooLarge);
}

#[test]
fn a_patch_cannot_nest_the_document_too_deeply_to_be_read_back() {
    let mut path = String::new();
    let mut patch = Vec::new();
    for _ in 0..MAX_DEPTH + 1 {
        path.push_str("/a");
        patch.push(json!({"op": "add", "path": path, "value": {}}));
    }
    assert_eq!(why(json!({}), Value::Array(patch)), Inapplicable::TooDeep);
}

/// Found by the fuzzer: ten thousand insertions at the head of a long list took minutes.
#[test]
fn a_patch_cannot_shift_a_long_list_again_and_again() {
    let mut patch = vec![json!({"op": "add", "path": "/l/0", "value": 0}); 200];
    assert!(patched(json!({"l": vec![0; 1_000]}), Value::Array(patch.clone())).is_ok());
    patch.extend(vec![json!({"op": "remove", "path": "/l/0"}); 200]);
    assert_eq!(why(json!({"l": vec![0; 300_000]}), Value::Array(patch)), Inapplicable::ShiftsTooMany);
}

#[test]
fn a_patch_leaves_a_field_alone_when_no_path_leads_to_it_or_above_it() {
    let leaves =
        |patch: Value| JsonPatch::decode(&patch).expect("a list of operations").leaves_alone("metadata", "owners");
    for apart in
        ["/spec", "/spec/owners", "/metadata/labels", "/metadata/labels/a~1b", "/metadata/ownersOf", "/a/metadata"]
    {
        assert!(leaves(json!([{"op": "add", "path": apart, "value": 1}])), "{apart}");
    }
    for reaching in ["", "/", "/metadata", "/metadata/", "/metadata/owners", "/metadata/owners/0", "/~", "metadata"] {
        assert!(!leaves(json!([{"op": "test", "path": reaching}])), "{reaching}");
        assert!(!leaves(json!([{"op": "copy", "path": "/spec", "from": reaching}])), "{reaching}");
    }
    assert!(leaves(json!([])) && !leaves(json!([{"op": "add", "path": 1}])));
}
