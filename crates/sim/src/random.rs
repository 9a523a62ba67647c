//! Randomness that depends on a seed and on what it is for.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// What a run is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub u64);

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How often something happens, in ten-thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Odds(u16);

impl Odds {
    pub const NEVER: Self = Self(0);

    /// So many times out of ten thousand.
    pub const fn of_10_000(times: u16) -> Self {
        Self(times)
    }
}

/// One stream of numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Streams for different purposes have nothing to do with each other.
    pub fn new(seed: Seed, purpose: &str) -> Self {
        let state = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        let mut random = Self(state ^ seed.0);
        // The first outputs of neighbouring states look alike before they are mixed once.
        random.0 = random.number();
        random
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; zero if there is none.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit.max(1)
    }

    pub fn happens(&mut self, odds: Odds) -> bool {
        self.below(10_000) < u64::from(odds.0)
    }

    /// A time in the range, in whole milliseconds: the runtime's timers know nothing finer.
    pub fn between(&mut self, range: &RangeInclusive<Duration>) -> Duration {
        let millis = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (from, to) = (millis(range.start()), millis(range.end()));
        Duration::from_millis(from.saturating_add(self.below(to.saturating_sub(from).saturating_add(1))))
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(usize::try_from(self.below(from.len() as u64)).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_and_purpose_give_one_stream() {
        let draw = |seed, purpose| {
            let mut random = Random::new(Seed(seed), purpose);
            [random.number(), random.number(), random.number()]
        };
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
        assert_ne!(draw(1, "a"), draw(1, "b"));
    }

    #[test]
    fn odds_are_kept_roughly_and_never_means_never() {
        let mut random = Random::new(Seed(3), "odds");
        let hits = (0..10_000).filter(|_| random.happens(Odds::of_10_000(1_000))).count();
        assert!((800..1_200).contains(&hits), "{hits} of 10000 with odds of one in ten");
        assert!((0..10_000).all(|_| !random.happens(Odds::NEVER)));
        assert!((0..10_000).all(|_| random.happens(Odds::of_10_000(10_000))));
    }

    #[test]
    fn times_stay_in_their_range_and_reach_both_ends() {
        let mut random = Random::new(Seed(4), "times");
        let range = Duration::from_millis(2)..=Duration::from_millis(4);
        let drawn: std::collections::BTreeSet<_> = (0..100).map(|_| random.between(&range).as_millis()).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(random.between(&(Duration::ZERO..=Duration::ZERO)), Duration::ZERO);
        assert_eq!(random.pick::<u8>(&[]), None);
    }
}
