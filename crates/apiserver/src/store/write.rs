//! Writes: what a caller asks for, under which condition, and what came of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::durable::StoreSpace;
use super::key::Key;
use super::object::{Change, Event, Revision, Stored, UnixMillis};

/// One write of one object.
#[derive(Debug, Clone)]
pub struct Write {
    pub key: Key,
    pub expect: Expect,
    pub action: Action,
}

/// What must be true of the object at the moment of the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Anything,
    Absent,
    Present,
    /// It exists, and this was the last write to it.
    At(Revision),
}

#[derive(Clone)]
pub enum Action {
    Put { value: Bytes, expires: Option<UnixMillis> },
    Delete,
}

/// Values can be Secrets, so only their size is shown.
impl std::fmt::Debug for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Put { value, expires } => write!(f, "Put({} bytes, expires {expires:?})", value.len()),
            Self::Delete => f.write_str("Delete"),
        }
    }
}

impl Write {
    pub fn put(key: Key, expect: Expect, value: impl Into<Bytes>) -> Self {
        Self { key, expect, action: Action::Put { value: value.into(), expires: None } }
    }

    pub fn delete(key: Key, expect: Expect) -> Self {
        Self { key, expect, action: Action::Delete }
    }

    /// The store deletes the object at the first tick at or after `at`. A later put without this takes it back.
    pub fn expiring(mut self, at: UnixMillis) -> Self {
        if let Action::Put { expires, .. } = &mut self.action {
            *expires = Some(at);
        }
        self
    }

    /// What the write adds to a batch, roughly.
    pub(super) fn weight(&self) -> usize {
        match &self.action {
            Action::Put { value, .. } => value.len() + self.key.path().len(),
            Action::Delete => self.key.path().len(),
        }
    }
}

/// A write that is on disk and visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub revision: Revision,
    /// The new version; none after a delete.
    pub stored: Option<Arc<Stored>>,
    pub previous: Option<Arc<Stored>>,
}

#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum CommitError {
    /// Nothing was written.
    #[error("{} already exists", current.key)]
    Exists { current: Arc<Stored> },
    /// Nothing was written.
    #[error("{key} does not exist")]
    Missing { key: Key },
    /// Nothing was written.
    #[error("{} is at revision {}, not {expected}", current.key, current.revision)]
    Changed { current: Arc<Stored>, expected: Revision },
    /// Nothing was written: the disk is full.
    #[error(
        "the disk of the server's data is full ({free} bytes are free): deletes, leases and updates that do not grow are \
         accepted; free space on it, or delete objects, and try again"
    )]
    NoSpace { free: u64 },
    /// The store could not write and takes no more writes until it is opened again. Whether this write is on disk is
    /// unknown: it is either there when the store is opened again, or it is not. No reader has seen it.
    #[error("the store takes no more writes: {reason}")]
    Poisoned { reason: Arc<str> },
}

/// Gives writes their place, one after the other. Later writes see the earlier ones before any of them is durable, so
/// none of the outcomes may be told to anyone before all of [`Batch::events`] are.
#[derive(Debug)]
pub(super) struct Batch {
    last: Revision,
    growth: GrowthLimit,
    touched: BTreeMap<Key, Option<Arc<Stored>>>,
    pub(super) events: Vec<Arc<Event>>,
}

impl Batch {
    pub(super) fn after(last: Revision, growth: GrowthLimit) -> Self {
        Self { last, growth, touched: BTreeMap::new(), events: Vec::new() }
    }

    /// What the writes that are added leave of the allowance.
    pub(super) fn growth(&self) -> GrowthLimit {
        self.growth
    }

    /// Adds all of the writes or none of them.
    pub(super) fn add_all(
        &mut self,
        writes: Vec<Write>,
        lookup: impl Fn(&Key) -> Option<Arc<Stored>>,
    ) -> Result<Vec<Committed>, CommitError> {
        let (last, growth, events) = (self.last, self.growth, self.events.len());
        let mut before = Vec::with_capacity(writes.len());
        let mut committed = Vec::with_capacity(writes.len());
        for write in writes {
            before.push((write.key.clone(), self.touched.get(&write.key).cloned()));
            match self.add(write, &lookup) {
                Ok(one) => committed.push(one),
                Err(refused) => {
                    (self.last, self.growth) = (last, growth);
                    self.events.truncate(events);
                    // Backwards, so that a key that was written twice ends as it began.
                    for (key, known) in before.into_iter().rev() {
                        match known {
                            Some(known) => self.touched.insert(key, known),
                            None => self.touched.remove(&key),
                        };
                    }
                    return Err(refused);
                }
            }
        }
        Ok(committed)
    }

