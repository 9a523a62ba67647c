//! Who leads: one lease, taken, renewed, given back.
//!
//! The wire form and the timing are client-go's, so that our replicas and others' can share a lease. What differs:
//!
//! * Losing the lease does not end the process. Work is told to stop, the rest is dropped when its time is over, and we
//!   apply again; the caches stay warm.
//! * Work runs under an [`Epoch`], which ends by itself at the renew deadline, counted from the moment the last successful
//!   renewal was *sent*. Between that and the lease's end lies the time in which running work may finish.
//! * On shutdown the lease is given back after the work has ended.
//!
//! # Invariants
//! 1. Nothing is started under an epoch whose deadline has passed, also not by a process that was suspended meanwhile.
//! 2. No work of an epoch is polled after the lease may belong to somebody else.
//! 3. Times written by other machines are never compared with ours.
//! 4. Our identity in the lease does not prove that we hold it. Each write carries a mark of its own, and only a lease whose
//!    last mark is one of ours is ours: a copy of this running machine has our identity, too. A mark that was sent and not
//!    answered counts as ours, since only one of the writes at a revision succeeds.
//! 5. Deadlines are measured on the clock that goes on while the machine is suspended ([`Clock::boot`]).

mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::watch;
use api::object::{Key, Kind};
use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::{Instant, sleep, timeout};

pub use record::sanitise;
use record::{Claimable, Observed, OwnRenewals, Taking, Wish};

use crate::causes;
use crate::client::{Client, Error};
use crate::entropy::Entropy;
use crate::metrics::{Metrics, Name};
use crate::stop::{Stop, Stopper};
use crate::time::{Clock, sleep_until_boot};

/// A follower waits up to this much longer than the retry period, as in client-go.
const JITTER: f64 = 1.2;

/// Which lease, and how long things take.
#[derive(Debug, Clone)]
pub struct Options {
    /// The lease's namespace.
    pub namespace: String,
    /// The lease's name; see [`sanitise`].
    pub name: String,
    /// Who we are: another one for each process, also on one host. See [`crate::Entropy::token`].
    pub identity: String,
    /// How long others wait after our last renewal.
    pub lease_duration: Duration,
    /// How long we trust our last renewal.
    pub renew_deadline: Duration,
    /// How often we renew or look.
    pub retry_period: Duration,
    /// Labels to put on the lease while we lead.
    pub labels: BTreeMap<String, String>,
    /// How long work may take to end on shutdown before it is dropped.
    pub drain: Duration,
}

/// Durations that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTiming {
    /// Others would take over while we still work.
    #[error("the lease duration ({lease_duration:?}) must be longer than the renew deadline ({renew_deadline:?})")]
    LeaseTooShort {
        /// As given.
        lease_duration: Duration,
        /// As given.
        renew_deadline: Duration,
    },
    /// One late renewal would already end our leadership.
    #[error(
        "the renew deadline ({renew_deadline:?}) must be longer than 1.2 times the retry period ({retry_period:?})"
    )]
    DeadlineTooShort {
        /// As given.
        renew_deadline: Duration,
        /// As given.
        retry_period: Duration,
    },
    /// The lease's duration is written in whole seconds.
    #[error("the lease duration ({lease_duration:?}) must be a whole number of seconds, at least one")]
    NotWholeSeconds {
        /// As given.
        lease_duration: Duration,
    },
    /// A retry period of nothing would never rest.
    #[error("the retry period must be longer than nothing")]
    NoPeriod,
}

impl Options {
    /// The usual durations: 15 s, 10 s and 5 s.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Options {
        Options {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(5),
            labels: BTreeMap::new(),
            drain: Duration::from_secs(20),
        }
    }

    pub(crate) fn check(&self) -> Result<(), BadTiming> {
        let Options { lease_duration, renew_deadline, retry_period, .. } = *self;
        if retry_period.is_zero() {
            return Err(BadTiming::NoPeriod);
        }
        if lease_duration.as_secs() == 0 || lease_duration.subsec_nanos() != 0 {
            return Err(BadTiming::NotWholeSeconds { lease_duration });
        }
        if lease_duration <= renew_deadline {
            return Err(BadTiming::LeaseTooShort { lease_duration, renew_deadline });
        }
        if renew_deadline <= retry_period.mul_f64(JITTER) {
            return Err(BadTiming::DeadlineTooShort { renew_deadline, retry_period });
        }
        Ok(())
    }
}

/// One time of leading. Work that outlives it must not start anything.
#[derive(Debug, Clone)]
pub struct Epoch {
    /// Grows with every change of leader.
    pub number: u64,
    /// Given when we stop leading, for whatever reason, and when the process is to end.
    pub stop: Stop,
}

