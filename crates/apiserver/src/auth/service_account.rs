//! Service-account tokens: JSON web tokens signed with ES256, checked on every use against the objects they name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use serde_json::{Value, json};
use thiserror::Error;

use super::{CREDENTIAL_ID, UnixSeconds, User, service_account_user};
use crate::kinds::read;
use crate::request::{go_quote, go_quote_list};
use crate::schema::time::{Precision, parse};

/// Clocks differ, and a deleted pod may still be saying goodbye.
const LEEWAY: i64 = 60;
/// The claim of tokens for pods on machines that joined.
const ON_MACHINE: &str = "orlop.dev/on-machine";
/// No token of ours is near this.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// What precedes an uncompressed P-256 point in a public key file; key ids are hashes over both.
const P256_KEY_HEADER: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// A signed token. It does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// The secret itself, for the one who asked for it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token([redacted])")
    }
}

/// Name and uid of an object that a token is tied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRef {
    pub name: String,
    /// Empty only for the node of a pod when the node is not known.
    pub uid: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub namespace: String,
    pub object: ObjectRef,
}

/// What a token dies with, beside its account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    Pod {
        pod: ObjectRef,
        /// Only told, unless it is a machine that joined.
        node: Option<ObjectRef>,
        /// Whether the node is a machine that joined: then the token dies with that machine's Node, too.
        on_machine: bool,
    },
    Secret(ObjectRef),
    Node(ObjectRef),
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    pub account: Account,
    pub bound: Option<Bound>,
    pub audiences: Vec<String>,
    pub issued: UnixSeconds,
    pub expires: UnixSeconds,
    /// When to remind the holder that the requested time is over.
    pub warn_after: Option<UnixSeconds>,
    /// A UUID of the caller's making.
    pub id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundKind {
    ServiceAccount,
    Pod,
    Secret,
    /// Has no namespace.
    Node,
}

/// Where tokens look up what they are tied to.
pub trait BoundObjects {
    /// The object as it is now; `namespace` is empty for nodes.
    fn find(&self, kind: BoundKind, namespace: &str, name: &str) -> Option<Arc<Value>>;
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum SignerError {
    #[error("the key for service-account tokens is not a P-256 key in PKCS#8")]
    Key,
    #[error("a token cannot be signed")]
    Sign,
}

/// Why a token is worth nothing. The texts are what TokenReview shows; none repeats the token.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TokenError {
    #[error("invalid bearer token")]
    NotOurs,
    #[error("invalid signature, no keys found")]
    UnknownKey,
    #[error("invalid signature")]
    Signature,
    #[error("token audiences {} is invalid for the target audiences {}", go_quote_list(.token), go_quote_list(.wanted))]
    Audience { token: Vec<String>, wanted: Vec<String> },
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYet,
    #[error("serviceaccounts {} not found", go_quote(.0))]
    NoAccount(String),
    #[error("{what} UID ({actual}) does not match {whose}claim ({claimed})")]
    Uid { what: &'static str, whose: &'static str, actual: String, claimed: String },
    #[error("service account {0} has been deleted")]
    AccountDeleted(String),
    #[error("service account token has been invalidated")]
    Invalidated,
}

/// Signs and checks tokens with one key, for one issuer.
pub struct TokenSigner {
    key: EcdsaKeyPair,
    key_id: String,
    issuer: String,
    random: SystemRandom,
}

impl fmt::Debug for TokenSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSigner")
            .field("key_id", &self.key_id)
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

