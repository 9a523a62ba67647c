//! A pod: what each of its volumes waits for, from the claim over the attachment to the mount on its node.

use std::sync::Arc;

use api::node::{PodPhase, Readiness};
use api::object::UnixSeconds;
use api::{Attachment, Claim, CsiDriver, Key, Kind, Pod, PodSource, PodVolume, Source, Volume};

use super::text::said;
use super::{Finding, Picture, Step, Subject, Told, Trail, advice, bind, condition, missing, pods, presence};
use crate::attach::hold::Rules;
use crate::attach::look::Sight;
use crate::attach::target::{Around, Unattachable};
use crate::attach::{Because as Attach, Target, resolve};
use crate::decision::{Lookup, Reason as _, Standing};
use crate::node::Because as Node;

/// Events in which a node says what it could not do with a volume.
pub(super) const MOUNTING: [&str; 4] =
    ["FailedMount", "FailedMapVolume", "FailedAttachVolume", "VolumePermissionChangeInProgress"];
const UNMOUNTING: [&str; 1] = ["FailedUnmount"];

/// A pod that is to have its volumes.
pub(super) fn coming(trail: &mut Trail<'_>, pod: &Pod) {
    // What a scheduler says may only be what a claim says better, which then comes last.
    if !pod.scheduled() {
        pods::waits_for_node(trail, pod);
    }
    for volume in &pod.volumes {
        trail.depth = 0;
        follow(trail, pod, volume);
    }
    trail.depth = 0;
    if pod.scheduled() {
        on_node(trail, pod);
    }
    trail.deeper();
    condition::pod(trail, pod);
}

/// A pod that is being deleted.
pub(super) fn going(trail: &mut Trail<'_>, pod: &Pod) {
    let picture = trail.picture;
    // What the API keeps is when the time that was given to the pod is over.
    let asked = pod.meta.deleting.map(|over| UnixSeconds(over.0.saturating_sub(pod.grace.unwrap_or(0))));
    let mut evidence: Vec<String> =
        asked.map(|at| format!("its deletion was asked for {} ago", picture.age(at))).into_iter().collect();
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
        Ok(target) if pod.scheduled() => attachment(trail, pod, volume, &target),
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
            let quotas = match because {
                Node::ClaimMissing { .. } => missing::used_up(picture, pod.namespace()),
                _ => Vec::new(),
            };
            let told = Told::evidence(quotas).fixed(advice::node(&because, &pod.node));
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

/// Adds what keeps a claim's volume from the node of a pod, as the controllers see it; says whether there is anything.
pub(super) fn unattached(trail: &mut Trail<'_>, pod: &Pod, claim: &Claim) -> bool {
    let picture = trail.picture;
    if !picture.attachments.is_seen() || !picture.nodes.is_seen() {
        return false;
    }
    let (depth, before) = (trail.depth, trail.links.len());
    for volume in pod.volumes.iter().filter(|volume| pod.claim_of(volume).is_some_and(|name| *name == *claim.name())) {
        let Ok(target) = resolve(pod, volume, &Seen(picture)) else { continue };
        let around = Seen(picture);
        if sight(picture, &around).of(pod, volume).is_ok_and(|because| because.standing() > Standing::Moving) {
            attachment(trail, pod, volume, &target);
            trail.depth = depth;
        }
    }
    trail.links.len() > before
}

/// What the controllers see. What the operator allows by flag is not known here, and is not assumed.
fn sight<'a>(picture: &'a Picture, around: &'a Seen<'a>) -> Sight<'a> {
    let rules = Rules { now: picture.now, force_after: None, unready_for: None };
    let (nodes, attachments, pods) = (picture.nodes.items(), picture.attachments.items(), picture.pods.items());
    Sight { around, nodes, attachments, pods, rules }
}

/// Why a volume is attached to the pod's node, or not, and who else has it.
fn attachment(trail: &mut Trail<'_>, pod: &Pod, volume: &PodVolume, target: &Target) {
    let picture = trail.picture;
    let unseen =
        [(Kind::ATTACHMENT.plural, picture.attachments.is_seen()), (Kind::NODE.plural, picture.nodes.is_seen())];
    if let Some((what, _)) = unseen.into_iter().find(|(_, seen)| !seen) {
        return trail.find(subject(pod), &Finding::Blind { what }, Vec::new());
    }
    let around = Seen(picture);
    let (sight, attachments) = (sight(picture, &around), picture.attachments.items());
    let Ok(because) = sight.of(pod, volume) else { return };
    // A node that attaches by itself needs nobody's help, and nobody's word, as long as it does.
    if matches!(because, Attach::Unmanaged { .. } | Attach::Unreported { .. }) && has_its_volumes(pod) {
        return;
    }
    let own = attachments.iter().find(|held| held.name() == target.attachment(&pod.node));
    let mut evidence = attach_evidence(picture, pod, own, target);
    if matches!(because, Attach::Attaching { .. } | Attach::Overdue { .. }) {
        evidence.extend(attacher_evidence(picture, &pod.node, &target.driver));
    }
    let told = Told::evidence(evidence).fixed(advice::attach(&because));
    trail.push(subject(pod), Step::Attach, &because, told);
    if because.standing() == Standing::Settled {
        return;
    }
    trail.deeper();
    for other in attachments.iter().filter(|held| *held.node != *pod.node && sight.is_of(held, target)) {
        let hold = sight.hold(other);
        let told = Told::default().fixed(advice::hold(&hold, &other.node));
        trail.push(Subject::of(Kind::ATTACHMENT.kind, &other.meta.key), Step::Attach, &hold, told);
        if let Lookup::Found(node) = picture.node(&other.node) {
            condition::machine(trail, node);
        }
    }
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

/// What shows of an attacher that has said nothing: the leases of the driver's sidecars, and where its driver is.
fn attacher_evidence(picture: &Picture, node: &str, driver: &str) -> Vec<String> {
    let leases = presence::sidecars(picture, driver).into_iter();
    let mut evidence: Vec<String> = leases.map(|lease| format!("a sidecar of the driver: {lease}")).collect();
    if evidence.is_empty() && picture.leases.is_seen() {
        evidence.push("no lease goes by the driver's name; an attacher without leader election needs none".to_owned());
    }
    let registered = picture.csi_node(node).found().is_some_and(|held| held.driver(driver).is_some());
    if picture.csi_nodes.is_seen() && !registered {
        evidence.push(format!("the driver is not registered on node {node:?}"));
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
        (None, Some(said)) if said.reason.eq_ignore_ascii_case("hung") => {
            let because = Node::Hung { message: said.message.clone() };
            let told = Told::evidence(evidence).fixed(advice::node(&because, &pod.node));
            return trail.push(subject(pod), Step::Node, &because, told);
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

/// What its agent says, or what a kubelet would not let it do otherwise.
fn has_its_volumes(pod: &Pod) -> bool {
    match &pod.volumes_ready {
        Some(said) => said.ready,
        None => pod.phase == PodPhase::Running,
    }
}

fn node_trouble(picture: &Picture, pod: &Pod) -> Option<Finding> {
    match picture.node(&pod.node) {
        Lookup::Absent => Some(Finding::PodNodeGone { node: pod.node.clone() }),
        Lookup::Found(node) => {
            let not_ready = || Finding::PodNodeNotReady { node: pod.node.clone() };
            let lost = condition::lost(picture, node).map(|(finding, _)| finding);
            lost.or_else(|| (node.ready != Readiness::Ready).then(not_ready))
        }
        Lookup::NotCached => None,
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
#[derive(Debug)]
pub(crate) struct Seen<'a>(pub(crate) &'a Picture);

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
