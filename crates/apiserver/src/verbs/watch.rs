//! Watch: the state if asked for, then every change, as lines of a stream.
//!
//! A watch is pulled by its reader and holds no queue: a reader that stops costs nothing, and one that comes back too
//! late gets the 410 that every client knows how to handle.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::list::{Collection, Selection};
use super::{Core, Headings, Outcome, TableForm, codec, partial, shown};
use crate::catalog::Resource;
use crate::http::Lines;
use crate::request::{Encoding, IncludeObject, WatchOptions, WatchStart};
use crate::schema;
use crate::sources;
use crate::status::ApiError;
use crate::store::{self, Change, Event, List, Revision, Start, Stored, TooOld, WatchEnd};

const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Without a wish of the client a watch lives this long, and up to as long again.
const DEFAULT_SECONDS: u64 = 1800;
/// More than any client means. A deadline that is further away than the clock reaches could not be written down.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How the objects of events are shown.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EventForm {
    Plain(Encoding),
    Partial(Encoding),
    Table(IncludeObject),
}

/// A watch to be started.
#[derive(Debug)]
pub(crate) struct Watching<'a> {
    pub(crate) collection: Collection<'a>,
    pub(crate) options: WatchOptions,
    pub(crate) form: EventForm,
}

/// The types of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

/// A running watch.
struct Running {
    core: Arc<Core>,
    resource: Arc<Resource>,
    selection: Selection,
    form: EventForm,
    headings: Headings,
    initial: std::vec::IntoIter<Arc<Stored>>,
    initial_end: Option<Revision>,
    /// None once the watch is over.
    changes: Option<store::Watch>,
    /// Told instead of the first event.
    refused: Option<ApiError>,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    stopping: tokio::sync::watch::Receiver<bool>,
}

impl Core {
    /// Starts a watch. What can only be told in the stream, such as a version that is too old, is told there.
    pub(crate) async fn watch(self: &Arc<Self>, watching: Watching<'_>) -> Outcome<Lines> {
        let Watching { collection, options, form } = watching;
        let scope = collection.scope();
        let (mut initial, mut initial_end) = (Vec::new(), None);
        let start = match options.start {
            WatchStart::Now => Start::Now,
            WatchStart::After(revision) => Start::After(Revision(revision)),
            WatchStart::State(freshness) => {
                self.wait_for(freshness).await?;
                let page =
                    self.store.list(&List::latest(&scope)).map_err(|error| ApiError::internal(error.to_string()))?;
                initial_end = options.wants_initial_bookmark().then_some(page.revision);
                initial = page.items;
                Start::After(page.revision)
            }
        };
        let (changes, refused) = match self.store.watch(scope, start) {
            Ok(changes) => (Some(changes), None),
            Err(error) => (None, Some(too_old(collection.resource, error))),
        };
        let spread = || Duration::from_secs(DEFAULT_SECONDS + sources::below(&*self.entropy, DEFAULT_SECONDS));
        let now = Instant::now();
        let deadline = now + options.timeout.unwrap_or_else(spread).min(FOREVER);
        let known = collection.resource.field_labels();
        let running = Running {
            core: Arc::clone(self),
            resource: Arc::clone(collection.resource),
            selection: Selection { labels: options.labels, fields: options.fields, known },
            form,
            headings: Headings::Shown,
            initial: initial.into_iter(),
            initial_end,
            changes,
            refused,
            bookmarks: options.bookmarks,
            next_bookmark: next_bookmark(now, deadline),
            deadline,
            stopping: self.stopping.subscribe(),
        };
        Ok(Box::pin(futures_util::stream::unfold(running, |mut running| async move {
            let line = running.next().await?;
            Some((line, running))
        })))
    }
}

/// Once a minute, and twice shortly before the end, so that the client can go on from there.
fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let before_end = [2, 1].map(|seconds| deadline.checked_sub(Duration::from_secs(seconds)));
    let times = before_end.into_iter().flatten().chain([now + BOOKMARK_EVERY]);
    times.filter(|time| *time > now).min().unwrap_or(now + BOOKMARK_EVERY)
}

fn too_old(resource: &Resource, error: TooOld) -> ApiError {
    match resource.stored_as.as_str() {
        // The reference keeps no cache of events and words it differently.
        "events" => ApiError::expired("The resourceVersion for the provided watch is too old."),
        _ => ApiError::expired(format!("too old resource version: {} ({})", error.requested, error.oldest)),
    }
}

/// What happens next to a running watch.
enum Next {
    Event(Arc<Event>),
    Bookmark,
    Ended(WatchEnd),
    Over,
}

