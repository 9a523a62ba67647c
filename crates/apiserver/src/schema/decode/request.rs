//! A request body as an object of the kind an endpoint serves: JSON, YAML or protobuf.

use serde_json::Value;

use super::{DecodeError, Problem, YamlError, from_json, from_value, parse_yaml, peek_json, strict_message};
use crate::schema::proto::{self, ProtoError};
use crate::schema::types::Struct;

/// How many bytes of an unreadable body an error shows.
const SUMMARY: usize = 30;

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
    Protobuf,
}

/// What an endpoint takes.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// `v1` or `storage.k8s.io/v1`.
    pub api_version: &'a str,
    pub kind: &'a str,
    pub schema: &'static Struct,
    /// Group-versions that are as good as `api_version`: delete options come under several.
    pub also: &'a [&'a str],
}

/// An object of the expected kind, in printed form and with `apiVersion` and `kind` as the body gave them, or filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Body {
    pub object: Value,
    pub problems: Vec<Problem>,
}

/// Why a body is refused; the text is the message of the 400 answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("the object provided is unrecognized (must be of type {wanted}): {why} ({summary})")]
    Unrecognized { wanted: String, why: String, summary: String },
    #[error("{kind} in version {version:?} cannot be handled as a {wanted}: {why}")]
    Unfit { kind: String, version: String, wanted: String, why: String },
}

/// The kind a body claims to have.
struct Claim {
    api_version: String,
    kind: String,
}

impl Body {
    /// The body if it has no problems, else the refusal of `fieldValidation=Strict`.
    pub fn strict(self, expected: &Expected<'_>) -> Result<Self, RequestError> {
        if self.problems.is_empty() {
            return Ok(self);
        }
        let claim = Claim {
            api_version: text(&self.object, "apiVersion").unwrap_or(expected.api_version).to_owned(),
            kind: text(&self.object, "kind").unwrap_or(expected.kind).to_owned(),
        };
        Err(unfit(&claim, expected, strict_message(&self.problems)))
    }
}

/// Decodes the body of a write.
pub fn decode_request(expected: &Expected<'_>, format: Format, body: &[u8]) -> Result<Body, RequestError> {
    match format {
        Format::Json => json(expected, body),
        Format::Yaml => yaml(expected, body),
        Format::Protobuf => protobuf(expected, body),
    }
}

fn json(expected: &Expected<'_>, body: &[u8]) -> Result<Body, RequestError> {
    let unreadable = |error: DecodeError| {
        unrecognized(expected, body, &format!("couldn't get version/kind; json parse error: {error}"))
    };
    // A good body is read once. Of a bad one it matters what it claims to be before it matters what is wrong with it.
    let decoded = match from_json(expected.schema, body) {
        Ok(decoded) => decoded,
        Err(error) => {
            let claim = claim(expected, &peek_json(&TYPE_META, body).map_err(unreadable)?)?;
            return Err(unfit(&claim, expected, error.to_string()));
        }
    };
    let claim = claim(expected, &decoded.object)?;
    Ok(label(decoded.object, decoded.problems, &claim))
}

fn yaml(expected: &Expected<'_>, body: &[u8]) -> Result<Body, RequestError> {
    let (value, mut problems) =
        parse_yaml(body).map_err(|error: YamlError| unrecognized(expected, body, &error.to_string()))?;
    let unreadable = |error: DecodeError| {
        unrecognized(expected, body, &format!("couldn't get version/kind; json parse error: {error}"))
    };
    let found = from_value(&TYPE_META, value.clone()).map_err(unreadable)?;
    let claim = claim(expected, &found.object)?;
    let decoded = from_value(expected.schema, value).map_err(|error| unfit(&claim, expected, error.to_string()))?;
    problems.extend(decoded.problems);
    Ok(label(decoded.object, problems, &claim))
}

fn protobuf(expected: &Expected<'_>, body: &[u8]) -> Result<Body, RequestError> {
    let envelope = proto::open(body).map_err(|error: ProtoError| unrecognized(expected, body, &error.to_string()))?;
    let claim = check(expected, envelope.api_version, envelope.kind)?;
    let object =
        proto::decode(expected.schema, envelope.raw).map_err(|error| unfit(&claim, expected, error.to_string()))?;
    Ok(label(object, Vec::new(), &claim))
}

/// The two fields that say what a document is.
static TYPE_META: Struct = Struct {
    name: "io.k8s.apimachinery.pkg.apis.meta.v1.TypeMeta",
    doc: "What a document is.",
    atomic: false,
    fields: &[crate::schema::tables::API_VERSION, crate::schema::tables::KIND],
};

fn claim(expected: &Expected<'_>, object: &Value) -> Result<Claim, RequestError> {
    let field = |name| text(object, name).unwrap_or_default().to_owned();
    check(expected, field("apiVersion"), field("kind"))
}

/// An empty claim is filled in, a foreign one refused.
fn check(expected: &Expected<'_>, api_version: String, kind: String) -> Result<Claim, RequestError> {
    let or = |given: String, default: &str| if given.is_empty() { default.to_owned() } else { given };
    let claim = Claim { api_version: or(api_version, expected.api_version), kind: or(kind, expected.kind) };
    let known = claim.api_version == expected.api_version || expected.also.contains(&claim.api_version.as_str());
    if known && claim.kind == expected.kind {
        return Ok(claim);
    }
    let why = format!("no kind {:?} is registered for version {:?} at this endpoint", claim.kind, claim.api_version);
    Err(unfit(&claim, expected, why))
}

fn label(mut object: Value, problems: Vec<Problem>, claim: &Claim) -> Body {
    if let Value::Object(fields) = &mut object {
        fields.insert("apiVersion".to_owned(), Value::from(claim.api_version.as_str()));
        fields.insert("kind".to_owned(), Value::from(claim.kind.as_str()));
    }
    Body { object, problems }
}

fn text<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get(field).and_then(Value::as_str)
}

fn unfit(claim: &Claim, expected: &Expected<'_>, why: String) -> RequestError {
    let version = claim.api_version.rsplit('/').next().unwrap_or_default();
    RequestError::Unfit { kind: claim.kind.clone(), version: version.to_owned(), wanted: expected.kind.to_owned(), why }
}

fn unrecognized(expected: &Expected<'_>, body: &[u8], why: &str) -> RequestError {
    RequestError::Unrecognized { wanted: expected.kind.to_owned(), why: why.to_owned(), summary: summary(body) }
}

/// The start of a body: as text if it looks like JSON, else in hexadecimal.
fn summary(body: &[u8]) -> String {
    let head = &body[..body.len().min(SUMMARY)];
    let mut text = match body.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(head).into_owned(),
        Some(_) => head.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > SUMMARY {
        text.push_str(" ...");
    }
    text
}
