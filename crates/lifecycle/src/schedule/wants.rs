//! What a pod's claims are before any node is looked at (SCHED-5.1).

use std::fmt;
use std::sync::Arc;

use api::{Claim, ClaimPhase, Class, Pod, PodSource, Volume, Word};

use super::Cluster;
use super::book::{Book, Promise};
use crate::bind::compatible::Mismatch;
use crate::bind::shelf::Offer;
use crate::ephemeral;

/// One claim of a pod.
#[derive(Debug, Clone)]
pub(super) struct Want {
    pub(super) claim: Arc<Claim>,
    pub(super) state: State,
}

#[derive(Debug, Clone)]
pub(super) enum State {
    Bound { volume: Option<Arc<Volume>> },
    Delayed { class: Arc<Class>, hold: Hold },
}

/// What ties a claim that is not bound.
#[derive(Debug, Clone)]
pub(super) enum Hold {
    Nothing,
    /// A volume names it, or was promised to it.
    Volume(Arc<Volume>),
    /// It is meant for a node, where its volume is made or will be.
    Node(Word),
}

/// Why no node is even looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unready {
    Missing {
        claim: Box<str>,
    },
    /// The same for a claim that is made for the pod.
    NotYetMade {
        claim: Box<str>,
    },
    Lost {
        claim: Box<str>,
        volume: Box<str>,
    },
    Deleting {
        claim: Box<str>,
    },
    NotOwned {
        claim: Box<str>,
        namespace: Box<str>,
        pod: Box<str>,
    },
    /// A claim that does not wait for a node, and has no volume.
    Immediate,
    /// A volume is reserved for a claim and does not suit it: nothing else is taken or made (CTRL-14.3).
    Unsuitable {
        claim: Box<str>,
        volume: Box<str>,
        mismatch: Mismatch,
    },
}

/// Sorts a pod's claims, or says what is wrong with one of them.
pub(super) fn wants(pod: &Pod, cluster: &dyn Cluster, book: &Book) -> Result<Vec<Want>, Unready> {
    let mut claims: Vec<Arc<Claim>> = Vec::new();
    for volume in &pod.volumes {
        let (name, made_for_it) = match &volume.source {
            PodSource::Claim { name, .. } => (name.clone(), false),
            PodSource::Ephemeral { .. } => (pod.ephemeral_claim(volume), true),
            PodSource::InlineCsi { .. } | PodSource::InTree { .. } => continue,
        };
        let claim = cluster.claim(&pod.meta.key.sibling(&name));
        let claim = usable(pod, claim, name, made_for_it)?;
        // A pod may name a claim twice; it is still one claim.
        if !claims.iter().any(|held| held.key() == claim.key()) {
            claims.push(claim);
        }
    }
    let wants = claims.into_iter().map(|claim| want(claim, cluster, book));
    wants.collect()
}

fn usable(pod: &Pod, claim: Option<Arc<Claim>>, name: Box<str>, made_for_it: bool) -> Result<Arc<Claim>, Unready> {
    let Some(claim) = claim else {
        return Err(match made_for_it {
            true => Unready::NotYetMade { claim: name },
            false => Unready::Missing { claim: name },
        });
    };
    if claim.phase == ClaimPhase::Lost {
        return Err(Unready::Lost { claim: name, volume: claim.volume_name.clone() });
    }
    if claim.meta.is_deleting() {
        return Err(Unready::Deleting { claim: name });
    }
    if made_for_it && !ephemeral::owned(&claim, pod) {
        let (namespace, pod) = (pod.namespace().into(), pod.name().into());
        return Err(Unready::NotOwned { claim: name, namespace, pod });
    }
    Ok(claim)
}

fn want(claim: Arc<Claim>, cluster: &dyn Cluster, book: &Book) -> Result<Want, Unready> {
    if claim.fully_bound() {
        let volume = cluster.volume(&claim.volume_name);
        return Ok(Want { claim, state: State::Bound { volume } });
    }
    let class = cluster.class(claim.class().text()).filter(|class| class.delayed() && claim.volume_name.is_empty());
    let Some(class) = class else { return Err(Unready::Immediate) };
    let hold = hold(&claim, cluster, book)?;
    Ok(Want { claim, state: State::Delayed { class, hold } })
}

/// A volume that names the claim counts before everything: the binder joins the two, whatever is planned here.
fn hold(claim: &Claim, cluster: &dyn Cluster, book: &Book) -> Result<Hold, Unready> {
    match book.shelf.offer(claim) {
        Offer::Designated(volume) => return Ok(Hold::Volume(volume)),
        Offer::Unsuitable(volume, mismatch) => {
            let (claim, volume) = (claim.name().into(), volume.name().into());
            return Err(Unready::Unsuitable { claim, volume, mismatch });
        }
        Offer::Free(_) | Offer::Nothing => {}
    }
    if let Some(node) = claim.selected_node() {
        return Ok(Hold::Node(Word::new(node)));
    }
    Ok(match book.promise(claim.key()) {
        Some(Promise::Node(node)) => Hold::Node(node),
        Some(Promise::Volume(name)) => cluster.volume(&name).map_or(Hold::Nothing, Hold::Volume),
        None => Hold::Nothing,
    })
}

impl fmt::Display for Unready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { claim } => write!(f, "persistentvolumeclaim \"{claim}\" not found"),
            Self::NotYetMade { claim } => {
                write!(f, "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{claim}\"")
            }
            Self::Lost { claim, volume } => {
                write!(f, "persistentvolumeclaim \"{claim}\" bound to non-existent persistentvolume \"{volume}\"")
            }
            Self::Deleting { claim } => write!(f, "persistentvolumeclaim \"{claim}\" is being deleted"),
            Self::NotOwned { claim, namespace, pod } => {
                write!(f, "PVC {namespace}/{claim} was not created for pod {namespace}/{pod} (pod is not owner)")
            }
            Self::Immediate => write!(f, "pod has unbound immediate PersistentVolumeClaims"),
            Self::Unsuitable { claim, volume, mismatch } => write!(
                f,
                "persistentvolume \"{volume}\" is reserved for persistentvolumeclaim \"{claim}\" and does not suit it: {mismatch}"
            ),
        }
    }
}
