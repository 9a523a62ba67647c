//! Who is woken by what.
//!
//! | What changed | Who is woken |
//! |---|---|
//! | a claim | itself; when it is gone or points elsewhere: the volumes that name it, and the one it named |
//! | a volume | itself, the claim it names, the claim it named |
//! | a volume became free | one claim that it suits, and the next one if that one did not take it |
//! | a class | the claims of that class that wait; those without a class when it is a default |
//! | a pod | the claims it names that wait |
//!
//! Waking *one* claim per free volume is enough, and keeps ten thousand volumes from waking ten thousand claims each: at
//! rest no free volume suits any waiting claim, so only the volume that became free can change that, for one claim.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use api::{Claim, Class, ClassName, Key, Pod, Volume, VolumeMode, VolumePhase, Word};
use lifecycle::bind::compatible;
use runtime::cache::Lookup;
use runtime::{Cache, Change, Index};

use super::{Binder, Inner};

/// Which claims wait, and which volume woke which of them.
#[derive(Debug)]
pub(super) struct Wakes {
    /// Waiting claims by what a volume must be to suit them, the largest request first.
    waiting: Lookup<Claim>,
    by_class: Lookup<Claim>,
    by_volume: Lookup<Claim>,
    by_claim: Lookup<Volume>,
    /// Claims that were woken for a free volume, and the volume.
    offered: Mutex<BTreeMap<Key, BTreeMap<Word, Offered>>>,
}

/// What a claim has to do with a free volume.
#[derive(Debug, Clone, Copy)]
enum Offered {
    /// It was woken for it.
    Woken,
    /// It tried to get it, and others did not see the volume meanwhile.
    Tried,
}

/// Whom a free volume was offered to before.
#[derive(Debug, Clone, Copy)]
enum After<'a> {
    Nobody,
    /// This one did not want it, nor did those before it in order.
    Declined(&'a Key),
    /// This one tried and did not get it; others may have looked past the volume meanwhile.
    Failed(&'a Key),
}

const WAITING: Index<Claim> = Index {
    name: "waiting",
    values: |claim, put| {
        if waits(claim) {
            let shape = shape(claim.class().text(), claim.mode, claim.attributes_class());
            put(&format!("{shape}{:020}", largest_first(claim.request_bytes())));
        }
    },
};

const WAITING_BY_CLASS: Index<Claim> = Index {
    name: "waiting-by-class",
    values: |claim, put| {
        if waits(claim) {
            put(claim.class().text());
        }
    },
};

/// Claims by the volume they name.
const CLAIMS_BY_VOLUME: Index<Claim> = Index {
    name: "volume",
    values: |claim, put| {
        if !claim.volume_name.is_empty() {
            put(&claim.volume_name);
        }
    },
};

/// Volumes by the claim they name.
const VOLUMES_BY_CLAIM: Index<Volume> = Index {
    name: "claim",
    values: |volume, put| {
        if let Some(reference) = &volume.claim {
            put(&reference.key.to_string());
        }
    },
};

fn waits(claim: &Claim) -> bool {
    claim.volume_name.is_empty() && !claim.bind_completed() && !claim.meta.is_deleting()
}

fn shape(class: &str, mode: VolumeMode, attributes_class: &str) -> String {
    // No name can contain a slash twice in a row, so the parts cannot run into each other.
    format!("{class}//{}//{attributes_class}//", mode.name())
}

/// Orders as text so that larger sizes come first.
fn largest_first(bytes: i64) -> u64 {
    u64::MAX - u64::try_from(bytes).unwrap_or(0)
}

impl Wakes {
    pub(super) fn new(claims: &Cache<Claim>, volumes: &Cache<Volume>) -> Self {
        Self {
            waiting: claims.index(WAITING),
            by_class: claims.index(WAITING_BY_CLASS),
            by_volume: claims.index(CLAIMS_BY_VOLUME),
            by_claim: volumes.index(VOLUMES_BY_CLAIM),
            offered: Mutex::default(),
        }
    }

    /// The next waiting claim that a free volume suits.
    fn suited(&self, volume: &Volume, after: After<'_>) -> Option<Key> {
        let shape = shape(volume.class().text(), volume.mode, volume.attributes_class());
        let from = format!("{shape}{:020}", largest_first(volume.capacity_bytes()));
        let (last, except) = match after {
            After::Nobody => (None, None),
            After::Declined(claim) => (Some(claim), None),
            After::Failed(claim) => (None, Some(claim)),
        };
        let (mut found, mut passed) = (None, last.is_none());
        self.waiting.range(&from, |value, claim| {
            if !value.starts_with(&shape) {
                return ControlFlow::Break(());
            }
            if passed && except != Some(claim.key()) && compatible::picked(claim, volume).is_ok() {
                found = Some(claim.key().clone());
                return ControlFlow::Break(());
            }
            passed = passed || last == Some(claim.key());
            ControlFlow::Continue(())
        });
        found
    }

    fn offer(&self, claim: &Key, volume: Word, how: Offered) {
        let mut offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        offered.entry(claim.clone()).or_default().insert(volume, how);
    }

    /// A pass over this claim tries to get this volume, which nobody else can see meanwhile.
    pub(super) fn tried(&self, claim: &Key, volume: &Word) {
        self.offer(claim, volume.clone(), Offered::Tried);
    }

    fn offers_to(&self, claim: &Key) -> BTreeMap<Word, Offered> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner).remove(claim).unwrap_or_default()
    }
}

