//! The objects in memory, with their history: every read is answered from here.
//!
//! # Invariants
//! 1. Versions of an object and events of a resource are in revision order.
//! 2. For every revision at or above a resource's floor, each object's version at that revision is here. Events after
//!    the floor are all here, each with the versions on both of its sides.
//! 3. An event that is dropped takes along exactly the versions that only it kept alive, so each row of the durable
//!    record is named for removal once.
//!
//! Floors are kept per resource: a resource that nobody writes keeps its history however busy the others are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::History;
use super::durable::{Compaction, Entry, Image};
use super::key::{Key, Scope};
use super::object::{Change, Event, Revision, Stored, UnixMillis};
use super::read::{At, List, Page, ReadError, TooOld};

#[derive(Debug, Default)]
pub(super) struct Index {
    revision: Revision,
    /// For resources that have no shelf yet.
    floor: Revision,
    shelves: BTreeMap<Arc<str>, Shelf>,
    expiries: BTreeSet<(UnixMillis, Key)>,
}

/// One resource.
#[derive(Debug, Default)]
struct Shelf {
    objects: BTreeMap<Arc<str>, VecDeque<Version>>,
    log: VecDeque<Arc<Event>>,
    /// Bytes of values that the log's events brought.
    log_bytes: usize,
    /// The newest revision whose event was dropped.
    floor: Revision,
}

#[derive(Debug)]
enum Version {
    Live(Arc<Stored>),
    Gone(Revision),
}

impl Version {
    fn revision(&self) -> Revision {
        match self {
            Self::Live(stored) => stored.revision,
            Self::Gone(revision) => *revision,
        }
    }

    fn live(&self) -> Option<&Arc<Stored>> {
        match self {
            Self::Live(stored) => Some(stored),
            Self::Gone(_) => None,
        }
    }
}

impl Index {
    pub(super) fn load(image: Image) -> Self {
        let Image { revision, floor, floors, entries, .. } = image;
        let mut index = Self { floor, ..Self::default() };
        for (resource, floor) in floors {
            index.shelf(&resource).floor = floor;
        }
        for entry in entries {
            index.load_entry(entry);
        }
        index.revision = revision;
        index
    }

    fn load_entry(&mut self, entry: Entry) {
        let Entry { revision, key, stored } = entry;
        let old = self.latest(&key).cloned();
        let change = match (old, stored) {
            (Some(old), Some(new)) => Change::Updated { old, new },
            (None, Some(new)) => Change::Created { new },
            (Some(old), None) => Change::Deleted { old },
            // A delete whose object is already forgotten says nothing anybody could ask for.
            (None, None) => return,
        };
        let logged = revision > self.shelf(key.shared_resource()).floor;
        let event = Arc::new(Event { revision, key, change });
        self.place(&event);
        if logged {
            self.record(event);
        }
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    /// How many events are kept.
    pub(super) fn history_events(&self) -> usize {
        self.shelves.values().map(|shelf| shelf.log.len()).sum()
    }

    /// The same key with strings that are already here, so that thousands of objects share one resource name.
    pub(super) fn canonical(&self, key: Key) -> Key {
        match self.shelves.get_key_value(key.resource()) {
            Some((resource, _)) => Key::from_parts(Arc::clone(resource), Arc::clone(key.shared_path())),
            None => key,
        }
    }

    pub(super) fn latest(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.shelves.get(key.resource())?.objects.get(key.path())?.back()?.live()
    }

    pub(super) fn apply(&mut self, event: Arc<Event>) {
        self.revision = event.revision;
        self.place(&event);
        self.record(event);
    }

    fn shelf(&mut self, resource: &Arc<str>) -> &mut Shelf {
        let floor = self.floor;
        self.shelves.entry(Arc::clone(resource)).or_insert_with(|| Shelf { floor, ..Shelf::default() })
    }

    fn place(&mut self, event: &Event) {
        if let Some((old, at)) = event.old_version().and_then(|old| Some((old, old.expires?))) {
            self.expiries.remove(&(at, old.key.clone()));
        }
        if let Some((new, at)) = event.new_version().and_then(|new| Some((new, new.expires?))) {
            self.expiries.insert((at, new.key.clone()));
        }
        let version = match event.new_version() {
            Some(new) => Version::Live(Arc::clone(new)),
            None => Version::Gone(event.revision),
        };
        let objects = &mut self.shelf(event.key.shared_resource()).objects;
        // Most objects have one version most of the time, so the first one gets exactly its room.
        objects
            .entry(Arc::clone(event.key.shared_path()))
            .or_insert_with(|| VecDeque::with_capacity(1))
            .push_back(version);
    }

    fn record(&mut self, event: Arc<Event>) {
        let shelf = self.shelf(event.key.shared_resource());
        shelf.log_bytes += value_bytes(&event);
        shelf.log.push_back(event);
    }

    fn floor(&self, resource: &str) -> Revision {
        self.shelves.get(resource).map_or(self.floor, |shelf| shelf.floor)
    }

    fn resolve(&self, resource: &str, at: At) -> Result<Revision, ReadError> {
        let current = self.revision;
        match at {
            At::Latest => Ok(current),
            At::NotOlderThan(requested) | At::Exact(requested) if requested > current => {
                Err(ReadError::Future { requested, current })
            }
            At::NotOlderThan(_) => Ok(current),
            At::Exact(requested) => match self.floor(resource) {
                oldest if requested < oldest => Err(TooOld { requested, oldest }.into()),
                _ => Ok(requested),
            },
        }
    }

    fn visible<'a>(&'a self, list: &List<'a>, at: Revision) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
        let List { scope, after, .. } = *list;
        let shelf = self.shelves.get(scope.resource());
        shelf
            .into_iter()
            .flat_map(move |shelf| shelf.objects.range::<str, _>((scope.start(after), Bound::Unbounded)))
            .take_while(|(path, _)| scope.covers(path))
            .filter_map(move |(_, versions)| {
                let upto = versions.partition_point(|version| version.revision() <= at);
                versions.get(upto.checked_sub(1)?)?.live()
            })
    }

