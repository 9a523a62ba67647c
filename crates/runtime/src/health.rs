//! What operators and probes ask over HTTP: `/metrics`, `/healthz` and what else was named.
//!
//! The server answers GET and HEAD without authentication, as the sidecars do, so give it a loopback address unless a
//! scraper must reach it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::csi::places::ConnectionPlaces;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::metrics::{self, Metrics};
use crate::stop::Stop;

/// Connections at the same time. One more takes the place of the one that has been open longest.
const CONNECTIONS: usize = 64;
/// A connection that lives longer is closed: probes and scrapers come back.
const LIFETIME: Duration = Duration::from_secs(60);
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;
type Probe = Arc<dyn Fn() -> BoxFuture<'static, Answer> + Send + Sync>;

/// What a path that is asked anew each time answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub code: StatusCode,
    /// What a person reads.
    pub text: String,
}

impl Answer {
    /// All is well.
    pub fn ok() -> Answer {
        Answer { code: StatusCode::OK, text: "ok".to_owned() }
    }
}

/// What is healthy, by name.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<Mutex<BTreeMap<String, Check>>>,
    probes: Arc<Mutex<BTreeMap<String, Probe>>>,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Health").field("checks", &checks.keys().collect::<Vec<_>>()).finish()
    }
}

impl Health {
    /// Adds a check, served as `/healthz/NAME` and as part of `/healthz`. The error is a sentence.
    pub fn add(&self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        let mut checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        checks.insert(name.to_owned(), Arc::new(check));
    }

    /// Answers a path by asking each time, whatever the method: for what takes time to find out. It comes before checks.
    pub fn probe(&self, path: &str, probe: impl Fn() -> BoxFuture<'static, Answer> + Send + Sync + 'static) {
        let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        probes.insert(path.to_owned(), Arc::new(probe));
    }

    fn probe_at(&self, path: &str) -> Option<Probe> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    /// All checks, or the one of that name; `None` if there is none.
    pub fn ask(&self, name: Option<&str>) -> Option<Result<(), String>> {
        let checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match name {
            Some(name) => checks.get(name).map(|check| check()),
            None => {
                let bad = checks.iter().filter_map(|(name, check)| Some(format!("{name}: {}", check().err()?)));
                let bad: Vec<String> = bad.collect();
                Some(if bad.is_empty() { Ok(()) } else { Err(bad.join("\n")) })
            }
        }
    }
}

/// Why the server cannot start. This ends the process: an operator who asked for metrics should get them.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is not one.
    #[error("{address:?} is not an address; use HOST:PORT or :PORT")]
    NotAnAddress {
        /// As given.
        address: String,
    },
    /// Somebody else has it, or it is not ours.
    #[error("listening on {address}")]
    Bind {
        /// The address.
        address: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A server that listens and does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    metrics_path: String,
    metrics: Metrics,
    health: Health,
}

impl Server {
    /// Listens. `:8080` means every address, as Go reads it.
    pub async fn bind(
        address: &str,
        metrics_path: &str,
        metrics: &Metrics,
        health: &Health,
    ) -> Result<Server, ListenError> {
        let full = if address.starts_with(':') { format!("0.0.0.0{address}") } else { address.to_owned() };
        let resolved = tokio::net::lookup_host(&full).await.ok().and_then(|mut found| found.next());
        let Some(resolved) = resolved else {
            return Err(ListenError::NotAnAddress { address: address.to_owned() });
        };
        let bind = |source| ListenError::Bind { address: resolved.to_string(), source };
        let listener = TcpListener::bind(resolved).await.map_err(bind)?;
        let metrics_path = metrics_path.to_owned();
        Ok(Server { listener, metrics_path, metrics: metrics.clone(), health: health.clone() })
    }

