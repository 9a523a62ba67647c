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
use super::{Core, Headings, Outcome, TableForm, TypeFields, codec, partial, print_shown, shown};
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

/// How many watches are open. Every clone that [`OpenWatches::open`] hands out is one.
#[derive(Debug, Default)]
pub(crate) struct OpenWatches(Arc<()>);

impl OpenWatches {
    fn open(&self) -> Arc<()> {
        Arc::clone(&self.0)
    }

    pub(crate) fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
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
    /// Held for as long as the watch is open.
    _open: Arc<()>,
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
            _open: self.watches.open(),
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
        while let Some(stored) = self.initial.next() {
            if self.selection.matches_stored(&self.resource, &stored) {
                return Some(self.tell(Kind::Added, &stored, stored.revision));
            }
        }
        if let Some(revision) = self.initial_end.take() {
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            return Some(self.bookmark(revision, Some(annotations)));
        }
        loop {
            match self.wait().await? {
                Next::Event(event) => {
                    if let Some((kind, stored)) = self.meaning(&event) {
                        return Some(self.tell(kind, stored, event.revision));
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

    /// What a change means to a client that sees only what its selectors match (API-0.8).
    fn meaning<'e>(&self, event: &'e Event) -> Option<(Kind, &'e Arc<Stored>)> {
        let matches = |stored| self.selection.matches_stored(&self.resource, stored);
        match &event.change {
            Change::Created { new } => matches(new).then_some((Kind::Added, new)),
            Change::Deleted { old } => matches(old).then_some((Kind::Deleted, old)),
            Change::Updated { old, new } => match (matches(old), matches(new)) {
                (true, true) => Some((Kind::Modified, new)),
                (false, true) => Some((Kind::Added, new)),
                (true, false) => Some((Kind::Deleted, old)),
                (false, false) => None,
            },
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

    /// The line about a stored object. Plain text is copied, which takes less than sharing it between watches would.
    fn tell(&mut self, kind: Kind, stored: &Stored, revision: Revision) -> Bytes {
        if let EventForm::Plain(Encoding::Json | Encoding::Yaml) = self.form {
            let mut line = Vec::with_capacity(stored.value.len() + 128);
            line.extend_from_slice(b"{\"type\":\"");
            line.extend_from_slice(kind.as_str().as_bytes());
            line.extend_from_slice(b"\",\"object\":");
            print_shown(&mut line, &self.resource, stored, revision, TypeFields::Shown);
            line.extend_from_slice(b"}\n");
            return line.into();
        }
        let object = shown(&self.resource, codec::decode_at(stored, revision));
        self.line(kind, object)
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
