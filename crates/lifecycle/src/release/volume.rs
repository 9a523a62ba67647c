//! One volume: BIND-4.4, rules BIND-V0 to BIND-V9b, and BIND-4.10.

use std::fmt;

use api::keys::{finalizer, provisioner};
use api::{Claim, Key, ReclaimPolicy, Source, Volume, VolumePhase};

use crate::bind::claim::Target;
use crate::decision::{Decision, Lookup, Notice, Reason, Standing};
use crate::migration::{self, Mark};

/// Everything the binder looks at for one volume.
#[derive(Debug)]
pub struct Seen<'a> {
    pub volume: &'a Volume,
    pub claim: ClaimSeen<'a>,
    /// Plugins of this process that can delete or recycle, by name.
    pub plugins: &'a [Plugin<'a>],
}

/// A plugin of the binder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plugin<'a> {
    pub name: &'a str,
    pub deletes: bool,
    pub recycles: bool,
}

/// The claim that a volume's `claimRef` names.
#[derive(Debug, Clone, Copy)]
pub enum ClaimSeen<'a> {
    /// The volume names none, or one without a uid.
    Unnamed,
    /// Found by name, in the cache: it may be older or younger than the one that is meant.
    Cached(&'a Claim),
    /// What the server said just now.
    Live(Lookup<'a, Claim>),
    NotCached,
}

/// What to do for a volume. Each is one write, except where it says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask the server for the claim, then decide again. No write.
    ReadClaim {
        key: Key,
    },
    /// BIND-V0: correct the `migrated-to` annotation and the finalizers of deletion, in one write.
    Maintain {
        mark: Mark,
        add: Option<api::keys::Finalizer>,
        remove: Vec<api::keys::Finalizer>,
    },
    SetPhase {
        volume: Target,
        phase: VolumePhase,
        message: String,
    },
    /// BIND-V6: the claim's turn. No write.
    WakeClaim {
        key: Key,
    },
    /// BIND-V9a: nobody has it any more.
    Erase {
        volume: Target,
    },
    /// BIND-V9b: the user's reservation stays, the bond goes.
    ClearUid {
        volume: Target,
    },
    /// A plugin of this process deletes it. No write by itself.
    Delete {
        volume: Target,
    },
    /// A plugin of this process empties it. No write by itself.
    Recycle {
        volume: Target,
    },
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    Maintenance,
    Unclaimed,
    Reserved {
        claim: Key,
    },
    CacheMayLag {
        claim: Key,
    },
    Bound {
        claim: Key,
    },
    /// The claim exists and points nowhere yet.
    ClaimsTurn {
        claim: Key,
    },
    ModeMismatch {
        claim: Key,
    },
    ClaimGone {
        claim: Key,
    },
    /// The claim took another volume.
    ClaimElsewhere {
        claim: Key,
    },
    /// It was chosen for a claim that never got it.
    NeverGiven {
        claim: Key,
    },
    /// Its claim is gone and its policy keeps it.
    Retained {
        claim: Key,
    },
    /// Its claim is gone and somebody else deletes it.
    DeletedElsewhere {
        by: Box<str>,
    },
    /// Nobody can delete it.
    NoDeleter {
        plugin: Box<str>,
    },
    NoRecycler,
    UnknownPolicy,
}

pub type Verdict = Decision<Action, Because>;

/// Says what to do next for one volume.
pub fn decide(seen: &Seen<'_>) -> Verdict {
    let volume = seen.volume;
    if let Some(action) = maintenance(volume) {
        return Decision::act(Because::Maintenance, action);
    }
    let Some(reference) = &volume.claim else {
        return phase(volume, VolumePhase::Available, Because::Unclaimed);
    };
    let key = reference.key.clone();
    let Some(uid) = &reference.uid else {
        return phase(volume, VolumePhase::Available, Because::Reserved { claim: key });
    };
    match seen.claim {
        ClaimSeen::Cached(claim) | ClaimSeen::Live(Lookup::Found(claim)) if claim.uid() == uid => claimed(seen, claim),
        // Another claim of the same name, in a cache that may be behind: only the server knows which one lives.
        ClaimSeen::Cached(_) | ClaimSeen::NotCached | ClaimSeen::Unnamed | ClaimSeen::Live(Lookup::NotCached) => {
            Decision::act(Because::CacheMayLag { claim: key.clone() }, Action::ReadClaim { key })
        }
        ClaimSeen::Live(Lookup::Found(_) | Lookup::Absent) => abandoned(seen, key),
    }
}

