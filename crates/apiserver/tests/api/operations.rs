//! What operators and older clients need: compressed answers, OpenAPI v2, numbers, and a log of who did what.

use std::io::Read as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use crate::support::Server;
use apiserver::audit::AuditLog;
use apiserver::auth::User;
use apiserver::store::{Compaction, Durable, DurableError, Event, MemoryDisk, Options, Store};
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// A record that can be made to fail.
#[derive(Debug)]
struct FailingDisk {
    record: MemoryDisk,
    fails: Arc<AtomicBool>,
}

impl Durable for FailingDisk {
    fn append(&mut self, events: &[Arc<Event>]) -> Result<(), DurableError> {
        match self.fails.load(Ordering::SeqCst) {
            true => Err(DurableError::doing("syncing")(std::io::Error::from_raw_os_error(5))),
            false => self.record.append(events),
        }
    }

    fn compact(&mut self, plan: &Compaction) -> Result<(), DurableError> {
        self.record.compact(plan)
    }

    fn settle(&mut self) -> Result<(), DurableError> {
        self.record.settle()
    }
}

#[tokio::test(start_paused = true)]
async fn health_says_that_the_store_has_stopped_from_the_first_write_that_failed() {
    let (disk, fails) = (MemoryDisk::default(), Arc::new(AtomicBool::new(false)));
    let durable = FailingDisk { record: disk.clone(), fails: Arc::clone(&fails) };
    let server = Server::over(Store::inline(disk.image(), Box::new(durable), Options::default())).await;
    let asked = &server;
    let health = async move |path: &'static str| {
        let response = asked.raw(Request::get(path)).await;
        (response.status().as_u16(), String::from_utf8(bytes(response).await).expect("it is text"))
    };
    assert_eq!(health("/livez").await.0, 200);
    fails.store(true, Ordering::SeqCst);
    let map = json!({"metadata": {"name": "a"}});
    assert_eq!(server.call("POST", MAPS, Some(&map)).await.code, 500);
    // Nothing else runs here that could have noticed.
    for path in ["/livez", "/readyz", "/healthz"] {
        let (code, text) = health(path).await;
        assert!(code == 500 && text.contains("[-]store failed"), "{path}: {code} {text}");
    }
}

/// Counts how much of a body was asked for.
struct CountedBody {
    left: usize,
    read: Arc<AtomicUsize>,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        self.read.fetch_add(PIECE, Ordering::SeqCst);
        Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(&[b'x'; PIECE])))))
    }
}

const PIECE: usize = 64 << 10;

/// A client that is still sending when the connection is closed never reads its answer: the kernel resets it.
#[tokio::test(start_paused = true)]
async fn the_body_of_a_refused_request_is_read_within_bounds() {
    let server = Server::start().await;
    let stranger = server.api.service().from_address(std::net::Ipv4Addr::LOCALHOST.into());
    // A body that ends, and one that is as long as somebody likes.
    for (pieces, expected) in [(48, 48 * PIECE), (usize::MAX, 4 << 20)] {
        let read = Arc::new(AtomicUsize::new(0));
        let body = CountedBody { left: pieces, read: Arc::clone(&read) };
        let request =
            Request::post(MAPS).header("authorization", "Bearer wrong").body(body).expect("it is well formed");
        let response = stranger.clone().oneshot(request).await.expect("the service does not fail");
        assert_eq!(response.status().as_u16(), 401);
        assert_eq!(read.load(Ordering::SeqCst), expected);
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn bytes(response: http::Response<apiserver::http::Body>) -> Vec<u8> {
    response.into_body().collect().await.expect("a body does not fail").to_bytes().to_vec()
}

#[tokio::test(start_paused = true)]
async fn large_answers_are_compressed_for_those_who_read_it() {
    let server = Server::start().await;
    let map = json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(200_000)}});
    assert_eq!(server.call("POST", MAPS, Some(&map)).await.code, 201);
    let path = format!("{MAPS}/large");
    let plain = server.raw(Request::get(&path)).await;
    assert!(plain.headers().get("content-encoding").is_none());
    let plain = bytes(plain).await;
    let offered = server.raw(Request::get(&path).header("accept-encoding", "deflate, gzip;q=0.5")).await;
    assert_eq!(offered.headers()["content-encoding"], "gzip");
    assert_eq!(offered.headers()["vary"], "Accept-Encoding");
    let compressed = bytes(offered).await;
    assert!(compressed.len() < plain.len() / 10);
    let mut read = Vec::new();
    flate2::read::GzDecoder::new(&*compressed).read_to_end(&mut read).expect("it is gzip");
    assert_eq!(read, plain);
    let refused = server.raw(Request::get(&path).header("accept-encoding", "gzip;q=0")).await;
    assert!(refused.headers().get("content-encoding").is_none());
    let small = server.raw(Request::get(MAPS.replace("configmaps", "secrets")).header("accept-encoding", "gzip")).await;
    assert!(small.headers().get("content-encoding").is_none());
    let watch = server.raw(Request::get(format!("{MAPS}?watch=1")).header("accept-encoding", "gzip")).await;
    assert!(watch.headers().get("content-encoding").is_none());
}

