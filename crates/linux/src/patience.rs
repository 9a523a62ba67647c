//! Waiting where the kernel offers no event: a loop device that lets go, a busy mount, a lock held across a fork.
//!
//! The only place of this crate that sleeps. Waits are short, grow, and always end.

use std::time::{Duration, Instant};

/// The longest pause between two looks.
const LONGEST: Duration = Duration::from_millis(50);

/// What to do after a look that found the kernel not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Next {
    LookAgain,
    GiveUp,
}

/// A bounded wait.
#[derive(Debug)]
pub struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    pub fn of(total: Duration) -> Self {
        Self { until: Instant::now() + total, pause: Duration::from_millis(1) }
    }

    /// Pauses before the next look, or says that it is time to give up.
    pub fn wait(&mut self) -> Next {
        if Instant::now() >= self.until {
            return Next::GiveUp;
        }
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(LONGEST);
        Next::LookAgain
    }
}
