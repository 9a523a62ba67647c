//! Protect: what is still in use does not go away (PROTECT-8).
//!
//! A deleted claim, volume or attributes class stays until its protecting finalizer is removed, and that happens only on
//! evidence that nobody uses it. The three kinds share one shape: keep, let go, or put the finalizer back.
//!
//! # Invariants
//! 1. A claim is let go only after a live list of pods, taken after its deletion was seen (CTRL-I20).
//! 2. A volume is let go only by a write at the revision at which its phase was not Bound (CTRL-I21).

use std::fmt;

use api::keys::finalizer;
use api::{AttributesClass, Claim, Meta, Pod, PodSource, Volume, VolumePhase};

use crate::decision::{Decision, Reason, Standing};

/// What to do about a protecting finalizer. Each is one write at the revision that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// List the pods of the namespace live, then decide again. No write.
    ListPods,
    /// Look for users live, then decide again. No write.
    ListUsers,
    AddFinalizer,
    RemoveFinalizer,
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// It lives, and the finalizer is on it.
    Guarded,
    /// It lives without the finalizer.
    Unguarded,
    /// It is going, and was let go.
    Released,
    UsedByPod {
        pod: Box<str>,
    },
    /// The cache knows no user. That is no proof.
    CacheMayLag,
    Bound,
    UsedByClaim {
        claim: Box<str>,
    },
    UsedByVolume {
        volume: Box<str>,
    },
    Unused,
}

pub type Verdict = Decision<Action, Because>;

/// The pods that may use a claim.
#[derive(Debug, Clone, Copy)]
pub enum Pods<'a> {
    /// As the cache has them.
    Cached(&'a [&'a Pod]),
    /// As the server listed them, after the deletion was seen.
    Live(&'a [&'a Pod]),
}

/// Where an object stands with its finalizer.
enum Standpoint {
    /// Deleted, and held by the finalizer.
    Candidate,
    NeedsFinalizer,
    Settled(Because),
}

fn standpoint(meta: &Meta, held: api::keys::Finalizer) -> Standpoint {
    match (meta.is_deleting(), meta.has_finalizer(held)) {
        (true, true) => Standpoint::Candidate,
        (true, false) => Standpoint::Settled(Because::Released),
        (false, false) => Standpoint::NeedsFinalizer,
        (false, true) => Standpoint::Settled(Because::Guarded),
    }
}

/// PROTECT-PC1 to PROTECT-PC4: a claim.
pub fn claim(claim: &Claim, pods: Pods<'_>) -> Verdict {
    match standpoint(&claim.meta, finalizer::PVC_PROTECTION) {
        Standpoint::Settled(because) => Decision::rest(because),
        Standpoint::NeedsFinalizer => Decision::act(Because::Unguarded, Action::AddFinalizer),
        Standpoint::Candidate => {
            let (Pods::Cached(list) | Pods::Live(list)) = pods;
            match list.iter().find(|pod| uses(pod, claim)) {
                Some(pod) => Decision::rest(Because::UsedByPod { pod: pod.name().into() }),
                None if matches!(pods, Pods::Live(_)) => Decision::act(Because::Unused, Action::RemoveFinalizer),
                None => Decision::act(Because::CacheMayLag, Action::ListPods),
            }
        }
    }
}

/// Whether a pod keeps a claim from going: it was scheduled and names the claim, in whatever phase it is; or the claim was
/// made for it and its node has not finished with it.
pub fn uses(pod: &Pod, claim: &Claim) -> bool {
    if !pod.scheduled() || pod.namespace() != claim.namespace() {
        return false;
    }
    pod.volumes.iter().any(|volume| match &volume.source {
        PodSource::Claim { name, .. } => &**name == claim.name(),
        PodSource::Ephemeral { .. } => {
            let owned = claim.meta.controller().is_some_and(|owner| owner.uid == pod.meta.uid);
            owned && !pod.shut_down() && *pod.ephemeral_claim(volume) == *claim.name()
        }
        PodSource::InlineCsi { .. } | PodSource::InTree { .. } => false,
    })
}

