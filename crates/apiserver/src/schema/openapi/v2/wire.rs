//! The v2 document in protobuf: the messages that Go clients read it with, as far as our documents have their fields.
//!
//! A message is a list of fields by number. Fields that version 2 does not name are extensions, whose values are text in
//! YAML; JSON is YAML.

use serde_json::Value;

use crate::schema::proto::wire::{put_bytes, put_double, put_number};

pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, &document["swagger"]);
    out.message(2, {
        let mut info = Message::default();
        info.text(1, &document["info"]["title"]);
        info.text(2, &document["info"]["version"]);
        info
    });
    out.message(8, named(2, &document["paths"], path_item));
    out.message(9, named(1, &document["definitions"], schema));
    out.0
}

#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        put_bytes(&mut self.0, field, bytes);
    }

    fn message(&mut self, field: u32, message: Message) {
        self.bytes(field, &message.0);
    }

    /// A text, unless there is none.
    fn text(&mut self, field: u32, value: &Value) {
        if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn texts(&mut self, field: u32, values: &Value) {
        values.as_array().into_iter().flatten().for_each(|value| self.text(field, value));
    }

    fn flag(&mut self, field: u32, value: &Value) {
        if value == true {
            put_number(&mut self.0, field, 1);
        }
    }

    fn whole(&mut self, field: u32, value: &Value) {
        if let Some(number) = value.as_i64() {
            put_number(&mut self.0, field, number);
        }
    }

    fn double(&mut self, field: u32, value: &Value) {
        if let Some(number) = value.as_f64() {
            put_double(&mut self.0, field, number);
        }
    }

    /// Everything of an object that starts as an extension does.
    fn extensions(&mut self, field: u32, object: &Value) {
        for (name, value) in object.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-")) {
            let mut extension = Message::default();
            extension.bytes(1, name.as_bytes());
            extension.message(2, any(value));
            self.message(field, extension);
        }
    }
}

fn any(value: &Value) -> Message {
    let mut any = Message::default();
    any.bytes(2, value.to_string().as_bytes());
    any
}

/// The message of a map: entries with a name and a value.
fn named(field: u32, entries: &Value, of: fn(&Value) -> Message) -> Message {
    let mut map = Message::default();
    for (name, value) in entries.as_object().into_iter().flatten() {
        let mut entry = Message::default();
        entry.bytes(1, name.as_bytes());
        entry.message(2, of(value));
        map.message(field, entry);
    }
    map
}

/// A message with one field: how the format writes alternatives.
fn only(field: u32, message: Message) -> Message {
    let mut outer = Message::default();
    outer.message(field, message);
    outer
}

fn path_item(item: &Value) -> Message {
    let mut out = Message::default();
    for (field, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if let Some(found) = item.get(method) {
            out.message(field, operation(found));
        }
    }
    parameters(&mut out, 9, item);
    out
}

fn parameters(out: &mut Message, field: u32, of: &Value) {
    for found in of["parameters"].as_array().into_iter().flatten() {
        out.message(field, only(1, parameter(found)));
    }
}

fn operation(operation: &Value) -> Message {
    let mut out = Message::default();
    out.texts(1, &operation["tags"]);
    out.text(3, &operation["description"]);
    out.text(5, &operation["operationId"]);
    out.texts(6, &operation["produces"]);
    out.texts(7, &operation["consumes"]);
    parameters(&mut out, 8, operation);
    out.message(9, named(1, &operation["responses"], response));
    out.extensions(13, operation);
    out
}

fn response(response: &Value) -> Message {
    let mut out = Message::default();
    out.text(1, &response["description"]);
    if let Some(found) = response.get("schema") {
        out.message(2, only(1, schema(found)));
    }
    only(1, out)
}

fn parameter(parameter: &Value) -> Message {
    let mut out = Message::default();
    match parameter["in"].as_str() {
        Some("body") => {
            out.text(2, &parameter["name"]);
            out.text(3, &parameter["in"]);
            out.flag(4, &parameter["required"]);
            out.message(5, schema(&parameter["schema"]));
            only(1, out)
        }
        place => {
            let path = place == Some("path");
            out.flag(1, &parameter["required"]);
            out.text(2, &parameter["in"]);
            out.text(3, &parameter["description"]);
            out.text(4, &parameter["name"]);
            out.text(if path { 5 } else { 6 }, &parameter["type"]);
            out.flag(if path { 19 } else { 20 }, &parameter["uniqueItems"]);
            only(2, only(if path { 4 } else { 3 }, out))
        }
    }
}

fn schema(described: &Value) -> Message {
    let mut out = Message::default();
    for (field, name) in [(1, "$ref"), (2, "format"), (4, "description"), (13, "pattern")] {
        out.text(field, &described[name]);
    }
    if let Some(default) = described.get("default") {
        out.message(5, any(default));
    }
    for (field, name) in [(7, "maximum"), (9, "minimum")] {
        out.double(field, &described[name]);
    }
    for (field, name) in [(11, "maxLength"), (12, "minLength"), (14, "maxItems"), (15, "minItems")] {
        out.whole(field, &described[name]);
    }
    out.texts(19, &described["required"]);
    for value in described["enum"].as_array().into_iter().flatten() {
        out.message(20, any(value));
    }
    match &described["additionalProperties"] {
        Value::Bool(true) => {
            let mut free = Message::default();
            free.flag(2, &Value::Bool(true));
            out.message(21, free);
        }
        value @ Value::Object(_) => out.message(21, only(1, schema(value))),
        _ => {}
    }
    if described["type"].is_string() {
        let mut kind = Message::default();
        kind.text(1, &described["type"]);
        out.message(22, kind);
    }
    if let Some(items) = described.get("items") {
        out.message(23, only(1, schema(items)));
    }
    if described.get("properties").is_some() {
        out.message(25, named(1, &described["properties"], schema));
    }
    out.extensions(31, described);
    out
}