#[tokio::test(start_paused = true)]
async fn the_old_openapi_document_has_a_tag_and_two_forms() {
    let server = Server::start().await;
    let json = server.raw(Request::get("/openapi/v2")).await;
    let tag = json.headers()["etag"].clone();
    let document: Value = serde_json::from_slice(&bytes(json).await).expect("it is JSON");
    assert_eq!(document["swagger"], "2.0");
    let snapshot = "io.k8s.storage.snapshot.v1.VolumeSnapshot";
    assert!(document["definitions"].get(snapshot).is_some(), "custom kinds are in it");
    let known = server.raw(Request::get("/openapi/v2").header("if-none-match", tag)).await;
    assert_eq!(known.status(), 304);
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let protobuf = server.raw(Request::get("/openapi/v2").header("accept", accept)).await;
    assert_eq!(protobuf.status(), 200);
    assert_eq!(bytes(protobuf).await[..5], *b"\x0a\x032.0");
    let neither = server.raw(Request::get("/openapi/v2").header("accept", "text/html")).await;
    assert_eq!(neither.status(), 406);
}

#[tokio::test(start_paused = true)]
async fn requests_watches_and_objects_are_counted() {
    let server = Server::start().await;
    server.create_config_map("a", json!({})).await;
    server.create_config_map("a", json!({})).await;
    server.call("GET", "/api/v1/namespaces/default/nonsense/x", None).await;
    let mut events = server.watch(&format!("{MAPS}?watch=1")).await;
    events.next().await.expect("the state is told");
    let text = String::from_utf8(bytes(server.raw(Request::get("/metrics")).await).await).expect("it is text");
    let place = "group=\"\",version=\"v1\",resource=\"configmaps\"";
    let post = format!("verb=\"POST\",{place},subresource=\"\",scope=\"namespace\",component=\"apiserver\"");
    for line in [
        format!("apiserver_request_total{{{post},code=\"201\"}} 1"),
        format!("apiserver_request_total{{{post},code=\"409\"}} 1"),
        format!("apiserver_request_duration_seconds_count{{{post}}} 2"),
        format!("apiserver_longrunning_requests{{{place},component=\"apiserver\",verb=\"WATCH\"}} 1"),
        format!("apiserver_watch_events_total{{{place}}} 1"),
        "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1".to_owned(),
        "apiserver_storage_objects{resource=\"configmaps\"} 1".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(text.contains("orlop_store_commit_seconds_count"), "{text}");
    assert!(!text.contains("nonsense"), "what clients make up is no label");
    drop(events);
    let stranger = server.api.service().as_user(User::anonymous());
    assert_eq!(server.call_as(&stranger, "GET", "/metrics").await.code, 403);
}

/// Where an audit log is kept.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub(crate) fn read(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().expect("nobody panics").clone()).expect("it is text");
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }
}

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn the_audit_log_says_who_did_what_and_no_secrets() {
    let server = Server::start().await;
    let lines = Lines::default();
    let log = Arc::new(AuditLog::to(Box::new(lines.clone())));
    let audited = server.api.service().audited(log);
    let admin = audited.as_user(User::loopback());
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "hunter2"}});
    assert_eq!(server.send_as(&admin, "POST", secrets, Some(&secret)).await.code, 201);
    let stranger = audited.as_user(User::anonymous());
    assert_eq!(server.call_as(&stranger, "GET", &format!("{secrets}/s")).await.code, 403);
    let text = String::from_utf8(lines.0.lock().expect("nobody panics").clone()).expect("it is text");
    assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "{text}");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let [create, get] = events.as_slice() else { panic!("there are two lines: {text}") };
    assert_eq!((&create["verb"], &create["responseStatus"]["code"]), (&json!("create"), &json!(201)));
    assert_eq!(create["user"]["username"], "system:apiserver");
    let place = json!({"resource": "secrets", "namespace": "default", "apiVersion": "v1"});
    assert_eq!(create["objectRef"], place);
    assert_eq!((&create["stage"], &create["level"]), (&json!("ResponseComplete"), &json!("Metadata")));
    assert_eq!(get["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(get["objectRef"]["name"], "s");
}
