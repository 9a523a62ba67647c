//! Pruning: fields that a structural schema does not name are dropped, unless it says to preserve them.

use serde_json::{Map, Value};

use crate::schema::decode::Problem;
use crate::schema::trail::Trail;

/// Fields that every object has, whatever its schema says.
const ALWAYS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Further problems are not told, as they are not for the built-in kinds.
const MOST_PROBLEMS: usize = 100;

/// Prunes an object and says what was dropped.
pub(super) fn prune(schema: &Value, object: &mut Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Value::Object(fields) = object {
        prune_fields(schema, fields, &Trail::Root, &mut problems);
    }
    problems
}

pub(super) fn preserves(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

fn prune_fields(schema: &Value, fields: &mut Map<String, Value>, path: &Trail<'_>, problems: &mut Vec<Problem>) {
    let root = matches!(path, Trail::Root);
    let embedded = root || schema["x-kubernetes-embedded-resource"] == true;
    let properties = schema.get("properties").and_then(Value::as_object);
    let additional =
        schema.get("additionalProperties").filter(|schema| schema.is_object() || **schema == Value::Bool(true));
    let mut unknown = Vec::new();
    for (name, value) in &mut *fields {
        let inner = Trail::Field(path, name);
        match properties.and_then(|properties| properties.get(name)) {
            _ if embedded && ALWAYS.contains(&name.as_str()) => {}
            Some(schema) => prune_value(schema, value, &inner, problems),
            None => match additional {
                Some(schema) => prune_value(schema, value, &inner, problems),
                None if preserves(schema) => {}
                None => unknown.push(name.clone()),
            },
        }
    }
    for name in unknown {
        fields.remove(&name);
        if problems.len() < MOST_PROBLEMS {
            problems.push(Problem::Unknown(Trail::Field(path, &name).to_string()));
        }
    }
}

fn prune_value(schema: &Value, value: &mut Value, path: &Trail<'_>, problems: &mut Vec<Problem>) {
    match value {
        Value::Object(fields) => {
            // A map without any declared shape keeps what it has only if the schema says so.
            prune_fields(schema, fields, path, problems);
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                prune_value(&schema["items"], item, &Trail::Item(path, index), problems);
            }
        }
        _ => {}
    }
}
