//! The end as an argument: who is told to stop, when, and how long it may take.
//!
//! A [`Stop`] is a signal that can come from several sides: the process ends, the lease is lost, or a moment passes
//! after which nothing may start. Whoever starts work asks [`Stop::is_stopped`] directly before it, which also looks at
//! the clock: a process that was suspended notices before it acts, not after.

use std::future::{Future, pending, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::watch;
use futures_util::future::select_all;
use tokio::time::timeout;

use crate::time::{Clock, sleep_until_boot};

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
    /// Stops by itself when the boot clock shows the moment; its owner moves the moment for as long as it may.
    Deadline(watch::Receiver<Duration>, Arc<dyn Clock>),
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

    /// Stops when the moment that `deadline` shows has come, on the clock that goes on while the machine is suspended
    /// ([`Clock::boot`]).
    pub fn at(deadline: watch::Receiver<Duration>, clock: Arc<dyn Clock>) -> Stop {
        Stop { signals: Arc::new([Signal::Deadline(deadline, clock)]) }
    }

    /// Stops when either does.
    pub fn or(&self, other: &Stop) -> Stop {
        Stop { signals: self.signals.iter().chain(other.signals.iter()).cloned().collect() }
    }

    /// Whether nothing more may be started.
    pub fn is_stopped(&self) -> bool {
        self.signals.iter().any(|signal| match signal {
            Signal::Flag(flag) => *flag.borrow(),
            Signal::Deadline(deadline, clock) => clock.boot() >= *deadline.borrow(),
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
            Signal::Deadline(mut deadline, clock) => loop {
                let at = *deadline.borrow_and_update();
                tokio::select! {
                    biased;
                    moved = deadline.changed() => if moved.is_err() {
                        return sleep_until_boot(&*clock, at).await;
                    },
                    () = sleep_until_boot(&*clock, at) => return,
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
#[error("listening for signals")]
pub struct SignalError(#[from] std::io::Error);

/// The signals that ask this process to end: SIGTERM, SIGINT, SIGQUIT, and SIGHUP, which comes when its terminal goes.
/// Who was started to outlive a terminal, as by `nohup`, ignores that one and goes on ignoring it.
///
/// Signals are kept from [`Signals::listen`] on, not from when they are first waited for: a program that says that it is
/// ready after that is ended in an orderly way by whoever heard it.
#[derive(Debug)]
pub struct Signals(Vec<tokio::signal::unix::Signal>);

impl Signals {
    pub fn listen() -> Result<Self, SignalError> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut kinds = vec![SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()];
        // Without the table of this process nothing is known to be ignored.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if !ignores(&status, SignalKind::hangup().as_raw_value()) {
            kinds.push(SignalKind::hangup());
        }
        let listening: std::io::Result<Vec<_>> = kinds.into_iter().map(signal).collect();
        Ok(Self(listening?))
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        poll_fn(|context| self.poll_next(context)).await;
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

/// Whether a process ignores a signal, from what the kernel says of it: `SigIgn:` with a bit for each.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let bit = u32::try_from(signal - 1).ok().and_then(|bit| 1_u64.checked_shl(bit)).unwrap_or(0);
    mask & bit != 0
}

/// Ends at the first signal that asks to end. Signals are kept from the call on.
pub fn first_signal() -> Result<impl Future<Output = ()> + Send + 'static, SignalError> {
    let mut signals = Signals::listen()?;
    Ok(async move { signals.next().await })
}

/// Signals within this time of the first are the same one: who ends a process often tells its group, too, as `timeout` does.
const ECHO: Duration = Duration::from_millis(500);

/// Waits for the first signal that asks to end, gives the signal, and returns at the second one: the operator does not want
/// to wait. Signals are kept from the call on.
pub fn on_signals(stopper: Stopper) -> impl Future<Output = Result<(), SignalError>> + Send + 'static {
    let listening = Signals::listen();
    async move {
        let mut signals = listening?;
        until_asked_twice(|context| signals.poll_next(context), &stopper).await;
        Ok(())
    }
}

async fn until_asked_twice(mut asked: impl FnMut(&mut Context<'_>) -> Poll<()>, stopper: &Stopper) {
    poll_fn(&mut asked).await;
    stopper.stop();
    let echoes = poll_fn(|context| {
        while asked(context).is_ready() {}
        Poll::<()>::Pending
    });
    // It never ends by itself.
    let _ = timeout(ECHO, echoes).await;
    poll_fn(&mut asked).await;
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::time::{SuspendableClock, VirtualClock};

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
    async fn a_signal_that_comes_twice_at_once_is_one_and_a_later_one_is_the_second() {
        let (send, mut sent) = tokio::sync::mpsc::unbounded_channel::<()>();
        let (stopper, stop) = Stopper::new();
        let mut asked = std::pin::pin!(until_asked_twice(|context| sent.poll_recv(context).map(drop), &stopper));
        assert!(timeout(10 * ECHO, &mut asked).await.is_err() && !stop.is_stopped());
        send.send(()).expect("it is heard");
        send.send(()).expect("it is heard");
        assert!(
            timeout(10 * ECHO, &mut asked).await.is_err() && stop.is_stopped(),
            "told to the process and its group"
        );
        send.send(()).expect("it is heard");
        assert!(timeout(ECHO, asked).await.is_ok());
    }

    #[test]
    fn a_signal_that_is_ignored_is_seen_in_what_the_kernel_says_of_the_process() {
        let under_nohup = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(ignores(under_nohup, 1) && ignores(under_nohup, 13));
        assert!(!ignores(under_nohup, 2) && !ignores(under_nohup, 15) && !ignores("", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_stops_by_itself_and_can_be_moved() {
        let clock = Arc::new(VirtualClock::starting_at(Timestamp::UNIX_EPOCH));
        let (moment, receiver) = watch::channel(clock.boot() + Duration::from_secs(10));
        let (_stopper, flag) = Stopper::new();
        let stop = flag.or(&Stop::at(receiver, clock.clone()));
        assert!(timeout(Duration::from_secs(9), stop.stopped()).await.is_err());
        moment.send_replace(clock.boot() + Duration::from_secs(10));
        assert!(timeout(Duration::from_secs(9), stop.stopped()).await.is_err());
        assert!(!stop.is_stopped());
        stop.stopped().await;
        assert!(stop.is_stopped());
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_passed_during_a_suspend_stops_before_any_timer_runs() {
        let clock = Arc::new(SuspendableClock::starting_at(Timestamp::UNIX_EPOCH));
        let (_moment, receiver) = watch::channel(clock.boot() + Duration::from_secs(10));
        let stop = Stop::at(receiver, clock.clone());
        assert!(!stop.is_stopped());
        clock.suspend(Duration::from_secs(60));
        assert!(stop.is_stopped());
        assert!(timeout(Duration::from_secs(2), stop.stopped()).await.is_ok());
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
