//! A thin typed layer on [`kube::Client`]: what was asked, what came back, and what is known if nothing did.
//!
//! Answers are read into any type that deserialises, so a caller takes the projection it needs. Nothing is retried here
//! but what certainly had no effect: the server said 429, or 503 with a time to wait. There is no limit on the rate of
//! requests unless one is given: the server's own fairness knows more than we do.
//!
//! # Invariants
//! 1. A write whose answer was lost is [`Error::Unknown`], never a plain failure.
//! 2. Every request is counted by verb and resource, each repetition too.

mod counts;
mod error;
mod limit;
#[cfg(test)]
mod tests;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::object::{Key, Kind, Meta, Object, Revision, Scope, Uid};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

pub use counts::{Counts, Verb};
pub use error::{Cause, Error};
pub(crate) use limit::Bucket;
pub use limit::Rate;
pub use watch::{WatchEvent, WatchStream};

use crate::causes;
use crate::entropy::Entropy;
use crate::failed_writes::{ToldFailures, note_write};
use crate::metrics::{self, Metrics};
use error::{Refusal, Status};

/// How often a request is sent at most while the server asks us to wait.
const MOST_TRIES: u32 = 10;
/// The longest wait that is obeyed without handing the error to the caller, who has other work to do.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How a client behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long one request may take, waiting as told by the server included.
    pub timeout: Duration,
    /// A limit on requests, watches apart. `None` by default.
    pub rate: Option<Rate>,
    /// Who owns the fields we write, and the start of the user agent.
    pub manager: String,
}

impl Default for Options {
    fn default() -> Options {
        Options { timeout: Duration::from_secs(30), rate: None, manager: "orlop".to_owned() }
    }
}

/// A client of the Kubernetes API. Clones share connections, counts and limit.
#[derive(Clone)]
pub struct Client {
    inner: kube::Client,
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    limit: Option<Bucket>,
    counts: Counts,
    metrics: Metrics,
    entropy: Entropy,
    told: ToldFailures,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

/// A change to parts of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// RFC 7386: members replace members, null removes.
    Merge(Value),
    /// RFC 6902: a list of operations, all or none; `test` makes it conditional.
    Json(Value),
    /// Kubernetes' own: lists merge by key. Not for custom resources.
    Strategic(Value),
    /// Server-side apply: what this manager wants to own.
    Apply {
        /// The fields, with `apiVersion` and `kind`.
        body: Value,
        /// Whether to take fields that others own.
        force: bool,
    },
}

impl Patch {
    fn content_type(&self) -> &'static str {
        match self {
            Patch::Merge(_) => "application/merge-patch+json",
            Patch::Json(_) => "application/json-patch+json",
            Patch::Strategic(_) => "application/strategic-merge-patch+json",
            Patch::Apply { .. } => "application/apply-patch+yaml",
        }
    }

    fn body(&self) -> &Value {
        match self {
            Patch::Merge(body) | Patch::Json(body) | Patch::Strategic(body) | Patch::Apply { body, .. } => body,
        }
    }
}

/// What must hold for a deletion to happen. Leaving both out deletes whatever has the name: say why if you do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// It is this very object.
    pub uid: Option<Uid>,
    /// It has not changed since.
    pub revision: Option<Revision>,
}

impl Preconditions {
    /// Only this very object, in whatever state.
    pub fn same(meta: &Meta) -> Preconditions {
        Preconditions { uid: Some(meta.uid.clone()), revision: None }
    }

    /// Only this very object as we know it.
    pub fn unchanged(meta: &Meta) -> Preconditions {
        Preconditions { uid: Some(meta.uid.clone()), revision: Some(meta.revision) }
    }
}

/// What became of an object that was asked to go.
#[derive(Debug)]
pub enum Deleted<T> {
    /// It is gone.
    Gone,
    /// It goes when its finalizers, or its time to end, are done.
    Pending(T),
}

/// One page of objects.
#[derive(Debug)]
pub struct Page<T> {
    /// The objects in the server's order.
    pub items: Vec<T>,
    /// As of when.
    pub revision: Revision,
    /// Where the next page starts, if there is one.
    pub next: Option<String>,
}

