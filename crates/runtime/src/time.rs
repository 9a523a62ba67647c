//! Wall time as an argument.
//!
//! Durations and deadlines use tokio's monotonic clock, which a test can pause. Wall time is for what is written down
//! for people: events and leases. No decision compares it with another machine's.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tells what time it is.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
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
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}
