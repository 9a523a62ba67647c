//! Problems of a claim's volume and of the machine that has it.
//!
//! Who says it, in this order: the claim's condition, which a sidecar of ours keeps; the condition of a pod that uses the
//! volume, which an agent of ours keeps; events of kubelet and of external-health-monitor, which are news and soon old.

use api::keys::condition;
use api::{Claim, Event, Key, Kind, Node, Pod, PodVolume, Volume};

use super::text::said;
use super::{Finding, Picture, Subject, Trail, around};
use crate::health::{ABNORMAL_EVENT, ABNORMAL_REASON, NORMAL_EVENT, known_words};
use crate::registration::lease::ANOTHER_MACHINE_EVENT;

/// Kubelet repeats its events for as long as something is wrong: one that is older than this many seconds is over.
const LATELY: i64 = 10 * 60;
/// Where nodes' leases are.
const NODE_LEASES: &str = "kube-node-lease";

/// A known problem of a volume, with its source.
struct Trouble {
    message: Box<str>,
    evidence: String,
}

/// Adds what is wrong with the volume of a claim, and with the machines that have it or hold it.
pub(super) fn volume(trail: &mut Trail<'_>, claim: Option<&Claim>, volume: &Volume) {
    let picture = trail.picture;
    let places = places(picture, claim, volume);
    for node in &places {
        machine(trail, node);
    }
    if let Some(trouble) = claim.and_then(|claim| of_claim(picture, claim, volume.name())) {
        let node = places.first().map(|node| node.name().into());
        tell(trail, Subject::volume(volume.name()), volume.name(), trouble, node);
    }
}

/// Adds what is wrong with the volumes of a pod, and with the name of its machine.
pub(super) fn pod(trail: &mut Trail<'_>, pod: &Pod) {
    let picture = trail.picture;
    if let Some(node) = picture.node(&pod.node).found() {
        name_in_use(trail, node);
    }
    for volume in &pod.volumes {
        let node = pod.scheduled().then(|| pod.node.clone());
        let claim = pod.claim_of(volume).map(|name| pod.meta.key.sibling(&name));
        let claim = claim.as_ref().and_then(|key| picture.claim(key).found());
        match claim.filter(|claim| !claim.volume_name.is_empty()) {
            Some(claim) => {
                let name = &*claim.volume_name;
                if let Some(trouble) = of_claim(picture, claim, name) {
                    tell(trail, Subject::volume(name), name, trouble, node);
                }
            }
            None => {
                if let Some(trouble) = of_pod(picture, pod, volume) {
                    tell(trail, Subject::of(Kind::POD.kind, &pod.meta.key), &volume.name, trouble, node);
                }
            }
        }
    }
}

fn tell(trail: &mut Trail<'_>, subject: Subject, volume: &str, trouble: Trouble, node: Option<Box<str>>) {
    let finding = Finding::VolumeAbnormal { volume: volume.into(), message: trouble.message, node };
    trail.find(subject, &finding, vec![trouble.evidence]);
}

/// Adds that a machine is lost, or that another machine uses its name.
pub(super) fn machine(trail: &mut Trail<'_>, node: &Node) {
    name_in_use(trail, node);
    if let Some((finding, evidence)) = lost(trail.picture, node) {
        trail.find(Subject::of(Kind::NODE.kind, &node.meta.key), &finding, evidence);
    }
}

/// A machine of which nothing is heard any more, with the evidence.
pub(super) fn lost(picture: &Picture, node: &Node) -> Option<(Finding, Vec<String>)> {
    if !node.is_lost() {
        return None;
    }
    let key = Key::namespaced(NODE_LEASES, node.name());
    let lease = picture.leases.items().iter().find(|lease| lease.meta.key == key);
    let renewed = lease.and_then(|lease| lease.renewed);
    let seconds = node.heartbeat.max(renewed).map(|at| picture.now.0.saturating_sub(at.0));
    let since = node.ready_since.map(|at| format!("its condition Ready has been Unknown for {}", picture.age(at)));
    let renewal = renewed.map(|at| format!("its lease {key} was renewed {} ago", picture.age(at)));
    let evidence = since.into_iter().chain(renewal).collect();
    Some((Finding::NodeLost { node: node.name().into(), seconds }, evidence))
}

fn name_in_use(trail: &mut Trail<'_>, node: &Node) {
    let picture = trail.picture;
    let Some(event) = name_conflict(picture, node) else { return };
    let finding = Finding::NodeNameInUse { node: node.name().into(), message: event.message.clone() };
    trail.find(Subject::of(Kind::NODE.kind, &node.meta.key), &finding, vec![said(picture, event)]);
}

/// The newest event by which an agent said that another machine uses the node's name.
pub(crate) fn name_conflict<'a>(picture: &'a Picture, node: &Node) -> Option<&'a Event> {
    let about = picture.node_events.items().iter().filter(|event| event.about.is(Kind::NODE, &node.meta));
    about.filter(|event| event.reason == *ANOTHER_MACHINE_EVENT).max_by_key(|event| event.last)
}

