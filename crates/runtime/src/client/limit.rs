//! A token bucket on tokio's clock. Callers are served in the order in which they asked.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// A client-side limit: `--kube-api-qps` and `--kube-api-burst`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Requests per second; must be positive.
    pub qps: f64,
    /// How many may go at once after a quiet time; at least one.
    pub burst: u32,
}

#[derive(Debug)]
pub(crate) struct Bucket {
    interval: Duration,
    /// How far the schedule may lag behind the clock: a burst is that much saved time.
    credit: Duration,
    next: Mutex<Instant>,
}

impl Bucket {
    pub(crate) fn new(rate: Rate) -> Bucket {
        // A rate of nothing would block for ever; that is not what a limit is for.
        let qps = if rate.qps.is_finite() && rate.qps > 0.0 { rate.qps } else { f64::from(u32::MAX) };
        let interval = Duration::from_secs_f64(1.0 / qps);
        let credit = interval.saturating_mul(rate.burst.max(1) - 1);
        let now = Instant::now();
        Bucket { interval, credit, next: Mutex::new(now.checked_sub(credit).unwrap_or(now)) }
    }

    /// Waits for a token.
    pub(crate) async fn take(&self) {
        let at = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let at = (*next).max(now.checked_sub(self.credit).unwrap_or(now));
            *next = at + self.interval;
            at
        };
        if at > Instant::now() {
            sleep_until(at).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_then_the_rate_holds() {
        tokio::time::advance(Duration::from_secs(3600)).await;
        let bucket = Bucket::new(Rate { qps: 5.0, burst: 10 });
        let start = Instant::now();
        for _ in 0..10 {
            bucket.take().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..5 {
            bucket.take().await;
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(999) && took <= Duration::from_millis(1010), "{took:?}");
    }
}
