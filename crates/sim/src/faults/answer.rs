//! Answers that the server did not give.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::{Action, Refusal};

/// What somebody says who is not the API server.
const GATEWAY: &str = "<html>not what you asked for</html>";

impl Refusal {
    const fn parts(self) -> (StatusCode, &'static str, &'static str, Option<u64>) {
        match self {
            Self::Conflict => (StatusCode::CONFLICT, "Conflict", "the object has been modified", None),
            Self::TooManyRequests { seconds } => {
                (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "too many requests, try again later", Some(seconds))
            }
            Self::Unavailable { seconds } => {
                (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "the server is not ready", Some(seconds))
            }
            Self::Gone => (StatusCode::GONE, "Expired", "the requested history is gone", None),
            Self::InternalError => {
                (StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "etcdserver: request is too large", None)
            }
            Self::BadGateway => (StatusCode::BAD_GATEWAY, "", GATEWAY, None),
            Self::Garbled => (StatusCode::OK, "", GATEWAY, None),
        }
    }

    fn status(self) -> Value {
        let (code, reason, message, seconds) = self.parts();
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code.as_u16(),
        });
        if let Some(seconds) = seconds {
            status["details"] = json!({"retryAfterSeconds": seconds});
        }
        status
    }

    /// The answer as the server would give it to this kind of request.
    pub(super) fn answer(self, action: Action) -> Response<apiserver::http::Body> {
        let status = self.status();
        let (code, _, _, seconds) = self.parts();
        // The server has accepted a watch before it finds that its history is gone.
        let (code, text) = match (self, action) {
            (Self::Gone, Action::Watch) => {
                (StatusCode::OK, format!("{}\n", json!({"type": "ERROR", "object": status})))
            }
            (Self::BadGateway | Self::Garbled, _) => (code, format!("{GATEWAY}\n")),
            _ => (code, status.to_string()),
        };
        let mut response = Response::new(text.into());
        *response.status_mut() = code;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = seconds {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
