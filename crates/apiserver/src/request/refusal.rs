//! Why a request is refused before or beside the store, as data that becomes a Status elsewhere.

use std::fmt;

use super::go_text::go_quote;

/// One refused request. [`Refusal::code`], [`Refusal::reason`], `Display` and [`Refusal::details`] are the four parts
/// of the Status object that the client sees (API-5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    BadRequest(String),
    /// The one text for every wrong credential: which part was wrong is nobody's business.
    Unauthorized,
    /// `message` is the whole text, as [`Refusal::forbidden`] builds it.
    Forbidden {
        group: String,
        resource: String,
        name: String,
        message: String,
    },
    NotFound {
        group: String,
        resource: String,
        name: String,
    },
    /// No offered representation fits what the client can read, found while negotiating.
    NotAcceptable(String),
    /// The same, found while routing a built-in resource: another text, and empty details.
    NoRepresentation(String),
    Conflict {
        group: String,
        resource: String,
        name: String,
        why: String,
    },
    BodyTooLarge,
    /// More values in one body than anything real has.
    TooManyValues,
    PathTooLong,
    UnsupportedMediaType(String),
    /// A patch of a built-in resource in a type it does not know, found while routing.
    NoPatchType,
    Invalid {
        group: &'static str,
        kind: &'static str,
        name: String,
        causes: Vec<Cause>,
    },
    HeadersTooLarge,
    /// 500 without a reason: the reference answers some malformed versions this way and clients cope.
    Internal(String),
}

/// One field and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub reason: &'static str,
    pub field: String,
    pub message: String,
}

/// The `details` of a Status. Empty strings are left out of the JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    pub group: String,
    /// A resource name, except for 422 where it is the kind.
    pub kind: String,
    pub name: String,
    pub causes: Vec<Cause>,
}

impl Cause {
    pub fn forbidden(field: &str, detail: impl fmt::Display) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {detail}"))
    }

    pub fn required(field: &str, detail: impl fmt::Display) -> Self {
        Self::new("FieldValueRequired", field, format!("Required value: {detail}"))
    }

    /// `value` is as printed: quoted if it is a string, JSON otherwise.
    pub fn invalid(field: &str, value: impl fmt::Display, detail: impl fmt::Display) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {value}: {detail}"))
    }

    /// `value` is as printed: quoted if it is a string, JSON otherwise.
    pub fn not_supported(field: &str, value: impl fmt::Display, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|value| go_quote(value)).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        Self::new("FieldValueNotSupported", field, message)
    }

    pub fn too_long(field: &str, bytes: usize) -> Self {
        Self::new("FieldValueTooLong", field, format!("Too long: may not be more than {bytes} bytes"))
    }

    fn new(reason: &'static str, field: &str, message: String) -> Self {
        Self { reason, field: field.to_owned(), message }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl Refusal {
    /// Ok when there is nothing to complain about, else 422 for the options kind named `kind`.
    pub(super) fn unless_valid(kind: &'static str, causes: Vec<Cause>) -> Result<(), Self> {
        if causes.is_empty() {
            Ok(())
        } else {
            Err(Self::Invalid { group: "meta.k8s.io", kind, name: String::new(), causes })
        }
    }

    /// 403 about a resource, or about no resource when `resource` is empty (a path).
    pub fn forbidden(group: &str, resource: &str, name: &str, why: impl fmt::Display) -> Self {
        let message = if resource.is_empty() {
            format!("forbidden: {why}")
        } else {
            format!("{} is forbidden: {why}", named(group, resource, name))
        };
        Self::Forbidden { group: group.into(), resource: resource.into(), name: name.into(), message }
    }

    pub fn code(&self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::Unauthorized => 401,
            Self::Forbidden { .. } => 403,
            Self::NotFound { .. } => 404,
            Self::NotAcceptable(_) | Self::NoRepresentation(_) => 406,
            Self::Conflict { .. } => 409,
            Self::BodyTooLarge | Self::TooManyValues => 413,
            Self::PathTooLong => 414,
            Self::UnsupportedMediaType(_) | Self::NoPatchType => 415,
            Self::Invalid { .. } => 422,
            Self::HeadersTooLarge => 431,
            Self::Internal(_) => 500,
        }
    }

    /// The machine-readable reason; empty where a Status carries none.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "BadRequest",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden { .. } => "Forbidden",
            Self::NotFound { .. } => "NotFound",
            Self::NotAcceptable(_) | Self::NoRepresentation(_) => "NotAcceptable",
            Self::Conflict { .. } => "Conflict",
            Self::BodyTooLarge | Self::TooManyValues => "RequestEntityTooLarge",
            Self::UnsupportedMediaType(_) | Self::NoPatchType => "UnsupportedMediaType",
            Self::Invalid { .. } => "Invalid",
            Self::PathTooLong | Self::HeadersTooLarge | Self::Internal(_) => "",
        }
    }

    pub fn details(&self) -> Option<Details> {
        match self {
            Self::Forbidden { group, resource, name, .. }
            | Self::NotFound { group, resource, name }
            | Self::Conflict { group, resource, name, .. } => {
                Some(Details { group: group.clone(), kind: resource.clone(), name: name.clone(), causes: Vec::new() })
            }
            Self::NoRepresentation(_) | Self::NoPatchType => Some(Details::default()),
            Self::Invalid { group, kind, name, causes } => Some(Details {
                group: (*group).into(),
                kind: (*kind).into(),
                name: name.clone(),
                causes: causes.clone(),
            }),
            Self::BadRequest(_)
            | Self::Unauthorized
            | Self::NotAcceptable(_)
            | Self::BodyTooLarge
            | Self::TooManyValues
            | Self::PathTooLong
            | Self::UnsupportedMediaType(_)
            | Self::HeadersTooLarge
            | Self::Internal(_) => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRequest(message)
            | Self::NotAcceptable(message)
            | Self::NoRepresentation(message)
            | Self::UnsupportedMediaType(message)
            | Self::Internal(message)
            | Self::Forbidden { message, .. } => f.write_str(message),
            Self::Unauthorized => f.write_str("Unauthorized"),
            Self::NotFound { group, resource, name } => write!(f, "{} not found", named(group, resource, name)),
            Self::Conflict { group, resource, name, why } => {
                write!(f, "Operation cannot be fulfilled on {}: {why}", named(group, resource, name))
            }
            Self::BodyTooLarge => write!(f, "Request entity too large: limit is {}", super::MAX_BODY_BYTES),
            Self::TooManyValues => {
                write!(f, "Request entity too large: more than {} values in one body", super::MAX_BODY_VALUES)
            }
            Self::PathTooLong => f.write_str("the path or query of the request is too long"),
            Self::HeadersTooLarge => f.write_str("the header fields of the request are too many or too large"),
            Self::NoPatchType => f.write_str("415: Unsupported Media Type"),
            Self::Invalid { group, kind, name, causes } => {
                let causes = aggregate(causes.iter().map(ToString::to_string));
                write!(f, "{kind}.{group} {} is invalid: {causes}", go_quote(name))
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// `resource.group "name"`, without the parts that are empty.
fn named(group: &str, resource: &str, name: &str) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    if name.is_empty() {
        format!("{resource}{dot}{group}")
    } else {
        format!("{resource}{dot}{group} {}", go_quote(name))
    }
}

/// One text as it is, several in brackets; a repeated text once.
pub(crate) fn aggregate(texts: impl IntoIterator<Item = String>) -> String {
    let mut seen: Vec<String> = Vec::new();
    for text in texts {
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    if seen.len() == 1 { seen.swap_remove(0) } else { format!("[{}]", seen.join(", ")) }
}
