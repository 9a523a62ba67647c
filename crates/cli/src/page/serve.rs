//! The page over HTTP: a few files, and a stream of what happens.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use apiserver::seats::{Seat, Seats};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use runtime::Stop;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::admit::{Admission, Door};
use super::assets::{self, Asset};
use super::board::Board;
use super::viewer;

/// Connections at the same time: three of four for those that have shown the token ([`apiserver::seats`]).
const CONNECTIONS: usize = 256;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Only what comes from here is run, drawn or connected to, and nobody frames it.
const POLICY: &str =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// A server that listens.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) listener: TcpListener,
    pub(super) door: Arc<Door>,
    pub(super) board: Arc<Board>,
}

impl Server {
    /// Answers until `stop`; streams end with it.
    pub(super) async fn run(&self, stop: &Stop) {
        let mut open = JoinSet::new();
        let seats = Seats::new(CONNECTIONS);
        let stopped = stop.stopped();
        tokio::pin!(stopped);
        loop {
            tokio::select! {
                biased;
                () = &mut stopped => break,
                Some(_) = open.join_next(), if !open.is_empty() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let seat = seats.take(peer.ip());
                        open.spawn(seated(seat, stream, Arc::clone(&self.door), Arc::clone(&self.board)));
                    }
                    // Out of file descriptors, or the client has left already; neither gets better by asking at once.
                    Err(error) => {
                        tracing::debug!(%error, "accepting a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        open.shutdown().await;
    }
}

/// A connection until its end, or until it has to make room for another one.
async fn seated(seat: Seat, stream: TcpStream, door: Arc<Door>, board: Arc<Board>) {
    tokio::select! {
        biased;
        () = seat.revoked() => {}
        () = connection(&seat, stream, door, board) => {}
    }
}

async fn connection(seat: &Seat, stream: TcpStream, door: Arc<Door>, board: Arc<Board>) {
    // Changes are small, and are to be seen at once.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        let admission = door.admit(&request);
        if matches!(admission, Admission::Welcome | Admission::Exchange(_)) {
            seat.set_known();
        }
        let response = answer(request.uri().path(), admission, &door, &board);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    // A browser that breaks off is its own affair.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

fn answer(path: &str, admission: Admission, door: &Door, board: &Arc<Board>) -> Response<Body> {
    match admission {
        Admission::WrongHost => plain(StatusCode::MISDIRECTED_REQUEST, "this page is not served under that name\n"),
        Admission::WrongMethod => plain(StatusCode::METHOD_NOT_ALLOWED, "only GET: the page changes nothing\n"),
        Admission::Exchange(cookie) => exchange(&cookie),
        admission => match (assets::public(path), admission, path) {
            (Some(asset), _, _) => file(StatusCode::OK, asset, asset.text.to_owned()),
            (None, Admission::Welcome, "/") => file(StatusCode::OK, assets::PAGE, assets::PAGE.text.to_owned()),
            (None, Admission::Welcome, "/events") => events(board),
            (None, Admission::Welcome, _) => plain(StatusCode::NOT_FOUND, "there is nothing here; the page is at /\n"),
            (None, _, _) => {
                let text = assets::LOCKED.text.replace("{where}", &escaped(&door.kept));
                file(StatusCode::UNAUTHORIZED, assets::LOCKED, text)
            }
        },
    }
}

/// The token leaves the address as soon as it has opened the page.
fn exchange(cookie: &str) -> Response<Body> {
    let mut response = plain(StatusCode::SEE_OTHER, "");
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, HeaderValue::from_static("/"));
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        headers.insert(header::SET_COOKIE, cookie);
    }
    response
}

fn events(board: &Arc<Board>) -> Response<Body> {
    respond(StatusCode::OK, "text/event-stream", StreamBody::new(viewer::stream(board)).boxed_unsync())
}

fn file(code: StatusCode, asset: Asset, text: String) -> Response<Body> {
    respond(code, asset.kind, Full::new(Bytes::from(text)).boxed_unsync())
}

fn plain(code: StatusCode, text: &'static str) -> Response<Body> {
    respond(code, "text/plain; charset=utf-8", Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync())
}

fn respond(code: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let set = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        // Another port of this machine counts as the same site for a cookie, but not for this.
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in set {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A text inside HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
