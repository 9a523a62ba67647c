//! What is left to do until a pod may go to the node that was chosen for it (SCHED-5.6, rules SCHED-K1 to SCHED-K12).
//!
//! # Invariants
//! 1. One write per decision, each against the revision it was judged by. Volumes that exist are written first.
//! 2. A wish that was seen in the objects and is gone was taken away by somebody: the plan is given up, not written again.
//! 3. Nothing that was written is undone here. What is left of a plan that was given up is taken into account by the next.

use std::fmt;
use std::time::Duration;

use api::{Claim, Key, Node, Pod, Revision, Uid, Volume, VolumePhase, Word};

use super::book::{Assignment, Means, Stage, Step};
use super::{Cluster, Moment};
use crate::bind::claim::Target;
use crate::bind::compatible;
use crate::decision::{Decision, Notice, Reason, Standing};

/// What to do for a pod that is meant for a node. Each is one write, except where it says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The volume names the claim, exactly as BIND-W1 would have it.
    Bond { volume: Target, claim: Key, uid: Uid },
    /// The claim is meant for the node: whoever makes volumes of its class makes one there.
    Pin { claim: Key, uid: Uid, revision: Revision, node: Word },
    /// The pod goes to the node.
    Assign { node: Word },
    /// The plan is off: forget it and look for a node again. No write.
    GiveUp,
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    Bonding {
        claim: Box<str>,
        volume: Word,
    },
    Pinning {
        claim: Box<str>,
        node: Word,
    },
    /// The binder has to join claim and volume.
    AwaitingBinder {
        claim: Box<str>,
        volume: Word,
    },
    /// The provisioner has to make the volume, and the binder to join it.
    AwaitingProvisioner {
        claim: Box<str>,
        node: Word,
    },
    /// SCHED-K9: the claim is ahead of what we know of its volume.
    AwaitingVolume {
        claim: Box<str>,
        volume: Box<str>,
    },
    /// SCHED-K12.
    Ready {
        node: Word,
    },
    /// The pod has its node.
    Assigned {
        namespace: Box<str>,
        pod: Box<str>,
        node: Word,
    },
    /// SCHED-K1.
    NodeGone {
        node: Word,
    },
    ClaimGone {
        claim: Box<str>,
    },
    VolumeGone {
        volume: Word,
    },
    /// SCHED-K3 and SCHED-K10.
    Elsewhere {
        volume: Box<str>,
        node: Word,
    },
    /// SCHED-K4.
    BondReset {
        volume: Word,
    },
    Taken {
        volume: Word,
    },
    /// SCHED-K7 and SCHED-K8: whoever makes volumes could not make this one there.
    NotMade {
        claim: Box<str>,
    },
    TimedOut {
        claim: Box<str>,
    },
}

pub type Verdict = Decision<Action, Because>;

/// How long a claim may take to be bound, and how long this one takes already.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    pub now: Moment,
    pub limit: Duration,
}

/// What one claim says about the plan.
enum Part {
    Ready,
    Waits(Because),
    Acts(Because, Action),
    Fails(Because),
}

/// Says what is next for an assignment. It takes note of wishes that it sees in the objects.
pub fn pursue(plan: &mut Assignment, pod: &Pod, cluster: &dyn Cluster, patience: Patience) -> Verdict {
    let node = plan.node.clone();
    if plan.stage == Stage::Assigned {
        let (namespace, pod) = (pod.namespace().into(), pod.name().into());
        return Decision::rest(Because::Assigned { namespace, pod, node });
    }
    let Some(place) = cluster.node(&node) else { return give_up(Because::NodeGone { node }) };
    let mut waits: Option<(Box<str>, Because)> = None;
    for step in &mut plan.steps {
        let name = step.claim.name().into();
        match part(step, &place, cluster) {
            Part::Ready => {}
            Part::Fails(because) => return give_up(because),
            Part::Acts(because, action) => return Decision::act(because, action),
            Part::Waits(because) => waits = waits.or(Some((name, because))),
        }
    }
    match waits {
        None => Decision::act(Because::Ready { node: node.clone() }, Action::Assign { node }),
        Some((claim, _)) if patience.now >= plan.since + patience.limit => give_up(Because::TimedOut { claim }),
        Some((_, because)) => Decision::rest(because),
    }
}