impl Running {
    /// The next line; none when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(refusal) = self.refused.take() {
            return Some(self.line(Kind::Error, refusal.to_json()));
        }
        for stored in self.initial.by_ref() {
            let object = shown(&self.resource, codec::decode(&stored));
            if self.selection.matches(&object) {
                return Some(self.line(Kind::Added, object));
            }
        }
        if let Some(revision) = self.initial_end.take() {
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            return Some(self.bookmark(revision, Some(annotations)));
        }
        loop {
            match self.wait().await? {
                Next::Event(event) => {
                    if let Some((kind, object)) = self.meaning(&event) {
                        return Some(self.line(kind, object));
                    }
                }
                Next::Bookmark => {
                    self.next_bookmark = next_bookmark(Instant::now(), self.deadline);
                    match self.changes.as_mut()?.progress() {
                        Ok(revision) if self.bookmarks => return Some(self.bookmark(revision, None)),
                        Ok(_) => {}
                        Err(end) => return self.end(end),
                    }
                }
                Next::Ended(end) => return self.end(end),
                Next::Over => return None,
            }
        }
    }

    async fn wait(&mut self) -> Option<Next> {
        let changes = self.changes.as_mut()?;
        if *self.stopping.borrow() {
            return None;
        }
        Some(tokio::select! {
            biased;
            change = changes.next() => match change {
                Ok(event) => Next::Event(event),
                Err(end) => Next::Ended(end),
            },
            () = tokio::time::sleep_until(self.deadline) => Next::Over,
            () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => Next::Bookmark,
            _ = self.stopping.changed() => Next::Over,
        })
    }

    fn end(&mut self, end: WatchEnd) -> Option<Bytes> {
        self.changes = None;
        match end {
            WatchEnd::Closed => None,
            WatchEnd::Lagged { oldest } => {
                let status = ApiError::expired(format!("too old resource version: watch fell behind ({oldest})"));
                Some(self.line(Kind::Error, status.to_json()))
            }
        }
    }

    /// What a change means to a client that sees only what its selectors match (fact 8).
    fn meaning(&self, event: &Event) -> Option<(Kind, Value)> {
        let at = |stored: &Arc<Stored>, revision| shown(&self.resource, codec::decode_at(stored, revision));
        match &event.change {
            Change::Created { new } => {
                let object = at(new, event.revision);
                self.selection.matches(&object).then_some((Kind::Added, object))
            }
            Change::Deleted { old } => {
                let object = at(old, event.revision);
                self.selection.matches(&object).then_some((Kind::Deleted, object))
            }
            Change::Updated { new, .. } if self.selection.is_everything() => {
                Some((Kind::Modified, at(new, event.revision)))
            }
            Change::Updated { old, new } => {
                let (old, new) = (at(old, event.revision), at(new, event.revision));
                match (self.selection.matches(&old), self.selection.matches(&new)) {
                    (true, true) => Some((Kind::Modified, new)),
                    (false, true) => Some((Kind::Added, new)),
                    (true, false) => Some((Kind::Deleted, old)),
                    (false, false) => None,
                }
            }
        }
    }

    fn bookmark(&mut self, revision: Revision, annotations: Option<Value>) -> Bytes {
        let mut object = self.resource.blank();
        object["metadata"] = json!({"resourceVersion": revision.to_string()});
        if let Some(annotations) = annotations {
            object["metadata"]["annotations"] = annotations;
        }
        self.line(Kind::Bookmark, object)
    }

    fn line(&mut self, kind: Kind, object: Value) -> Bytes {
        if let EventForm::Plain(Encoding::Protobuf) | EventForm::Partial(Encoding::Protobuf) = self.form {
            return self.frame(kind, &object);
        }
        let object = match (self.form, kind) {
            (_, Kind::Error) | (EventForm::Plain(_), _) => object,
            (EventForm::Partial(_), _) => partial(&object),
            (EventForm::Table(include), _) => {
                let form = TableForm { resource: &self.resource, include, now: self.core.now() };
                form.one(object, std::mem::replace(&mut self.headings, Headings::Left))
            }
        };
        let mut line = crate::http::json_bytes(&json!({"type": kind.as_str(), "object": object}));
        line.push(b'\n');
        line.into()
    }

    /// An event in protobuf: a length of four bytes, then WatchEvent { 1: type, 2: RawExtension { 1: the object } }.
    fn frame(&self, kind: Kind, object: &Value) -> Bytes {
        let sealed = match (kind, self.form, self.resource.table()) {
            (Kind::Error, _, _) => schema::proto::seal("v1", "Status", &schema::tables::meta::STATUS, object),
            (_, EventForm::Plain(_), Some(table)) => {
                schema::proto::seal(&self.resource.api_version, &self.resource.kind, table, object)
            }
            // Metadata has the same number in every kind, so any table encodes it.
            _ => {
                let table = &schema::tables::core::CONFIG_MAP;
                schema::proto::seal("meta.k8s.io/v1", "PartialObjectMetadata", table, &partial(object))
            }
        };
        let mut event = Vec::with_capacity(sealed.len() + 32);
        put_field(&mut event, 1, kind.as_str().as_bytes());
        let mut extension = Vec::with_capacity(sealed.len() + 8);
        put_field(&mut extension, 1, &sealed);
        put_field(&mut event, 2, &extension);
        let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
        let mut framed = length.to_be_bytes().to_vec();
        framed.extend_from_slice(&event);
        framed.into()
    }
}

/// A protobuf field that holds bytes.
fn put_field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push((number << 3) | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap_or(0x7f) | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or(0x7f));
    out.extend_from_slice(bytes);
}