impl TokenSigner {
    /// `issuer` is the server's URL; it is also the audience of tokens that ask for none.
    pub fn new(pkcs8: &[u8], issuer: &str) -> Result<Self, SignerError> {
        let random = SystemRandom::new();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random).map_err(|_| SignerError::Key)?;
        let public = [&P256_KEY_HEADER[..], key.public_key().as_ref()].concat();
        let key_id = URL_SAFE_NO_PAD.encode(digest(&SHA256, &public));
        Ok(Self { key, key_id, issuer: issuer.to_owned(), random })
    }

    /// With a key that nobody else has and that ends with the process.
    pub fn ephemeral(issuer: &str) -> Result<Self, SignerError> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        Self::new(key.map_err(|_| SignerError::Key)?.as_ref(), issuer)
    }

    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    pub fn sign(&self, claims: &Claims) -> Result<Token, SignerError> {
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let encoded = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let mut token = format!("{}.{}", encoded(&header), encoded(&claims.to_json(&self.issuer)));
        let signature = self.key.sign(&self.random, token.as_bytes()).map_err(|_| SignerError::Sign)?;
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(signature.as_ref()));
        Ok(Token(token))
    }

    /// Checks signature, audience, times and objects, in this order, and says who holds the token. `wanted` are the
    /// audiences of which one must be the token's; those are returned.
    pub fn verify(
        &self,
        token: &str,
        wanted: &[String],
        objects: &dyn BoundObjects,
        now: UnixSeconds,
    ) -> Result<(User, Vec<String>), TokenError> {
        let claims = self.read(token)?;
        let known: BTreeSet<&String> = wanted.iter().collect();
        let common: Vec<String> =
            claims.audiences.iter().filter(|audience| known.contains(audience)).cloned().collect();
        if common.is_empty() {
            return Err(TokenError::Audience { token: claims.audiences, wanted: wanted.to_vec() });
        }
        if now.0 > claims.expires.0.saturating_add(LEEWAY) {
            return Err(TokenError::Expired);
        }
        if now.0.saturating_add(LEEWAY) < claims.issued.0 {
            return Err(TokenError::NotYet);
        }
        claims.check_objects(objects, now)?;
        Ok((claims.user(), common))
    }

    /// Reads a token of ours whose signature is right.
    fn read(&self, token: &str) -> Result<Claims, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::NotOurs);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::NotOurs)?;
        let (header, payload) = signed.split_once('.').ok_or(TokenError::NotOurs)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::NotOurs);
        let json = |part: &str| serde_json::from_slice::<Value>(&decode(part)?).map_err(|_| TokenError::NotOurs);
        let (header, payload) = (json(header)?, json(payload)?);
        if payload["iss"] != self.issuer.as_str() || header["alg"] != "ES256" {
            return Err(TokenError::NotOurs);
        }
        if header.get("kid").is_some_and(|kid| *kid != self.key_id.as_str()) {
            return Err(TokenError::UnknownKey);
        }
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
            .verify(signed.as_bytes(), &decode(signature)?)
            .map_err(|_| TokenError::Signature)?;
        // Only this server signs with this key, so what does not parse now was made by an older one.
        Claims::from_json(&payload).ok_or(TokenError::NotOurs)
    }
}

impl Claims {
    fn to_json(&self, issuer: &str) -> Value {
        let reference = |object: &ObjectRef| {
            let mut json = json!({"name": object.name});
            if !object.uid.is_empty() {
                json["uid"] = object.uid.as_str().into();
            }
            json
        };
        let mut private =
            json!({"namespace": self.account.namespace, "serviceaccount": reference(&self.account.object)});
        match &self.bound {
            None => {}
            Some(Bound::Secret(secret)) => private["secret"] = reference(secret),
            Some(Bound::Node(node)) => private["node"] = reference(node),
            Some(Bound::Pod { pod, node, .. }) => {
                private["pod"] = reference(pod);
                if let Some(node) = node {
                    private["node"] = reference(node);
                }
            }
        }
        if let Some(moment) = self.warn_after {
            private["warnafter"] = moment.0.into();
        }
        let mut claims = json!({
            "iss": issuer,
            "sub": service_account_user(&self.account.namespace, &self.account.object.name),
            "aud": self.audiences,
            "exp": self.expires.0,
            "iat": self.issued.0,
            "nbf": self.issued.0,
            "jti": self.id,
            "kubernetes.io": private,
        });
        if matches!(self.bound, Some(Bound::Pod { on_machine: true, .. })) {
            claims[ON_MACHINE] = true.into();
        }
        claims
    }

