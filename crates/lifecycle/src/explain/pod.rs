//! A pod: what each of its volumes waits for, from the claim over the attachment to the mount on its node.

use std::sync::Arc;
use std::time::Duration;

use api::node::{PodPhase, Readiness};
use api::{Attachment, Claim, CsiDriver, Key, Kind, Pod, PodSource, PodVolume, Source, Volume};

use super::text::said;
use super::{Finding, Picture, Step, Subject, Told, Trail, advice, bind, pods};
use crate::attach::hold::{self, Need, Rules};
use crate::attach::target::{Around, Sharing, Unattachable};
use crate::attach::wish::{self, Other, Slot, Users, Wish};
use crate::attach::{Hold, Target, resolve};
use crate::decision::{Lookup, Reason as _, Standing};
use crate::node::Because as Node;

/// Events in which a node says what it could not do with a volume.
const MOUNTING: [&str; 3] = ["FailedMount", "FailedMapVolume", "FailedAttachVolume"];
const UNMOUNTING: [&str; 1] = ["FailedUnmount"];

/// A pod that is to have its volumes.
pub(super) fn coming(trail: &mut Trail<'_>, pod: &Pod) {
    for volume in &pod.volumes {
        trail.depth = 0;
        follow(trail, pod, volume);
    }
    trail.depth = 0;
    match pod.scheduled() {
        true => on_node(trail, pod),
        false => pods::waits_for_node(trail, pod),
    }
}

/// A pod that is being deleted.
pub(super) fn going(trail: &mut Trail<'_>, pod: &Pod) {
    let picture = trail.picture;
    let mut evidence: Vec<String> =
        pod.meta.deleting.map(|at| format!("its deletion was asked for {} ago", picture.age(at))).into_iter().collect();
    let event = picture.last_event(Kind::POD, &pod.meta, &UNMOUNTING);
    evidence.extend(event.map(|event| said(picture, event)));
    let held: Vec<Box<str>> = pod.meta.finalizers.iter().map(|name| name.as_str().into()).collect();
    if !held.is_empty() {
        trail.find(subject(pod), &Finding::FinalizersLeft { finalizers: held }, Vec::new());
    }
    if !pod.scheduled() {
        return;
    }
    let finding = match node_trouble(picture, pod) {
        Some(trouble) => trouble,
        None => Finding::PodLeaving { node: pod.node.clone(), said: event.map(|event| event.message.clone()) },
    };
    trail.find(subject(pod), &finding, evidence);
}

fn subject(pod: &Pod) -> Subject {
    Subject::of(Kind::POD.kind, &pod.meta.key)
}

/// One volume, as far as the controllers have to do with it.
fn follow(trail: &mut Trail<'_>, pod: &Pod, volume: &PodVolume) {
    let picture = trail.picture;
    match resolve(pod, volume, &Seen(picture)) {
        Ok(target) if pod.scheduled() => attachment(trail, pod, &target),
        Ok(_) | Err(Unattachable::NotAttached | Unattachable::NotRequired { .. }) => {}
        Err(Unattachable::ClaimUnbound { claim }) => {
            if let Lookup::Found(claim) = picture.claim(&pod.meta.key.sibling(&claim)) {
                bind::claim(trail, claim);
            }
        }
        Err(Unattachable::ClaimMissing { .. }) if !picture.claims.is_seen() => {
            trail.find(subject(pod), &Finding::Blind { what: Kind::CLAIM.plural }, Vec::new());
        }
        Err(Unattachable::VolumeMissing { .. }) if !picture.volumes.is_seen() => {
            trail.find(subject(pod), &Finding::Blind { what: Kind::VOLUME.plural }, Vec::new());
        }
        Err(wrong) => {
            let because = unresolved(wrong, volume);
            let told = Told::default().fixed(advice::node(&because, &pod.node));
            trail.push(subject(pod), Step::Node, &because, told);
        }
    }
}

/// What the node would say of a volume that cannot be found.
fn unresolved(wrong: Unattachable, volume: &PodVolume) -> Node {
    let claim = match &volume.source {
        PodSource::Claim { name, .. } => name.clone(),
        PodSource::Ephemeral { .. } | PodSource::InlineCsi { .. } | PodSource::InTree { .. } => volume.name.clone(),
    };
    match wrong {
        Unattachable::ClaimMissing { claim } => Node::ClaimMissing { claim },
        Unattachable::ClaimUnbound { claim } => Node::ClaimNotBound { claim },
        Unattachable::ClaimOfAnother { claim } => Node::ClaimNotOurs { claim },
        Unattachable::VolumeMissing { volume } => Node::VolumeMissing { volume },
        Unattachable::VolumeOfAnother { volume } => Node::VolumeOfAnother { volume, claim },
        other
        @ (Unattachable::NotAttached | Unattachable::NotRequired { .. } | Unattachable::Untranslatable { .. }) => {
            Node::Unsupported { volume: volume.name.clone(), what: other.to_string().into() }
        }
    }
}

