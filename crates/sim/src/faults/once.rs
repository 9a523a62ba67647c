//! One fault at one request: for tests that try every fault at every request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Action, Ask, Fate, Fates, Refusal, Verdict};

/// Everything that can become of a request.
pub const EVERY_FATE: [Fate; 7] = [
    Fate::CrashBefore,
    Fate::CrashAfter,
    Fate::RequestLost,
    Fate::AnswerLost,
    Fate::Refused(Refusal::Conflict),
    Fate::Refused(Refusal::Gone),
    Fate::Refused(Refusal::Unavailable { seconds: 2 }),
];

/// One fault, at the `at`-th request that is no watch and no event. Clones count together.
#[derive(Debug, Clone)]
pub struct Once {
    at: u64,
    fate: Fate,
    seen: Arc<AtomicU64>,
}

impl Once {
    /// No fault at all.
    pub fn never() -> Self {
        Self { at: 0, fate: Fate::Answered, seen: Arc::default() }
    }

    /// Calls `play` once without a fault, and then once for every request that was made and each of `fates`.
    pub fn at_every_request(fates: &[Fate], mut play: impl FnMut(Self)) {
        let calm = Self::never();
        play(calm.clone());
        let requests = calm.seen.load(Ordering::Relaxed);
        assert!(requests > 0, "the process asks the server something");
        for at in 1..=requests {
            for fate in fates {
                println!("request {at} of {requests}: {fate:?}");
                play(Self { at, fate: fate.clone(), seen: Arc::default() });
            }
        }
    }
}

impl Fates for Once {
    fn request(&mut self, ask: &Ask<'_>) -> Verdict {
        if ask.action == Action::Watch || ask.path.contains("/events") {
            return Fate::Answered.into();
        }
        match self.seen.fetch_add(1, Ordering::Relaxed) + 1 == self.at {
            true => self.fate.clone().into(),
            false => Fate::Answered.into(),
        }
    }
}
