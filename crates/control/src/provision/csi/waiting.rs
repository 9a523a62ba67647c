//! Who waits for what: claims and volumes that are looked at again when it comes.
//!
//! The queue's backoff stays the safety net: an entry that is lost with the process costs time and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use api::{Key, Uid};

/// Something that may come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// The driver on its socket.
    Driver,
    /// A change of a claim, which is another's source.
    Claim(Key),
    /// A change of a snapshot.
    Snapshot(Key),
    /// The end of a volume's attachment, by the PersistentVolume's name or the volume's unique name.
    Attachment(Box<str>),
    /// A change of what nodes say about themselves.
    Nodes,
}

#[derive(Debug, Default)]
pub(super) struct Woken {
    pub(super) claims: BTreeSet<Uid>,
    pub(super) volumes: BTreeSet<Box<str>>,
}

#[derive(Debug, Default)]
pub(super) struct Waiting {
    all: Mutex<BTreeMap<What, Woken>>,
}

impl Waiting {
    /// A claim waits for this.
    pub(super) fn claim(&self, what: What, uid: &Uid) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default().claims.insert(uid.clone());
    }

    /// A volume waits for this.
    pub(super) fn volume(&self, what: What, name: &str) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default().volumes.insert(name.into());
    }

    /// A claim waits for this no longer.
    pub(super) fn served(&self, what: &What, uid: &Uid) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(woken) = all.get_mut(what) {
            woken.claims.remove(uid);
            if woken.claims.is_empty() && woken.volumes.is_empty() {
                all.remove(what);
            }
        }
    }

    /// Everybody who waited for this.
    pub(super) fn take(&self, what: &What) -> Woken {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(what).unwrap_or_default()
    }
}
