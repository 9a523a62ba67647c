//! A server behind its real socket, with keys of its own and a clock that the test owns, and clients to knock at it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use apiserver::auth::{Identity, Pki, StaticTokens, TokenSigner, UnixSeconds, User};
use apiserver::http::Service;
use apiserver::server::{Limits, TlsKeys, serve, tls};
use apiserver::sources::{ManualClock, SeededEntropy};
use apiserver::store::{Options, Store, UnixMillis};
use apiserver::{Api, Settings};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use rustls::pki_types::{ServerName, UnixTime};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;
use tower::ServiceExt as _;

pub(crate) const NOW: i64 = 1_800_000_000;
pub(crate) const DAY: i64 = 24 * 60 * 60;
pub(crate) const ISSUER: &str = "https://test";

pub(crate) struct Door {
    pub(crate) address: SocketAddr,
    pub(crate) pki: Pki,
    clock: Arc<ManualClock>,
    admin: Service,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<std::io::Result<()>>,
    _folder: tempfile::TempDir,
}

/// An answer over HTTP/1.1.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) body: Value,
}

pub(crate) fn signer(pki: &Pki, issuer: &str) -> TokenSigner {
    TokenSigner::new(&pki.token_key_der(), issuer).expect("the key is good")
}

impl Door {
    pub(crate) async fn open() -> Self {
        Self::with(Limits::default()).await
    }

    pub(crate) async fn with(limits: Limits) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let pki = Pki::open(&folder.path().join("pki"), &[], UnixSeconds(NOW)).expect("keys can be made");
        let clock = Arc::new(ManualClock::at(UnixMillis(NOW as u64 * 1000)));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let api = Api::start(Settings {
            store: Store::memory(Options::default()),
            clock: Arc::clone(&clock) as _,
            entropy: Arc::new(SeededEntropy::new(1)),
            signer: signer(&pki, ISSUER),
            tokens: StaticTokens::parse("file-token,carol,u7,readers\n").expect("the file is good"),
            address: address.to_string(),
        })
        .await
        .expect("an empty store can be prepared");
        let chain = vec![pki.server().certificate_der()];
        let tls = tls(TlsKeys { chain, key: pki.server().key_der(), client_ca: pki.ca_der() }).expect("the keys fit");
        let (stop, stopped) = oneshot::channel::<()>();
        let until = async move { drop(stopped.await) };
        let serving = tokio::spawn(serve(listener, tls, api.service(), until, limits));
        let admin = api.service().as_user(User::loopback());
        Self { address, pki, clock, admin, stop: Some(stop), serving, _folder: folder }
    }

    pub(crate) fn set_clock(&self, seconds: i64) {
        self.clock.set(UnixMillis(u64::try_from(seconds).expect("after 1970") * 1000));
    }

    /// Ends the server and waits for its end.
    pub(crate) async fn close(mut self) {
        drop(self.stop.take());
        (&mut self.serving).await.expect("the server ends").expect("and ends well");
    }

    /// As the server's owner, in process, where no door is.
    pub(crate) async fn inside(&self, method: &str, path: &str, body: Value) -> Value {
        let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
        let bytes = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = request.body(Full::new(bytes)).expect("the request is well formed");
        let response = self.admin.clone().oneshot(request).await.expect("the service does not fail");
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a body does not fail").to_bytes();
        let body: Value = serde_json::from_slice(&bytes).expect("the answer is JSON");
        assert!(code < 300, "{method} {path}: {body}");
        body
    }

    pub(crate) async fn make_account(&self, name: &str) {
        let account = json!({"metadata": {"name": name}});
        self.inside("POST", "/api/v1/namespaces/default/serviceaccounts", account).await;
    }

    /// A token of a service account in `default`.
    pub(crate) async fn token(&self, name: &str, spec: Value) -> String {
        let path = format!("/api/v1/namespaces/default/serviceaccounts/{name}/token");
        let answer = self.inside("POST", &path, json!({ "spec": spec })).await;
        answer["status"]["token"].as_str().expect("a token").to_owned()
    }

    /// A connection with or without a certificate; the client's clock stands at the server's first moment.
    pub(crate) async fn connect(&self, client: Option<&Identity>) -> std::io::Result<TlsStream<TcpStream>> {
        self.speak(client, &[b"http/1.1"]).await
    }

    pub(crate) async fn speak(
        &self,
        client: Option<&Identity>,
        protocols: &[&[u8]],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        self.dial(&self.pki, client, protocols).await
    }

    /// As a client that trusts the authority of `trusted`.
    pub(crate) async fn dial(
        &self,
        trusted: &Pki,
        client: Option<&Identity>,
        protocols: &[&[u8]],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(trusted.ca_der()).expect("the authority is good");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_details(provider, Arc::new(StandingClock))
            .with_safe_default_protocol_versions()
            .expect("the versions are known")
            .with_root_certificates(roots);
        let mut config = match client {
            Some(client) => builder
                .with_client_auth_cert(vec![client.certificate_der()], client.key_der())
                .expect("the key belongs to the certificate"),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost").expect("it is a name");
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// One request on a connection of its own. Each header is `name: value`.
    pub(crate) async fn knock(&self, client: Option<&Identity>, line: &str, headers: &[&str], body: &str) -> Reply {
        let mut stream = self.connect(client).await.expect("the handshake succeeds");
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let head = format!(
            "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n{headers}\r\n",
            body.len()
        );
        // A server that refuses early closes early; what counts is its answer.
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(body.as_bytes()).await;
        read_reply(&mut stream).await
    }

    /// With a token.
    pub(crate) async fn ask(&self, token: &str, line: &str, body: Value) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.knock(None, line, &[&format!("authorization: Bearer {token}")], &body).await
    }
}

/// Reads to the end of the connection; code 0 is no answer.
pub(crate) async fn read_reply(stream: &mut TlsStream<TcpStream>) -> Reply {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
    Reply { code, body: serde_json::from_str(body).unwrap_or_else(|_| Value::from(body)) }
}

impl Reply {
    /// Code, reason and message: what every client reads.
    pub(crate) fn brief(&self) -> String {
        match (self.body["reason"].as_str(), self.body["message"].as_str()) {
            (Some(reason), Some(message)) => format!("{} {reason}: {message}", self.code),
            _ => format!("{}", self.code),
        }
    }
}

#[derive(Debug)]
struct StandingClock;

impl rustls::time_provider::TimeProvider for StandingClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(NOW as u64)))
    }
}
