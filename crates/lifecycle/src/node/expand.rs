//! Whether a node may grow a filesystem now, and what a failure means for the claim (NODE-18).

use api::{Amount, Claim};

use crate::outcome::{Call, Code, Outcome, Retry, outcome};

/// What to do about a claim whose volume has become larger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Growth {
    /// The controller's turn, or nobody's.
    NotAllowed,
    /// The claim says that it is done.
    Done { size: Amount },
    Grow {
        target: Amount,
        /// Whether the claim is first told that the node has begun.
        mark: bool,
        /// Whether the claim keeps track of the steps, so that a failure is written into it.
        tracked: bool,
    },
}

pub const PENDING: &str = "NodeResizePending";
pub const IN_PROGRESS: &str = "NodeResizeInProgress";
pub const INFEASIBLE: &str = "NodeResizeInfeasible";

/// The prechecks of NODE-18.1, and NODE-18.2 for claims that do not keep track.
pub fn growth(claim: &Claim, volume: &Amount, everywhere: Everywhere) -> Growth {
    let status = &claim.status;
    let capacity = status.capacity.clone().unwrap_or_else(Amount::zero);
    let (None, None) = (&status.allocated, &status.resize) else {
        return tracked(claim, &capacity, everywhere);
    };
    match capacity >= *volume {
        true => Growth::Done { size: volume.clone() },
        false => Growth::Grow { target: volume.clone(), mark: false, tracked: false },
    }
}

/// Whether every node that has the volume has to grow it for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Everywhere {
    /// Other nodes may have it, too.
    Yes,
    No,
}

fn tracked(claim: &Claim, capacity: &Amount, everywhere: Everywhere) -> Growth {
    let Some(target) = claim.status.allocated.clone() else { return Growth::NotAllowed };
    let resize = claim.status.resize.as_deref().unwrap_or_default();
    match resize {
        "" if *capacity >= target => match everywhere {
            Everywhere::Yes => Growth::Grow { target, mark: false, tracked: true },
            Everywhere::No => Growth::Done { size: target },
        },
        PENDING | IN_PROGRESS => Growth::Grow { target, mark: resize != IN_PROGRESS, tracked: true },
        _ => Growth::NotAllowed,
    }
}

/// What a refused NodeExpandVolume means. The class is kept: what may still happen is never a verdict about the size
/// (NODE-31.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Asked again later, and nothing is written.
    Again,
    /// The claim says that it failed, and it is tried again.
    Failed,
    /// This size will never do: the claim says so, and the user may ask for less.
    Infeasible,
    /// Not while it is in use here; it does not keep the pod from its volume.
    NotWhileInUse,
}

pub fn verdict(code: Code) -> Verdict {
    match (code, outcome(Call::NodeExpand, code)) {
        (Code::FailedPrecondition, _) => Verdict::NotWhileInUse,
        (Code::InvalidArgument | Code::NotFound | Code::OutOfRange, _) => Verdict::Infeasible,
        (_, Outcome::Refused(Retry::Changed)) => Verdict::Infeasible,
        (_, Outcome::Refused(Retry::Later | Retry::Elsewhere)) => Verdict::Failed,
        (_, Outcome::Unknown | Outcome::Done) => Verdict::Again,
    }
}