fn give_up(because: Because) -> Verdict {
    Decision::act(because, Action::GiveUp)
}

fn part(step: &mut Step, place: &Node, cluster: &dyn Cluster) -> Part {
    let name = || Box::<str>::from(step.claim.name());
    let claim = cluster.claim(&step.claim).filter(|claim| claim.meta.uid == step.uid && !claim.meta.is_deleting());
    let Some(claim) = claim else { return Part::Fails(Because::ClaimGone { claim: name() }) };
    if claim.fully_bound() {
        let volume = claim.volume_name.clone();
        return match cluster.volume(&volume) {
            None => Part::Waits(Because::AwaitingVolume { claim: name(), volume }),
            Some(held) if reaches(&held, place) => Part::Ready,
            Some(_) => Part::Fails(Because::Elsewhere { volume, node: Word::new(place.name()) }),
        };
    }
    match step.means.clone() {
        Means::Bound => Part::Fails(Because::ClaimGone { claim: name() }),
        Means::Designated { volume } | Means::Volume { volume } => bond(step, &claim, volume, place, cluster),
        Means::Make => make(step, &claim, place),
    }
}

/// SCHED-K2 to SCHED-K5. The cache holds what we wrote, so that nothing here can be older than our own write
/// (SCHED-K2).
fn bond(step: &mut Step, claim: &Claim, name: Word, place: &Node, cluster: &dyn Cluster) -> Part {
    let Some(volume) = cluster.volume(&name) else { return Part::Fails(Because::VolumeGone { volume: name }) };
    if !reaches(&volume, place) {
        return Part::Fails(Because::Elsewhere { volume: (&*name).into(), node: Word::new(place.name()) });
    }
    let ours = matches!(step.means, Means::Volume { .. });
    match &volume.claim {
        Some(reference) if reference.designates(claim) && (reference.uid.is_some() || !ours) => {
            step.asked = true;
            Part::Waits(Because::AwaitingBinder { claim: claim.name().into(), volume: name })
        }
        Some(reference) if !reference.designates(claim) => Part::Fails(Because::Taken { volume: name }),
        None if ours && !step.asked => match available(claim, &volume) {
            true => {
                let (key, uid) = (claim.key().clone(), claim.uid().clone());
                let action = Action::Bond { volume: Target::of(&volume.meta), claim: key, uid };
                Part::Acts(Because::Bonding { claim: claim.name().into(), volume: name }, action)
            }
            false => Part::Fails(Because::Taken { volume: name }),
        },
        Some(_) | None => Part::Fails(Because::BondReset { volume: name }),
    }
}

fn available(claim: &Claim, volume: &Volume) -> bool {
    volume.phase == VolumePhase::Available && compatible::picked(claim, volume).is_ok()
}

/// SCHED-K6 to SCHED-K8 and SCHED-K11.
fn make(step: &mut Step, claim: &Claim, place: &Node) -> Part {
    let (name, node) = (claim.name().into(), Word::new(place.name()));
    match claim.selected_node() {
        Some(chosen) if *chosen == *place.name() => {
            step.asked = true;
            Part::Waits(Because::AwaitingProvisioner { claim: name, node })
        }
        None if !step.asked => {
            let (key, uid, revision) = (claim.key().clone(), claim.uid().clone(), claim.meta.revision);
            let action = Action::Pin { claim: key, uid, revision, node: node.clone() };
            Part::Acts(Because::Pinning { claim: name, node }, action)
        }
        Some(_) | None => Part::Fails(Because::NotMade { claim: name }),
    }
}

