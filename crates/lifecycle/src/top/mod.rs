//! Top: how full volumes are, how many of a node's places are taken, how much room there is, and how much work waits.
//!
//! Numbers of usage and queues come from whoever measures them; without them, what the API alone shows is left: places on
//! nodes and room in pools. What could not be reached is named.

mod render;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use api::node::Readiness;
use api::selector::LabelSelector;
use api::{Amount, Claim, ClaimPhase, Key, Pod, Source};

use crate::attach::{Target, parse_unique};
use crate::explain::{Picture, Unseen};
use crate::measured::{Queue, Usage, Usages};

/// What was measured by whom.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    pub usages: Usages,
    /// Queues by the process that has them.
    pub queues: Vec<(Box<str>, Queue)>,
    pub unreachable: Vec<Unreachable>,
}

/// Somebody who did not tell what it measures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    pub what: String,
    /// The node whose volumes are not measured because of it.
    pub node: Option<Box<str>>,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Top {
    /// Whether all namespaces were looked at.
    pub everywhere: bool,
    /// The fullest first; those that nobody measured last.
    pub claims: Vec<Filling>,
    pub places: Vec<Places>,
    pub rooms: Vec<Room>,
    /// The longest first.
    pub queues: Vec<(Box<str>, Queue)>,
    pub unreachable: Vec<Unreachable>,
    pub unseen: Vec<Unseen>,
}

/// How full a claim's volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filling {
    pub claim: Key,
    pub volume: Box<str>,
    pub size: Option<Amount>,
    /// Where it is attached, or else where its pods are.
    pub nodes: BTreeSet<Box<str>>,
    pub usage: Option<Usage>,
}

/// How many volumes of a driver a node has, of how many it may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    pub node: Box<str>,
    pub driver: Box<str>,
    pub taken: usize,
    pub limit: Limit,
    pub ready: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Of(u64),
    /// The driver gave no number.
    None,
    /// The driver is not registered on the node, though volumes of it are there.
    Unregistered,
}

/// Room for new volumes, as a driver's provisioner says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    pub class: Box<str>,
    /// The labels of the nodes that can reach it.
    pub place: String,
    pub free: Option<Amount>,
    pub largest: Option<Amount>,
}

/// Arranges what was seen and measured. Without a namespace it is about all of them.
pub fn arrange(picture: &Picture, measured: Measured, namespace: Option<&str>) -> Top {
    let mut queues = measured.queues;
    queues.sort_by(|(process, queue), (other, next)| {
        next.depth.cmp(&queue.depth).then_with(|| (process, &queue.name).cmp(&(other, &next.name)))
    });
    let claims = claims(picture, &measured.usages, namespace);
    let mut unreachable = measured.unreachable;
    unreachable.retain(|one| one.node.as_deref().is_none_or(|node| !measured_otherwise(picture, &claims, node)));
    Top {
        everywhere: namespace.is_none(),
        claims,
        places: places(picture),
        rooms: rooms(picture),
        queues,
        unreachable,
        unseen: picture.unseen(),
    }
}

/// Whether somebody else told how full the volumes of a node are. One that no pod has mounted cannot be measured.
fn measured_otherwise(picture: &Picture, claims: &[Filling], node: &str) -> bool {
    let has = |pod: &Pod| pod.running || pod.volumes_ready.as_ref().is_some_and(|said| said.ready);
    let mounted = |filling: &&Filling| {
        let uses = |pod: &Pod| {
            Some(pod.namespace()) == filling.claim.namespace()
                && pod.claims().any(|name| *name == *filling.claim.name())
        };
        picture.pods.items().iter().any(|pod| *pod.node == *node && has(pod) && uses(pod))
    };
    picture.pods.is_seen() && claims.iter().filter(mounted).all(|filling| filling.usage.is_some())
}

fn claims(picture: &Picture, usages: &Usages, namespace: Option<&str>) -> Vec<Filling> {
    let here = |claim: &&Claim| namespace.is_none_or(|namespace| claim.namespace() == namespace);
    let bound = picture.claims.items().iter().filter(here).filter(|claim| claim.phase == ClaimPhase::Bound);
    let mut claims: Vec<Filling> = bound
        .map(|claim| Filling {
            claim: claim.key().clone(),
            volume: claim.volume_name.clone(),
            size: claim.status.capacity.clone().or_else(|| claim.request.clone()),
            nodes: nodes(picture, claim),
            usage: usages.get(claim.key()).copied(),
        })
        .collect();
    let share = |filling: &Filling| filling.usage.as_ref().and_then(Usage::percent);
    claims.sort_by(|one, other| share(other).cmp(&share(one)).then_with(|| one.claim.cmp(&other.claim)));
    claims
}

