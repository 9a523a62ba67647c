//! The writer: gives writes their order, makes them durable together, then shows them.
//!
//! # Invariants
//! 1. A write is visible to reads and watches only once it is durable, and acknowledged only once it is visible.
//! 2. A refusal can rest on an earlier write of the same batch, so it too is told only after the batch is durable.
//! 3. After the first failure of the record nothing is written any more. Readers keep what was acknowledged. A full disk is
//!    no such failure: nothing of the batch was written, its callers are told, and the next batch is tried.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use super::durable::{Durable, DurableError, StoreSpace};
use super::object::{Revision, UnixMillis};
use super::watch::View;
use super::write::{Batch, CommitError, Committed, Expect, GrowthLimit, Write};
use super::{History, Options};

/// Requests that wait for the writer beyond this many make their callers wait before they can even ask.
const QUEUE: usize = 1024;
/// Rows that one tick forgets at most, so that upkeep does not hold up writes for long.
const ROWS_PER_TICK: usize = 10_000;
/// The same while space is short, for one of several steps: each has to fit into the write-ahead file.
const ROWS_PER_STEP_WHEN_LOW: usize = 100;
/// Objects that one tick expires at most, for the same reason.
const EXPIRIES_PER_TICK: usize = 1_000;
/// Events of a resource that are kept while space is short, however young they are: none, since their rows hold the room
/// that deleted and replaced objects leave in the database. Watches that are behind have to list again.
const EVENTS_WHEN_LOW: usize = 0;

/// What came of writes that belong together, in their order.
type Outcome = Result<Vec<Committed>, CommitError>;

/// What one tick did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ticked {
    pub expired: usize,
    pub forgotten_rows: usize,
}

#[derive(Debug)]
pub(super) struct Writer {
    view: Arc<View>,
    durable: Box<dyn Durable>,
    history: History,
    ages: Ages,
    growth: GrowthLimit,
    poisoned: Option<Arc<str>>,
}

impl Writer {
    pub(super) fn new(view: Arc<View>, durable: Box<dyn Durable>, history: History) -> Self {
        Self { view, durable, history, ages: Ages::default(), growth: GrowthLimit::Unlimited, poisoned: None }
    }

    /// One outcome per group, in their order. Of a group all writes happen or none.
    pub(super) fn commit(&mut self, groups: Vec<Vec<Write>>) -> Vec<Outcome> {
        let count = groups.len();
        // Cheap: values are shared.
        let again = (count > 1).then(|| groups.clone());
        match (self.try_commit(groups), again) {
            (Ok(outcomes), _) => outcomes,
            // There may be room for some of them: a lease does not fail because a large object came with it.
            (Err(CommitError::NoSpace { .. }), Some(groups)) => {
                groups.into_iter().flat_map(|group| self.commit(vec![group])).collect()
            }
            (Err(error), _) => vec![Err(error); count],
        }
    }

    fn try_commit(&mut self, groups: Vec<Vec<Write>>) -> Result<Vec<Outcome>, CommitError> {
        self.healthy()?;
        self.look_at_space();
        let (batch, outcomes) = {
            let index = self.view.read();
            let mut batch = Batch::after(index.revision(), self.growth);
            let add = |mut group: Vec<Write>| {
                group.iter_mut().for_each(|write| write.key = index.canonical(write.key.clone()));
                batch.add_all(group, |key| index.latest(key).cloned())
            };
            let outcomes: Vec<_> = groups.into_iter().map(add).collect();
            (batch, outcomes)
        };
        if !batch.events.is_empty() {
            // Only a number that is shown: nothing is decided by it.
            let started = Instant::now();
            let kept = self.durable.append(&batch.events);
            self.or_poison(kept)?;
            self.view.meter().batch(batch.events.len(), started.elapsed());
            self.growth = batch.growth();
            self.view.publish(batch.events);
        }
        Ok(outcomes)
    }

    pub(super) fn tick(&mut self, now: UnixMillis) -> Result<Ticked, CommitError> {
        self.healthy()?;
        let expired = self.view.read().expired(now, EXPIRIES_PER_TICK);
        let deletes = expired.into_iter().map(|key| vec![Write::delete(key, Expect::Present)]).collect();
        let expired = if_there_is_space(self.try_commit(deletes))?.map_or(0, |outcomes| outcomes.len());

        let newest = self.view.read().revision();
        let aged = self.ages.aged(now, newest, self.history.min_age_millis);
        let forgotten_rows = match self.growth {
            GrowthLimit::Unlimited => self.forget(self.history, aged, ROWS_PER_TICK)?,
            GrowthLimit::Small { .. } => {
                let history = History { min_events: EVENTS_WHEN_LOW, ..self.history };
                let mut forgotten = 0;
                while forgotten < ROWS_PER_TICK {
                    match self.forget(history, newest, ROWS_PER_STEP_WHEN_LOW)? {
                        0 => break,
                        rows => forgotten += rows,
                    }
                }
                forgotten
            }
        };
        let settled = self.durable.settle();
        if_there_is_space(self.or_poison(settled))?;
        Ok(Ticked { expired, forgotten_rows })
    }

    /// Forgets what the rules of `history` let go, near `limit` rows of it. Gives how many rows that were.
    fn forget(&mut self, history: History, aged: Revision, limit: usize) -> Result<usize, CommitError> {
        let plan = self.view.read().plan_compaction(&history, aged, limit);
        if plan.floors.is_empty() {
            return Ok(0);
        }
        let forgotten = self.durable.compact(&plan);
        if if_there_is_space(self.or_poison(forgotten))?.is_none() {
            return Ok(0);
        }
        self.view.compact(&plan);
        Ok(plan.rows.len())
    }

