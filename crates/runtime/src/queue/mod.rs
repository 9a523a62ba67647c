//! Keys to work on: each at most once at a time, with backoff, in the order in which they became ready.
//!
//! A queue holds no objects: whoever works on a key reads the cache then. Adding a key that is waiting changes nothing or
//! brings it forward; adding one that is being worked on makes it run again right after.
//!
//! # Invariants
//! 1. A key is worked on by one handler at a time.
//! 2. An addition is never lost: the key runs at least once after it.
//! 3. An event brings a failing key forward but does not reset its count of failures; only success does. After
//!    16 such events in a row the key waits at least 15 seconds after each failure, whatever happens.
//! 4. A pass that cannot end waits for the backoff, too: one whose last write failed at once, any other after a few times.
//! 5. Order is by the moment a key became ready, then by key. All steps are O(log n).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::entropy::Entropy;
use crate::failed_writes::in_pass;
use crate::metrics::{Metrics, Name, Seconds};
use crate::stop::Stop;

/// Nothing is planned farther ahead: a wait may come from somebody's object, and no clock counts to the end of it.
const FARTHEST: Duration = Duration::from_secs(365 * 86_400);

/// How often in a row events bring a failing key forward at once.
const HURRIES: u32 = 16;
/// How long a failing key waits at least once it was brought forward that often.
const SHORTEST_WAIT: Duration = Duration::from_secs(15);
/// How often in a row a key may ask to run again at once, for work that takes more steps than one pass has.
const SPINS: u32 = 8;

/// What a queue can hold.
pub trait QueueKey: Ord + Clone + fmt::Debug + Send + Sync + 'static {}
impl<K: Ord + Clone + fmt::Debug + Send + Sync + 'static> QueueKey for K {}

/// How long to wait after failures: `start`, doubled each time, at most `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub start: Duration,
    /// Never longer.
    pub max: Duration,
}

impl Default for Backoff {
    /// `--retry-interval-start` and `--retry-interval-max` of the sidecars.
    fn default() -> Backoff {
        Backoff { start: Duration::from_secs(1), max: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// The wait after this many failures in a row. A fifth of it is left to chance, so that what failed together does
    /// not come back together.
    fn after(&self, failures: u32, entropy: &Entropy) -> Duration {
        let doubled = self.start.saturating_mul(1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        entropy.shorter(doubled.min(self.max), 0.2)
    }
}

/// What became of the work on a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do until something changes.
    Done,
    /// All is well; look again after this time.
    Again(Duration),
    /// It did not work: again after the backoff.
    Failed(String),
}

/// A queue. Clones are the same queue.
pub struct Queue<K: QueueKey> {
    inner: Arc<Inner<K>>,
}

struct Inner<K: QueueKey> {
    name: String,
    backoff: Backoff,
    entropy: Entropy,
    state: Mutex<State<K>>,
    changed: Notify,
    metrics: Observed,
}

struct Observed {
    depth: Gauge,
    adds: Counter,
    retries: Counter,
    queue_duration: Histogram,
    work_duration: Histogram,
    unfinished: Seconds,
    longest: Seconds,
}

/// Where a key is.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Nowhere; only its failures are remembered.
    Idle,
    /// Ready since.
    Ready(Instant),
    /// Not before.
    Later(Instant),
    /// Being worked on since, and whether it was added meanwhile.
    Running { since: Instant, dirty: bool },
}

#[derive(Debug)]
struct Entry {
    place: Place,
    failures: u32,
    /// How often events brought it forward since it began to fail.
    hurries: u32,
    /// How often in a row it asked to run again at once.
    spins: u32,
    /// When it failed last, and why, as it was logged.
    failed: Option<(Instant, Box<str>)>,
}

impl Entry {
    fn new() -> Entry {
        Entry { place: Place::Idle, failures: 0, hurries: 0, spins: 0, failed: None }
    }

    fn settled(&mut self) {
        (self.failures, self.hurries, self.failed) = (0, 0, None);
    }

