//! Schedule, acted out: pods get nodes that all their volumes can be reached from. For clusters without kube-scheduler.
//!
//! One [`Scheduler`] works on a queue of pods that name it. A pass places the pod (`lifecycle::schedule::place`), which is
//! done one pod at a time and without waiting, and then does what is left until the pod may go there
//! (`lifecycle::schedule::pursue`). Where others have to act, the pass ends and the pod is woken by what they write
//! (`wake.rs`); nothing polls.
//!
//! # Invariants
//! 1. Between looking for a node and keeping it nobody else looks: the book is locked.
//! 2. All that is only in the book can be lost with the process. What was written is found in the objects again.
//! 3. At rest a pod without a node waits for something that wakes it.

mod pass;
mod view;
mod wake;
mod writes;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{Key, Pod};
use futures_util::future::join;
use lifecycle::schedule::{Book, Moment};
use runtime::metrics::Attempt;
use runtime::queue::{self, Backoff};
use runtime::{Queue, Stop, Subscription};
use tokio::time::Instant;

use crate::Context;
use crate::Notices;
use view::View;
use wake::Waiting;

/// Who schedules pods that do not say whom they want.
pub const DEFAULT_NAME: &str = "default-scheduler";

/// How the scheduler works.
#[derive(Debug, Clone)]
pub struct Options {
    /// Pods that name this scheduler are its own; it is also the name in its events.
    pub name: String,
    /// How long the volumes of a pod may take to be bound (`bindTimeoutSeconds`).
    pub bind_timeout: Duration,
    /// Passes at once. Looking for a node is done one at a time, writing is not.
    pub workers: usize,
    /// How often everything is looked at again, in case a wake-up was missed.
    pub resync: Duration,
    pub backoff: Backoff,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: DEFAULT_NAME.to_owned(),
            bind_timeout: Duration::from_secs(600),
            workers: 32,
            resync: Duration::from_secs(15 * 60),
            backoff: Backoff { start: Duration::from_secs(1), max: Duration::from_secs(10) },
        }
    }
}

/// The scheduler. Clones are the same.
#[derive(Debug, Clone)]
pub struct Scheduler {
    inner: Arc<Inner>,
    _subscriptions: [Subscription; 9],
}

#[derive(Debug)]
struct Inner {
    context: Context,
    options: Options,
    view: View,
    queue: Queue<Key>,
    state: Mutex<State>,
    notices: Notices,
    began: Instant,
}

/// What is remembered between passes.
#[derive(Debug, Default)]
struct State {
    book: Book,
    waiting: Waiting,
    /// How often the plan of a pod was given up.
    attempts: BTreeMap<Key, u32>,
}

impl Scheduler {
    /// Asks for the caches it needs. Nothing happens until [`Scheduler::run`].
    pub fn new(context: &Context, options: Options) -> Self {
        let inner = Inner {
            view: View::new(context),
            queue: Queue::new("pods", options.backoff, &context.metrics, &context.entropy),
            state: Mutex::default(),
            notices: Notices::new(context.recorder.named(&options.name)),
            began: Instant::now(),
            context: context.clone(),
            options,
        };
        let inner = Arc::new(inner);
        Self { _subscriptions: wake::subscribe(&inner), inner }
    }

    /// Schedules until `stop`.
    pub async fn run(&self, stop: &Stop) {
        let inner = &*self.inner;
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = inner.view.synced() => {}
        }
        inner.begin();
        let pods = queue::run(&inner.queue, inner.options.workers, stop, |key| pass::pass(inner, key));
        join(pods, inner.resync(stop)).await;
    }

    /// Whether nothing is ready to be done and nothing is being done.
    pub fn is_quiet(&self) -> bool {
        self.inner.queue.is_quiet()
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        self.began.elapsed()
    }

    /// Whether this pod wants a node from us, now.
    fn is_ours(&self, pod: &Pod) -> bool {
        let named = if pod.scheduler.is_empty() { DEFAULT_NAME } else { &pod.scheduler };
        *named == *self.options.name && !pod.scheduled() && !pod.terminated() && !pod.meta.is_deleting() && !pod.gated
    }

    /// A time of leading begins: what an earlier one planned is not ours any more, somebody else may have decided since.
    fn begin(&self) {
        let now = self.now();
        let mut state = self.state();
        for pod in state.book.pods() {
            // Nobody is woken one by one: all are, below.
            let _ = state.book.release(&pod, &self.view, now);
        }
        drop(state);
        self.wake_all();
    }

    fn wake_all(&self) {
        let ours = self.view.pods.walk().filter(|pod| self.is_ours(pod));
        ours.for_each(|pod| self.queue.add(pod.meta.key.clone()));
    }

    /// A net under the wake-ups: everything is looked at again, rarely.
    async fn resync(&self, stop: &Stop) {
        loop {
            let wait = self.context.entropy.longer(self.options.resync, 0.1);
            tokio::select! {
                biased;
                () = stop.stopped() => return,
                () = tokio::time::sleep(wait) => {}
            }
            self.wake_all();
        }
    }

    fn count(&self, result: &'static str) {
        let labels = Attempt { result, profile: self.options.name.clone() };
        self.context.metrics.scheduler.attempts.get_or_create(&labels).inc();
    }
}