fn reaches(volume: &Volume, place: &Node) -> bool {
    volume.reachable_from(place.name(), &place.meta.labels)
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FAILED: &str = "binding volumes: ";
        match self {
            Self::Bonding { claim, volume } => write!(f, "volume {volume:?} is reserved for claim {claim:?}"),
            Self::Pinning { claim, node } => write!(f, "a volume for claim {claim:?} is wanted for node {node:?}"),
            Self::AwaitingBinder { claim, volume } => {
                write!(f, "waiting for claim {claim:?} to be bound to volume {volume:?}")
            }
            Self::AwaitingProvisioner { claim, node } => {
                write!(f, "waiting for a volume for claim {claim:?} to be made for node {node:?}")
            }
            Self::AwaitingVolume { claim, volume } => {
                write!(f, "claim {claim:?} is bound to volume {volume:?}, which is not known here yet")
            }
            Self::Ready { node } => write!(f, "all volumes are bound and can be reached from node {node:?}"),
            Self::Assigned { namespace, pod, node } => write!(f, "Successfully assigned {namespace}/{pod} to {node}"),
            Self::NodeGone { node } => write!(f, "{FAILED}node \"{node}\" not found"),
            Self::ClaimGone { claim } => write!(f, "{FAILED}persistentvolumeclaim \"{claim}\" is gone or not bound"),
            Self::VolumeGone { volume } => write!(f, "{FAILED}persistentvolume \"{volume}\" not found"),
            Self::Elsewhere { volume, node } => {
                write!(f, "{FAILED}pv \"{volume}\" node affinity doesn't match node \"{node}\"")
            }
            Self::BondReset { volume } => write!(f, "{FAILED}ClaimRef got reset for pv \"{volume}\""),
            Self::Taken { volume } => write!(f, "{FAILED}pv \"{volume}\" went to another claim"),
            Self::NotMade { claim } => write!(f, "{FAILED}provisioning failed for PVC \"{claim}\""),
            Self::TimedOut { claim } => {
                write!(f, "{FAILED}timed out waiting for persistentvolumeclaim \"{claim}\" to be bound")
            }
        }
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::Bonding { .. } => "bonding",
            Self::Pinning { .. } => "pinning",
            Self::AwaitingBinder { .. } => "awaiting_binder",
            Self::AwaitingProvisioner { .. } => "awaiting_provisioner",
            Self::AwaitingVolume { .. } => "awaiting_volume",
            Self::Ready { .. } => "ready",
            Self::Assigned { .. } => "assigned",
            Self::NodeGone { .. } => "node_gone",
            Self::ClaimGone { .. } => "claim_gone",
            Self::VolumeGone { .. } => "volume_gone",
            Self::Elsewhere { .. } => "elsewhere",
            Self::BondReset { .. } => "bond_reset",
            Self::Taken { .. } => "taken",
            Self::NotMade { .. } => "not_made",
            Self::TimedOut { .. } => "timed_out",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Assigned { .. } => Standing::Settled,
            Self::AwaitingBinder { .. } | Self::AwaitingProvisioner { .. } | Self::AwaitingVolume { .. } => {
                Standing::Waiting
            }
            Self::Bonding { .. }
            | Self::Pinning { .. }
            | Self::Ready { .. }
            | Self::NodeGone { .. }
            | Self::ClaimGone { .. }
            | Self::VolumeGone { .. }
            | Self::Elsewhere { .. }
            | Self::BondReset { .. }
            | Self::Taken { .. }
            | Self::NotMade { .. }
            | Self::TimedOut { .. } => Standing::Moving,
        }
    }

    fn notice(&self) -> Option<Notice> {
        match self {
            Self::Assigned { .. } => Some(Notice::normal("Scheduled", self.to_string())),
            Self::NodeGone { .. }
            | Self::ClaimGone { .. }
            | Self::VolumeGone { .. }
            | Self::Elsewhere { .. }
            | Self::BondReset { .. }
            | Self::Taken { .. }
            | Self::NotMade { .. }
            | Self::TimedOut { .. } => Some(Notice::warning("FailedScheduling", self.to_string())),
            Self::Bonding { .. }
            | Self::Pinning { .. }
            | Self::AwaitingBinder { .. }
            | Self::AwaitingProvisioner { .. }
            | Self::AwaitingVolume { .. }
            | Self::Ready { .. } => None,
        }
    }
}