/// BIND-V5 to BIND-V9b: the claim that is meant exists.
fn claimed(seen: &Seen<'_>, claim: &Claim) -> Verdict {
    let volume = seen.volume;
    let key = claim.key().clone();
    if claim.volume_name.is_empty() {
        return match volume.mode == claim.mode {
            true => Decision::act(Because::ClaimsTurn { claim: key.clone() }, Action::WakeClaim { key }),
            false => Decision::rest(Because::ModeMismatch { claim: key }),
        };
    }
    if &*claim.volume_name == volume.name() {
        return phase(volume, VolumePhase::Bound, Because::Bound { claim: key });
    }
    if volume.provisioned_by().is_some() && volume.reclaim == ReclaimPolicy::Delete {
        return released(seen, Because::ClaimElsewhere { claim: key });
    }
    unbind(volume, Because::ClaimElsewhere { claim: key })
}

/// BIND-V4: the claim that is meant is gone.
fn abandoned(seen: &Seen<'_>, key: Key) -> Verdict {
    let volume = seen.volume;
    // A volume whose phase never became Bound was never given: BIND-W2 comes before the claim learns of it. Reclaiming
    // it would destroy data that its maker put there and nobody ever had.
    let never_given = matches!(volume.phase, VolumePhase::Pending | VolumePhase::Available);
    if never_given && volume.bound_by_controller() && volume.provisioned_by().is_none() {
        return unbind(volume, Because::NeverGiven { claim: key });
    }
    released(seen, Because::ClaimGone { claim: key })
}

/// BIND-V4 and BIND-V8: the phase first, then what the policy says.
fn released(seen: &Seen<'_>, because: Because) -> Verdict {
    let volume = seen.volume;
    match volume.phase {
        VolumePhase::Released | VolumePhase::Failed => reclaim(seen, because),
        VolumePhase::Pending | VolumePhase::Available | VolumePhase::Bound => {
            phase(volume, VolumePhase::Released, because)
        }
    }
}

/// BIND-V9a and BIND-V9b: the volume is given back.
fn unbind(volume: &Volume, because: Because) -> Verdict {
    let target = Target::of(&volume.meta);
    let action = match volume.bound_by_controller() {
        true => Action::Erase { volume: target },
        false => Action::ClearUid { volume: target },
    };
    Decision::act(because, action)
}

/// Who deletes a volume (BIND-4.10).
enum Deleter<'a> {
    Plugin,
    Elsewhere(&'a str),
    Nobody(Box<str>),
}

fn deleter<'a>(seen: &Seen<'a>) -> Deleter<'a> {
    let known = |name: &str| seen.plugins.iter().any(|plugin| plugin.name == name && plugin.deletes);
    if let Some(name) = seen.volume.provisioned_by() {
        return match (known(name), name.starts_with(provisioner::IN_TREE_PREFIX)) {
            (true, _) => Deleter::Plugin,
            (false, true) => Deleter::Nobody(name.into()),
            (false, false) => Deleter::Elsewhere(name),
        };
    }
    match &seen.volume.source {
        Source::Csi { driver, .. } => Deleter::Elsewhere(driver),
        Source::HostPath { .. } if known(provisioner::HOST_PATH) => Deleter::Plugin,
        Source::HostPath { .. } => Deleter::Nobody(provisioner::HOST_PATH.into()),
        Source::Local { .. } => Deleter::Nobody("local".into()),
        Source::Nfs { .. } => Deleter::Nobody("nfs".into()),
        Source::Other { field, .. } => Deleter::Nobody(field.clone()),
        Source::Missing => Deleter::Nobody("none".into()),
    }
}

