//! Who is worked on when: the two queues, who waits for what, and whom the driver contradicts.
//!
//! The queues' backoff stays the safety net: an entry that is lost with the process costs time and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::keys::annotation;
use api::{Attachment, CsiNode, Key, Uid, Volume};
use lifecycle::attacher::attachment::Forced;
use lifecycle::attacher::{Attacher, volume};
use runtime::queue::Backoff;
use runtime::{Cache, Change, Queue, Subscription};

use crate::Context;

/// Something that may come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// The driver on its socket.
    Driver,
    /// A volume of this name that lives.
    Volume(Box<str>),
    /// What the drivers on a node say.
    Node(Box<str>),
}

#[derive(Debug)]
pub(super) struct Board {
    pub(super) attachments: Queue<Key>,
    /// Volumes on their way out, by name.
    pub(super) volumes: Queue<Box<str>>,
    /// The only node whose attachments are ours.
    node: Option<Box<str>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<What, BTreeSet<Key>>,
    /// Attachments whose status the driver contradicts.
    contradicted: BTreeMap<Key, Uid>,
}

impl Board {
    pub(super) fn new(context: &Context, backoff: Backoff, node: Option<&str>) -> Self {
        let Context { metrics, entropy, .. } = context;
        Self {
            attachments: Queue::new("csi-attacher-va", backoff, metrics, entropy),
            volumes: Queue::new("csi-attacher-pv", backoff, metrics, entropy),
            node: node.map(Into::into),
            state: Mutex::default(),
        }
    }

    /// Puts to work what changes (ATTACHER-3.3), for as long as the answer lives.
    pub(super) fn follow(
        self: &Arc<Self>,
        about: &Arc<Attacher>,
        attachments: &Cache<Attachment>,
        volumes: &Cache<Volume>,
    ) -> [Subscription; 2] {
        let (board, attacher) = (self.clone(), about.clone());
        let attachments = attachments.subscribe(move |change| board.attachment_changed(change, &attacher));
        let (board, attacher) = (self.clone(), about.clone());
        let volumes = volumes.subscribe(move |change| board.volume_changed(change, &attacher));
        [attachments, volumes]
    }

    /// Wakes those who wait for a node, for as long as the answer lives.
    pub(super) fn follow_nodes(self: &Arc<Self>, nodes: &Cache<CsiNode>) -> Subscription {
        let board = self.clone();
        nodes.subscribe(move |change| board.wake(&What::Node(change.key().name().into())))
    }

    fn attachment_changed(&self, change: &Change<Attachment>, attacher: &Attacher) {
        match change {
            Change::Added(new) if self.is_ours(new, attacher) => self.attachments.add(new.meta.key.clone()),
            Change::Changed { old, new } if self.is_ours(new, attacher) && matters(old, new, attacher) => {
                self.attachments.add(new.meta.key.clone());
            }
            Change::Added(_) | Change::Changed { .. } => {}
            Change::Removed(gone) => {
                self.forget(gone);
                // Whoever's it was: the volume may have waited for it.
                if let Some(volume) = &gone.volume {
                    self.volumes.add(volume.clone());
                }
            }
        }
    }

    fn volume_changed(&self, change: &Change<Volume>, attacher: &Attacher) {
        if let Some(new) = change.after()
            && volume::matters(new, attacher)
        {
            self.volumes.add(new.name().into());
        }
        if let Change::Added(_) | Change::Removed(_) = change {
            self.wake(&What::Volume(change.key().name().into()));
        }
    }

    /// Puts everybody who waited for this back to work.
    pub(super) fn wake(&self, what: &What) {
        let woken = self.state().waiting.remove(what).unwrap_or_default();
        woken.into_iter().for_each(|key| self.attachments.add(key));
    }

    /// An attachment waits for this.
    pub(super) fn wait(&self, key: &Key, what: What) {
        self.state().waiting.entry(what).or_default().insert(key.clone());
    }

    /// An attachment waits for this no longer.
    pub(super) fn served(&self, key: &Key, what: &What) {
        let mut state = self.state();
        if let Some(waiting) = state.waiting.get_mut(what) {
            waiting.remove(key);
            if waiting.is_empty() {
                state.waiting.remove(what);
            }
        }
    }

    /// An attachment is gone, and waits for nothing any more.
    fn forget(&self, gone: &Attachment) {
        let key = &gone.meta.key;
        self.state().contradicted.remove(key);
        let volume = gone.volume.as_deref().map(|name| What::Volume(name.into()));
        let waited = [Some(What::Driver), Some(What::Node(gone.node.as_str().into())), volume];
        waited.iter().flatten().for_each(|what| self.served(key, what));
    }

    /// The driver contradicts this attachment: whatever its status says, the call is repeated.
    pub(super) fn contradict(&self, attachment: &Attachment) {
        let key = attachment.meta.key.clone();
        self.state().contradicted.insert(key.clone(), attachment.meta.uid.clone());
        self.attachments.add(key);
    }

    pub(super) fn forced(&self, attachment: &Attachment) -> Forced {
        match self.state().contradicted.get(&attachment.meta.key) == Some(&attachment.meta.uid) {
            true => Forced::Yes,
            false => Forced::No,
        }
    }

    /// The call was repeated, and the driver agreed.
    pub(super) fn settled(&self, key: &Key) {
        self.state().contradicted.remove(key);
    }

    /// Whether attachments to this node are ours to carry out.
    pub(super) fn serves(&self, node: &str) -> bool {
        self.node.as_deref().is_none_or(|only| only == node)
    }

    pub(super) fn is_ours(&self, attachment: &Attachment, attacher: &Attacher) -> bool {
        *attachment.attacher == *attacher.name && self.serves(&attachment.node)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a change calls for a look. What we ourselves write does not: neither an error, which must not defeat its own
/// backoff, nor the record of what is going to be published.
fn matters(old: &Attachment, new: &Attachment, attacher: &Attacher) -> bool {
    let lost = |key| old.meta.annotation(key).is_some() && old.meta.annotation(key) != new.meta.annotation(key);
    let held = |attachment: &Attachment| attachment.meta.has_finalizer(&attacher.finalizer);
    old.meta.uid != new.meta.uid
        || old.meta.is_deleting() != new.meta.is_deleting()
        || (old.attached && !new.attached)
        || (held(old) && !held(new))
        || lost(annotation::NODE_ID)
        || lost(annotation::PUBLISHED_HANDLE)
}
