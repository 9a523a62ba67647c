//! Storms: for some time every request of one sort gets the same bad answer. A component that repeats its requests at once
//! all the while is accused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Action, Ask, Refusal};
use crate::random::Random;

/// How long a storm lasts.
const LASTS: std::ops::RangeInclusive<Duration> = Duration::from_secs(20)..=Duration::from_secs(90);
/// How often one request may be repeated in a minute of refusals. Backoffs begin with a few quick attempts.
const MOST_IN_A_MINUTE: u32 = 60;
/// The same for requests that name no object: many objects share the path that is posted to, most of them events.
const MOST_POSTS_IN_A_MINUTE: u32 = 300;
const MINUTE: Duration = Duration::from_secs(60);

/// A storm that goes on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Storm {
    until: Instant,
    refusal: Refusal,
    hits: StormTarget,
}

/// The requests that a storm hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StormTarget {
    Writes,
    Updates,
    Watches,
}

impl Storm {
    pub(super) fn draw(random: &mut Random) -> Self {
        let (hits, refusal) = match random.below(5) {
            0 => (StormTarget::Writes, Refusal::InternalError),
            1 => (StormTarget::Writes, Refusal::BadGateway),
            2 => (StormTarget::Writes, Refusal::Garbled),
            3 => (StormTarget::Updates, Refusal::Conflict),
            _ => (StormTarget::Watches, Refusal::Gone),
        };
        Self { until: Instant::now() + random.between(&LASTS), refusal, hits }
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// The answer to a request, if the storm hits it.
    pub(super) fn answer(&self, ask: &Ask<'_>) -> Option<Refusal> {
        let is_hit = match self.hits {
            StormTarget::Writes => matches!(ask.action, Action::Create | Action::Update | Action::Delete),
            StormTarget::Updates => ask.action == Action::Update,
            StormTarget::Watches => ask.action == Action::Watch,
        };
        is_hit.then_some(self.refusal)
    }
}

/// How often each component repeats a request that is refused. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefusalRates(Arc<Mutex<BTreeMap<String, RefusalRate>>>);

#[derive(Debug)]
struct RefusalRate {
    since: Instant,
    times: u32,
    most: u32,
}

impl RefusalRates {
    /// Counts a refusal. `request` names the component, the method and the path.
    pub(super) fn count(&self, request: String) {
        let now = Instant::now();
        let mut rates = self.lock();
        let rate = rates.entry(request).or_insert(RefusalRate { since: now, times: 0, most: 0 });
        if now.duration_since(rate.since) >= MINUTE {
            (rate.since, rate.times) = (now, 0);
        }
        rate.times += 1;
        rate.most = rate.most.max(rate.times);
    }

    /// The requests that were repeated too often, as accusations.
    pub(crate) fn too_often(&self) -> Vec<String> {
        let rates = self.lock();
        let limit = |request: &str| match request.contains(" POST ") {
            true => MOST_POSTS_IN_A_MINUTE,
            false => MOST_IN_A_MINUTE,
        };
        let too_often = rates.iter().filter(|(request, rate)| rate.most > limit(request));
        too_often
            .map(|(request, rate)| format!("storm: {request} was refused {} times in a minute", rate.most))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, RefusalRate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
