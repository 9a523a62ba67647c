//! A small API server for this crate's tests. It refuses as a real one does (names, revisions, preconditions, history),
//! and loses, delays or refuses requests when told. What needs the whole API is tested in `sim`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::watch;
use api::object::{Key, Kind, Meta, Object};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use serde::Deserialize;
use serde_json::{Value, json};
use tower::service_fn;

use crate::client::{Client, Options};
use crate::entropy::Entropy;
use crate::metrics::Metrics;
use crate::time::SystemClock;

/// A claim as the tests see it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Thing {
    pub(crate) metadata: Meta,
    #[serde(default)]
    pub(crate) colour: String,
}

impl Object for Thing {
    const KIND: Kind = Kind::CLAIM;
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A thing as nobody has stored it, for tests without a server.
pub(crate) fn thing(name: &str, uid: &str, revision: u64, colour: &str) -> Thing {
    let revision = api::object::Revision::new(revision);
    let meta = Meta { uid: uid.into(), revision, ..Meta::new(key(name)) };
    Thing { metadata: meta, colour: colour.to_owned() }
}

pub(crate) fn key(name: &str) -> Key {
    Key::namespaced("n", name)
}

/// What happens to a request instead of being served.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The connection breaks before the server has it.
    LostBefore,
    /// The server has done it, and the answer never arrives.
    LostAfter,
    /// No answer, for ever.
    Hangs,
    /// This status, body and number of seconds to wait.
    Refused(u16, Value, Option<u64>),
    /// This status and text, whatever the text is.
    Said(u16, &'static str),
}

struct Change {
    path: String,
    kind: &'static str,
    object: Value,
    revision: u64,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    history: Vec<Change>,
    revision: u64,
    /// Changes up to here are forgotten.
    compacted: u64,
    uids: u64,
    /// Faults by the start of "METHOD path"; each is used once.
    faults: VecDeque<(String, Fault)>,
    /// Faults that never end, by a part of "METHOD path?query".
    lasting: Vec<(String, Fault)>,
    log: Vec<String>,
    streams_lists: bool,
    /// Grows when all watches have to end.
    generation: u64,
    /// How many watches there have been, and which of them say nothing any more.
    watches: u64,
    muted: u64,
}

#[derive(Clone)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
}

type Answer = Result<Response<UnsyncBoxBody<Bytes, std::io::Error>>, std::io::Error>;

impl Fake {
    pub(crate) fn new() -> Fake {
        let state = State { streams_lists: true, revision: 10, ..State::default() };
        Fake { state: Arc::new(Mutex::new(state)), changed: watch::Sender::new(0) }
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(Options::default(), &Metrics::new(&SystemClock))
    }

    pub(crate) fn client_with(&self, options: Options, metrics: &Metrics) -> Client {
        let fake = self.clone();
        let service = service_fn(move |request: Request<kube::client::Body>| {
            let fake = fake.clone();
            async move { fake.serve(request).await }
        });
        Client::new(kube::Client::new(service, "n"), options, metrics, &Entropy::seeded(5))
    }

    pub(crate) fn fault(&self, matching: &str, fault: Fault) {
        self.state.lock().unwrap().faults.push_back((matching.to_owned(), fault));
    }

    /// At every request from now on that has this part.
    pub(crate) fn fault_for_ever(&self, part: &str, fault: Fault) {
        self.state.lock().unwrap().lasting.push((part.to_owned(), fault));
    }

    pub(crate) fn without_streamed_lists(&self) {
        self.state.lock().unwrap().streams_lists = false;
    }

    /// What was asked so far: "METHOD path?query".
    pub(crate) fn log(&self) -> Vec<String> {
        self.state.lock().unwrap().log.clone()
    }

    /// Ends all watches, as a server that restarts.
    pub(crate) fn end_watches(&self) {
        self.state.lock().unwrap().generation += 1;
        self.changed.send_modify(|count| *count += 1);
    }

