//! What the store counts about its writer.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::metrics::{Histogram, head};

const SECONDS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Counters of the writer.
#[derive(Debug)]
pub(super) struct Meter {
    writes: AtomicU64,
    /// One sync each; their count is the count of batches.
    syncs: Histogram,
    is_low: AtomicBool,
}

impl Default for Meter {
    fn default() -> Self {
        Self { writes: AtomicU64::new(0), syncs: Histogram::new(SECONDS), is_low: AtomicBool::new(false) }
    }
}

impl Meter {
    pub(super) fn batch(&self, writes: usize, took: Duration) {
        self.writes.fetch_add(writes as u64, Ordering::Relaxed);
        self.syncs.observe(took);
    }

    /// Notes whether disk space is short.
    pub(super) fn set_low(&self, is_low: bool) {
        self.is_low.store(is_low, Ordering::Relaxed);
    }

    pub(super) fn print(&self, revision: u64, history: usize, out: &mut String) {
        head(out, "orlop_store_writes_total", "counter", "Writes that are on disk.");
        let _ = writeln!(out, "orlop_store_writes_total {}", self.writes.load(Ordering::Relaxed));
        let name = "orlop_store_commit_seconds";
        head(out, name, "histogram", "How long a batch of writes took to be on disk.");
        self.syncs.print(name, "", out);
        head(out, "orlop_store_revision", "gauge", "The newest revision.");
        let _ = writeln!(out, "orlop_store_revision {revision}");
        head(out, "orlop_store_history_events", "gauge", "Events that watches can still start from.");
        let _ = writeln!(out, "orlop_store_history_events {history}");
        let name = "orlop_store_disk_full";
        head(out, name, "gauge", "1 while writes that grow are refused because the disk is full.");
        let _ = writeln!(out, "{name} {}", u8::from(self.is_low.load(Ordering::Relaxed)));
    }
}
