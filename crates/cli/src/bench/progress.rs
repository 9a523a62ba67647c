//! How many have come how far, and when the last one did.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Counts by moment. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Progress<M> {
    tallies: watch::Sender<BTreeMap<M, Tally>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    count: usize,
    last: Option<Instant>,
}

impl<M: Ord + Copy> Progress<M> {
    pub(super) fn new() -> Self {
        Self { tallies: watch::Sender::new(BTreeMap::new()) }
    }

    /// One more came so far.
    pub(super) fn note(&self, moment: M, at: Instant) {
        self.tallies.send_modify(|tallies| {
            let tally = tallies.entry(moment).or_default();
            *tally = Tally { count: tally.count + 1, last: Some(at) };
        });
    }

    /// Something happened that is not counted, yet somebody may wait for it.
    pub(super) fn stir(&self) {
        self.tallies.send_modify(|_| {});
    }

    pub(super) fn count(&self, moment: M) -> usize {
        self.tallies.borrow().get(&moment).map_or(0, |tally| tally.count)
    }

    /// Waits until so many came so far, and says when the last one did.
    pub(super) async fn reached(&self, moment: M, count: usize) -> Instant {
        let tally = |tallies: &BTreeMap<M, Tally>| tallies.get(&moment).copied().unwrap_or_default();
        let mut tallies = self.tallies.subscribe();
        // The sender lives as long as `self`, so that this does not fail; and if it did, now is the best answer.
        let reached = tallies.wait_for(|tallies| tally(tallies).count >= count).await;
        reached.ok().and_then(|tallies| tally(&tallies).last).unwrap_or_else(Instant::now)
    }

    /// The same for so long at most; `complaint` says what is missing then.
    pub(super) async fn until(
        &self,
        goal: (M, usize),
        patience: Duration,
        complaint: impl FnOnce() -> String,
    ) -> anyhow::Result<Instant> {
        match timeout(patience, self.reached(goal.0, goal.1)).await {
            Ok(last) => Ok(last),
            Err(_) => bail!("{} after {patience:?}", complaint()),
        }
    }

    /// Waits until `done` says so. It is asked after changes, which are collected for `crowd` first: they come in crowds,
    /// and looking may cost a walk over everything.
    pub(super) async fn settled(&self, crowd: Duration, done: impl Fn() -> bool) {
        let mut changes = self.tallies.subscribe();
        while !done() {
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
            tokio::time::sleep(crowd).await;
        }
    }
}
