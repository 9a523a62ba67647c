//! Chance as an argument: jitter and names come from here, so that a seed replays a run.
//!
//! Nothing secret may be made of it: the generator is SplitMix64, small and predictable on purpose.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A source of numbers. Clones draw from the same sequence; [`Entropy::fork`] starts another.
#[derive(Debug, Clone)]
pub struct Entropy {
    state: Arc<Mutex<u64>>,
    source: Source,
}

/// Whether a seed alone decides what is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Seed,
    /// Tokens are mixed with new bits of the kernel.
    System,
}

impl Entropy {
    /// The sequence of a seed.
    pub fn seeded(seed: u64) -> Entropy {
        Entropy { state: Arc::new(Mutex::new(seed)), source: Source::Seed }
    }

    /// A sequence that nobody has seen, for the real world.
    pub fn from_system() -> Entropy {
        Entropy { source: Source::System, ..Entropy::seeded(RandomState::new().build_hasher().finish()) }
    }

    /// A sequence of its own for one component, so that what another one draws does not change it.
    pub fn fork(&self) -> Entropy {
        Entropy { source: self.source, ..Entropy::seeded(self.number()) }
    }

    /// 128 bits as 32 hexadecimal digits, to recognise one process or one write by.
    ///
    /// A copy of a running machine has this sequence in its memory, too, and would draw the same numbers. Outside of
    /// simulations each token therefore holds bits that the kernel gives for this call, and both clocks.
    pub fn token(&self) -> String {
        let (mut high, mut low) = (self.number(), self.number());
        if self.source == Source::System {
            let mut fresh = [0_u8; 16];
            // Without the kernel's bits the clocks still differ between two machines.
            let _ = rustix::rand::getrandom(&mut fresh, rustix::rand::GetRandomFlags::empty());
            let fresh = u128::from_ne_bytes(fresh);
            high ^= (fresh >> 64) as u64;
            low ^= fresh as u64;
            for clock in [rustix::time::ClockId::Realtime, rustix::time::ClockId::Boottime] {
                let read = rustix::time::clock_gettime(clock);
                high = high.rotate_left(17) ^ (read.tv_nsec as u64);
                low = low.rotate_left(29) ^ (read.tv_sec as u64);
            }
        }
        format!("{high:016x}{low:016x}")
    }

    /// Any number.
    pub fn number(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to 1, without 1.
    pub fn fraction(&self) -> f64 {
        // 53 bits are what a double holds exactly.
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// `base` to `base * (1 + factor)`: what client-go calls jitter.
    pub fn longer(&self, base: Duration, factor: f64) -> Duration {
        base.mul_f64(1.0 + factor.max(0.0) * self.fraction())
    }

    /// `base * (1 - factor)` to `base`: spreads retries and never exceeds a limit.
    pub fn shorter(&self, base: Duration, factor: f64) -> Duration {
        base.mul_f64(1.0 - factor.clamp(0.0, 1.0) * self.fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays_and_a_fork_is_independent() {
        let (a, b) = (Entropy::seeded(7), Entropy::seeded(7));
        assert_eq!([a.number(), a.number()], [b.number(), b.number()]);
        let (fork, twin) = (a.fork(), b.fork());
        a.number();
        assert_eq!(fork.number(), twin.number());
    }

    #[test]
    fn tokens_replay_with_a_seed_and_differ_in_copies_of_a_running_machine() {
        assert_eq!(Entropy::seeded(7).fork().token(), Entropy::seeded(7).fork().token());
        let machine = Entropy::from_system();
        let copy = Entropy { state: Arc::new(Mutex::new(*machine.state.lock().unwrap())), source: machine.source };
        assert_eq!(machine.number(), copy.number(), "the memory of both is the same");
        assert_ne!(machine.token(), copy.token());
        assert_eq!(machine.token().len(), 32);
    }

    #[test]
    fn jitter_stays_within_its_bounds() {
        let entropy = Entropy::seeded(1);
        let base = Duration::from_secs(10);
        for _ in 0..1000 {
            let longer = entropy.longer(base, 1.2);
            assert!(longer >= base && longer <= base.mul_f64(2.2), "{longer:?}");
            let shorter = entropy.shorter(base, 0.2);
            assert!(shorter <= base && shorter >= base.mul_f64(0.8), "{shorter:?}");
        }
    }
}