    /// Tells all watches how far the server is.
    pub(crate) fn bookmark(&self) {
        let mut state = self.state.lock().unwrap();
        state.revision += 1;
        let revision = state.revision;
        let object = json!({"metadata": {"namespace": "n", "name": "", "resourceVersion": revision.to_string()}});
        let path = path_of(&object);
        state.history.push(Change { path, kind: "BOOKMARK", object, revision });
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Says nothing more on the watches that there are, as a server behind a cut cable.
    pub(crate) fn mute(&self) {
        let mut state = self.state.lock().unwrap();
        state.muted = state.watches;
    }

    /// Forgets all history, so that no watch can resume.
    pub(crate) fn compact(&self) {
        let mut state = self.state.lock().unwrap();
        state.compacted = state.revision;
    }

    /// The object at a path, if there is one.
    pub(crate) fn at(&self, path: &str) -> Option<Value> {
        self.state.lock().unwrap().objects.get(path).cloned()
    }

    /// All objects of a collection.
    pub(crate) fn under(&self, collection: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let held = state.objects.iter().filter(|(path, _)| path.starts_with(&format!("{collection}/")));
        held.map(|(_, object)| object.clone()).collect()
    }

    /// Stores an object as another client would, whatever is there.
    pub(crate) fn put(&self, name: &str, colour: &str) -> u64 {
        let path = Kind::CLAIM.path_of(&key(name));
        let object = json!({"metadata": {"namespace": "n", "name": name}, "colour": colour});
        let revision = self.store(&path, object);
        self.changed.send_modify(|count| *count += 1);
        revision
    }

    pub(crate) fn remove(&self, name: &str) {
        let mut state = self.state.lock().unwrap();
        state.remove(&Kind::CLAIM.path_of(&key(name)));
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }

    fn store(&self, path: &str, object: Value) -> u64 {
        self.state.lock().unwrap().store(path, object)
    }

    async fn serve(&self, request: Request<kube::client::Body>) -> Answer {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let asked = format!("{} {}", parts.method, parts.uri);
        let fault = {
            let mut state = self.state.lock().unwrap();
            state.log.push(asked.clone());
            let at = state.faults.iter().position(|(matching, _)| asked.starts_with(matching.as_str()));
            let once = at.and_then(|at| state.faults.remove(at));
            let lasting = || state.lasting.iter().find(|(part, _)| asked.contains(part.as_str())).cloned();
            once.or_else(lasting).map(|(_, fault)| fault)
        };
        let broken = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        match fault {
            None => self.answer(&parts.method, &parts.uri, body),
            Some(Fault::LostBefore) => Err(broken()),
            Some(Fault::LostAfter) => {
                self.answer(&parts.method, &parts.uri, body)?;
                Err(broken())
            }
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::Said(code, text)) => raw(code, text.to_owned().into()),
            Some(Fault::Refused(code, body, wait)) => {
                let mut answer = reply(code, &body)?;
                if let Some(wait) = wait {
                    answer.headers_mut().insert("retry-after", wait.to_string().parse().unwrap());
                }
                Ok(answer)
            }
        }
    }

    fn answer(&self, method: &Method, uri: &http::Uri, body: Value) -> Answer {
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        if query.contains("watch=true") {
            return self.watch(path, query);
        }
        let (code, answer) = self.state.lock().unwrap().serve(method, path, query, body);
        self.changed.send_modify(|count| *count += 1);
        reply(code, &answer)
    }

    fn watch(&self, path: &str, query: &str) -> Answer {
        let mut state = self.state.lock().unwrap();
        state.watches += 1;
        let prefix = format!("{}/", path.replace("/api/v1/", "/api/v1/namespaces/n/"));
        let mut first = Vec::new();
        let mut from = state.revision;
        if query.contains("sendInitialEvents=true") {
            if !state.streams_lists {
                return reply(422, &status(422, "Invalid", "sendInitialEvents is forbidden"));
            }
            let held = state.objects.iter().filter(|(path, _)| path.starts_with(&prefix));
            first.extend(held.map(|(_, object)| line("ADDED", object)));
            let end = json!({"kind": "PersistentVolumeClaim", "metadata": {
                "resourceVersion": state.revision.to_string(),
                "annotations": {crate::keys::INITIAL_EVENTS_END: "true"}}});
            first.push(line("BOOKMARK", &end));
        } else {
            let asked = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
            from = asked.and_then(|asked| asked.parse().ok()).unwrap_or(0);
            if from < state.compacted {
                first.push(line("ERROR", &status(410, "Expired", "too old resource version")));
            }
        }
        let live = live(self.clone(), prefix, from, (state.generation, state.watches));
        let frames = stream::iter(first).chain(live).map(|bytes| Ok::<_, std::io::Error>(Frame::data(bytes)));
        Ok(Response::new(StreamBody::new(frames).boxed_unsync()))
    }
}

/// Changes after `from`, for as long as the server lives.
fn live(fake: Fake, prefix: String, from: u64, (generation, number): (u64, u64)) -> impl Stream<Item = Bytes> {
    let changed = fake.changed.subscribe();
    stream::unfold((fake, changed, from, prefix), move |(fake, mut changed, mut from, prefix)| async move {
        loop {
            let lines = {
                let state = fake.state.lock().unwrap();
                if state.generation != generation {
                    return None;
                }
                let muted = number <= state.muted;
                let news = state.history.iter().filter(|change| change.revision > from);
                let lines: Vec<Bytes> = news
                    .filter(|change| !muted && change.path.starts_with(&prefix))
                    .map(|change| line(change.kind, &change.object))
                    .collect();
                from = from.max(state.revision);
                lines
            };
            if !lines.is_empty() {
                // A line may arrive in pieces; the reader must not care.
                let joined = lines.concat();
                return Some((Bytes::from(joined), (fake, changed, from, prefix)));
            }
            changed.changed().await.ok()?;
        }
    })
}