/// Which objects to list or watch.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selection {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// A label selector.
    pub labels: Option<String>,
    /// A field selector.
    pub fields: Option<String>,
    /// How many of them a cache holds. Requests are the same.
    pub extent: Extent,
}

/// How many of the selected objects a cache holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// All.
    #[default]
    All,
    /// Those that somebody wants at the moment; see [`crate::cache::Want`].
    Wanted,
}

impl Selection {
    fn query(&self, query: &mut Query) {
        query.maybe("labelSelector", self.labels.as_deref());
        query.maybe("fieldSelector", self.fields.as_deref());
    }
}

/// From where a watch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchFrom {
    /// All objects as of now, then a bookmark that ends the list, then changes.
    Everything,
    /// Changes after this revision.
    Revision(Revision),
}

/// One request, before it is sent.
struct Ask<'a> {
    verb: Verb,
    kind: Kind,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    part: Option<&'a str>,
    query: Query,
    content_type: &'static str,
    body: Bytes,
}

/// A query string that is being built.
#[derive(Default)]
struct Query(String);

impl Query {
    fn add(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(name);
        self.0.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => self.0.push(char::from(byte)),
                other => self.0.push_str(&format!("%{other:02X}")),
            }
        }
    }

    fn maybe(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }
}

impl<'a> Ask<'a> {
    fn new(verb: Verb, kind: Kind) -> Ask<'a> {
        let content_type = "application/json";
        let query = Query::default();
        Ask { verb, kind, namespace: None, name: None, part: None, query, content_type, body: Bytes::new() }
    }

    fn of(verb: Verb, kind: Kind, key: &'a Key) -> Ask<'a> {
        Ask { namespace: key.namespace(), name: Some(key.name()), ..Ask::new(verb, kind) }
    }

    fn with(mut self, body: &impl Serialize) -> Result<Ask<'a>, Error> {
        let source = |source| Error::Unreadable { doing: format!("writing a request to {}", self.doing()), source };
        self.body = serde_json::to_vec(body).map_err(source)?.into();
        Ok(self)
    }

    fn doing(&self) -> String {
        let mut doing = format!("{} {}", self.verb, self.resource());
        if let Some(name) = self.name {
            doing.push(' ');
            if let Some(namespace) = self.namespace {
                doing.push_str(namespace);
                doing.push('/');
            }
            doing.push_str(name);
        }
        doing
    }

    fn resource(&self) -> String {
        match self.part {
            Some(part) => format!("{}/{part}", self.kind.plural),
            None => self.kind.plural.to_owned(),
        }
    }

    fn method(&self) -> Method {
        match self.verb {
            Verb::Get | Verb::List | Verb::Watch => Method::GET,
            Verb::Create => Method::POST,
            Verb::Update => Method::PUT,
            Verb::Patch => Method::PATCH,
            Verb::Delete => Method::DELETE,
        }
    }
}

impl Client {
    /// A client on kube's, which owns connections and credentials.
    pub fn new(inner: kube::Client, options: Options, metrics: &Metrics, entropy: &Entropy) -> Client {
        let limit = options.rate.map(Bucket::new);
        let (counts, told) = (Counts::default(), ToldFailures::default());
        let shared = Shared { options, limit, counts, metrics: metrics.clone(), entropy: entropy.fork(), told };
        Client { inner, shared: Arc::new(shared) }
    }

    /// How often what was asked.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// Which failed writes users were told of.
    pub(crate) fn told(&self) -> &ToldFailures {
        &self.shared.told
    }

    /// Where this client's numbers go.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Reads one object from the server, past every cache of ours.
    pub async fn get<T: DeserializeOwned>(&self, kind: Kind, key: &Key) -> Result<T, Error> {
        self.answer(Ask::of(Verb::Get, kind, key)).await
    }

