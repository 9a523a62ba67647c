//! Requests to a server in this process, over a store in memory, on time that does not pass by itself.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use apiserver::auth::{Pki, StaticTokens, TokenSigner, UnixSeconds, User};
use apiserver::http::{Body, PeerCertificate, Service};
use apiserver::sources::{ManualClock, SeededEntropy};
use apiserver::store::{Image, MemoryDisk, Options, Store, UnixMillis};
use apiserver::{Api, Settings};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::case::{Caller, Part, Step};

/// The time of the server's clock.
const NOW_SECONDS: u64 = 1_800_000_000;
/// How much of a watch is read.
const FRAMES: usize = 60;
/// How long, in the server's time, a watch is read and controllers are waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the server said to one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub code: u16,
    /// Its reason and message, without the parts that every input changes.
    pub gist: String,
    /// Whether the server says that it failed, and not the request.
    pub failed: bool,
}

/// A definition of custom resources with a field of most kinds.
pub fn definition(name: &str, kind: &str) -> Value {
    let plural = name.split('.').next().unwrap_or(name);
    let item =
        json!({"type": "object", "properties": {"name": {"type": "string"}, "d": {"type": "string", "default": "x"}}});
    let spec = json!({
        "type": "object",
        "x-kubernetes-validations": [{"rule": "!has(self.b) || self.b < 1000", "message": "too large"}],
        "properties": {
            "a": {"type": "string", "pattern": "^[a-z]*$", "maxLength": 64, "default": "x"},
            "b": {"type": "integer", "minimum": 0, "maximum": 5000},
            "l": {"type": "array", "items": item}, "list": {"type": "array", "items": item},
            "when": {"type": "string", "format": "date-time"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "either": {"x-kubernetes-int-or-string": true},
            "kind": {"type": "string", "enum": ["A", "B"]},
        },
    });
    let status = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}});
    json!({
        "metadata": {"name": name},
        "spec": {
            "group": "conf.io", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.a"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
            }],
        },
    })
}

/// A client certificate of a CA that is forgotten.
pub fn certificate() -> &'static [u8] {
    static CERTIFICATE: OnceLock<Vec<u8>> = OnceLock::new();
    CERTIFICATE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("temporary folders can be made");
        let now = UnixSeconds(NOW_SECONDS.cast_signed());
        let pki = Pki::open(folder.path(), &[], now).expect("an empty folder takes a new CA");
        let issued = pki.issue_client("u", "g", now).expect("a new CA issues certificates");
        issued.certificate_der().as_ref().to_vec()
    })
}

fn key() -> &'static [u8] {
    static KEY: OnceLock<Vec<u8>> = OnceLock::new();
    KEY.get_or_init(|| {
        let random = ring::rand::SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("keys can be made");
        key.as_ref().to_vec()
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without a network can always be made")
}

async fn start(store: Store) -> Result<Api, apiserver::BootstrapError> {
    Api::start(Settings {
        store,
        clock: Arc::new(ManualClock::at(UnixMillis(NOW_SECONDS * 1000))),
        entropy: Arc::new(SeededEntropy::new(1)),
        signer: TokenSigner::new(key(), "https://fuzz").expect("a new key is good"),
        tokens: StaticTokens::default(),
        address: "127.0.0.1:6443".to_owned(),
    })
    .await
}

/// A store with what every server has, an established definition, and an object of a few kinds.
fn prepared() -> &'static Image {
    static PREPARED: OnceLock<Image> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let disk = MemoryDisk::default();
        runtime().block_on(async {
            let api = start(Store::on_memory(&disk, Options::default())).await.expect("an empty store can be prepared");
            let server = api.clone();
            let background = tokio::spawn(async move { server.run().await });
            let create = |path: &str, object: Value| {
                Step::new("POST", path).with_body("application/json", vec![Part::text(object.to_string())])
            };
            send(&api, &create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition("foos.conf.io", "Foo"))).await;
            tokio::time::sleep(PATIENCE).await;
            let named = |name: &str| json!({"name": name, "labels": {"a": "b"}, "annotations": {"x.io/y": "z"}});
            let object = json!({"apiVersion": "conf.io/v1", "kind": "Foo", "metadata": named("f"), "spec": {"b": 1, "list": [{"name": "x"}]}});
            let claim = json!({"metadata": named("a"), "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
            let pod = json!({"metadata": named("a"), "spec": {"containers": [{"name": "c", "image": "i"}]}});
            for (path, object) in [
                ("/apis/conf.io/v1/namespaces/default/foos", object),
                ("/api/v1/namespaces/default/persistentvolumeclaims", claim),
                ("/api/v1/namespaces/default/pods", pod),
                ("/api/v1/namespaces/default/configmaps", json!({"metadata": named("a"), "data": {"k": "v"}})),
                ("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": named("a")})),
            ] {
                let answer = send(&api, &create(path, object)).await;
                assert!(answer.as_ref().is_some_and(|answer| answer.code == 201), "the sample for {path} is refused: {answer:?}");
            }
            api.service().stop();
            background.await.expect("the controllers end").expect("its store is in memory, which takes every write");
        });
        disk.image()
    })
}