/// What an elector is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Somebody else leads, or we do not know who; empty if nobody does.
    Following {
        /// The holder as last seen.
        leader: String,
    },
    /// We lead.
    Leading {
        /// Which epoch.
        epoch: u64,
        /// When the last successful renewal was sent.
        renewed: Instant,
    },
    /// The process ends.
    Stopped,
}

impl Standing {
    /// What `/healthz/leader-election` says: a leader that has not renewed for long is not healthy.
    pub fn healthy(&self, lease_duration: Duration) -> Result<(), String> {
        match self {
            Standing::Following { .. } | Standing::Stopped => Ok(()),
            Standing::Leading { renewed, .. } => {
                let late = renewed.elapsed().saturating_sub(lease_duration + Duration::from_secs(20));
                if late.is_zero() {
                    Ok(())
                } else {
                    Err(format!("the lease was not renewed for {:?}", renewed.elapsed()))
                }
            }
        }
    }
}

/// Takes part in the election for one lease.
#[derive(Debug)]
pub struct Elector {
    client: Client,
    clock: Arc<dyn Clock>,
    entropy: Entropy,
    metrics: Metrics,
    options: Options,
    observed: Option<Observed>,
    own: OwnRenewals,
    /// Whether it was logged that a copy of this machine has the lease.
    copy_logged: bool,
    standing: watch::Sender<Standing>,
}

/// When a request was sent.
#[derive(Debug, Clone, Copy)]
struct Sent {
    /// On the clock that goes on in suspend.
    boot: Duration,
    at: Instant,
}

/// How one attempt to take or renew the lease ended.
enum Attempt {
    /// It is ours; the request was sent then.
    Ours { sent: Sent },
    /// Somebody else has it, or a copy of this machine.
    Theirs,
    /// We do not know.
    Failed(Error),
}

impl Elector {
    /// Takes no part yet.
    pub fn new(
        client: &Client,
        clock: Arc<dyn Clock>,
        entropy: &Entropy,
        metrics: &Metrics,
        options: Options,
    ) -> Result<Elector, BadTiming> {
        options.check()?;
        let standing = watch::Sender::new(Standing::Following { leader: String::new() });
        let elector = Elector {
            client: client.clone(),
            clock,
            entropy: entropy.fork(),
            metrics: metrics.clone(),
            options,
            observed: None,
            own: OwnRenewals::default(),
            copy_logged: false,
            standing,
        };
        elector.show_leading(false);
        Ok(elector)
    }

    /// How long others wait after our last renewal.
    pub fn lease_duration(&self) -> Duration {
        self.options.lease_duration
    }

    /// Follows what this elector is doing.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Applies, leads, loses and applies again, until `stop`. While we lead, the future that `work` gives runs; it should
    /// return soon after its epoch's `stop`. If it returns earlier, we go on leading without it.
    pub async fn run<W, F>(mut self, stop: &Stop, mut work: W)
    where
        W: FnMut(Epoch) -> F,
        F: Future<Output = ()>,
    {
        while let Some(sent) = self.acquire(stop).await {
            self.lead(sent, stop, &mut work).await;
            if stop.is_stopped() {
                break;
            }
        }
        self.standing.send_replace(Standing::Stopped);
    }

    /// Waits until the lease is ours; `None` if we are told to stop first.
    async fn acquire(&mut self, stop: &Stop) -> Option<Sent> {
        let mut logged = String::new();
        loop {
            let deadline = self.clock.boot() + self.options.renew_deadline;
            let attempt = tokio::select! {
                biased;
                () = stop.stopped() => return None,
                attempt = self.attempt(deadline) => attempt,
            };
            match attempt {
                Attempt::Ours { sent } => return Some(sent),
                Attempt::Theirs => logged.clear(),
                Attempt::Failed(error) => self.log_failed(&mut logged, &error, "cannot take the lease"),
            }
            let leader = self.observed.as_ref().map(|seen| seen.holder().to_owned()).unwrap_or_default();
            self.standing.send_replace(Standing::Following { leader });
            // The retry period is the pause after a failure, too: a free lease must not stay free for long.
            let wait = self.entropy.longer(self.options.retry_period, JITTER);
            tokio::select! {
                biased;
                () = stop.stopped() => return None,
                () = sleep(wait) => {}
            }
        }
    }

