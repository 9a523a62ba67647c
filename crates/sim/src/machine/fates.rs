//! What can happen to a call of the agent to its machine.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use crate::World;
use crate::random::{Odds, Random};
use crate::world::Weather;

/// A call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Which call of this life it is; the first is 1.
    pub number: u64,
    /// What it does, as an error would say it.
    pub doing: &'static str,
    pub path: &'a Path,
    pub changes: bool,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostFate {
    Done,
    /// It is refused, and nothing happens.
    Refused(Errno),
    /// It hangs until the caller gives up, and nothing happens.
    Hung,
    /// It hangs until the caller gives up, and happens all the same.
    HungAndDone,
    /// The agent dies before it.
    CrashBefore,
    /// The agent dies after it.
    CrashAfter,
}

impl fmt::Display for HostFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => Ok(()),
            Self::Refused(errno) => write!(f, " refused: {errno} (injected)"),
            Self::Hung => f.write_str(" hung, not done (injected)"),
            Self::HungAndDone => f.write_str(" hung, and done (injected)"),
            Self::CrashBefore => f.write_str(" crashed before it (injected)"),
            Self::CrashAfter => f.write_str(" crashed after it (injected)"),
        }
    }
}

/// Decides what becomes of the calls of one life.
pub trait HostFates: Send + 'static {
    fn call(&mut self, event: &Event<'_>) -> HostFate;

    /// How long a call takes.
    fn takes(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// A script.
impl<F: FnMut(&Event<'_>) -> HostFate + Send + 'static> HostFates for F {
    fn call(&mut self, event: &Event<'_>) -> HostFate {
        self(event)
    }
}

/// Nothing ever happens.
impl HostFates for crate::faults::Fair {
    fn call(&mut self, _: &Event<'_>) -> HostFate {
        HostFate::Done
    }
}

/// Fates from the seed: every fault now and then.
#[derive(Debug)]
pub struct Rough {
    random: Random,
    weather: Weather,
    /// Of calls that change something.
    refused: Odds,
    hung: Odds,
    crash: Odds,
    takes: RangeInclusive<Duration>,
}

impl Rough {
    /// `name` is what the draws are for: the agent's name, with a number for its life.
    pub fn new(world: &World, name: &str, crash: Odds) -> Self {
        Self {
            random: world.random(&format!("host of {name}")),
            weather: world.weather(),
            refused: Odds::of_10_000(200),
            hung: Odds::of_10_000(100),
            crash,
            takes: Duration::ZERO..=Duration::from_millis(3),
        }
    }

    /// The same, without refusals and hung calls.
    pub fn kind(mut self) -> Self {
        (self.refused, self.hung) = (Odds::NEVER, Odds::NEVER);
        self
    }
}

/// What a kernel on a bad day answers to anything.
const BAD_DAY: [Errno; 3] = [Errno::IO, Errno::NOMEM, Errno::BUSY];

impl HostFates for Rough {
    fn call(&mut self, event: &Event<'_>) -> HostFate {
        let random = &mut self.random;
        let errno = *random.pick(&BAD_DAY).unwrap_or(&Errno::IO);
        if self.weather.is_calm() {
            return HostFate::Done;
        }
        if event.changes && random.happens(self.refused) {
            return HostFate::Refused(errno);
        }
        if random.happens(self.hung) {
            return if random.below(2) == 0 { HostFate::Hung } else { HostFate::HungAndDone };
        }
        if random.happens(self.crash) {
            return if random.below(2) == 0 { HostFate::CrashBefore } else { HostFate::CrashAfter };
        }
        HostFate::Done
    }

    fn takes(&mut self) -> Duration {
        self.random.between(&self.takes)
    }
}
