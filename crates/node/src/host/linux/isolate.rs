//! Calls that may never come back, each on a thread of its own.
//!
//! A thread that waits for a dead server cannot be ended from outside; it can only be left alone. So nobody waits for one
//! longer than its deadline, and nobody sends a second one after it: a path that does not answer is remembered until the
//! thread that asked has come back.
//!
//! # Invariants
//! 1. No call waits for a call of another path. There is no pool that could be full of dead calls.
//! 2. One path has at most [`AT_ONCE`] threads of a kind, and after the first of them is overdue no new one.
//! 3. What is below a path that does not answer is not asked either; what is above it or beside it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime::watch;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::host::HostError;

/// How many calls of one kind a path may have at once.
const AT_ONCE: usize = 8;

/// A thread needs little: the deepest thing it does is a tree of bounded depth.
const STACK: usize = 512 << 10;

/// What kind of call it is. A path that does not answer one kind may well answer another: unmounting asks the mount table
/// and not the filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Asks or changes what is at the path.
    Ask,
    /// One at a time, for as long as it takes.
    Walk,
    /// One at a time: finding and taking a loop device are two steps.
    Hold,
    Unmount,
    ForcedUnmount,
    LazyUnmount,
}

impl Lane {
    fn at_once(self) -> usize {
        match self {
            Lane::Walk | Lane::Hold => 1,
            Lane::Ask | Lane::Unmount | Lane::ForcedUnmount | Lane::LazyUnmount => AT_ONCE,
        }
    }

    /// The kind whose overdue calls say that this one would hang, too.
    fn dies_with(self) -> Lane {
        match self {
            Lane::Ask | Lane::Walk | Lane::Hold => Lane::Ask,
            other => other,
        }
    }
}

/// A call, before it is made.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) doing: &'static str,
    pub(super) path: PathBuf,
    pub(super) lane: Lane,
    /// `None` for a call that may take as long as it likes. It still waits only so long to begin.
    pub(super) deadline: Option<Duration>,
}

impl Call {
    pub(super) fn refused(&self, errno: i32, message: impl Into<String>) -> HostError {
        HostError::Refused { doing: self.doing, path: self.path.clone(), errno, message: message.into() }
    }

    pub(super) fn hung(&self, waited: Duration) -> HostError {
        HostError::Hung { doing: self.doing, path: self.path.clone(), waited }
    }
}

/// The calls of one kind at one path that have not come back.
#[derive(Debug, Default)]
struct Out {
    threads: usize,
    /// When the first of those that are overdue began.
    overdue: Option<Instant>,
}

type Key = (Lane, PathBuf);

#[derive(Debug)]
struct Shared {
    out: Mutex<BTreeMap<Key, Out>>,
    /// Told whenever a call comes back.
    returns: watch::Sender<()>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Out>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs calls. Clones share what they remember.
#[derive(Debug, Clone)]
pub(super) struct Isolation {
    shared: Arc<Shared>,
    /// How long a call without a deadline waits for its turn.
    patience: Duration,
}

impl Isolation {
    pub(super) fn new(patience: Duration) -> Self {
        let shared = Shared { out: Mutex::default(), returns: watch::Sender::new(()) };
        Self { shared: Arc::new(shared), patience }
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Makes a call on a thread of its own and waits for its answer until its deadline.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        call: Call,
        job: impl FnOnce(&Call) -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        let begun = Instant::now();
        let ticket = self.enter(&call, begun).await?;
        let (answer, answered) = oneshot::channel();
        let inside = call.clone();
        let thread = std::thread::Builder::new().name("host".to_owned()).stack_size(STACK);
        let spawned = thread.spawn(move || {
            let result = job(&inside);
            // Before the answer: whoever hears it finds the path free.
            drop(ticket);
            // Whoever asked may be gone; then the answer is for nobody.
            let _ = answer.send(result);
        });
        if let Err(error) = spawned {
            return Err(call.refused(error.raw_os_error().unwrap_or(0), format!("no thread for it: {error}")));
        }
        let Some(deadline) = call.deadline else { return settle(&call, answered.await) };
        match tokio::time::timeout_at(begun + deadline, answered).await {
            Ok(answer) => settle(&call, answer),
            Err(_) => {
                self.overdue(&call, begun);
                tracing::warn!(doing = call.doing, path = %call.path.display(), "a path does not answer");
                Err(call.hung(begun.elapsed()))
            }
        }
    }

