//! Runs a call: joins or locks, works in a task of its own, waits as long as the caller does, and answers.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::call::{CURRENT, Current, deadline_of};
use super::locks::{Holder, Locks, Wanted};
use super::operations::{Begun, CallKey, Operations, Outcome, Running, Ticket};
use super::{Method, Redactor, Sensitive};
use crate::error::Error;
use crate::metrics::Metrics;

/// The longest message that leaves. HTTP/2 trailers have a limit, and beyond it the whole status would be lost.
const LONGEST_MESSAGE: usize = 4096;

/// What to do with a call that equals one that runs already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// Wait for that one and give its answer.
    Join,
    /// Run as well: what the other read may be older than what this caller has just done.
    RunAgain,
}

/// Does a call change something? Changes are worth a line in the log, looks are polled and are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Change,
    Look,
}

/// A validated call: what it locks and what it does.
pub(crate) struct Plan<T> {
    object: String,
    locks: Wanted,
    effect: Effect,
    repeat: Repeat,
    work: BoxFuture<'static, Result<T, Error>>,
}

impl<T> Plan<T> {
    /// Changes something, under locks.
    pub(crate) fn change<F>(object: impl Into<String>, locks: Wanted, work: F) -> Self
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        Self { object: object.into(), locks, effect: Effect::Change, repeat: Repeat::Join, work: work.boxed() }
    }

    /// Only looks, without locks.
    pub(crate) fn read<F>(object: impl Into<String>, work: F) -> Self
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (locks, effect, repeat) = (Wanted::none(), Effect::Look, Repeat::RunAgain);
        Self { object: object.into(), locks, effect, repeat, work: work.boxed() }
    }

    /// Lets equal reads share one run: for calls that are polled and may hang below, so that they do not pile up.
    #[must_use]
    pub(crate) fn joining(mut self) -> Self {
        self.repeat = Repeat::Join;
        self
    }
}

/// The pipeline of one driver.
#[derive(Clone)]
pub(crate) struct Pipeline {
    pub(crate) operations: Operations,
    pub(crate) locks: Locks,
    pub(crate) metrics: Metrics,
    next_op: Arc<AtomicU64>,
}

/// One call on its way.
struct Call {
    op: u64,
    method: Method,
    deadline: Option<Instant>,
    digest: [u8; 32],
    redactor: Redactor,
    span: Span,
}

impl Pipeline {
    pub(crate) fn new(metrics: Metrics) -> Self {
        let locks = Locks::default();
        Self { operations: Operations::new(locks.clone()), locks, metrics, next_op: Arc::new(AtomicU64::new(1)) }
    }

    /// Takes a call from the wire to its answer. `prepare` gates, validates and plans; it must not do anything.
    pub(crate) async fn handle<Q, T, P>(&self, method: Method, request: Request<Q>, prepare: P) -> Outcome<Response<T>>
    where
        Q: prost::Message + Sensitive + std::fmt::Debug,
        T: Clone + Send + Sync + 'static,
        P: FnOnce(Q) -> Result<Plan<T>, Error>,
    {
        let mut watched = Watched::new(&self.metrics, method);
        let op = self.next_op.fetch_add(1, Ordering::Relaxed);
        // Of the most important level: warnings tell what they are about also where nothing else is logged.
        let span = tracing::error_span!("call", operation = %op, method = method.name, volume = Empty, object = Empty);
        let deadline = deadline_of(request.metadata(), watched.started);
        let wire = request.into_inner();
        let digest = Sha256::digest(wire.encode_to_vec()).into();
        let call = Call { op, method, deadline, digest, redactor: Redactor::of(&wire), span: span.clone() };
        let outcome = async {
            tracing::debug!(request = ?wire, "received");
            let plan = match catch_unwind(AssertUnwindSafe(|| prepare(wire))) {
                Ok(Ok(plan)) => plan,
                Ok(Err(error)) => return Err(self.refuse(&error, &call.redactor)),
                Err(panic) => return Err(self.panicked(&*panic, &call.redactor)),
            };
            call.span.record(method.about(), plan.object.as_str());
            self.run(call, plan, &mut watched).await
        }
        .instrument(span)
        .await;
        watched.answered(outcome.as_ref().map_or_else(Status::code, |_| Code::Ok));
        outcome.map(Response::new)
    }

    /// Answers a call that needs no driver work beyond a cheap question.
    pub(crate) fn inline<T>(&self, method: Method, answer: impl FnOnce() -> Result<T, Error>) -> Outcome<Response<T>> {
        let mut watched = Watched::new(&self.metrics, method);
        let redactor = Redactor::default();
        let outcome = match catch_unwind(AssertUnwindSafe(answer)) {
            Ok(answer) => answer.map_err(|error| self.refuse(&error, &redactor)),
            Err(panic) => Err(self.panicked(&*panic, &redactor)),
        };
        watched.answered(outcome.as_ref().map_or_else(Status::code, |_| Code::Ok));
        outcome.map(Response::new)
    }

