//! What is known after a call to a driver: the one table from RPC and gRPC code to done, refused or unknown.
//!
//! Upstream has five copies of this table that disagree (SIDECAR-1.8). Where they differ from this one, the
//! difference is on the safe side: a code that a driver may return for work it half did is `Unknown`, so that the call
//! is repeated and nothing is forgotten (SIDECAR-P7, SIDECAR-P8).

use std::fmt;

/// A call that changes something, or asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    CreateVolume,
    DeleteVolume,
    ControllerPublish,
    ControllerUnpublish,
    ControllerExpand,
    ControllerModify,
    CreateSnapshot,
    DeleteSnapshot,
    CreateGroupSnapshot,
    DeleteGroupSnapshot,
    NodeStage,
    NodeUnstage,
    NodePublish,
    NodeUnpublish,
    NodeExpand,
    /// Reads only: repeating it is always right.
    Ask,
}

/// A gRPC status code. A number of our own, so that this crate needs no transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    Ok,
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
    /// The failure had no status: the connection broke, or the answer was garbage.
    None,
}

impl Code {
    /// The codes in the order of their numbers on the wire.
    pub const NUMBERED: [Code; 17] = [
        Code::Ok,
        Code::Cancelled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];

    /// A number nobody assigned is treated as what gRPC says it is: unknown.
    pub fn from_number(number: i32) -> Self {
        usize::try_from(number).ok().and_then(|index| Self::NUMBERED.get(index).copied()).unwrap_or(Code::Unknown)
    }

    /// The name that Go programs print, which dashboards know.
    pub fn name(self) -> &'static str {
        match self {
            Code::Ok => "OK",
            Code::Cancelled => "Canceled",
            Code::Unknown => "Unknown",
            Code::InvalidArgument => "InvalidArgument",
            Code::DeadlineExceeded => "DeadlineExceeded",
            Code::NotFound => "NotFound",
            Code::AlreadyExists => "AlreadyExists",
            Code::PermissionDenied => "PermissionDenied",
            Code::ResourceExhausted => "ResourceExhausted",
            Code::FailedPrecondition => "FailedPrecondition",
            Code::Aborted => "Aborted",
            Code::OutOfRange => "OutOfRange",
            Code::Unimplemented => "Unimplemented",
            Code::Internal => "Internal",
            Code::Unavailable => "Unavailable",
            Code::DataLoss => "DataLoss",
            Code::Unauthenticated => "Unauthenticated",
            Code::None => "unknown-non-grpc",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is known after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The driver surely did nothing and does nothing: what to wait for before asking again.
    Refused(Retry),
    /// It may have happened, or may still happen: repeat the same call, change nothing, forget nothing.
    Unknown,
}

/// What would make a refused call worth repeating.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Some time: nothing about the request is known to be wrong.
    Later,
    /// Another place: this one has no room.
    Elsewhere,
    /// A changed request: this one will never be accepted.
    Changed,
}

/// The table (SIDECAR-1.8).
pub fn outcome(call: Call, code: Code) -> Outcome {
    match code {
        Code::Ok => Outcome::Done,
        Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted | Code::None => Outcome::Unknown,
        // Upstream takes these as final. A driver that fails halfway has no better code, and a volume that is only
        // half made is forgotten for ever if its claim goes away next (SIDECAR-P8).
        Code::Unknown | Code::Internal | Code::DataLoss => Outcome::Unknown,
        Code::ResourceExhausted => match call {
            Call::CreateVolume => Outcome::Refused(Retry::Elsewhere),
            _ => Outcome::Unknown,
        },
        Code::InvalidArgument => Outcome::Refused(Retry::Changed),
        Code::NotFound | Code::OutOfRange | Code::AlreadyExists | Code::Unimplemented => match call {
            Call::ControllerExpand | Call::NodeExpand => Outcome::Refused(Retry::Changed),
            _ => Outcome::Refused(Retry::Later),
        },
        Code::FailedPrecondition | Code::PermissionDenied | Code::Unauthenticated => Outcome::Refused(Retry::Later),
    }
}

/// The same for a driver whose volumes are reached from everywhere: no other place has more room, so that the same request is
/// repeated later.
pub fn without_places(known: Outcome) -> Outcome {
    match known {
        Outcome::Refused(Retry::Elsewhere) => Outcome::Refused(Retry::Later),
        Outcome::Done | Outcome::Refused(Retry::Later | Retry::Changed) | Outcome::Unknown => known,
    }
}

