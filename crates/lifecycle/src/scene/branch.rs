//! Where a volume goes: its attachments, their nodes, and the pods there.

use std::collections::BTreeMap;

use api::{Attachment, Pod, Source, Volume};
use serde::Serialize;

use super::station::{self, Station};
use crate::decision::Lookup;
use crate::explain::Picture;

/// How many pods of a branch are drawn by name.
const SHOWN: usize = 4;

/// One node that a volume is on, or is to come to. Without a node: pods that have none yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Branch {
    pub attachment: Option<Station>,
    pub node: Option<Station>,
    pub pods: Vec<Station>,
    /// Pods beyond those that are drawn.
    pub more: usize,
}

/// The branches of a volume, in the order of their nodes; pods without a node come last.
pub(super) fn branches(picture: &Picture, volume: Option<&Volume>, users: &[&Pod]) -> Vec<Branch> {
    let mut nodes: BTreeMap<&str, (Option<&Attachment>, Vec<&Pod>)> = BTreeMap::new();
    if let Some(volume) = volume {
        let held = picture.attachments.items().iter();
        for attachment in held.filter(|held| held.volume.as_deref() == Some(volume.name())) {
            nodes.entry(&attachment.node).or_default().0 = Some(attachment);
        }
    }
    for pod in users {
        nodes.entry(&pod.node).or_default().1.push(pod);
    }
    let waiting = nodes.remove("");
    let placed = nodes.into_iter().map(|(node, (attachment, pods))| Branch {
        attachment: attachment.map(station::attachment).or_else(|| not_attached(picture, volume)),
        node: Some(at(picture, node)),
        ..of(&pods)
    });
    let unplaced = waiting.map(|(_, pods)| of(&pods));
    placed.chain(unplaced).collect()
}

fn of(pods: &[&Pod]) -> Branch {
    let drawn = pods.iter().take(SHOWN).map(|pod| station::pod(pod)).collect();
    Branch { pods: drawn, more: pods.len().saturating_sub(SHOWN), ..Branch::default() }
}

fn at(picture: &Picture, name: &str) -> Station {
    match picture.node(name) {
        Lookup::Found(node) => station::node(name, Some(node)),
        Lookup::Absent => station::node(name, None),
        Lookup::NotCached => station::unseen_node(name),
    }
}

/// Some drivers attach nothing, and say so.
fn not_attached(picture: &Picture, volume: Option<&Volume>) -> Option<Station> {
    let Source::Csi { driver, .. } = &volume?.source else { return Some(station::not_attached("")) };
    let known = picture.drivers.items().iter().find(|known| known.meta.key.name() == &**driver)?;
    (known.spec.attach_required == Some(false)).then(|| station::not_attached(driver))
}
