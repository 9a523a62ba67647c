//! Machines join with tokens: who gets certificates, for which name, and who does not.

use apiserver::auth::{
    JoinToken, KeyHash, Pki, Terms, UnixSeconds, User, lifetime, new_key, signing_request, user_of_certificate,
};
use apiserver::http::Service;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::{NOW_SECONDS, Server};

const NOW: UnixSeconds = UnixSeconds(NOW_SECONDS as i64);
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// A server that takes machines.
pub(crate) struct Host {
    pub(crate) server: Server,
    authority: KeyHash,
    _keys: tempfile::TempDir,
}

impl Host {
    pub(crate) async fn start() -> Self {
        let keys = tempfile::tempdir().expect("a directory can be made");
        let pki = Pki::open(&keys.path().join("pki"), &[], NOW).expect("keys can be made");
        let signer = pki.authority().expect("it was just made");
        let server = Server::start().await;
        let authority = signer.key();
        server.api.admit_machines(signer);
        Self { server, authority, _keys: keys }
    }

    pub(crate) async fn token(&self, seconds: i64, node: Option<&str>) -> JoinToken {
        let token = JoinToken::new(self.authority).expect("there is randomness");
        let terms = Terms { expires: UnixSeconds(NOW.0 + seconds), node: node.map(str::to_owned) };
        let made = self.server.call("POST", SECRETS, Some(&token.record(&terms))).await;
        assert_eq!(made.code, 201, "{}", made.body);
        token
    }

    /// The two identities of a machine that joins now.
    pub(crate) async fn joined(&self, machine: &Machine) -> [Service; 2] {
        let token = self.token(60, Some(machine.name)).await;
        let (code, answer) = self.join(&token.credential(), machine).await;
        assert_eq!(code, 201, "{answer}");
        ["node", "machine"].map(|which| self.server.api.service().as_user(holder(&answer["certificates"][which])))
    }

    /// Over a connection without a certificate.
    pub(crate) async fn join(&self, credential: &str, machine: &Machine) -> (u16, Value) {
        send(&self.server.api.service().without_strangers(), Some(credential), "/orlop/join", &machine.request()).await
    }
}

pub(crate) struct Machine {
    name: &'static str,
    key: String,
}

impl Machine {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, key: new_key().expect("keys can be made") }
    }

    pub(crate) fn request(&self) -> Value {
        json!({"node": self.name, "request": signing_request(&self.key).expect("the key is good")})
    }
}

pub(crate) async fn send(service: &Service, credential: Option<&str>, path: &str, body: &Value) -> (u16, Value) {
    let mut request = Request::post(path).header("content-type", "application/json");
    if let Some(credential) = credential {
        request = request.header("authorization", format!("Bearer {credential}"));
    }
    let request = request.body(Full::new(Bytes::from(body.to_string()))).expect("the request is well formed");
    let response = service.clone().oneshot(request).await.expect("the service does not fail");
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

pub(crate) fn certificate(pem: &Value) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_str().expect("a certificate").as_bytes()).expect("in PEM")
}

fn holder(pem: &Value) -> User {
    user_of_certificate(&certificate(pem), NOW).expect("it is good now")
}