    /// When an event may have it run: at once, unless it fails and events have hurried it often enough.
    fn hurried(&mut self, now: Instant) -> Instant {
        let Some((failed, _)) = &self.failed else { return now };
        self.hurries = self.hurries.saturating_add(1);
        if self.hurries > HURRIES { now.max(*failed + SHORTEST_WAIT) } else { now }
    }
}

/// A key that has to wait because its work failed.
struct Waits {
    wait: Duration,
    failures: u32,
    reason: String,
    /// Whether the reason is another one than before.
    is_news: bool,
}

struct State<K> {
    entries: BTreeMap<K, Entry>,
    ready: BTreeSet<(Instant, K)>,
    later: BTreeSet<(Instant, K)>,
}

impl<K: QueueKey> Clone for Queue<K> {
    fn clone(&self) -> Queue<K> {
        Queue { inner: self.inner.clone() }
    }
}

impl<K: QueueKey> fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("name", &self.inner.name).field("keys", &self.len()).finish_non_exhaustive()
    }
}

impl<K: QueueKey> State<K> {
    /// Puts a key to `at` unless it comes sooner anyway. Gives whether it became ready by this.
    fn schedule(&mut self, key: K, at: Instant, now: Instant) -> bool {
        let entry = self.entries.entry(key.clone()).or_insert_with(Entry::new);
        let waits = matches!(entry.place, Place::Idle | Place::Later(_));
        let at = if waits && at <= now { entry.hurried(now) } else { at };
        match &mut entry.place {
            Place::Ready(_) => return false,
            Place::Running { dirty, .. } if at <= now => {
                *dirty = true;
                return false;
            }
            // The verdict decides when it comes back; a wish for later is part of that verdict's reasons.
            Place::Running { .. } => return false,
            Place::Later(planned) if *planned <= at => return false,
            Place::Later(planned) => {
                self.later.remove(&(*planned, key.clone()));
            }
            Place::Idle => {}
        }
        if at <= now {
            entry.place = Place::Ready(at);
            self.ready.insert((at, key));
            true
        } else {
            entry.place = Place::Later(at);
            self.later.insert((at, key));
            false
        }
    }

    /// Moves what has become due to what is ready.
    fn promote(&mut self, now: Instant) -> u64 {
        let mut moved = 0;
        while let Some((at, _)) = self.later.first()
            && *at <= now
            && let Some((at, key)) = self.later.pop_first()
        {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.place = Place::Ready(at);
            }
            self.ready.insert((at, key));
            moved += 1;
        }
        moved
    }
}

impl<K: QueueKey> Queue<K> {
    /// An empty queue; `name` labels its metrics, so give each queue its own.
    pub fn new(name: &str, backoff: Backoff, metrics: &Metrics, entropy: &Entropy) -> Queue<K> {
        let label = Name { name: name.to_owned() };
        let families = &metrics.queues;
        let observed = Observed {
            depth: families.depth.get_or_create_owned(&label),
            adds: families.adds.get_or_create_owned(&label),
            retries: families.retries.get_or_create_owned(&label),
            queue_duration: families.queue_duration.get_or_create_owned(&label),
            work_duration: families.work_duration.get_or_create_owned(&label),
            unfinished: families.unfinished.get_or_create_owned(&label),
            longest: families.longest.get_or_create_owned(&label),
        };
        let state = State { entries: BTreeMap::new(), ready: BTreeSet::new(), later: BTreeSet::new() };
        let inner = Arc::new(Inner {
            name: name.to_owned(),
            backoff,
            entropy: entropy.fork(),
            state: Mutex::new(state),
            changed: Notify::new(),
            metrics: observed,
        });
        let weak = Arc::downgrade(&inner);
        metrics.before_encoding(move || {
            if let Some(inner) = weak.upgrade() {
                inner.observe();
            }
        });
        Queue { inner }
    }

    /// Work on this key as soon as possible.
    pub fn add(&self, key: K) {
        self.schedule(key, Duration::ZERO);
    }

    /// Work on this key after `wait` at the latest; sooner if it is planned sooner.
    ///
    /// While the key is being worked on, only the handler's verdict decides when it comes back.
    pub fn add_after(&self, key: K, wait: Duration) {
        self.schedule(key, wait);
    }

