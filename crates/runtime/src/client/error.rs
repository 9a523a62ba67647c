//! What the API server's answer, or its absence, means.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

use super::Verb;

/// A cause of a refusal as the server lists it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default)]
pub struct Cause {
    /// The path of the field, empty if there is none.
    pub field: String,
    /// Such as `FieldValueInvalid`.
    pub reason: String,
    /// The sentence.
    pub message: String,
}

/// Why a request did not do what it asked, and what is known about the world now.
///
/// All variants but [`Error::Unknown`] and [`Error::Unreadable`] promise that a write did **not** happen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such object (or no such kind).
    #[error("not found: {message}")]
    NotFound {
        /// The server's sentence.
        message: String,
    },
    /// An object of that name exists.
    #[error("already exists: {message}")]
    AlreadyExists {
        /// The server's sentence.
        message: String,
    },
    /// The object has changed since it was read, or a precondition does not hold.
    #[error("conflict: {message}")]
    Conflict {
        /// The server's sentence.
        message: String,
    },
    /// The server will never take this.
    #[error("invalid: {message}")]
    Invalid {
        /// The server's sentence.
        message: String,
        /// The fields and what is wrong with them.
        causes: Vec<Cause>,
    },
    /// Our user may not do this, or admission refused it.
    #[error("forbidden: {message}")]
    Forbidden {
        /// The server's sentence.
        message: String,
    },
    /// The server does not know who we are.
    #[error("unauthorized: {message}; check the kubeconfig's credentials")]
    Unauthorized {
        /// The server's sentence.
        message: String,
    },
    /// The revision or page asked for is gone: list again.
    #[error("expired: {message}")]
    Expired {
        /// The server's sentence.
        message: String,
    },
    /// The server asks us to slow down, and kept asking.
    #[error("too many requests: {message}")]
    TooMany {
        /// How long the server asked us to wait.
        retry_after: Option<Duration>,
        /// The server's sentence.
        message: String,
    },
    /// The server cannot be reached or does not serve now. A write certainly did not happen.
    #[error("{doing}: the API server is unavailable: {message}")]
    Unavailable {
        /// What was asked.
        doing: String,
        /// How long the server asked us to wait.
        retry_after: Option<Duration>,
        /// What went wrong.
        message: String,
    },
    /// The answer to a write was lost. It may have happened, or may happen yet: read before deciding.
    #[error("{doing}: the answer was lost, the write may have happened: {message}")]
    Unknown {
        /// What was asked.
        doing: String,
        /// What went wrong.
        message: String,
    },
    /// The request succeeded, and the answer is not what it should be.
    #[error("{doing}: cannot read the answer: {source}")]
    Unreadable {
        /// What was asked.
        doing: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Any other refusal.
    #[error("refused with {code}: {message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// The server's sentence.
        message: String,
    },
}

impl Error {
    /// Whether the object was there and is not any more, or never was.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::NotFound { .. })
    }

    /// Whether somebody else was faster: read again and decide again.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict { .. })
    }

    /// Whether the truth has to be read before anything is decided: the object has changed, is gone or exists already, or the
    /// write may have happened.
    pub fn is_unsettled(&self) -> bool {
        self.is_conflict()
            || self.is_not_found()
            || self.may_have_happened()
            || matches!(self, Error::AlreadyExists { .. })
    }

    /// Whether a write may have happened although this is an error.
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Error::Unknown { .. } | Error::Unreadable { .. })
    }
}

/// The parts of a `Status` answer that matter.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) status: String,
    pub(super) message: String,
    pub(super) reason: String,
    pub(super) code: u16,
    pub(super) details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Details {
    causes: Option<Vec<Cause>>,
    retry_after_seconds: Option<u64>,
}

/// A refusal: the HTTP status and the body, if it is a `Status`.
pub(super) struct Refusal {
    pub(super) verb: Verb,
    pub(super) doing: String,
    pub(super) code: StatusCode,
    /// From the header.
    pub(super) retry_after: Option<Duration>,
    /// `None` if somebody answered who is not the API server, such as a proxy.
    pub(super) status: Option<Status>,
    pub(super) text: String,
}

impl Refusal {
    /// How long the server asks us to wait before the same request is welcome, if the request certainly had no effect.
    pub(super) fn wait(&self) -> Option<Duration> {
        let told = self.status.as_ref().and_then(|status| status.details.as_ref()?.retry_after_seconds);
        let told = self.retry_after.or(told.map(Duration::from_secs));
        match self.code {
            StatusCode::TOO_MANY_REQUESTS => Some(told.unwrap_or(Duration::from_secs(1))),
            // Of a proxy's 503 we do not know whether the server behind it got the request.
            StatusCode::SERVICE_UNAVAILABLE if self.status.is_some() || !self.verb.writes() => told,
            _ => None,
        }
    }

    pub(super) fn into_error(self) -> Error {
        let retry_after = self.wait();
        let answered = self.status.is_some();
        let status = self.status.unwrap_or_default();
        let message = if status.message.is_empty() { self.text } else { status.message };
        let doing = self.doing;
        match (self.code.as_u16(), status.reason.as_str()) {
            (404, _) => Error::NotFound { message },
            (409, "AlreadyExists") => Error::AlreadyExists { message },
            (409, _) => Error::Conflict { message },
            (422 | 400, _) => {
                let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
                Error::Invalid { message, causes }
            }
            (403, _) => Error::Forbidden { message },
            (401, _) => Error::Unauthorized { message },
            (410, _) => Error::Expired { message },
            (429, _) => Error::TooMany { retry_after, message },
            (503, _) if answered || !self.verb.writes() => Error::Unavailable { doing, retry_after, message },
            // A 500 is also how the server says that its store did not answer in time.
            (500..=599, _) if self.verb.writes() => Error::Unknown { doing, message },
            (500..=599, _) => Error::Unavailable { doing, retry_after, message },
            (code, _) => Error::Refused { code, message },
        }
    }
}

/// A `Status` that arrives inside a watch stream.
pub(super) fn from_watch(status: Status, doing: String) -> Error {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = status.message.clone();
    Refusal { verb: Verb::Watch, doing, code, retry_after: None, status: Some(status), text }.into_error()
}
