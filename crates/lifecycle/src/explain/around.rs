//! What stands around a claim: its namespace, the binder, and the pods and nodes that use its volume.

use api::node::PodPhase;
use api::{AccessMode, Claim, Kind, Meta, Pod};

use super::presence::{self, Leads};
use super::text::said;
use super::{Finding, PodTrouble, Subject, Trail, pod, pods};
use crate::decision::{Standing, WRITE_FAILED};

/// How many pods are followed.
const SHOWN: usize = 3;

/// A controller repeats its event about a write that fails every five minutes: an event that is older tells of the past.
const UNWRITTEN_LATELY: i64 = 10 * 60;

/// Adds that the claim's namespace is going away.
pub(super) fn namespace(trail: &mut Trail<'_>, claim: &Claim) {
    let name = claim.namespace();
    let found = trail.picture.namespaces.items().iter().find(|namespace| namespace.meta.key.name() == name);
    let Some(namespace) = found.filter(|namespace| namespace.meta.is_deleting()) else { return };
    let subject = Subject::of(Kind::NAMESPACE.kind, &namespace.meta.key);
    let since = namespace.meta.deleting.map(|at| format!("its deletion began {} ago", trail.picture.age(at)));
    let finding = Finding::NamespaceGoing { namespace: name.into() };
    trail.find(subject, &finding, since.into_iter().collect());
}

/// Adds that a controller could not write to the object lately, unless all is well with it by now.
pub(super) fn unwritten(trail: &mut Trail<'_>, kind: Kind, meta: &Meta) {
    let picture = trail.picture;
    let settled = trail.links.iter().all(|link| link.standing == Standing::Settled);
    let event = picture.last_event(kind, meta, &[WRITE_FAILED]);
    let lately = event.filter(|event| picture.now.0.saturating_sub(event.last.0) <= UNWRITTEN_LATELY);
    let Some(event) = lately.filter(|_| !settled || meta.is_deleting()) else { return };
    let finding = Finding::WriteFailed { by: event.by.as_str().into(), message: event.message.clone() };
    trail.find(Subject::of(kind.kind, &meta.key), &finding, vec![said(picture, event)]);
}

/// Whether the binder, whose turn it is, runs.
pub(super) fn binder(trail: &mut Trail<'_>) {
    let picture = trail.picture;
    let Some(last) = trail.links.last_mut() else { return };
    match presence::binder(picture) {
        Leads::Now(lease) => last.evidence.push(format!("the binder runs: {}", presence::describe(picture, lease))),
        Leads::NoLease if picture.leases.is_seen() => {
            last.evidence.push("no binder holds a lease; one without leader election needs none".to_owned());
        }
        Leads::NoLease => {}
        Leads::Before(lease) => {
            let key = lease.meta.key.clone();
            let seconds = presence::silence(picture, lease);
            let evidence = vec![presence::describe(picture, lease)];
            let finding = Finding::BinderSilent { lease: key.to_string().into(), seconds };
            trail.find(Subject::of(Kind::LEASE.kind, &key), &finding, evidence);
        }
    }
}

/// What keeps pods from a volume that their claim has.
pub(super) fn in_use(trail: &mut Trail<'_>, claim: &Claim, volume: &str) {
    let picture = trail.picture;
    let users: Vec<&Pod> = picture.users(claim).filter(|pod| !pod.terminated()).collect();
    shared(trail, claim, &users);
    let attachments = picture.attachments.items().iter().filter(|held| held.volume.as_deref() == Some(volume));
    let attachments: Vec<_> = attachments.collect();
    for attachment in &attachments {
        if let Some(error) = attachment.error() {
            let (node, message) = (attachment.node.as_str().into(), error.message.clone());
            let finding = Finding::AttachFailed { node, message };
            trail.find(Subject::of(Kind::ATTACHMENT.kind, &attachment.meta.key), &finding, Vec::new());
        }
    }
    let use_of = Use { claim, volume, attachments: &attachments };
    for pod in users.iter().filter(|pod| pod.scheduled() && waits(pod)).take(SHOWN) {
        use_of.starting(trail, pod);
    }
    for pod in users.iter().filter(|pod| !pod.scheduled()).take(SHOWN) {
        pods::waits_for_node(trail, pod);
    }
}

