//! Who is woken by what.
//!
//! | What changed | Who is woken |
//! |---|---|
//! | a pod | itself; when it ends or goes: those who wait for one of its claims, or for a place on a node |
//! | a claim | the pods that use it; those who wait for room, when it needs none any more |
//! | a volume | the pods of the claim that it names or named; when it is free: those who wait for one of its class |
//! | a class | those who wait with a claim of it |
//! | a node | those without a node; those who are meant for it |
//! | a CSINode, an attachment | those who wait for a place |
//! | a capacity, a CSIDriver | those who wait for room (CTRL-14.28) |

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use api::{Claim, Class, Key, Node, Object, Pod, Volume, Word};
use lifecycle::schedule::book::Freed;
use runtime::{Cache, Change, Subscription};

use super::Inner;

/// What a pod without a node can wait for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    Nodes,
    Volumes(Word),
    Class(Word),
    Room(Word),
    Drivers,
    Limits,
}

/// Who waits for what.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_pod: BTreeMap<Key, BTreeSet<Topic>>,
    by_topic: BTreeMap<Topic, BTreeSet<Key>>,
}

impl Waiting {
    pub(super) fn put(&mut self, pod: &Key, topics: BTreeSet<Topic>) {
        self.forget(pod);
        for topic in &topics {
            self.by_topic.entry(topic.clone()).or_default().insert(pod.clone());
        }
        if !topics.is_empty() {
            self.by_pod.insert(pod.clone(), topics);
        }
    }

    pub(super) fn forget(&mut self, pod: &Key) {
        for topic in self.by_pod.remove(pod).unwrap_or_default() {
            if let Some(pods) = self.by_topic.get_mut(&topic) {
                pods.remove(pod);
                if pods.is_empty() {
                    self.by_topic.remove(&topic);
                }
            }
        }
    }

    pub(super) fn has(&self, pod: &Key) -> bool {
        self.by_pod.contains_key(pod)
    }

    /// Who waits for one of these.
    pub(super) fn of(&self, topics: &BTreeSet<Topic>) -> BTreeSet<Key> {
        topics.iter().filter_map(|topic| self.by_topic.get(topic)).flatten().cloned().collect()
    }
}

/// Follows the caches for as long as the answer lives.
pub(super) fn subscribe(inner: &Arc<Inner>) -> [Subscription; 9] {
    let view = &inner.view;
    [
        follow(inner, &view.pods, Inner::pod_changed),
        follow(inner, &view.claims, Inner::claim_changed),
        follow(inner, &view.volumes, Inner::volume_changed),
        follow(inner, &view.classes, Inner::class_changed),
        follow(inner, &view.nodes, Inner::node_changed),
        follow(inner, &view.csi_nodes, |inner, _| inner.wake(Topic::Limits)),
        follow(inner, &view.drivers, |inner, _| {
            inner.wake(Topic::Drivers);
            inner.wake(Topic::Limits);
        }),
        follow(inner, &view.capacities, |inner, change| {
            inner.wake(Topic::Room(change.object().storage_class_name.clone()));
        }),
        follow(inner, &view.attachments, |inner, change| {
            if change.after().is_none() {
                inner.wake(Topic::Limits);
            }
        }),
    ]
}

fn follow<T: Object>(inner: &Arc<Inner>, cache: &Cache<T>, changed: fn(&Inner, &Change<T>)) -> Subscription {
    let inner = inner.clone();
    cache.subscribe(move |change| changed(&inner, change))
}

impl Inner {
    fn wake(&self, topic: Topic) {
        let pods = self.state().waiting.of(&BTreeSet::from([topic]));
        pods.into_iter().for_each(|pod| self.queue.add(pod));
    }

    /// Wakes the pods of ours that use a claim.
    pub(super) fn wake_users(&self, claim: &Key, except: Option<&Key>) {
        self.view.pods_by_claim.visit(&claim.to_string(), |pod| {
            if self.is_ours(pod) && except != Some(&pod.meta.key) {
                self.queue.add(pod.meta.key.clone());
            }
            ControlFlow::Continue(())
        });
    }

    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        let ours = change.after().is_some_and(|pod| self.is_ours(pod));
        let known = || {
            let state = self.state();
            state.book.assignment(&pod.meta.key).is_some() || state.waiting.has(&pod.meta.key)
        };
        if ours || known() {
            self.queue.add(pod.meta.key.clone());
        }
        if !ours {
            self.notices.forget(&pod.meta.uid);
        }
        let runs = |pod: &Arc<Pod>| pod.scheduled() && !pod.terminated();
        if change.before().is_some_and(runs) && !change.after().is_some_and(runs) {
            pod.claims().for_each(|name| self.wake_users(&pod.meta.key.sibling(&name), None));
            self.wake(Topic::Limits);
        }
    }

    fn claim_changed(&self, change: &Change<Claim>) {
        let now = self.now();
        let freed = {
            let mut state = self.state();
            match change.after() {
                Some(claim) => state.book.saw(claim, now),
                None => state.book.gone(change.object()),
            }
        };
        if let Some(Freed(class)) = freed {
            self.wake(Topic::Room(class));
        }
        self.wake_users(change.key(), None);
    }

    fn volume_changed(&self, change: &Change<Volume>) {
        match change.after() {
            Some(volume) => self.state().book.shelf.put(volume.clone()),
            None => self.state().book.shelf.remove(change.key().name()),
        }
        let owner = |volume: &Arc<Volume>| volume.claim.as_ref().map(|reference| reference.key.clone());
        let (before, after) = (change.before().and_then(owner), change.after().and_then(owner));
        let owners: BTreeSet<Key> = before.into_iter().chain(after).collect();
        owners.iter().for_each(|claim| self.wake_users(claim, None));
        if let Some(volume) = change.after().filter(|volume| volume.claim.is_none()) {
            self.wake(Topic::Volumes(Word::new(volume.class().text())));
        }
    }

    fn class_changed(&self, change: &Change<Class>) {
        self.wake(Topic::Class(Word::new(change.key().name())));
    }

    fn node_changed(&self, change: &Change<Node>) {
        // A node says every few seconds that it is well; only what a pod may ask for counts.
        let asked = |node: &Arc<Node>| (node.meta.labels.clone(), node.taints.clone(), node.unschedulable);
        if change.before().map(asked) == change.after().map(asked) {
            return;
        }
        self.wake(Topic::Nodes);
        let meant: Vec<Key> = {
            let state = self.state();
            state.book.meant_for(change.key().name()).map(|assignment| assignment.pod.clone()).collect()
        };
        meant.into_iter().for_each(|pod| self.queue.add(pod));
    }
}
