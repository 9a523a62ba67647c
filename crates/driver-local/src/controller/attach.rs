//! ControllerPublishVolume and ControllerUnpublishVolume: which node may use a volume, and how.
//!
//! The storage is on this node, so attaching moves nothing. It is a promise kept on disk: staging demands it, deleting
//! respects it, and a node's limit counts it.

use driver_sdk::{Access, AttachVolume, DetachFrom, Error, Kind, NodeId, StringMap, VolumeId, failpoint};

use crate::config;
use crate::core::{Core, Found};
use crate::fault;
use crate::keys;
use crate::pool::{Hold, Place};
use crate::record::{AccessKind, Attachment, VolumeRecord};

/// Is a volume attached for reading only?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachAs {
    ReadWrite,
    ReadOnly,
}

impl Core {
    pub fn attach_volume(&self, request: &AttachVolume, how: AttachAs) -> Result<StringMap, Error> {
        let (found, _) = self.volume(&request.volume)?;
        let node = request.node.as_str();
        if node != self.config.node_id {
            return Err(Error::not_found(Kind::Node, node));
        }
        let lock = self.hold(&found, Hold::Exclusive)?;
        let record: VolumeRecord = found.object.record().map_err(fault::record)?;
        let wanted = wanted(request, &record, how)?;
        let mut attachments = found.object.attachments().map_err(fault::record)?;
        match attachments.nodes.get(node) {
            Some(now) if *now == wanted => return Ok(publish_context(&wanted)),
            Some(_) => {
                return Err(Error::exists(format!(
                    "volume {} is attached to {node} in another way; detach it first",
                    record.id
                )));
            }
            None => {}
        }
        self.take_slot(&record.id, node)?;
        attachments.nodes.insert(node.to_owned(), wanted.clone());
        if let Err(error) = found.object.write_attachments(&attachments) {
            self.free_slot(&record.id, node);
            return Err(fault::sys(error).leaving_residue());
        }
        failpoint::hit("attach.recorded");
        drop(lock);
        Ok(publish_context(&wanted))
    }

    pub fn detach_volume(&self, id: &VolumeId, from: &DetachFrom) -> Result<(), Error> {
        let Some(found) = self.find(Place::Volumes, id.as_str())? else { return Ok(()) };
        let lock = self.hold(&found, Hold::Exclusive)?;
        let record: VolumeRecord = found.object.record().map_err(fault::record)?;
        let mut attachments = found.object.attachments().map_err(fault::record)?;
        let leaving: Vec<String> = match from {
            DetachFrom::AllNodes => attachments.nodes.keys().cloned().collect(),
            DetachFrom::Node(node) => {
                attachments.nodes.contains_key(node.as_str()).then(|| node.to_string()).into_iter().collect()
            }
        };
        if leaving.is_empty() {
            return Ok(());
        }
        refuse_staged(&found, &record)?;
        for node in &leaving {
            attachments.nodes.remove(node);
        }
        found.object.write_attachments(&attachments).map_err(|error| fault::sys(error).leaving_residue())?;
        failpoint::hit("detach.recorded");
        leaving.iter().for_each(|node| self.free_slot(&record.id, node));
        drop(lock);
        Ok(())
    }

    /// Where a volume is attached, for lists. One that cannot be read must not hide all others: it is told as attached
    /// nowhere, and its condition says what is wrong.
    pub fn attached_nodes(&self, id: &VolumeId) -> Vec<NodeId> {
        let Ok(Some(found)) = self.find_open(Place::Volumes, id.as_str()) else { return Vec::new() };
        match found.object.attachments() {
            Ok(attachments) => attachments.nodes.into_keys().map(NodeId::new).collect(),
            Err(error) => {
                tracing::error!(volume = %id, error = %error, "its attachments cannot be read");
                Vec::new()
            }
        }
    }

    fn take_slot(&self, id: &str, node: &str) -> Result<(), Error> {
        let mut attached = self.attached();
        let slots = attached.entry(node.to_owned()).or_default();
        match self.config.attachment {
            config::Attachment::On { limit: Some(limit) } if !slots.contains(id) && slots.len() as u64 >= limit => Err(
                Error::no_space(format!("node {node} has {} volumes attached, and its limit is {limit}", slots.len())),
            ),
            config::Attachment::On { .. } | config::Attachment::Off => {
                slots.insert(id.to_owned());
                Ok(())
            }
        }
    }

    fn free_slot(&self, id: &str, node: &str) {
        if let Some(slots) = self.attached().get_mut(node) {
            slots.remove(id);
        }
    }
}

fn wanted(request: &AttachVolume, record: &VolumeRecord, how: AttachAs) -> Result<Attachment, Error> {
    let access = match request.capability.access {
        Access::Block => AccessKind::Block,
        Access::Mount(_) => AccessKind::Mount,
    };
    if access != record.access {
        return Err(Error::invalid(
            "volume_capability",
            "it says block for a mount volume, or mount for a block volume",
        ));
    }
    Ok(Attachment { read_only: how == AttachAs::ReadOnly, access, mode: request.capability.mode })
}

fn publish_context(attachment: &Attachment) -> StringMap {
    let mut context = StringMap::new();
    if attachment.read_only {
        context.insert(keys::ATTACHED_READ_ONLY.to_owned(), "true".to_owned());
    }
    context
}

/// Detaching under a mount would let the volume be deleted under a workload. The node unstages first.
fn refuse_staged(found: &Found<'_>, record: &VolumeRecord) -> Result<(), Error> {
    let table = linux::mountinfo::MountTable::read().map_err(fault::sys)?;
    match crate::node::all_mounts(found, &table)?.first() {
        None => Ok(()),
        Some(place) => Err(Error::busy(format!("volume {} is still in use at {}", record.id, place.display()))),
    }
}