/// A server that answers one request after the other and keeps what they change. Its controllers do not run.
#[derive(Debug)]
pub struct Session {
    runtime: tokio::runtime::Runtime,
    api: Api,
}

impl Session {
    pub fn new() -> Self {
        let runtime = runtime();
        let store = Store::inline(prepared().clone(), Box::new(MemoryDisk::default()), Options::default());
        let api = runtime.block_on(start(store)).expect("the prepared store is good");
        Self { runtime, api }
    }

    /// The answer; none if the step is no HTTP request at all.
    pub fn send(&self, step: &Step) -> Option<Answer> {
        self.runtime.block_on(send(&self.api, step))
    }
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

/// Sends steps to a server of their own, lets its controllers settle, and ends it.
pub fn run(steps: &[Step]) -> Vec<Answer> {
    let store = Store::inline(prepared().clone(), Box::new(MemoryDisk::default()), Options::default());
    run_on(store, steps)
}

/// As [`run`], on a store with any content; no answers if the server does not start on it.
pub fn run_on(store: Store, steps: &[Step]) -> Vec<Answer> {
    runtime().block_on(async {
        let Ok(api) = start(store).await else { return Vec::new() };
        let server = api.clone();
        let background = tokio::spawn(async move { server.run().await });
        let mut answers = Vec::new();
        for step in steps {
            answers.extend(send(&api, step).await);
            // What a request sets off is part of it.
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        tokio::time::sleep(PATIENCE).await;
        api.service().stop();
        let ended = background.await;
        assert!(ended.is_ok(), "a controller ended: {ended:?}");
        answers
    })
}

/// The answer to a step; none if it is no HTTP request at all, which hyper would refuse.
async fn send(api: &Api, step: &Step) -> Option<Answer> {
    let mut request = Request::builder().method(step.method.as_str()).uri(&step.uri);
    for (name, value) in &step.headers {
        request = request.header(name, value.as_bytes());
    }
    let request = request.body(Full::new(Bytes::from(step.body()))).ok()?;
    let service: Service = match &step.caller {
        Caller::Admin => api.service().as_user(User::loopback()),
        Caller::Remote => api.service(),
        Caller::Certificate(text) => {
            let bytes = STANDARD.decode(text).unwrap_or_default();
            api.service().for_peer(Some(PeerCertificate::Ours(bytes.into())))
        }
    };
    let response = service.oneshot(request).await.unwrap_or_else(|never| match never {});
    Some(read(response).await)
}

async fn read(response: Response<Body>) -> Answer {
    let code = response.status().as_u16();
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    let reading = async {
        for _ in 0..FRAMES {
            let Some(Ok(frame)) = body.frame().await else { return };
            // A watch may be long; what matters is that it is told, not what it tells.
            let data = frame.into_data().unwrap_or_default();
            if bytes.len() < 4096 {
                bytes.extend_from_slice(&data[..data.len().min(4096)]);
            }
        }
    };
    // A watch that is quiet for this long has told all.
    let _ = tokio::time::timeout(PATIENCE, reading).await;
    let gist = gist(&String::from_utf8_lossy(&bytes));
    Answer { code, failed: code >= 500 && gist.contains("InternalError"), gist }
}

/// The words of an answer without what is quoted, counted or named in it.
fn gist(text: &str) -> String {
    let unescaped = text.replace("\\\"", "'");
    let mut gist = String::new();
    let mut quoted = false;
    for letter in unescaped.chars() {
        match letter {
            '\'' => quoted = !quoted,
            _ if quoted => {}
            letter if letter.is_ascii_alphabetic() || letter == ' ' => gist.push(letter),
            _ => {}
        }
        if gist.len() >= 220 {
            break;
        }
    }
    gist
}
