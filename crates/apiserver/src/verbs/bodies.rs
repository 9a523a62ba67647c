//! From the body of a request to the object of a write.

use serde_json::Value;

use super::{Outcome, Write};
use crate::request::{BodyType, DeleteOptions, FieldValidation, Query};
use crate::schema::decode::{Expected, Format, Problem, decode_request, parse_json, parse_yaml};
use crate::schema::proto;
use crate::schema::tables::meta::DELETE_OPTIONS;
use crate::schema::types::Struct;
use crate::status::ApiError;

/// A body as it came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) written: BodyType,
}

/// What an endpoint takes that is not its own kind: bindings, reviews, token requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyKind<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) schema: &'static Struct,
}

impl Given<'_> {
    /// The object of a write, with defaults.
    pub(crate) fn object(&self, write: &Write<'_>) -> Outcome<Value> {
        let resource = write.resource;
        let mut object = match resource.table() {
            Some(schema) => {
                let kind = BodyKind { api_version: &resource.api_version, kind: &resource.kind, schema };
                self.of_kind(write, kind)?
            }
            None => self.custom(write)?,
        };
        write.rules.default(&mut object);
        Ok(object)
    }

    /// A custom object: it must say what it is, and what its schema does not know is dropped.
    fn custom(&self, write: &Write<'_>) -> Outcome<Value> {
        let resource = write.resource;
        let unreadable = |why: String| ApiError::bad_request(format!("the body cannot be read: {why}"));
        let (object, mut problems): (Value, Vec<Problem>) = match self.written {
            BodyType::Yaml => parse_yaml(self.bytes).map_err(|error| unreadable(error.to_string()))?,
            BodyType::Json | BodyType::Protobuf => {
                parse_json(self.bytes).map_err(|error| unreadable(error.to_string()))?
            }
        };
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        for (field, name) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
            if text(field).is_empty() {
                let kind = &resource.kind;
                let why = format!("Object '{name}' is missing in '{object}'");
                let message = format!("the object provided is unrecognized (must be of type {kind}): {why} ({object})");
                return Err(ApiError::bad_request(message).into());
            }
        }
        if text("apiVersion") != resource.api_version {
            let message = format!(
                "the API version in the data ({}) does not match the expected API version ({})",
                text("apiVersion"),
                resource.api_version
            );
            return Err(ApiError::bad_request(message).into());
        }
        if text("kind") != resource.kind {
            let message = format!(
                "{} in version {:?} cannot be handled as a {}: the endpoint serves {}",
                text("kind"),
                text("apiVersion"),
                resource.kind,
                resource.api_version
            );
            return Err(ApiError::bad_request(message).into());
        }
        let object = pruned(write, object, &mut problems)?;
        match write.validation {
            FieldValidation::Strict if !problems.is_empty() => {
                let why = crate::schema::decode::strict_message(&problems);
                let (kind, version) = (&resource.kind, &resource.version);
                let message = format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}");
                return Err(ApiError::bad_request(message).into());
            }
            FieldValidation::Warn => warn_about(write, &problems),
            FieldValidation::Strict | FieldValidation::Ignore => {}
        }
        Ok(object)
    }

    /// An object of another kind than the resource's.
    pub(crate) fn of_kind(&self, write: &Write<'_>, kind: BodyKind<'_>) -> Outcome<Value> {
        let (object, problems) = self.decode(kind, write.validation)?;
        warn_about(write, &problems);
        Ok(object)
    }

    /// As [`Given::of_kind`], without a write to warn in.
    pub(crate) fn decode(&self, kind: BodyKind<'_>, validation: FieldValidation) -> Outcome<(Value, Vec<Problem>)> {
        let expected = Expected { api_version: kind.api_version, kind: kind.kind, schema: kind.schema, also: &[] };
        let refused = |error: crate::schema::decode::RequestError| ApiError::bad_request(error.to_string());
        let body = decode_request(&expected, self.format(), self.bytes).map_err(refused)?;
        match validation {
            FieldValidation::Strict => Ok((body.strict(&expected).map_err(refused)?.object, Vec::new())),
            FieldValidation::Warn => Ok((body.object, body.problems)),
            FieldValidation::Ignore => Ok((body.object, Vec::new())),
        }
    }

    fn format(&self) -> Format {
        match self.written {
            BodyType::Json => Format::Json,
            BodyType::Yaml => Format::Yaml,
            BodyType::Protobuf => Format::Protobuf,
        }
    }
}

/// A custom object without what its schema does not know.
fn pruned(write: &Write<'_>, object: Value, problems: &mut Vec<Problem>) -> Outcome<Value> {
    let Some(custom) = write.resource.custom() else { return Ok(object) };
    let (object, dropped) = custom.decode(object).map_err(|error| ApiError::bad_request(error.to_string()))?;
    problems.extend(dropped);
    Ok(object)
}

pub(super) fn warn_about(write: &Write<'_>, problems: &[Problem]) {
    problems.iter().for_each(|problem| write.warnings.add(problem.to_string()));
}

/// The options of a DELETE: from its body if it has one, else from its query.
pub(crate) fn delete_options(given: Given<'_>, query: &Query, api_version: &str) -> Outcome<DeleteOptions> {
    if given.bytes.is_empty() {
        return Ok(DeleteOptions::from_query(query)?);
    }
    let unreadable = |why: String| ApiError::bad_request(format!("the delete options cannot be read: {why}"));
    let body = match given.written {
        BodyType::Json => serde_json::from_slice(given.bytes).map_err(|error| unreadable(error.to_string()))?,
        BodyType::Yaml => parse_yaml(given.bytes).map_err(|error| unreadable(error.to_string()))?.0,
        BodyType::Protobuf => {
            let envelope = proto::open(given.bytes).map_err(|error| unreadable(error.to_string()))?;
            let options =
                proto::decode(&DELETE_OPTIONS, envelope.raw).map_err(|error| unreadable(error.to_string()))?;
            let mut options = options;
            options["apiVersion"] = envelope.api_version.into();
            options["kind"] = envelope.kind.into();
            options
        }
    };
    Ok(DeleteOptions::from_body(&body, api_version)?)
}
