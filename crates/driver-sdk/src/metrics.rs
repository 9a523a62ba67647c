//! What a driver counts, and a small HTTP server that shows it.
//!
//! `csi_plugin_operations_seconds` has the name, labels and buckets that dashboards for CSI drivers already use. The
//! rest is ours and tells how the request pipeline is doing.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use csi::places::ConnectionPlaces;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tonic::Code;

const BUCKETS: [f64; 13] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

/// The last line of the text format.
const END: &str = "# EOF\n";

/// A client that sends nothing for so long is cut off: there is no reason to hold a socket for it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at the same time. One more takes the place of the one that has been open longest.
const CONNECTIONS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    driver_name: String,
    method_name: &'static str,
    grpc_status_code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    method_name: &'static str,
}

/// The counters of one driver. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    driver_name: String,
    registry: Registry,
    seconds: Family<CallLabels, Histogram>,
    in_flight: Family<MethodLabels, Gauge>,
    joined: Counter,
    panics: Counter,
    conflicts: Counter,
    detached: Counter,
    beside: OnceLock<Text>,
}

/// What a driver measures of its own, in the text format.
struct Text(Box<dyn Fn() -> String + Send + Sync>);

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Text")
    }
}

impl Metrics {
    pub(crate) fn new(driver_name: &str) -> Self {
        let mut registry = Registry::default();
        let seconds = Family::new_with_constructor(histogram as fn() -> Histogram);
        let in_flight = Family::<MethodLabels, Gauge>::default();
        let [joined, panics, conflicts, detached] = std::array::from_fn(|_| Counter::default());
        registry.register("csi_plugin_operations_seconds", "Time until the caller had an answer", seconds.clone());
        registry.register("orlop_driver_operations_in_flight", "Driver operations that run now", in_flight.clone());
        for (name, help, counter) in [
            ("joined_calls", "Calls that waited for an equal one that was running", &joined),
            ("panics", "Driver operations that panicked", &panics),
            ("lock_conflicts", "Calls refused because another operation held the object", &conflicts),
            ("detached", "Calls whose caller left while the work went on", &detached),
        ] {
            registry.register(format!("orlop_driver_{name}"), help, counter.clone());
        }
        let driver_name = driver_name.to_owned();
        Self(Arc::new(Inner {
            driver_name,
            registry,
            seconds,
            in_flight,
            joined,
            panics,
            conflicts,
            detached,
            beside: OnceLock::new(),
        }))
    }

    /// Shows another text beside the counters: whole families in the text format, without its end mark. The first one stays.
    pub fn show_beside(&self, text: impl Fn() -> String + Send + Sync + 'static) {
        drop(self.0.beside.set(Text(Box::new(text))));
    }

    /// Everything, in the text format that Prometheus reads.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.0.registry);
        if let Some(Text(beside)) = self.0.beside.get() {
            let end = text.strip_suffix(END).map_or(text.len(), str::len);
            text.insert_str(end, &beside());
        }
        text
    }

    pub(crate) fn answered(&self, method_name: &'static str, code: Code, took: Duration) {
        let driver_name = self.0.driver_name.clone();
        let labels = CallLabels { driver_name, method_name, grpc_status_code: code_name(code) };
        self.0.seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts an operation as running until the guard is dropped.
    pub(crate) fn running(&self, method_name: &'static str) -> InFlight {
        let gauge = self.0.in_flight.get_or_create_owned(&MethodLabels { method_name });
        gauge.inc();
        InFlight(gauge)
    }

    pub(crate) fn joined(&self) {
        self.0.joined.inc();
    }

    pub(crate) fn panicked(&self) {
        self.0.panics.inc();
    }

    pub(crate) fn conflict(&self) {
        self.0.conflicts.inc();
    }

    pub(crate) fn detached(&self) {
        self.0.detached.inc();
    }
}

pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

/// The names that drivers written in Go put into this label.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    #[error("{0} is not a loopback address: metrics are served on this machine only")]
    NotLoopback(SocketAddr),
    #[error("reading the listener's address")]
    Address(#[source] std::io::Error),
}

/// Serves `GET /metrics` and `GET /healthz` until `shutdown` ends. Only on a loopback address.
pub async fn serve(
    listener: TcpListener,
    metrics: Metrics,
    shutdown: impl Future<Output = ()>,
) -> Result<(), MetricsError> {
    let address = listener.local_addr().map_err(MetricsError::Address)?;
    if !address.ip().is_loopback() {
        return Err(MetricsError::NotLoopback(address));
    }
    let places = ConnectionPlaces::new(CONNECTIONS);
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let (place, metrics) = (places.take(peer.ip()), metrics.clone());
                    tokio::spawn(async move { place.hold(one_client(TokioIo::new(stream), metrics)).await });
                }
                Err(error) => {
                    // Out of file descriptors, mostly: accepting again at once would spin.
                    tracing::warn!(%error, "accepting a metrics client");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    tokio::select! {
        () = accept => {}
        () = shutdown => {}
    }
    Ok(())
}

async fn one_client(stream: TokioIo<tokio::net::TcpStream>, metrics: Metrics) {
    let service = service_fn(move |request| {
        let response = respond(&request, &metrics);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    let connection = http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).serve_connection(stream, service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a metrics client");
    }
}

fn respond(request: &Request<Incoming>, metrics: &Metrics) -> Response<String> {
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            (StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", metrics.text())
        }
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "text/plain", "ok\n".to_owned()),
        (_, "/metrics" | "/healthz") => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "text/plain", "only /metrics and /healthz\n".to_owned()),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn connections_that_send_nothing_keep_no_scraper_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let asking = async {
            let mut idle = Vec::new();
            for _ in 0..3 * CONNECTIONS {
                idle.push(TcpStream::connect(address).await.expect("it listens"));
            }
            let mut client = TcpStream::connect(address).await.expect("it listens");
            let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            client.write_all(request).await.expect("it reads");
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.expect("it answers");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert_eq!(idle[0].read(&mut [0]).await.unwrap_or(0), 0, "the oldest one made room");
        };
        serve(listener, Metrics::new("example.org"), asking).await.expect("it is a loopback address");
    }
}
