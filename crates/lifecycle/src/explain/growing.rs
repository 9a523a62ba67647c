//! A bound claim that asks for more than its volume has.
//!
//! Nothing of ours makes volumes larger yet; how far another resizer has come shows in the claim's status and in events.

use api::{Amount, Claim, Kind};

use super::text::said;
use super::{Finding, Subject, Trail};

/// Events in which a resizer or a node says why a volume did not grow.
const FAILURES: [&str; 2] = ["VolumeResizeFailed", "FileSystemResizeFailed"];

/// How far a volume has grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// Nobody has said anything.
    Unbegun,
    /// The driver's controller is at it.
    Controller,
    /// It is large enough, and its filesystem is not.
    Node,
    /// The driver said that it never will.
    Infeasible,
}

impl Growth {
    /// Reads the claim's `allocatedResourceStatuses`.
    fn of(claim: &Claim) -> Self {
        match claim.status.resize.as_deref() {
            Some("ControllerResizeInProgress") => Self::Controller,
            Some("NodeResizePending" | "NodeResizeInProgress") => Self::Node,
            Some(status) if status.ends_with("Infeasible") => Self::Infeasible,
            Some(_) | None => Self::Unbegun,
        }
    }
}

/// Adds that the claim is to grow, if it is.
pub(super) fn look(trail: &mut Trail<'_>, claim: &Claim) {
    let (Some(asked), Some(has)) = (&claim.request, &claim.status.capacity) else { return };
    if asked <= has {
        return;
    }
    let picture = trail.picture;
    let goal = claim.status.allocated.as_ref().map(Amount::text).map(|goal| format!("it is on its way to {goal}"));
    let mut evidence: Vec<String> = goal.into_iter().collect();
    let failure = picture.last_event(Kind::CLAIM, &claim.meta, &FAILURES);
    evidence.extend(failure.map(|event| said(picture, event)));
    let finding = Finding::Growing { asked: asked.clone(), has: has.clone(), growth: Growth::of(claim) };
    trail.find(Subject::claim(claim.key()), &finding, evidence);
}
