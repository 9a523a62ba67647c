//! What a refused request answers: the Kubernetes `Status` object, one constructor per failure class. Clients decide by
//! `reason` and `code`, people read `message`, and kubectl prints `details.causes`; all four are part of the contract.

mod errors;
mod field;
#[cfg(test)]
mod tests;

pub use errors::FieldErrors;
pub use field::{FieldError, FieldErrorKind, quote};

use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fmt;

use errors::{MOST_ERROR_BYTES, MOST_ERRORS};

/// A resource as error texts name it: `persistentvolumeclaims` or `volumeattachments.storage.k8s.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource<'a> {
    pub group: &'a str,
    /// The plural for most failures, the kind for validation and delete preconditions.
    pub name: &'a str,
}

impl<'a> Resource<'a> {
    pub const fn new(group: &'a str, name: &'a str) -> Self {
        Self { group, name }
    }
}

/// The first errors, as many as are told; the first one always.
fn readable(errors: &[FieldError]) -> &[FieldError] {
    let mut bytes = 0;
    let fits = |error: &&FieldError| {
        let first = bytes == 0;
        bytes += error.size();
        first || bytes <= MOST_ERROR_BYTES
    };
    let count = errors.iter().take(MOST_ERRORS).take_while(fits).count();
    &errors[..count]
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// A failed request, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub code: u16,
    pub reason: Reason,
    pub message: String,
    pub details: Option<Box<Details>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    pub name: String,
    pub group: String,
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

/// The machine-readable class of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No `reason` key at all: some internal errors of the reference have none.
    None,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    AlreadyExists,
    Conflict,
    Expired,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    Invalid,
    BadRequest,
    TooManyRequests,
    InternalError,
    InsufficientStorage,
    Timeout,
    ServiceUnavailable,
}

impl Reason {
    /// The word on the wire; empty for [`Reason::None`].
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Expired => "Expired",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::Invalid => "Invalid",
            Self::BadRequest => "BadRequest",
            Self::TooManyRequests => "TooManyRequests",
            Self::InternalError => "InternalError",
            Self::InsufficientStorage => "InsufficientStorage",
            Self::Timeout => "Timeout",
            Self::ServiceUnavailable => "ServiceUnavailable",
        }
    }
}

impl ApiError {
    fn plain(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    fn about(code: u16, reason: Reason, resource: Resource<'_>, name: &str, message: String) -> Self {
        let details = Details {
            name: name.into(),
            group: resource.group.into(),
            kind: resource.name.into(),
            ..Details::default()
        };
        Self { code, reason, message, details: Some(Box::new(details)) }
    }

    /// Adds a cause; `details` appears if it was absent.
    #[must_use]
    pub fn with_cause(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
        let cause = Cause { reason: reason.into(), message: message.into(), field: field.into() };
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    /// Tells the client when to try again; also what the `Retry-After` header says.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    pub fn unauthorized() -> Self {
        Self::plain(401, Reason::Unauthorized, "Unauthorized")
    }

    /// Refused by authorization or admission. An empty `name` is left out of the text.
    pub fn forbidden(resource: Resource<'_>, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {} is forbidden: {why}", quote(name))
        };
        Self::about(403, Reason::Forbidden, resource, name, message)
    }

    /// Refused by authorization on a path that is no resource.
    pub fn forbidden_path(why: &str) -> Self {
        Self::about(403, Reason::Forbidden, Resource::new("", ""), "", format!("forbidden: {why}"))
    }

    pub fn not_found(resource: Resource<'_>, name: &str) -> Self {
        Self::about(404, Reason::NotFound, resource, name, format!("{resource} {} not found", quote(name)))
    }

