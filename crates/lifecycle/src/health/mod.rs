//! Health: what a driver says of a volume's condition, and what becomes of it in the claim.
//!
//! A driver says it in words and in no other form (CSI `VolumeCondition`). The words of our own driver are known, so that
//! `explain` can say what to do; those of other drivers are passed on.

#[cfg(test)]
mod tests;

use std::fmt;

use api::Claim;

use crate::decision::{Decision, Notice, Reason, Standing};

/// The event on a pod or a claim whose volume is not well, with upstream's reason.
pub const ABNORMAL_EVENT: &str = "VolumeConditionAbnormal";
/// The event when it is well again.
pub const NORMAL_EVENT: &str = "VolumeConditionNormal";
/// The reason in the pod's condition VolumesReady, whose status stays True: the volumes are mounted.
pub const ABNORMAL_REASON: &str = "VolumeAbnormal";
/// The message of a volume that has recovered.
pub const WELL_AGAIN: &str = "The volume is well again";

/// The first words of the local driver's conditions and refusals.
pub const WRITES_LOST: &str = "writes were lost:";
pub const POOL_MISSING: &str = "pool missing:";
pub const POOL_FULL: &str = "pool full:";
pub const POOL_NEARLY_FULL: &str = "pool nearly full:";

/// The longest message that is written into an object.
const LONGEST_MESSAGE: usize = 2_000;

/// The kind of trouble that a volume has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TroubleKind {
    /// Writes that the workload was told are done could not be stored.
    WritesLost,
    /// The disk of the volume's pool is not there.
    PoolMissing,
    /// The volume's pool is at its floor, and its thin volumes are frozen.
    PoolFull,
    PoolNearlyFull,
    /// Only the driver knows.
    Other,
}

impl TroubleKind {
    const KNOWN: [(&'static str, TroubleKind); 4] = [
        (WRITES_LOST, Self::WritesLost),
        (POOL_MISSING, Self::PoolMissing),
        (POOL_FULL, Self::PoolFull),
        (POOL_NEARLY_FULL, Self::PoolNearlyFull),
    ];

    /// The kind by a driver's words, and the words after those that tell the kind.
    pub fn of(message: &str) -> (TroubleKind, &str) {
        let known =
            Self::KNOWN.iter().find_map(|(words, kind)| Some((*kind, message.strip_prefix(words)?.trim_start())));
        known.unwrap_or((Self::Other, message))
    }

    /// The same for an error's text, which may have the name of a call and a code before the words.
    pub fn within(message: &str) -> Option<(TroubleKind, &str)> {
        known_words(message).map(Self::of)
    }

    pub fn code(self) -> &'static str {
        match self {
            Self::WritesLost => "writes_lost",
            Self::PoolMissing => "pool_missing",
            Self::PoolFull => "pool_full",
            Self::PoolNearlyFull => "pool_nearly_full",
            Self::Other => "volume_abnormal",
        }
    }

    /// The reason in a claim's condition.
    pub fn reason(self) -> &'static str {
        match self {
            Self::WritesLost => "WritesLost",
            Self::PoolMissing => "PoolMissing",
            Self::PoolFull => "PoolFull",
            Self::PoolNearlyFull => "PoolNearlyFull",
            Self::Other => ABNORMAL_EVENT,
        }
    }

    pub fn standing(self) -> Standing {
        match self {
            // The mark stays until a person clears it.
            Self::WritesLost => Standing::Stuck,
            Self::PoolMissing | Self::PoolFull | Self::PoolNearlyFull | Self::Other => Standing::Waiting,
        }
    }
}

/// The part of a text that begins with words of the local driver that tell a kind of trouble.
pub fn known_words(text: &str) -> Option<&str> {
    let places = TroubleKind::KNOWN.iter().filter_map(|(words, _)| text.find(words));
    places.min().and_then(|at| text.get(at..))
}

/// A driver's answer about the condition of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverWord {
    Normal,
    Abnormal(String),
    /// It did not answer, or does not know the volume: nothing follows from that.
    Unknown,
}

/// The write that makes the claim say what the driver says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthAction {
    /// Sets the claim's condition.
    Mark { reason: &'static str, message: String },
    /// Sets the claim's condition to False.
    Clear,
}

/// Why a claim's condition is as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthReason {
    /// The driver says that all is well, or nothing.
    Well,
    /// The driver could not be asked; what was said before stays.
    NotKnown,
    Abnormal {
        message: String,
    },
    /// The claim says what the driver does not say any more.
    WellAgain,
}

impl fmt::Display for HealthReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Well => f.write_str("the driver says nothing bad of the volume"),
            Self::NotKnown => f.write_str("the driver did not say how the volume is"),
            Self::Abnormal { message } => f.write_str(message),
            Self::WellAgain => f.write_str(WELL_AGAIN),
        }
    }
}

impl Reason for HealthReason {
    fn code(&self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::NotKnown => "not_known",
            Self::Abnormal { .. } => "abnormal",
            Self::WellAgain => "well_again",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Well | Self::WellAgain => Standing::Settled,
            Self::NotKnown => Standing::Moving,
            Self::Abnormal { message } => TroubleKind::of(message).0.standing(),
        }
    }

    fn notice(&self) -> Option<Notice> {
        match self {
            Self::Well | Self::NotKnown => None,
            Self::Abnormal { message } => Some(Notice::warning(ABNORMAL_EVENT, message.clone())),
            Self::WellAgain => Some(Notice::normal(NORMAL_EVENT, WELL_AGAIN)),
        }
    }
}

/// What to write into a claim. Numbers in a message that change all the time, such as free space, are no reason for a write:
/// a condition of the same kind is written again only for lost writes, whose words say which and when.
pub fn decide(claim: &Claim, word: &DriverWord) -> Decision<HealthAction, HealthReason> {
    let held = claim.status.abnormal.as_deref();
    match (word, held) {
        (DriverWord::Unknown, _) => Decision::rest(HealthReason::NotKnown),
        (DriverWord::Normal, None) => Decision::rest(HealthReason::Well),
        (DriverWord::Normal, Some(_)) => Decision::act(HealthReason::WellAgain, HealthAction::Clear),
        (DriverWord::Abnormal(message), held) => {
            let message: String = message.chars().take(LONGEST_MESSAGE).collect();
            let because = HealthReason::Abnormal { message: message.clone() };
            match held {
                Some(held) if is_same(&held.message, &message) => Decision::rest(because),
                Some(_) | None => {
                    let reason = TroubleKind::of(&message).0.reason();
                    Decision::act(because, HealthAction::Mark { reason, message })
                }
            }
        }
    }
}

/// Whether two messages of a driver say the same, but for numbers that change all the time.
pub fn is_same(one: &str, other: &str) -> bool {
    let (kind, other_kind) = (TroubleKind::of(one).0, TroubleKind::of(other).0);
    match kind {
        TroubleKind::PoolMissing | TroubleKind::PoolFull | TroubleKind::PoolNearlyFull => kind == other_kind,
        TroubleKind::WritesLost | TroubleKind::Other => one == other,
    }
}
