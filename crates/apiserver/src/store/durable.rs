//! What lies below the memory: the record that outlives the process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::key::Key;
use super::object::{Event, Revision, Stored};

/// Keeps writes. The store calls it from one place at a time, and never again after an error that is not for want of space.
pub trait Durable: Send + fmt::Debug {
    /// Keeps all of these writes or none. When it returns, they survive a power cut.
    fn append(&mut self, events: &[Arc<Event>]) -> Result<(), DurableError>;

    /// Forgets rows that nobody can ask for any more.
    fn compact(&mut self, plan: &Compaction) -> Result<(), DurableError>;

    /// Called at every tick, for upkeep that no write has to wait for.
    fn settle(&mut self) -> Result<(), DurableError>;

    /// How much space there is for more.
    fn space(&mut self) -> StoreSpace {
        StoreSpace::Enough
    }
}

/// Whether there is disk space for writes that grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreSpace {
    Enough,
    /// The disk is full or nearly full: only what needs next to no space may be written.
    Low {
        /// Bytes that are still free.
        free: u64,
    },
}

#[derive(Debug, thiserror::Error)]
#[error("{doing}")]
pub struct DurableError {
    doing: &'static str,
    is_full: bool,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl DurableError {
    /// For `map_err`: says what was being done.
    pub fn doing<E: Into<Box<dyn std::error::Error + Send + Sync>>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self { doing, is_full: false, source: source.into() }
    }

    /// The same error, when it is known that nothing was written because the disk is full.
    #[must_use]
    pub fn for_want_of_space(mut self) -> Self {
        self.is_full = true;
        self
    }

    /// Whether nothing was written because the disk is full: later writes may succeed.
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}

/// Rows to forget, and what is then the oldest point of each resource's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// The newest revision at the time of the plan.
    pub revision: Revision,
    pub rows: Vec<Revision>,
    pub floors: BTreeMap<Arc<str>, Revision>,
}

/// One row of the record: a version of an object, or the mark that it was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub revision: Revision,
    pub key: Key,
    pub stored: Option<Arc<Stored>>,
}

impl Entry {
    pub(super) fn live(stored: &Arc<Stored>) -> Self {
        Self { revision: stored.revision, key: stored.key.clone(), stored: Some(Arc::clone(stored)) }
    }

    pub(super) fn of(event: &Event) -> Self {
        Self { revision: event.revision, key: event.key.clone(), stored: event.new_version().cloned() }
    }
}

/// Everything a record holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Image {
    /// Tells this store from every other, also from one that was made anew in the same place.
    pub uuid: String,
    pub revision: Revision,
    /// The oldest point of history of resources that `floors` does not name.
    pub floor: Revision,
    pub floors: BTreeMap<Arc<str>, Revision>,
    /// In revision order.
    pub entries: Vec<Entry>,
}

/// A record in memory, for tests and simulation. Clones share it: a store opened on a clone after the first store is
/// gone finds what a restarted process would find.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk {
    image: Arc<Mutex<MemoryImage>>,
}

#[derive(Debug, Default)]
struct MemoryImage {
    revision: Revision,
    floors: BTreeMap<Arc<str>, Revision>,
    entries: BTreeMap<Revision, Entry>,
}

impl MemoryDisk {
    fn lock(&self) -> MutexGuard<'_, MemoryImage> {
        // No code that holds this lock can panic half-way.
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn image(&self) -> Image {
        let image = self.lock();
        Image {
            uuid: "memory".to_owned(),
            revision: image.revision,
            floor: Revision(0),
            floors: image.floors.clone(),
            entries: image.entries.values().cloned().collect(),
        }
    }
}

impl Durable for MemoryDisk {
    fn append(&mut self, events: &[Arc<Event>]) -> Result<(), DurableError> {
        let mut image = self.lock();
        for event in events {
            image.revision = event.revision;
            image.entries.insert(event.revision, Entry::of(event));
        }
        Ok(())
    }

    fn compact(&mut self, plan: &Compaction) -> Result<(), DurableError> {
        let mut image = self.lock();
        for row in &plan.rows {
            image.entries.remove(row);
        }
        image.floors.extend(plan.floors.iter().map(|(resource, floor)| (Arc::clone(resource), *floor)));
        Ok(())
    }

    fn settle(&mut self) -> Result<(), DurableError> {
        Ok(())
    }
}
