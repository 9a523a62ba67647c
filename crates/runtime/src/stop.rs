//! The end as an argument: who is told to stop, when, and how long it may take.
//!
//! A [`Stop`] is a signal that can come from several sides: the process ends, the lease is lost, or a moment passes
//! after which nothing may start. Whoever starts work asks [`Stop::is_stopped`] directly before it, which also looks at
//! the clock: a process that was suspended notices before it acts, not after.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// Gives the signal. Dropping it is not a signal.
#[derive(Debug, Clone)]
pub struct Stopper {
    flag: watch::Sender<bool>,
}

/// Receives the signal; clones are cheap.
#[derive(Debug, Clone)]
pub struct Stop {
    signals: Arc<[Signal]>,
}

#[derive(Debug, Clone)]
enum Signal {
    Flag(watch::Receiver<bool>),
    /// Stops by itself when the moment comes; its owner moves the moment for as long as it may.
    Deadline(watch::Receiver<Instant>),
}

impl Stopper {
    /// A signal that was not given yet.
    pub fn new() -> (Stopper, Stop) {
        let (flag, receiver) = watch::channel(false);
        (Stopper { flag }, Stop { signals: Arc::new([Signal::Flag(receiver)]) })
    }

    /// Gives the signal, for good.
    pub fn stop(&self) {
        self.flag.send_replace(true);
    }
}

impl Stop {
    /// Never stops.
    pub fn never() -> Stop {
        Stop { signals: Arc::new([]) }
    }

    /// Stops when the moment that `deadline` shows has come.
    pub fn at(deadline: watch::Receiver<Instant>) -> Stop {
        Stop { signals: Arc::new([Signal::Deadline(deadline)]) }
    }

    /// Stops when either does.
    pub fn or(&self, other: &Stop) -> Stop {
        Stop { signals: self.signals.iter().chain(other.signals.iter()).cloned().collect() }
    }

    /// Whether nothing more may be started.
    pub fn is_stopped(&self) -> bool {
        self.signals.iter().any(|signal| match signal {
            Signal::Flag(flag) => *flag.borrow(),
            Signal::Deadline(deadline) => Instant::now() >= *deadline.borrow(),
        })
    }

    /// Waits for the signal.
    pub async fn stopped(&self) {
        if self.signals.is_empty() {
            return pending().await;
        }
        let waits = self.signals.iter().map(|signal| Box::pin(signal.clone().given()));
        select_all(waits).await;
    }
}

impl Signal {
    async fn given(self) {
        match self {
            Signal::Flag(mut flag) => {
                if flag.wait_for(|given| *given).await.is_err() {
                    // Whoever could have given the signal is gone, so it will not be given.
                    pending::<()>().await;
                }
            }
            Signal::Deadline(mut deadline) => loop {
                let at = *deadline.borrow_and_update();
                tokio::select! {
                    biased;
                    moved = deadline.changed() => if moved.is_err() {
                        return sleep_until(at).await;
                    },
                    () = sleep_until(at) => return,
                }
            },
        }
    }
}

/// What became of work that was given time to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained<T> {
    /// It ended by itself.
    Ended(T),
    /// Time ran out and it was dropped where it stood.
    Dropped,
}

/// Lets `work` run until `stop`, and then for at most `budget` more.
pub async fn drain<T>(work: impl Future<Output = T>, stop: &Stop, budget: Duration) -> Drained<T> {
    tokio::pin!(work);
    tokio::select! {
        biased;
        ended = &mut work => return Drained::Ended(ended),
        () = stop.stopped() => {}
    }
    match timeout(budget, work).await {
        Ok(ended) => Drained::Ended(ended),
        Err(_) => Drained::Dropped,
    }
}

/// Why listening for signals failed.
#[derive(Debug, thiserror::Error)]
#[error("listening for SIGTERM and SIGINT")]
pub struct SignalError(#[from] std::io::Error);

/// Waits for SIGTERM or SIGINT, gives the signal, and returns at the second one: the operator does not want to wait.
///
/// Signals are kept from the call on, not from when it is first waited for: a program that says that it is ready after this
/// call is ended in an orderly way by whoever heard it.
pub fn on_signals(stopper: Stopper) -> impl Future<Output = Result<(), SignalError>> + Send + 'static {
    use tokio::signal::unix::{SignalKind, signal};
    let listening = signal(SignalKind::terminate()).and_then(|one| Ok((one, signal(SignalKind::interrupt())?)));
    async move {
        let (mut terminate, mut interrupt) = listening?;
        for _ in 0..2 {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            stopper.stop();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_between_the_call_and_the_waiting_is_heard() {
        use rustix::process::{Signal, getpid, kill_process};
        let (stopper, stop) = Stopper::new();
        let signals = on_signals(stopper);
        kill_process(getpid(), Signal::TERM).expect("it is this process");
        tokio::select! {
            _ = signals => unreachable!("there was one signal only"),
            () = stop.stopped() => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_stops_by_itself_and_can_be_moved() {
        let (moment, receiver) = watch::channel(Instant::now() + Duration::from_secs(10));
        let (_stopper, flag) = Stopper::new();
        let stop = flag.or(&Stop::at(receiver));
        assert!(timeout(Duration::from_secs(9), stop.stopped()).await.is_err());
        moment.send_replace(Instant::now() + Duration::from_secs(10));
        assert!(timeout(Duration::from_secs(9), stop.stopped()).await.is_err());
        assert!(!stop.is_stopped());
        stop.stopped().await;
        assert!(stop.is_stopped());
    }

    #[tokio::test(start_paused = true)]
    async fn work_may_finish_within_its_budget_and_no_later() {
        let (stopper, stop) = Stopper::new();
        stopper.stop();
        let second = Duration::from_secs(1);
        assert_eq!(drain(tokio::time::sleep(second), &stop, 2 * second).await, Drained::Ended(()));
        assert_eq!(drain(tokio::time::sleep(3 * second), &stop, 2 * second).await, Drained::Dropped);
    }
}