    /// Reads one page; `next` is [`Page::next`] of the page before.
    pub async fn list<T: DeserializeOwned>(
        &self,
        kind: Kind,
        selection: &Selection,
        limit: u32,
        next: Option<&str>,
    ) -> Result<Page<T>, Error> {
        let mut ask = Ask { namespace: selection.namespace.as_deref(), ..Ask::new(Verb::List, kind) };
        selection.query(&mut ask.query);
        if limit > 0 {
            ask.query.add("limit", &limit.to_string());
        }
        ask.query.maybe("continue", next);
        Ok(self.answer::<RawPage<T>>(ask).await?.into())
    }

    /// Stores a new object. `body` holds `apiVersion`, `kind` and a name or `generateName`.
    pub async fn create<T: DeserializeOwned>(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let mut ask = Ask { namespace, ..Ask::new(Verb::Create, kind) };
        ask.query.add("fieldManager", &self.shared.options.manager);
        self.answer(ask.with(body)?).await
    }

    /// Stores something that belongs to an object, such as the `binding` of a pod. The answer says nothing but that it is.
    pub async fn create_part(&self, kind: Kind, key: &Key, part: &str, body: &impl Serialize) -> Result<(), Error> {
        let mut ask = Ask { part: Some(part), ..Ask::of(Verb::Create, kind, key) };
        ask.query.add("fieldManager", &self.shared.options.manager);
        noted(Verb::Create, self.bytes(ask.with(body)?).await.map(drop))
    }

    /// Asks for something that belongs to an object and is made in the answer, such as the `token` of a service account.
    pub async fn request_part<T: DeserializeOwned>(
        &self,
        kind: Kind,
        key: &Key,
        part: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let ask = Ask { part: Some(part), ..Ask::of(Verb::Create, kind, key) };
        self.answer(ask.with(body)?).await
    }

    /// Replaces an object; conditional if `body` carries a `resourceVersion`.
    pub async fn replace<T: DeserializeOwned>(&self, kind: Kind, key: &Key, body: &impl Serialize) -> Result<T, Error> {
        let mut ask = Ask::of(Verb::Update, kind, key);
        ask.query.add("fieldManager", &self.shared.options.manager);
        self.answer(ask.with(body)?).await
    }

    /// Changes parts of an object.
    pub async fn patch<T: DeserializeOwned>(&self, kind: Kind, key: &Key, patch: &Patch) -> Result<T, Error> {
        self.patch_part(kind, key, None, patch).await
    }

    /// Changes parts of an object's status.
    pub async fn patch_status<T: DeserializeOwned>(&self, kind: Kind, key: &Key, patch: &Patch) -> Result<T, Error> {
        self.patch_part(kind, key, Some("status"), patch).await
    }

    async fn patch_part<T: DeserializeOwned>(
        &self,
        kind: Kind,
        key: &Key,
        part: Option<&str>,
        patch: &Patch,
    ) -> Result<T, Error> {
        let mut ask = Ask { part, content_type: patch.content_type(), ..Ask::of(Verb::Patch, kind, key) };
        ask.query.add("fieldManager", &self.shared.options.manager);
        if let Patch::Apply { force: true, .. } = patch {
            ask.query.add("force", "true");
        }
        self.answer(ask.with(patch.body())?).await
    }