    /// Where it listens; the port is real also if 0 was asked for.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop`.
    pub async fn run(&self, stop: &Stop) {
        let mut open = FuturesUnordered::new();
        let places = ConnectionPlaces::new(CONNECTIONS);
        let stopped = stop.stopped();
        tokio::pin!(stopped);
        loop {
            tokio::select! {
                biased;
                () = &mut stopped => return,
                Some(()) = open.next(), if !open.is_empty() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let place = places.take(peer.ip());
                        open.push(async move {
                            place.hold(self.serve(stream)).await;
                        });
                    }
                    // Out of file descriptors, or the client has left already; neither gets better by asking at once.
                    Err(error) => {
                        tracing::debug!(%error, "accepting a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
    }

    async fn serve(&self, stream: TcpStream) {
        let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
            if let Some(probe) = self.health.probe_at(request.uri().path()) {
                let Answer { code, text: body } = probe().await;
                return Ok::<_, Infallible>(text(code, body));
            }
            Ok(self.answer(request.method(), request.uri().path()))
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
        // A client that breaks off, or stays too long, is its own problem.
        let _ = timeout(LIFETIME, server.serve_connection(TokioIo::new(stream), service)).await;
    }

    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if *method != Method::GET && *method != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
        }
        if path == self.metrics_path && !path.is_empty() {
            let mut response = text(StatusCode::OK, self.metrics.encode());
            let kind = header::HeaderValue::from_static(metrics::CONTENT_TYPE);
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            return response;
        }
        let Some(rest) = path.strip_prefix("/healthz") else {
            let metrics =
                if self.metrics_path.is_empty() { String::new() } else { format!("{} or ", self.metrics_path) };
            return text(StatusCode::NOT_FOUND, format!("not found; try {metrics}/healthz\n"));
        };
        let name = rest.strip_prefix('/').filter(|name| !name.is_empty());
        match self.health.ask(name) {
            Some(Ok(())) => text(StatusCode::OK, "ok".to_owned()),
            Some(Err(why)) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
            None => text(StatusCode::NOT_FOUND, "no such check\n".to_owned()),
        }
    }
}

fn text(code: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    let kind = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::Stopper;
    use crate::time::SystemClock;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn health_is_the_sum_of_its_checks_and_metrics_have_their_path() {
        let (health, metrics) = (Health::default(), Metrics::new(&SystemClock));
        health.add("good", || Ok(()));
        health.add("leader-election", || Err("late".to_owned()));
        let server = Server::bind("127.0.0.1:0", "/metrics", &metrics, &health).await.unwrap();
        let address = server.address().unwrap();
        let (stopper, stop) = Stopper::new();
        let asking = async {
            let answers = [
                ("/healthz", "500", "leader-election: late"),
                ("/healthz/good", "200", "ok"),
                ("/healthz/leader-election", "500", "late"),
                ("/healthz/other", "404", "no such check"),
                ("/metrics", "200", "process_start_time_seconds"),
                ("/", "404", "try /metrics"),
            ];
            for (path, code, text) in answers {
                let answer = get(address, path).await;
                assert!(answer.starts_with(&format!("HTTP/1.1 {code}")) && answer.contains(text), "{path}: {answer}");
            }
            stopper.stop();
        };
        tokio::join!(server.run(&stop), asking);
    }

    #[tokio::test]
    async fn connections_that_send_nothing_keep_nobody_out() {
        let (health, metrics) = (Health::default(), Metrics::new(&SystemClock));
        let server = Server::bind("127.0.0.1:0", "/metrics", &metrics, &health).await.unwrap();
        let address = server.address().unwrap();
        let (stopper, stop) = Stopper::new();
        let asking = async {
            let mut idle = Vec::new();
            for _ in 0..3 * CONNECTIONS {
                idle.push(TcpStream::connect(address).await.unwrap());
            }
            let answer = get(address, "/healthz").await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            // The oldest ones were closed to make room.
            assert_eq!(idle[0].read(&mut [0]).await.unwrap_or(0), 0);
            stopper.stop();
        };
        tokio::join!(server.run(&stop), asking);
    }

    #[tokio::test]
    async fn a_bad_address_is_said() {
        let (health, metrics) = (Health::default(), Metrics::new(&SystemClock));
        let error = Server::bind("nonsense", "/metrics", &metrics, &health).await.unwrap_err();
        assert!(error.to_string().contains("HOST:PORT"), "{error}");
    }
}
