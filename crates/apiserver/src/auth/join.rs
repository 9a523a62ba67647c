//! Join tokens: what lets a machine in that has no certificate yet.
//!
//! In print a token is `ID.SECRET.HASH`: the id names the record at the server, the secret proves that its holder was given
//! the token, and the hash is that of the key of the server's authority, so that the holder knows the server, too. The
//! hash is not sent. The record is a Secret that holds the secret's SHA-256 and never the secret.
//!
//! # Invariants
//! 1. A token lets one machine in, known by its key: the same machine may ask again, since the answer may have been lost.
//! 2. What is wrong with a token is told only to who has its secret. Everybody else hears that it is not known.
//! 3. Deciding is pure: the record and the time are arguments.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Value, json};
use thiserror::Error;

use super::signing::KeyHash;
use super::token_request::timestamp;
use super::{PkiError, UnixSeconds};
use crate::keys::{JOIN_TOKEN, REVOKED_KEY};
use crate::kinds::time::Timestamp;

/// Where the records are.
pub const TOKEN_NAMESPACE: &str = "kube-system";
const RECORD_PREFIX: &str = "join-token-";

const REVOKED_PREFIX: &str = "revoked-key-";

/// So many tokens are made in a minute at most.
const TOKENS_A_MINUTE: usize = 30;

/// Five bits each.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const ID_LETTERS: usize = 8;
/// 160 bits.
const SECRET_LETTERS: usize = 32;

/// A join token with its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    id: String,
    secret: String,
    authority: KeyHash,
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinToken").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Why a text is no token. The text itself may be a secret, and is not repeated.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum JoinTokenError {
    #[error("it is not of the form ID.SECRET.HASH: copy all of what `orlop token create` printed")]
    Form,
    #[error(
        "its hash, the part after the last dot, is not 64 hexadecimal digits: copy all of what `orlop token create` printed"
    )]
    Hash,
}

/// What a token is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    pub expires: UnixSeconds,
    /// The only name that it lets in.
    pub node: Option<String>,
}

impl JoinToken {
    pub fn new(authority: KeyHash) -> Result<Self, PkiError> {
        let mut bytes = [0_u8; ID_LETTERS + SECRET_LETTERS];
        SystemRandom::new().fill(&mut bytes).map_err(|_| PkiError::Random)?;
        let letters: String = bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect();
        let (id, secret) = letters.split_at(ID_LETTERS);
        Ok(Self { id: id.to_owned(), secret: secret.to_owned(), authority })
    }

    /// From what [`JoinToken::reveal`] gave.
    pub fn parse(text: &str) -> Result<Self, JoinTokenError> {
        let mut parts = text.trim().splitn(3, '.');
        let (Some(id), Some(secret), Some(hash)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(JoinTokenError::Form);
        };
        if !is_part(id, ID_LETTERS) || !is_part(secret, SECRET_LETTERS) {
            return Err(JoinTokenError::Form);
        }
        let authority = KeyHash::parse(hash).ok_or(JoinTokenError::Hash)?;
        Ok(Self { id: id.to_owned(), secret: secret.to_owned(), authority })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// The key of the authority that the server must have.
    pub fn authority(&self) -> KeyHash {
        self.authority
    }

    /// All of it; a secret.
    pub fn reveal(&self) -> String {
        format!("{}.{}.{}", self.id, self.secret, self.authority)
    }

    /// What is shown to the server; a secret.
    pub fn credential(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    /// The Secret that the server keeps of it.
    pub fn record(&self, terms: &Terms) -> Value {
        let mut data = json!({
            "token-id": self.id,
            "secret-sha256": hash(&self.secret),
            "expiration": timestamp(terms.expires.0),
        });
        if let Some(node) = &terms.node {
            data["node"] = node.as_str().into();
        }
        json!({"apiVersion": "v1", "kind": "Secret", "type": JOIN_TOKEN, "stringData": data,
            "metadata": {"name": token_record(&self.id), "namespace": TOKEN_NAMESPACE, "labels": {JOIN_TOKEN: "true"}}})
    }
}

fn is_part(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|letter| LETTERS.contains(&letter))
}

fn hash(secret: &str) -> String {
    digest(&SHA256, secret.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of the record of a token.
pub fn token_record(id: &str) -> String {
    format!("{RECORD_PREFIX}{id}")
}

/// The name of the ConfigMap that says that a key is let in no more, in the namespace of the tokens.
pub fn revocation_name(key: &str) -> String {
    format!("{REVOKED_PREFIX}{key}")
}

/// The ConfigMap that says that the key of a machine is let in no more, under any name and with any token.
pub fn revocation(key: &str, node: &str, now: UnixSeconds) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": revocation_name(key), "namespace": TOKEN_NAMESPACE, "labels": {REVOKED_KEY: "true"}},
        "data": {"key": key, "node": node, "revoked": timestamp(now.0)}})
}

