//! The v2 document: complete, without what version 2 does not know, and in agreement with itself.

use serde_json::{Value, json};

use super::super::builtin;
use super::{Swagger, document, wire};

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_to_a_definition() {
    let document = document(builtin());
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 100);
    for name in found {
        let name = name.strip_prefix("#/definitions/").expect("references are those of version 2");
        assert!(document["definitions"].get(name).is_some(), "{name}");
    }
}

#[test]
fn a_kind_can_be_patched_with_field_validation() {
    let document = document(builtin());
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "PersistentVolumeClaim");
    let names: Vec<&Value> = patch["parameters"].as_array().into_iter().flatten().map(|p| &p["name"]).collect();
    assert!(names.contains(&&json!("fieldValidation")) && names.contains(&&json!("body")), "{names:?}");
    assert!(patch["consumes"].as_array().is_some_and(|types| types.len() == 4));
}

#[test]
fn a_shared_type_has_the_kinds_of_all_groups() {
    let document = document(builtin());
    let options = &document["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"];
    let kinds = options["x-kubernetes-group-version-kind"].as_array().map(Vec::len);
    assert!(kinds > Some(3), "{kinds:?}");
}

#[test]
fn a_message_is_numbers_lengths_and_bytes() {
    let document = json!({"swagger": "2.0", "info": {"title": "K", "version": "v"}, "paths": {}, "definitions": {}});
    let expected = [&[10, 3][..], b"2.0", &[18, 6, 10, 1], b"K", &[18, 1], b"v", &[66, 0, 74, 0]].concat();
    assert_eq!(wire::encode(&document), expected);
    let swagger = Swagger::of(builtin());
    assert!(swagger.protobuf.len() > 100_000 && swagger.json.len() > swagger.protobuf.len());
}
