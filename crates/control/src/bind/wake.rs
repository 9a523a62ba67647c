//! Who is woken by what.
//!
//! | What changed | Who is woken |
//! |---|---|
//! | a claim | itself; when it is gone or points elsewhere: the volumes that name it, and the one it named |
//! | a volume | itself, the claim it names, the claim it named, and the claims that name it |
//! | a volume became free | one claim that it suits, and the next one if that one did not take it |
//! | a class | the claims of that class that wait; those without a class when it is a default |
//! | a pod | the claims it names that wait |
//!
//! Waking *one* claim per free volume is enough, and keeps ten thousand volumes from waking ten thousand claims each: at
//! rest no free volume suits any waiting claim, so only the volume that became free can change that, for one claim. A
//! claim that was woken is not offered anything else until its pass is over: it sees the whole shelf then anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{BindingMode, Claim, Class, ClassName, Key, Pod, Volume, VolumeMode, VolumePhase, Word};
use lifecycle::bind::compatible;
use lifecycle::bind::shelf::Offer;
use runtime::cache::Lookup;
use runtime::{Cache, Change, Index, Object, Subscription};

use super::Inner;

/// Which claims wait, and for what.
#[derive(Debug)]
pub(super) struct Wakes {
    by_class: Lookup<Claim>,
    by_volume: Lookup<Claim>,
    by_claim: Lookup<Volume>,
    waiting: Mutex<Waiting>,
}

/// Claims that wait for a volume.
#[derive(Debug, Default)]
struct Waiting {
    /// What each of them wants.
    wishes: BTreeMap<Key, Wish>,
    /// Those that a free volume may be offered to.
    open: BTreeSet<Wish>,
    /// Those that were woken for a volume, until their pass is over: the wish at that time, and the volumes.
    woken: BTreeMap<Key, (Wish, Vec<Word>)>,
}

/// What a volume must be to suit a claim. In order of size within a shape, the largest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    shape: Box<str>,
    smallness: u64,
    claim: Option<Key>,
}

impl Wish {
    fn of(claim: &Claim) -> Self {
        let shape = shape(claim.class().text(), claim.mode, claim.attributes_class());
        Self { shape, smallness: smallness(claim.request_bytes()), claim: Some(claim.key().clone()) }
    }

    /// Before every claim that could have the volume.
    fn first_for(volume: &Volume) -> Self {
        let shape = shape(volume.class().text(), volume.mode, volume.attributes_class());
        Self { shape, smallness: smallness(volume.capacity_bytes()), claim: None }
    }
}

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

fn shape(class: &str, mode: VolumeMode, attributes_class: &str) -> Box<str> {
    // No name can contain two slashes in a row, so the parts cannot run into each other.
    format!("{class}//{}//{attributes_class}", mode.name()).into()
}

/// Larger sizes have smaller numbers.
fn smallness(bytes: i64) -> u64 {
    u64::MAX - u64::try_from(bytes).unwrap_or(0)
}