    /// The resource, version or subresource itself is not served.
    pub fn unknown_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::about(404, Reason::NotFound, Resource::new("", ""), "", message.into())
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::about(405, Reason::MethodNotAllowed, Resource::new("", ""), "", message.into())
    }

    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::plain(406, Reason::NotAcceptable, message)
    }

    pub fn already_exists(resource: Resource<'_>, name: &str) -> Self {
        let message = format!("{resource} {} already exists", quote(name));
        Self::about(409, Reason::AlreadyExists, resource, name, message)
    }

    /// As [`ApiError::already_exists`], when the one that exists is on its way out.
    pub fn being_deleted(resource: Resource<'_>, name: &str) -> Self {
        let mut error = Self::already_exists(resource, name);
        error.message.insert_str(0, "object is being deleted: ");
        error
    }

    /// Every generated name collided.
    pub fn names_exhausted(resource: Resource<'_>, name: &str) -> Self {
        let mut error = Self::already_exists(resource, name).retry_after(1);
        error.message.push_str(", the server was not able to generate a unique name for the object");
        error
    }

    pub fn conflict(resource: Resource<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", quote(name));
        Self::about(409, Reason::Conflict, resource, name, message)
    }

    /// Somebody else wrote first.
    pub fn modified(resource: Resource<'_>, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// A PUT named another uid. `key` is where the object is stored.
    pub fn wrong_uid(resource: Resource<'_>, name: &str, key: &str, uids: Mismatch<'_>) -> Self {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
             failed: UID in precondition: {}, UID in object meta: {}",
            uids.wanted, uids.stored
        );
        Self::conflict(resource, name, &why)
    }

    /// A DELETE named another uid; `kind` is the Kind, not the plural.
    pub fn delete_wrong_uid(kind: Resource<'_>, name: &str, uids: Mismatch<'_>) -> Self {
        let why = format!(
            "the UID in the precondition ({}) does not match the UID in record ({}). The object might have been deleted \
             and then recreated",
            uids.wanted, uids.stored
        );
        Self::conflict(kind, name, &why)
    }

    /// A DELETE named another resourceVersion; `kind` is the Kind, not the plural.
    pub fn delete_wrong_version(kind: Resource<'_>, name: &str, versions: Mismatch<'_>) -> Self {
        let why = format!(
            "the ResourceVersion in the precondition ({}) does not match the ResourceVersion in record ({}). The object \
             might have been modified",
            versions.wanted, versions.stored
        );
        Self::conflict(kind, name, &why)
    }

    /// Apply found fields owned by others; the causes name them.
    pub fn apply_conflict(message: impl Into<String>, causes: Vec<Cause>) -> Self {
        let details = Details { causes, ..Details::default() };
        Self { code: 409, reason: Reason::Conflict, message: message.into(), details: Some(Box::new(details)) }
    }

    /// A list token or a watch start that compaction has passed.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::plain(410, Reason::Expired, message)
    }

    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::plain(413, Reason::RequestEntityTooLarge, message)
    }

    /// `accepted` are the media types the endpoint reads.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::plain(415, Reason::UnsupportedMediaType, message)
    }

    /// Validation failed. `kind` is the Kind, such as `PersistentVolumeClaim`; the message says each problem once, the
    /// causes say every problem as often as it was found.
    pub fn invalid(kind: Resource<'_>, name: &str, errors: &[FieldError]) -> Self {
        let errors = readable(errors);
        let mut said = BTreeSet::new();
        let mut texts: Vec<String> = Vec::new();
        for error in errors {
            let text = error.to_string();
            if said.insert(text.clone()) {
                texts.push(text);
            }
        }
        let head = format!("{kind} {} is invalid", quote(name));
        let message = match texts.as_slice() {
            [] => head,
            [one] => format!("{head}: {one}"),
            several => format!("{head}: [{}]", several.join(", ")),
        };
        let mut status = Self::about(422, Reason::Invalid, kind, name, message);
        for error in errors {
            status = status.with_cause(error.kind.reason(), error.body(), &error.field);
        }
        status
    }

    /// The query options of a request are wrong; `options` is such as `CreateOptions`.
    pub fn invalid_options(options: &str, errors: &[FieldError]) -> Self {
        Self::invalid(Resource::new("meta.k8s.io", options), "", errors)
    }

    /// A PUT without resourceVersion on a kind that insists on one: the text names the resource, not the kind.
    pub fn version_required(resource: Resource<'_>, name: &str) -> Self {
        let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
        Self::invalid(resource, name, &[error])
    }

    /// A JSON patch that does not apply.
    pub fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::about(422, Reason::Invalid, Resource::new("", ""), "", message.into())
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(400, Reason::BadRequest, message)
    }

    /// A failure of the server itself whose text is shown as it is.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::plain(500, Reason::InternalError, message)
    }

    /// The disk of the server's data is full. Other Kubernetes servers have no such answer; the code is HTTP's own for it.
    pub fn no_space(message: impl Into<String>) -> Self {
        Self::plain(507, Reason::InsufficientStorage, message)
    }

    /// The internal errors that carry no reason.
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self::plain(500, Reason::None, message)
    }

    /// `metadata.resourceVersion` was set on a create.
    pub fn version_on_create() -> Self {
        Self::unclassified("resourceVersion should not be set on objects to be created")
    }

    pub fn too_many_requests(message: impl Into<String>) -> Self {
        Self::plain(429, Reason::TooManyRequests, message).retry_after(1)
    }

    pub fn timeout(message: impl fmt::Display) -> Self {
        Self::plain(504, Reason::Timeout, format!("Timeout: {message}"))
    }

    /// A resourceVersion that is not reached yet.
    pub fn version_too_large(wanted: u64, current: u64) -> Self {
        Self::timeout(format_args!("Too large resource version: {wanted}, current: {current}"))
            .with_cause("ResourceVersionTooLarge", "Too large resource version", "")
            .retry_after(1)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::plain(503, Reason::ServiceUnavailable, message)
    }

    pub fn to_json(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if self.reason != Reason::None {
            status["reason"] = self.reason.as_str().into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_json();
        }
        status
    }
}

impl Details {
    fn to_json(&self) -> Value {
        let mut details = Map::new();
        let texts = [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)];
        for (key, text) in texts {
            if !text.is_empty() {
                details.insert(key.into(), text.as_str().into());
            }
        }
        if !self.causes.is_empty() {
            details.insert("causes".into(), self.causes.iter().map(Cause::to_json).collect());
        }
        if self.retry_after_seconds > 0 {
            details.insert("retryAfterSeconds".into(), self.retry_after_seconds.into());
        }
        details.into()
    }
}

impl Cause {
    fn to_json(&self) -> Value {
        let mut cause = Map::new();
        for (key, text) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                cause.insert(key.into(), text.as_str().into());
            }
        }
        cause.into()
    }
}

/// One line, as clients that read errors line by line need it.
impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_json())
    }
}

impl std::error::Error for ApiError {}

/// The answer of a DELETE that removed an object of a kind that does not echo it.
pub fn deleted(resource: Resource<'_>, name: &str, uid: &str) -> Value {
    let details = Details {
        name: name.into(),
        group: resource.group.into(),
        kind: resource.name.into(),
        uid: uid.into(),
        ..Details::default()
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details.to_json(),
    })
}

/// What a precondition asked for and what is stored.
#[derive(Debug, Clone, Copy)]
pub struct Mismatch<'a> {
    pub wanted: &'a str,
    pub stored: &'a str,
}
