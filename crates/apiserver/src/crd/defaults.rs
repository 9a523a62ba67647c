//! Defaults of a structural schema: filled where a field is absent, or null and not allowed to be.
//!
//! Invariant: defaults add a bounded number of bytes. A list of many small items would otherwise be a cheap way to ask
//! for many copies of a large default.

use serde_json::Value;

/// Bytes that defaults may add. An object that has this many more than it was sent with is too large to be stored, so
/// that stopping here is noticed by whoever stores it.
const ROOM: usize = 4 * 1024 * 1024;

pub(super) fn fill(schema: &Value, value: &mut Value) {
    let mut room = ROOM;
    fill_within(schema, value, &mut room);
}

fn fill_within(schema: &Value, value: &mut Value, room: &mut usize) {
    if *room == 0 {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let null = fields.get(name).is_some_and(Value::is_null) && schema["nullable"] != true;
                if let Some(default) = schema.get("default").filter(|_| null || !fields.contains_key(name)) {
                    *room = room.saturating_sub(crate::patch::json::size(default) + name.len());
                    fields.insert(name.clone(), default.clone());
                } else if null {
                    fields.remove(name);
                }
                if let Some(value) = fields.get_mut(name) {
                    fill_within(schema, value, room);
                }
            }
            if let Some(schema) = schema.get("additionalProperties").filter(|schema| schema.is_object()) {
                fields.values_mut().for_each(|value| fill_within(schema, value, room));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill_within(&schema["items"], item, room)),
        _ => {}
    }
}