    fn schedule(&self, key: K, wait: Duration) {
        let now = Instant::now();
        if self.state().schedule(key, now + wait.min(FARTHEST), now) {
            self.inner.metrics.adds.inc();
        }
        self.inner.changed.notify_one();
    }

    /// Forgets a key's failures; the next one counts as the first.
    pub fn forget(&self, key: &K) {
        let mut state = self.state();
        if let Some(entry) = state.entries.get_mut(key) {
            entry.settled();
            if matches!(entry.place, Place::Idle) {
                state.entries.remove(key);
            }
        }
    }

    /// How often in a row work on this key has failed.
    pub fn failures(&self, key: &K) -> u32 {
        self.state().entries.get(key).map_or(0, |entry| entry.failures)
    }

    /// When work on this key is planned, if it waits.
    pub fn planned(&self, key: &K) -> Option<Instant> {
        match self.state().entries.get(key)?.place {
            Place::Ready(at) | Place::Later(at) => Some(at),
            Place::Idle | Place::Running { .. } => None,
        }
    }

    /// How many keys are ready, planned or being worked on.
    pub fn len(&self) -> usize {
        let state = self.state();
        state.entries.values().filter(|entry| !matches!(entry.place, Place::Idle)).count()
    }

    /// Whether there is nothing to do, now or later.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether nothing is ready and nothing is being worked on; keys may be planned for later.
    pub fn is_quiet(&self) -> bool {
        let state = self.state();
        let running = state.entries.len() - state.ready.len() - state.later.len();
        state.ready.is_empty()
            && (running == 0 || !state.entries.values().any(|entry| matches!(entry.place, Place::Running { .. })))
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next key, when one is ready. Dropping the future loses nothing.
    pub async fn take(&self) -> K {
        loop {
            let changed = self.inner.changed.notified();
            let planned = match self.try_take() {
                Ok(key) => return key,
                Err(planned) => planned,
            };
            match planned {
                None => changed.await,
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = sleep_until(at) => {}
                    }
                }
            }
        }
    }

    /// A ready key, or when the next one is planned.
    fn try_take(&self) -> Result<K, Option<Instant>> {
        let now = Instant::now();
        let mut state = self.state();
        self.inner.metrics.adds.inc_by(state.promote(now));
        let Some((at, key)) = state.ready.pop_first() else {
            return Err(state.later.first().map(|(at, _)| *at));
        };
        if let Some(entry) = state.entries.get_mut(&key) {
            entry.place = Place::Running { since: now, dirty: false };
        }
        // Another taker may be waiting for what is left.
        if !state.ready.is_empty() {
            self.inner.changed.notify_one();
        }
        drop(state);
        self.inner.metrics.queue_duration.observe((now - at).as_secs_f64());
        Ok(key)
    }

    /// Ends the work on a key that [`Queue::take`] gave.
    pub fn finish(&self, key: K, verdict: &Verdict) {
        self.end(key, verdict);
    }

    /// The same; says how long the key waits if its work failed.
    fn end(&self, key: K, verdict: &Verdict) -> Option<Waits> {
        let now = Instant::now();
        let mut state = self.state();
        let entry = state.entries.get_mut(&key)?;
        let Place::Running { since, dirty } = entry.place else { return None };
        entry.place = Place::Idle;
        self.inner.metrics.work_duration.observe((now - since).as_secs_f64());
        let waits = match verdict {
            Verdict::Failed(why) => Some(self.inner.failed(entry, now, why)),
            Verdict::Again(wait) if wait.is_zero() && entry.spins >= SPINS => {
                Some(self.inner.failed(entry, now, "it does not settle: each step asks for another one"))
            }
            Verdict::Done | Verdict::Again(_) => {
                entry.settled();
                None
            }
        };
        let spins = matches!(verdict, Verdict::Again(wait) if wait.is_zero());
        entry.spins = if spins { entry.spins.saturating_add(1) } else { 0 };
        let again = match (&waits, verdict) {
            (Some(waits), _) => Some(waits.wait),
            (None, Verdict::Again(wait)) => Some(*wait),
            (None, Verdict::Done | Verdict::Failed(_)) => None,
        };
        match (dirty, again) {
            (true, _) => drop(state.schedule(key, now, now)),
            (false, Some(wait)) if wait.is_zero() => drop(state.schedule(key, now, now)),
            (false, Some(wait)) => drop(state.schedule(key, now + wait.min(FARTHEST), now)),
            (false, None) => drop(state.entries.remove(&key)),
        }
        drop(state);
        self.inner.changed.notify_one();
        waits
    }
}