fn path_of(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Kind::CLAIM.path_of(&Key::namespaced(object["metadata"]["namespace"].as_str().unwrap_or_default(), name))
}

fn line(kind: &str, object: &Value) -> Bytes {
    let mut line = json!({"type": kind, "object": object}).to_string();
    line.push('\n');
    line.into()
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": message})
}

fn reply(code: u16, answer: &Value) -> Answer {
    raw(code, answer.to_string().into())
}

fn raw(code: u16, bytes: Bytes) -> Answer {
    let mut response = Response::new(Full::new(bytes).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = code.try_into().unwrap();
    Ok(response)
}

impl State {
    fn store(&mut self, path: &str, mut object: Value) -> u64 {
        self.revision += 1;
        let known = self.objects.get(path);
        let kind = if known.is_some() { "MODIFIED" } else { "ADDED" };
        let uid = known.map(|known| known["metadata"]["uid"].clone());
        object["metadata"]["uid"] = uid.unwrap_or_else(|| {
            self.uids += 1;
            format!("u{}", self.uids).into()
        });
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.objects.insert(path.to_owned(), object.clone());
        self.history.push(Change { path: path.to_owned(), kind, object, revision: self.revision });
        self.revision
    }

    fn remove(&mut self, path: &str) -> Option<Value> {
        let mut object = self.objects.remove(path)?;
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.history.push(Change {
            path: path.to_owned(),
            kind: "DELETED",
            object: object.clone(),
            revision: self.revision,
        });
        Some(object)
    }

    fn serve(&mut self, method: &Method, path: &str, query: &str, body: Value) -> (u16, Value) {
        match (method.as_str(), self.objects.get(path).cloned()) {
            ("GET", Some(object)) => (200, object),
            ("GET", None) if path.ends_with('s') => (200, self.list(path, query)),
            ("POST", _) => self.create(path, body),
            (_, None) => (404, status(404, "NotFound", &format!("{path} not found"))),
            ("PUT", Some(held)) => {
                let asked = &body["metadata"]["resourceVersion"];
                if !asked.is_null() && *asked != held["metadata"]["resourceVersion"] {
                    return (409, status(409, "Conflict", "the object has been modified"));
                }
                self.store(path, body);
                (200, self.objects[path].clone())
            }
            ("PATCH", Some(mut held)) => {
                for (name, value) in body.as_object().into_iter().flatten() {
                    held[name] = value.clone();
                }
                self.store(path, held);
                (200, self.objects[path].clone())
            }
            ("DELETE", Some(held)) => {
                let asked = &body["preconditions"]["uid"];
                if !asked.is_null() && *asked != held["metadata"]["uid"] {
                    return (409, status(409, "Conflict", "the UID in the precondition does not match"));
                }
                if held["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty()) {
                    let mut held = held;
                    held["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                    self.store(path, held);
                    return (200, self.objects[path].clone());
                }
                self.remove(path);
                (200, json!({"kind": "Status", "status": "Success"}))
            }
            (method, _) => (405, status(405, "MethodNotAllowed", method)),
        }
    }

    fn create(&mut self, path: &str, body: Value) -> (u16, Value) {
        let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
        if self.objects.contains_key(&path) {
            return (409, status(409, "AlreadyExists", &format!("{path} already exists")));
        }
        self.store(&path, body);
        (201, self.objects[&path].clone())
    }

    /// Pages of two, so that paging is always tested.
    fn list(&self, path: &str, query: &str) -> Value {
        let prefix = format!("{}/", path.replace("/api/v1/", "/api/v1/namespaces/n/"));
        let skip = query.split('&').find_map(|part| part.strip_prefix("continue="));
        let skip: usize = skip.and_then(|skip| skip.parse().ok()).unwrap_or(0);
        let all: Vec<_> = self.objects.iter().filter(|(path, _)| path.starts_with(&prefix)).collect();
        let page: Vec<_> = all.iter().skip(skip).take(2).map(|(_, object)| (*object).clone()).collect();
        let next = if skip + 2 < all.len() { (skip + 2).to_string() } else { String::new() };
        json!({"metadata": {"resourceVersion": self.revision.to_string(), "continue": next}, "items": page})
    }
}

/// Waits on paused time until `done`, and fails the test if it never comes.
pub(crate) async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never happened: {what}");
}
