//! One claim's way, from the claim to its pods, with the time of each stage.

use std::collections::BTreeSet;
use std::fmt;

use api::{Attachment, Claim, ClaimPhase, Key, Pod, Volume};
use serde::Serialize;

use super::branch::{Branch, branches};
use super::moment::{Moment, Moments, Stage, When};
use super::station::{self, Station, Tone};
use crate::explain::Picture;

/// How many pods have stages of their own.
const TIMED: usize = 3;

/// Which way: that of a claim, or of a volume that no claim has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum WayId {
    Claim(Key),
    Volume(Box<str>),
}

impl fmt::Display for WayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(key) => write!(f, "claim/{key}"),
            Self::Volume(name) => write!(f, "volume/{name}"),
        }
    }
}

/// A way as it is drawn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Way {
    pub id: String,
    pub namespace: Option<Box<str>>,
    pub name: Box<str>,
    /// The worst of its stations'.
    pub tone: Tone,
    /// In milliseconds since 1970.
    pub created: i64,
    /// Absent on the way of a volume that no claim has.
    pub claim: Option<Station>,
    pub volume: Option<Station>,
    pub branches: Vec<Branch>,
    pub stages: Vec<Stage>,
}

/// The objects of a way.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) claim: Option<&'a Claim>,
    pub(super) volume: Option<&'a Volume>,
    /// Pods that use it and have not ended, the oldest first.
    pub(super) users: Vec<&'a Pod>,
}

/// All ways there are: one per claim, per claim that a pod misses, and per volume without a claim.
pub fn ways(picture: &Picture) -> BTreeSet<WayId> {
    let claims = picture.claims.items();
    let mut ways: BTreeSet<WayId> = claims.iter().map(|claim| WayId::Claim(claim.key().clone())).collect();
    if picture.claims.is_seen() {
        for pod in picture.pods.items().iter().filter(|pod| !pod.terminated()) {
            ways.extend(pod.claims().map(|name| WayId::Claim(pod.meta.key.sibling(&name))));
        }
    }
    let named: BTreeSet<&str> = claims.iter().map(|claim| &*claim.volume_name).collect();
    let free = picture.volumes.items().iter().filter(|volume| !named.contains(volume.name()));
    let free = free.filter(|volume| !made_for_a_claim(picture, volume));
    ways.extend(free.map(|volume| WayId::Volume(volume.name().into())));
    ways
}

/// Whether a claim that exists is to get the volume: then it is on that claim's way.
fn made_for_a_claim(picture: &Picture, volume: &Volume) -> bool {
    let Some(owner) = &volume.claim else { return false };
    let uid = owner.uid.as_ref();
    picture.claim(&owner.key).found().is_some_and(|claim| claim.volume_name.is_empty() && uid == Some(claim.uid()))
}

pub(super) fn parts<'a>(picture: &'a Picture, id: &WayId) -> Option<Parts<'a>> {
    match id {
        WayId::Volume(name) => {
            let volume = picture.volume(name).found()?;
            if picture.claims.items().iter().any(|claim| *claim.volume_name == **name)
                || made_for_a_claim(picture, volume)
            {
                return None;
            }
            Some(Parts { claim: None, volume: Some(volume), users: Vec::new() })
        }
        WayId::Claim(key) => {
            let claim = picture.claim(key).found();
            let volume = claim.and_then(|claim| volume_of(picture, claim));
            let uses = |pod: &&Pod| {
                pod.namespace() == key.namespace().unwrap_or_default() && pod.claims().any(|name| *name == *key.name())
            };
            let mut users: Vec<&Pod> =
                picture.pods.items().iter().filter(uses).filter(|pod| !pod.terminated()).collect();
            users.sort_by(|a, b| (a.meta.created, a.name()).cmp(&(b.meta.created, b.name())));
            (claim.is_some() || !users.is_empty()).then_some(Parts { claim, volume, users })
        }
    }
}

/// The volume that a claim names, or that was made for it and waits to be named.
fn volume_of<'a>(picture: &'a Picture, claim: &Claim) -> Option<&'a Volume> {
    match &*claim.volume_name {
        "" => picture.volumes.items().iter().find(|volume| {
            volume
                .claim
                .as_ref()
                .is_some_and(|owner| owner.uid.as_ref() == Some(claim.uid()) && !claim.uid().is_empty())
        }),
        name => picture.volume(name).found(),
    }
}