#[tokio::test(start_paused = true)]
async fn a_token_is_worth_two_certificates_for_one_name() {
    let host = Host::start().await;
    let (token, machine) = (host.token(60, None).await, Machine::new("b"));
    let (code, answer) = host.join(&token.credential(), &machine).await;
    assert_eq!(code, 201, "{answer}");
    let (node, beside) = (holder(&answer["certificates"]["node"]), holder(&answer["certificates"]["machine"]));
    assert_eq!((node.name.as_str(), node.groups[0].as_str()), ("system:node:b", "system:nodes"));
    assert_eq!((beside.name.as_str(), beside.groups[0].as_str()), ("orlop:machine:b", "orlop:machines"));
    let (start, end) = lifetime(answer["certificates"]["node"].as_str().expect("a text")).expect("a certificate");
    assert!(start < NOW && end.0 == NOW.0 + 90 * 24 * 60 * 60);
    let node = host.server.call("GET", "/api/v1/nodes/b", None).await;
    assert_eq!(node.code, 200, "the name is taken");

    let (again, _) = host.join(&token.credential(), &machine).await;
    assert_eq!(again, 201, "an answer may be lost");
    let (other, answer) = host.join(&token.credential(), &Machine::new("b")).await;
    assert_eq!(other, 401, "{answer}");
    let fresh = host.token(60, None).await;
    let (other, answer) = host.join(&fresh.credential(), &Machine::new("b")).await;
    assert_eq!((other, answer["reason"].as_str()), (409, Some("AlreadyExists")), "{answer}");
    let (same, answer) = host.join(&fresh.credential(), &machine).await;
    assert_eq!(same, 201, "the machine of that key may come back with a new token: {answer}");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_not_good_lets_nobody_in_and_leaves_nothing() {
    let host = Host::start().await;
    let (expired, bound) = (host.token(-1, None).await, host.token(60, Some("c")).await);
    let unknown = JoinToken::new(host.authority).expect("there is randomness");
    let machine = Machine::new("b");
    for (token, says) in [(&expired, "expired"), (&bound, "for a machine named \"c\""), (&unknown, "not known here")] {
        let (code, answer) = host.join(&token.credential(), &machine).await;
        assert_eq!((code, answer["reason"].as_str()), (401, Some("Unauthorized")), "{answer}");
        assert!(answer["message"].as_str().is_some_and(|message| message.contains(says)), "{answer}");
    }
    assert_eq!(host.server.call("GET", "/api/v1/nodes/b", None).await.code, 404);
    let body =
        json!({"node": "c", "request": "-----BEGIN CERTIFICATE REQUEST-----\nAA==\n-----END CERTIFICATE REQUEST-----"});
    let service = host.server.api.service();
    let (code, answer) = send(&service, Some(&bound.credential()), "/orlop/join", &body).await;
    assert_eq!(code, 400, "{answer}");
    let (code, _) = send(&service, Some(&bound.credential()), "/api/v1/namespaces", &json!({})).await;
    assert_eq!(code, 401, "a token counts on one path only");
}

#[tokio::test(start_paused = true)]
async fn a_machine_gets_new_certificates_for_itself_only() {
    let host = Host::start().await;
    let groups = vec!["system:nodes".to_owned(), "system:authenticated".to_owned()];
    let node = User { name: "system:node:b".to_owned(), groups, ..User::default() };
    let service = host.server.api.service().as_user(node);
    let (code, answer) = send(&service, None, "/orlop/join", &Machine::new("b").request()).await;
    assert_eq!((code, holder(&answer["certificates"]["node"]).name.as_str()), (201, "system:node:b"));
    let (code, answer) = send(&service, None, "/orlop/join", &Machine::new("c").request()).await;
    assert_eq!(code, 403, "{answer}");
    let admin = host.server.api.service().as_user(User::loopback());
    let (code, answer) = send(&admin, None, "/orlop/join", &Machine::new("c").request()).await;
    assert_eq!(code, 401, "{answer}");
}

/// The old machine's certificate is good for weeks after its Node was deleted and another machine took the name.
#[tokio::test(start_paused = true)]
async fn a_machine_that_was_taken_out_does_not_come_back_under_a_name_that_is_anothers_now() {
    let host = Host::start().await;
    let (old, new) = (Machine::new("b"), Machine::new("b"));
    let (code, answer) = host.join(&host.token(60, None).await.credential(), &old).await;
    assert_eq!(code, 201, "{answer}");
    let node = holder(&answer["certificates"]["node"]);
    let service = host.server.api.service().as_user(node);
    assert_eq!(
        send(&service, None, "/orlop/join", &old.request()).await.0,
        201,
        "it is renewed while the name is its own"
    );
    assert_eq!(host.server.call("DELETE", "/api/v1/nodes/b", None).await.code, 200);
    let (code, answer) = host.join(&host.token(60, None).await.credential(), &new).await;
    assert_eq!(code, 201, "{answer}");
    let (code, answer) = send(&service, None, "/orlop/join", &old.request()).await;
    assert_eq!((code, answer["reason"].as_str()), (401, Some("Unauthorized")), "{answer}");
    assert!(answer["message"].as_str().is_some_and(|message| message.contains("another's now")), "{answer}");
}

async fn get(service: &Service, path: &str) -> http::Response<apiserver::http::Body> {
    let request = Request::get(path).body(Full::new(Bytes::new())).expect("the request is well formed");
    service.clone().oneshot(request).await.expect("the service does not fail")
}

#[tokio::test(start_paused = true)]
async fn deleting_its_node_ends_the_access_of_a_machine_also_for_what_it_follows() {
    let host = Host::start().await;
    let (token, machine) = (host.token(60, None).await, Machine::new("b"));
    let (code, answer) = host.join(&token.credential(), &machine).await;
    assert_eq!(code, 201, "{answer}");
    let [node, beside] = ["node", "machine"].map(|which| {
        let holder = holder(&answer["certificates"][which]);
        host.server.api.service().as_user(holder)
    });
    assert_eq!(get(&node, "/api/v1/nodes/b").await.status(), 200);
    assert_eq!(get(&beside, "/api/v1/nodes/b").await.status(), 403, "this server has no roles for machines");
    let watch = get(&node, "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Db").await;
    assert_eq!(watch.status(), 200);

    let started = tokio::time::Instant::now();
    assert_eq!(host.server.call("DELETE", "/api/v1/nodes/b", None).await.code, 200);
    watch.into_body().collect().await.expect("it ends well");
    assert!(
        started.elapsed() < std::time::Duration::from_secs(60),
        "it ended before its time: {:?}",
        started.elapsed()
    );
    for service in [&node, &beside] {
        assert_eq!(get(service, "/api/v1/nodes/b").await.status(), 401);
        let (code, answer) = send(service, None, "/orlop/join", &machine.request()).await;
        assert_eq!(code, 401, "{answer}");
        assert!(
            answer["message"].as_str().is_some_and(|said| said.contains("orlop token create --node b")),
            "{answer}"
        );
    }
    let (code, answer) = host.join(&token.credential(), &machine).await;
    assert_eq!(code, 401, "a token that was used does not bring it back: {answer}");
    assert!(answer["message"].as_str().is_some_and(|said| said.contains("taken out")), "{answer}");
    let (code, answer) = host.join(&host.token(60, Some("b")).await.credential(), &machine).await;
    assert_eq!(code, 201, "a new one does: {answer}");
    assert_eq!(get(&node, "/api/v1/nodes/b").await.status(), 200, "with the same key");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_no_machines_says_so() {
    let server = Server::start().await;
    let admin = server.api.service().as_user(User::loopback());
    let (code, answer) = send(&admin, None, "/orlop/join", &Machine::new("b").request()).await;
    assert_eq!(code, 404);
    assert!(answer["message"].as_str().is_some_and(|message| message.contains("--serve-machines")), "{answer}");
}
