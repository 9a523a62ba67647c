//! What the server takes from outside itself: the time of day and randomness. Tests and simulations own both.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::store::UnixMillis;

/// The time of day.
pub trait Clock: Debug + Send + Sync {
    fn now(&self) -> UnixMillis;
}

/// Random bytes, for uids, generated names and audit ids.
pub trait Entropy: Debug + Send + Sync {
    fn fill(&self, bytes: &mut [u8]);
}

/// A version 4 UUID.
pub fn uuid(entropy: &dyn Entropy) -> String {
    let mut bytes = [0_u8; 16];
    entropy.fill(&mut bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push(char::from(b"0123456789abcdef"[usize::from(byte >> 4)]));
        text.push(char::from(b"0123456789abcdef"[usize::from(byte & 0x0f)]));
    }
    text
}

/// A number below `limit`, for spreading timeouts and inventing names.
pub fn below(entropy: &dyn Entropy, limit: u64) -> u64 {
    let mut bytes = [0_u8; 8];
    entropy.fill(&mut bytes);
    u64::from_be_bytes(bytes) % limit.max(1)
}

/// A clock that stands still until it is told otherwise.
#[derive(Debug, Default)]
pub struct ManualClock(Mutex<UnixMillis>);

impl ManualClock {
    pub fn at(now: UnixMillis) -> Self {
        Self(Mutex::new(now))
    }

    pub fn set(&self, now: UnixMillis) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixMillis {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A clock that goes with the runtime's time: where that is paused, a day passes as fast as the day's work is done.
#[derive(Debug)]
pub struct RuntimeClock {
    at: UnixMillis,
    since: Instant,
}

impl RuntimeClock {
    /// It is `now` at this moment, and later as the runtime says.
    pub fn starting_at(now: UnixMillis) -> Self {
        Self { at: now, since: Instant::now() }
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> UnixMillis {
        let passed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        UnixMillis(self.at.0.saturating_add(passed))
    }
}

/// Bytes that depend on nothing but a seed: for simulations, where uids must repeat. Never for keys or tokens.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<u64>);

impl SeededEntropy {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in bytes.chunks_mut(8) {
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = *state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let word = (mixed ^ (mixed >> 31)).to_be_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// The operating system's randomness.
#[derive(Debug)]
pub struct SystemEntropy(ring::rand::SystemRandom);

impl Default for SystemEntropy {
    fn default() -> Self {
        Self(ring::rand::SystemRandom::new())
    }
}

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        ring::rand::SecureRandom::fill(&self.0, bytes)
            .expect("the kernel's random source does not fail once the system has started");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_of_version_four() {
        let uuid = uuid(&SeededEntropy::new(7));
        assert_eq!(uuid.len(), 36);
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&uuid.as_bytes()[19]));
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_of_a_paused_runtime_goes_with_its_sleepers() {
        let clock = RuntimeClock::starting_at(UnixMillis(5));
        tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
        assert_eq!(clock.now(), UnixMillis(3_600_005));
    }

    #[test]
    fn one_seed_gives_one_sequence() {
        let (left, right) = (SeededEntropy::new(1), SeededEntropy::new(1));
        assert_eq!(uuid(&left), uuid(&right));
        assert_eq!(below(&left, 100), below(&right, 100));
        assert_ne!(uuid(&left), uuid(&left));
    }
}
