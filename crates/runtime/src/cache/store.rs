//! What a cache holds: objects in key order, indexes over them, and what may not come back.
//!
//! Everything here is data; no I/O, no time. The rules of what replaces what are in [`Store::put`], [`Store::remove`],
//! [`Store::replace_all`] and [`Store::asked`].

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::ControlFlow;
use std::sync::Arc;

use api::object::{Key, Meta, Object, Revision, Uid};

use crate::client::Extent;

/// An object, ordered by its key. The key is stored once, inside the object.
#[derive(Debug)]
pub(super) struct Held<T>(pub(super) Arc<T>);

impl<T> Clone for Held<T> {
    fn clone(&self) -> Held<T> {
        Held(self.0.clone())
    }
}

impl<T: Object> PartialEq for Held<T> {
    fn eq(&self, other: &Held<T>) -> bool {
        self.0.key() == other.0.key()
    }
}

impl<T: Object> Eq for Held<T> {}

impl<T: Object> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Held<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Object> Ord for Held<T> {
    fn cmp(&self, other: &Held<T>) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

impl<T: Object> Borrow<Key> for Held<T> {
    fn borrow(&self) -> &Key {
        self.0.key()
    }
}

/// A change of the cache, as it was applied.
#[derive(Debug)]
pub enum Change<T> {
    /// An object is new here.
    Added(Arc<T>),
    /// An object has a newer state.
    Changed {
        /// The state before.
        old: Arc<T>,
        /// The state now.
        new: Arc<T>,
    },
    /// An object is gone; this is the last state we knew.
    Removed(Arc<T>),
}

impl<T: Object> Change<T> {
    /// The object as it is, or was last.
    pub fn object(&self) -> &Arc<T> {
        match self {
            Change::Added(object) | Change::Removed(object) | Change::Changed { new: object, .. } => object,
        }
    }

    /// The object's key.
    pub fn key(&self) -> &Key {
        self.object().key()
    }

    /// The state before, if there was one.
    pub fn before(&self) -> Option<&Arc<T>> {
        match self {
            Change::Added(_) => None,
            Change::Changed { old, .. } | Change::Removed(old) => Some(old),
        }
    }

