//! Fates from a seed.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::storm::Storm;
use super::{Action, Ask, Fate, Fates, Flow, Refusal, Verdict};
use crate::random::{Odds, Random};
use crate::world::Weather;
use crate::{Seed, World};

/// How bad the days of a component are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// Each way of each request.
    pub latency: RangeInclusive<Duration>,
    /// How long a client waits for what is lost.
    pub patience: Duration,
    /// 429, of any request.
    pub too_many: Odds,
    /// 503, of any request.
    pub unavailable: Odds,
    /// 409 without anybody having been faster, of updates.
    pub conflict: Odds,
    /// Of any request.
    pub request_lost: Odds,
    /// Of any request but watches.
    pub answer_lost: Odds,
    /// 410, of requests that go on from an earlier state.
    pub gone: Odds,
    /// Of lists that take any state.
    pub stale: Odds,
    /// How far back those go, at most.
    pub stale_revisions: u64,
    /// Of events: it comes late, and so does everything behind it on this watch.
    pub held: Odds,
    pub hold: RangeInclusive<Duration>,
    /// The component dies before or after any request but watches, each half of the time.
    pub crash: Odds,
    /// Of events: the stream ends.
    pub ended: Odds,
    /// Of events: the connection breaks.
    pub broken: Odds,
    /// Of any request: a storm begins, in which all requests of one sort get the same bad answer.
    pub storm: Odds,
}

impl Faults {
    /// Everything works, as fast as a network allows.
    pub fn none() -> Self {
        Self {
            latency: Duration::from_millis(1)..=Duration::from_millis(20),
            patience: Duration::from_secs(30),
            too_many: Odds::NEVER,
            unavailable: Odds::NEVER,
            conflict: Odds::NEVER,
            request_lost: Odds::NEVER,
            answer_lost: Odds::NEVER,
            gone: Odds::NEVER,
            stale: Odds::NEVER,
            stale_revisions: 0,
            held: Odds::NEVER,
            hold: Duration::ZERO..=Duration::ZERO,
            crash: Odds::NEVER,
            ended: Odds::NEVER,
            broken: Odds::NEVER,
            storm: Odds::NEVER,
        }
    }

    /// Every kind of fault but crashes, each often enough to meet the others.
    pub fn rough() -> Self {
        Self {
            latency: Duration::from_millis(1)..=Duration::from_millis(120),
            patience: Duration::from_secs(10),
            too_many: Odds::of_10_000(100),
            unavailable: Odds::of_10_000(200),
            conflict: Odds::of_10_000(300),
            request_lost: Odds::of_10_000(100),
            answer_lost: Odds::of_10_000(200),
            gone: Odds::of_10_000(300),
            stale: Odds::of_10_000(3_000),
            stale_revisions: 10,
            held: Odds::of_10_000(300),
            hold: Duration::from_secs(1)..=Duration::from_secs(60),
            crash: Odds::NEVER,
            ended: Odds::of_10_000(50),
            broken: Odds::of_10_000(50),
            storm: Odds::of_10_000(20),
        }
    }
}

/// Fates that depend on the seed, the component's name and the order of its own requests, and on nothing else.
#[derive(Debug)]
pub struct Seeded {
    faults: Faults,
    requests: Random,
    events: Random,
    storms: Random,
    storm: Option<Storm>,
    weather: Weather,
}

impl Seeded {
    /// `name` is what the draws are for: usually the component's name, with a number if it was restarted.
    pub fn new(world: &World, name: &str, faults: Faults) -> Self {
        Self::with(world.seed(), name, faults, world.weather())
    }

    pub(super) fn with(seed: Seed, name: &str, faults: Faults, weather: Weather) -> Self {
        let requests = Random::new(seed, &format!("requests of {name}"));
        let events = Random::new(seed, &format!("events of {name}"));
        let storms = Random::new(seed, &format!("storms of {name}"));
        Self { faults, requests, events, storms, storm: None, weather }
    }

    /// The answer of the storm that goes on, if one does and it hits the request.
    fn storm(&mut self, ask: &Ask<'_>) -> Option<Fate> {
        if self.storm.is_none_or(|storm| storm.is_over()) {
            self.storm = self.storms.happens(self.faults.storm).then(|| Storm::draw(&mut self.storms));
        }
        self.storm?.answer(ask).map(Fate::Refused)
    }

    fn fate(&mut self, ask: &Ask<'_>) -> Fate {
        if let Some(fate) = self.storm(ask) {
            return fate;
        }
        let (faults, random) = (&self.faults, &mut self.requests);
        let seconds = 1 + random.below(5);
        if random.happens(faults.too_many) {
            return Fate::Refused(Refusal::TooManyRequests { seconds });
        }
        if random.happens(faults.unavailable) {
            return Fate::Refused(Refusal::Unavailable { seconds });
        }
        if random.happens(faults.request_lost) {
            return Fate::RequestLost;
        }
        if ask.goes_on() && random.happens(faults.gone) {
            return Fate::Refused(Refusal::Gone);
        }
        if ask.takes_any_state() && random.happens(faults.stale) {
            return Fate::Stale { revisions: 1 + random.below(faults.stale_revisions) };
        }
        if ask.action == Action::Update && random.happens(faults.conflict) {
            return Fate::Refused(Refusal::Conflict);
        }
        if ask.action != Action::Watch && random.happens(faults.answer_lost) {
            return Fate::AnswerLost;
        }
        if ask.action != Action::Watch && random.happens(faults.crash) {
            return if random.below(2) == 0 { Fate::CrashBefore } else { Fate::CrashAfter };
        }
        Fate::Answered
    }
}

impl Fates for Seeded {
    fn request(&mut self, ask: &Ask<'_>) -> Verdict {
        let there = self.requests.between(&self.faults.latency);
        let back = self.requests.between(&self.faults.latency);
        let fate = if self.weather.is_calm() { Fate::Answered } else { self.fate(ask) };
        Verdict { fate, there, back, patience: self.faults.patience }
    }

    fn event(&mut self, _watch: u64) -> Flow {
        let (faults, random) = (&self.faults, &mut self.events);
        match () {
            () if self.weather.is_calm() => Flow::Passes,
            () if random.happens(faults.held) => Flow::Held(random.between(&faults.hold)),
            () if random.happens(faults.ended) => Flow::Ended,
            () if random.happens(faults.broken) => Flow::Broken,
            () => Flow::Passes,
        }
    }
}