    /// Asks for an object's end.
    pub async fn delete<T: Object>(&self, key: &Key, only_if: &Preconditions) -> Result<Deleted<T>, Error> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        self.delete_with(key, only_if, options).await
    }

    /// Ends an object without giving it time: what a node does with a pod of which nothing is left.
    pub async fn delete_now<T: Object>(&self, key: &Key, only_if: &Preconditions) -> Result<Deleted<T>, Error> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        self.delete_with(key, only_if, options).await
    }

    async fn delete_with<T: Object>(
        &self,
        key: &Key,
        only_if: &Preconditions,
        mut body: Value,
    ) -> Result<Deleted<T>, Error> {
        let mut preconditions = json!({});
        if let Some(uid) = &only_if.uid {
            preconditions["uid"] = uid.as_str().into();
        }
        if let Some(revision) = only_if.revision {
            preconditions["resourceVersion"] = revision.to_string().into();
        }
        if preconditions != json!({}) {
            body["preconditions"] = preconditions;
        }
        let ask = Ask::of(Verb::Delete, T::KIND, key).with(&body)?;
        let doing = ask.doing();
        let ended = self.bytes(ask).await;
        let read = |bytes: Bytes| deleted(&bytes).map_err(|source| Error::Unreadable { doing, source });
        noted(Verb::Delete, ended.and_then(read))
    }

    /// Follows changes. `seconds` is when the server should end the watch by itself.
    pub async fn watch(
        &self,
        kind: Kind,
        selection: &Selection,
        from: WatchFrom,
        seconds: u64,
    ) -> Result<WatchStream, Error> {
        let mut ask = Ask { namespace: selection.namespace.as_deref(), ..Ask::new(Verb::Watch, kind) };
        selection.query(&mut ask.query);
        ask.query.add("watch", "true");
        ask.query.add("allowWatchBookmarks", "true");
        ask.query.add("timeoutSeconds", &seconds.to_string());
        match from {
            WatchFrom::Everything => {
                ask.query.add("sendInitialEvents", "true");
                ask.query.add("resourceVersionMatch", "NotOlderThan");
            }
            WatchFrom::Revision(revision) => ask.query.add("resourceVersion", &revision.to_string()),
        }
        let doing = ask.doing();
        Ok(WatchStream::new(self.send(ask).await?, doing))
    }

    async fn answer<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, Error> {
        let (verb, doing) = (ask.verb, ask.doing());
        let ended = self.bytes(ask).await;
        let read = |bytes: Bytes| serde_json::from_slice(&bytes).map_err(|source| Error::Unreadable { doing, source });
        noted(verb, ended.and_then(read))
    }

    /// The whole answer. Losing it half-way is losing it.
    async fn bytes(&self, ask: Ask<'_>) -> Result<Bytes, Error> {
        let (verb, doing) = (ask.verb, ask.doing());
        let deadline = Instant::now() + self.shared.options.timeout;
        let body = self.send(ask).await?;
        match timeout_at(deadline, body.collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) => Err(lost(verb, doing, causes(&error))),
            Err(_) => Err(lost(verb, doing, "no answer in time".to_owned())),
        }
    }

    /// Sends, waits as the server asks, and gives the body of a success.
    async fn send(&self, ask: Ask<'_>) -> Result<kube::client::Body, Error> {
        let shared = &*self.shared;
        let deadline = Instant::now() + shared.options.timeout;
        let mut tries = 1;
        loop {
            if let Some(limit) = &shared.limit
                && ask.verb != Verb::Watch
            {
                limit.take().await;
            }
            let refusal = match timeout_at(deadline, self.once(&ask)).await {
                Ok(Ok(Ok(body))) => return Ok(body),
                Ok(Ok(Err(refusal))) => refusal,
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    self.count(&ask, "<error>");
                    return Err(lost(ask.verb, ask.doing(), "no answer in time".to_owned()));
                }
            };
            let Some(wait) = refusal.wait().filter(|wait| *wait <= LONGEST_WAIT && tries < MOST_TRIES) else {
                return Err(refusal.into_error());
            };
            let wait = shared.entropy.longer(wait, 0.2);
            if Instant::now() + wait >= deadline {
                return Err(refusal.into_error());
            }
            tracing::debug!(doing = ask.doing(), ?wait, "the server asks us to wait");
            sleep(wait).await;
            tries += 1;
        }
    }

    async fn once(&self, ask: &Ask<'_>) -> Result<Result<kube::client::Body, Refusal>, Error> {
        let path = format!("{}{}", ask.kind.path(ask.namespace, ask.name, ask.part), ask.query.0);
        let request = http::Request::builder()
            .method(ask.method())
            .uri(path)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, ask.content_type)
            .header(USER_AGENT, format!("{}/{}", self.shared.options.manager, env!("CARGO_PKG_VERSION")))
            .body(kube::client::Body::from(ask.body.to_vec()))
            .map_err(|error| Error::Refused { code: 0, message: format!("{}: {error}", ask.doing()) })?;
        let response = match self.inner.send(request).await {
            Ok(response) => response,
            Err(error) => {
                self.count(ask, "<error>");
                return Err(unsent_or_lost(ask, &error));
            }
        };
        let (parts, body) = response.into_parts();
        self.count(ask, parts.status.as_str());
        if parts.status.is_success() {
            return Ok(Ok(body));
        }
        // A refusal's text is for people; that it was cut changes nothing about the refusal.
        let text = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        Ok(Err(refusal(ask, parts.status, &parts.headers, &text)))
    }

    fn count(&self, ask: &Ask<'_>, code: &str) {
        let resource = ask.resource();
        self.shared.counts.add(ask.verb, &resource);
        let labels = metrics::Request { verb: ask.verb.as_str(), resource, code: code.to_owned() };
        self.shared.metrics.requests.get_or_create(&labels).inc();
    }
}

