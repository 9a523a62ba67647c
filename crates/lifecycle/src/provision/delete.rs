//! When what a volume is made of goes away: PROVISION-2.11.1 to PROVISION-2.11.3, and PROVISION-2.11.6.
//!
//! # Invariants
//! 1. Only a Released volume with policy Delete is deleted, while our finalizer is on it, and after the server said that
//!    it still is one, and that the claim it names is gone or has another volume.
//! 2. Nothing is deleted that another volume stands for, unless that one is to be deleted as well.
//! 3. The object goes after what it stands for, and our finalizer goes last: a crash anywhere repeats, and never forgets.

use std::fmt;

use api::keys::finalizer;
use api::{Claim, ClaimRef, Key, ReclaimPolicy, Source, Volume, VolumePhase};

use super::Names;
use crate::decision::{Decision, Lookup, Reason, Standing};

/// Everything the provisioner looks at for one volume.
#[derive(Debug)]
pub struct Seen<'a> {
    pub volume: VolumeSeen<'a>,
    /// The claim with the name that the volume's reference has.
    pub claim: Lookup<'a, Claim>,
    pub names: Names<'a>,
    pub backing: Backing,
    pub twins: TwinsSeen<'a>,
}

/// Other volumes that are made of the same thing.
#[derive(Debug, Clone, Copy)]
pub enum TwinsSeen<'a> {
    /// One that keeps it ([`keeps`]).
    Kept(&'a Volume),
    /// None that is known, and a cache is not enough for this volume.
    NotRead,
    None,
}

/// Whether a volume speaks against deleting what it is made of: all do but those that are to be deleted themselves.
pub fn keeps(twin: &Volume) -> bool {
    !(twin.reclaim == ReclaimPolicy::Delete && twin.phase == VolumePhase::Released)
}

/// The volume, and how sure we are that it is still like this.
#[derive(Debug, Clone, Copy)]
pub enum VolumeSeen<'a> {
    Cached(&'a Volume),
    /// The server showed it just now.
    Live(&'a Volume),
}

/// What is known of the thing that the volume stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// It may be there.
    Unknown,
    /// We deleted it.
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    AddFinalizer,
    RemoveFinalizer,
    /// Ask the server for the claim, then decide again. No write.
    ReadClaim {
        key: Key,
    },
    /// Ask the server for the volume, then decide again. No write.
    ReadVolume,
    /// Ask the server for volumes that are made of the same thing, then decide again. No write.
    ReadTwins,
    /// Delete what it is made of. No write.
    DeleteBacking,
    /// Delete the object.
    DeleteObject,
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// 1: somebody else made it.
    NotOurs,
    /// 2: a volume that is to be deleted one day holds on until we did it.
    Unguarded,
    /// 2: its policy keeps what it is made of, so there is nothing to hold on for.
    Kept {
        policy: ReclaimPolicy,
    },
    InUse,
    /// 3: somebody took our finalizer off a volume that is going.
    LetGo,
    /// Released, and names no claim with a uid: the binder's turn.
    Unclaimed,
    CacheMayLag {
        claim: Key,
    },
    ClaimLives {
        claim: Key,
    },
    /// Another volume is made of the same thing.
    Shared {
        volume: Box<str>,
    },
    Released {
        claim: Key,
    },
    /// 6
    Emptied,
    Gone,
}

pub type Verdict = Decision<Action, Because>;

/// Says what to do next about a volume.
pub fn decide(seen: &Seen<'_>) -> Verdict {
    let (VolumeSeen::Cached(volume) | VolumeSeen::Live(volume)) = seen.volume;
    if !is_ours(volume, seen.names) {
        return Decision::rest(Because::NotOurs);
    }
    let guarded = volume.meta.has_finalizer(finalizer::EXTERNAL_PROVISIONER);
    if seen.backing == Backing::Gone {
        return emptied(volume, guarded);
    }
    match (volume.reclaim, guarded) {
        (ReclaimPolicy::Delete, _) => deletable(seen, volume, guarded),
        (policy @ (ReclaimPolicy::Retain | ReclaimPolicy::Recycle), true) => {
            Decision::act(Because::Kept { policy }, Action::RemoveFinalizer)
        }
        (policy, _) => Decision::rest(Because::Kept { policy }),
    }
}

/// 1: by who made it; or, for a volume that nobody says to have made, by whose it is (static volumes count).
pub fn is_ours(volume: &Volume, names: Names<'_>) -> bool {
    let own = Some(names.own()).filter(|own| !own.is_empty());
    if volume.migrated_to().is_some() && volume.migrated_to() == own {
        return true;
    }
    match (volume.provisioned_by(), &volume.source) {
        (Some(maker), _) => Some(maker) == own,
        (None, Source::Csi { driver, .. }) => Some(driver.as_str()) == own,
        (None, _) => false,
    }
}

