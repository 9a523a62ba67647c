//! Service account tokens for drivers that want them (NODE-11).
//!
//! A token is used until a fifth of its time is left or it is a day old, both a few seconds early by chance; a token that
//! cannot be renewed is used until it has run out. No token is ever printed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use api::csi::{CsiDriverSpec, TokenRequest};
use api::{Key, Kind, Scope, Uid};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use runtime::client::Error;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Agent;
use crate::pods::LocalPod;

const SERVICE_ACCOUNT: Kind = Kind::core("serviceaccounts", "ServiceAccount", Scope::Namespaced);
/// A token older than this is renewed, however long it would last.
const OLDEST: SignedDuration = SignedDuration::from_hours(24);
/// How much earlier by chance, so that not all are renewed at once.
const JITTER_SECONDS: f64 = 10.0;

/// Tokens that were given, by whom they are for.
#[derive(Default)]
pub(crate) struct Tokens(Mutex<BTreeMap<Whose, Token>>);

impl Tokens {
    /// A pod is gone: however long its tokens would last, nobody asks for them again.
    pub(crate) fn forget(&self, pod: &Uid) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|whose, _| whose.pod != *pod);
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Whose {
    account: Key,
    audience: Box<str>,
    expiry: Option<i64>,
    pod: Uid,
}

#[derive(Clone)]
struct Token {
    text: String,
    /// As the server wrote it.
    expires_text: String,
    given: Timestamp,
    expires: Timestamp,
}

impl Token {
    fn is_fresh(&self, now: Timestamp, early: SignedDuration) -> bool {
        let life = self.expires.duration_since(self.given);
        let age = now.duration_since(self.given) + early;
        age < OLDEST && age < life - life / 5
    }
}

/// The answer. It has no `Debug` on purpose.
#[derive(Deserialize)]
struct Answer {
    status: AnswerStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerStatus {
    token: String,
    expiration_timestamp: String,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("a token of the service account {account} could not be had: {error}")]
    Refused { account: Key, error: Error },
    #[error("the server gave a token with the end {text:?}, which is no time")]
    BadTime { text: String },
}

impl Agent {
    /// The tokens that a driver wants for a pod, as one JSON text. `None` if it wants none.
    pub(crate) async fn service_account_tokens(
        &self,
        pod: &LocalPod,
        driver: &CsiDriverSpec,
    ) -> Result<Option<String>, TokenError> {
        let requests = driver.token_requests.as_deref().unwrap_or_default();
        if requests.is_empty() {
            return Ok(None);
        }
        let mut tokens = BTreeMap::<String, Value>::new();
        for request in requests {
            let token = self.token(pod, request).await?;
            let shown = json!({"token": token.text, "expirationTimestamp": token.expires_text});
            tokens.insert(request.audience.to_string(), shown);
        }
        Ok(Some(json!(tokens).to_string()))
    }

    async fn token(&self, pod: &LocalPod, request: &TokenRequest) -> Result<Token, TokenError> {
        let whose = Whose {
            account: Key::namespaced(pod.namespace(), &pod.service_account),
            audience: request.audience.clone(),
            expiry: request.expiration_seconds,
            pod: pod.uid().clone(),
        };
        let now = self.context.clock.now();
        let held = self.tokens.0.lock().unwrap_or_else(PoisonError::into_inner).get(&whose).cloned();
        let early = SignedDuration::from_secs_f64(self.context.entropy.fraction() * JITTER_SECONDS);
        if let Some(token) = held.clone().filter(|token| token.is_fresh(now, early)) {
            return Ok(token);
        }
        match self.request_token(&whose, pod, now).await {
            Ok(token) => {
                let mut tokens = self.tokens.0.lock().unwrap_or_else(PoisonError::into_inner);
                // What has run out is of no use to anybody.
                tokens.retain(|_, held| held.expires > now);
                tokens.insert(whose, token.clone());
                Ok(token)
            }
            Err(error) => held.filter(|token| token.expires > now).ok_or(error),
        }
    }

    async fn request_token(&self, whose: &Whose, pod: &LocalPod, now: Timestamp) -> Result<Token, TokenError> {
        let audiences: Vec<&str> = Some(&*whose.audience).filter(|audience| !audience.is_empty()).into_iter().collect();
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {
                "audiences": audiences,
                "expirationSeconds": whose.expiry,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name(), "uid": pod.uid().as_str()},
            },
        });
        let answer: Answer = self
            .context
            .client
            .request_part(SERVICE_ACCOUNT, &whose.account, "token", &body)
            .await
            .map_err(|error| TokenError::Refused { account: whose.account.clone(), error })?;
        let AnswerStatus { token, expiration_timestamp } = answer.status;
        match expiration_timestamp.parse::<Timestamp>() {
            Ok(expires) => Ok(Token { text: token, expires_text: expiration_timestamp, given: now, expires }),
            Err(_) => Err(TokenError::BadTime { text: expiration_timestamp }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(seconds: i64) -> Token {
        let given = Timestamp::from_second(1_000_000).unwrap();
        let expires = given + SignedDuration::from_secs(seconds);
        Token { text: "t".into(), expires_text: String::new(), given, expires }
    }

    /// Rule: NODE-11
    #[test]
    fn a_token_is_renewed_when_a_fifth_of_its_time_is_left() {
        let token = token(1000);
        let after = |seconds: i64| token.given + SignedDuration::from_secs(seconds);
        assert!(token.is_fresh(after(799), SignedDuration::ZERO));
        assert!(!token.is_fresh(after(800), SignedDuration::ZERO));
        assert!(!token.is_fresh(after(795), SignedDuration::from_secs(10)), "some are renewed early");
    }

    /// Rule: NODE-11
    #[test]
    fn a_token_is_renewed_after_a_day_however_long_it_lasts() {
        let token = token(365 * 86_400);
        let after = |hours: i64| token.given + SignedDuration::from_hours(hours);
        assert!(token.is_fresh(after(23), SignedDuration::ZERO) && !token.is_fresh(after(24), SignedDuration::ZERO));
    }
}
