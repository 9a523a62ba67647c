//! From objects to messages, for clients that accept nothing but protobuf.

use serde_json::Value;

use super::MAGIC;
use super::wire::{put_bytes, put_double, put_number};
use crate::schema::decode::decode_base64;
use crate::schema::tables::apiextensions::JSON_SCHEMA_PROPS;
use crate::schema::tables::meta::LIST_META;
use crate::schema::time::{self, Precision};
use crate::schema::types::{Field, SchemaOr, Struct, Type, Wire};

/// The body of an answer with one object.
pub fn seal(api_version: &str, kind: &str, schema: &Struct, object: &Value) -> Vec<u8> {
    envelope(api_version, kind, &encode(schema, object))
}

/// The body of an answer with a list: every list is its metadata and its items.
pub fn seal_list(api_version: &str, kind: &str, item: &Struct, list: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    put_bytes(&mut message, 1, &list.get("metadata").map_or_else(Vec::new, |metadata| encode(&LIST_META, metadata)));
    for object in list.get("items").and_then(Value::as_array).into_iter().flatten() {
        put_bytes(&mut message, 2, &encode(item, object));
    }
    envelope(api_version, kind, &message)
}

fn envelope(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::new();
    put_bytes(&mut type_meta, 1, api_version.as_bytes());
    put_bytes(&mut type_meta, 2, kind.as_bytes());
    let mut body = MAGIC.to_vec();
    put_bytes(&mut body, 1, &type_meta);
    put_bytes(&mut body, 2, message);
    put_bytes(&mut body, 3, b"");
    put_bytes(&mut body, 4, b"");
    body
}

/// The message of one object. Fields the table does not know are left out.
pub fn encode(schema: &Struct, object: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let mut inlined = Vec::new();
    for field in schema.fields {
        match field.wire() {
            Wire::Nowhere => {}
            Wire::Direct(number) => put_field(&mut out, number, field, object),
            Wire::Inside { message, .. } if inlined.contains(&message) => {}
            Wire::Inside { message, .. } => {
                inlined.push(message);
                put_bytes(&mut out, message, &inner(schema, message, object));
            }
        }
    }
    out
}

/// The message that JSON shows inline.
fn inner(schema: &Struct, wanted: u32, object: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for field in schema.fields {
        if let Wire::Inside { message, number } = field.wire()
            && message == wanted
        {
            put_field(&mut out, number, field, object);
        }
    }
    out
}

fn put_field(out: &mut Vec<u8>, number: u32, field: &Field, object: &Value) {
    if let Some(value) = object.get(field.name).filter(|value| !value.is_null()) {
        put_value(out, number, field.ty, value);
    }
}

fn put_value(out: &mut Vec<u8>, number: u32, ty: Type, value: &Value) {
    match (ty, value) {
        (Type::List(list), Value::Array(items)) => {
            for item in items {
                put_value(out, number, list.item, item);
            }
        }
        (Type::Map(item) | Type::AtomicMap(item), Value::Object(entries)) => {
            for (key, value) in entries {
                let mut entry = Vec::new();
                put_bytes(&mut entry, 1, key.as_bytes());
                put_entry_value(&mut entry, *item, value);
                put_bytes(out, number, &entry);
            }
        }
        (Type::Struct(schema), value) => put_bytes(out, number, &encode(schema, value)),
        (Type::String, Value::String(text)) => put_bytes(out, number, text.as_bytes()),
        (Type::Int32 | Type::Int64, value) => put_number(out, number, value.as_i64().unwrap_or_default()),
        (Type::Bool, value) => put_number(out, number, i64::from(value.as_bool().unwrap_or_default())),
        (Type::Float64, value) => put_double(out, number, value.as_f64().unwrap_or_default()),
        (Type::Bytes, Value::String(text)) => put_bytes(out, number, &decode_base64(text).unwrap_or_default()),
        (ty, value) => put_bytes(out, number, &special(ty, value)),
    }
}

/// Lists as values of a map have a message of their own.
fn put_entry_value(entry: &mut Vec<u8>, item: Type, value: &Value) {
    if let Type::List(_) = item {
        let mut list = Vec::new();
        put_value(&mut list, 1, item, value);
        put_bytes(entry, 2, &list);
    } else {
        put_value(entry, 2, item, value);
    }
}

/// The scalars that are messages on the wire.
fn special(ty: Type, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match (ty, value) {
        (Type::Quantity, Value::String(text)) => put_bytes(&mut out, 1, text.as_bytes()),
        (Type::Time, Value::String(text)) => put_moment(&mut out, text, Precision::Seconds),
        (Type::MicroTime, Value::String(text)) => put_moment(&mut out, text, Precision::Micros),
        (Type::IntOrString, Value::String(text)) => {
            put_number(&mut out, 1, 1);
            put_bytes(&mut out, 3, text.as_bytes());
        }
        (Type::IntOrString, number) => {
            put_number(&mut out, 1, 0);
            put_number(&mut out, 2, number.as_i64().unwrap_or_default());
        }
        (Type::Any, value) => put_bytes(&mut out, 1, value.to_string().as_bytes()),
        (Type::SchemaOr(or), value) => put_schema_or(&mut out, or, value),
        _ => {}
    }
    out
}

fn put_moment(out: &mut Vec<u8>, text: &str, precision: Precision) {
    if let Ok(moment) = time::parse(text, precision) {
        put_number(out, 1, moment.seconds);
        put_number(out, 2, i64::from(moment.nanos));
    }
}

fn put_schema_or(out: &mut Vec<u8>, or: SchemaOr, value: &Value) {
    match (or, value) {
        (SchemaOr::Bool, Value::Bool(allows)) => put_number(out, 1, i64::from(*allows)),
        (SchemaOr::Bool, schema) => {
            put_number(out, 1, 1);
            put_bytes(out, 2, &encode(&JSON_SCHEMA_PROPS, schema));
        }
        (SchemaOr::Schemas, Value::Array(schemas)) => {
            for schema in schemas {
                put_bytes(out, 2, &encode(&JSON_SCHEMA_PROPS, schema));
            }
        }
        (SchemaOr::Strings, Value::Array(names)) => {
            for name in names {
                put_bytes(out, 2, name.as_str().unwrap_or_default().as_bytes());
            }
        }
        (_, schema) => put_bytes(out, 1, &encode(&JSON_SCHEMA_PROPS, schema)),
    }
}
