//! Defaults of a structural schema: filled where a field is absent, or null and not allowed to be.

use serde_json::Value;

pub(super) fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let null = fields.get(name).is_some_and(Value::is_null) && schema["nullable"] != true;
                if let Some(default) = schema.get("default").filter(|_| null || !fields.contains_key(name)) {
                    fields.insert(name.clone(), default.clone());
                } else if null {
                    fields.remove(name);
                }
                if let Some(value) = fields.get_mut(name) {
                    fill(schema, value);
                }
            }
            if let Some(schema) = schema.get("additionalProperties").filter(|schema| schema.is_object()) {
                fields.values_mut().for_each(|value| fill(schema, value));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(&schema["items"], item)),
        _ => {}
    }
}
