//! A request that failed, whoever refused it: the parser, admission, validation or the store.

use serde_json::{Value, json};

use crate::request::Refusal;
use crate::status::ApiError;
use crate::store::CommitError;

/// The Status that tells a client why, ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) status: Box<Value>,
    /// Seconds for the `Retry-After` header.
    pub(crate) retry_after: Option<u32>,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// What went wrong, for logs.
    pub(crate) fn message(&self) -> &str {
        self.status["message"].as_str().unwrap_or_default()
    }

    /// A list whose history is gone, with the token that continues at the newest state.
    pub(crate) fn expired_page(message: &str, token: &str) -> Self {
        let mut failure = Self::from(ApiError::expired(message));
        failure.status["metadata"] = json!({"continue": token});
        failure
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let retry_after = error.details.as_ref().map(|details| details.retry_after_seconds).filter(|after| *after > 0);
        Self { code: error.code, status: Box::new(error.to_json()), retry_after }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let code = refusal.code();
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": refusal.to_string(), "code": code,
        });
        if !refusal.reason().is_empty() {
            status["reason"] = refusal.reason().into();
        }
        if let Some(details) = refusal.details() {
            let causes: Vec<Value> = details
                .causes
                .iter()
                .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
                .collect();
            let mut shown = json!({"name": details.name, "group": details.group, "kind": details.kind});
            if let Some(fields) = shown.as_object_mut() {
                fields.retain(|_, text| text != "");
            }
            if !causes.is_empty() {
                shown["causes"] = causes.into();
            }
            status["details"] = shown;
        }
        Self { code, status: Box::new(status), retry_after: None }
    }
}

/// Only for errors that no retry can cure; the verbs handle the conditional ones themselves.
impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::NoSpace { .. } => ApiError::no_space(error.to_string()).into(),
            _ => ApiError::internal(error.to_string()).into(),
        }
    }
}