    /// The state now, if there is one.
    pub fn after(&self) -> Option<&Arc<T>> {
        match self {
            Change::Added(new) | Change::Changed { new, .. } => Some(new),
            Change::Removed(_) => None,
        }
    }
}

/// How an index finds the values of an object: it calls the function for each.
pub type IndexFn<T> = fn(&T, &mut dyn FnMut(&str));

/// An index by name. Values are texts.
#[derive(Debug)]
pub struct Index<T> {
    /// Declaring a name twice gives the same index.
    pub name: &'static str,
    /// The values of an object.
    pub values: IndexFn<T>,
}

impl<T> Clone for Index<T> {
    fn clone(&self) -> Index<T> {
        *self
    }
}

impl<T> Copy for Index<T> {}

/// The objects of one index, in the order of their values' fingerprints and then of their keys.
///
/// Keeping the values themselves would cost several times the object's pointer. Instead the object is asked: of what has
/// the same fingerprint, [`Table::visit`] shows what has the value.
#[derive(Debug)]
struct Table<T> {
    index: Index<T>,
    /// A fingerprint without an object is never held; it stands before all objects that have it.
    rows: BTreeSet<(u64, Option<Held<T>>)>,
}

/// The same for equal values in every run: what happens must not depend on chance.
fn fingerprint(value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl<T: Object> Table<T> {
    fn add(&mut self, object: &Arc<T>) {
        let rows = &mut self.rows;
        (self.index.values)(object, &mut |value| drop(rows.replace((fingerprint(value), Some(Held(object.clone()))))));
    }

    fn remove(&mut self, object: &Arc<T>) {
        let rows = &mut self.rows;
        (self.index.values)(object, &mut |value| {
            rows.remove(&(fingerprint(value), Some(Held(object.clone()))));
        });
    }

    /// Visits the objects of a value in key order.
    fn visit(&self, value: &str, visit: &mut dyn FnMut(&Arc<T>) -> ControlFlow<()>) {
        let print = fingerprint(value);
        let same = self.rows.range((print, None)..).take_while(|(held, _)| *held == print);
        // Whether the visitor stopped early is the visitor's own knowledge.
        let _ = same
            .filter_map(|(_, held)| held.as_ref())
            .filter(|held| self.has(&held.0, value))
            .try_for_each(|held| visit(&held.0));
    }

    fn has(&self, object: &T, value: &str) -> bool {
        let mut found = false;
        (self.index.values)(object, &mut |held| found |= held == value);
        found
    }
}

/// An object that we saw end, or ended, and that older news may not bring back.
#[derive(Debug)]
struct Grave {
    uid: Uid,
    /// The last revision we knew. A list at least this new that lacks the object proves that it is gone.
    revision: Revision,
}

#[derive(Debug)]
pub(super) struct Store<T> {
    objects: BTreeSet<Held<T>>,
    tables: Vec<Table<T>>,
    graves: BTreeMap<Key, Grave>,
    /// Every change up to here has arrived through the watch.
    seen: Revision,
    /// What may be held.
    room: Room,
}

/// What a store may hold.
#[derive(Debug)]
enum Room {
    All,
    /// Only these objects; so many times each is wanted.
    Wanted(BTreeMap<Key, usize>),
}

impl<T: Object> Store<T> {
    pub(super) fn new(extent: Extent) -> Store<T> {
        let room = match extent {
            Extent::All => Room::All,
            Extent::Wanted => Room::Wanted(BTreeMap::new()),
        };
        Store { objects: BTreeSet::new(), tables: Vec::new(), graves: BTreeMap::new(), seen: Revision::NONE, room }
    }

    /// Somebody wants an object.
    pub(super) fn want(&mut self, key: &Key) {
        if let Room::Wanted(wanted) = &mut self.room {
            *wanted.entry(key.clone()).or_default() += 1;
        }
    }

    /// Somebody does not want an object any more. It is not told to have ended: nobody knows that.
    pub(super) fn unwant(&mut self, key: &Key) {
        let Room::Wanted(wanted) = &mut self.room else { return };
        match wanted.get_mut(key) {
            Some(times) if *times > 1 => *times -= 1,
            _ => {
                wanted.remove(key);
                self.graves.remove(key);
                if let Some(held) = self.get(key).cloned() {
                    self.forget(&held);
                }
            }
        }
    }

    /// What is wanted; empty where everything is held.
    pub(super) fn wanted(&self) -> Vec<Key> {
        match &self.room {
            Room::All => Vec::new(),
            Room::Wanted(wanted) => wanted.keys().cloned().collect(),
        }
    }

    fn has_room(&self, key: &Key) -> bool {
        match &self.room {
            Room::All => true,
            Room::Wanted(wanted) => wanted.contains_key(key),
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<T>> {
        self.objects.get(key).map(|held| &held.0)
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn seen(&self) -> Revision {
        self.seen
    }

    /// Objects in key order, from after `from`.
    pub(super) fn after(&self, from: Option<&Key>) -> impl Iterator<Item = &Arc<T>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = from.map_or(Unbounded, Excluded);
        self.objects.range::<Key, _>((from, Unbounded)).map(|held| &held.0)
    }

    /// The slot of an index, built over what is held if it is new.
    pub(super) fn index(&mut self, index: Index<T>) -> usize {
        if let Some(slot) = self.tables.iter().position(|table| table.index.name == index.name) {
            return slot;
        }
        let mut table = Table { index, rows: BTreeSet::new() };
        for held in &self.objects {
            table.add(&held.0);
        }
        self.tables.push(table);
        self.tables.len() - 1
    }

    /// Visits the objects of a value in key order.
    pub(super) fn visit(&self, slot: usize, value: &str, visit: &mut dyn FnMut(&Arc<T>) -> ControlFlow<()>) {
        if let Some(table) = self.tables.get(slot) {
            table.visit(value, visit);
        }
    }

    /// News of an object from the watch, in the watch's order.
    pub(super) fn put(&mut self, object: Arc<T>, changes: &mut Vec<Change<T>>) {
        self.progress(object.meta().revision);
        self.store(object, changes);
    }

    /// The answer to a write of ours.
    ///
    /// If the watch has passed its revision and we do not hold the object, then it has ended since; unless it was passed
    /// over because nobody wanted it. What ends while it is wanted leaves a grave.
    pub(super) fn wrote(&mut self, object: Arc<T>, changes: &mut Vec<Change<T>>) {
        let passed_over = matches!(self.room, Room::Wanted(_));
        if object.meta().revision > self.seen || passed_over || self.get(object.key()).is_some() {
            self.store(object, changes);
        }
    }

    /// Keeps the newer of what is held and what came.
    fn store(&mut self, object: Arc<T>, changes: &mut Vec<Change<T>>) {
        let meta = object.meta();
        if !self.has_room(&meta.key) {
            return;
        }
        if self.graves.get(&meta.key).is_some_and(|grave| grave.uid == meta.uid || grave.revision >= meta.revision) {
            return;
        }
        match self.get(&meta.key).cloned() {
            Some(held) if held.meta().revision >= meta.revision => return,
            Some(held) => {
                self.forget(&held);
                if held.meta().uid == meta.uid {
                    changes.push(Change::Changed { old: held, new: object.clone() });
                } else {
                    changes.push(Change::Removed(held));
                    changes.push(Change::Added(object.clone()));
                }
            }
            None => changes.push(Change::Added(object.clone())),
        }
        for table in &mut self.tables {
            table.add(&object);
        }
        self.objects.insert(Held(object));
    }

    /// Takes an object out of the set and the indexes.
    fn forget(&mut self, held: &Arc<T>) {
        for table in &mut self.tables {
            table.remove(held);
        }
        self.objects.remove(held.key());
    }

    /// The watch says that an object ended.
    pub(super) fn remove(&mut self, meta: &Meta, changes: &mut Vec<Change<T>>) {
        self.progress(meta.revision);
        match &self.room {
            Room::All if self.graves.get(&meta.key).is_some_and(|grave| grave.uid == meta.uid) => {
                self.graves.remove(&meta.key);
            }
            Room::All => {}
            // The answer to a question asked before may still be on its way.
            Room::Wanted(wanted) if wanted.contains_key(&meta.key) => {
                self.graves.insert(meta.key.clone(), Grave { uid: meta.uid.clone(), revision: meta.revision });
            }
            Room::Wanted(_) => {}
        }
        let Some(held) = self.get(&meta.key).cloned() else { return };
        // A newer object of the same name, or a newer state that the watch has not reached, stays.
        if held.meta().uid == meta.uid && held.meta().revision <= meta.revision {
            self.forget(&held);
            changes.push(Change::Removed(held));
        }
    }

    /// A deletion of ours was answered: the object is gone, although the watch has not said so.
    pub(super) fn deleted(&mut self, key: &Key, uid: &Uid, changes: &mut Vec<Change<T>>) {
        let Some(held) = self.get(key).cloned() else { return };
        if held.meta().uid != *uid {
            return;
        }
        self.forget(&held);
        self.graves.insert(key.clone(), Grave { uid: uid.clone(), revision: held.meta().revision });
        changes.push(Change::Removed(held));
    }

    /// A complete list as of `revision`: what it lacks is gone, unless we know something newer.
    pub(super) fn replace_all(&mut self, mut listed: Vec<Arc<T>>, revision: Revision, changes: &mut Vec<Change<T>>) {
        listed.sort_by(|a, b| a.key().cmp(b.key()).then(b.meta().revision.cmp(&a.meta().revision)));
        listed.dedup_by(|older, newer| older.key() == newer.key());
        let mut names = listed.iter().map(|object| object.key()).peekable();
        let mut gone = Vec::new();
        for held in &self.objects {
            while names.next_if(|name| **name < *held.0.key()).is_some() {}
            if names.peek().is_none_or(|name| **name != *held.0.key()) && held.0.meta().revision <= revision {
                gone.push(held.0.clone());
            }
        }
        for held in gone {
            self.forget(&held);
            changes.push(Change::Removed(held));
        }
        let lists = |key: &Key| listed.binary_search_by(|object| object.key().cmp(key)).ok();
        self.graves.retain(|key, grave| {
            let listed_still = lists(key).and_then(|at| listed.get(at)).is_some_and(|o| o.meta().uid == grave.uid);
            listed_still || grave.revision > revision
        });
        for object in listed {
            self.store(object, changes);
        }
        self.progress(revision);
    }

    /// What the server said about each wanted object when it was asked after `revision`, from where the watch goes on.
    pub(super) fn asked(&mut self, said: Vec<(Key, Option<Arc<T>>)>, revision: Revision, changes: &mut Vec<Change<T>>) {
        for (key, object) in said {
            match (object, self.get(&key).cloned()) {
                (Some(object), _) => self.store(object, changes),
                // One that is newer than the revision may be newer than the answer; if it has ended, the watch says so.
                (None, Some(held)) if held.meta().revision <= revision => {
                    self.forget(&held);
                    changes.push(Change::Removed(held));
                }
                (None, _) => {}
            }
        }
        self.progress(revision);
    }

    /// Everything up to `revision` has arrived.
    pub(super) fn progress(&mut self, revision: Revision) {
        self.seen = self.seen.max(revision);
    }

    /// The server's history was replaced by an older one: what we knew means nothing any more.
    pub(super) fn start_over(&mut self, changes: &mut Vec<Change<T>>) {
        changes.extend(std::mem::take(&mut self.objects).into_iter().map(|held| Change::Removed(held.0)));
        for table in &mut self.tables {
            table.rows.clear();
        }
        self.graves.clear();
        self.seen = Revision::NONE;
    }
}