/// A volume: PROTECT-8.2.
pub fn volume(volume: &Volume) -> Verdict {
    match standpoint(&volume.meta, finalizer::PV_PROTECTION) {
        Standpoint::Settled(because) => Decision::rest(because),
        Standpoint::NeedsFinalizer => Decision::act(Because::Unguarded, Action::AddFinalizer),
        Standpoint::Candidate if volume.phase == VolumePhase::Bound => Decision::rest(Because::Bound),
        Standpoint::Candidate => Decision::act(Because::Unused, Action::RemoveFinalizer),
    }
}

/// Who uses an attributes class: the first of each kind that was found.
#[derive(Debug, Clone, Copy)]
pub enum Users<'a> {
    Cached {
        claim: Option<&'a Claim>,
        volume: Option<&'a Volume>,
    },
    /// Upstream trusts its cache here; a claim made at the same moment slips through (CTRL-14.55).
    Live {
        claim: Option<&'a Claim>,
        volume: Option<&'a Volume>,
    },
}

/// An attributes class: PROTECT-8.3.
pub fn attributes_class(class: &AttributesClass, users: Users<'_>) -> Verdict {
    match standpoint(&class.meta, finalizer::VAC_PROTECTION) {
        Standpoint::Settled(because) => Decision::rest(because),
        Standpoint::NeedsFinalizer => Decision::act(Because::Unguarded, Action::AddFinalizer),
        Standpoint::Candidate => match users {
            Users::Cached { claim: Some(claim), .. } | Users::Live { claim: Some(claim), .. } => {
                Decision::rest(Because::UsedByClaim { claim: claim.key().to_string().into() })
            }
            Users::Cached { volume: Some(volume), .. } | Users::Live { volume: Some(volume), .. } => {
                Decision::rest(Because::UsedByVolume { volume: volume.name().into() })
            }
            Users::Cached { claim: None, volume: None } => Decision::act(Because::CacheMayLag, Action::ListUsers),
            Users::Live { claim: None, volume: None } => Decision::act(Because::Unused, Action::RemoveFinalizer),
        },
    }
}

/// The attributes classes that a claim refers to: asked for, in force, and on the way.
pub fn classes_of(claim: &Claim) -> impl Iterator<Item = &str> {
    let named = [&claim.attributes_class, &claim.status.attributes_class, &claim.status.attributes_target];
    named.into_iter().filter_map(|name| name.as_deref()).filter(|name| !name.is_empty())
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guarded => write!(f, "the object is protected"),
            Self::Unguarded => write!(f, "the object lacks its protecting finalizer"),
            Self::Released => write!(f, "the object is being deleted and nothing here holds it"),
            Self::UsedByPod { pod } => write!(f, "pod {pod:?} still uses the claim"),
            Self::CacheMayLag => write!(f, "the cache knows no user, and may lag"),
            Self::Bound => write!(f, "a claim still has the volume"),
            Self::UsedByClaim { claim } => write!(f, "claim {claim} still refers to the class"),
            Self::UsedByVolume { volume } => write!(f, "volume {volume:?} still refers to the class"),
            Self::Unused => write!(f, "nobody uses the object"),
        }
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::Guarded => "guarded",
            Self::Unguarded => "unguarded",
            Self::Released => "released",
            Self::UsedByPod { .. } => "used_by_pod",
            Self::CacheMayLag => "cache_may_lag",
            Self::Bound => "bound",
            Self::UsedByClaim { .. } => "used_by_claim",
            Self::UsedByVolume { .. } => "used_by_volume",
            Self::Unused => "unused",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Guarded | Self::Released => Standing::Settled,
            Self::Unguarded | Self::CacheMayLag | Self::Unused => Standing::Moving,
            Self::UsedByPod { .. } | Self::Bound | Self::UsedByClaim { .. } | Self::UsedByVolume { .. } => {
                Standing::Waiting
            }
        }
    }
}

#[cfg(test)]
mod tests;