    fn look_at_space(&mut self) {
        let space = self.durable.space();
        self.growth = self.growth.next(space);
        self.view.meter().set_low(space != StoreSpace::Enough);
    }

    fn healthy(&self) -> Result<(), CommitError> {
        match &self.poisoned {
            Some(reason) => Err(CommitError::Poisoned { reason: Arc::clone(reason) }),
            None => Ok(()),
        }
    }

    fn or_poison(&mut self, result: Result<(), DurableError>) -> Result<(), CommitError> {
        let Err(error) = result else { return Ok(()) };
        if error.is_full() {
            tracing::debug!(%error, "the store's disk is full: nothing was written");
            return Err(CommitError::NoSpace { free: 0 });
        }
        let mut reason = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            reason = format!("{reason}: {error}");
            cause = error.source();
        }
        tracing::error!(reason, "the store takes no more writes; what was acknowledged is kept and readable");
        let reason: Arc<str> = reason.into();
        self.view.set_failed(&reason);
        self.poisoned = Some(reason);
        self.healthy()
    }
}

/// Upkeep that finds no space is done at a later tick.
fn if_there_is_space<T>(result: Result<T, CommitError>) -> Result<Option<T>, CommitError> {
    match result {
        Err(CommitError::NoSpace { .. }) => Ok(None),
        result => result.map(Some),
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.view.close();
    }
}

/// Which revisions are how old, without a time on each: at every tick the newest revision is noted with the time.
/// After a restart, or when the clock was set back, everything counts as new: history is then kept longer than
/// promised, never shorter.
#[derive(Debug, Default)]
struct Ages {
    notes: VecDeque<(UnixMillis, Revision)>,
}

impl Ages {
    /// The newest revision that is at least `min_age` old.
    fn aged(&mut self, now: UnixMillis, newest: Revision, min_age: u64) -> Revision {
        if self.notes.back().is_some_and(|(last, _)| now < *last) {
            self.notes.clear();
        }
        // A few dozen notes per window are exact enough, however often the tick comes.
        let due = |(last, _): &(UnixMillis, Revision)| now.0 >= last.0 + min_age / 64;
        if self.notes.back().is_none_or(due) {
            self.notes.push_back((now, newest));
        }
        let old = |(at, _): &(UnixMillis, Revision)| at.0.saturating_add(min_age) <= now.0;
        while self.notes.get(1).is_some_and(old) {
            self.notes.pop_front();
        }
        self.notes.front().filter(|note| old(note)).map_or(Revision(0), |(_, revision)| *revision)
    }
}

/// Something that is dropped once the writes it came with are visible, or will never be.
pub(crate) type Held = Arc<dyn std::fmt::Debug + Send + Sync>;

#[derive(Debug)]
enum Request {
    Commit { group: Vec<Write>, held: Option<Held>, answer: oneshot::Sender<Outcome> },
    Tick { now: UnixMillis, answer: oneshot::Sender<Result<Ticked, CommitError>> },
}

/// A writer on a thread of its own. Writes that arrive while it syncs go into its next batch together.
#[derive(Debug)]
pub(super) struct WriterThread {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl WriterThread {
    pub(super) fn spawn(writer: Writer, options: Options) -> std::io::Result<Self> {
        let (requests, queue) = mpsc::channel(QUEUE);
        let thread =
            std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || serve(writer, queue, options))?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    pub(super) async fn commit(&self, group: Vec<Write>, held: Option<Held>) -> Outcome {
        self.ask(|answer| Request::Commit { group, held, answer }).await
    }

    pub(super) async fn tick(&self, now: UnixMillis) -> Result<Ticked, CommitError> {
        self.ask(|answer| Request::Tick { now, answer }).await
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, CommitError>>) -> Request,
    ) -> Result<T, CommitError> {
        let (answer, outcome) = oneshot::channel();
        let gone = || CommitError::Poisoned { reason: "the store's writer has ended".into() };
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        requests.send(request(answer)).await.map_err(|_| gone())?;
        outcome.await.map_err(|_| gone())?
    }
}

impl Drop for WriterThread {
    /// Waits for the last batch, so that the directory can be opened again as soon as the store is dropped.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the store's writer panicked");
        }
    }
}

fn serve(mut writer: Writer, mut queue: mpsc::Receiver<Request>, options: Options) {
    while let Some(first) = queue.blocking_recv() {
        let (mut groups, mut answers, mut count, mut weight) = (Vec::new(), Vec::new(), 0, 0);
        let mut next = Some(first);
        let mut tick = None;
        while let Some(request) = next {
            match request {
                Request::Commit { group, held, answer } => {
                    count += group.len();
                    weight += group.iter().map(Write::weight).sum::<usize>();
                    groups.push(group);
                    answers.push((answer, held));
                }
                Request::Tick { now, answer } => {
                    tick = Some((now, answer));
                    break;
                }
            }
            let full = count >= options.batch_writes || weight >= options.batch_bytes;
            next = if full { None } else { queue.try_recv().ok() };
        }
        // A caller that no longer waits for its answer has still written.
        for ((answer, held), outcome) in answers.into_iter().zip(writer.commit(groups)) {
            drop(held);
            let _ = answer.send(outcome);
        }
        if let Some((now, answer)) = tick {
            let _ = answer.send(writer.tick(now));
        }
    }
}