fn reclaim(seen: &Seen<'_>, because: Because) -> Verdict {
    let volume = seen.volume;
    if let Some(driver) = volume.migrated_to() {
        return Decision::rest(Because::DeletedElsewhere { by: driver.into() });
    }
    let target = Target::of(&volume.meta);
    match volume.reclaim {
        ReclaimPolicy::Retain => {
            let claim = volume.claim.as_ref().map_or_else(|| Key::cluster(""), |reference| reference.key.clone());
            Decision::rest(Because::Retained { claim })
        }
        ReclaimPolicy::Delete => match deleter(seen) {
            Deleter::Plugin => Decision::act(because, Action::Delete { volume: target }),
            Deleter::Elsewhere(by) => Decision::rest(Because::DeletedElsewhere { by: by.into() }),
            Deleter::Nobody(plugin) => failed(volume, Because::NoDeleter { plugin }),
        },
        ReclaimPolicy::Recycle => match recycles(seen) {
            true => Decision::act(because, Action::Recycle { volume: target }),
            false => failed(volume, Because::NoRecycler),
        },
        ReclaimPolicy::Unknown => failed(volume, Because::UnknownPolicy),
    }
}

fn recycles(seen: &Seen<'_>) -> bool {
    let name = match &seen.volume.source {
        Source::HostPath { .. } => provisioner::HOST_PATH,
        Source::Nfs { .. } => provisioner::NFS,
        Source::Csi { .. } | Source::Local { .. } | Source::Other { .. } | Source::Missing => return false,
    };
    seen.plugins.iter().any(|plugin| plugin.name == name && plugin.recycles)
}

fn failed(volume: &Volume, because: Because) -> Verdict {
    phase(volume, VolumePhase::Failed, because)
}

fn phase(volume: &Volume, phase: VolumePhase, because: Because) -> Verdict {
    if volume.phase == phase {
        return Decision::rest(because);
    }
    let message = match phase {
        VolumePhase::Failed => because.to_string(),
        VolumePhase::Pending | VolumePhase::Available | VolumePhase::Bound | VolumePhase::Released => String::new(),
    };
    Decision::act(because, Action::SetPhase { volume: Target::of(&volume.meta), phase, message })
}