/// Draws a way; nothing if it is gone.
pub fn way(picture: &Picture, id: &WayId, moments: &Moments) -> Option<Way> {
    let parts = parts(picture, id)?;
    let (namespace, name): (Option<Box<str>>, Box<str>) = match id {
        WayId::Claim(key) => (key.namespace().map(Into::into), key.name().into()),
        WayId::Volume(name) => (None, name.clone()),
    };
    let claim = match (id, parts.claim) {
        (_, Some(claim)) => Some(station::claim(claim)),
        (WayId::Claim(key), None) => Some(station::missing(key)),
        (WayId::Volume(_), None) => None,
    };
    let volume = match (parts.volume, parts.claim) {
        (Some(volume), Some(claim)) => Some(station::claimed_volume(volume, claim)),
        (volume, _) => volume.map(station::volume),
    };
    let branches = branches(picture, parts.volume, &parts.users);
    let drawn = branches.iter().flat_map(|branch| branch.attachment.iter().chain(&branch.node).chain(&branch.pods));
    let tone = claim.iter().chain(&volume).chain(drawn).map(|station| station.tone).max().unwrap_or(Tone::Settled);
    let metas = [parts.claim.map(|claim| &claim.meta), parts.volume.map(|volume| &volume.meta)];
    let first = metas.into_iter().flatten().chain(parts.users.iter().map(|pod| &pod.meta)).next();
    let created = first.map_or(0, |meta| meta.created.0.saturating_mul(1000));
    let stages = stages(picture, &parts, moments);
    Some(Way { id: id.to_string(), namespace, name, tone, created, claim, volume, branches, stages })
}

fn stages(picture: &Picture, parts: &Parts<'_>, moments: &Moments) -> Vec<Stage> {
    let mut stages = Vec::new();
    if let Some(claim) = parts.claim {
        let of = format!("claim {}", claim.name());
        let created = moments.when(claim.uid(), Moment::Created, Some(claim.meta.created));
        let bound = match claim.phase {
            ClaimPhase::Bound => moments.when(claim.uid(), Moment::Bound, None),
            ClaimPhase::Pending | ClaimPhase::Lost => When::Ahead,
        };
        stages.push(Stage { name: "created", of: of.clone(), when: created });
        stages.extend(provisioned(parts.volume, bound, moments));
        stages.push(Stage { name: "bound", of, when: bound });
    } else if let Some(volume) = parts.volume {
        let when = moments.when(&volume.meta.uid, Moment::Created, Some(volume.meta.created));
        stages.push(Stage { name: "created", of: format!("volume {}", volume.name()), when });
    }
    for pod in parts.users.iter().take(TIMED) {
        stages.extend(of_pod(picture, parts.volume, pod, moments));
    }
    stages
}

/// When the volume was made, if it was made for a claim.
fn provisioned(volume: Option<&Volume>, bound: When, moments: &Moments) -> Option<Stage> {
    let made = |volume: &Volume| moments.when(&volume.meta.uid, Moment::Created, Some(volume.meta.created));
    match volume {
        Some(volume) if volume.provisioned_by().is_some() => {
            Some(Stage { name: "provisioned", of: format!("volume {}", volume.name()), when: made(volume) })
        }
        Some(_) => None,
        None if bound == When::Ahead => Some(Stage { name: "provisioned", of: "volume".to_owned(), when: When::Ahead }),
        None => None,
    }
}

fn of_pod(picture: &Picture, volume: Option<&Volume>, pod: &Pod, moments: &Moments) -> Vec<Stage> {
    let of = format!("pod {}", pod.name());
    let uid = &pod.meta.uid;
    let stage = |name, when| Stage { name, of: of.clone(), when };
    let scheduled = match pod.scheduled() {
        true => moments.when(uid, Moment::Scheduled, None),
        false => When::Ahead,
    };
    let mounted = match station::is_mounted(pod) {
        true => {
            let told = pod.volumes_ready.as_ref().filter(|said| said.ready).and_then(|said| said.since);
            moments.when(uid, Moment::Mounted, told)
        }
        false => When::Ahead,
    };
    let mut stages = vec![stage("created", moments.when(uid, Moment::Created, Some(pod.meta.created)))];
    stages.push(stage("scheduled", scheduled));
    let is_ours = |held: &&Attachment| {
        volume.is_some_and(|volume| held.volume.as_deref() == Some(volume.name())) && *held.node == *pod.node
    };
    if let Some(held) = picture.attachments.items().iter().find(is_ours) {
        let attached = match held.attached {
            true => moments.when(&held.meta.uid, Moment::Attached, None),
            false => When::Ahead,
        };
        stages.push(stage("attached", attached));
    }
    stages.push(stage("mounted", mounted));
    stages
}
