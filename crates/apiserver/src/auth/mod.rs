//! Who is asking and whether they may: certificates and tokens in, a [`User`] out; a user and a request in, a decision
//! out.
//!
//! # Invariants
//! 1. A credential that does not check out is 401 on every path; no credential is [`User::anonymous`], and then RBAC
//!    decides (API-8).
//! 2. Decisions are pure: roles, bound objects and the time are arguments. The one thing read here is entropy for keys
//!    and signatures.
//! 3. Keys and tokens have types that do not print. Nothing in this folder formats one into a log or an error.
//! 4. There are no deny rules: what no rule allows is refused.
//!
//! # Not here
//! TLS itself: the acceptor asks for a client certificate and checks its chain; this folder reads the result.

mod authenticate;
mod authorize;
mod bootstrap;
mod certificate;
mod escalation;
mod files;
mod impersonation;
pub(crate) mod join;
mod kubeconfig;
mod node;
mod node_index;
mod pki;
mod rbac;
mod reviews;
mod service_account;
mod signing;
mod token_request;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use crate::keys::{JOIN_TOKEN, MACHINE_DRIVER, MACHINE_KEY, MACHINE_TOPOLOGY};
pub use authenticate::{Authenticator, ClientCertificate, Credentials, StaticTokens, TokenFileError, TokenUser};
pub use authorize::{Attributes, Authority, Decision, Object, authorize, authorize_request, forbidden};
pub use bootstrap::{cluster_role_bindings, cluster_roles};
pub use certificate::{CertificateError, user_of_certificate};
pub use escalation::{RoleWrite, check_binding_write, check_role_write};
pub use files::{FileError, write_private};
pub use impersonation::{Impersonation, impersonate};
pub use join::{
    JoinRefusal, JoinToken, JoinTokenError, Joining, TOKEN_NAMESPACE, Terms, revocation, revocation_name, token_facts,
    token_key, token_record,
};
pub use kubeconfig::{Kubeconfig, kubeconfig};
pub(crate) use node::WithNodes;
pub(crate) use node_index::NodeIndex;
pub use pki::{Identity, Pki, PkiError};
pub use rbac::{PolicyRule, Rbac, RbacKind};
pub use reviews::{
    local_subject_access_review, self_subject_access_review, self_subject_review, self_subject_rules_review,
    subject_access_review, token_review,
};
pub use service_account::{
    Account, Bound, BoundKind, BoundObjects, Claims, ObjectRef, SignerError, Token, TokenError, TokenSigner,
};
pub use signing::{
    BadRequest, CertificateSigner, KeyHash, SigningRequest, Subject, lifetime, new_key, signing_request,
};
pub use token_request::{IssuedToken, TokenRequest, request_token};

pub const SYSTEM_MASTERS: &str = "system:masters";
pub const AUTHENTICATED: &str = "system:authenticated";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
pub const ANONYMOUS: &str = "system:anonymous";

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
const CREDENTIAL_ID: &str = crate::keys::CREDENTIAL_ID;

/// Seconds since 1970. The caller's clock, never ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixSeconds(pub i64);

/// The one who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    /// Empty where the credential has none.
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The one who shows no credential.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// The server's own controllers, which call in process.
    pub fn loopback() -> Self {
        let groups = vec![SYSTEM_MASTERS.into(), AUTHENTICATED.into()];
        Self { name: "system:apiserver".into(), groups, ..Self::default() }
    }

    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        let mut groups = service_account_groups(namespace);
        groups.push(AUTHENTICATED.into());
        Self { name: service_account_user(namespace, name), uid: uid.into(), groups, extra: BTreeMap::new() }
    }

    /// Whether no authorization applies: the way in when every role is broken.
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == SYSTEM_MASTERS)
    }

    /// As TokenReview and SelfSubjectReview show it.
    pub fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            json["uid"] = self.uid.as_str().into();
        }
        if !self.extra.is_empty() {
            json["extra"] = serde_json::json!(self.extra);
        }
        json
    }
}

fn service_account_user(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![SERVICE_ACCOUNTS.into(), format!("{SERVICE_ACCOUNTS}:{namespace}")]
}