    /// Whether a path is known not to answer, and for how long.
    pub(super) fn silent(&self, path: &Path) -> Option<Duration> {
        let out = self.shared.lock();
        self.overdue_since(&out, Lane::Ask, path).map(|since| since.elapsed())
    }

    /// Every path that is known not to answer.
    pub(super) fn all_silent(&self) -> Vec<(PathBuf, Duration)> {
        let out = self.shared.lock();
        let overdue = out.iter().filter_map(|((_, path), out)| Some((path.clone(), out.overdue?.elapsed())));
        overdue.collect()
    }

    /// How many calls have not come back.
    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        self.shared.lock().values().map(|out| out.threads).sum()
    }

    /// Waits until every path answers again.
    #[cfg(test)]
    pub(super) async fn quiet(&self) {
        let mut returns = self.shared.returns.subscribe();
        loop {
            returns.mark_unchanged();
            if self.all_silent().is_empty() {
                return;
            }
            // The sender is ours, so this cannot fail.
            let _ = returns.changed().await;
        }
    }

    /// Waits for a turn. A path that does not answer gives none.
    async fn enter(&self, call: &Call, begun: Instant) -> Result<Ticket, HostError> {
        let until = begun + call.deadline.unwrap_or(self.patience);
        let mut returns = self.shared.returns.subscribe();
        loop {
            returns.mark_unchanged();
            if let Some(ticket) = self.try_enter(call)? {
                return Ok(ticket);
            }
            if tokio::time::timeout_at(until, returns.changed()).await.is_err() {
                return Err(call.hung(begun.elapsed()));
            }
        }
    }

    fn try_enter(&self, call: &Call) -> Result<Option<Ticket>, HostError> {
        let mut out = self.shared.lock();
        if let Some(since) = self.overdue_since(&out, call.lane.dies_with(), &call.path) {
            return Err(call.hung(since.elapsed()));
        }
        let key = (call.lane, call.path.clone());
        let threads = &mut out.entry(key.clone()).or_default().threads;
        if *threads >= call.lane.at_once() {
            return Ok(None);
        }
        *threads += 1;
        Ok(Some(Ticket { key, shared: Arc::clone(&self.shared) }))
    }

    fn overdue_since(&self, out: &BTreeMap<Key, Out>, lane: Lane, path: &Path) -> Option<Instant> {
        path.ancestors().find_map(|above| out.get(&(lane, above.to_path_buf()))?.overdue)
    }

    fn overdue(&self, call: &Call, begun: Instant) {
        // If it is not there any more, it has just come back.
        if let Some(out) = self.shared.lock().get_mut(&(call.lane, call.path.clone())) {
            out.overdue.get_or_insert(begun);
        }
    }
}

fn settle<T>(call: &Call, answer: Result<Result<T, HostError>, oneshot::error::RecvError>) -> Result<T, HostError> {
    answer.unwrap_or_else(|_| Err(call.refused(0, "the thread that did it panicked")))
}

/// Held by a thread for as long as its call lasts.
struct Ticket {
    key: Key,
    shared: Arc<Shared>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut out = self.shared.lock();
        if let Some(entry) = out.get_mut(&self.key) {
            entry.threads = entry.threads.saturating_sub(1);
            // One came back, so the path answers again, or says that it never will. If it was another one, the next
            // call finds out.
            entry.overdue = None;
            if entry.threads == 0 {
                out.remove(&self.key);
            }
        }
        drop(out);
        self.shared.returns.send_replace(());
    }
}
