//! What was decided and does not show in the objects yet: which pod is meant for which node, which volumes and how much
//! room are promised.

use std::collections::{BTreeMap, BTreeSet};

use api::{Claim, Key, Uid, Word};

pub use super::capacity::Freed;
use super::capacity::Ledger;
use super::{Cluster, Moment};
use crate::bind::shelf::Shelf;

/// A pod that is meant for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub pod: Key,
    pub uid: Uid,
    pub node: Word,
    /// One per claim, in the order in which they are written: volumes that exist first (SCHED-5.6).
    pub steps: Vec<Step>,
    pub since: Moment,
    pub stage: Stage,
}

/// How far an assignment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its claims are not all bound yet.
    Preparing,
    /// The pod has its node; the cache may not know.
    Assigned,
}

/// How one claim gets its volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub claim: Key,
    pub uid: Uid,
    pub means: Means,
    /// Whether our wish was seen in the objects. If it is not there any more, somebody took it away.
    pub asked: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Means {
    /// It has one.
    Bound,
    /// A volume names it, and the binder does the rest.
    Designated { volume: Word },
    /// This free volume is to name it.
    Volume { volume: Word },
    /// One is made for the node.
    Make,
}

/// What a claim was promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Promise {
    Volume(Word),
    Node(Word),
}

/// The scheduler's memory. It can be lost at any time.
#[derive(Debug, Default)]
pub struct Book {
    /// Volumes that are free or reserved, as the objects say.
    pub shelf: Shelf,
    ledger: Ledger,
    assigned: BTreeMap<Key, Assignment>,
    /// Pods by the claims they have a plan for.
    by_claim: BTreeMap<Key, BTreeSet<Key>>,
    by_node: BTreeMap<Word, BTreeSet<Key>>,
    /// Free volumes that are promised, and to how many pods of the same claim.
    promised: BTreeMap<Word, usize>,
    /// How often a volume for a claim could not be made for a node.
    failures: BTreeMap<Uid, BTreeMap<Word, u32>>,
}

impl Book {
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The pods that are meant for a node.
    pub fn pods(&self) -> Vec<Key> {
        self.assigned.keys().cloned().collect()
    }

    pub fn assignment(&self, pod: &Key) -> Option<&Assignment> {
        self.assigned.get(pod)
    }

    pub fn assignment_mut(&mut self, pod: &Key) -> Option<&mut Assignment> {
        self.assigned.get_mut(pod)
    }

    /// The pods that are meant for a node, or have it without the cache knowing.
    pub fn meant_for(&self, node: &str) -> impl Iterator<Item = &Assignment> {
        let pods = self.by_node.get(&Word::new(node)).into_iter().flatten();
        pods.filter_map(|pod| self.assigned.get(pod))
    }

    /// The pods that have a plan for a claim.
    pub fn planned_for(&self, claim: &Key) -> impl Iterator<Item = &Key> {
        self.by_claim.get(claim).into_iter().flatten()
    }

    /// Volumes that no other claim may be offered.
    pub(super) fn taken(&self) -> BTreeSet<Word> {
        self.promised.keys().cloned().collect()
    }

    pub(super) fn promise(&self, claim: &Key) -> Option<Promise> {
        let assignment = self.planned_for(claim).find_map(|pod| self.assigned.get(pod))?;
        let step = assignment.steps.iter().find(|step| step.claim == *claim)?;
        match &step.means {
            Means::Bound => None,
            Means::Designated { volume } | Means::Volume { volume } => Some(Promise::Volume(volume.clone())),
            Means::Make => Some(Promise::Node(assignment.node.clone())),
        }
    }

    /// Reserve (SCHED-5.5): from now on nobody else is given what this pod was.
    pub fn assume(&mut self, assignment: Assignment, cluster: &dyn Cluster) {
        for step in &assignment.steps {
            self.by_claim.entry(step.claim.clone()).or_default().insert(assignment.pod.clone());
            match &step.means {
                Means::Volume { volume } => *self.promised.entry(volume.clone()).or_default() += 1,
                Means::Make => {
                    if let Some(claim) = cluster.claim(&step.claim) {
                        self.ledger.reserve(&claim, &assignment.node);
                    }
                }
                Means::Bound | Means::Designated { .. } => {}
            }
        }
        self.by_node.entry(assignment.node.clone()).or_default().insert(assignment.pod.clone());
        self.assigned.insert(assignment.pod.clone(), assignment);
    }

    /// Unreserve: the plan is off, or the objects now say all of it. Gives the classes that may have more room.
    pub fn release(&mut self, pod: &Key, cluster: &dyn Cluster, now: Moment) -> Vec<Word> {
        let Some(assignment) = self.assigned.remove(pod) else { return Vec::new() };
        discard(&mut self.by_node, &assignment.node, pod);
        let mut freed = Vec::new();
        for step in &assignment.steps {
            discard(&mut self.by_claim, &step.claim, pod);
            match &step.means {
                Means::Volume { volume } => self.keep_less(volume),
                Means::Make => freed.extend(match cluster.claim(&step.claim) {
                    Some(claim) if claim.meta.uid == step.uid => self.saw(&claim, now),
                    _ => self.ledger.forget(&step.uid),
                }),
                Means::Bound | Means::Designated { .. } => {}
            }
        }
        freed.into_iter().map(|Freed(class)| class).collect()
    }

    /// The plan of a pod has failed. The choice is always the same for the same state, so that without this the same node
    /// would be tried for ever, though another may do.
    pub fn failed(&mut self, pod: &Key) {
        let Some(assignment) = self.assigned.get(pod) else { return };
        for step in assignment.steps.iter().filter(|step| step.means == Means::Make) {
            let failures = self.failures.entry(step.uid.clone()).or_default();
            *failures.entry(assignment.node.clone()).or_default() += 1;
        }
    }

    /// How often volumes for these claims could not be made for a node.
    pub(super) fn failures<'a>(&self, claims: impl Iterator<Item = &'a Uid>, node: &str) -> u32 {
        let node = Word::new(node);
        claims.filter_map(|claim| self.failures.get(claim)?.get(&node)).sum()
    }

    fn keep_less(&mut self, volume: &Word) {
        if let Some(count) = self.promised.get_mut(volume) {
            *count -= 1;
            if *count == 0 {
                self.promised.remove(volume);
            }
        }
    }

    /// A claim has changed: room that was kept for it may be needed no more, or has to be kept from now on.
    pub fn saw(&mut self, claim: &Claim, now: Moment) -> Option<Freed> {
        let planned = matches!(self.promise(claim.key()), Some(Promise::Node(_)));
        match (claim.volume_name.is_empty(), claim.selected_node()) {
            (false, _) => {
                self.failures.remove(&claim.meta.uid);
                self.ledger.made(&claim.meta, now);
                None
            }
            (true, Some(node)) => {
                self.ledger.reserve(claim, &Word::new(node));
                None
            }
            (true, None) if planned => None,
            (true, None) => self.ledger.forget(&claim.meta.uid),
        }
    }

    /// A claim is gone.
    pub fn gone(&mut self, claim: &Claim) -> Option<Freed> {
        self.failures.remove(&claim.meta.uid);
        self.ledger.forget(&claim.meta.uid)
    }
}

fn discard<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = map.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(key);
        }
    }
}
