//! One after the other for one volume: making and deleting never overlap (external-provisioner #1469).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Lock, OwnedMutexGuard};

/// Whose turn it is, by the name of the volume.
#[derive(Debug, Default)]
pub(super) struct Turns {
    locks: Mutex<BTreeMap<Box<str>, Arc<Lock<()>>>>,
}

/// A turn. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    name: Box<str>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    fn locks(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Arc<Lock<()>>>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn take(&self, name: &str) -> Turn<'_> {
        let lock = self.locks().entry(name.into()).or_default().clone();
        let guard = Some(lock.lock_owned().await);
        Turn { turns: self, name: name.into(), guard }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut locks = self.turns.locks();
        drop(self.guard.take());
        // Whoever waits holds the lock, too; they come by here themselves.
        if locks.get(&self.name).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_of_one_name_follow_each_other_and_leave_nothing_behind() {
        let turns = Turns::default();
        let first = turns.take("v").await;
        let other = turns.take("w").await;
        assert!(timeout(Duration::from_secs(1), turns.take("v")).await.is_err());
        let second = async { turns.take("v").await };
        let ending = async {
            sleep(Duration::from_secs(1)).await;
            drop(first);
        };
        let (second, ()) = tokio::join!(second, ending);
        assert_eq!(turns.locks().len(), 2);
        drop((second, other));
        assert!(turns.locks().is_empty());
    }
}
