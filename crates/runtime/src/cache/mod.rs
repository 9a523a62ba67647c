//! What the cluster looks like, as far as we have heard: one watch per kind and process, shared by everybody.
//!
//! A [`Cache`] holds projections ([`Object`]) behind `Arc`s, in key order, with indexes. [`Cache::run`] fills it with a
//! streamed list where the server can, with pages where it cannot, and then follows the watch; it ends only when told.
//!
//! A cache of [`Extent::Wanted`] is for a process that cares about a few objects of a kind that has many. Whoever wants an
//! object says so ([`Cache::want`]) *and then* reads it from the server; from then on it is followed like all others. There
//! is no list, nothing else is kept, and while nobody wants anything there is no watch either.
//!
//! # Invariants
//! 1. An object's state never goes back: neither a late event nor a list can replace what is newer, and the answer to a
//!    write of ours ([`Cache::wrote`], [`Cache::deleted`]) counts at once.
//! 2. A gap in the watch is closed by comparing: what changed meanwhile is told as changes, what is gone is told with its
//!    last known state. Nobody sees an empty cache in between.
//! 3. Subscribers are called after the change is in the cache and no lock is held, so they may read it. They should only
//!    note keys: the cache, not the change, says what is true by the time the key is worked on.
//! 4. Of what is wanted nothing is missed: an object is read by whoever wants it after that is known here, and read again
//!    whenever the watch starts anew.
//! 5. Missing from the cache is not missing. Only the server can say that something does not exist.
//! 6. A cache keeps nobody alive who listens to it: a subscriber belongs to its [`Subscription`]. Subscribers hold caches,
//!    often the very one that they listen to, and a controller that has ended must take all of it with it.

mod follow;
mod registry;
mod store;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use crate::watch;
use api::object::{Key, Object, Revision, Uid};
use tokio::sync::Notify;

use crate::client::{Client, Error, Extent, Selection};
use crate::entropy::Entropy;
use crate::stop::Stop;

pub use registry::Caches;
use store::Store;
pub use store::{Change, Index, IndexFn};

type Subscriber<T> = dyn Fn(&Change<T>) + Send + Sync;

/// The objects of one kind. Clones are the same cache.
pub struct Cache<T: Object> {
    inner: Arc<Inner<T>>,
}

struct Inner<T: Object> {
    selection: Selection,
    store: RwLock<Store<T>>,
    subscribers: Mutex<Vec<Weak<Subscriber<T>>>>,
    synced: watch::Sender<bool>,
    /// What keeps the cache from following, until it follows again.
    failure: Mutex<Option<Arc<Error>>>,
    /// Something is wanted.
    wanted: Notify,
}

impl<T: Object> Clone for Cache<T> {
    fn clone(&self) -> Cache<T> {
        Cache { inner: self.inner.clone() }
    }
}

impl<T: Object> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("kind", &T::KIND.kind).field("objects", &self.len()).finish_non_exhaustive()
    }
}

impl<T: Object> Cache<T> {
    /// An empty cache of what `selection` selects. Nothing happens until [`Cache::run`].
    pub fn new(selection: Selection) -> Cache<T> {
        let inner = Inner {
            store: RwLock::new(Store::new(selection.extent)),
            selection,
            subscribers: Mutex::default(),
            synced: watch::Sender::new(false),
            failure: Mutex::default(),
            wanted: Notify::new(),
        };
        Cache { inner: Arc::new(inner) }
    }