/// Why a volume is attached to the pod's node, or not.
fn attachment(trail: &mut Trail<'_>, pod: &Pod, target: &Target) {
    let picture = trail.picture;
    if !picture.attachments.is_seen() {
        return trail.find(subject(pod), &Finding::Blind { what: Kind::ATTACHMENT.plural }, Vec::new());
    }
    let (own, others): (Vec<&Attachment>, Vec<&Attachment>) =
        picture.attachments.items().iter().filter(|held| is_of(held, target)).partition(|held| *held.node == *pod.node);
    let others: Vec<Other<'_>> = others
        .into_iter()
        .map(|attachment| Other {
            attachment,
            hold: why_held(picture, attachment, target),
            told: told(picture, attachment, target),
        })
        .collect();
    let users = users_elsewhere(picture, pod, target);
    let own = own.first().copied();
    let waited = own.map_or(0, |own| picture.now.0.saturating_sub(own.meta.created.0));
    let wish = Wish {
        target,
        node_name: &pod.node,
        node: picture.node(&pod.node),
        own,
        others: &others,
        users: &users,
        slot: Slot::Free,
        waited: Duration::from_secs(u64::try_from(waited).unwrap_or(0)),
    };
    let because = wish::about(&wish);
    let evidence = attach_evidence(picture, pod, own, target);
    let told = Told::evidence(evidence).fixed(advice::attach(&because));
    trail.push(subject(pod), Step::Attach, &because, told);
    if because.standing() == Standing::Settled {
        return;
    }
    trail.deeper();
    for other in &others {
        let key = &other.attachment.meta.key;
        let told = Told::default().fixed(advice::hold(&other.hold, &other.attachment.node));
        trail.push(Subject::of(Kind::ATTACHMENT.kind, key), Step::Attach, &other.hold, told);
    }
}

fn is_of(held: &Attachment, target: &Target) -> bool {
    *held.attacher == *target.driver && held.name() == target.attachment(&held.node)
        || held.volume.as_deref() == Some(target.name())
}

fn told(picture: &Picture, held: &Attachment, target: &Target) -> bool {
    picture.node(&held.node).found().is_some_and(|node| node.reports_attached(&target.unique()))
}

/// Pods that want the volume on a node, by the same look at them that the controller has.
fn wanting<'a>(picture: &'a Picture, node: &'a str, target: &'a Target) -> impl Iterator<Item = &'a Pod> {
    let here = move |pod: &&Pod| *pod.node == *node && pod.wants_volumes();
    let wants = move |pod: &&Pod| {
        let found = pod.volumes.iter().filter_map(|volume| resolve(pod, volume, &Seen(picture)).ok());
        found.into_iter().any(|found| found.driver == target.driver && found.handle == target.handle)
    };
    picture.pods.items().iter().filter(here).filter(wants)
}

/// Why another node has the volume. What the operator allows by flag is not known here, and is not assumed.
fn why_held(picture: &Picture, attachment: &Attachment, target: &Target) -> Hold {
    let node = picture.node(&attachment.node);
    let need = match wanting(picture, &attachment.node, target).next() {
        Some(_) => Need::Wanted,
        None => Need::Unwanted,
    };
    let usage = hold::usage(node, attachment.name());
    let rules = Rules { now: picture.now, force_after: None };
    hold::judge(&hold::Held { attachment, need, node, usage, rules })
}

fn users_elsewhere(picture: &Picture, pod: &Pod, target: &Target) -> Users {
    if target.sharing == Sharing::ManyNodes {
        return Users::default();
    }
    let nodes = picture.attachments.items().iter().filter(|held| is_of(held, target) && *held.node != *pod.node);
    let mut here: Vec<Box<str>> =
        nodes.flat_map(|held| wanting(picture, &held.node, target)).map(|user| user.name().into()).collect();
    here.sort();
    here.dedup();
    Users { here, elsewhere: 0 }
}

