//! What an engine knows between two looks at one object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{Claim, Uid, Volume};
use lifecycle::outcome::Retry;
use lifecycle::provision::backing::is_same_backing;
use serde_json::Value;
use tokio::time::Instant;

use crate::provision::intent::Intent;

/// What an engine knows. Only `begun` is more than an optimisation, and the journal has it, too.
#[derive(Debug)]
pub(super) struct Memory<Plan> {
    state: Mutex<State<Plan>>,
}

#[derive(Debug)]
struct State<Plan> {
    begun: BTreeMap<Uid, Begun<Plan>>,
    /// Entries of the journal that cannot be understood, and what was said about them.
    unreadable: BTreeMap<Uid, Arc<str>>,
    /// Claims that got a volume from us.
    served: BTreeSet<Uid>,
    held: BTreeMap<Uid, Arc<Held>>,
    /// Volumes whose backing we deleted, and when that began.
    emptied: BTreeMap<Uid, Instant>,
    /// Volumes that cannot be deleted yet because they are in use, and since when.
    in_use: BTreeMap<Uid, Instant>,
}

/// An open intent.
#[derive(Debug)]
pub(super) struct Begun<Plan> {
    pub(super) intent: Arc<Intent<Plan>>,
    pub(super) known: Known,
    pub(super) writer: IntentWriter,
    /// Storing the volume was tried before: it may have been stored, and taken away by an operator since.
    pub(super) store_tried: bool,
    pub(super) since: Instant,
}

/// Which process wrote an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IntentWriter {
    This,
    Earlier,
}

impl<Plan> Clone for Begun<Plan> {
    fn clone(&self) -> Self {
        Self {
            intent: self.intent.clone(),
            known: self.known.clone(),
            writer: self.writer,
            store_tried: self.store_tried,
            since: self.since,
        }
    }
}

/// What is known of a creation.
#[derive(Debug, Clone)]
pub(super) enum Known {
    /// Found in the journal: a process before us may have done anything, and our cache may be from before that.
    Found,
    /// Written down just now, by us: nobody was asked for it yet.
    New,
    /// It was asked for, or may have been.
    Open,
    Made(Arc<Made>),
    Refused {
        message: String,
        retry: Retry,
    },
    Undone,
}

/// A volume that exists and waits to be stored.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) volume: Volume,
    pub(super) body: Value,
}

/// A request that was refused as invalid (PROVISION-2.4.1).
#[derive(Debug)]
pub(super) struct Held {
    pub(super) claim: Arc<Claim>,
    pub(super) class: Uid,
    pub(super) message: String,
    pub(super) until: Instant,
}

impl<Plan> Default for State<Plan> {
    fn default() -> Self {
        Self {
            begun: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            served: BTreeSet::new(),
            held: BTreeMap::new(),
            emptied: BTreeMap::new(),
            in_use: BTreeMap::new(),
        }
    }
}

impl<Plan> Default for Memory<Plan> {
    fn default() -> Self {
        Self { state: Mutex::default() }
    }
}

impl<Plan> Memory<Plan> {
    fn state(&self) -> MutexGuard<'_, State<Plan>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reset(&self) {
        *self.state() = State::default();
    }

    pub(super) fn begin(&self, claim: &Uid, intent: Arc<Intent<Plan>>, known: Known) {
        let writer = match known {
            Known::Found => IntentWriter::Earlier,
            Known::New | Known::Open | Known::Made(_) | Known::Refused { .. } | Known::Undone => IntentWriter::This,
        };
        let begun = Begun { intent, known, writer, store_tried: false, since: Instant::now() };
        self.state().begun.entry(claim.clone()).or_insert(begun);
    }

    pub(super) fn begun(&self, claim: &Uid) -> Option<Begun<Plan>> {
        self.state().begun.get(claim).cloned()
    }

    pub(super) fn is_begun(&self, claim: &Uid) -> bool {
        self.state().begun.contains_key(claim)
    }

    pub(super) fn learn(&self, claim: &Uid, known: Known) {
        if let Some(begun) = self.state().begun.get_mut(claim) {
            begun.known = known;
        }
    }

    /// The volume is made. Refused, with the claim, if another claim's volume that is not stored yet is made of the same.
    pub(super) fn made(&self, claim: &Uid, made: Made) -> Result<(), Uid> {
        let mut state = self.state();
        let same = |known: &Known| matches!(known, Known::Made(held) if is_same_backing(&held.volume, &made.volume));
        if let Some((other, _)) = state.begun.iter().find(|(uid, begun)| *uid != claim && same(&begun.known)) {
            return Err(other.clone());
        }
        if let Some(begun) = state.begun.get_mut(claim) {
            begun.known = Known::Made(Arc::new(made));
        }
        Ok(())
    }

    /// The volume is about to be sent to the server.
    pub(super) fn storing(&self, claim: &Uid) {
        if let Some(begun) = self.state().begun.get_mut(claim) {
            begun.store_tried = true;
        }
    }

    pub(super) fn end(&self, claim: &Uid) {
        self.state().begun.remove(claim);
    }

    pub(super) fn unreadable(&self, claim: &Uid, message: String) {
        self.state().unreadable.insert(claim.clone(), message.into());
    }

    pub(super) fn is_unreadable(&self, claim: &Uid) -> Option<Arc<str>> {
        self.state().unreadable.get(claim).cloned()
    }

    pub(super) fn readable(&self, claim: &Uid) {
        self.state().unreadable.remove(claim);
    }

    pub(super) fn served(&self, claim: &Uid) {
        self.state().served.insert(claim.clone());
    }

    pub(super) fn was_served(&self, claim: &Uid) -> bool {
        self.state().served.contains(claim)
    }

    pub(super) fn hold(&self, claim: &Uid, held: Held) {
        self.state().held.insert(claim.clone(), Arc::new(held));
    }

    /// What is held back, unless its time is over.
    pub(super) fn held(&self, claim: &Uid) -> Option<Arc<Held>> {
        let mut state = self.state();
        let held = state.held.get(claim)?.clone();
        if held.until <= Instant::now() {
            state.held.remove(claim);
            return None;
        }
        Some(held)
    }

    pub(super) fn emptied(&self, volume: &Uid, since: Instant) {
        self.state().emptied.insert(volume.clone(), since);
    }

    pub(super) fn emptied_since(&self, volume: &Uid) -> Option<Instant> {
        self.state().emptied.get(volume).copied()
    }

    /// How long the volume has been in use though it should be deleted.
    pub(super) fn in_use(&self, volume: &Uid) -> Duration {
        self.state().in_use.entry(volume.clone()).or_insert_with(Instant::now).elapsed()
    }

    /// The claim is gone. What was begun for it is not.
    pub(super) fn forget_claim(&self, claim: &Uid) {
        let mut state = self.state();
        state.served.remove(claim);
        state.held.remove(claim);
    }

    pub(super) fn forget_volume(&self, volume: &Uid) {
        let mut state = self.state();
        state.emptied.remove(volume);
        state.in_use.remove(volume);
    }
}
