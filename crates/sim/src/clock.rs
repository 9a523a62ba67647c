//! Wall clocks that are wrong: each process has the clock of its machine, which is skewed and steps by hours, both ways.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use apiserver::sources::Clock as ServerClock;
use apiserver::store::UnixMillis;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use runtime::Clock;
use tokio::time::{Instant, sleep};

use crate::journal::Journal;
use crate::random::Random;
use crate::world::Weather;
use crate::{Odds, World};

/// How often worlds have wrong clocks.
const WRONG: Odds = Odds::of_10_000(5_000);
const SECOND: Duration = Duration::from_secs(1);
/// A clock is off by up to this without any step.
const SKEW: u64 = 600;
/// A step is at most so long.
const STEP: u64 = 6 * 3600;

/// How far a clock is off, in milliseconds. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Offset(Arc<AtomicI64>);

impl Offset {
    pub(crate) fn set(&self, millis: i64) {
        self.0.store(millis, Ordering::Relaxed);
    }

    pub(crate) fn millis(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The wall clock of one machine: the world's time, and how far it is off.
#[derive(Debug, Clone)]
pub(crate) struct MachineClock {
    right: Arc<dyn ServerClock>,
    offset: Offset,
    booted: Instant,
}

impl MachineClock {
    pub(crate) fn new(world: &World, offset: Offset) -> Self {
        Self { right: world.clock().clone(), offset, booted: Instant::now() }
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        let millis = i64::try_from(self.right.now().0).unwrap_or(i64::MAX);
        let right = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
        right.saturating_add(SignedDuration::from_millis(self.offset.millis())).unwrap_or(Timestamp::MAX)
    }

    /// Steps of the wall clock do not move it; a suspended process lets it go on.
    fn boot(&self) -> Duration {
        self.booted.elapsed()
    }
}

/// The clocks of a world, by the name of the machine or process.
#[derive(Debug)]
pub(crate) struct Clocks {
    offsets: BTreeMap<String, Offset>,
    journal: Journal,
    weather: Weather,
}

impl Clocks {
    /// Right clocks for these.
    pub(crate) fn new(world: &World, names: impl IntoIterator<Item = String>) -> Self {
        let offsets = names.into_iter().map(|name| (name, Offset::default())).collect();
        Self { offsets, journal: world.journal().clone(), weather: world.weather() }
    }

    pub(crate) fn of(&self, world: &World, name: &str) -> Arc<dyn Clock> {
        let offset = self.offsets.get(name).cloned().unwrap_or_default();
        Arc::new(MachineClock::new(world, offset))
    }

    /// Makes clocks wrong until the world is calm. They stay wrong, and are not set any more.
    pub(crate) async fn live(&self, mut random: Random) {
        if random.happens(WRONG) {
            for (name, offset) in &self.offsets {
                self.set(name, offset, draw(&mut random, SKEW));
            }
            while !self.weather.is_calm() {
                sleep(random.between(&(5 * SECOND..=60 * SECOND))).await;
                let names: Vec<&String> = self.offsets.keys().collect();
                let Some(name) = random.pick(&names).filter(|_| !self.weather.is_calm()) else { continue };
                self.set(name, &self.offsets[*name], draw(&mut random, STEP));
            }
        }
        std::future::pending().await
    }

    fn set(&self, name: &str, offset: &Offset, seconds: i64) {
        self.journal.note(name, format_args!("wall clock is off by {seconds} s"));
        offset.set(seconds.saturating_mul(1_000));
    }
}

/// So many seconds at most, before or after.
fn draw(random: &mut Random, most: u64) -> i64 {
    let drawn = i64::try_from(random.below(2 * most + 1)).unwrap_or(0);
    drawn - i64::try_from(most).unwrap_or(0)
}

/// The API server's own clock: the runtime's time, and how far it is off.
#[derive(Debug)]
pub(crate) struct SteppedClock<C> {
    pub(crate) right: C,
    pub(crate) offset: Offset,
}

impl<C: ServerClock> ServerClock for SteppedClock<C> {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.right.now().0.saturating_add_signed(self.offset.millis()))
    }
}
