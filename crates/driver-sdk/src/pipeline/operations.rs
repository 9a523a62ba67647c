//! The table of what runs now: who may join it, and what a shutdown has to wait for.
//!
//! # Invariants
//! 1. Looking for a call to join, taking the locks and entering the table is one step, and so is leaving: two equal
//!    calls never run at once, and none is refused because its twin has just ended.
//! 2. An operation has left the table and freed its locks before anyone learns its result. Whoever knows the result can
//!    make the next call at once and never gets an old answer for it.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tonic::Status;

use super::locks::{Conflict, Guard, Holder, Locks, Wanted};

/// What all callers of one operation get.
pub(crate) type Outcome<T> = Result<T, Status>;

/// Two calls are the same when method and bytes are. Only a digest of the bytes is kept: they hold secrets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallKey {
    pub(crate) method: &'static str,
    pub(crate) digest: [u8; 32],
}

/// An operation that runs, as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub op: u64,
    pub method: &'static str,
    pub object: String,
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (operation {})", self.method, self.op)?;
        if self.object.is_empty() { Ok(()) } else { write!(f, " on {:?}", self.object) }
    }
}

#[derive(Default)]
struct Table {
    running: BTreeMap<u64, Running>,
    /// The receiver of the result, of a type that the method decides.
    joinable: BTreeMap<CallKey, Box<dyn Any + Send>>,
}

/// All operations of one driver.
#[derive(Clone)]
pub(crate) struct Operations {
    table: Arc<Mutex<Table>>,
    count: watch::Sender<usize>,
    locks: Locks,
}

/// What became of a call that wanted to start.
pub(crate) enum Begun<T> {
    First(Ticket<T>, watch::Receiver<Option<Outcome<T>>>),
    Joined(watch::Receiver<Option<Outcome<T>>>),
}

/// A place in the table. Its owner does the work.
pub(crate) struct Ticket<T> {
    operations: Operations,
    op: u64,
    key: Option<CallKey>,
    guard: Option<Guard>,
    result: watch::Sender<Option<Outcome<T>>>,
}

impl Operations {
    pub(crate) fn new(locks: Locks) -> Self {
        Self { table: Arc::default(), count: watch::Sender::new(0), locks }
    }

    /// Joins an equal call that runs, or takes the locks and starts. `key` is absent for calls that never join.
    pub(crate) fn begin<T>(&self, running: Running, key: Option<CallKey>, wanted: Wanted) -> Result<Begun<T>, Conflict>
    where
        T: Clone + Send + Sync + 'static,
    {
        let mut table = self.lock();
        let twin = key.as_ref().and_then(|key| table.joinable.get(key));
        if let Some(receiver) = twin.and_then(|twin| twin.downcast_ref::<watch::Receiver<Option<Outcome<T>>>>()) {
            return Ok(Begun::Joined(receiver.clone()));
        }
        let op = running.op;
        let guard = self.locks.acquire(wanted, Holder { op, method: running.method })?;
        let (result, receiver) = watch::channel(None);
        if let Some(key) = key.clone() {
            table.joinable.insert(key, Box::new(receiver.clone()));
        }
        table.running.insert(op, running);
        self.count.send_replace(table.running.len());
        drop(table);
        let ticket = Ticket { operations: self.clone(), op, key, guard: Some(guard), result };
        Ok(Begun::First(ticket, receiver))
    }

    pub(crate) fn running(&self) -> Vec<Running> {
        self.lock().running.values().cloned().collect()
    }

    /// Ends when nothing runs.
    pub(crate) async fn idle(&self) {
        // The sender is in `self`, so the wait cannot fail.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Nothing panics while the table is locked, so a poisoned lock still guards a sound table.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Ticket<T> {
    /// Leaves the table, frees the locks, then tells every caller.
    pub(crate) fn finish(mut self, outcome: Outcome<T>) {
        self.leave();
        self.result.send_replace(Some(outcome));
    }

    fn leave(&mut self) {
        let mut table = self.operations.lock();
        if let Some(key) = self.key.take() {
            table.joinable.remove(&key);
        }
        self.guard = None;
        if table.running.remove(&self.op).is_some() {
            self.operations.count.send_replace(table.running.len());
        }
    }
}

impl<T> Drop for Ticket<T> {
    /// A task that the runtime threw away at shutdown frees its place as well; its callers see the sender go.
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::super::locks::Key;
    use super::*;

    fn running(op: u64) -> Running {
        Running { op, method: "DeleteVolume", object: "v".into() }
    }

    fn key(byte: u8) -> Option<CallKey> {
        Some(CallKey { method: "DeleteVolume", digest: [byte; 32] })
    }

    fn volume() -> Wanted {
        Wanted::exclusive(Key::Volume("v".into()))
    }

    /// Rule: LOCAL-E.4.4
    #[test]
    fn an_equal_call_joins_and_another_is_refused_until_the_end() {
        let operations = Operations::new(Locks::default());
        let Ok(Begun::First(ticket, mut first)) = operations.begin::<u8>(running(1), key(1), volume()) else {
            panic!("the first call starts")
        };
        let Ok(Begun::Joined(mut second)) = operations.begin::<u8>(running(2), key(1), volume()) else {
            panic!("the equal call joins")
        };
        let conflict = operations.begin::<u8>(running(3), key(2), volume()).err().map(|c| c.holder.op);
        assert_eq!(conflict, Some(1));
        ticket.finish(Ok(9));
        for receiver in [&mut first, &mut second] {
            assert!(matches!(&*receiver.borrow_and_update(), Some(Ok(9))));
        }
        assert!(matches!(operations.begin::<u8>(running(4), key(2), volume()), Ok(Begun::First(..))));
    }

    #[test]
    fn a_task_that_was_thrown_away_leaves_the_table() {
        let operations = Operations::new(Locks::default());
        let begun = operations.begin::<u8>(running(1), key(1), volume());
        assert_eq!(operations.running(), [running(1)]);
        drop(begun);
        assert!(operations.running().is_empty());
        assert!(operations.begin::<u8>(running(2), key(2), volume()).is_ok());
    }
}
