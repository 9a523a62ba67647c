//! Which events are worth writing: client-go's rules, without I/O.
//!
//! 1. Per source and object a bucket of 25 events, refilled by one every 300 s; what exceeds it is dropped.
//! 2. More than 10 events within 600 s that differ only in their message become one, which says so.
//! 3. An event that repeats is counted on the one that exists.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::{Happening, Severity};

const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_secs(300);
const SIMILAR: usize = 10;
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// How many objects, groups and events are remembered.
const MEMORY: usize = 4096;

/// What all events of a bucket, group or record have in common.
type About = (Box<str>, api::object::Key, api::object::Uid);
type Group = (About, Severity, Box<str>);

/// What to do with an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Too many about this object.
    Drop,
    /// Count it on the event of this id, or make that event. The message may differ from what was said.
    Record { id: EventId, message: Box<str> },
}

/// Which event in the cluster: what repeats has the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EventId {
    group: Group,
    /// Empty for an event that stands for many messages.
    message: Box<str>,
}

/// A map that forgets what was used longest ago.
#[derive(Debug)]
struct Memory<K, V> {
    entries: BTreeMap<K, (u64, V)>,
    uses: BTreeMap<u64, K>,
    clock: u64,
}

impl<K: Ord + Clone, V: Default> Memory<K, V> {
    fn new() -> Memory<K, V> {
        Memory { entries: BTreeMap::new(), uses: BTreeMap::new(), clock: 0 }
    }

    fn touch(&mut self, key: &K) -> &mut V {
        self.clock += 1;
        if !self.entries.contains_key(key)
            && self.entries.len() >= MEMORY
            && let Some((_, oldest)) = self.uses.pop_first()
        {
            self.entries.remove(&oldest);
        }
        let (used, value) = self.entries.entry(key.clone()).or_insert_with(|| (self.clock, V::default()));
        self.uses.remove(used);
        *used = self.clock;
        self.uses.insert(self.clock, key.clone());
        value
    }
}

#[derive(Debug, Default)]
struct Bucket(Option<(f64, Instant)>);

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let (tokens, at) = self.0.unwrap_or((BURST, now));
        let refilled = (tokens + (now - at).as_secs_f64() / REFILL.as_secs_f64()).min(BURST);
        let allowed = refilled >= 1.0;
        self.0 = Some((if allowed { refilled - 1.0 } else { refilled }, now));
        allowed
    }
}

#[derive(Debug, Default)]
struct Similar {
    messages: BTreeSet<Box<str>>,
    last: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Correlator {
    buckets: Memory<About, Bucket>,
    groups: Memory<Group, Similar>,
}

impl Correlator {
    pub(super) fn new() -> Correlator {
        Correlator { buckets: Memory::new(), groups: Memory::new() }
    }

    pub(super) fn decide(&mut self, event: &Happening, now: Instant) -> Step {
        let about: About = (event.about.kind.kind.into(), event.about.key.clone(), event.about.uid.clone());
        if !self.buckets.touch(&about).take(now) {
            return Step::Drop;
        }
        let group: Group = (about, event.severity, event.reason.clone());
        let similar = self.groups.touch(&group);
        if similar.last.is_none_or(|last| now - last > SIMILAR_WITHIN) {
            similar.messages.clear();
        }
        similar.last = Some(now);
        similar.messages.insert(event.message.clone());
        if similar.messages.len() < SIMILAR {
            let id = EventId { group, message: event.message.clone() };
            return Step::Record { id, message: event.message.clone() };
        }
        // The newest stands for the set, which therefore need not grow.
        similar.messages.pop_first();
        let message = format!("(combined from similar events): {}", event.message).into();
        Step::Record { id: EventId { group, message: Box::default() }, message }
    }
}