/// The hash of the key with which a token was used.
pub fn token_key(record: &Value) -> Option<String> {
    value(record, "used-key")
}

/// Whether as many tokens were made in the last minute as may be. A record of the future is one of a clock that was
/// put back, and does not count.
pub(crate) fn too_many_tokens(secrets: &[Value], now: UnixSeconds) -> bool {
    let is_new = |record: &&Value| {
        let made = record["metadata"]["creationTimestamp"].as_str().and_then(Timestamp::parse);
        record["type"] == JOIN_TOKEN && made.is_some_and(|made| (now.0 - 59..=now.0).contains(&made.seconds()))
    };
    secrets.iter().filter(is_new).count() >= TOKENS_A_MINUTE
}

/// The id and the secret of a credential, if it has the form of one.
pub(crate) fn split_credential(credential: &str) -> Option<(&str, &str)> {
    let (id, secret) = credential.split_once('.')?;
    (is_part(id, ID_LETTERS) && is_part(secret, SECRET_LETTERS)).then_some((id, secret))
}

/// Whether both texts are the same. How long it takes does not depend on where they differ.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// What a record says of its token, for a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joining {
    pub id: String,
    pub terms: Terms,
    /// The machine that it let in.
    pub used_by: Option<String>,
}

/// Reads a record. `None` if it is none.
pub fn token_facts(record: &Value) -> Option<Joining> {
    let id = value(record, "token-id")?;
    let terms = Terms {
        expires: UnixSeconds(Timestamp::parse(&value(record, "expiration")?)?.seconds()),
        node: value(record, "node"),
    };
    Some(Joining { id, terms, used_by: value(record, "used-by") })
}

fn value(record: &Value, name: &str) -> Option<String> {
    let bytes = STANDARD.decode(record["data"][name].as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

/// Why a token lets nobody in.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum JoinRefusal {
    #[error("the token is not known here: make one on the server's machine with `orlop token create --data DIR`")]
    Unknown,
    #[error("the token expired at {0}: make another one on the server's machine with `orlop token create --data DIR`")]
    Expired(String),
    #[error("the token is for a machine named {0:?}: give --node-name {0}, or make another token")]
    OtherName(String),
    #[error(
        "the token was used by the machine {0:?} and is good for one machine: make another one with `orlop token create --data DIR`"
    )]
    Spent(String),
    #[error(
        "the machine {0:?} was taken out after it had used the token: make another one with `orlop token create --node {0}`"
    )]
    TakenOut(String),
}

/// Whether the holder of a credential may ask at all.
pub(crate) fn check_secret(record: Option<&Value>, secret: &str, now: UnixSeconds) -> Result<(), JoinRefusal> {
    let record = record.filter(|record| record["type"] == JOIN_TOKEN).ok_or(JoinRefusal::Unknown)?;
    let stored = value(record, "secret-sha256").ok_or(JoinRefusal::Unknown)?;
    if !same(&stored, &hash(secret)) {
        return Err(JoinRefusal::Unknown);
    }
    let expires = token_facts(record).ok_or(JoinRefusal::Unknown)?.terms.expires;
    if expires <= now {
        return Err(JoinRefusal::Expired(timestamp(expires.0)));
    }
    Ok(())
}

/// What letting a machine in does to its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    First,
    /// The answer was lost, and the same machine asks again.
    Again,
}

/// Whether a token that was checked lets this machine in.
pub(crate) fn check_machine(record: &Value, node: &str, key: &KeyHash) -> Result<Use, JoinRefusal> {
    let facts = token_facts(record).ok_or(JoinRefusal::Unknown)?;
    if let Some(only) = facts.terms.node.filter(|only| only != node) {
        return Err(JoinRefusal::OtherName(only));
    }
    match facts.used_by {
        None => Ok(Use::First),
        Some(by) if by == node && value(record, "used-key") == Some(key.to_string()) => Ok(Use::Again),
        Some(by) => Err(JoinRefusal::Spent(by)),
    }
}

