//! What speaks against deleting a volume, by its handle: every PersistentVolume and every VolumeAttachment of that handle
//! counts, whatever the objects are called.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::keys::annotation;
use api::{Attachment, ReclaimPolicy, Uid, Volume};
use tokio::time::Instant;

use super::witness::{Truth, handle_of};
use crate::keys;

/// Between the last look of a provisioner at the server and its call of the driver, an object may appear or change: no
/// provisioner can know of that. What has been there for longer than this must be known.
const UNAVOIDABLE: Duration = Duration::from_secs(20);

/// What is known of handles over time.
#[derive(Debug, Default)]
pub(super) struct HandleBook {
    /// Since when a PersistentVolume has the policy Retain.
    retained: BTreeMap<Uid, Instant>,
    attachments: BTreeMap<String, AttachmentSeen>,
    /// Handles that DeleteVolume was called for.
    doomed: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct AttachmentSeen {
    handle: Option<String>,
    node: String,
    since: Instant,
}

impl HandleBook {
    pub(super) fn volume_written(&mut self, volume: &Volume) {
        let uid = volume.meta.uid.clone();
        match volume.reclaim {
            ReclaimPolicy::Retain => drop(self.retained.entry(uid).or_insert_with(Instant::now)),
            ReclaimPolicy::Delete | ReclaimPolicy::Recycle | ReclaimPolicy::Unknown => drop(self.retained.remove(&uid)),
        }
    }

    /// An attachment belongs to the handle that its volume had when the attachment was first seen.
    pub(super) fn attachment_written(&mut self, name: &str, new: Option<&Attachment>, truth: &Truth) {
        let Some(new) = new.filter(|new| new.attacher == keys::DRIVER) else {
            self.attachments.remove(name);
            return;
        };
        let published = new.meta.annotation(annotation::PUBLISHED_HANDLE).map(str::to_owned);
        let volume = new.volume.as_ref().and_then(|volume| truth.volumes.get(volume));
        let handle = published.or_else(|| volume.and_then(|volume| handle_of(volume)).map(str::to_owned));
        let seen = AttachmentSeen { handle: None, node: new.node.to_string(), since: Instant::now() };
        let seen = self.attachments.entry(name.to_owned()).or_insert(seen);
        seen.handle = seen.handle.take().or(handle);
    }

    pub(super) fn is_doomed(&self, handle: &str) -> bool {
        self.doomed.contains(handle)
    }

    /// The handles that are attached somewhere.
    pub(super) fn attached(&self) -> BTreeSet<String> {
        self.attachments.values().filter_map(|seen| seen.handle.clone()).collect()
    }

    /// DeleteVolume was called for a handle: everything that speaks against it.
    pub(super) fn deletion_called(&mut self, handle: &str, truth: &Truth) -> Vec<String> {
        self.doomed.insert(handle.to_owned());
        let mut found = Vec::new();
        for volume in truth.volumes.values().filter(|volume| handle_of(volume) == Some(handle)) {
            let name = volume.name();
            if let Some(claim) = claim_that_has(truth, volume) {
                found.push(format!("deleted while in use: DeleteVolume {handle}, which is {name}, and {claim} has it"));
            }
            let since = self.retained.get(&volume.meta.uid);
            if since.is_some_and(|since| since.elapsed() > UNAVOIDABLE) {
                found.push(format!("deleted although retained: DeleteVolume {handle}, and {name} has policy Retain"));
            }
        }
        let of_handle = self.attachments.iter().filter(|(_, seen)| seen.handle.as_deref() == Some(handle));
        for (name, seen) in of_handle.filter(|(_, seen)| seen.since.elapsed() > UNAVOIDABLE) {
            let node = &seen.node;
            found.push(format!("deleted while attached: DeleteVolume {handle}, and {name} attaches it to {node}"));
        }
        found
    }
}

/// The claim that a volume is bound to and that knows so.
fn claim_that_has(truth: &Truth, volume: &Volume) -> Option<String> {
    let uid = volume.claim.as_ref()?.uid.as_ref()?;
    let claim = truth.claim_of(uid).filter(|claim| &*claim.volume_name == volume.name())?;
    Some(format!("claim {}", claim.key()))
}