fn deletable(seen: &Seen<'_>, volume: &Volume, guarded: bool) -> Verdict {
    match (volume.phase, guarded, volume.meta.is_deleting()) {
        (_, false, true) => return Decision::rest(Because::LetGo),
        // Upstream adds it to Bound volumes only; a volume that was released before we saw it would be deleted
        // unguarded (SIDECAR-P17).
        (VolumePhase::Bound | VolumePhase::Released, false, false) => {
            return Decision::act(Because::Unguarded, Action::AddFinalizer);
        }
        (VolumePhase::Released, true, _) => {}
        (VolumePhase::Pending | VolumePhase::Available | VolumePhase::Bound | VolumePhase::Failed, _, _) => {
            return Decision::rest(Because::InUse);
        }
    }
    let Some(ClaimRef { key, uid: Some(uid) }) = volume.claim.as_deref() else {
        return Decision::rest(Because::Unclaimed);
    };
    let key = key.clone();
    match seen.claim {
        Lookup::NotCached => Decision::act(Because::CacheMayLag { claim: key.clone() }, Action::ReadClaim { key }),
        Lookup::Found(claim) if claim.uid() == uid && may_use(claim, volume) => {
            Decision::rest(Because::ClaimLives { claim: key })
        }
        Lookup::Found(_) | Lookup::Absent => match seen.volume {
            // Somebody may have freed the volume for another claim, or changed its policy to save the data.
            VolumeSeen::Cached(_) => Decision::act(Because::CacheMayLag { claim: key }, Action::ReadVolume),
            VolumeSeen::Live(_) => match seen.twins {
                TwinsSeen::Kept(twin) => Decision::rest(Because::Shared { volume: twin.name().into() }),
                TwinsSeen::NotRead => Decision::act(Because::CacheMayLag { claim: key }, Action::ReadTwins),
                TwinsSeen::None => Decision::act(Because::Released { claim: key }, Action::DeleteBacking),
            },
        },
    }
}

/// A claim that lives may use the volume unless it has another one.
fn may_use(claim: &Claim, volume: &Volume) -> bool {
    claim.volume_name.is_empty() || &*claim.volume_name == volume.name()
}

/// 6: the object, then the finalizer.
fn emptied(volume: &Volume, guarded: bool) -> Verdict {
    match (volume.meta.is_deleting(), guarded) {
        (false, _) => Decision::act(Because::Emptied, Action::DeleteObject),
        (true, true) => Decision::act(Because::Emptied, Action::RemoveFinalizer),
        (true, false) => Decision::rest(Because::Gone),
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs => write!(f, "another provisioner made the volume"),
            Self::Unguarded => {
                write!(f, "the volume is to be deleted one day and lacks the finalizer that waits for it")
            }
            Self::Kept { policy } => write!(f, "the volume's policy {} keeps what it is made of", policy.name()),
            Self::InUse => write!(f, "the volume is not released"),
            Self::LetGo => write!(f, "the volume is being deleted and our finalizer was taken off it"),
            Self::Unclaimed => write!(f, "the volume is released and names no claim"),
            Self::CacheMayLag { claim } => {
                write!(f, "claim {claim} seems to be done with the volume, but the cache may lag")
            }
            Self::ClaimLives { claim } => write!(f, "the volume is released, but claim {claim} still lives"),
            Self::Shared { volume } => write!(
                f,
                "PersistentVolume {volume:?} stands for the same volume, which is deleted only when that one is released and \
                 has the policy Delete, or is gone; set this one's policy to Retain to keep the data for good"
            ),
            Self::Released { claim } => write!(f, "claim {claim} is done with the volume, which is to be deleted"),
            Self::Emptied => write!(f, "what the volume was made of is deleted"),
            Self::Gone => write!(f, "the volume is deleted"),
        }
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::NotOurs => "not_ours",
            Self::Unguarded => "unguarded",
            Self::Kept { .. } => "kept",
            Self::InUse => "in_use",
            Self::LetGo => "let_go",
            Self::Unclaimed => "unclaimed",
            Self::CacheMayLag { .. } => "cache_may_lag",
            Self::ClaimLives { .. } => "claim_lives",
            Self::Shared { .. } => "shared",
            Self::Released { .. } => "released",
            Self::Emptied => "emptied",
            Self::Gone => "gone",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::NotOurs | Self::Kept { .. } | Self::InUse | Self::LetGo | Self::Gone => Standing::Settled,
            Self::Unguarded | Self::CacheMayLag { .. } | Self::Released { .. } | Self::Emptied => Standing::Moving,
            Self::Unclaimed | Self::ClaimLives { .. } => Standing::Waiting,
            Self::Shared { .. } => Standing::Stuck,
        }
    }
}
