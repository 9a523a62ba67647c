//! A server in this process, over a store in memory, with a clock that the test owns.

use std::sync::Arc;

use apiserver::auth::{StaticTokens, TokenSigner, User};
use apiserver::http::{Body, Service};
use apiserver::sources::{ManualClock, SeededEntropy};
use apiserver::store::{History, Options, Store, UnixMillis};
use apiserver::{Api, Settings};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use tower::ServiceExt as _;

pub(crate) struct Server {
    pub(crate) api: Api,
    admin: Service,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: Value,
}

/// A watch that is being read.
pub(crate) struct Events {
    body: Body,
    pending: Vec<u8>,
}

/// The time of the server's clock.
pub(crate) const NOW_SECONDS: u64 = 1_800_000_000;
pub(crate) const MERGE: &str = "application/merge-patch+json";

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with_history(History::default()).await
    }

    pub(crate) async fn with_history(history: History) -> Self {
        Self::over(Store::memory(Options { history, ..Options::default() })).await
    }

    /// A server over a store that may have been used before.
    pub(crate) async fn over(store: Store) -> Self {
        let random = ring::rand::SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("keys can be made");
        let clock = ManualClock::at(UnixMillis(NOW_SECONDS * 1000));
        let api = Api::start(Settings {
            store,
            clock: Arc::new(clock),
            entropy: Arc::new(SeededEntropy::new(1)),
            signer: TokenSigner::new(key.as_ref(), "https://test").expect("a new key is good"),
            tokens: StaticTokens::default(),
            address: "127.0.0.1:6443".to_owned(),
        })
        .await
        .expect("an empty store can be prepared");
        let admin = api.service().as_user(User::loopback());
        Self { api, admin }
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.send(method, path, body, "application/json").await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: Option<&Value>, content_type: &str) -> Answer {
        send(&self.admin, method, path, (body, content_type)).await
    }

    /// A body that is written as it stands here.
    pub(crate) async fn text(&self, method: &str, path: &str, body: &str) -> Answer {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("the request is well formed");
        read(self.admin.clone().oneshot(request).await.expect("the service does not fail")).await
    }

    /// A read in a form of the caller's choice.
    pub(crate) async fn accepting(&self, accept: &str, path: &str) -> Answer {
        let response = self.raw(Request::get(path).header("accept", accept)).await;
        read(response).await
    }

    /// Any request without a body; the answer as it comes.
    pub(crate) async fn raw(&self, request: http::request::Builder) -> http::Response<Body> {
        let request = request.body(Full::<Bytes>::default()).expect("the request is well formed");
        self.admin.clone().oneshot(request).await.expect("the service does not fail")
    }

    /// As somebody else, who may have to show credentials.
    pub(crate) async fn call_as(&self, service: &Service, method: &str, path: &str) -> Answer {
        send(service, method, path, (None, "application/json")).await
    }

    /// As [`Server::call_as`], with a body.
    pub(crate) async fn send_as(&self, service: &Service, method: &str, path: &str, body: Option<&Value>) -> Answer {
        send(service, method, path, (body, "application/json")).await
    }

    /// As [`Server::send_as`], with a body of this content type.
    pub(crate) async fn send_kind_as(
        &self,
        service: &Service,
        method: &str,
        path: &str,
        body: (Option<&Value>, &str),
    ) -> Answer {
        send(service, method, path, body).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Events {
        let response = self.raw(Request::get(path)).await;
        assert_eq!(response.status().as_u16(), 200);
        Events { body: response.into_body(), pending: Vec::new() }
    }

    pub(crate) async fn create_config_map(&self, name: &str, labels: Value) -> Answer {
        let object = json!({"metadata": {"name": name, "labels": labels}});
        self.call("POST", "/api/v1/namespaces/default/configmaps", Some(&object)).await
    }
}

async fn send(service: &Service, method: &str, path: &str, (body, kind): (Option<&Value>, &str)) -> Answer {
    let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(Full::new(bytes))
        .expect("the request is well formed");
    read(service.clone().oneshot(request).await.expect("the service does not fail")).await
}

async fn read(response: http::Response<Body>) -> Answer {
    let code = response.status().as_u16();
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let warnings = response.headers().get_all("warning").iter().map(text).collect();
    let bytes = response.into_body().collect().await.expect("a body does not fail").to_bytes();
    let body =
        serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes).into_owned()));
    Answer { code, warnings, body }
}

impl Answer {
    pub(crate) fn version(&self) -> &str {
        self.body["metadata"]["resourceVersion"].as_str().unwrap_or_default()
    }
}

impl Events {
    /// The next event; none at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("an event is one line of JSON"));
            }
            let frame = self.body.frame().await?.expect("a body does not fail");
            self.pending.extend_from_slice(&frame.into_data().expect("a watch sends data"));
        }
    }

    /// The next event in short: `ADDED c1`.
    pub(crate) async fn brief(&mut self) -> Option<String> {
        let event = self.next().await?;
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or("-").to_owned();
        Some(format!("{} {name}", event["type"].as_str().unwrap_or_default()))
    }
}