    /// Runs the work while the lease is ours, and ends it when its time is over.
    async fn lead<W, F>(&mut self, sent: Sent, stop: &Stop, work: &mut W)
    where
        W: FnMut(Epoch) -> F,
        F: Future<Output = ()>,
    {
        let number = self.observed.as_ref().map_or(0, |seen| u64::try_from(seen.transitions()).unwrap_or(0));
        let deadline = watch::Sender::new(sent.boot + self.options.renew_deadline);
        let (ousted, another) = Stopper::new();
        let limits = Limits {
            expired: Stop::at(deadline.subscribe(), self.clock.clone()),
            deadline: deadline.subscribe(),
            clock: self.clock.clone(),
            another,
            stop: stop.clone(),
            grace: self.options.lease_duration - self.options.renew_deadline,
            drain: self.options.drain,
        };
        tracing::info!(lease = self.options.name, epoch = number, "leading");
        self.show_leading(true);
        self.standing.send_replace(Standing::Leading { epoch: number, renewed: sent.at });
        let running = work(Epoch { number, stop: limits.expired.or(&limits.another).or(stop) });
        let ended = tokio::select! {
            biased;
            never = self.keep(number, &deadline, &ousted) => match never {},
            ended = limits.bound(running) => ended,
        };
        self.show_leading(false);
        match ended {
            Ended::Stopped => self.release().await,
            Ended::Lost => tracing::warn!(lease = self.options.name, epoch = number, "no longer leading"),
        }
        self.standing.send_replace(Standing::Following { leader: String::new() });
    }

    /// Renews the lease for as long as it is polled and the lease is ours.
    async fn keep(&mut self, epoch: u64, deadline: &watch::Sender<Duration>, ousted: &Stopper) -> Infallible {
        let mut wait = self.options.retry_period;
        let mut logged = String::new();
        loop {
            sleep(wait).await;
            let until = *deadline.borrow();
            if self.clock.boot() >= until {
                return pending().await;
            }
            match self.attempt(until).await {
                Attempt::Ours { sent } => {
                    deadline.send_replace(sent.boot + self.options.renew_deadline);
                    self.standing.send_replace(Standing::Leading { epoch, renewed: sent.at });
                    wait = self.options.retry_period;
                    logged.clear();
                }
                Attempt::Theirs => {
                    ousted.stop();
                    return pending().await;
                }
                Attempt::Failed(error) => {
                    self.log_failed(&mut logged, &error, "cannot renew the lease");
                    wait = self.entropy.longer(self.options.retry_period.min(Duration::from_secs(1)), JITTER);
                }
            }
        }
    }

    /// Logs why an attempt failed: as a warning once per change.
    fn log_failed(&self, logged: &mut String, error: &Error, what: &'static str) {
        let (lease, why) = (&self.options.name, causes(error));
        match *logged == why {
            true => tracing::debug!(lease, why, "{what}"),
            false => tracing::warn!(lease, why, "{what}"),
        }
        *logged = why;
    }

    /// Takes or renews the lease, if it may be ours.
    async fn attempt(&mut self, deadline: Duration) -> Attempt {
        let left = deadline.saturating_sub(self.clock.boot());
        match timeout(left, self.try_once()).await {
            Ok(attempt) => attempt,
            Err(_) => Attempt::Failed(Error::Unknown {
                doing: format!("renew lease {}", self.options.name),
                message: "no answer in time".to_owned(),
            }),
        }
    }

    async fn try_once(&mut self) -> Attempt {
        // The usual case needs one request: what we wrote last is still there.
        if let Some(known) = self.observed.clone()
            && known.is_ours(&self.options.identity, &self.own)
        {
            match self.write(&known, Taking::Renewal).await {
                Attempt::Failed(Error::Conflict { .. }) => {}
                done => return done,
            }
            self.metrics.slow_renewals.get_or_create(&self.label()).inc();
        }
        let lease = match self.client.get::<Lease>(Kind::LEASE, &self.key()).await {
            Ok(lease) => lease,
            Err(Error::NotFound { .. }) => return self.create().await,
            Err(error) => return Attempt::Failed(error),
        };
        let now = self.clock.boot();
        let observed = Observed::update(self.observed.take(), lease, now);
        let claimable = observed.claimable(&self.options.identity, &self.own, now);
        self.observed = Some(observed.clone());
        match claimable {
            Claimable::Held => Attempt::Theirs,
            Claimable::HeldByCopy => {
                self.tell_of_copy();
                Attempt::Theirs
            }
            Claimable::Ours => self.write(&observed, Taking::Renewal).await,
            Claimable::Free => self.write(&observed, Taking::Takeover).await,
        }
    }

    /// Says once that this machine runs twice.
    fn tell_of_copy(&mut self) {
        if !std::mem::replace(&mut self.copy_logged, true) {
            let (lease, identity) = (&self.options.name, &self.options.identity);
            tracing::error!(
                lease,
                identity,
                "another machine uses this process's identity: the lease was renewed in its name, and not by it; this \
                 machine runs twice, as copies of a running machine do, and the other one leads"
            );
        }
    }