impl<K: QueueKey> Inner<K> {
    /// Counts a failure and says how long the key waits after it.
    fn failed(&self, entry: &mut Entry, now: Instant, why: &str) -> Waits {
        entry.failures = entry.failures.saturating_add(1);
        self.metrics.retries.inc();
        let is_news = entry.failed.as_ref().is_none_or(|(_, said)| **said != *why);
        entry.failed = Some((now, why.into()));
        let wait = self.backoff.after(entry.failures, &self.entropy);
        Waits { wait, failures: entry.failures, reason: why.to_owned(), is_news }
    }

    /// Sets the gauges that depend on the moment somebody looks.
    fn observe(&self) {
        let now = Instant::now();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let running = state.entries.values().filter_map(|entry| match entry.place {
            Place::Running { since, .. } => Some((now - since).as_secs_f64()),
            Place::Idle | Place::Ready(_) | Place::Later(_) => None,
        });
        let (sum, longest) = running.fold((0.0, 0.0_f64), |(sum, longest), age| (sum + age, longest.max(age)));
        self.metrics.unfinished.set(sum);
        self.metrics.longest.set(longest);
        self.metrics.depth.set(i64::try_from(state.ready.len()).unwrap_or(i64::MAX));
    }
}

/// Works on the queue's keys, at most `workers` at once, until `stop`; then lets running work end and returns.
///
/// Whether `stop` was given is looked at directly before each start. Dropping this future stops the work where it is and
/// gives its keys back to the queue. A handler that panics has failed; the others go on.
pub async fn run<K, H, F>(queue: &Queue<K>, workers: usize, stop: &Stop, handler: H)
where
    K: QueueKey,
    H: Fn(K) -> F,
    F: Future<Output = Verdict>,
{
    let mut running = FuturesUnordered::new();
    let stopped = stop.stopped();
    tokio::pin!(stopped);
    loop {
        tokio::select! {
            biased;
            () = &mut stopped => break,
            Some(()) = running.next(), if !running.is_empty() => {}
            key = queue.take(), if running.len() < workers.max(1) => {
                let taken = Taken { queue, key: Some(key) };
                if stop.is_stopped() {
                    break;
                }
                running.push(work(taken, &handler));
            }
        }
    }
    while running.next().await.is_some() {}
}

/// A key that goes back to the queue if nobody ends the work on it.
struct Taken<'a, K: QueueKey> {
    queue: &'a Queue<K>,
    key: Option<K>,
}

impl<K: QueueKey> Drop for Taken<'_, K> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.queue.finish(key, &Verdict::Again(Duration::ZERO));
        }
    }
}

async fn work<K, H, F>(mut taken: Taken<'_, K>, handler: &H)
where
    K: QueueKey,
    H: Fn(K) -> F,
    F: Future<Output = Verdict>,
{
    let Some(key) = taken.key.clone() else { return };
    let handled = AssertUnwindSafe(in_pass(async { handler(key.clone()).await })).catch_unwind().await;
    let verdict = match handled {
        // What it wrote last failed, so that running again at once would only repeat it.
        Ok((Verdict::Again(wait), Some(why))) if wait < taken.queue.inner.backoff.start => Verdict::Failed(why),
        Ok((verdict, _)) => verdict,
        Err(_) => Verdict::Failed("the handler panicked; this is a bug".to_owned()),
    };
    taken.key = None;
    let waits = taken.queue.end(key.clone(), &verdict);
    if let Some(Waits { wait, failures, reason, is_news }) = waits {
        let queue = taken.queue.inner.name.as_str();
        match is_news {
            true => tracing::info!(queue, ?key, reason, failures, ?wait, "work failed and is repeated after a wait"),
            false => tracing::debug!(queue, ?key, reason, failures, ?wait, "work failed again for the same reason"),
        }
    }
}
