//! The CSI drivers that are registered on this machine, by name.
//!
//! Registration puts them here, and operations look them up. A simulator puts its model drivers here directly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use runtime::csi::Driver;
use runtime::watch;
use tokio::sync::Notify;

/// A driver that is registered.
#[derive(Debug, Clone)]
pub struct Registered {
    pub name: String,
    /// Connected for as long as it is registered; its facts include what it does on a node.
    pub driver: Driver,
    /// What it calls this machine.
    pub node_id: String,
}

/// The drivers of this machine. Clones are the same.
#[derive(Debug, Clone)]
pub struct Drivers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    registered: Mutex<BTreeMap<String, Arc<Registered>>>,
    /// Counts changes, so that whoever waits for a driver need not ask again and again.
    changes: watch::Sender<u64>,
    /// Drivers that attached a volume nowhere because this machine has no slot left.
    full: Mutex<BTreeSet<String>>,
    filled: Notify,
}

impl Default for Drivers {
    fn default() -> Self {
        let shared = Shared {
            registered: Mutex::default(),
            changes: watch::Sender::new(0),
            full: Mutex::default(),
            filled: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }
}

impl Drivers {
    pub fn get(&self, name: &str) -> Option<Arc<Registered>> {
        self.lock().get(name).cloned()
    }

    /// The names of all, sorted.
    pub fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Adds a driver, or takes the place of the one of its name.
    pub fn insert(&self, registered: Registered) {
        self.lock().insert(registered.name.clone(), Arc::new(registered));
        self.changed();
    }

    pub fn remove(&self, name: &str) {
        if self.lock().remove(name).is_some() {
            self.changed();
        }
    }

    /// Follows registrations: the number changes with each.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// A driver had no slot left for a volume: how many there are has to be read again.
    pub fn had_no_slot(&self, name: &str) {
        self.shared.full.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        self.shared.filled.notify_one();
    }

    /// Waits for drivers that had no slot left since the last time. For one caller.
    pub async fn without_slot(&self) -> BTreeSet<String> {
        loop {
            let full = std::mem::take(&mut *self.shared.full.lock().unwrap_or_else(PoisonError::into_inner));
            if !full.is_empty() {
                return full;
            }
            self.shared.filled.notified().await;
        }
    }

    fn changed(&self) {
        self.shared.changes.send_modify(|count| *count += 1);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Registered>>> {
        self.shared.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