/// The machines that a volume is on: those of its attachments and pods, and the only one it can be reached from.
fn places<'a>(picture: &'a Picture, claim: Option<&Claim>, volume: &Volume) -> Vec<&'a Node> {
    let nodes = picture.nodes.items();
    let attached = picture.attachments.items().iter().filter(|held| held.volume.as_deref() == Some(volume.name()));
    let mut names: Vec<&str> = attached.map(|held| held.node.as_str()).collect();
    if let Some(claim) = claim {
        let users = picture.users(claim).filter(|pod| pod.scheduled() && !pod.terminated());
        names.extend(users.map(|pod| &*pod.node));
    }
    let mut places: Vec<&Node> = nodes.iter().filter(|node| names.contains(&node.name())).collect();
    if places.is_empty() && volume.affinity.is_some() {
        let mut reaching = nodes.iter().filter(|node| volume.reachable_from(node.name(), &node.meta.labels));
        if let (Some(only), None) = (reaching.next(), reaching.next()) {
            places.push(only);
        }
    }
    places
}

fn of_claim(picture: &Picture, claim: &Claim, volume: &str) -> Option<Trouble> {
    if let Some(said) = &claim.status.abnormal {
        let since = said.since.map(|at| format!(", for {}", picture.age(at))).unwrap_or_default();
        let evidence = format!("condition {} of claim {}{since}", condition::VOLUME_ABNORMAL, claim.key());
        return Some(Trouble { message: said.message.clone(), evidence });
    }
    let users: Vec<&Pod> = picture.users(claim).filter(|pod| !pod.terminated()).collect();
    let by_pod = users.iter().find_map(|pod| {
        let mut volumes =
            pod.volumes.iter().filter(|held| pod.claim_of(held).is_some_and(|name| *name == *claim.name()));
        volumes.find_map(|held| of_pod(picture, pod, held))
    });
    by_pod.or_else(|| by_event(picture, (Kind::CLAIM, &claim.meta))).or_else(|| {
        // An agent of ours keeps the condition: its events are older than that.
        let kubelets = users.iter().filter(|pod| pod.volumes_ready.is_none());
        kubelets.filter_map(|pod| by_event(picture, (Kind::POD, &pod.meta)).map(|trouble| (pod, trouble))).find_map(
            |(pod, Trouble { message, evidence })| {
                let (name, words) = message.strip_prefix("Volume ")?.split_once(": ")?;
                let ours = around::mentions(pod, name, claim, volume);
                ours.then(|| Trouble { message: words.into(), evidence })
            },
        )
    })
}

/// The report of a pod's agent about one of its volumes.
fn of_pod(picture: &Picture, pod: &Pod, volume: &PodVolume) -> Option<Trouble> {
    let said = pod.volumes_ready.as_deref()?;
    let words = words_about(pod, volume, &said.message)?;
    let message = match said.ready {
        true if *said.reason == *ABNORMAL_REASON => words,
        true => return None,
        // Why it is not mounted is told of the pod; only what is wrong with the volume itself is told here.
        false => known_words(words)?,
    };
    let since = said.since.map(|at| format!(", for {}", picture.age(at))).unwrap_or_default();
    let evidence =
        format!("condition {} of pod {} on node {:?}{since}", condition::VOLUMES_READY, pod.meta.key, pod.node);
    Some(Trouble { message: message.into(), evidence })
}

/// The part of a pod's condition that is about one of its volumes: `data: ...; logs: ...`.
fn words_about<'a>(pod: &Pod, volume: &PodVolume, message: &'a str) -> Option<&'a str> {
    let starts = |name: &str| {
        let own = format!("{name}: ");
        let at = if message.starts_with(&own) { Some(0) } else { message.find(&format!("; {own}")).map(|at| at + 2) };
        at.map(|at| (at, at + own.len()))
    };
    let (_, begin) = starts(&volume.name)?;
    let others = pod.volumes.iter().filter_map(|other| starts(&other.name)).map(|(at, _)| at).filter(|at| *at > begin);
    match others.min() {
        Some(next) => message.get(begin..next)?.strip_suffix("; "),
        None => message.get(begin..),
    }
}

/// The last event about an object's volume, unless a later one says that it is well or it is too old to count.
fn by_event(picture: &Picture, (kind, meta): (Kind, &api::Meta)) -> Option<Trouble> {
    let event = picture.last_event(kind, meta, &[ABNORMAL_EVENT, NORMAL_EVENT])?;
    let recent = picture.now.0.saturating_sub(event.last.0) <= LATELY;
    (event.reason == *ABNORMAL_EVENT && recent)
        .then(|| Trouble { message: event.message.clone(), evidence: said(picture, event) })
}