/// Notes in a record which machine used its token.
pub(crate) fn note_use(record: &mut Value, node: &str, key: &KeyHash) {
    record["data"]["used-by"] = STANDARD.encode(node).into();
    record["data"]["used-key"] = STANDARD.encode(key.to_string()).into();
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1_700_000_000);

    fn authority() -> KeyHash {
        KeyHash::parse(&"0f".repeat(32)).expect("64 digits")
    }

    /// As the server stores it.
    fn stored(token: &JoinToken, terms: &Terms) -> Value {
        let mut record = token.record(terms);
        let given = record["stringData"].take();
        for (name, text) in given.as_object().expect("it has values") {
            record["data"][name] = STANDARD.encode(text.as_str().expect("a text")).into();
        }
        record
    }

    #[test]
    fn a_token_is_read_back_and_its_record_does_not_hold_it() {
        let token = JoinToken::new(authority()).expect("there is randomness");
        assert_eq!(JoinToken::parse(&format!(" {}\n", token.reveal())), Ok(token.clone()));
        let record = token.record(&Terms { expires: NOW, node: None }).to_string();
        assert!(!record.contains(&token.secret) && !format!("{token:?}").contains(&token.secret));
        assert_ne!(JoinToken::new(authority()).expect("there is randomness").secret, token.secret);
    }

    #[test]
    fn a_text_that_is_no_token_is_refused_with_what_to_do() {
        let token = JoinToken::new(authority()).expect("there is randomness").reveal();
        let (short, long) = (&token[..token.len() - 1], format!("{token}0"));
        for text in [short, &long] {
            assert_eq!(JoinToken::parse(text), Err(JoinTokenError::Hash));
        }
        for text in ["", "abc", "abcdef.0123456789abcdef", &token[1..]] {
            assert_eq!(JoinToken::parse(text), Err(JoinTokenError::Form), "{text}");
        }
    }

    #[test]
    fn only_who_has_the_secret_in_time_may_ask() {
        let token = JoinToken::new(authority()).expect("there is randomness");
        let record = stored(&token, &Terms { expires: UnixSeconds(NOW.0 + 60), node: None });
        let secret = token.secret.as_str();
        assert_eq!(check_secret(Some(&record), secret, NOW), Ok(()));
        assert_eq!(check_secret(None, secret, NOW), Err(JoinRefusal::Unknown));
        let wrong = "a".repeat(SECRET_LETTERS);
        assert_eq!(check_secret(Some(&record), &wrong, NOW), Err(JoinRefusal::Unknown));
        let late = UnixSeconds(NOW.0 + 60);
        assert!(matches!(check_secret(Some(&record), secret, late), Err(JoinRefusal::Expired(_))));
        assert_eq!(
            check_secret(Some(&record), &wrong, late),
            Err(JoinRefusal::Unknown),
            "nothing is told to a stranger"
        );
        let mut other = record.clone();
        other["type"] = "Opaque".into();
        assert_eq!(check_secret(Some(&other), secret, NOW), Err(JoinRefusal::Unknown));
    }

    #[test]
    fn a_token_lets_one_machine_in_however_often_it_asks() {
        let token = JoinToken::new(authority()).expect("there is randomness");
        let mut record = stored(&token, &Terms { expires: NOW, node: Some("b".to_owned()) });
        let (key, other) = (authority(), KeyHash::parse(&"aa".repeat(32)).expect("64 digits"));
        assert_eq!(check_machine(&record, "c", &key), Err(JoinRefusal::OtherName("b".to_owned())));
        assert_eq!(check_machine(&record, "b", &key), Ok(Use::First));
        note_use(&mut record, "b", &key);
        assert_eq!(check_machine(&record, "b", &key), Ok(Use::Again));
        assert_eq!(check_machine(&record, "b", &other), Err(JoinRefusal::Spent("b".to_owned())));
        assert_eq!(token_facts(&record).and_then(|facts| facts.used_by).as_deref(), Some("b"));
    }
}