impl Wakes {
    pub(super) fn new(claims: &Cache<Claim>, volumes: &Cache<Volume>) -> Self {
        Self {
            by_class: claims.index(WAITING_BY_CLASS),
            by_volume: claims.index(CLAIMS_BY_VOLUME),
            by_claim: volumes.index(VOLUMES_BY_CLAIM),
            waiting: Mutex::default(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a claim.
    fn changed(&self, key: &Key, claim: Option<&Arc<Claim>>) {
        let mut waiting = self.waiting();
        if let Some(old) = waiting.wishes.remove(key) {
            waiting.open.remove(&old);
        }
        if let Some(claim) = claim.filter(|claim| waits(claim)) {
            let wish = Wish::of(claim);
            if !waiting.woken.contains_key(key) {
                waiting.open.insert(wish.clone());
            }
            waiting.wishes.insert(key.clone(), wish);
        }
    }

    /// The next open claim that a free volume suits; it is not open any more.
    fn choose(&self, volume: &Volume, after: Option<&Wish>, claims: &Cache<Claim>) -> Option<Key> {
        let first = Wish::first_for(volume);
        let mut waiting = self.waiting();
        let from = after.filter(|after| **after > first).unwrap_or(&first).clone();
        let range = waiting.open.range((Bound::Excluded(from), Bound::Unbounded));
        let mut same_shape = range.take_while(|wish| wish.shape == first.shape);
        let suits = |wish: &&Wish| {
            let claim = wish.claim.as_ref().and_then(|key| claims.get(key));
            claim.is_some_and(|claim| compatible::picked(&claim, volume).is_ok())
        };
        let wish = same_shape.find(suits)?.clone();
        let key = wish.claim.clone()?;
        waiting.open.remove(&wish);
        waiting.woken.insert(key.clone(), (wish, vec![Word::new(volume.name())]));
        Some(key)
    }

    /// A pass over a claim is over: what it was woken for, and where it stands in the order.
    fn over(&self, claim: &Key) -> Option<(Wish, Vec<Word>)> {
        let mut waiting = self.waiting();
        let ended = waiting.woken.remove(claim);
        if let Some(wish) = waiting.wishes.get(claim).cloned() {
            waiting.open.insert(wish);
        }
        ended
    }
}

/// Follows everything that concerns a binder, for as long as the answer lives.
pub(super) fn subscribe(inner: &Arc<Inner>) -> [Subscription; 4] {
    [
        follow(inner, &inner.volumes, volume_changed),
        follow(inner, &inner.claims, claim_changed),
        follow(inner, &inner.classes, class_changed),
        follow(inner, &inner.context.cache::<Pod>(), pod_changed),
    ]
}

fn follow<T: Object>(inner: &Arc<Inner>, cache: &Cache<T>, changed: fn(&Inner, &Change<T>)) -> Subscription {
    let inner = inner.clone();
    cache.subscribe(move |change| changed(&inner, change))
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
            offer(inner, volume, None);
        }
    } else {
        inner.notices.forget(&change.object().meta.uid);
        inner.metrics.volume_gone(change.object());
    }
    // A claim may name a volume that names nobody, or another: whatever became of it is news to that claim.
    inner.claims_naming(key.name()).into_iter().for_each(|claim| inner.claim_queue.add(claim));
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

/// Wakes the next claim that a free volume suits.
fn offer(inner: &Inner, volume: &Volume, after: Option<&Wish>) {
    if !inner.chooses(volume.class()) {
        return;
    }
    if let Some(claim) = inner.wakes.choose(volume, after, &inner.claims) {
        inner.claim_queue.add(claim);
    }
}

/// After a pass over a claim that tried to get these volumes: what is still free goes on to others.
pub(super) fn pass_over(inner: &Inner, key: &Key, tried: &[Word]) {
    let free = |name: &Word| inner.volumes.get(&Key::cluster(name)).filter(|volume| is_free(volume));
    // Others looked past what this pass held: any of them may want it.
    tried.iter().filter_map(free).for_each(|volume| offer(inner, &volume, None));
    if let Some((wish, volumes)) = inner.wakes.over(key) {
        // It did not want what it was woken for, nor did those before it.
        volumes.iter().filter_map(free).for_each(|volume| offer(inner, &volume, Some(&wish)));
    }
    // A volume that came between its last look and now found nobody to be offered to.
    let waiting = inner.claims.get(key).filter(|claim| waits(claim));
    if let Some(claim) = waiting.filter(|claim| inner.chooses(claim.class()))
        && matches!(inner.shelf().offer(&claim), Offer::Free(_))
    {
        inner.claim_queue.add(key.clone());
    }
}

fn claim_changed(inner: &Inner, change: &Change<Claim>) {
    let key = change.key();
    inner.wakes.changed(key, change.after());
    // A claim that is gone still has a pass, which passes on what it was woken for.
    inner.claim_queue.add(key.clone());
    if change.after().is_none() {
        let gone = change.object();
        inner.notices.forget(gone.uid());
        inner.context.handoff.forget(gone.uid());
        inner.metrics.claim_gone(gone);
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
        match inner.claims.get(&key) {
            // Only the sentence about who is waited for depends on pods.
            Some(claim) if waits(&claim) => inner.claim_queue.add(key),
            Some(_) => {}
            // A volume is not emptied before the last pod that had it has ended.
            None => inner.volumes_naming(&key).into_iter().for_each(|volume| inner.volume_queue.add(volume)),
        }
    }
}

impl Inner {
    /// Whether the binder gives free volumes of a class away. With delayed binding the scheduler chooses, and with a
    /// mode that nobody knows nobody does.
    fn chooses(&self, class: ClassName<'_>) -> bool {
        let class = match class {
            ClassName::Named(name) => self.classes.get(&Key::cluster(name)),
            ClassName::Unset | ClassName::None => None,
        };
        class.is_none_or(|class| class.volume_binding_mode == Some(BindingMode::Immediate))
    }

    fn claims_naming(&self, volume: &str) -> Vec<Key> {
        self.wakes.by_volume.all(volume).iter().map(|claim| claim.key().clone()).collect()
    }

    fn volumes_naming(&self, claim: &Key) -> Vec<Key> {
        self.wakes.by_claim.all(&claim.to_string()).iter().map(|volume| volume.meta.key.clone()).collect()
    }
}
