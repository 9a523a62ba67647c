//! OpenAPI v2: one document for everything, made from the documents of version 3. Clients before 1.27 check and explain
//! objects with it, and read it as protobuf only ([`wire`]).
//!
//! Version 2 knows no alternatives, so a value that may be text or a number is said to be text, as the reference does.

mod wire;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Document;

const NEW_PREFIX: &str = "#/components/schemas/";
const OLD_PREFIX: &str = "#/definitions/";
const KINDS: &str = "x-kubernetes-group-version-kind";

/// The document in both of its forms.
#[derive(Debug)]
pub struct Swagger {
    pub json: bytes::Bytes,
    pub protobuf: bytes::Bytes,
}

impl Swagger {
    /// From the documents of all groups.
    pub fn of<'a>(documents: impl IntoIterator<Item = &'a Document>) -> Self {
        let document = document(documents);
        Self { json: document.to_string().into(), protobuf: wire::encode(&document).into() }
    }
}

fn document<'a>(documents: impl IntoIterator<Item = &'a Document>) -> Value {
    let (mut paths, mut definitions) = (BTreeMap::new(), BTreeMap::new());
    for document in documents {
        // Our own documents are JSON; one that is not would add nothing.
        let Ok(mut content) = serde_json::from_slice::<Value>(&document.body) else { continue };
        for (address, item) in taken(&mut content, "/paths") {
            paths.insert(address, path_item(item));
        }
        for (name, schema) in taken(&mut content, "/components/schemas") {
            define(&mut definitions, name, old_schema(schema));
        }
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.4"},
        "paths": paths,
        "definitions": definitions,
    })
}

fn taken(value: &mut Value, pointer: &str) -> Map<String, Value> {
    match value.pointer_mut(pointer).map(Value::take) {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// A type that several groups share is one definition with all of their kinds.
fn define(definitions: &mut BTreeMap<String, Value>, name: String, schema: Value) {
    let Some(known) = definitions.get_mut(&name) else {
        definitions.insert(name, schema);
        return;
    };
    let more = schema.get(KINDS).and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(kinds) = known.get_mut(KINDS).and_then(Value::as_array_mut) {
        for kind in more {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
}

fn old_schema(schema: Value) -> Value {
    let Value::Object(fields) = schema else { return schema };
    let mut old = Map::new();
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("$ref", Value::String(name)) => {
                old.insert(key, name.replacen(NEW_PREFIX, OLD_PREFIX, 1).into());
            }
            // A reference may stand beside a description here.
            ("allOf", Value::Array(parts)) => {
                for part in parts {
                    if let Value::Object(part) = old_schema(part) {
                        old.extend(part);
                    }
                }
            }
            ("oneOf", _) => {
                old.entry("type").or_insert_with(|| "string".into());
            }
            ("nullable", _) => {}
            ("properties", Value::Object(properties)) => {
                let properties: Map<String, Value> =
                    properties.into_iter().map(|(name, schema)| (name, old_schema(schema))).collect();
                old.insert(key, properties.into());
            }
            ("items" | "additionalProperties", value) => {
                old.insert(key, old_schema(value));
            }
            (_, value) => {
                old.insert(key, value);
            }
        }
    }
    old.into()
}

fn path_item(item: Value) -> Value {
    let Value::Object(fields) = item else { return item };
    let old = fields.into_iter().map(|(key, value)| match key.as_str() {
        "parameters" => (key, parameters(value)),
        _ => (key, operation(value)),
    });
    Value::Object(old.collect())
}

fn parameters(parameters: Value) -> Value {
    let Value::Array(parameters) = parameters else { return json!([]) };
    parameters.into_iter().map(parameter).collect()
}

/// The type of a parameter stands beside its name here.
fn parameter(mut parameter: Value) -> Value {
    if let (Value::Object(schema), Value::Object(fields)) = (parameter["schema"].take(), &mut parameter) {
        fields.remove("schema");
        fields.extend(schema);
    }
    parameter
}

fn operation(operation: Value) -> Value {
    let Value::Object(mut fields) = operation else { return operation };
    let mut all = match fields.remove("parameters").map(parameters) {
        Some(Value::Array(parameters)) => parameters,
        _ => Vec::new(),
    };
    if let Some(mut body) = fields.remove("requestBody") {
        let required = body["required"] == true;
        let (types, schema) = content(body["content"].take());
        fields.insert("consumes".to_owned(), types);
        all.insert(0, json!({"in": "body", "name": "body", "required": required, "schema": schema}));
    }
    if !all.is_empty() {
        fields.insert("parameters".to_owned(), all.into());
    }
    let mut produces = Value::Null;
    for response in fields.get_mut("responses").and_then(Value::as_object_mut).into_iter().flatten().map(|(_, r)| r) {
        if let Some(answered) = response.as_object_mut().and_then(|fields| fields.remove("content")) {
            let (types, schema) = content(answered);
            response["schema"] = schema;
            produces = types;
        }
    }
    if produces.is_array() {
        fields.insert("produces".to_owned(), produces);
    }
    fields.into()
}

/// The content types of a body, and its schema, which is the same for all of them.
fn content(content: Value) -> (Value, Value) {
    let Value::Object(content) = content else { return (json!([]), json!({})) };
    let types: Value = content.keys().cloned().collect();
    let schema = content.into_iter().next().map(|(_, mut body)| body["schema"].take());
    (types, schema.map_or_else(|| json!({}), old_schema))
}