fn refusal(ask: &Ask<'_>, code: StatusCode, headers: &HeaderMap, text: &[u8]) -> Refusal {
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Refusal {
        verb: ask.verb,
        doing: ask.doing(),
        code,
        retry_after: seconds.map(Duration::from_secs),
        status: serde_json::from_slice::<Status>(text).ok().filter(|status| !status.status.is_empty()),
        text: String::from_utf8_lossy(text.get(..text.len().min(256)).unwrap_or_default()).into_owned(),
    }
}

/// Lets the pass that wrote know how the write ended.
fn noted<T>(verb: Verb, ended: Result<T, Error>) -> Result<T, Error> {
    if verb.writes() {
        note_write(&ended);
    }
    ended
}

fn lost(verb: Verb, doing: String, message: String) -> Error {
    if verb.writes() {
        Error::Unknown { doing, message }
    } else {
        Error::Unavailable { doing, retry_after: None, message }
    }
}

/// A connection that was never made carried no request; anything later may have.
fn unsent_or_lost(ask: &Ask<'_>, error: &kube::Error) -> Error {
    let mut message = error.to_string();
    let mut refused = false;
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            refused |= io.kind() == std::io::ErrorKind::ConnectionRefused;
        }
        message = cause.to_string();
        source = cause.source();
    }
    if refused {
        Error::Unavailable { doing: ask.doing(), retry_after: None, message }
    } else {
        lost(ask.verb, ask.doing(), message)
    }
}

#[derive(Deserialize)]
struct DeleteHead {
    #[serde(default)]
    kind: Box<str>,
    metadata: Option<DeleteMeta>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct DeleteMeta {
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Option<Vec<serde::de::IgnoredAny>>,
}

/// The server answers with a `Status` or with the object. An object without finalizers and without time to end is gone.
fn deleted<T: Object>(bytes: &[u8]) -> Result<Deleted<T>, serde_json::Error> {
    let head: DeleteHead = serde_json::from_slice(bytes)?;
    let meta = head.metadata.unwrap_or_default();
    let held = meta.finalizers.is_some_and(|finalizers| !finalizers.is_empty());
    let ending = meta.deletion_grace_period_seconds.unwrap_or(0) > 0;
    if &*head.kind == "Status" || meta.deletion_timestamp.is_none() || !(held || ending) {
        return Ok(Deleted::Gone);
    }
    serde_json::from_slice(bytes).map(Deleted::Pending)
}

#[derive(Deserialize)]
struct RawPage<T> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(bound(deserialize = "T: DeserializeOwned"), default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PageMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

impl<T> From<RawPage<T>> for Page<T> {
    fn from(raw: RawPage<T>) -> Page<T> {
        Page {
            items: raw.items,
            revision: Revision::parse(&raw.metadata.resource_version).unwrap_or(Revision::NONE),
            next: raw.metadata.next.filter(|next| !next.is_empty()),
        }
    }
}

/// A key for an object of this kind: the namespace is left out where the kind has none.
pub fn key_of(kind: Kind, namespace: &str, name: &str) -> Key {
    match kind.scope {
        Scope::Cluster => Key::cluster(name),
        Scope::Namespaced => Key::namespaced(namespace, name),
    }
}
