//! Room for volumes that are still to be made (SCHED-5.3), with what is on its way counted (CTRL-14.22).
//!
//! A CSIStorageCapacity says what there was when it was written. Claims whose volumes are on their way since then are in
//! the [`Ledger`], and their size is taken off. A volume that was made stays there until its capacity object has been
//! written anew, or until [`SETTLED`] has passed: a driver with room without end never writes it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{Capacity, Claim, Meta, Pairs, Revision, Uid, Word};

use super::{Cluster, Moment};

/// How long a volume that was made is taken off a capacity that does not change: how often provisioners look
/// (PROVISION-2.12).
const SETTLED: Duration = Duration::from_secs(60);

/// A class that may have more room now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Freed(pub Word);

/// Volumes on their way.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<Uid, Entry>,
}

#[derive(Debug)]
struct Entry {
    class: Word,
    node: Word,
    bytes: i64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Wanted,
    /// What was written later than this counts the volume already.
    Made {
        revision: Revision,
        until: Moment,
    },
}

impl Ledger {
    /// A volume for this claim is to be made for this node.
    pub(super) fn reserve(&mut self, claim: &Claim, node: &Word) {
        let (class, bytes) = (Word::new(claim.class().text()), claim.request_bytes());
        let entry = Entry { class, node: node.clone(), bytes, state: State::Wanted };
        self.entries.insert(claim.meta.uid.clone(), entry);
    }

    /// The claim has its volume.
    pub(super) fn made(&mut self, claim: &Meta, now: Moment) {
        if let Some(entry) = self.entries.get_mut(&claim.uid)
            && entry.state == State::Wanted
        {
            entry.state = State::Made { revision: claim.revision, until: now + SETTLED };
        }
        self.entries.retain(|_, entry| !entry.is_over(now));
    }

    pub(super) fn forget(&mut self, claim: &Uid) -> Option<Freed> {
        self.entries.remove(claim).map(|entry| Freed(entry.class))
    }

    /// When room of these classes may come free without anything else happening.
    pub fn next_settled(&self, classes: &BTreeSet<Word>, now: Moment) -> Option<Moment> {
        let of_class = self.entries.values().filter(|entry| classes.contains(&entry.class));
        let ends = of_class.filter_map(|entry| match entry.state {
            State::Wanted => None,
            State::Made { until, .. } => Some(until),
        });
        ends.filter(|until| *until > now).min()
    }
}

impl Entry {
    fn is_over(&self, now: Moment) -> bool {
        matches!(self.state, State::Made { until, .. } if until <= now)
    }

    /// Whether a capacity of this revision does not know of it.
    fn is_unknown_to(&self, capacity: Revision) -> bool {
        match self.state {
            State::Wanted => true,
            State::Made { revision, .. } => capacity < revision,
        }
    }
}

/// The room of one class, part of the cluster by part.
#[derive(Debug)]
pub(super) struct Rooms {
    rooms: Vec<Room>,
    /// By the first label that a node must have, so that a node is compared with few (CTRL-14.24).
    by_label: BTreeMap<(Word, Box<str>), Vec<usize>>,
    labels: BTreeSet<Word>,
    /// Those that want no certain label.
    others: Vec<usize>,
}

#[derive(Debug)]
struct Room {
    capacity: Arc<Capacity>,
    /// Taken off by what is on its way.
    reserved: i64,
}

impl Room {
    fn fits(&self, bytes: i64, more: i64) -> bool {
        // What is held at the end of 64 bits may be more than any limit that is held there, too.
        let limit = bytes < i64::MAX && self.capacity.limit().is_some_and(|limit| bytes <= limit.bytes());
        let rest = self.capacity.capacity.as_ref().map(|capacity| capacity.bytes().saturating_sub(self.reserved));
        limit && rest.is_none_or(|rest| bytes.saturating_add(more) <= rest)
    }
}

/// What the claims of one pod would take on one node, room by room.
#[derive(Debug, Default)]
pub(super) struct Takes(BTreeMap<usize, i64>);

impl Rooms {
    /// The room of a class as it is with everything counted that is on its way.
    pub(super) fn new(class: &Word, cluster: &dyn Cluster, ledger: &Ledger, now: Moment) -> Self {
        let rooms = cluster.capacities(class).into_iter().map(|capacity| Room { capacity, reserved: 0 }).collect();
        let mut all = Self { rooms, by_label: BTreeMap::new(), labels: BTreeSet::new(), others: Vec::new() };
        for (at, room) in all.rooms.iter().enumerate() {
            // Without a topology no node has it.
            let Some(topology) = &room.capacity.node_topology else { continue };
            match topology.match_labels.iter().next() {
                Some((key, value)) => {
                    all.labels.insert(Word::new(key));
                    all.by_label.entry((Word::new(key), value.into())).or_default().push(at);
                }
                None => all.others.push(at),
            }
        }
        let counted = |entry: &&Entry| entry.class == *class && !entry.is_over(now);
        for entry in ledger.entries.values().filter(counted) {
            let Some(node) = cluster.node(&entry.node) else { continue };
            all.charge(&node.meta.labels, entry);
        }
        all
    }

    /// Takes an entry off the room where its volume is most likely made.
    fn charge(&mut self, labels: &Pairs, entry: &Entry) {
        let reached = self.reached(labels);
        let fitting = reached.iter().find(|at| self.rooms.get(**at).is_some_and(|room| room.fits(entry.bytes, 0)));
        let Some(at) = fitting.or(reached.first()) else { return };
        if let Some(room) = self.rooms.get_mut(*at)
            && entry.is_unknown_to(room.capacity.meta.revision)
        {
            room.reserved = room.reserved.saturating_add(entry.bytes);
        }
    }

    /// The rooms that a node with these labels has, in order of their keys.
    fn reached(&self, labels: &Pairs) -> Vec<usize> {
        let named = self.labels.iter().filter_map(|key| {
            let value = labels.get(key)?;
            self.by_label.get(&(key.clone(), value.into()))
        });
        let mut reached: Vec<usize> = named.flatten().chain(&self.others).copied().collect();
        let matches = |at: &usize| {
            let topology = self.rooms.get(*at).and_then(|room| room.capacity.node_topology.as_ref());
            topology.is_some_and(|topology| topology.matches(labels))
        };
        reached.retain(matches);
        reached.sort_unstable();
        reached
    }

    /// Takes room for one more claim of a pod, on top of what its other claims take. Gives the capacity it came from.
    pub(super) fn take(&self, labels: &Pairs, bytes: i64, takes: &mut Takes) -> Option<&Capacity> {
        let held = |at: &usize| takes.0.get(at).copied().unwrap_or(0);
        let fits = |at: &usize| self.rooms.get(*at).is_some_and(|room| room.fits(bytes, held(at)));
        let at = self.reached(labels).into_iter().find(fits)?;
        *takes.0.entry(at).or_default() += bytes;
        self.rooms.get(at).map(|room| &*room.capacity)
    }
}
