//! A pod whose volumes find no slot on this node (NODE-4.4).
//!
//! The scheduler trusts CSINode. If a driver attaches fewer volumes than its object says, a pod may come here for which there
//! is no room, and nothing else would ever move it away. A driver whose limit is read again from time to time
//! (`nodeAllocatableUpdatePeriodSeconds`) is one of which the next look of the scheduler knows better: its pod is given back,
//! and whoever made it makes another. Without that, another pod would come to the same place, so that this one waits.

use std::time::Duration;

use super::Because;

/// How long a pod waits for its volumes before anything is concluded from that: two minutes and three seconds.
pub const PATIENCE: Duration = Duration::from_secs(123);

/// The gRPC code with which a driver says that no further volume fits: RESOURCE_EXHAUSTED.
pub const FULL: i32 = 8;

/// The reason of the event and of the pod's status.
pub const REASON: &str = "VolumeAttachmentLimitExceeded";

/// Whether the number of volumes that fit is read again from time to time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Followed,
    /// It is what the driver said when it was registered.
    Fixed,
}

/// One volume that a pod waits for.
#[derive(Debug, Clone, Copy)]
pub struct Lack<'a> {
    /// Its name in the pod.
    pub volume: &'a str,
    pub because: &'a Because,
    pub limit: Limit,
    pub waited: Duration,
}

/// What becomes of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Nothing is concluded.
    Stays,
    /// It is looked at again after this time.
    Waits(Duration),
    /// It is given back, with this message.
    Rejected(String),
}

/// Decides about a pod from everything that it waits for.
pub fn fate<'a>(lacks: impl IntoIterator<Item = Lack<'a>>, patience: Duration) -> Fate {
    let mut rest: Option<Duration> = None;
    let mut full: Vec<String> = Vec::new();
    for lack in lacks {
        let (Because::NoSlot { message }, Limit::Followed) = (lack.because, lack.limit) else { continue };
        match patience.checked_sub(lack.waited).filter(|left| !left.is_zero()) {
            Some(left) => rest = Some(rest.map_or(left, |rest| rest.min(left))),
            None => full.push(format!("{}: {message}", lack.volume)),
        }
    }
    match (full.is_empty(), rest) {
        (false, _) => Fate::Rejected(format!("no further volume can be attached to this node ({})", full.join("; "))),
        (true, Some(rest)) => Fate::Waits(rest),
        (true, None) => Fate::Stays,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lack(because: &Because, limit: Limit, waited: u64) -> Lack<'_> {
        Lack { volume: "data", because, limit, waited: Duration::from_secs(waited) }
    }

    fn no_slot() -> Because {
        Because::NoSlot { message: "16 volumes".into() }
    }

    /// Rule: NODE-4.4
    #[test]
    fn a_pod_without_a_slot_is_rejected_when_its_time_is_over() {
        let full = no_slot();
        let early = fate([lack(&full, Limit::Followed, 3)], PATIENCE);
        assert_eq!(early, Fate::Waits(Duration::from_secs(120)));
        let Fate::Rejected(message) = fate([lack(&full, Limit::Followed, 123)], PATIENCE) else { panic!("it stays") };
        assert!(message.contains("data: 16 volumes"), "{message}");
    }

    /// Rule: NODE-4.4
    #[test]
    fn without_a_period_the_pod_keeps_waiting() {
        assert_eq!(fate([lack(&no_slot(), Limit::Fixed, 9999)], PATIENCE), Fate::Stays);
    }

    /// Rule: NODE-4.4
    #[test]
    fn other_failures_reject_nobody() {
        let others = [Because::NotAttached, Because::AttachFailed { message: "no".into() }, Because::Staging];
        for because in &others {
            assert_eq!(fate([lack(because, Limit::Followed, 9999)], PATIENCE), Fate::Stays, "{because:?}");
        }
    }

    /// Rule: NODE-4.4
    #[test]
    fn one_volume_without_a_slot_is_enough_and_the_first_end_counts() {
        let (full, other) = (no_slot(), Because::NotAttached);
        let lacks = |first, second| {
            let both = [lack(&full, Limit::Followed, first), lack(&full, Limit::Followed, second)];
            fate(both.into_iter().chain([lack(&other, Limit::Followed, 0)]), PATIENCE)
        };
        assert_eq!(lacks(100, 110), Fate::Waits(Duration::from_secs(13)));
        assert!(matches!(lacks(0, 130), Fate::Rejected(_)));
    }
}