/// A pod without containers stays Pending: its agent says when it has its volumes, and older events no longer count.
fn waits(pod: &Pod) -> bool {
    pod.phase == PodPhase::Pending && pod.volumes_ready.as_ref().is_none_or(|said| !said.ready)
}

/// A volume that a claim has, and where it is.
struct Use<'a> {
    claim: &'a Claim,
    volume: &'a str,
    attachments: &'a [&'a api::Attachment],
}

impl Use<'_> {
    /// What keeps a pod that has its node from the volume, as far as anybody says it.
    fn starting(&self, trail: &mut Trail<'_>, pod: &Pod) {
        let (picture, claim) = (trail.picture, self.claim);
        let elsewhere = self.attachments.iter().find(|held| held.attached && *held.node != *pod.node);
        let here = self.attachments.iter().any(|held| held.attached && *held.node == *pod.node);
        // What the attacher says of the volume was told already.
        let failed = self.attachments.iter().any(|held| held.error().is_some());
        let event = picture.last_event(Kind::POD, &pod.meta, &pod::MOUNTING);
        let event = event.filter(|event| mentions(pod, &event.message, claim, self.volume));
        let why = match (elsewhere, event) {
            (Some(held), _) if !here && !claim.access.contains(AccessMode::ReadWriteMany) => {
                PodTrouble::AttachedElsewhere { node: held.node.as_str().into() }
            }
            _ if !failed && pod::unattached(trail, pod, claim) => return,
            (_, Some(event)) => PodTrouble::NotStarted { message: event.message.clone() },
            (_, None) => return,
        };
        let finding = Finding::Pod { pod: pod.name().into(), why };
        let mut evidence = vec![format!("the pod is on node {:?}", pod.node)];
        evidence.extend(event.map(|event| said(picture, event)));
        trail.find(Subject::of(Kind::POD.kind, &pod.meta.key), &finding, evidence);
    }
}

/// Whether an event of a pod is about this volume: kubelet names the volume, or the pod's name for it.
pub(super) fn mentions(pod: &Pod, message: &str, claim: &Claim, volume: &str) -> bool {
    let names = pod.volumes.iter().filter(|held| match &held.source {
        api::PodSource::Claim { name, .. } => **name == *claim.name(),
        api::PodSource::Ephemeral { .. } => *pod.ephemeral_claim(held) == *claim.name(),
        api::PodSource::InlineCsi { .. } | api::PodSource::InTree { .. } => false,
    });
    message.contains(volume) || names.into_iter().any(|held| message.contains(&*held.name))
}

/// Several pods write to a volume that one node may write to: nothing stops them (pain 7), so it is said.
fn shared(trail: &mut Trail<'_>, claim: &Claim, users: &[&Pod]) {
    let once = claim.access.iter().all(|mode| mode == AccessMode::ReadWriteOnce);
    let placed: Vec<&&Pod> = users.iter().filter(|pod| pod.scheduled()).collect();
    let (true, [first, .., _], Some(last)) = (once, &placed[..], trail.links.last_mut()) else { return };
    last.evidence.push(match placed.iter().all(|pod| pod.node == first.node) {
        true => {
            let names: Vec<&str> = placed.iter().map(|pod| pod.name()).collect();
            format!("pods {} use it at once: ReadWriteOnce allows that on one node", names.join(", "))
        }
        false => {
            let names: Vec<String> = placed.iter().map(|pod| format!("{} on {}", pod.name(), pod.node)).collect();
            format!("pods {} want it at once, and ReadWriteOnce is for one node", names.join(", "))
        }
    });
}
