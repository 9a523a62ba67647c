//! Who gets in: credentials to a user, a user and a request to a decision.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::Value;

use super::PeerCertificate;
use crate::auth::{
    Authenticator, BoundKind, BoundObjects, ClientCertificate, Credentials, Impersonation, IssuedToken, StaticTokens,
    TokenRequest, TokenSigner, UnixSeconds, User, authorize_request, impersonate, request_token, token_review,
};
use crate::catalog;
use crate::request::RequestInfo;
use crate::verbs::{Core, Outcome};

/// The door of the server.
#[derive(Debug)]
pub(crate) struct Gate {
    authenticator: Authenticator,
}

/// Objects that tokens are bound to, as stored now.
struct Bound<'a>(&'a Core);

impl BoundObjects for Bound<'_> {
    fn find(&self, kind: BoundKind, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let plural = match kind {
            BoundKind::ServiceAccount => "serviceaccounts",
            BoundKind::Pod => "pods",
            BoundKind::Secret => "secrets",
            BoundKind::Node => "nodes",
        };
        let resource = catalog::built_in().resource("", "v1", plural)?;
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        self.0.load(resource, namespace, name).map(|live| Arc::new(live.object))
    }
}

fn seconds(core: &Core) -> UnixSeconds {
    UnixSeconds(core.now().seconds())
}

impl Gate {
    pub(crate) fn new(signer: TokenSigner, tokens: StaticTokens) -> Self {
        Self { authenticator: Authenticator::new(signer, tokens) }
    }

    pub(super) fn authenticate(
        &self,
        core: &Core,
        certificate: Option<&PeerCertificate>,
        headers: &HeaderMap,
    ) -> Outcome<User> {
        let credentials = Credentials {
            certificate: certificate.map(|certificate| match certificate {
                PeerCertificate::Ours(der) => ClientCertificate::Trusted(der),
                PeerCertificate::Untrusted => ClientCertificate::Untrusted,
            }),
            authorization: headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()),
        };
        Ok(self.authenticator.authenticate(credentials, &Bound(core), seconds(core))?)
    }

    /// Whom to go on with instead of the user, if the headers say so and the user may.
    pub(super) fn impersonated(&self, core: &Core, user: &User, headers: &HeaderMap) -> Outcome<Option<User>> {
        let fields = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        match Impersonation::from_headers(fields)? {
            None => Ok(None),
            Some(wanted) => Ok(Some(core.rights.with(&core.store, |rbac| impersonate(rbac, user, &wanted))?)),
        }
    }

    /// By which right the user may do what is asked: empty for those who may do everything.
    pub(super) fn authorize(&self, core: &Core, user: &User, info: &RequestInfo) -> Outcome<String> {
        if user.is_master() {
            return Ok(String::new());
        }
        Ok(core.with_authority(|authority| authorize_request(authority, user, info))?)
    }

    pub(super) fn request_token(
        &self,
        core: &Core,
        user: &User,
        place: (&str, &str),
        body: &Value,
    ) -> Outcome<IssuedToken> {
        let (namespace, name) = place;
        let terms = core.admit_token(user, place, body)?;
        let id = core.uid();
        let request = TokenRequest { namespace, name, body, id: &id, now: seconds(core), terms };
        Ok(request_token(self.authenticator.signer(), &request, &Bound(core))?)
    }

    pub(super) fn review_token(&self, core: &Core, body: &Value) -> Outcome<Value> {
        Ok(token_review(&self.authenticator, body, &Bound(core), seconds(core))?)
    }
}
