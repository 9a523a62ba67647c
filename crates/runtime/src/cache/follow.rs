//! Fills a cache and keeps it true: list, watch, resume, and list again when history is gone.

use std::sync::Arc;
use std::time::Duration;

use api::object::{Meta, Object, Revision};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::Cache;
use crate::causes;
use crate::client::{Client, Error, Extent, Page, Selection, WatchEvent, WatchFrom, WatchStream};
use crate::entropy::Entropy;
use crate::metrics::Resource;
use crate::stop::Stop;

/// The server ends a watch after this many seconds, and up to twice as many.
const WATCH_SECONDS: u64 = 300;
/// How long after that we wait before we take the connection for dead.
const WATCH_MARGIN: Duration = Duration::from_secs(30);
/// A server that has said once how far it is says so about once a minute. When it is silent for longer than this, the
/// connection is dead although nobody was told, as after a cut that swallows everything.
const SILENCE: Duration = Duration::from_secs(150);
/// A server that ignores the request for a list at the start of a watch never ends that list.
const QUIET_LIST: Duration = Duration::from_secs(60);
const PAGE: u32 = 500;
/// How many wanted objects are read at once.
const QUESTIONS: usize = 8;
const SHORTEST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// After a watch has lived this long, the next failure is the first one again.
const HEALTHY: Duration = Duration::from_secs(120);
/// A watch that lived this long did some good: resuming it, or listing again, at once is no storm.
const STEADY: Duration = Duration::from_secs(15);
/// How many watches in a row may end before that and be resumed at once.
const EARLY_ENDS: u32 = 4;
/// How many lists in a row may be made at once because history is gone.
const RELISTS: u32 = 1;
/// How often resuming may fail in a row before we list again: the server may have lost the revision we name.
const RESUMES: u32 = 5;
/// How often a list older than what we know is refused before we believe that the server's history was replaced.
const OLD_LISTS_REFUSED: u32 = 3;

/// How the server gives complete lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listing {
    Streamed,
    Paged,
}

/// Why following stopped for a moment.
enum Pause {
    /// The server ended the watch as agreed.
    Ended,
    /// History is gone, as the server says in this error.
    ListAgain(Error),
    /// Something failed.
    Failed(Error),
}

struct Follower<'a, T: Object> {
    cache: &'a Cache<T>,
    client: &'a Client,
    entropy: Entropy,
    listing: Listing,
    /// How long a watch may be silent, once that is known.
    silence: Option<Duration>,
    failures: u32,
    /// Watches in a row that ended before they had lived for long, and lists in a row that were made again.
    early_ends: u32,
    relists: u32,
    /// The last logged message, so that a lasting failure is logged once.
    logged: String,
    old_lists: u32,
}

pub(super) async fn run<T: Object>(cache: &Cache<T>, client: &Client, entropy: &Entropy, stop: &Stop) {
    let mut follower = Follower {
        cache,
        client,
        entropy: entropy.fork(),
        listing: Listing::Streamed,
        silence: None,
        failures: 0,
        early_ends: 0,
        relists: 0,
        logged: String::new(),
        old_lists: 0,
    };
    tokio::select! {
        biased;
        () = stop.stopped() => {}
        never = follower.follow() => match never {},
    }
}

