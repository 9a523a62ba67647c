//! What is known about a mount after calls that failed (NODE-6.3, NODE-8.3).
//!
//! The class of an error comes from the one table in [`crate::outcome`], which is more careful than upstream's: a driver
//! that answers Internal may have done half of it. What failed before a driver was asked is transient and changes nothing
//! (NODE-31.4).

use crate::outcome::{Call, Code, Outcome, outcome, repeated};

/// Whether something is staged, or published for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Held {
    #[default]
    No,
    /// It may be. While it is wanted it is asked for again, and when it is not it is taken away.
    Maybe(Origin),
    Yes,
    /// It is there, and every access to it fails.
    Corrupted,
}

/// Why something may be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Only a request of this run, whose outcome is unknown, speaks for it.
    Asked,
    /// It was there in this boot: a mount or a device of an earlier run is there, or taking it away has begun.
    Seen,
    /// Only metadata on disk speaks for it, as after a reboot. It has to be taken away as what was seen, and says nothing
    /// about whether the volume is attached to this machine.
    Recorded,
}

/// What an error says about the effect of what failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// There is surely no effect.
    Final,
    /// It may have happened, or may still happen.
    Uncertain,
    /// The driver was not asked.
    Transient,
}

/// The class of a driver's answer to a call that is not OK.
pub fn class(call: Call, code: Code, before: Held) -> Class {
    let known = match before {
        Held::No => outcome(call, code),
        Held::Maybe(_) | Held::Yes | Held::Corrupted => repeated(call, code),
    };
    match known {
        Outcome::Refused(_) => Class::Final,
        Outcome::Unknown => Class::Uncertain,
        // Not an error at all, so that nothing is learned from it.
        Outcome::Done => Class::Transient,
    }
}

impl Held {
    /// After a failed attempt to bring it about. What works is never given up for a failed repetition.
    pub fn after_failure(self, class: Class) -> Self {
        match (self, class) {
            (Self::No, Class::Uncertain) => Self::Maybe(Origin::Asked),
            (Self::Maybe(Origin::Asked), Class::Final) => Self::No,
            (held, Class::Final | Class::Uncertain | Class::Transient) => held,
        }
    }

    /// After a failed attempt to take it away, of whatever class.
    pub fn after_failed_removal(self) -> Self {
        match self {
            Self::Corrupted => Self::Corrupted,
            Self::Maybe(Origin::Recorded) => Self::Maybe(Origin::Recorded),
            Self::No | Self::Maybe(Origin::Asked | Origin::Seen) | Self::Yes => Self::Maybe(Origin::Seen),
        }
    }

    /// Whether a mount or a device of this boot shows that the volume is attached to this machine. Anything else has to go
    /// through the whole handshake before the driver is asked for it.
    pub fn shows_attached(self) -> bool {
        match self {
            Self::Yes | Self::Corrupted | Self::Maybe(Origin::Seen) => true,
            Self::No | Self::Maybe(Origin::Asked | Origin::Recorded) => false,
        }
    }

    /// Whether there is surely nothing.
    pub fn is_none(self) -> bool {
        self == Self::No
    }
}