    /// The object, if we have heard of it.
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.read().get(key).cloned()
    }

    /// Keeps an object for as long as the answer lives, in a cache that holds only what is wanted. Read it from the server
    /// afterwards: what happened to it before was not followed.
    pub fn want(&self, key: &Key) -> Want<T> {
        self.write().want(key);
        self.inner.wanted.notify_one();
        Want { cache: Arc::downgrade(&self.inner), key: key.clone() }
    }

    /// How many of the objects it holds.
    pub fn extent(&self) -> Extent {
        self.inner.selection.extent
    }

    /// How many objects are held.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Up to which revision the watch has come.
    pub fn revision(&self) -> Revision {
        self.read().seen()
    }

    /// All objects in key order. The walk sees each state at the moment it comes by, and holds no lock between steps.
    pub fn walk(&self) -> impl Iterator<Item = Arc<T>> + use<T> {
        const STEP: usize = 256;
        let cache = self.clone();
        let mut last: Option<Key> = None;
        let mut ended = false;
        std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let step: Vec<Arc<T>> = cache.read().after(last.as_ref()).take(STEP).cloned().collect();
            ended = step.len() < STEP;
            last = step.last().map(|object| object.key().clone());
            Some(step)
        })
        .flatten()
    }

    /// An index, built over what is held if nobody declared it before.
    pub fn index(&self, index: Index<T>) -> Lookup<T> {
        let slot = self.write().index(index);
        Lookup { cache: self.clone(), slot }
    }

    /// Calls `subscriber` for every change from now on, after one [`Change::Added`] for each object that is held, until the
    /// answer is dropped.
    pub fn subscribe(&self, subscriber: impl Fn(&Change<T>) + Send + Sync + 'static) -> Subscription {
        let subscriber = Arc::new(subscriber);
        let weak = Arc::downgrade(&subscriber);
        self.inner.subscribers.lock().unwrap_or_else(PoisonError::into_inner).push(weak);
        for object in self.walk() {
            subscriber(&Change::Added(object));
        }
        Subscription { _subscriber: subscriber }
    }

    /// The answer to a write of ours: it counts from now on, before the watch brings it. Gives what is held then.
    ///
    /// The answer must be of the whole object. `None` if the object has ended meanwhile.
    pub fn wrote(&self, object: T) -> Option<Arc<T>> {
        let key = object.key().clone();
        self.apply(|store, changes| store.wrote(Arc::new(object), changes));
        self.get(&key)
    }

    /// The answer to a deletion of ours: the object is gone, and no late event brings it back.
    pub fn deleted(&self, key: &Key, uid: &Uid) {
        self.apply(|store, changes| store.deleted(key, uid, changes));
    }

    /// Whether the cache has been complete once.
    pub fn is_synced(&self) -> bool {
        *self.inner.synced.borrow()
    }

    /// Waits until the cache has been complete once.
    pub async fn synced(&self) {
        let mut synced = self.inner.synced.subscribe();
        // The sender lives as long as `self`.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Why the cache does not follow at the moment: what it holds may be old.
    pub fn failure(&self) -> Option<Arc<Error>> {
        self.inner.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All that is to be held is held, and followed from now on.
    fn follows(&self) {
        self.set_failure(None);
        self.inner.synced.send_replace(true);
    }

    fn set_failure(&self, failure: Option<Error>) {
        *self.inner.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure.map(Arc::new);
    }

    /// Fills the cache and follows the watch until `stop`.
    pub async fn run(&self, client: &Client, entropy: &Entropy, stop: &Stop) {
        follow::run(self, client, entropy, stop).await;
    }

    fn read(&self) -> RwLockReadGuard<'_, Store<T>> {
        self.inner.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is wanted at the moment.
    fn wanted(&self) -> Vec<Key> {
        self.read().wanted()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Store<T>> {
        self.inner.store.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who listens. Those whose subscription has ended are forgotten.
    fn subscribers(&self) -> Vec<Arc<Subscriber<T>>> {
        let mut subscribers = self.inner.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        subscribers.iter().filter_map(Weak::upgrade).collect()
    }

    /// Changes the store and then tells everybody.
    fn apply(&self, change: impl FnOnce(&mut Store<T>, &mut Vec<Change<T>>)) {
        let mut changes = Vec::new();
        change(&mut self.write(), &mut changes);
        self.tell(&changes);
    }

    /// Apart from [`Cache::apply`], which the compiler makes once for each sort of change.
    fn tell(&self, changes: &[Change<T>]) {
        if changes.is_empty() {
            return;
        }
        let subscribers = self.subscribers();
        for change in changes {
            for subscriber in &subscribers {
                subscriber(change);
            }
        }
    }
}

/// Keeps a subscriber of a cache: the calls end when this is dropped, and with them whatever the subscriber held. A call
/// that is on its way at that moment may still arrive. Clones keep the same subscriber.
///
/// Do not put it into what the subscriber itself holds: the two would keep each other for ever.
#[derive(Clone)]
#[must_use = "a subscriber is called for as long as its subscription lives"]
pub struct Subscription {
    _subscriber: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}

/// An object that somebody wants. Every one counts; the last one that is dropped lets the object go.
pub struct Want<T: Object> {
    /// Who wants something often hears of it from the cache, too: the two must not keep each other alive.
    cache: Weak<Inner<T>>,
    key: Key,
}

impl<T: Object> Want<T> {
    /// The object's key.
    pub fn key(&self) -> &Key {
        &self.key
    }
}

impl<T: Object> Drop for Want<T> {
    fn drop(&mut self) {
        if let Some(inner) = self.cache.upgrade() {
            Cache { inner }.write().unwant(&self.key);
        }
    }
}

impl<T: Object> fmt::Debug for Want<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Want").field(&self.key).finish()
    }
}

/// A way into a cache by the value of an index.
pub struct Lookup<T: Object> {
    cache: Cache<T>,
    slot: usize,
}

impl<T: Object> Clone for Lookup<T> {
    fn clone(&self) -> Lookup<T> {
        Lookup { cache: self.cache.clone(), slot: self.slot }
    }
}

impl<T: Object> fmt::Debug for Lookup<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookup").field("cache", &self.cache).field("slot", &self.slot).finish()
    }
}

impl<T: Object> Lookup<T> {
    /// The objects with this value, in key order.
    pub fn all(&self, value: &str) -> Vec<Arc<T>> {
        let mut found = Vec::new();
        self.visit(value, |object| {
            found.push(object.clone());
            ControlFlow::Continue(())
        });
        found
    }

    /// The first object with this value in key order.
    pub fn first(&self, value: &str) -> Option<Arc<T>> {
        let mut found = None;
        self.visit(value, |object| {
            found = Some(object.clone());
            ControlFlow::Break(())
        });
        found
    }

    /// Whether any object has this value.
    pub fn any(&self, value: &str) -> bool {
        self.first(value).is_some()
    }

    /// Visits the objects with this value in key order. The cache is locked meanwhile: do not touch it.
    pub fn visit(&self, value: &str, mut visit: impl FnMut(&Arc<T>) -> ControlFlow<()>) {
        self.cache.read().visit(self.slot, value, &mut visit);
    }
}
