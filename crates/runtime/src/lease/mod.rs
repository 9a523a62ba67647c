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

mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use crate::watch;
use api::object::{Key, Kind};
use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::{Instant, sleep, timeout_at};

pub use record::sanitise;
use record::{Claimable, Observed, Wish};

use crate::client::{Client, Error};
use crate::entropy::Entropy;
use crate::metrics::{Metrics, Name};
use crate::stop::{Stop, Stopper};
use crate::time::Clock;

/// A follower waits up to this much longer than the retry period, as in client-go.
const JITTER: f64 = 1.2;

/// Which lease, and how long things take.
#[derive(Debug, Clone)]
pub struct Options {
    /// The lease's namespace.
    pub namespace: String,
    /// The lease's name; see [`sanitise`].
    pub name: String,
    /// Who we are. Two processes with the same identity would both lead.
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
    standing: watch::Sender<Standing>,
}

/// How one attempt to take or renew the lease ended.
enum Attempt {
    /// It is ours; the request was sent then.
    Ours { sent: Instant },
    /// Somebody else has it.
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
    async fn acquire(&mut self, stop: &Stop) -> Option<Instant> {
        loop {
            let deadline = Instant::now() + self.options.renew_deadline;
            let attempt = tokio::select! {
                biased;
                () = stop.stopped() => return None,
                attempt = self.attempt(deadline) => attempt,
            };
            match attempt {
                Attempt::Ours { sent } => return Some(sent),
                Attempt::Theirs => {}
                Attempt::Failed(error) => tracing::warn!(lease = self.options.name, %error, "cannot take the lease"),
            }
            let leader = self.observed.as_ref().map(|seen| seen.holder().to_owned()).unwrap_or_default();
            self.standing.send_replace(Standing::Following { leader });
            let wait = self.entropy.longer(self.options.retry_period, JITTER);
            tokio::select! {
                biased;
                () = stop.stopped() => return None,
                () = sleep(wait) => {}
            }
        }
    }

    /// Runs the work while the lease is ours, and ends it when its time is over.
    async fn lead<W, F>(&mut self, sent: Instant, stop: &Stop, work: &mut W)
    where
        W: FnMut(Epoch) -> F,
        F: Future<Output = ()>,
    {
        let number = self.observed.as_ref().map_or(0, |seen| u64::try_from(seen.transitions()).unwrap_or(0));
        let deadline = watch::Sender::new(sent + self.options.renew_deadline);
        let (ousted, another) = Stopper::new();
        let limits = Limits {
            expired: Stop::at(deadline.subscribe()),
            another,
            stop: stop.clone(),
            grace: self.options.lease_duration - self.options.renew_deadline,
            drain: self.options.drain,
        };
        tracing::info!(lease = self.options.name, epoch = number, "leading");
        self.show_leading(true);
        self.standing.send_replace(Standing::Leading { epoch: number, renewed: sent });
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
    async fn keep(&mut self, epoch: u64, deadline: &watch::Sender<Instant>, ousted: &Stopper) -> Infallible {
        let mut wait = self.options.retry_period;
        loop {
            sleep(wait).await;
            let until = *deadline.borrow();
            if Instant::now() >= until {
                return pending().await;
            }
            match self.attempt(until).await {
                Attempt::Ours { sent } => {
                    deadline.send_replace(sent + self.options.renew_deadline);
                    self.standing.send_replace(Standing::Leading { epoch, renewed: sent });
                    wait = self.options.retry_period;
                }
                Attempt::Theirs => {
                    ousted.stop();
                    return pending().await;
                }
                Attempt::Failed(error) => {
                    tracing::warn!(lease = self.options.name, %error, "cannot renew the lease");
                    wait = self.entropy.longer(self.options.retry_period.min(Duration::from_secs(1)), JITTER);
                }
            }
        }
    }

    /// Takes or renews the lease, if it may be ours.
    async fn attempt(&mut self, deadline: Instant) -> Attempt {
        match timeout_at(deadline, self.try_once()).await {
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
            && known.holder() == self.options.identity
        {
            match self.write(&known).await {
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
        let now = Instant::now();
        let observed = Observed::update(self.observed.take(), lease, now);
        let claimable = observed.claimable(&self.options.identity, now);
        self.observed = Some(observed.clone());
        match claimable {
            Claimable::Held => Attempt::Theirs,
            Claimable::Ours | Claimable::Free => self.write(&observed).await,
        }
    }

    async fn create(&mut self) -> Attempt {
        let sent = Instant::now();
        let lease = self.wish().first(&self.options.namespace, &self.options.name);
        let created = self.client.create::<Lease>(Kind::LEASE, Some(&self.options.namespace), &lease).await;
        self.written(created, sent)
    }

    async fn write(&mut self, over: &Observed) -> Attempt {
        let sent = Instant::now();
        let lease = self.wish().over(over);
        let written = self.client.replace::<Lease>(Kind::LEASE, &self.key(), &lease).await;
        self.written(written, sent)
    }

    fn written(&mut self, written: Result<Lease, Error>, sent: Instant) -> Attempt {
        match written {
            Ok(lease) => {
                self.observed = Some(Observed { lease, at: sent });
                Attempt::Ours { sent }
            }
            Err(Error::AlreadyExists { .. }) => Attempt::Theirs,
            Err(error) => Attempt::Failed(error),
        }
    }

    /// Gives the lease back. If that fails, others wait until it ends; nothing worse.
    async fn release(&mut self) {
        let Some(known) = self.observed.take() else { return };
        let lease = self.wish().released(&known);
        let until = Instant::now() + self.options.renew_deadline;
        match timeout_at(until, self.client.replace::<Lease>(Kind::LEASE, &self.key(), &lease)).await {
            Ok(Ok(_)) => tracing::info!(lease = self.options.name, "gave the lease back"),
            Ok(Err(error)) => tracing::warn!(lease = self.options.name, %error, "could not give the lease back"),
            Err(_) => tracing::warn!(lease = self.options.name, "could not give the lease back in time"),
        }
    }

    fn wish(&self) -> Wish<'_> {
        Wish {
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
    /// Polls the work while it may run. The limits are looked at first, so that it is not polled once too often.
    async fn bound(&self, work: impl Future<Output = ()>) -> Ended {
        tokio::select! {
            biased;
            ended = self.over() => return ended,
            () = work => {}
        }
        tokio::select! {
            biased;
            () = self.another.stopped() => Ended::Lost,
            () = self.expired.stopped() => Ended::Lost,
            () = self.stop.stopped() => Ended::Stopped,
        }
    }

    async fn over(&self) -> Ended {
        let expired = async {
            self.expired.stopped().await;
            sleep(self.grace).await;
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
