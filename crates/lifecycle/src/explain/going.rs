//! What was deleted and is still there: who holds it, and what is left to do.

use api::keys::{annotation, finalizer};
use api::{Claim, Kind, Meta, Pod, ReclaimPolicy, Volume};

use super::{Finding, Picture, PodTrouble, Step, Subject, Told, Trail, advice, around};
use crate::decision::Lookup;
use crate::protect::{self, Because, Pods};

/// How many pods are followed.
const SHOWN: usize = 3;

/// A claim that is being deleted.
pub(super) fn claim(trail: &mut Trail<'_>, claim: &Claim) {
    let picture = trail.picture;
    let pods: Vec<&Pod> = picture.pods.items().iter().collect();
    if !picture.pods.is_seen() && claim.meta.has_finalizer(finalizer::PVC_PROTECTION) {
        let finding = Finding::Blind { what: Kind::POD.plural };
        trail.find(Subject::claim(claim.key()), &finding, since(picture, &claim.meta));
        return left(trail, Subject::claim(claim.key()), &claim.meta, finalizer::PVC_PROTECTION.text());
    }
    let because = protect::claim(claim, Pods::Live(&pods)).because;
    let mut evidence = since(picture, &claim.meta);
    evidence.extend(fate(picture, claim));
    let told = Told::evidence(evidence).fixed(advice::protect(&because)).fixed(keep(picture, claim));
    trail.push(Subject::claim(claim.key()), Step::Protect, &because, told);
    trail.deeper();
    around::namespace(trail, claim);
    left(trail, Subject::claim(claim.key()), &claim.meta, finalizer::PVC_PROTECTION.text());
    follow(trail, &because, |trail| holders(trail, claim));
}

/// A volume that is being deleted.
pub(super) fn volume(trail: &mut Trail<'_>, volume: &Volume) {
    let picture = trail.picture;
    let because = protect::volume(volume).because;
    let told = Told::evidence(since(picture, &volume.meta)).fixed(advice::protect(&because));
    trail.push(Subject::volume(volume.name()), Step::Protect, &because, told);
    trail.deeper();
    // While a claim has the volume, it is right that others hold on to it, too.
    if because != Because::Bound {
        left(trail, Subject::volume(volume.name()), &volume.meta, finalizer::PV_PROTECTION.text());
    }
    follow(trail, &because, |trail| {
        let key = volume.claim.as_ref().map(|reference| &reference.key);
        if let Some(Lookup::Found(held)) = key.map(|key| trail.picture.claim(key)) {
            match held.meta.is_deleting() {
                true => claim(trail, held),
                false => super::bind::claim(trail, held),
            }
        }
    });
}

/// Whom a protected object waits for.
fn follow(trail: &mut Trail<'_>, because: &Because, users: impl FnOnce(&mut Trail<'_>)) {
    match because {
        Because::UsedByPod { .. } | Because::Bound => users(trail),
        // The next write is a controller's.
        Because::Unused | Because::Unguarded => around::binder(trail),
        Because::Guarded
        | Because::Released
        | Because::CacheMayLag
        | Because::UsedByClaim { .. }
        | Because::UsedByVolume { .. } => {}
    }
}

fn since(picture: &Picture, meta: &Meta) -> Vec<String> {
    let began = meta.deleting.map(|at| format!("its deletion was asked for {} ago", picture.age(at)));
    began.into_iter().collect()
}

/// The volume of a claim that goes, while its data can still be kept.
fn doomed<'a>(picture: &'a Picture, claim: &Claim) -> Option<&'a Volume> {
    let volume = picture.volume(&claim.volume_name).found()?;
    (volume.reclaim == ReclaimPolicy::Delete && volume.designates(claim)).then_some(volume)
}

fn fate(picture: &Picture, claim: &Claim) -> Option<String> {
    let volume = doomed(picture, claim)?;
    Some(format!("its volume {:?} has reclaim policy Delete: the data goes when the claim does", volume.name()))
}