/// BIND-V0: what BIND-4.11 says about annotation and finalizers, when anything has to change.
fn maintenance(volume: &Volume) -> Option<Action> {
    let maker = volume.provisioned_by();
    let mark = migration::mark(maker, volume.migrated_to());
    let (mut add, mut remove) = (None, Vec::new());
    let mut drop_finalizer = |held: api::keys::Finalizer| {
        if volume.meta.has_finalizer(held) {
            remove.push(held);
        }
    };
    match maker {
        Some(name) if migration::driver_of(name).is_some() => drop_finalizer(finalizer::PV_CONTROLLER),
        Some(name) if name.starts_with(provisioner::IN_TREE_PREFIX) => {
            drop_finalizer(finalizer::EXTERNAL_PROVISIONER);
            let keeps = volume.reclaim == ReclaimPolicy::Delete;
            match (keeps, volume.meta.has_finalizer(finalizer::PV_CONTROLLER)) {
                // A finalizer cannot be put on an object that is going.
                (true, false) if !volume.meta.is_deleting() => add = Some(finalizer::PV_CONTROLLER),
                (false, true) => remove.push(finalizer::PV_CONTROLLER),
                (true, _) | (false, false) => {}
            }
        }
        Some(_) | None => {}
    }
    let nothing = mark == Mark::Right && add.is_none() && remove.is_empty();
    (!nothing).then_some(Action::Maintain { mark, add, remove })
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Maintenance => write!(f, "annotation and finalizers follow the volume's provisioner and policy"),
            Self::Unclaimed => write!(f, "nobody has the volume"),
            Self::Reserved { claim } => write!(f, "the volume is reserved for claim {claim}"),
            Self::CacheMayLag { claim } => write!(f, "claim {claim} is not in the cache, which may lag"),
            Self::Bound { claim } => write!(f, "claim {claim} has the volume"),
            Self::ClaimsTurn { claim } => write!(f, "claim {claim} does not point at the volume yet"),
            Self::ModeMismatch { claim } => write!(
                f,
                "Cannot bind PersistentVolume to requested PersistentVolumeClaim \"{}\" due to incompatible volumeMode.",
                claim.name()
            ),
            Self::ClaimGone { claim } => write!(f, "claim {claim} is gone"),
            Self::ClaimElsewhere { claim } => write!(f, "claim {claim} has another volume"),
            Self::NeverGiven { claim } => write!(f, "claim {claim} is gone and never had the volume"),
            Self::Retained { claim } => {
                write!(f, "claim {claim} is gone and the volume is kept: its reclaim policy is Retain")
            }
            Self::DeletedElsewhere { by } => write!(f, "the volume is released and {by:?} deletes it"),
            Self::NoDeleter { plugin } => {
                write!(f, "the volume should be deleted and nothing here deletes {plugin:?} volumes")
            }
            Self::NoRecycler => write!(f, "No recycler plugin found for the volume!"),
            Self::UnknownPolicy => write!(f, "Volume has an unrecognized PersistentVolumeReclaimPolicy"),
        }
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::Maintenance => "maintenance",
            Self::Unclaimed => "unclaimed",
            Self::Reserved { .. } => "reserved",
            Self::CacheMayLag { .. } => "cache_may_lag",
            Self::Bound { .. } => "bound",
            Self::ClaimsTurn { .. } => "claims_turn",
            Self::ModeMismatch { .. } => "mode_mismatch",
            Self::ClaimGone { .. } => "claim_gone",
            Self::ClaimElsewhere { .. } => "claim_elsewhere",
            Self::NeverGiven { .. } => "never_given",
            Self::Retained { .. } => "retained",
            Self::DeletedElsewhere { .. } => "deleted_elsewhere",
            Self::NoDeleter { .. } => "no_deleter",
            Self::NoRecycler => "no_recycler",
            Self::UnknownPolicy => "unknown_policy",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Unclaimed | Self::Reserved { .. } | Self::Bound { .. } | Self::Retained { .. } => Standing::Settled,
            Self::Maintenance
            | Self::CacheMayLag { .. }
            | Self::ClaimGone { .. }
            | Self::ClaimElsewhere { .. }
            | Self::NeverGiven { .. } => Standing::Moving,
            Self::ClaimsTurn { .. } | Self::DeletedElsewhere { .. } => Standing::Waiting,
            Self::ModeMismatch { .. } | Self::NoDeleter { .. } | Self::NoRecycler | Self::UnknownPolicy => {
                Standing::Stuck
            }
        }
    }

    fn notice(&self) -> Option<Notice> {
        let text = self.to_string();
        match self {
            Self::ModeMismatch { .. } => Some(Notice::warning("VolumeMismatch", text)),
            Self::NoDeleter { .. } => Some(Notice::warning("VolumeFailedDelete", text)),
            Self::NoRecycler => Some(Notice::warning("VolumeFailedRecycle", text)),
            Self::UnknownPolicy => Some(Notice::warning("VolumeUnknownReclaimPolicy", text)),
            Self::Maintenance
            | Self::Unclaimed
            | Self::Reserved { .. }
            | Self::CacheMayLag { .. }
            | Self::Bound { .. }
            | Self::ClaimsTurn { .. }
            | Self::ClaimGone { .. }
            | Self::ClaimElsewhere { .. }
            | Self::NeverGiven { .. }
            | Self::Retained { .. }
            | Self::DeletedElsewhere { .. } => None,
        }
    }
}
