//! Whether a machine that joined is still one of ours.
//!
//! Its certificates are good for months, and nobody can take them back from it. They count only while the Node of its name
//! holds the hash of its key, as [`join`](super::join) wrote it there: an administrator who deletes the Node ends the
//! machine's access, at once and for watches that are open, too. A Node that waits for finalizers is gone already. A key
//! that was revoked counts no more under any name.

use std::sync::Arc;

use serde_json::Value;

use super::join::{self, MACHINE, NODE};
use crate::auth::{TOKEN_NAMESPACE, User};
use crate::keys::MACHINE_KEY;
use crate::kinds::read;
use crate::status::{ApiError, Reason};
use crate::store::{Scope, Start, WatchEnd};
use crate::verbs::{Core, Outcome};

/// A machine that joined, as its certificate shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    node: String,
    key: String,
}

impl Member {
    /// None for everybody whose certificate is no machine's.
    pub(super) fn of(user: &User) -> Option<Self> {
        let key = user.extra.get(MACHINE_KEY)?.first()?;
        let node = user.name.strip_prefix(NODE).or_else(|| user.name.strip_prefix(MACHINE))?;
        Some(Self { node: node.to_owned(), key: key.clone() })
    }

    fn standing(&self, core: &Core) -> MemberStanding {
        let node = join::kind("nodes").ok().and_then(|(resource, _)| core.load(resource, None, &self.node));
        let is_own = |node: &Value| read::annotation(node, MACHINE_KEY) == Some(&self.key) && !read::deleting(node);
        match () {
            () if join::is_revoked(core, &self.key) => MemberStanding::Revoked,
            () if node.is_some_and(|live| is_own(&live.object)) => MemberStanding::In,
            () => MemberStanding::TakenOut,
        }
    }

    pub(super) fn check(&self, core: &Core) -> Outcome<()> {
        let node = &self.node;
        let message = match self.standing(core) {
            MemberStanding::In => return Ok(()),
            MemberStanding::Revoked => join::revoked_message(node),
            MemberStanding::TakenOut => format!(
                "the machine {node:?} was taken out, or its name is another's now: to let it in again, make a token on \
                 the server with `orlop token create --node {node}`"
            ),
        };
        Err(ApiError { code: 401, reason: Reason::Unauthorized, message, details: None }.into())
    }

    /// Ends when the machine is not one of ours any more.
    pub(super) async fn leaves(self, core: Arc<Core>) {
        let (Ok((nodes, _)), Ok((notes, _))) = (join::kind("nodes"), join::kind("configmaps")) else { return };
        loop {
            let Ok(mut nodes) = core.store.watch(Scope::all(&nodes.stored_as), Start::Now) else { return };
            let notes = Scope::namespace(&notes.stored_as, TOKEN_NAMESPACE);
            let Ok(mut revocations) = core.store.watch(notes, Start::Now) else { return };
            // Looked at after the watches have begun, so that nothing happens in between.
            while self.standing(&core) == MemberStanding::In {
                let changed = tokio::select! {
                    changed = nodes.next() => changed,
                    changed = revocations.next() => changed,
                };
                match changed {
                    Ok(_) => {}
                    Err(WatchEnd::Lagged { .. }) => break,
                    // The server ends, and everything with it.
                    Err(WatchEnd::Closed) => return,
                }
            }
            if self.standing(&core) != MemberStanding::In {
                return;
            }
        }
    }
}

/// Whether a machine's certificates count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberStanding {
    In,
    /// Its Node is gone or about to go, or stands for another key.
    TakenOut,
    /// Its key counts no more, whatever its Node says.
    Revoked,
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;
    use http_body_util::Full;
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::auth::{Pki, SigningRequest, Subject, UnixSeconds, new_key, signing_request};
    use crate::http::PeerCertificate;
    use crate::sources::{ManualClock, SeededEntropy};
    use crate::store::UnixMillis;
    use crate::{Api, Settings};

    #[test]
    fn only_who_shows_the_key_of_a_machine_is_one() {
        let user = |name: &str, key: Option<&str>| User {
            name: name.to_owned(),
            extra: key.map(|key| (MACHINE_KEY.to_owned(), vec![key.to_owned()])).into_iter().collect(),
            ..User::default()
        };
        let second = Some(Member { node: "second".to_owned(), key: "k".to_owned() });
        assert_eq!(Member::of(&user("system:node:second", Some("k"))), second);
        assert_eq!(Member::of(&user("orlop:machine:second", Some("k"))), second);
        assert_eq!(Member::of(&user("system:node:second", None)), None, "a kubelet's certificate, made by hand");
        assert_eq!(Member::of(&user("somebody", Some("k"))), None);
    }

    #[tokio::test]
    async fn a_machine_that_was_taken_out_keeps_no_seat() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let now = UnixSeconds(1_800_000_000);
        let authority = Pki::open(folder.path(), &[], now).and_then(|pki| pki.authority()).expect("keys can be made");
        let request = signing_request(&new_key().expect("keys can be made")).expect("the key is good");
        let request = SigningRequest::read(&request).expect("it is well formed");
        let subject = Subject { name: "system:node:b", group: "system:nodes" };
        let pem = authority.sign(&request, &subject, now).expect("it can be signed");
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
        let certificate = PeerCertificate::Ours(der.as_ref().into());
        let clock = Arc::new(ManualClock::at(UnixMillis(1_800_000_000_000)));
        let settings = Settings::in_memory(clock, Arc::new(SeededEntropy::new(1))).expect("keys can be made");
        let service = Api::start(settings).await.expect("an empty store can be prepared").service();
        assert_eq!(service.account_behind(&certificate), None, "it has no Node");
        let node =
            serde_json::json!({"metadata": {"name": "b", "annotations": {MACHINE_KEY: request.key().to_string()}}});
        let node = Request::post("/api/v1/nodes")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(node.to_string())))
            .expect("the request is good");
        let made = service.as_user(User::loopback()).oneshot(node).await;
        assert_eq!(made.map(|answer| answer.status().as_u16()), Ok(201));
        assert_eq!(service.account_behind(&certificate).as_deref(), Some("b"));
        assert_eq!(service.account_behind(&PeerCertificate::Untrusted), None);
    }
}
