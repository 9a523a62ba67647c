//! What one pass over one attachment has learned so far.

use std::sync::Arc;

use api::{Attachment, CsiNode, Uid};
use lifecycle::attach::restored::RestoredCluster;
use lifecycle::attacher::attachment::{Progress, SecretSeen};
use lifecycle::provision::csi::secrets::Reference;
use serde_json::Value;

use crate::Live;
use crate::provision::csi::wire::Values;

/// It has no `Debug`: it may hold the values of a secret.
#[derive(Default)]
pub(super) struct Round {
    uid: Uid,
    /// The PersistentVolume, whole.
    pub(super) volume: Option<Live<Value>>,
    pub(super) node: Option<Live<CsiNode>>,
    /// The handle that the attachment was named after, if the driver was asked.
    pub(super) listed: Option<Live<String>>,
    pub(super) restored: Option<RestoredCluster>,
    pub(super) secret: Option<Secret>,
    pub(super) progress: Progress,
}

/// A secret that was asked for.
pub(super) struct Secret {
    pub(super) reference: Reference,
    pub(super) read: Read,
}

pub(super) enum Read {
    Values(Values),
    /// The sentences say which secret it is, and nothing of what is in it.
    Unusable(String),
    Failed(String),
}

impl Round {
    /// Another attachment of the same name shares nothing with the one before it.
    pub(super) fn about(&mut self, attachment: &Arc<Attachment>) {
        if self.uid != attachment.meta.uid {
            *self = Self { uid: attachment.meta.uid.clone(), ..Self::default() };
        }
    }

    pub(super) fn secret_seen(&self) -> Option<(&Reference, SecretSeen<'_>)> {
        let Secret { reference, read } = self.secret.as_ref()?;
        let seen = match read {
            Read::Values(_) => SecretSeen::Held,
            Read::Unusable(why) => SecretSeen::Unusable(why),
            Read::Failed(why) => SecretSeen::Unread(why),
        };
        Some((reference, seen))
    }

    /// The values for a call that needs this secret.
    pub(super) fn values(&self, wanted: Option<&Reference>) -> Values {
        match (&self.secret, wanted) {
            (Some(Secret { reference, read: Read::Values(values) }), Some(wanted)) if reference == wanted => {
                values.clone()
            }
            _ => Values::new(),
        }
    }
}
