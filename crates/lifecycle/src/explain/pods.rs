//! Pods that should use a claim: whether a scheduler can place them, and if not, why not.

use api::{Claim, ClaimPhase, Kind, Pod};

use super::{Finding, Picture, PodTrouble, Step, Subject, Told, Trail, advice, scheduled};
use crate::decision::{Lookup, Reason as _, Standing};
use crate::ephemeral;

/// How many pods are followed.
const SHOWN: usize = 3;

fn subject(pod: &Pod) -> Subject {
    Subject::of(Kind::POD.kind, &pod.meta.key)
}

/// Pods that were given a node past the scheduler: with delayed binding their claim never gets a volume.
pub(super) fn passed_over(trail: &mut Trail<'_>, claim: &Claim) {
    let picture = trail.picture;
    let pinned = picture.users(claim).filter(|pod| pod.scheduled() && !pod.terminated());
    for pod in pinned.take(SHOWN) {
        let why = PodTrouble::Pinned { node: pod.node.clone() };
        let finding = Finding::Pod { pod: pod.name().into(), why };
        trail.find(subject(pod), &finding, Vec::new());
    }
}

/// Pods that wait for a scheduler, by name.
pub(super) fn unscheduled(trail: &mut Trail<'_>, claim: &Claim, names: &[Box<str>]) {
    let picture = trail.picture;
    not_owned(trail, claim);
    let waiting: Vec<&Pod> =
        picture.users(claim).filter(|pod| names.iter().any(|name| **name == *pod.name())).collect();
    for pod in waiting.into_iter().take(SHOWN) {
        let others = others(picture, pod, claim);
        unplaced(trail, pod, others);
    }
}

/// A pod that no scheduler has placed.
pub(super) fn waits_for_node(trail: &mut Trail<'_>, pod: &Pod) {
    unplaced(trail, pod, Vec::new());
}

fn unplaced(trail: &mut Trail<'_>, pod: &Pod, mut evidence: Vec<String>) {
    let picture = trail.picture;
    let event = picture.last_event(Kind::POD, &pod.meta, &["FailedScheduling"]);
    let message = event.map(|event| &event.message).or(pod.unschedulable.as_ref());
    let why = match (pod.gated, message) {
        (true, _) => PodTrouble::Gated,
        (false, Some(message)) => PodTrouble::Refused { message: message.clone() },
        (false, None) => PodTrouble::Unnoticed { scheduler: scheduler(pod) },
    };
    let finding = Finding::Pod { pod: pod.name().into(), why };
    evidence.extend(event.map(|event| match (event.count, picture.age(event.last)) {
        (0 | 1, ago) => format!("the scheduler said so {ago} ago"),
        (times, ago) => format!("the scheduler said so {times} times, last {ago} ago"),
    }));
    // A scheduler that has chosen a node, and waits for volumes there, has noticed the pod.
    if pod.gated || message.is_some() || !chosen(picture, pod) {
        trail.find(subject(pod), &finding, evidence);
    }
    if !pod.gated {
        scheduled::look(trail, pod);
    }
}

/// Whether a node was chosen for a claim of the pod that has no volume yet.
fn chosen(picture: &Picture, pod: &Pod) -> bool {
    let mut claims = pod.claims().filter_map(|name| picture.claim(&pod.meta.key.sibling(&name)).found());
    claims.any(|claim| claim.phase == ClaimPhase::Pending && claim.selected_node().is_some())
}

fn scheduler(pod: &Pod) -> Box<str> {
    match &*pod.scheduler {
        "" => "default-scheduler".into(),
        name => name.into(),
    }
}

/// The other claims of a pod that keep it from its node.
fn others(picture: &Picture, pod: &Pod, claim: &Claim) -> Vec<String> {
    let names = pod.claims().filter(|name| **name != *claim.name());
    let describe = |name: Box<str>| match picture.claim(&claim.key().sibling(&name)) {
        Lookup::Found(other) if other.phase == ClaimPhase::Bound && !other.meta.is_deleting() => None,
        Lookup::Found(other) if other.meta.is_deleting() => Some(format!("its claim {name:?} is being deleted")),
        Lookup::Found(other) => Some(format!("its claim {name:?} is {}, too", other.phase.name())),
        Lookup::Absent => Some(format!("its claim {name:?} does not exist")),
        Lookup::NotCached => None,
    };
    names.filter_map(describe).collect()
}

/// Pods that wait for a claim of this name to be made for them, while this one is somebody else's.
pub(super) fn not_owned(trail: &mut Trail<'_>, claim: &Claim) {
    let picture = trail.picture;
    for pod in picture.users(claim) {
        for volume in pod.volumes.iter().filter(|volume| *pod.ephemeral_claim(volume) == *claim.name()) {
            let because = ephemeral::decide(pod, volume, Lookup::Found(claim)).because;
            if because.standing() == Standing::Stuck {
                let told = Told::default().fixed(advice::ephemeral(&because));
                trail.push(subject(pod), Step::Ephemeral, &because, told);
            }
        }
    }
}
