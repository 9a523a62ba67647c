//! Wall time as an argument.
//!
//! Durations and deadlines use tokio's monotonic clock, which a test can pause. That clock stands still while the machine
//! is suspended, so the deadlines of leases use [`Clock::boot`], which goes on. Wall time is for what is written down for
//! people: events and leases. No decision compares it with another machine's.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tells what time it is.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;

    /// The time since a fixed moment before this process began, including the time that the machine was suspended. It
    /// never goes back.
    fn boot(&self) -> Duration;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn boot(&self) -> Duration {
        let read = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        // The kernel's boot time is never negative.
        let (seconds, nanos) = (u64::try_from(read.tv_sec).unwrap_or(0), u32::try_from(read.tv_nsec).unwrap_or(0));
        Duration::new(seconds, nanos)
    }
}

/// A clock that moves with tokio's: paused with it, and the same in every run.
#[derive(Debug, Clone, Copy)]
pub struct VirtualClock {
    start: Timestamp,
    origin: Instant,
}

impl VirtualClock {
    /// A clock that shows `start` now.
    pub fn starting_at(start: Timestamp) -> VirtualClock {
        VirtualClock { start, origin: Instant::now() }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.origin.elapsed()).unwrap_or(SignedDuration::MAX);
        self.start.saturating_add(passed).unwrap_or(Timestamp::MAX)
    }

    fn boot(&self) -> Duration {
        self.origin.elapsed()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn boot(&self) -> Duration {
        (**self).boot()
    }
}

/// How often a wait on [`Clock::boot`] looks at it. Tokio's timers do not notice a suspend, so a long one would come late
/// by the time that was slept.
const BOOT_LOOK: Duration = Duration::from_secs(1);

/// Waits until the boot clock shows `until`; after a suspend, at most a second longer.
pub async fn sleep_until_boot(clock: &dyn Clock, until: Duration) {
    loop {
        let left = until.saturating_sub(clock.boot());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(BOOT_LOOK)).await;
    }
}

/// A virtual clock for tests of suspended machines: tokio's timers stand still meanwhile, boot time and wall time do not.
#[derive(Debug, Clone)]
pub struct SuspendableClock {
    running: VirtualClock,
    suspended: Arc<std::sync::Mutex<Duration>>,
}

impl SuspendableClock {
    /// A clock that shows `start` now.
    pub fn starting_at(start: Timestamp) -> SuspendableClock {
        SuspendableClock { running: VirtualClock::starting_at(start), suspended: Arc::default() }
    }

    /// The machine was suspended for so long, just now.
    pub fn suspend(&self, length: Duration) {
        *self.suspended.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += length;
    }

    fn suspended(&self) -> Duration {
        *self.suspended.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Clock for SuspendableClock {
    fn now(&self) -> Timestamp {
        let suspended = SignedDuration::try_from(self.suspended()).unwrap_or(SignedDuration::MAX);
        self.running.now().saturating_add(suspended).unwrap_or(Timestamp::MAX)
    }

    fn boot(&self) -> Duration {
        self.running.boot() + self.suspended()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_time_goes_on_and_is_the_machines() {
        let (first, second) = (SystemClock.boot(), SystemClock.boot());
        assert!(second >= first && !first.is_zero());
        let uptime = std::fs::read_to_string("/proc/uptime").expect("this is Linux");
        let shown: f64 = uptime.split(' ').next().expect("two numbers").parse().expect("a number");
        assert!((shown - second.as_secs_f64()).abs() < 5.0, "{shown} {second:?}");
    }

    const AHEAD: Duration = Duration::from_secs(1_000_000);
    const INSIDE: &str = "ORLOP_TEST_BOOT_CLOCK_AHEAD";

    /// A time namespace whose boot clock is ahead of the monotonic one, as both are after a long suspend.
    #[test]
    fn boot_time_counts_the_time_in_suspend() {
        if std::env::var_os(INSIDE).is_some() {
            assert!(SystemClock.boot() >= AHEAD, "{:?}", SystemClock.boot());
            return;
        }
        let ahead = AHEAD.as_secs().to_string();
        let unshared = |program: &std::ffi::OsStr, args: &[&str]| {
            let mut command = std::process::Command::new("unshare");
            command.args(["--time", "--boottime", &ahead, "--fork"]).arg(program).args(args);
            command.env(INSIDE, "1").output()
        };
        if !unshared("true".as_ref(), &[]).is_ok_and(|output| output.status.success()) {
            println!("skipped: no time namespace can be made here");
            return;
        }
        let this = std::env::current_exe().expect("a test has a path");
        let name = "time::tests::boot_time_counts_the_time_in_suspend";
        let output = unshared(this.as_os_str(), &["--exact", name, "--nocapture"]).expect("unshare runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_on_boot_time_ends_soon_after_a_suspend() {
        let clock = SuspendableClock::starting_at(Timestamp::UNIX_EPOCH);
        let began = Instant::now();
        let waiting = sleep_until_boot(&clock, Duration::from_secs(3600));
        let suspending = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            clock.suspend(Duration::from_secs(7200));
        };
        tokio::join!(waiting, suspending);
        assert!(began.elapsed() <= Duration::from_secs(12), "{:?}", began.elapsed());
    }
}
