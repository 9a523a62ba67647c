//! The way of a request from a component to the server and back.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use apiserver::http::Service;
use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response, Uri};
use runtime::watch;
use tokio::time::sleep;
use tower::ServiceExt as _;

use super::body::Body;
use super::{Action, Ask, Fate, Fates, Flow, Lost, RefusalRates, Verdict};
use crate::journal::Journal;

/// What all requests of one component share.
#[derive(Clone)]
pub(crate) struct Line(Arc<Shared>);

struct Shared {
    name: String,
    journal: Journal,
    fates: Mutex<Box<dyn Fates>>,
    asked: AtomicU64,
    dead: watch::Sender<bool>,
    refusals: RefusalRates,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Line({})", self.0.name)
    }
}

impl Line {
    pub(crate) fn new(name: &str, journal: Journal, fates: Box<dyn Fates>, refusals: RefusalRates) -> Self {
        let (dead, _) = watch::channel(false);
        let (name, fates, asked) = (name.to_owned(), Mutex::new(fates), AtomicU64::new(0));
        Self(Arc::new(Shared { name, journal, fates, asked, dead, refusals }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn note(&self, what: impl std::fmt::Display) {
        self.0.journal.note(&self.0.name, what);
    }

    pub(crate) fn kill(&self) {
        self.0.dead.send_replace(true);
    }

    pub(crate) fn is_dead(&self) -> bool {
        *self.0.dead.borrow()
    }

    /// Returns when the component has died.
    pub(crate) async fn died(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.0.dead.subscribe().wait_for(|dead| *dead).await;
    }

    pub(super) fn event(&self, watch: u64) -> Flow {
        self.fates().event(watch)
    }

    fn fates(&self) -> std::sync::MutexGuard<'_, Box<dyn Fates>> {
        self.0.fates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The API server as one component reaches it: a `tower` service for `kube::Client`.
#[derive(Debug, Clone)]
pub struct Faulty {
    line: Line,
    server: Service,
    /// The newest revision, to know what is behind it.
    store: apiserver::store::Store,
}

impl Faulty {
    pub(crate) fn new(line: Line, server: Service, store: apiserver::store::Store) -> Self {
        Self { line, server, store }
    }
}

/// One request on its way.
struct Trip {
    way: Faulty,
    number: u64,
    action: Action,
    /// `PUT /api/v1/...`
    title: String,
    verdict: Verdict,
}

impl tower::Service<Request<kube::client::Body>> for Faulty {
    type Response = Response<Body>;
    type Error = Lost;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Lost>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<kube::client::Body>) -> Self::Future {
        let way = self.clone();
        if let Ok(agent) = HeaderValue::from_str(way.line.name()) {
            // Ownership of fields and audit lines then name the component.
            request.headers_mut().entry(USER_AGENT).or_insert(agent);
        }
        let number = way.line.0.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let ask = Ask::new(number, request.method(), request.uri());
        let action = ask.action;
        let mut verdict = way.line.fates().request(&ask);
        if matches!(verdict.fate, Fate::Stale { .. }) && !ask.takes_any_state() {
            verdict.fate = Fate::Answered;
        }
        let title = format!("{} {}", request.method(), request.uri());
        let trip = Trip { way, number, action, title, verdict };
        Box::pin(async move {
            let line = trip.way.line.clone();
            tokio::select! {
                biased;
                () = line.died() => std::future::pending().await,
                answer = trip.make(request) => answer,
            }
        })
    }
}

impl Trip {
    async fn make(self, request: Request<kube::client::Body>) -> Result<Response<Body>, Lost> {
        let Verdict { fate, there, back, patience } = self.verdict.clone();
        if fate == Fate::CrashBefore {
            return self.crash("crashed before it was sent").await;
        }
        pass(there).await;
        let response = match fate {
            Fate::RequestLost => return self.lose("request lost", patience).await,
            Fate::Refused(refusal) => {
                pass(back).await;
                self.note(format_args!("{refusal} (injected)"));
                let request = self.title.split('?').next().unwrap_or_default();
                self.way.line.0.refusals.count(format!("{} {request}", self.way.line.name()));
                return Ok(self.response(refusal.answer(self.action)));
            }
            Fate::Stale { revisions } => self.stale(request, revisions).await,
            Fate::Answered | Fate::AnswerLost | Fate::CrashBefore | Fate::CrashAfter => self.send(request).await,
        };
        match fate {
            Fate::CrashAfter => return self.crash("crashed after it had its effect").await,
            Fate::AnswerLost => return self.lose("answer lost", patience).await,
            _ => {}
        }
        pass(back).await;
        self.note(response.status().as_u16());
        Ok(self.response(response))
    }

    async fn send(&self, request: Request<kube::client::Body>) -> Response<apiserver::http::Body> {
        match self.way.server.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// The answer of a cache that has not seen the last `revisions`; that of the server where there is none.
    async fn stale(&self, request: Request<kube::client::Body>, revisions: u64) -> Response<apiserver::http::Body> {
        let past = self.way.store.revision().0.saturating_sub(revisions).max(1);
        let Some(uri) = at_revision(request.uri(), past) else { return self.send(request).await };
        let (parts, body) = request.into_parts();
        let mut older = Request::from_parts(parts.clone(), kube::client::Body::empty());
        *older.uri_mut() = uri;
        let response = self.send(older).await;
        match response.status().is_success() {
            true => {
                self.note(format_args!("as of {past} (injected)"));
                response
            }
            false => self.send(Request::from_parts(parts, body)).await,
        }
    }

    async fn lose(&self, what: &str, patience: std::time::Duration) -> Result<Response<Body>, Lost> {
        self.note(format_args!("{what} (injected)"));
        sleep(patience).await;
        Err(Lost::TimedOut)
    }

    async fn crash(&self, how: &str) -> Result<Response<Body>, Lost> {
        self.note(format_args!("{how} (injected)"));
        self.way.line.kill();
        std::future::pending().await
    }

    fn response(&self, response: Response<apiserver::http::Body>) -> Response<Body> {
        response.map(|body| match self.action {
            Action::Watch => Body::watch(body, self.way.line.clone(), self.number),
            _ => Body::whole(body),
        })
    }

    fn note(&self, outcome: impl std::fmt::Display) {
        self.way.line.note(format_args!("#{} {} -> {outcome}", self.number, self.title));
    }
}

/// No time is not even a turn of the runtime, so that scripts without latency stay exact.
async fn pass(time: std::time::Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

/// The same request for the state at exactly this revision.
fn at_revision(uri: &Uri, revision: u64) -> Option<Uri> {
    let kept = uri.query()?.split('&').filter(|pair| !pair.starts_with("resourceVersion"));
    let query: Vec<&str> = kept.collect();
    let exact = format!("resourceVersion={revision}&resourceVersionMatch=Exact");
    let query = if query.is_empty() { exact } else { format!("{}&{exact}", query.join("&")) };
    format!("{}?{query}", uri.path()).parse().ok()
}