    /// `lookup` gives the visible version of a key that this batch has not touched.
    pub(super) fn add(
        &mut self,
        write: Write,
        lookup: impl FnOnce(&Key) -> Option<Arc<Stored>>,
    ) -> Result<Committed, CommitError> {
        let Write { key, expect, action } = write;
        let previous = match self.touched.get(&key) {
            Some(known) => known.clone(),
            None => lookup(&key),
        };
        check(&key, expect, previous.as_ref())?;
        self.growth.admit(&key, &action, previous.as_deref())?;
        let revision = self.last.next();
        // Keys come from requests; sharing the strings of the version before keeps one copy per object.
        let key = previous.as_ref().map_or(key, |old| old.key.clone());
        let (stored, change) = match (action, previous.clone()) {
            (Action::Put { value, expires }, old) => {
                let created = old.as_ref().map_or(revision, |old| old.created);
                let new = Arc::new(Stored { key: key.clone(), value, revision, created, expires });
                let change = match old {
                    Some(old) => Change::Updated { old, new: Arc::clone(&new) },
                    None => Change::Created { new: Arc::clone(&new) },
                };
                (Some(new), change)
            }
            (Action::Delete, Some(old)) => (None, Change::Deleted { old }),
            (Action::Delete, None) => return Err(CommitError::Missing { key }),
        };
        self.last = revision;
        self.touched.insert(key.clone(), stored.clone());
        self.events.push(Arc::new(Event { revision, key, change }));
        Ok(Committed { revision, stored, previous })
    }
}

fn check(key: &Key, expect: Expect, current: Option<&Arc<Stored>>) -> Result<(), CommitError> {
    match (expect, current) {
        (Expect::Anything, _) | (Expect::Absent, None) | (Expect::Present, Some(_)) => Ok(()),
        (Expect::Absent, Some(current)) => Err(CommitError::Exists { current: Arc::clone(current) }),
        (Expect::Present | Expect::At(_), None) => Err(CommitError::Missing { key: key.clone() }),
        (Expect::At(expected), Some(current)) if current.revision == expected => Ok(()),
        (Expect::At(expected), Some(current)) => Err(CommitError::Changed { current: Arc::clone(current), expected }),
    }
}

/// Bytes by which one update may grow while space is short: a mark of deletion, a condition.
const SMALL_GROWTH: u64 = 1 << 10;
/// Bytes by which all such updates together may grow in one time of short space.
const ALLOWANCE: u64 = 1 << 20;
/// A lease has no reason to be larger.
const LARGEST_LEASE: usize = 8 << 10;
/// The resource whose updates are always let through: a lease that is not renewed loses a leader or a node.
const LEASES: &str = "leases";

/// How much the objects may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GrowthLimit {
    Unlimited,
    /// Space is short.
    Small {
        free: u64,
        allowance: u64,
    },
}

impl GrowthLimit {
    /// The limit that applies now, given the one before: an allowance lasts until there is space again.
    pub(super) fn next(self, space: StoreSpace) -> Self {
        match (space, self) {
            (StoreSpace::Enough, _) => Self::Unlimited,
            (StoreSpace::Low { free }, Self::Unlimited) => Self::Small { free, allowance: ALLOWANCE },
            (StoreSpace::Low { free }, Self::Small { allowance, .. }) => Self::Small { free, allowance },
        }
    }

    /// Lets through what needs next to no space: deletes, updates of leases, updates that do not grow, and a limited amount
    /// of updates that grow a little, since a delete with finalizers begins as such an update.
    fn admit(&mut self, key: &Key, action: &Action, previous: Option<&Stored>) -> Result<(), CommitError> {
        let (Self::Small { free, allowance }, Action::Put { value, .. }) = (self, action) else { return Ok(()) };
        let refused = CommitError::NoSpace { free: *free };
        let Some(previous) = previous else { return Err(refused) };
        let growth = value.len().saturating_sub(previous.value.len()) as u64;
        if growth == 0 || (key.resource() == LEASES && value.len() <= LARGEST_LEASE) {
            return Ok(());
        }
        match allowance.checked_sub(growth).filter(|_| growth <= SMALL_GROWTH) {
            Some(rest) => *allowance = rest,
            None => return Err(refused),
        }
        Ok(())
    }
}
