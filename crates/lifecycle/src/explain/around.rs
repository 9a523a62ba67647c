//! What stands around a claim: its namespace, the binder, and the pods and nodes that use its volume.

use api::node::PodPhase;
use api::{AccessMode, Claim, Kind, Pod};

use super::presence::{self, Leads};
use super::text::said;
use super::{Finding, PodTrouble, Subject, Trail};

/// How many pods are followed.
const SHOWN: usize = 3;

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
    // A pod that runs no containers stays Pending: its agent's word counts, and what it said before is past.
    let ready = |pod: &Pod| pod.volumes_ready.as_ref().is_some_and(|said| said.ready);
    let starting = users.iter().filter(|pod| pod.scheduled() && pod.phase == PodPhase::Pending && !ready(pod));
    for pod in starting.take(SHOWN) {
        let elsewhere = attachments.iter().find(|held| held.attached && *held.node != *pod.node);
        let here = attachments.iter().any(|held| held.attached && *held.node == *pod.node);
        let event = picture.last_event(Kind::POD, &pod.meta, &["FailedAttachVolume", "FailedMount", "FailedMapVolume"]);
        let event = event.filter(|event| mentions(pod, &event.message, claim, volume));
        let why = match (elsewhere, event) {
            (Some(held), _) if !here && !claim.access.contains(AccessMode::ReadWriteMany) => {
                PodTrouble::AttachedElsewhere { node: held.node.as_str().into() }
            }
            (_, Some(event)) => PodTrouble::NotStarted { message: event.message.clone() },
            (_, None) => continue,
        };
        let finding = Finding::Pod { pod: pod.name().into(), why };
        let mut evidence = vec![format!("the pod is on node {:?}", pod.node)];
        evidence.extend(event.map(|event| said(picture, event)));
        trail.find(Subject::of(Kind::POD.kind, &pod.meta.key), &finding, evidence);
    }
}

/// Whether an event of a pod is about this volume: kubelet names the volume, or the pod's name for it.
fn mentions(pod: &Pod, message: &str, claim: &Claim, volume: &str) -> bool {
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
    let names: Vec<&str> = users.iter().filter(|pod| pod.scheduled()).map(|pod| pod.name()).collect();
    if let (true, 2.., Some(last)) = (once, names.len(), trail.links.last_mut()) {
        let names = names.join(", ");
        last.evidence.push(format!("pods {names} use it at once: ReadWriteOnce allows that on one node"));
    }
}