    async fn run<T>(&self, call: Call, plan: Plan<T>, watched: &mut Watched<'_>) -> Outcome<T>
    where
        T: Clone + Send + Sync + 'static,
    {
        let deadline = call.deadline;
        let mut result = self.start(call, plan)?;
        watched.progress = Progress::Working;
        let finished = async {
            match result.wait_for(Option::is_some).await {
                Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(thrown_away())),
                Err(_) => Err(thrown_away()),
            }
        };
        match deadline {
            None => finished.await,
            Some(deadline) => match tokio::time::timeout_at(deadline, finished).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    tracing::warn!("the caller's deadline has passed; the operation goes on");
                    self.metrics.detached();
                    Err(Status::deadline_exceeded("the operation goes on; repeat the call to get its result"))
                }
            },
        }
    }

    /// Starts the work in a task of its own, or finds the running twin.
    fn start<T>(&self, call: Call, plan: Plan<T>) -> Result<watch::Receiver<Option<Outcome<T>>>, Status>
    where
        T: Clone + Send + Sync + 'static,
    {
        let Call { op, method, deadline, digest, redactor, span } = call;
        let Plan { object, locks, effect, repeat, work } = plan;
        let key = match repeat {
            Repeat::Join => Some(CallKey { method: method.name, digest }),
            Repeat::RunAgain => None,
        };
        let running = Running { op, method: method.name, object };
        match self.operations.begin(running, key, locks) {
            Err(conflict) => {
                self.metrics.conflict();
                Err(self.refuse(&conflict.into(), &redactor))
            }
            Ok(Begun::Joined(receiver)) => {
                self.metrics.joined();
                tracing::info!("joins an equal call that is running");
                Ok(receiver)
            }
            Ok(Begun::First(ticket, receiver)) => {
                let current = Current { holder: Holder { op, method: method.name }, deadline };
                let task = Job { method, effect, work, redactor, ticket }.run(self.clone());
                tokio::spawn(CURRENT.scope(current, task).instrument(span));
                Ok(receiver)
            }
        }
    }

    /// Logs why a call fails and makes its status.
    fn refuse(&self, error: &Error, redactor: &Redactor) -> Status {
        let status = status_of(error, redactor);
        match status.code() {
            Code::Unimplemented | Code::InvalidArgument | Code::NotFound => {
                tracing::info!(code = ?status.code(), reason = status.message(), "refused");
            }
            code => tracing::warn!(?code, reason = status.message(), residue = ?error.residue(), "failed"),
        }
        status
    }

    pub(crate) fn panicked(&self, panic: &(dyn Any + Send), redactor: &Redactor) -> Status {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        tracing::error!(panic = redactor.clean(text), "the driver panicked; what is left is unknown");
        self.metrics.panicked();
        Status::aborted("the driver panicked, outcome unknown; repeat the call")
    }
}

/// The work of one call, in the task that does it.
struct Job<T> {
    method: Method,
    effect: Effect,
    work: BoxFuture<'static, Result<T, Error>>,
    redactor: Redactor,
    ticket: Ticket<T>,
}

impl<T> Job<T> {
    async fn run(self, pipeline: Pipeline) {
        let Self { method, effect, work, redactor, ticket } = self;
        let in_flight = pipeline.metrics.running(method.path);
        let started = Instant::now();
        let outcome = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(Ok(answer)) => {
                let took = started.elapsed();
                match effect {
                    Effect::Change => tracing::info!(?took, "done"),
                    Effect::Look => tracing::debug!(?took, "done"),
                }
                Ok(answer)
            }
            Ok(Err(error)) => Err(pipeline.refuse(&error, &redactor)),
            Err(panic) => Err(pipeline.panicked(&*panic, &redactor)),
        };
        drop(in_flight);
        ticket.finish(outcome);
    }
}

fn thrown_away() -> Status {
    Status::unavailable("the driver is shutting down; what the operation did is unknown")
}

/// The one place where an error becomes a status.
pub(crate) fn status_of(error: &Error, redactor: &Redactor) -> Status {
    let mut message = redactor.clean(error.chain());
    if message.len() > LONGEST_MESSAGE {
        let end = (0..=LONGEST_MESSAGE).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or(0));
        message.push_str(" ...");
    }
    Status::new(error.code(), message)
}

/// How far a call has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Preparing,
    /// The driver works on it in a task of its own.
    Working,
    Answered,
}

/// Counts a call when it is answered, or when its caller has left.
struct Watched<'a> {
    metrics: &'a Metrics,
    method: Method,
    started: Instant,
    progress: Progress,
}

impl<'a> Watched<'a> {
    fn new(metrics: &'a Metrics, method: Method) -> Self {
        Self { metrics, method, started: Instant::now(), progress: Progress::Preparing }
    }

    fn answered(&mut self, code: Code) {
        self.progress = Progress::Answered;
        self.metrics.answered(self.method.path, code, self.started.elapsed());
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        match self.progress {
            Progress::Answered => return,
            Progress::Preparing => {}
            Progress::Working => self.metrics.detached(),
        }
        self.metrics.answered(self.method.path, Code::Cancelled, self.started.elapsed());
    }
}