    async fn create(&mut self) -> Attempt {
        let sent = self.sent();
        let mark = self.mark();
        let lease = self.wish(&mark).first(&self.options.namespace, &self.options.name);
        let created = self.client.create::<Lease>(Kind::LEASE, Some(&self.options.namespace), &lease).await;
        self.written(created, sent)
    }

    async fn write(&mut self, over: &Observed, taking: Taking) -> Attempt {
        let sent = self.sent();
        let mark = self.mark();
        let lease = self.wish(&mark).over(over, taking);
        let written = self.client.replace::<Lease>(Kind::LEASE, &self.key(), &lease).await;
        self.written(written, sent)
    }

    fn written(&mut self, written: Result<Lease, Error>, sent: Sent) -> Attempt {
        match written {
            Ok(lease) => {
                self.own.stored();
                self.copy_logged = false;
                self.observed = Some(Observed { lease, at: sent.boot });
                Attempt::Ours { sent }
            }
            Err(Error::AlreadyExists { .. }) => Attempt::Theirs,
            Err(error) => Attempt::Failed(error),
        }
    }

    fn sent(&self) -> Sent {
        Sent { boot: self.clock.boot(), at: Instant::now() }
    }

    /// The mark of the next write. It counts as ours from now on, since its answer may be lost.
    fn mark(&mut self) -> String {
        let mark = self.entropy.token();
        self.own.sending(mark.clone());
        mark
    }

    /// Gives the lease back. If that fails, others wait until it ends; nothing worse.
    async fn release(&mut self) {
        let Some(known) = self.observed.take() else { return };
        let mark = self.mark();
        let lease = self.wish(&mark).released(&known);
        match timeout(self.options.renew_deadline, self.client.replace::<Lease>(Kind::LEASE, &self.key(), &lease)).await
        {
            Ok(Ok(_)) => tracing::info!(lease = self.options.name, "gave the lease back"),
            Ok(Err(error)) => tracing::warn!(lease = self.options.name, %error, "could not give the lease back"),
            Err(_) => tracing::warn!(lease = self.options.name, "could not give the lease back in time"),
        }
    }

    fn wish<'a>(&'a self, mark: &'a str) -> Wish<'a> {
        Wish {
            mark,
            identity: &self.options.identity,
            duration: self.options.lease_duration,
            labels: &self.options.labels,
            now: self.clock.now(),
        }
    }

    fn key(&self) -> Key {
        Key::namespaced(&self.options.namespace, &self.options.name)
    }

    fn label(&self) -> Name {
        Name { name: self.options.name.clone() }
    }

    fn show_leading(&self, leading: bool) {
        self.metrics.leading.get_or_create(&self.label()).set(i64::from(leading));
    }
}

/// Why a time of leading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The process is to end, and the lease is still ours.
    Stopped,
    /// The lease is somebody else's, or may be soon.
    Lost,
}

/// How long work may go on.
struct Limits {
    /// Until when our last renewal is trusted.
    deadline: watch::Receiver<Duration>,
    clock: Arc<dyn Clock>,
    /// The renew deadline has passed; after `grace` others may lead.
    expired: Stop,
    /// Another leader was seen; there is no time left.
    another: Stop,
    /// The process is to end; work has `drain` to finish.
    stop: Stop,
    grace: Duration,
    drain: Duration,
}

impl Limits {
    /// Polls the work while it may run. The limits are looked at first, so that it is not polled once too often; and the
    /// clock is asked before every poll, because no timer has run yet when a suspended machine wakes up.
    async fn bound(&self, work: impl Future<Output = ()>) -> Ended {
        tokio::pin!(work);
        let guarded = poll_fn(|context| match self.clock.boot() >= self.end() {
            true => Poll::Ready(Some(Ended::Lost)),
            false => work.as_mut().poll(context).map(|()| None),
        });
        tokio::select! {
            biased;
            ended = self.over() => return ended,
            ended = guarded => if let Some(ended) = ended {
                return ended;
            },
        }
        tokio::select! {
            biased;
            () = self.another.stopped() => Ended::Lost,
            () = self.expired.stopped() => Ended::Lost,
            () = self.stop.stopped() => Ended::Stopped,
        }
    }

    /// When others may lead.
    fn end(&self) -> Duration {
        *self.deadline.borrow() + self.grace
    }

    async fn over(&self) -> Ended {
        let expired = async {
            self.expired.stopped().await;
            sleep_until_boot(&*self.clock, self.end()).await;
        };
        let drained = async {
            self.stop.stopped().await;
            sleep(self.drain).await;
        };
        tokio::select! {
            biased;
            () = self.another.stopped() => Ended::Lost,
            () = expired => Ended::Lost,
            () = drained => Ended::Stopped,
        }
    }
}