/// Pain 5: the last chance to keep what is in it.
fn keep(picture: &Picture, claim: &Claim) -> Option<String> {
    let name = doomed(picture, claim)?.name();
    let patch = r#"{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}"#;
    Some(format!("To keep the data after all: kubectl patch pv {name} -p '{patch}', before the claim is gone."))
}

/// The pods that keep a claim.
fn holders(trail: &mut Trail<'_>, claim: &Claim) {
    let picture = trail.picture;
    for pod in picture.users(claim).filter(|pod| protect::uses(pod, claim)).take(SHOWN) {
        let mut evidence = vec![format!("it is {:?} on node {:?}", pod.phase, pod.node)];
        if let Some(at) = pod.meta.deleting {
            evidence.push(format!("it is being deleted itself, since {}", picture.age(at)));
        }
        match picture.node(&pod.node) {
            Lookup::Absent => evidence.push("its node does not exist any more".to_owned()),
            Lookup::Found(node) if node.ready != api::node::Readiness::Ready => {
                evidence.push("its node is not ready, so that nobody there can end the pod".to_owned());
            }
            Lookup::Found(_) | Lookup::NotCached => {}
        }
        let why = match pod.meta.annotation(annotation::HOST_MOUNT_PATH) {
            Some(path) => PodTrouble::HoldsForHost { node: pod.node.clone(), path: path.into() },
            None if pod.terminated() => PodTrouble::HoldsEnded,
            None => PodTrouble::Holds,
        };
        let finding = Finding::Pod { pod: pod.name().into(), why };
        trail.find(Subject::of(Kind::POD.kind, &pod.meta.key), &finding, evidence);
    }
}

/// Finalizers beside the protecting one, and whose they are.
fn left(trail: &mut Trail<'_>, subject: Subject, meta: &Meta, protection: &str) {
    let others = meta.finalizers.iter().filter(|held| held.as_str() != protection);
    let finalizers: Vec<Box<str>> = others.map(|held| held.as_str().into()).collect();
    if finalizers.is_empty() {
        return;
    }
    let evidence = finalizers.iter().flat_map(|held| owner(trail.picture, meta, held)).collect();
    trail.find(subject, &Finding::FinalizersLeft { finalizers }, evidence);
}

/// Who takes a finalizer off, and what for.
fn owner(picture: &Picture, meta: &Meta, held: &str) -> Vec<String> {
    let name = meta.key.name();
    let line = |text: &str| vec![format!("{held}: {text}")];
    if held == finalizer::EXTERNAL_PROVISIONER.text() {
        return line("its provisioner takes it off once what the volume is made of is deleted");
    }
    if held == finalizer::PV_CONTROLLER.text() {
        return line("the binder takes it off once what the volume is made of is deleted");
    }
    if held == finalizer::CLONING_PROTECTION.text() {
        return line("a claim is being cloned from this one; it goes when that is done");
    }
    if let Some(driver) = held.strip_prefix(finalizer::EXTERNAL_ATTACHER_PREFIX) {
        let mut lines = line(&format!("the attacher of {driver} takes it off once the volume is attached nowhere"));
        let attached = picture.attachments.items().iter().filter(|held| held.volume.as_deref() == Some(name));
        lines.extend(attached.map(|held| format!("VolumeAttachment {} is on node {:?}", held.meta.key, held.node)));
        return lines;
    }
    if held == finalizer::CLAIM_AS_SOURCE_PROTECTION.text() {
        let mut lines = line("the snapshot controller takes it off once no snapshot is being taken of the claim");
        let of_claim = |held: &&api::Snapshot| {
            held.claim.as_deref() == Some(name) && held.meta.key.namespace() == meta.key.namespace() && !held.ready
        };
        let open = picture.snapshots.items().iter().filter(of_claim);
        lines.extend(open.map(|snapshot| {
            let error = snapshot.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            format!("VolumeSnapshot {} is not ready{error}", snapshot.meta.key)
        }));
        return lines;
    }
    match held.split_once('/') {
        Some((domain, _)) => line(&format!("a controller of {domain} takes it off; see whether it runs")),
        None => line("Kubernetes' garbage collector takes it off"),
    }
}
