//! Cases made by random writes of several managers to real kinds (`built_in.jsonl`) and to a custom resource with two
//! versions (`custom.jsonl`, `custom_schema.json`); the outcomes are the reference library's. A case has the live
//! object, the applied configuration or the new object, and the resulting object or error.

use serde_json::Value;

use super::{NOW, built_in, managed_fields, reset, table};
use crate::apply::{Force, Manager, Shape, Writer, clear};
use crate::schema::encode::complete;
use crate::schema::tables::meta::OBJECT_META;

fn text<'c>(case: &'c Value, name: &str) -> &'c str {
    case[name].as_str().unwrap_or("")
}

/// The object or the error's message, as the case's request produces it.
fn outcome(case: &Value, manager: &Manager<'_>) -> Result<Value, String> {
    let who = Writer { manager: text(case, "manager"), now: NOW };
    if text(case, "op") == "update" {
        let mut new = case["new"].clone();
        manager.update(case.get("live"), &mut new, &who);
        return Ok(new);
    }
    let force = if case["force"] == true { Force::TakeOver } else { Force::Refuse };
    manager.apply(case.get("live"), &case["config"], &who, force).map_err(|error| error.to_string())
}

fn cases(lines: &str) -> impl Iterator<Item = (usize, Value)> {
    lines.lines().enumerate().map(|(index, line)| (index + 1, serde_json::from_str(line).expect("vectors are JSON")))
}

/// The printed form, so that what only defaulting and printing change is no difference.
fn printed(kind: &str, mut object: Value) -> Value {
    clear(&mut object);
    complete(table(kind), &mut object);
    // Empty lists that are always shown print as null or as empty, depending on how they came to be.
    without_empties(&object)
}

fn without_empties(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().map(|(name, value)| (name.clone(), without_empties(value)));
            Value::Object(kept.filter(|(_, value)| !value.is_null() && *value != Value::Array(Vec::new())).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_empties).collect()),
        scalar => scalar.clone(),
    }
}

#[test]
fn writes_to_built_in_kinds_have_the_outcome_of_the_reference() {
    for (number, case) in cases(include_str!("built_in.jsonl")) {
        let kind = text(&case, "kind");
        let reset = reset(text(&case, "subresource"));
        let manager = built_in(kind, text(&case, "apiVersion"), text(&case, "subresource"), &reset);
        match (outcome(&case, &manager), case["error"]["message"].as_str()) {
            (Ok(object), None) => {
                let wanted = &case["result"];
                assert_eq!(managed_fields(&object), managed_fields(wanted), "owners of case {number}");
                assert_eq!(printed(kind, object), printed(kind, wanted.clone()), "object of case {number}");
            }
            (outcome, error) => assert_eq!(outcome.err().as_deref(), error, "error of case {number}"),
        }
    }
}

#[test]
fn writes_to_a_custom_resource_have_the_outcome_of_the_reference() {
    let schema: Value = serde_json::from_str(include_str!("custom_schema.json")).expect("the schema is JSON");
    let shape = |version: &str| Shape::custom_resource(&schema[version], &OBJECT_META);
    let versions = [("c.io/v1", shape("v1")), ("c.io/v2", shape("v2"))];
    for (number, case) in cases(include_str!("custom.jsonl")) {
        let reset = reset(text(&case, "subresource"));
        let api_version = text(&case, "apiVersion");
        let manager = Manager {
            api_version,
            kind: "Foo",
            shape: shape(api_version.trim_start_matches("c.io/")),
            other_versions: &versions,
            subresource: text(&case, "subresource"),
            reset: &reset,
        };
        match (outcome(&case, &manager), case["error"]["message"].as_str()) {
            (Ok(object), None) => assert_eq!(object, case["result"], "case {number}"),
            (outcome, error) => assert_eq!(outcome.err().as_deref(), error, "error of case {number}"),
        }
    }
}