fn nodes(picture: &Picture, claim: &Claim) -> BTreeSet<Box<str>> {
    let of_volume = |attachment: &&api::Attachment| attachment.volume.as_deref() == Some(&*claim.volume_name);
    let attached = picture.attachments.items().iter().filter(of_volume);
    let attached: BTreeSet<Box<str>> = attached.map(|attachment| attachment.node.as_str().into()).collect();
    if !attached.is_empty() {
        return attached;
    }
    let users = picture.users(claim).filter(|pod| pod.wants_volumes());
    users.map(|pod| pod.node.clone()).collect()
}

/// A node and a driver.
type OnNode = (Box<str>, Box<str>);

/// Volumes by node and driver. One that is attached and used is one, and one that nobody can name takes a place, too.
fn places(picture: &Picture) -> Vec<Places> {
    let mut taken: BTreeMap<OnNode, BTreeSet<Box<str>>> = BTreeMap::new();
    for attachment in picture.attachments.items() {
        let volume = attachment.volume.as_ref().and_then(|name| picture.volume(name).found());
        let handle = volume.and_then(|volume| match &volume.source {
            Source::Csi { handle, .. } => Some(handle.clone()),
            _ => Target::of_volume(volume).ok().flatten().map(|target| target.handle),
        });
        let inline = || attachment.inline.as_ref()?.pointer("/csi/volumeHandle")?.as_str().map(Box::from);
        let handle = handle.or_else(inline).unwrap_or_else(|| format!("attachment/{}", attachment.name()).into());
        let place = (attachment.node.as_str().into(), attachment.attacher.as_str().into());
        taken.entry(place).or_default().insert(handle);
    }
    for node in picture.nodes.items() {
        let names = node.in_use.iter().map(|name| &**name).chain(node.attached.iter().map(|volume| &*volume.name));
        for (driver, handle) in names.filter_map(parse_unique) {
            taken.entry((node.name().into(), driver.into())).or_default().insert(handle.into());
        }
    }
    let mut limits: BTreeMap<OnNode, Limit> = taken.keys().map(|place| (place.clone(), Limit::Unregistered)).collect();
    for node in picture.csi_nodes.items() {
        for driver in &node.drivers {
            let count = driver.allocatable.and_then(|allocatable| allocatable.count);
            let limit = count.and_then(|count| u64::try_from(count).ok()).map_or(Limit::None, Limit::Of);
            limits.insert((node.meta.key.name().into(), driver.name.as_str().into()), limit);
        }
    }
    let places = limits.into_iter().map(|((node, driver), limit)| {
        let taken = taken.get(&(node.clone(), driver.clone())).map_or(0, BTreeSet::len);
        let ready = picture.node(&node).found().is_none_or(|node| node.ready == Readiness::Ready);
        Places { node, driver, taken, limit, ready }
    });
    places.collect()
}

fn rooms(picture: &Picture) -> Vec<Room> {
    let mut rooms: Vec<Room> = picture
        .capacities
        .items()
        .iter()
        .map(|capacity| Room {
            class: capacity.storage_class_name.as_str().into(),
            place: capacity.node_topology.as_ref().map_or_else(|| "no node".to_owned(), place),
            free: capacity.capacity.clone(),
            largest: capacity.maximum_volume_size.clone(),
        })
        .collect();
    rooms.sort_by(|one, other| (&one.class, &one.place).cmp(&(&other.class, &other.place)));
    rooms
}

/// A topology as its labels. One without any is everywhere.
fn place(topology: &LabelSelector) -> String {
    let labels = topology.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
    let mut parts: Vec<String> = labels.collect();
    parts.extend(topology.match_expressions.iter().map(|requirement| {
        let values: Vec<&str> = requirement.values.iter().map(|value| &**value).collect();
        format!("{} {:?} [{}]", requirement.key, requirement.operator, values.join(","))
    }));
    match parts.is_empty() {
        true => "every node".to_owned(),
        false => parts.join(","),
    }
}
