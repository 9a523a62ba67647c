//! The definitions of snapshots and group snapshots, which every server has from its first start on (API-6.9,
//! SNAPSHOT-5).
//!
//! Names, fields, rules and messages are those that the snapshot controllers and their users know; the descriptions are
//! ours. A group is served in three versions whose objects have the same shape, but for one list in the oldest one.

mod group;
mod single;

use serde_json::{Map, Value, json};

use crate::keys;

/// The six definitions, as they are to be stored.
pub(crate) fn definitions() -> Vec<Value> {
    vec![
        single::snapshots(),
        single::contents(),
        single::classes(),
        group::snapshots(),
        group::contents(),
        group::classes(),
    ]
}

/// What tells one definition from another.
struct Names<'a> {
    group: &'a str,
    kind: &'a str,
    plural: &'a str,
    short: &'a [&'a str],
    scope: &'a str,
    /// Where the use of a protected group was agreed.
    approved: &'a str,
}

fn definition(names: &Names<'_>, versions: Vec<Value>) -> Value {
    let Names { group, kind, plural, short, scope, approved } = names;
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "annotations": {keys::APPROVED: approved}},
        "spec": {
            "group": group,
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "shortNames": short,
                "singular": kind.to_lowercase(),
            },
            "scope": scope,
            "versions": versions,
        },
    })
}

/// Whether clients can ask for a version, and whether objects are kept in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Stored,
    Served,
    /// Served, with a warning.
    Deprecated,
    /// Known so that objects of long ago can be named, and nothing else.
    Retired,
}

/// Whether the status has an endpoint of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Apart,
    None,
}

struct VersionOf<'a> {
    name: &'a str,
    usage: Use,
    status: Status,
    columns: &'a [Value],
    schema: Value,
}

fn version(of: VersionOf<'_>) -> Value {
    let VersionOf { name, usage, status, columns, schema } = of;
    let mut version = json!({
        "name": name,
        "served": usage != Use::Retired,
        "storage": usage == Use::Stored,
        "subresources": if status == Status::Apart { json!({"status": {}}) } else { json!({}) },
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    });
    if matches!(usage, Use::Deprecated | Use::Retired) {
        version["deprecated"] = true.into();
    }
    version
}

fn column(name: &str, kind: &str, path: &str, description: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path, "description": description})
}

fn age() -> Value {
    json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
}

/// The schema of a whole object: what every object has, and what this kind adds.
fn root(description: &str, required: &[&str], fields: Vec<(&str, Value)>) -> Value {
    let mut fields = fields;
    fields.push(("apiVersion", text("The version of the object's shape.")));
    fields.push(("kind", text("The kind of the object.")));
    fields.push(("metadata", json!({"type": "object"})));
    object(description, required, fields)
}

fn object(description: &str, required: &[&str], fields: Vec<(&str, Value)>) -> Value {
    let properties: Map<String, Value> = fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    let mut schema = json!({"type": "object", "description": description, "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn flag(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

fn moment(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}

fn whole(description: &str) -> Value {
    json!({"type": "integer", "format": "int64", "description": description})
}

fn list(description: &str, items: Value) -> Value {
    json!({"type": "array", "description": description, "items": items})
}

fn texts_by_key(description: &str) -> Value {
    json!({"type": "object", "description": description, "additionalProperties": {"type": "string"}})
}

/// A schema with one more rule.
fn ruled(mut schema: Value, rule: &str, message: &str) -> Value {
    let declared = json!({"rule": rule, "message": message});
    match schema.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut) {
        Some(rules) => rules.push(declared),
        None => schema["x-kubernetes-validations"] = json!([declared]),
    }
    schema
}

/// A schema whose value never changes; the message names it.
fn frozen(schema: Value, message: &str) -> Value {
    ruled(schema, "self == oldSelf", message)
}

/// An object whose fields can be added and not taken away.
fn required_once_set(schema: Value, fields: &[&str]) -> Value {
    fields.iter().fold(schema, |schema, field| {
        let rule = format!("!has(oldSelf.{field}) || has(self.{field})");
        ruled(schema, &rule, &format!("{field} is required once set"))
    })
}

fn exactly_one(schema: Value, left: &str, right: &str) -> Value {
    let rule = format!("(has(self.{left}) && !has(self.{right})) || (!has(self.{left}) && has(self.{right}))");
    ruled(schema, &rule, &format!("exactly one of {left} and {right} must be set"))
}

/// The name of a class, which may be absent but not empty.
fn class_name(description: &str, field: &str) -> Value {
    ruled(text(description), "size(self) > 0", &format!("{field} must not be the empty string when set"))
}

fn deletion_policy() -> Value {
    let description =
        "Whether the snapshot on the storage goes or stays when the object that stands for it is deleted.";
    json!({"type": "string", "enum": ["Delete", "Retain"], "description": description})
}

/// A reference to an object in a namespace, without rules.
fn object_reference(description: &str) -> Value {
    let fields = vec![
        ("apiVersion", text("The version of the referent.")),
        ("fieldPath", text("A part of the referent; unused here.")),
        ("kind", text("The kind of the referent.")),
        ("name", text("The name of the referent.")),
        ("namespace", text("The namespace of the referent.")),
        ("resourceVersion", text("The version of the referent that was seen; unused here.")),
        ("uid", text("The identity of the referent; empty until it is bound.")),
    ];
    let mut schema = object(description, &[], fields);
    schema["x-kubernetes-map-type"] = "atomic".into();
    schema
}

/// The last thing that went wrong.
fn last_error() -> Value {
    let fields = vec![
        ("message", text("What went wrong. It can be read by users, so it holds no secrets.")),
        ("time", moment("When it went wrong.")),
    ];
    object("The last error, if the last attempt failed.", &[], fields)
}

#[cfg(test)]
mod tests;
