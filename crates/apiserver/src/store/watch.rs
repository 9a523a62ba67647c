//! Watching: the readers' side of the index, and the bells that wake those who wait for it.
//!
//! A watcher is a position in its resource's history, not a queue. The writer stores each event once and wakes the
//! watchers of that resource; each of them then takes what it has not seen, a few at a time. A watcher that does not
//! read costs nothing and holds nothing back. When history has moved on past it, it is told so and ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::Notify;

use super::durable::Compaction;
use super::index::Index;
use super::key::Scope;
use super::meter::Meter;
use super::object::{Event, Revision};
use super::read::TooOld;

/// How many events a watcher takes out of the index at once, and so the most it ever holds.
const TAKE: usize = 64;

/// What readers and watchers share with the writer.
#[derive(Debug)]
pub(super) struct View {
    index: RwLock<Index>,
    /// One bell per watched resource. A plain `Notify` wakes in the order of waiting, so that simulations repeat.
    bells: Mutex<BTreeMap<Arc<str>, Arc<Notify>>>,
    progress: Notify,
    closed: AtomicBool,
    /// Why nothing can be written any more.
    failed: OnceLock<Arc<str>>,
    meter: Meter,
}

impl View {
    pub(super) fn new(index: Index) -> Self {
        let bells = Mutex::default();
        let (progress, closed) = (Notify::new(), AtomicBool::new(false));
        Self { index: RwLock::new(index), bells, progress, closed, failed: OnceLock::new(), meter: Meter::default() }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }

    fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn bells(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Notify>>> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows durable writes to everyone, all at once.
    pub(super) fn publish(&self, events: Vec<Arc<Event>>) {
        let resources: BTreeSet<_> = events.iter().map(|event| Arc::clone(event.key.shared_resource())).collect();
        {
            let mut index = self.write();
            events.into_iter().for_each(|event| index.apply(event));
        }
        let bells = self.bells();
        resources.iter().filter_map(|resource| bells.get(resource)).for_each(|bell| bell.notify_waiters());
        self.progress.notify_waiters();
    }

    pub(super) fn compact(&self, plan: &Compaction) {
        self.write().compact(plan);
        // The map's own reference is the last one when nobody watches the resource any more.
        self.bells().retain(|_, bell| Arc::strong_count(bell) > 1);
    }

    /// Notes that nothing can be written any more, and why.
    pub(super) fn set_failed(&self, reason: &Arc<str>) {
        // The first reason is the cause of all others.
        let _ = self.failed.set(Arc::clone(reason));
    }

    /// Why nothing can be written any more, if so.
    pub(super) fn stopped(&self) -> Option<Arc<str>> {
        let closed = || self.closed.load(Ordering::Acquire).then(|| "the store's writer has ended".into());
        self.failed.get().cloned().or_else(closed)
    }

    /// No more writes will come.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.bells().values().for_each(|bell| bell.notify_waiters());
        self.progress.notify_waiters();
    }

    /// Returns once the store has reached `revision`, or is closed.
    pub(super) async fn reached(&self, revision: Revision) {
        loop {
            // Listening starts before looking, so that a write in between is not missed.
            let progressed = self.progress.notified();
            if self.read().revision() >= revision || self.closed.load(Ordering::Acquire) {
                return;
            }
            progressed.await;
        }
    }
}

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the first write after this revision, which may lie in the future.
    After(Revision),
    Now,
}

/// Why a watch is over.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
pub enum WatchEnd {
    #[error("the watcher was too slow: history before revision {oldest} is gone")]
    Lagged { oldest: Revision },
    #[error("the store was closed")]
    Closed,
}

/// The writes of a scope, in revision order, each once.
#[derive(Debug)]
pub struct Watch {
    view: Arc<View>,
    bell: Arc<Notify>,
    scope: Scope,
    /// Everything up to here was handed out or is in `taken`.
    seen: Revision,
    taken: VecDeque<Arc<Event>>,
}

impl Watch {
    pub(super) fn start(view: &Arc<View>, scope: Scope, from: Start) -> Result<Self, TooOld> {
        let bell = Arc::clone(view.bells().entry(Arc::clone(scope.shared_resource())).or_default());
        let mut taken = VecDeque::new();
        let seen = {
            let index = view.read();
            let after = match from {
                Start::After(revision) => revision,
                Start::Now => index.revision(),
            };
            index.events_after(&scope, after, TAKE, &mut taken)?
        };
        Ok(Self { view: Arc::clone(view), bell, scope, seen, taken })
    }

    /// The next write. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Arc<Event>, WatchEnd> {
        let bell = Arc::clone(&self.bell);
        loop {
            // Listening starts before looking, so that a write in between is not missed.
            let rung = bell.notified();
            // Closing comes after the last write, so looking at it first means that nothing is left behind it.
            let closed = self.view.closed.load(Ordering::Acquire);
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            if closed {
                return Err(WatchEnd::Closed);
            }
            rung.await;
        }
    }

    /// The next write if there is one already.
    pub fn try_next(&mut self) -> Result<Option<Arc<Event>>, WatchEnd> {
        if self.taken.is_empty() {
            self.take()?;
        }
        Ok(self.taken.pop_front())
    }

    /// A revision up to which every write of the scope was handed out: what a bookmark may say. It follows the whole
    /// store's revision, not only this resource's.
    pub fn progress(&mut self) -> Result<Revision, WatchEnd> {
        if self.taken.is_empty() {
            self.take()?;
        }
        Ok(match self.taken.front() {
            Some(next) => Revision(next.revision.0 - 1),
            None => self.seen,
        })
    }

    fn take(&mut self) -> Result<(), WatchEnd> {
        let taken = self.view.read().events_after(&self.scope, self.seen, TAKE, &mut self.taken);
        self.seen = taken.map_err(|TooOld { oldest, .. }| WatchEnd::Lagged { oldest })?;
        Ok(())
    }
}
