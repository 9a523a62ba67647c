//! Which volume the backend has published to which node, and what it says to ControllerPublish and its like.

use std::collections::{BTreeMap, BTreeSet};

use csi::v1;
use tonic::{Code, Status};
use v1::volume_capability::access_mode::Mode;

use super::{Backend, Habits, State};

/// The terms under which a volume is published to a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    pub readonly: bool,
    /// Whether no other node may have it.
    pub alone: bool,
    capability: Option<v1::VolumeCapability>,
    /// Counts publications, so that a context shows which one it is of.
    number: u64,
}

/// The attachments of a backend.
#[derive(Debug, Clone, Default)]
pub(super) struct Attachments {
    /// By volume, then by node.
    held: BTreeMap<String, BTreeMap<String, Published>>,
    /// The nodes it knows; none means any.
    nodes: BTreeSet<String>,
    made: u64,
}

/// The key in a publish context that holds the device's path on the node.
pub const DEVICE: &str = "device";

/// What a volume is on a node.
pub(super) fn device(volume: &str) -> String {
    format!("/dev/sim/{volume}")
}

/// Whether volumes of this capability may be on one node only.
pub(super) fn is_single(capability: Option<&v1::VolumeCapability>) -> bool {
    let mode = capability.and_then(|capability| capability.access_mode).map_or(Mode::Unknown, |mode| mode.mode());
    !matches!(mode, Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter)
}

impl State {
    /// A node that volumes can be published to. Without any, every name is one.
    pub fn know_node(&mut self, node: &str) {
        self.attachments.nodes.insert(node.to_owned());
    }

    /// The backend does not know this node any more; what is published to it stays.
    pub fn forget_node(&mut self, node: &str) {
        self.attachments.nodes.remove(node);
    }

    /// The nodes that have a volume, with the terms.
    pub fn published(&self, volume: &str) -> impl Iterator<Item = (&String, &Published)> {
        self.attachments.held.get(volume).into_iter().flatten()
    }

    /// Whether this node has this volume.
    pub fn is_published(&self, volume: &str, node: &str) -> bool {
        self.attachments.held.get(volume).is_some_and(|held| held.contains_key(node))
    }

    /// The volumes that a node has.
    pub fn volumes_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a String> {
        self.attachments.held.iter().filter(|(_, nodes)| nodes.contains_key(node)).map(|(volume, _)| volume)
    }

    /// ControllerPublishVolume, by a backend of these habits.
    pub fn publish(
        &mut self,
        request: &v1::ControllerPublishVolumeRequest,
        habits: &Habits,
    ) -> Result<v1::ControllerPublishVolumeResponse, Status> {
        let v1::ControllerPublishVolumeRequest { volume_id, node_id, volume_capability, readonly, .. } = request;
        if volume_id.is_empty() || node_id.is_empty() || volume_capability.is_none() {
            return Err(Status::invalid_argument("which volume, which node, and what for?"));
        }
        if self.get(volume_id).is_none() {
            return Err(Status::not_found(format!("there is no volume {volume_id:?}")));
        }
        let (nodes, alone) = (&self.attachments.nodes, is_single(volume_capability.as_ref()));
        if !nodes.is_empty() && !nodes.contains(node_id) {
            return Err(Status::not_found(format!("there is no node {node_id:?}")));
        }
        if let Some(there) = self.attachments.held.get(volume_id).and_then(|held| held.get(node_id)) {
            let same = (there.readonly, &there.capability) == (*readonly, volume_capability);
            return match same {
                true => Ok(context(volume_id, there)),
                false => Err(Status::already_exists(format!("{node_id} has {volume_id} on other terms"))),
            };
        }
        let taken = self.published(volume_id).find(|(_, other)| alone || other.alone);
        if let Some((other, _)) = taken.filter(|_| habits.backend == Backend::Strict) {
            return Err(Status::failed_precondition(format!("{volume_id} is published to {other}")));
        }
        let room = habits.per_node;
        if room > 0 && self.volumes_on(node_id).count() >= room as usize {
            return Err(Status::new(Code::ResourceExhausted, format!("{node_id} has {room} volumes already")));
        }
        self.attachments.made += 1;
        let (number, capability) = (self.attachments.made, volume_capability.clone());
        let published = Published { readonly: *readonly, alone, capability, number };
        let answer = context(volume_id, &published);
        self.attachments.held.entry(volume_id.clone()).or_default().insert(node_id.clone(), published);
        Ok(answer)
    }

    /// Publishes whatever it is, behind everybody's back: for mutations.
    pub fn force_publish(&mut self, volume: &str, node: &str) {
        self.attachments.made += 1;
        let number = self.attachments.made;
        let published = Published { readonly: false, alone: true, capability: None, number };
        self.attachments.held.entry(volume.to_owned()).or_default().entry(node.to_owned()).or_insert(published);
    }

    /// ControllerUnpublishVolume: from one node, or from all if none is named. What is not there is a success.
    pub fn unpublish(&mut self, volume: &str, node: &str) -> Vec<String> {
        let Some(held) = self.attachments.held.get_mut(volume) else { return Vec::new() };
        let gone: Vec<String> = held.keys().filter(|held| node.is_empty() || *held == node).cloned().collect();
        gone.iter().for_each(|node| drop(held.remove(node)));
        self.attachments.held.retain(|_, held| !held.is_empty());
        gone
    }

    /// ListVolumes, from a token that is a number.
    pub fn entries(&self, request: &v1::ListVolumesRequest) -> Result<v1::ListVolumesResponse, Status> {
        let bad = || Status::new(Code::Aborted, format!("there is no page {:?}", request.starting_token));
        let from: usize = match &*request.starting_token {
            "" => 0,
            token => token.parse().map_err(|_| bad())?,
        };
        let most = usize::try_from(request.max_entries).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
        let all: Vec<_> = self.volumes().collect();
        let entries = all.iter().skip(from).take(most).map(|volume| v1::list_volumes_response::Entry {
            volume: Some(self.answer(volume)),
            status: Some(v1::list_volumes_response::VolumeStatus {
                published_node_ids: self.published(&volume.id).map(|(node, _)| node.clone()).collect(),
                volume_condition: None,
            }),
        });
        let (entries, end): (Vec<_>, _) = (entries.collect(), from.saturating_add(most));
        let next_token = if end < all.len() { end.to_string() } else { String::new() };
        Ok(v1::ListVolumesResponse { entries, next_token })
    }
}

fn context(volume: &str, published: &Published) -> v1::ControllerPublishVolumeResponse {
    let publish_context =
        [(DEVICE.to_owned(), device(volume)), ("publication".to_owned(), published.number.to_string())];
    v1::ControllerPublishVolumeResponse { publish_context: publish_context.into() }
}