/// Subscribes a binder to everything that concerns it. It holds the binder weakly: the caches may outlive it.
pub(super) fn subscribe(binder: &Binder) {
    let inner = Arc::downgrade(&binder.inner);
    let weak = inner.clone();
    binder.inner.volumes.subscribe(move |change| {
        if let Some(inner) = weak.upgrade() {
            volume_changed(&inner, change);
        }
    });
    let weak = inner.clone();
    binder.inner.claims.subscribe(move |change| {
        if let Some(inner) = weak.upgrade() {
            claim_changed(&inner, change);
        }
    });
    let weak = inner.clone();
    binder.inner.classes.subscribe(move |change| {
        if let Some(inner) = weak.upgrade() {
            class_changed(&inner, change);
        }
    });
    binder.inner.context.cache::<Pod>().subscribe(move |change| {
        if let Some(inner) = inner.upgrade() {
            pod_changed(&inner, change);
        }
    });
}

fn volume_changed(inner: &Inner, change: &Change<Volume>) {
    let key = change.key();
    let freed = {
        let mut shelf = inner.shelf();
        match change.after() {
            Some(volume) => {
                shelf.put(volume.clone());
                is_free(volume) && !change.before().is_some_and(|before| is_free(before) && same_offer(before, volume))
            }
            None => {
                shelf.remove(key.name());
                false
            }
        }
    };
    let states = [change.before(), change.after()].into_iter().flatten();
    let named = states.filter_map(|volume| volume.claim.as_ref()).map(|reference| reference.key.clone());
    named.for_each(|claim| inner.claim_queue.add(claim));
    if let Some(volume) = change.after() {
        inner.volume_queue.add(key.clone());
        if freed {
            offer_next(inner, volume, After::Nobody);
        }
    } else {
        inner.notices.forget(&change.object().meta.uid);
        inner.metrics.volume_gone(change.object());
        // A claim may name a volume that names nobody.
        inner.claims_naming(key.name()).into_iter().for_each(|claim| inner.claim_queue.add(claim));
    }
    if let Change::Added(volume) = change {
        inner.claims_naming(volume.name()).into_iter().for_each(|claim| inner.claim_queue.add(claim));
    }
}

fn is_free(volume: &Volume) -> bool {
    volume.claim.is_none() && volume.phase == VolumePhase::Available && !volume.meta.is_deleting()
}

/// Whether a claim that did not suit the volume before cannot suit it now either.
fn same_offer(before: &Volume, now: &Volume) -> bool {
    before.capacity == now.capacity
        && before.class() == now.class()
        && before.access == now.access
        && before.attributes_class() == now.attributes_class()
        && before.meta.labels == now.meta.labels
}

/// Wakes the next claim that a free volume suits. With delayed binding the scheduler chooses, not we.
fn offer_next(inner: &Inner, volume: &Volume, after: After<'_>) {
    if inner.class_of(volume.class()).is_some_and(|class| class.delayed()) {
        return;
    }
    if let Some(claim) = inner.wakes.suited(volume, after) {
        inner.wakes.offer(&claim, Word::new(volume.name()), Offered::Woken);
        inner.claim_queue.add(claim);
    }
}

/// After a pass over a claim: what was offered to it and is still free goes to the next one.
pub(super) fn pass_on(inner: &Inner, claim: &Key) {
    for (name, how) in inner.wakes.offers_to(claim) {
        let volume = inner.volumes.get(&Key::cluster(&name));
        if let Some(volume) = volume.filter(|volume| is_free(volume)) {
            let after = match how {
                Offered::Woken => After::Declined(claim),
                Offered::Tried => After::Failed(claim),
            };
            offer_next(inner, &volume, after);
        }
    }
}

fn claim_changed(inner: &Inner, change: &Change<Claim>) {
    let key = change.key();
    if change.after().is_some() {
        inner.claim_queue.add(key.clone());
    } else {
        let gone = change.object();
        inner.notices.forget(gone.uid());
        inner.context.handoff.forget(gone.uid());
        inner.metrics.claim_gone(gone);
        pass_on(inner, key);
    }
    let moved = match change {
        Change::Added(claim) => !claim.volume_name.is_empty(),
        Change::Changed { old, new } => old.volume_name != new.volume_name || old.meta.uid != new.meta.uid,
        Change::Removed(_) => true,
    };
    if moved {
        let states = [change.before(), change.after()].into_iter().flatten();
        let named = states.map(|claim| &claim.volume_name).filter(|name| !name.is_empty());
        named.for_each(|name| inner.volume_queue.add(Key::cluster(name)));
        inner.volumes_naming(key).into_iter().for_each(|volume| inner.volume_queue.add(volume));
    }
}

fn class_changed(inner: &Inner, change: &Change<Class>) {
    let class = change.object();
    let wake = |name: &str| {
        inner.wakes.by_class.visit(name, |claim| {
            inner.claim_queue.add(claim.key().clone());
            ControlFlow::Continue(())
        });
    };
    wake(class.name());
    if class.is_default() {
        wake("");
    }
}

fn pod_changed(inner: &Inner, change: &Change<Pod>) {
    let pod = change.object();
    for name in pod.claims() {
        let key = Key::namespaced(pod.namespace(), &name);
        // Only the sentence about who is waited for depends on pods.
        if inner.claims.get(&key).is_some_and(|claim| waits(&claim)) {
            inner.claim_queue.add(key);
        }
    }
}

impl Inner {
    pub(super) fn class_of(&self, name: ClassName<'_>) -> Option<Arc<Class>> {
        match name {
            ClassName::Named(name) => self.classes.get(&Key::cluster(name)),
            ClassName::Unset | ClassName::None => None,
        }
    }

    fn claims_naming(&self, volume: &str) -> Vec<Key> {
        self.wakes.by_volume.all(volume).iter().map(|claim| claim.key().clone()).collect()
    }

    fn volumes_naming(&self, claim: &Key) -> Vec<Key> {
        self.wakes.by_claim.all(&claim.to_string()).iter().map(|volume| volume.meta.key.clone()).collect()
    }
}