impl<T: Object> Follower<'_, T> {
    async fn follow(&mut self) -> std::convert::Infallible {
        let mut known: Option<Revision> = None;
        loop {
            let started = Instant::now();
            let pause = match known {
                Some(revision) if !self.unwanted() => self.watch(revision).await,
                _ => self.list().await,
            };
            // Both leave the store as far as they came, whatever ended them.
            known = Some(self.cache.revision()).filter(|held| self.cache.is_synced() && *held > Revision::NONE);
            if started.elapsed() >= STEADY {
                (self.early_ends, self.relists) = (0, 0);
            }
            if started.elapsed() >= HEALTHY {
                self.failures = 0;
                self.logged.clear();
            }
            match pause {
                Pause::Ended if started.elapsed() >= Duration::from_secs(1) => {
                    self.failures = 0;
                    self.early_ends = self.early_ends.saturating_add(1);
                    if self.early_ends > EARLY_ENDS {
                        self.pause("the server ends each watch early").await;
                    }
                }
                Pause::Ended => self.pause("the server ended the watch at once").await,
                Pause::ListAgain(error) => {
                    self.client.metrics().relists.get_or_create(&Resource { resource: T::KIND.plural }).inc();
                    known = None;
                    self.relists = self.relists.saturating_add(1);
                    if self.relists > RELISTS {
                        // History that is gone again right after a list is a failure like any other.
                        let why = format!("the watch's history is gone again: {error}");
                        self.cache.set_failure(Some(error));
                        self.pause(&why).await;
                    } else {
                        tracing::info!(kind = T::KIND.kind, "the watch's history is gone, listing again");
                    }
                }
                Pause::Failed(error) => {
                    // What is merely away is resumed; what keeps failing, or says no, is asked from the start.
                    let away = matches!(error, Error::Unavailable { .. } | Error::TooMany { .. });
                    let why = causes(&error);
                    self.cache.set_failure(Some(error));
                    if !away || self.failures >= RESUMES {
                        known = None;
                    }
                    self.pause(&why).await;
                }
            }
        }
    }

    async fn pause(&mut self, why: &str) {
        let early = self.early_ends.saturating_sub(EARLY_ENDS);
        let before = self.failures.max(early).max(self.relists.saturating_sub(RELISTS + 1));
        let pause = SHORTEST_PAUSE.saturating_mul(1 << before.min(6)).min(LONGEST_PAUSE);
        let pause = self.entropy.longer(pause, 1.0);
        self.failures = self.failures.saturating_add(1);
        match self.logged == why {
            true => tracing::debug!(kind = T::KIND.kind, why, ?pause, "the watch failed again"),
            false => tracing::warn!(kind = T::KIND.kind, why, ?pause, "the watch failed"),
        }
        why.clone_into(&mut self.logged);
        sleep(pause).await;
    }

    fn selection(&self) -> &Selection {
        &self.cache.inner.selection
    }

    async fn list(&mut self) -> Pause {
        match (self.selection().extent, self.listing) {
            (Extent::Wanted, _) => self.wanted().await,
            (Extent::All, Listing::Streamed) => self.streamed().await,
            (Extent::All, Listing::Paged) => self.paged().await,
        }
    }

    /// Whether there is nothing to follow.
    fn unwanted(&self) -> bool {
        self.selection().extent == Extent::Wanted && self.cache.wanted().is_empty()
    }

    /// Reads what is wanted, object by object, and follows the kind from before that.
    async fn wanted(&mut self) -> Pause {
        while self.unwanted() {
            // Everything that is wanted is held.
            self.cache.follows();
            self.cache.inner.wanted.notified().await;
        }
        // The shortest list there is says where we are.
        let place = self.client.list::<serde::de::IgnoredAny>(T::KIND, self.selection(), 1, None).await;
        let revision = match place {
            Ok(page) => page.revision,
            Err(error) => return Pause::Failed(error),
        };
        if let Some(pause) = self.too_old(revision) {
            return pause;
        }
        let asked = stream::iter(self.cache.wanted()).map(|key| async {
            match self.client.get::<T>(T::KIND, &key).await {
                Ok(object) => Ok((key, Some(Arc::new(object)))),
                Err(error) if error.is_not_found() => Ok((key, None)),
                Err(error) => Err(error),
            }
        });
        let said: Vec<_> = match asked.buffer_unordered(QUESTIONS).try_collect().await {
            Ok(said) => said,
            Err(error) => return Pause::Failed(error),
        };
        self.cache.apply(|store, changes| store.asked(said, revision, changes));
        self.cache.follows();
        self.watch(revision).await
    }

    /// One request for the list and for what follows it.
    async fn streamed(&mut self) -> Pause {
        let seconds = self.watch_seconds();
        let asked = self.client.watch(T::KIND, self.selection(), WatchFrom::Everything, seconds).await;
        let mut stream = match asked {
            Ok(stream) => stream,
            // A server without this feature says so in one of these ways.
            Err(Error::Invalid { message, .. }) => return self.fall_back(&message).await,
            Err(error) => return Pause::Failed(error),
        };
        let mut listed: Vec<Arc<T>> = Vec::new();
        loop {
            let event = match timeout(QUIET_LIST, stream.next::<T>()).await {
                Err(_) => return self.fall_back("it did not end the list").await,
                Ok(Err(error @ Error::Expired { .. })) => return Pause::ListAgain(error),
                Ok(Err(error)) => return Pause::Failed(error),
                Ok(Ok(None)) => return Pause::Ended,
                Ok(Ok(Some(event))) => event,
            };
            match event {
                WatchEvent::Put(object) => listed.push(self.known_or_new(object)),
                WatchEvent::Gone(meta) => listed.retain(|object| *object.key() != meta.key),
                WatchEvent::Unreadable { meta, source } => listed.extend(self.unread(meta.as_deref(), &source)),
                WatchEvent::Bookmark { initial_end: false, .. } => {}
                WatchEvent::Bookmark { revision, initial_end: true } => {
                    if let Some(pause) = self.take(listed, revision) {
                        return pause;
                    }
                    return self.stream(stream, seconds).await;
                }
            }
        }
    }

    async fn fall_back(&mut self, why: &str) -> Pause {
        tracing::info!(kind = T::KIND.kind, why, "the server does not stream lists, reading pages");
        self.listing = Listing::Paged;
        self.paged().await
    }

    async fn paged(&mut self) -> Pause {
        let mut listed: Vec<Arc<T>> = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let page = match self.page(next.as_deref()).await {
                Ok(page) => page,
                Err(error @ Error::Expired { .. }) if next.is_some() => return Pause::ListAgain(error),
                Err(error) => return Pause::Failed(error),
            };
            for object in page.items {
                match object {
                    Read::Object(object) => listed.push(self.known_or_new(object)),
                    Read::Unreadable(meta, source) => listed.extend(self.unread(meta.as_deref(), &source)),
                }
            }
            next = page.next;
            if next.is_none() {
                return match self.take(listed, page.revision) {
                    Some(pause) => pause,
                    None => self.watch(page.revision).await,
                };
            }
        }
    }

    /// One page. If one of its objects cannot be read, it is asked for again, and each is read by itself.
    async fn page(&self, next: Option<&str>) -> Result<Page<Read<T>>, Error> {
        let (kind, selection) = (T::KIND, self.selection());
        match self.client.list::<T>(kind, selection, PAGE, next).await {
            Ok(Page { items, revision, next }) => {
                Ok(Page { items: items.into_iter().map(Read::Object).collect(), revision, next })
            }
            Err(Error::Unreadable { .. }) => {
                let Page { items, revision, next } = self.client.list::<Value>(kind, selection, PAGE, next).await?;
                Ok(Page { items: items.iter().map(Read::each).collect(), revision, next })
            }
            Err(error) => Err(error),
        }
    }

    /// Keeps the object we hold if nothing changed, so that listing again costs no second copy of the world.
    fn known_or_new(&self, object: T) -> Arc<T> {
        let meta = object.meta();
        match self.cache.get(&meta.key) {
            Some(held) if held.meta().uid == meta.uid && held.meta().revision == meta.revision => held,
            _ => Arc::new(object),
        }
    }

    /// Takes over a complete list; a pause if it is older than what we know.
    fn take(&mut self, listed: Vec<Arc<T>>, revision: Revision) -> Option<Pause> {
        if let Some(pause) = self.too_old(revision) {
            return Some(pause);
        }
        self.cache.apply(|store, changes| store.replace_all(listed, revision, changes));
        self.cache.follows();
        None
    }

    /// A pause if a list is older than what we know. If that goes on, we know nothing.
    fn too_old(&mut self, revision: Revision) -> Option<Pause> {
        let seen = self.cache.revision();
        if revision < seen && self.old_lists < OLD_LISTS_REFUSED {
            self.old_lists += 1;
            return Some(Pause::Failed(Error::Unavailable {
                doing: format!("list {}", T::KIND.plural),
                retry_after: None,
                message: format!("it answers as of revision {revision}, and we have seen {seen}"),
            }));
        }
        if revision < seen {
            tracing::warn!(kind = T::KIND.kind, %revision, %seen, "the server's history was replaced, starting over");
            self.cache.apply(|store, changes| store.start_over(changes));
        }
        self.old_lists = 0;
        None
    }

    async fn watch(&mut self, from: Revision) -> Pause {
        let seconds = self.watch_seconds();
        match self.client.watch(T::KIND, self.selection(), WatchFrom::Revision(from), seconds).await {
            Ok(stream) => {
                self.cache.set_failure(None);
                self.stream(stream, seconds).await
            }
            Err(error @ Error::Expired { .. }) => Pause::ListAgain(error),
            Err(error) => Pause::Failed(error),
        }
    }

    fn watch_seconds(&self) -> u64 {
        self.entropy.longer(Duration::from_secs(WATCH_SECONDS), 1.0).as_secs()
    }

    /// Applies what the watch says until it ends.
    async fn stream(&mut self, mut stream: WatchStream, seconds: u64) -> Pause {
        let lasts = Duration::from_secs(seconds) + WATCH_MARGIN;
        loop {
            let patience = self.silence.map_or(lasts, |silence| silence.min(lasts));
            let event = match timeout(patience, stream.next::<T>()).await {
                Err(_) => {
                    tracing::info!(kind = T::KIND.kind, ?patience, "the watch is silent, following anew");
                    return Pause::Ended;
                }
                Ok(Ok(None)) => return Pause::Ended,
                Ok(Err(error @ Error::Expired { .. })) => return Pause::ListAgain(error),
                Ok(Err(error)) => return Pause::Failed(error),
                Ok(Ok(Some(event))) => event,
            };
            match event {
                WatchEvent::Put(object) => {
                    self.cache.apply(|store, changes| store.put(Arc::new(object), changes));
                }
                WatchEvent::Gone(meta) => self.cache.apply(|store, changes| store.remove(&meta, changes)),
                WatchEvent::Bookmark { revision, .. } => {
                    self.silence = Some(SILENCE);
                    self.cache.apply(|store, _| store.progress(revision));
                }
                WatchEvent::Unreadable { meta, source } => {
                    self.unreadable(meta.as_deref(), &source);
                    if let Some(meta) = meta {
                        self.cache.apply(|store, _| store.progress(meta.revision));
                    }
                }
            }
        }
    }

    /// An object of a list that nobody can read is there all the same: what was known of it before stays known, and is not
    /// told to have ended.
    fn unread(&self, meta: Option<&Meta>, error: &serde_json::Error) -> Option<Arc<T>> {
        self.unreadable(meta, error);
        self.cache.get(&meta?.key).filter(|held| meta.is_some_and(|meta| held.meta().uid == meta.uid))
    }

    /// One object that nobody can read must not blind us for all others.
    fn unreadable(&self, meta: Option<&Meta>, error: &serde_json::Error) {
        let key = meta.map(|meta| meta.key.to_string()).unwrap_or_default();
        tracing::error!(kind = T::KIND.kind, key, %error, "an object cannot be read and is ignored");
        self.client.metrics().unreadable.get_or_create(&Resource { resource: T::KIND.plural }).inc();
    }
}

/// An object of a page, if it has the shape that it should have.
enum Read<T> {
    Object(T),
    /// Which it is, as far as that could be read, and what is wrong with it.
    Unreadable(Option<Box<Meta>>, serde_json::Error),
}

impl<T: DeserializeOwned> Read<T> {
    /// From its text, as all objects are read: what reads them from values would be as much code again.
    fn each(object: &Value) -> Self {
        match serde_json::from_slice(object.to_string().as_bytes()) {
            Ok(object) => Self::Object(object),
            Err(error) => Self::Unreadable(Meta::deserialize(&object["metadata"]).ok().map(Box::new), error),
        }
    }
}