    fn from_json(json: &Value) -> Option<Self> {
        let private = &json["kubernetes.io"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let reference = |value: &Value| {
            let name = value["name"].as_str()?.to_owned();
            Some(ObjectRef { name, uid: text(&value["uid"]) })
        };
        let (pod, node) = (reference(&private["pod"]), reference(&private["node"]));
        let bound = match (reference(&private["secret"]), pod, node) {
            (Some(secret), _, _) => Some(Bound::Secret(secret)),
            (None, Some(pod), node) => Some(Bound::Pod { pod, node, on_machine: json[ON_MACHINE] == true }),
            (None, None, Some(node)) => Some(Bound::Node(node)),
            (None, None, None) => None,
        };
        let audiences = json["aud"].as_array()?.iter().map(|audience| audience.as_str().map(str::to_owned));
        Some(Self {
            account: Account {
                namespace: private["namespace"].as_str()?.to_owned(),
                object: reference(&private["serviceaccount"])?,
            },
            bound,
            audiences: audiences.collect::<Option<_>>()?,
            issued: UnixSeconds(json["nbf"].as_i64()?),
            expires: UnixSeconds(json["exp"].as_i64()?),
            warn_after: private["warnafter"].as_i64().map(UnixSeconds),
            id: text(&json["jti"]),
        })
    }

    fn check_objects(&self, objects: &dyn BoundObjects, now: UnixSeconds) -> Result<(), TokenError> {
        let namespace = &self.account.namespace;
        let ObjectRef { name, uid } = &self.account.object;
        let account = objects
            .find(BoundKind::ServiceAccount, namespace, name)
            .ok_or_else(|| TokenError::NoAccount(name.clone()))?;
        check_uid(&account, uid, ("service account", ""))?;
        if is_gone(&account, now) {
            return Err(TokenError::AccountDeleted(format!("{namespace}/{name}")));
        }
        let (kind, namespace, reference, names) = match &self.bound {
            None => return Ok(()),
            Some(Bound::Pod { pod, .. }) => {
                (BoundKind::Pod, namespace.as_str(), pod, ("pod", "service account pod ref "))
            }
            Some(Bound::Secret(secret)) => {
                (BoundKind::Secret, namespace.as_str(), secret, ("secret", "service account secret ref "))
            }
            Some(Bound::Node(node)) => (BoundKind::Node, "", node, ("node", "service account node ref ")),
        };
        let object = objects.find(kind, namespace, &reference.name).ok_or(TokenError::Invalidated)?;
        check_uid(&object, &reference.uid, names)?;
        if is_gone(&object, now) {
            return Err(TokenError::Invalidated);
        }
        match &self.bound {
            Some(Bound::Pod { node: Some(node), on_machine: true, .. }) => check_machine(objects, node),
            _ => Ok(()),
        }
    }

    fn user(&self) -> User {
        let ObjectRef { name, uid } = &self.account.object;
        let mut user = User::service_account(&self.account.namespace, name, uid);
        let mut extra = BTreeMap::new();
        let mut tell = |key: &str, value: &str| {
            if !value.is_empty() {
                extra.insert(format!("{}{key}", crate::keys::AUTHENTICATION_PREFIX), vec![value.to_owned()]);
            }
        };
        if let Some(Bound::Pod { pod, .. }) = &self.bound {
            tell("pod-name", &pod.name);
            tell("pod-uid", &pod.uid);
        }
        if let Some(Bound::Pod { node: Some(node), .. } | Bound::Node(node)) = &self.bound {
            tell("node-name", &node.name);
            tell("node-uid", &node.uid);
        }
        if !self.id.is_empty() {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={}", self.id)]);
        }
        user.extra = extra;
        user
    }
}

/// A machine that is being taken out is gone.
fn check_machine(objects: &dyn BoundObjects, reference: &ObjectRef) -> Result<(), TokenError> {
    let node = objects.find(BoundKind::Node, "", &reference.name);
    let stands = |node: &Value| read::text(node, "/metadata/uid") == reference.uid && !read::deleting(node);
    if node.is_some_and(|node| stands(&node)) { Ok(()) } else { Err(TokenError::Invalidated) }
}

fn check_uid(object: &Value, claimed: &str, (what, whose): (&'static str, &'static str)) -> Result<(), TokenError> {
    let actual = object["metadata"]["uid"].as_str().unwrap_or_default();
    if actual == claimed {
        return Ok(());
    }
    Err(TokenError::Uid { what, whose, actual: actual.to_owned(), claimed: claimed.to_owned() })
}

/// Deleted for longer than the leeway. A time that cannot be read is one that has passed.
fn is_gone(object: &Value, now: UnixSeconds) -> bool {
    match object["metadata"]["deletionTimestamp"].as_str() {
        None => false,
        Some(text) => {
            parse(text, Precision::Seconds).map_or(true, |deleted| deleted.seconds < now.0.saturating_sub(LEEWAY))
        }
    }
}
