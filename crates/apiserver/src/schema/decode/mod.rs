//! From the bytes of a request to an object in printed form (see [`super::encode`]).
//!
//! Decoding is driven by the tables: unknown fields are dropped and reported, duplicate keys are reported and the last
//! one wins, names are case-sensitive, wrong types are errors, quantities and moments are rewritten canonically, `null`
//! means absent. Whether problems are ignored, warned about or refused is the caller's choice (`fieldValidation`,
//! API-4.4). Nothing here panics, whatever the bytes.

mod base64;
mod free;
mod request;
mod syntax;
mod walk;
mod yaml;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::de::DeserializeSeed;
use serde_json::Value;

pub use base64::{decode as decode_base64, encode as encode_base64};
pub use free::parse as parse_json;
pub use request::{Body, Expected, Format, RequestError, decode_request};
pub use yaml::{YamlError, parse as parse_yaml};

use super::encode;
use super::quantity::QuantityError;
use super::time::TimeError;
use super::types::Struct;
use walk::Walker;

/// Something `fieldValidation` may complain about; prints as the reference server words it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// The path of a field that the kind does not have.
    Unknown(String),
    /// The path of a key that was given twice.
    Duplicate(String),
    /// A key given twice in YAML, where the position is known instead of the path.
    DuplicateLine { line: u64, key: String },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Unknown(path) => write!(f, "unknown field {path:?}"),
            Problem::Duplicate(path) => write!(f, "duplicate field {path:?}"),
            Problem::DuplicateLine { line, key } => write!(f, "line {line}: key {key:?} already set in map"),
        }
    }
}

/// The text a strict request is refused with, after the part that names the kind.
pub fn strict_message(problems: &[Problem]) -> String {
    let list: Vec<String> = problems.iter().map(Problem::to_string).collect();
    format!("strict decoding error: {}", list.join(", "))
}

/// An object and what was wrong with its fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub object: Value,
    pub problems: Vec<Problem>,
}

/// Why bytes are not an object of the expected type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON at all.
    #[error("{0}")]
    Syntax(String),
    #[error("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}")]
    Type { found: String, owner: String, path: String, wanted: String },
    #[error("json: cannot unmarshal {found} into Go value of type {wanted}")]
    TopLevel { found: String, wanted: String },
    #[error("{0}")]
    Quantity(QuantityError),
    #[error("{0}")]
    Time(TimeError),
    #[error("illegal base64 data at input byte {0}")]
    Base64(usize),
    #[error("exceeded max depth")]
    TooDeep,
}

/// Decodes JSON text.
pub fn from_json(schema: &'static Struct, body: &[u8]) -> Result<Decoded, DecodeError> {
    walk_json(Walker::new(), schema, body)
}

/// Reads only the fields of `schema` and does not mind others.
fn peek_json(schema: &'static Struct, body: &[u8]) -> Result<Value, DecodeError> {
    walk_json(Walker::quiet(), schema, body).map(|decoded| decoded.object)
}

fn walk_json(mut walker: Walker, schema: &'static Struct, body: &[u8]) -> Result<Decoded, DecodeError> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let outcome = walker.root(schema).deserialize(&mut deserializer).and_then(|object| {
        deserializer.end()?;
        Ok(object)
    });
    finish(schema, walker, outcome.map_err(|error| DecodeError::Syntax(syntax::message(&error, body))))
}

/// Decodes a value that is already in memory: the result of a patch, or YAML. Fields are visited in sorted order.
pub fn from_value(schema: &'static Struct, value: Value) -> Result<Decoded, DecodeError> {
    let mut walker = Walker::new();
    let outcome = walker.root(schema).deserialize(value);
    finish(schema, walker, outcome.map_err(|error| DecodeError::Syntax(error.to_string())))
}

fn finish(
    schema: &'static Struct,
    walker: Walker,
    outcome: Result<Value, DecodeError>,
) -> Result<Decoded, DecodeError> {
    let (failure, problems) = walker.into_parts();
    if let Some(failure) = failure {
        return Err(failure);
    }
    let mut object = outcome?;
    // The reference takes `null` for an object without fields.
    if object.is_null() {
        object = Value::Object(serde_json::Map::new());
    }
    encode::complete_sent(schema, &mut object);
    Ok(Decoded { object, problems })
}
