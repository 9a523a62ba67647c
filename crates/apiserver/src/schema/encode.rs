//! The printed form of an object: which absent fields show and which empty ones do not.
//!
//! Objects are kept in this form everywhere, so that equality of two values is equality of two objects. It is what a Go
//! server prints after a trip through protobuf: empty lists and maps vanish (or are `null` where the field is always
//! printed), zero structs stay as `{}`, unset moments are `null` where the field is always printed.

use serde_json::{Map, Value};

use super::tables::apiextensions::JSON_SCHEMA_PROPS;
use super::types::{Presence, Struct, Type};

/// What becomes of an empty list in a field that is always printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Empty {
    /// `null`, as if it had not been sent.
    Forgotten,
    /// It stays: whoever sent it owns the field.
    Kept,
}

/// Brings a decoded object into printed form: idempotent, and leaves fields it does not know alone.
pub fn complete(schema: &Struct, object: &mut Value) {
    complete_struct(schema, object, Empty::Forgotten);
}

/// The same for an object as a client sent it, whose empty lists still say something: [`complete`] comes later.
pub fn complete_sent(schema: &Struct, object: &mut Value) {
    complete_struct(schema, object, Empty::Kept);
}

fn complete_struct(schema: &Struct, object: &mut Value, empty: Empty) {
    if let Value::Object(fields) = object {
        complete_fields(schema, fields, empty);
    }
}

/// What the server prints for an object nobody has filled: the body of bookmarks.
pub fn empty(schema: &Struct) -> Value {
    let mut fields = Map::new();
    complete_fields(schema, &mut fields, Empty::Forgotten);
    Value::Object(fields)
}

fn complete_fields(schema: &Struct, fields: &mut Map<String, Value>, empty: Empty) {
    for field in schema.fields {
        let Some(value) = fields.get_mut(field.name) else {
            match field.presence {
                Presence::Always => drop(fields.insert(field.name.to_owned(), unset(field.ty))),
                Presence::PointerOrNull => drop(fields.insert(field.name.to_owned(), Value::Null)),
                Presence::OmitZero | Presence::Pointer => {}
            }
            continue;
        };
        if !value.is_null() {
            complete_value(field.ty, value, empty);
        }
        let absent = value.is_null() || nothing(field.ty, value);
        match field.presence {
            Presence::Always if absent && empty == Empty::Kept && value.is_array() => {}
            Presence::Always if absent => *value = unset(field.ty),
            Presence::Pointer if value.is_null() => drop(fields.remove(field.name)),
            Presence::OmitZero if absent || zero_value(field.ty, value) => drop(fields.remove(field.name)),
            _ => {}
        }
    }
}

fn complete_value(ty: Type, value: &mut Value, empty: Empty) {
    match (ty, value) {
        (Type::Struct(schema), value) => complete_struct(schema, value, empty),
        (Type::Map(item) | Type::AtomicMap(item), Value::Object(entries)) => {
            for value in entries.values_mut() {
                complete_item(*item, value, empty);
            }
        }
        (Type::List(list), Value::Array(items)) => {
            for value in items {
                complete_item(list.item, value, empty);
            }
        }
        (Type::SchemaOr(_), Value::Array(items)) => {
            for value in items {
                complete_struct(&JSON_SCHEMA_PROPS, value, empty);
            }
        }
        (Type::SchemaOr(_), value) => complete_struct(&JSON_SCHEMA_PROPS, value, empty),
        _ => {}
    }
}

/// Inside lists and maps a null is a zero value.
fn complete_item(ty: Type, value: &mut Value, empty: Empty) {
    if value.is_null() {
        *value = zero(ty);
    } else {
        complete_value(ty, value, empty);
    }
}

/// An empty collection, which no presence rule tells from an absent one.
fn nothing(ty: Type, value: &Value) -> bool {
    match (ty, value) {
        (Type::Map(_) | Type::AtomicMap(_), Value::Object(entries)) => entries.is_empty(),
        (Type::List(_), Value::Array(items)) => items.is_empty(),
        _ => false,
    }
}

/// What an unset field that is always printed shows.
fn unset(ty: Type) -> Value {
    match ty {
        Type::Map(_) | Type::AtomicMap(_) | Type::List(_) | Type::Bytes => Value::Null,
        other => zero(other),
    }
}

/// The zero value of a type as a list item or map value.
pub(super) fn zero(ty: Type) -> Value {
    match ty {
        Type::String | Type::Bytes => Value::from(""),
        Type::Int32 | Type::Int64 | Type::Float64 | Type::IntOrString => Value::from(0),
        Type::Bool => Value::from(false),
        Type::Quantity => Value::from("0"),
        Type::Time | Type::MicroTime | Type::Any | Type::SchemaOr(_) => Value::Null,
        Type::Struct(schema) => empty(schema),
        Type::Map(_) | Type::AtomicMap(_) => Value::Object(Map::new()),
        Type::List(_) => Value::Array(Vec::new()),
    }
}

fn zero_value(ty: Type, value: &Value) -> bool {
    match ty {
        Type::Float64 => value.as_f64() == Some(0.0),
        // A struct that may be left out is left out only when it shows nothing at all.
        Type::Struct(_) => value.as_object().is_some_and(Map::is_empty),
        other => *value == zero(other),
    }
}
