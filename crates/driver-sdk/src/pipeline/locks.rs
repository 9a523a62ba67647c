//! Locks on objects, for as long as an operation on them runs.
//!
//! # Invariants
//! 1. All keys of an operation are taken at one moment or none is: no operation ever waits while it holds a lock, so
//!    there is no deadlock and no order to get wrong.
//! 2. A lock belongs to the task that does the work, not to the caller that waits for it.
//! 3. Whoever is refused learns which operation is in the way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;

/// What can be locked. A name is a key of its own only while the driver does not derive the id from it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Volume(String),
    VolumeName(String),
    Snapshot(String),
    SnapshotName(String),
    Group(String),
    GroupName(String),
}

/// How a key is held. The order matters: the stronger one wins when an operation names a key twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hold {
    /// Many may hold it so: the object is read and must stay as it is.
    Shared,
    /// Nobody else holds it.
    Exclusive,
}

/// The keys one operation needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted(BTreeMap<Key, Hold>);

impl Wanted {
    pub(crate) fn none() -> Self {
        Self::default()
    }

    pub(crate) fn exclusive(key: Key) -> Self {
        Self::none().and(key, Hold::Exclusive)
    }

    #[must_use]
    pub(crate) fn and(mut self, key: Key, hold: Hold) -> Self {
        let entry = self.0.entry(key).or_insert(hold);
        *entry = (*entry).max(hold);
        self
    }
}

/// Who holds a lock: the number and the method of an operation, as the call log shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) op: u64,
    pub(crate) method: &'static str,
}

/// Another operation holds one of the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) key: Key,
    pub(crate) holder: Holder,
}

impl From<Conflict> for Error {
    fn from(conflict: Conflict) -> Self {
        let (kind, name) = match &conflict.key {
            Key::Volume(name) | Key::VolumeName(name) => ("volume", name),
            Key::Snapshot(name) | Key::SnapshotName(name) => ("snapshot", name),
            Key::Group(name) | Key::GroupName(name) => ("group snapshot", name),
        };
        let Holder { op, method } = conflict.holder;
        Self::busy(format!("{kind} {name:?} is in use by {method} (operation {op}); repeat the call later"))
    }
}

struct Held {
    hold: Hold,
    /// By operation number; more than one only while shared.
    holders: BTreeMap<u64, &'static str>,
}

/// All locks of one driver.
#[derive(Clone, Default)]
pub(crate) struct Locks(Arc<Mutex<BTreeMap<Key, Held>>>);

/// Keys held until this is dropped.
pub(crate) struct Guard {
    locks: Locks,
    keys: Vec<Key>,
    op: u64,
}

impl Locks {
    pub(crate) fn acquire(&self, wanted: Wanted, holder: Holder) -> Result<Guard, Conflict> {
        let mut held = self.lock();
        for (key, hold) in &wanted.0 {
            let Some(other) = held.get(key) else { continue };
            if (*hold, other.hold) == (Hold::Shared, Hold::Shared) {
                continue;
            }
            if let Some((op, method)) = other.holders.first_key_value() {
                return Err(Conflict { key: key.clone(), holder: Holder { op: *op, method } });
            }
        }
        for (key, hold) in &wanted.0 {
            let entry = held.entry(key.clone()).or_insert_with(|| Held { hold: *hold, holders: BTreeMap::new() });
            entry.holders.insert(holder.op, holder.method);
        }
        Ok(Guard { locks: self.clone(), keys: wanted.0.into_keys().collect(), op: holder.op })
    }

    /// Nothing panics while the map is locked, so a poisoned lock still guards a sound map.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut held = self.locks.lock();
        for key in &self.keys {
            if let Some(entry) = held.get_mut(key) {
                entry.holders.remove(&self.op);
                if entry.holders.is_empty() {
                    held.remove(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(id: &str) -> Key {
        Key::Volume(id.into())
    }

    fn holder(op: u64) -> Holder {
        Holder { op, method: "DeleteVolume" }
    }

    /// Rule: LOCAL-E.4
    #[test]
    fn readers_share_and_a_writer_excludes() {
        let locks = Locks::default();
        let shared = || Wanted::none().and(volume("a"), Hold::Shared);
        let first = locks.acquire(shared(), holder(1)).unwrap_or_else(|_| panic!("free"));
        let second = locks.acquire(shared(), holder(2)).unwrap_or_else(|_| panic!("shared"));
        let refused = locks.acquire(Wanted::exclusive(volume("a")), holder(3)).err();
        assert_eq!(refused, Some(Conflict { key: volume("a"), holder: holder(1) }));
        drop(first);
        let refused = locks.acquire(Wanted::exclusive(volume("a")), holder(3)).err();
        assert_eq!(refused.map(|c| c.holder.op), Some(2));
        drop(second);
        assert!(locks.acquire(Wanted::exclusive(volume("a")), holder(3)).is_ok());
        assert!(locks.lock().is_empty());
    }

    #[test]
    fn a_refused_operation_holds_nothing() {
        let locks = Locks::default();
        let _busy = locks.acquire(Wanted::exclusive(volume("b")), holder(1));
        let both = Wanted::exclusive(volume("a")).and(volume("b"), Hold::Shared);
        assert!(locks.acquire(both, holder(2)).is_err());
        assert!(locks.acquire(Wanted::exclusive(volume("a")), holder(3)).is_ok());
    }

    #[test]
    fn a_key_named_twice_is_held_the_stronger_way() {
        let wanted = Wanted::none().and(volume("a"), Hold::Exclusive).and(volume("a"), Hold::Shared);
        assert_eq!(wanted, Wanted::exclusive(volume("a")));
    }

    #[test]
    fn the_refusal_names_the_operation_in_the_way() {
        let error = Error::from(Conflict { key: volume("a"), holder: holder(7) });
        assert_eq!(error.code(), tonic::Code::Aborted);
        assert_eq!(error.to_string(), "volume \"a\" is in use by DeleteVolume (operation 7); repeat the call later");
    }
}
