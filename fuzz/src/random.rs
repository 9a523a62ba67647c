//! Randomness that depends on nothing but a seed.

use std::ops::Range;

/// A sequence of numbers (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of one case of a run.
    pub fn of_case(seed: u64, number: u64) -> Self {
        let mut random = Self(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        random.number();
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
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.number() % limit).unwrap_or_default()
    }

    pub fn within(&mut self, range: Range<usize>) -> usize {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// True in so many of a hundred.
    pub fn percent(&mut self, of_hundred: usize) -> bool {
        self.below(100) < of_hundred
    }

    /// One of several, of which there is at least one.
    pub fn pick<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }

    /// A size: mostly small, now and then huge.
    pub fn size(&mut self, largest: usize) -> usize {
        let bits = self.below(usize::BITS as usize - largest.leading_zeros() as usize + 1);
        self.below(1 << bits.min(40)).min(largest)
    }

    pub fn byte(&mut self) -> u8 {
        self.number().to_le_bytes()[0]
    }
}
