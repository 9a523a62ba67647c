//! Attempts to join that were refused, by address: a client that is refused often has to wait.
//!
//! Guarantee: from one address at most [`ALLOWED`] refusals a minute, and then 429 until the minute is over, also for a good
//! token. A machine that shows a certificate of ours and no token is not counted and never waits. The memory is bounded: of
//! more than [`REMEMBERED`] addresses the one that began first is forgotten.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use crate::seats::network_of;
use crate::store::UnixMillis;

/// Refusals from one address before the rest of the minute is closed to it.
const ALLOWED: u32 = 10;
const MINUTE_MILLIS: u64 = 60_000;
const REMEMBERED: usize = 1024;

/// The refused attempts of the last minute.
#[derive(Debug, Default)]
pub(crate) struct JoinAttempts(Mutex<BTreeMap<IpAddr, RefusedAttempts>>);

#[derive(Debug, Clone, Copy)]
struct RefusedAttempts {
    since: UnixMillis,
    count: u32,
}

impl RefusedAttempts {
    /// How long its minute still lasts. A clock that was put back ends it.
    fn left_millis(self, now: UnixMillis) -> u64 {
        match now.0.checked_sub(self.since.0) {
            Some(passed) => MINUTE_MILLIS.saturating_sub(passed),
            None => 0,
        }
    }
}

impl JoinAttempts {
    /// The seconds that an address has to wait, if it does.
    pub(super) fn wait_seconds(&self, address: IpAddr, now: UnixMillis) -> Option<u32> {
        let attempts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = attempts.get(&network_of(address)).filter(|refused| refused.count >= ALLOWED)?;
        u32::try_from(refused.left_millis(now).div_ceil(1000)).ok().filter(|seconds| *seconds > 0)
    }

    pub(super) fn note_refusal(&self, address: IpAddr, now: UnixMillis) {
        let mut attempts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let address = network_of(address);
        if !attempts.contains_key(&address) && attempts.len() >= REMEMBERED {
            attempts.retain(|_, refused| refused.left_millis(now) > 0);
            let first = attempts.iter().min_by_key(|(_, refused)| refused.since.0).map(|(address, _)| *address);
            if let Some(first) = first.filter(|_| attempts.len() >= REMEMBERED) {
                attempts.remove(&first);
            }
        }
        let refused = attempts.entry(address).or_insert(RefusedAttempts { since: now, count: 0 });
        if refused.left_millis(now) == 0 {
            *refused = RefusedAttempts { since: now, count: 0 };
        }
        refused.count = refused.count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_refused_often_waits_until_its_minute_is_over() {
        let attempts = JoinAttempts::default();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        for _ in 0..ALLOWED {
            assert_eq!(attempts.wait_seconds(one, UnixMillis(5_000)), None);
            attempts.note_refusal(one, UnixMillis(5_000));
        }
        assert_eq!(attempts.wait_seconds(one, UnixMillis(5_500)), Some(60));
        assert_eq!(attempts.wait_seconds(one, UnixMillis(64_999)), Some(1));
        assert_eq!(attempts.wait_seconds(one, UnixMillis(65_000)), None);
        assert_eq!(attempts.wait_seconds(other, UnixMillis(5_500)), None);
        assert_eq!(attempts.wait_seconds(one, UnixMillis(0)), None, "the clock was put back");
        attempts.note_refusal(one, UnixMillis(65_000));
        assert_eq!(attempts.wait_seconds(one, UnixMillis(65_000)), None, "it starts from one again");
    }

    #[test]
    fn the_addresses_of_one_network_count_together_and_few_are_remembered() {
        let attempts = JoinAttempts::default();
        for last in 0..ALLOWED {
            let address = format!("fd00::{last:x}").parse().expect("an address");
            attempts.note_refusal(address, UnixMillis(0));
        }
        assert!(attempts.wait_seconds("fd00::ffff".parse().expect("an address"), UnixMillis(1)).is_some());
        for number in 0..3000_u32 {
            attempts.note_refusal(IpAddr::V4(number.into()), UnixMillis(2));
        }
        assert!(attempts.0.lock().expect("nothing panicked").len() <= REMEMBERED);
    }
}
