//! Defaults of a structural schema: filled where a field is absent, or null and not allowed to be.
//!
//! Invariant: defaults add a bounded number of bytes. A list of many small items would otherwise be a cheap way to ask
//! for many copies of a large default.

use serde_json::Value;

use super::prepared::{Node, Schema};

/// Bytes that defaults may add. An object that has this many more than it was sent with is too large to be stored, so
/// that stopping here is noticed by whoever stores it.
const ROOM: usize = 4 * 1024 * 1024;

pub(super) fn fill(schema: &Schema, value: &mut Value) {
    let mut room = ROOM;
    fill_within(&schema.raw, &schema.root, value, &mut room);
}

/// Looks at the properties with a default and at the fields that are there, and not at all properties of the schema: many
/// small objects may share a large schema.
fn fill_within(schema: &Value, node: &Node, value: &mut Value, room: &mut usize) {
    if *room == 0 {
        return;
    }
    match value {
        Value::Object(fields) => {
            let properties = &schema["properties"];
            let is_removed = |name: &str, value: &Value| {
                value.is_null() && properties.get(name).is_some_and(|schema| schema["nullable"] != true)
            };
            fields.retain(|name, value| !is_removed(name, value));
            for name in &node.defaulted {
                if *room == 0 || fields.contains_key(name) {
                    continue;
                }
                let default = &properties[name]["default"];
                *room = room.saturating_sub(crate::patch::json::size(default) + name.len());
                fields.insert(name.clone(), default.clone());
            }
            for (name, value) in &mut *fields {
                if let Some(node) = node.properties.get(name) {
                    fill_within(&properties[name], node, value, room);
                }
                if let Some(node) = &node.additional {
                    fill_within(&schema["additionalProperties"], node, value, room);
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = &node.items {
                items.iter_mut().for_each(|item| fill_within(&schema["items"], node, item, room));
            }
        }
        _ => {}
    }
}