/// The same for the repeat of a call whose earlier outcome is unknown: does the refusal prove that the earlier one left
/// nothing?
///
/// A driver has to answer a repeat with OK if what was asked for exists, so a judgement of the request itself is proof.
/// But drivers look at credentials, preconditions and sources before they look for what exists; refusing those proves
/// nothing (SIDECAR-P7).
pub fn repeated(call: Call, code: Code) -> Outcome {
    match code {
        Code::PermissionDenied | Code::Unauthenticated | Code::FailedPrecondition | Code::NotFound => Outcome::Unknown,
        _ => outcome(call, code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: [Call; 16] = [
        Call::CreateVolume,
        Call::DeleteVolume,
        Call::ControllerPublish,
        Call::ControllerUnpublish,
        Call::ControllerExpand,
        Call::ControllerModify,
        Call::CreateSnapshot,
        Call::DeleteSnapshot,
        Call::CreateGroupSnapshot,
        Call::DeleteGroupSnapshot,
        Call::NodeStage,
        Call::NodeUnstage,
        Call::NodePublish,
        Call::NodeUnpublish,
        Call::NodeExpand,
        Call::Ask,
    ];

    #[test]
    fn what_may_still_be_running_is_unknown_for_every_call() {
        for call in CALLS {
            for code in [Code::Cancelled, Code::DeadlineExceeded, Code::Unavailable, Code::Aborted, Code::None] {
                assert_eq!(outcome(call, code), Outcome::Unknown, "{call:?} {code}");
            }
        }
    }

    #[test]
    fn no_room_ends_create_volume_and_no_other_call() {
        for call in CALLS {
            let expected = match call {
                Call::CreateVolume => Outcome::Refused(Retry::Elsewhere),
                _ => Outcome::Unknown,
            };
            assert_eq!(outcome(call, Code::ResourceExhausted), expected, "{call:?}");
        }
    }

    #[test]
    fn no_room_is_no_reason_for_another_place_where_places_do_not_count() {
        let later = Outcome::Refused(Retry::Later);
        assert_eq!(without_places(outcome(Call::CreateVolume, Code::ResourceExhausted)), later);
        for code in Code::NUMBERED.into_iter().filter(|code| *code != Code::ResourceExhausted) {
            let known = outcome(Call::CreateVolume, code);
            assert_eq!(without_places(known), known, "{code}");
        }
    }

    /// Rule: SIDECAR-P8
    #[test]
    fn a_driver_that_broke_halfway_is_not_taken_at_its_word() {
        for code in [Code::Unknown, Code::Internal, Code::DataLoss] {
            assert_eq!(outcome(Call::CreateVolume, code), Outcome::Unknown, "SIDECAR-P8: {code}");
        }
    }

    #[test]
    fn only_ok_is_done() {
        for call in CALLS {
            for code in Code::NUMBERED.into_iter().chain([Code::None]) {
                assert_eq!(outcome(call, code) == Outcome::Done, code == Code::Ok, "{call:?} {code}");
            }
        }
    }

    #[test]
    fn codes_read_back_from_their_numbers_and_strange_numbers_are_unknown() {
        for (number, code) in Code::NUMBERED.into_iter().enumerate() {
            assert_eq!(Code::from_number(i32::try_from(number).unwrap()), code);
        }
        assert_eq!(Code::from_number(99), Code::Unknown);
        assert_eq!(Code::from_number(-1), Code::Unknown);
    }

    /// Rule: SIDECAR-P7
    #[test]
    fn a_refusal_of_the_way_there_proves_nothing_about_an_earlier_attempt() {
        for code in [Code::PermissionDenied, Code::Unauthenticated, Code::FailedPrecondition, Code::NotFound] {
            assert!(matches!(outcome(Call::CreateVolume, code), Outcome::Refused(_)), "{code}");
            assert_eq!(repeated(Call::CreateVolume, code), Outcome::Unknown, "{code}");
        }
        for code in [Code::InvalidArgument, Code::ResourceExhausted, Code::OutOfRange, Code::Ok, Code::Aborted] {
            assert_eq!(repeated(Call::CreateVolume, code), outcome(Call::CreateVolume, code), "{code}");
        }
    }
}