    pub(super) fn list(&self, list: &List<'_>) -> Result<Page, ReadError> {
        let revision = self.resolve(list.scope.resource(), list.at)?;
        let mut visible = self.visible(list, revision);
        let items: Vec<_> = visible.by_ref().take(list.limit.unwrap_or(usize::MAX)).cloned().collect();
        Ok(Page { revision, items, more: visible.next().is_some() })
    }

    pub(super) fn count(&self, list: &List<'_>) -> Result<usize, ReadError> {
        let revision = self.resolve(list.scope.resource(), list.at)?;
        Ok(self.visible(list, revision).count())
    }

    /// Adds up to `limit` events of `scope` after `after` to `out`. Says up to which revision `out` is now complete.
    pub(super) fn events_after(
        &self,
        scope: &Scope,
        after: Revision,
        limit: usize,
        out: &mut VecDeque<Arc<Event>>,
    ) -> Result<Revision, TooOld> {
        let oldest = self.floor(scope.resource());
        if after < oldest {
            return Err(TooOld { requested: after, oldest });
        }
        if let Some(shelf) = self.shelves.get(scope.resource()) {
            let start = shelf.log.partition_point(|event| event.revision <= after);
            let mut matching = shelf.log.range(start..).filter(|event| scope.covers(event.key.path()));
            out.extend(matching.by_ref().take(limit).cloned());
            if let (Some(last), Some(_)) = (out.back(), matching.next()) {
                return Ok(last.revision);
            }
        }
        Ok(after.max(self.revision))
    }

    /// Up to `limit` keys whose time has come.
    pub(super) fn expired(&self, now: UnixMillis, limit: usize) -> Vec<Key> {
        self.expiries.iter().take_while(|(at, _)| *at <= now).take(limit).map(|(_, key)| key.clone()).collect()
    }

    /// What the rules of `history` let go, given that everything up to `aged` is old enough. Stops near `limit` rows.
    pub(super) fn plan_compaction(&self, history: &History, aged: Revision, limit: usize) -> Compaction {
        let mut plan = Compaction { revision: self.revision, rows: Vec::new(), floors: BTreeMap::new() };
        for (resource, shelf) in &self.shelves {
            let (mut left, mut bytes) = (shelf.log.len(), shelf.log_bytes);
            for event in &shelf.log {
                let too_much = left > history.max_events || bytes > history.max_bytes;
                let outdated = event.revision <= aged && left > history.min_events;
                if !(too_much || outdated) || plan.rows.len() >= limit {
                    break;
                }
                left -= 1;
                bytes -= value_bytes(event);
                plan.floors.insert(Arc::clone(resource), event.revision);
                plan.rows.extend(event.old_version().map(|old| old.revision));
                plan.rows.extend(event.new_version().is_none().then_some(event.revision));
            }
        }
        plan
    }

    pub(super) fn compact(&mut self, plan: &Compaction) {
        for (resource, floor) in &plan.floors {
            let shelf = self.shelf(resource);
            shelf.floor = *floor;
            while shelf.log.front().is_some_and(|event| event.revision <= *floor) {
                if let Some(event) = shelf.log.pop_front() {
                    shelf.forget(&event);
                }
            }
        }
    }

    /// The live objects alone, for a copy of the store that starts its history anew.
    pub(super) fn live_objects(&self) -> Vec<Arc<Stored>> {
        let all = self.shelves.values().flat_map(|shelf| shelf.objects.values());
        let mut objects: Vec<_> = all.filter_map(|versions| versions.back()?.live().cloned()).collect();
        objects.sort_by_key(|stored| stored.revision);
        objects
    }
}

impl Shelf {
    /// Drops what only `event` kept: the versions before it, and the mark of a delete.
    fn forget(&mut self, event: &Event) {
        self.log_bytes -= value_bytes(event);
        let Some(versions) = self.objects.get_mut(event.key.path()) else { return };
        let superseded = |version: &Version| match version {
            Version::Live(stored) => stored.revision < event.revision,
            Version::Gone(revision) => *revision <= event.revision,
        };
        while versions.front().is_some_and(superseded) {
            versions.pop_front();
        }
        if versions.is_empty() {
            self.objects.remove(event.key.path());
        }
    }
}

fn value_bytes(event: &Event) -> usize {
    event.new_version().map_or(0, |new| new.value.len())
}