/// The attachment, and how many the node may have.
fn attach_evidence(picture: &Picture, pod: &Pod, own: Option<&Attachment>, target: &Target) -> Vec<String> {
    let mut evidence = Vec::new();
    if let Some(own) = own {
        evidence.push(format!("VolumeAttachment {} was made {} ago", own.name(), picture.age(own.meta.created)));
        if let Some(code) = own.attach_error.as_ref().and_then(|error| error.code) {
            evidence.push(format!("the driver's code was {}", crate::outcome::Code::from_number(code)));
        }
    }
    let node = picture.csi_node(&pod.node).found();
    if let Some(slots) = node.and_then(|node| node.drivers.iter().find(|driver| driver.name == target.driver))
        && let Some(count) = slots.allocatable.as_ref().and_then(|limit| limit.count)
    {
        let same = |held: &&Attachment| held.attacher == target.driver && *held.node == *pod.node;
        let used = picture.attachments.items().iter().filter(same).count();
        evidence.push(format!("node {:?} has {used} of {count} volumes of {}", pod.node, target.driver));
    }
    evidence
}

/// What the node itself says: its agent's condition, kubelet's events, or nothing.
fn on_node(trail: &mut Trail<'_>, pod: &Pod) {
    let picture = trail.picture;
    // Before the controllers are done, the node has nothing to do.
    if trail.links.iter().any(|link| link.standing > Standing::Moving) {
        return;
    }
    let event = picture.last_event(Kind::POD, &pod.meta, &MOUNTING);
    let mut evidence: Vec<String> = event.map(|event| said(picture, event)).into_iter().collect();
    if let Some(driver) = missing_driver(picture, pod) {
        let because = Node::DriverMissing { driver };
        let told = Told::evidence(evidence).fixed(advice::node(&because, &pod.node));
        return trail.push(subject(pod), Step::Node, &because, told);
    }
    let node: Box<str> = pod.node.clone();
    let finding = match (node_trouble(picture, pod), &pod.volumes_ready) {
        (Some(trouble), _) => trouble,
        (None, Some(said)) if said.ready => {
            return trail.push(subject(pod), Step::Node, &Node::Ready, Told::evidence(evidence));
        }
        (None, Some(said)) => {
            evidence.push(format!("the agent's reason is {}", said.reason));
            Finding::AgentSays { node, message: said.message.clone() }
        }
        (None, None) if pod.phase == PodPhase::Running => {
            return trail.push(subject(pod), Step::Node, &Node::Ready, Told::evidence(["it runs".to_owned()]));
        }
        (None, None) => match event {
            Some(event) => Finding::AgentSays { node, message: event.message.clone() },
            None => Finding::AgentSilent { node },
        },
    };
    trail.find(subject(pod), &finding, evidence);
}

fn node_trouble(picture: &Picture, pod: &Pod) -> Option<Finding> {
    match picture.node(&pod.node) {
        Lookup::Absent => Some(Finding::PodNodeGone { node: pod.node.clone() }),
        Lookup::Found(node) if node.ready != Readiness::Ready => {
            Some(Finding::PodNodeNotReady { node: pod.node.clone() })
        }
        Lookup::Found(_) | Lookup::NotCached => None,
    }
}

/// A driver of the pod's volumes that is not registered on its node.
fn missing_driver(picture: &Picture, pod: &Pod) -> Option<Box<str>> {
    let node = picture.csi_node(&pod.node);
    let mut drivers = pod.volumes.iter().filter_map(|volume| driver_of(picture, pod, volume));
    match node {
        Lookup::Found(node) => drivers.find(|driver| node.drivers.iter().all(|held| *held.name != **driver)),
        // Without a CSINode nothing is registered there.
        Lookup::Absent => drivers.next(),
        Lookup::NotCached => None,
    }
}

fn driver_of(picture: &Picture, pod: &Pod, volume: &PodVolume) -> Option<Box<str>> {
    let name = match &volume.source {
        PodSource::Claim { name, .. } => name.clone(),
        PodSource::Ephemeral { .. } => pod.ephemeral_claim(volume),
        PodSource::InlineCsi { driver, .. } => return Some(driver.as_str().into()),
        PodSource::InTree { .. } => return None,
    };
    let claim = picture.claim(&pod.meta.key.sibling(&name)).found()?;
    match &picture.volume(&claim.volume_name).found()?.source {
        Source::Csi { driver, .. } => Some(driver.as_str().into()),
        Source::HostPath { .. }
        | Source::Local { .. }
        | Source::Nfs { .. }
        | Source::Other { .. }
        | Source::Missing => None,
    }
}

/// The picture, as decisions about attaching look around in it.
struct Seen<'a>(&'a Picture);

impl Around for Seen<'_> {
    fn claim(&self, key: &Key) -> Option<Arc<Claim>> {
        self.0.claim(key).found().cloned().map(Arc::new)
    }

    fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.0.volume(name).found().cloned().map(Arc::new)
    }

    fn driver(&self, name: &str) -> Option<Arc<CsiDriver>> {
        self.0.drivers.items().iter().find(|driver| driver.meta.key.name() == name).cloned().map(Arc::new)
    }
}
