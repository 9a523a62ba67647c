//! What is wrong with a field, and how the value in question is shown.

use serde_json::Value;
use std::fmt;

/// What is wrong with one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    Required,
    Invalid,
    NotSupported,
    Forbidden,
    Duplicate,
    TooLong,
    TooMany,
    NotFound,
    TypeInvalid,
}

impl FieldErrorKind {
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
        }
    }

    const fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong)
    }
}

/// One problem of one field, with the value already written as the reference prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    pub field: String,
    value: String,
    detail: String,
}

impl FieldError {
    fn new(kind: FieldErrorKind, field: impl Into<String>, value: Value, detail: impl Into<String>) -> Self {
        Self { kind, field: field.into(), value: shown(&value), detail: detail.into() }
    }

    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, Value::Null, detail)
    }

    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, value.into(), detail)
    }

    /// As [`FieldError::invalid`] where the reference prints something that JSON cannot order or spell.
    pub fn invalid_shown(field: impl Into<String>, value: String, detail: impl Into<String>) -> Self {
        Self { kind: FieldErrorKind::Invalid, field: field.into(), value: shortened(value), detail: detail.into() }
    }

    pub fn immutable(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::invalid(field, value, "field is immutable")
    }

    /// `supported` is printed in the given order.
    pub fn not_supported(field: impl Into<String>, value: impl Into<Value>, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|value| quote(value)).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self::new(FieldErrorKind::NotSupported, field, value.into(), detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, Value::Null, detail)
    }

    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, value.into(), "")
    }

    /// A repetition of a value that is shown in another form than its JSON.
    pub fn duplicate_shown(field: impl Into<String>, value: String, detail: impl Into<String>) -> Self {
        Self { kind: FieldErrorKind::Duplicate, field: field.into(), value: shortened(value), detail: detail.into() }
    }

    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::NotFound, field, value.into(), "")
    }

    pub fn too_long(field: impl Into<String>, bytes: usize) -> Self {
        Self::new(FieldErrorKind::TooLong, field, Value::Null, format!("may not be more than {bytes} bytes"))
    }

    pub fn too_many(field: impl Into<String>, count: usize, most: usize) -> Self {
        Self::new(FieldErrorKind::TooMany, field, count.into(), format!("must have at most {most} items"))
    }

    pub fn type_invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, field, value.into(), detail)
    }

    /// The same problem of the same field with another explanation.
    pub(crate) fn with_detail(&self, detail: String) -> Self {
        Self { detail, ..self.clone() }
    }

    /// About the bytes of its text.
    pub(crate) fn size(&self) -> usize {
        self.field.len() + self.value.len() + self.detail.len() + 24
    }

    /// The text without the field: what a cause's `message` says.
    pub fn body(&self) -> String {
        let mut body = String::from(self.kind.title());
        if self.kind.shows_value() {
            body.push_str(": ");
            body.push_str(&self.value);
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// Bytes of a value that an error repeats. A value that anybody reads is far smaller.
const MOST_VALUE_BYTES: usize = 64 << 10;

/// A value as an error prints it; of a very long one only the beginning, and how much is left out.
fn shown(value: &Value) -> String {
    shortened(whole(value))
}

fn shortened(mut text: String) -> String {
    if text.len() <= MOST_VALUE_BYTES {
        return text;
    }
    let end = (0..=MOST_VALUE_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    let left_out = text.len() - end;
    text.truncate(end);
    text.push_str(&format!("... ({left_out} bytes left out)"));
    text
}

fn whole(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        // Go's JSON writes these three as escapes, whatever string they stand in.
        Value::Array(_) | Value::Object(_) => {
            value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
        }
    }
}

/// A string as Go's `%q` writes it.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            control if control.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(control))),
            control if control.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_very_long_value_is_shortened_and_a_long_one_is_not() {
        let long = "x".repeat(MOST_VALUE_BYTES - 2);
        assert_eq!(FieldError::not_found("f", long.as_str()).body(), format!("Not found: \"{long}\""));
        let error = FieldError::not_found("f", "\u{e4}".repeat(MOST_VALUE_BYTES));
        assert!(error.body().ends_with("... (65539 bytes left out)"), "{}", &error.body()[error.body().len() - 40..]);
        assert!(error.size() < MOST_VALUE_BYTES + 100);
    }
}
