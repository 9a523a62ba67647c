//! Whether anything is attached of a volume that is to be deleted (PROVISION-2.11.4).
//!
//! An attachment may name a PersistentVolume that is gone, or another one of the same volume: it is found by driver and
//! handle. The server itself is asked, since a cache that lags shows a volume as free; many deletions share one answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::{Attachment, Volume};
use lifecycle::attach::{AttachmentIdentity, identify, unique_name};
use lifecycle::outcome::Retry;
use runtime::client::Error;
use tokio::sync::Mutex;

use super::Inner;
use super::waiting::What;
use crate::Context;
use crate::attacher::{all_attachments, restored_nodes};
use crate::handles::VOLUMES_BY_BACKING;
use crate::provision::Failed;

/// Whether the driver publishes volumes to nodes, so that an attachment is more than a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Publishing {
    Yes,
    No,
}

/// All attachments as the server had them. Who asks gets an answer that was begun after the question.
#[derive(Debug, Default)]
pub(super) struct SharedAttachments {
    tickets: AtomicU64,
    last: Mutex<Option<(u64, Arc<ListedAttachments>)>>,
}

#[derive(Debug)]
struct ListedAttachments {
    attachments: Vec<Attachment>,
    /// Nodes that may have volumes without an attachment, since the objects were restored from a backup.
    unconfirmed: Vec<Box<str>>,
}

impl SharedAttachments {
    async fn read(&self, context: &Context, own: Option<&str>) -> Result<Arc<ListedAttachments>, Error> {
        let asked = self.tickets.fetch_add(1, Ordering::Relaxed);
        let mut last = self.last.lock().await;
        if let Some((begun, listed)) = &*last
            && *begun > asked
        {
            return Ok(listed.clone());
        }
        let begun = self.tickets.fetch_add(1, Ordering::Relaxed);
        // Nodes first: one that reports in between has attachments for everything by then.
        let unconfirmed = restored_nodes(context, own).await?.iter().map(|node| node.name().into()).collect();
        let all = Arc::new(ListedAttachments { attachments: all_attachments(context).await?, unconfirmed });
        *last = Some((begun, all.clone()));
        Ok(all)
    }
}

impl Inner {
    /// Nothing is deleted under an attachment, whoever made it and whether or not it is attached.
    pub(super) async fn check_detached(
        self: &Arc<Self>,
        volume: &Volume,
        handle: &str,
        publishing: Publishing,
    ) -> Result<(), Failed> {
        let unique = unique_name(self.name(), handle);
        let waits = [What::Attachment(volume.name().into()), What::Attachment(unique.as_str().into())];
        // Noted before the look, so that an end between the two is not missed.
        waits.iter().for_each(|what| self.waiting.volume(what.clone(), volume.name()));
        if publishing == Publishing::Yes {
            let attachments = self.attachments();
            if let Some(held) = attachments.first(volume.name()).or_else(|| attachments.first(&unique)) {
                return Err(in_use(volume, &held));
            }
        }
        let listed =
            match self.listed.read(&self.context, self.options.node.as_ref().map(|mode| mode.name.as_str())).await {
                Ok(listed) => listed,
                Err(Error::Forbidden { message }) if publishing == Publishing::No => {
                    tracing::warn!(volume = volume.name(), message, "deleting without a look at VolumeAttachments");
                    return Ok(());
                }
                Err(error) => {
                    let message = format!("the attachments cannot be read: {error}");
                    return Err(Failed::Refused { message, retry: Retry::Later });
                }
            };
        let twins = self.context.cache::<Volume>().index(VOLUMES_BY_BACKING).all(&unique);
        let names: BTreeSet<&str> = twins.iter().map(|twin| twin.name()).chain([volume.name()]).collect();
        let is_of = |held: &&Attachment| {
            held.volume.as_deref().is_some_and(|name| names.contains(name))
                || identify(held, (self.name(), handle)) == AttachmentIdentity::Of
        };
        if let Some(node) = listed.unconfirmed.first() {
            let message = format!(
                "the objects were restored from a backup, and node {node} has not reported yet which volumes it uses"
            );
            return Err(Failed::Refused { message, retry: Retry::Later });
        }
        match listed.attachments.iter().find(is_of) {
            None => {
                waits.iter().for_each(|what| drop(self.waiting.take(what)));
                Ok(())
            }
            Some(held) => {
                // Its end wakes the volume.
                self.attachments();
                Err(in_use(volume, held))
            }
        }
    }
}

fn in_use(volume: &Volume, held: &Attachment) -> Failed {
    let message = format!("persistentvolume {} is still attached to node {}", volume.name(), held.node);
    Failed::InUse { message }
}
