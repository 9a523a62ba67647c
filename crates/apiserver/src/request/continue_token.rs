//! The opaque `continue` of a paged list: where the next page starts, and in which state of the store.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::Refusal;
use super::go_text::go_quote;

const VERSION: &str = "meta.k8s.io/v1";

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinueToken {
    pub at: ContinueAt,
    /// The first key that is still wanted, relative to what is listed and without a leading slash: `name` in one
    /// namespace, `namespace/name` over all. [`ContinueToken::after`] builds it from the last key that was sent.
    pub start: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContinueAt {
    /// The state that the first page showed.
    Revision(u64),
    /// The first page's state is gone and the client was offered the newest one instead.
    Newest,
}

impl ContinueToken {
    /// Goes on after `last`, a key relative to what is listed.
    pub fn after(at: ContinueAt, last: &str) -> Self {
        Self { at, start: format!("{last}\0") }
    }

    pub fn encode(&self) -> String {
        let (revision, slash) = match self.at {
            ContinueAt::Revision(revision) => (revision.to_string(), "/"),
            ContinueAt::Newest => ("-1".to_owned(), ""),
        };
        let start = Value::String(format!("{slash}{}", self.start));
        URL_SAFE_NO_PAD.encode(format!(r#"{{"v":"{VERSION}","rv":{revision},"start":{start}}}"#))
    }

    /// Refuses anything that could point outside what is listed.
    pub fn decode(token: &str) -> Result<Self, Refusal> {
        let invalid =
            |why: &str| Refusal::BadRequest(format!("invalid continue token: continue key is not valid{why}"));
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid(": illegal base64 data"))?;
        let json: Value = serde_json::from_slice(&bytes).map_err(|_| invalid(": not the JSON that was sent"))?;
        let version = json["v"].as_str().unwrap_or_default();
        if version != VERSION {
            return Err(invalid(&format!(": server does not recognize this encoded version {version}")));
        }
        let at = match &json["rv"] {
            Value::Number(number) if number.as_i64().is_some_and(|revision| revision < 0) => ContinueAt::Newest,
            Value::Number(number) if number.as_u64().is_some_and(|revision| revision > 0) => {
                ContinueAt::Revision(number.as_u64().unwrap_or_default())
            }
            _ => return Err(invalid(&format!(": incorrect encoded start resourceVersion (version {VERSION})"))),
        };
        let start = json["start"].as_str().unwrap_or_default();
        if start.is_empty() {
            return Err(invalid(&format!(": encoded start key empty (version {VERSION})")));
        }
        let relative = start.strip_prefix('/').unwrap_or(start);
        if relative.is_empty() || relative.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(invalid(&format!(": {}", go_quote(start))));
        }
        Ok(Self { at, start: relative.to_owned() })
    }
}
