//! What the disk of a volume has of what pods wrote: the page cache of each machine, writeback that can fail, and the mark of
//! lost writes, as the local driver has them.
//!
//! A write goes into the page cache of its machine and is acknowledged. Writeback brings it to the disk later. In a full pool
//! or on a broken filesystem writeback fails, and the kernel drops what it could not write; only the next sync hears of it. A
//! driver that syncs before it lets go of a volume hears of it too, and marks the volume.

use std::collections::{BTreeMap, BTreeSet};

use super::{DriverFlaw, Model};

/// A caller is told of a loss so often at most. Then the volume is let go with its mark.
const TOLD_AT_MOST: u32 = 3;

/// A volume on one machine, from a boot to the next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VolumeUse {
    /// What tells the machine from a copy of it.
    pub(crate) body: String,
    pub(crate) boot: u64,
    pub(crate) volume: String,
}

/// Writes of one use that are not on the disk.
#[derive(Debug, Clone, Default)]
struct PageCache {
    dirty: u64,
    /// Dropped by a writeback that failed, of which no sync has heard.
    lost: u64,
    told: u32,
}

/// Whether a writeback succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writeback {
    Works,
    Fails,
}

/// The outcome of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncAnswer {
    Written,
    /// Writes were lost. The volume is marked, and the caller is told.
    Lost,
    /// The same, and the caller was told often enough.
    LostAndTold,
}

/// The page caches of all machines, and the marks of volumes.
#[derive(Debug, Clone, Default)]
pub(super) struct Disks {
    caches: BTreeMap<VolumeUse, PageCache>,
    marked: BTreeSet<String>,
    is_full: bool,
}

impl Disks {
    fn write(&mut self, at: VolumeUse) {
        self.caches.entry(at).or_default().dirty += 1;
    }

    /// Gives how many writes were dropped.
    fn write_back(&mut self, at: &VolumeUse, works: Writeback) -> u64 {
        let is_full = self.is_full;
        let Some(cache) = self.caches.get_mut(at) else { return 0 };
        let dirty = std::mem::take(&mut cache.dirty);
        if works == Writeback::Works && !is_full {
            return 0;
        }
        cache.lost += dirty;
        dirty
    }

    fn sync(&mut self, at: &VolumeUse, works: Writeback) -> SyncAnswer {
        self.write_back(at, works);
        let Some(cache) = self.caches.get_mut(at) else { return SyncAnswer::Written };
        if std::mem::take(&mut cache.lost) == 0 {
            return SyncAnswer::Written;
        }
        self.marked.insert(at.volume.clone());
        cache.told += 1;
        if cache.told > TOLD_AT_MOST { SyncAnswer::LostAndTold } else { SyncAnswer::Lost }
    }

    /// A machine has these volumes and no others: what it let go of is on the disk, or the volume is marked. Gives the rest.
    fn let_go(&mut self, body: &str, boot: u64, held: &BTreeSet<String>) -> Vec<(String, u64)> {
        let is_over = |at: &VolumeUse| at.body == body && (at.boot != boot || !held.contains(&at.volume));
        let over: Vec<VolumeUse> = self.caches.keys().filter(|at| is_over(at)).cloned().collect();
        let mut missing = Vec::new();
        for at in over {
            let Some(cache) = self.caches.remove(&at) else { continue };
            // What was only in memory when the machine lost its power was promised to nobody.
            let unwritten = cache.dirty + cache.lost;
            if at.boot == boot && unwritten > 0 && !self.marked.contains(&at.volume) {
                missing.push((at.volume, unwritten));
            }
        }
        missing
    }
}

impl Model {
    /// A pod writes.
    pub(crate) fn write(&self, at: VolumeUse) {
        self.lock().disks.write(at);
    }

    /// The kernel writes to the disk what a machine has in memory of a volume.
    pub(crate) fn write_back(&self, at: &VolumeUse, works: Writeback) {
        let dropped = self.lock().disks.write_back(at, works);
        if dropped > 0 {
            self.note(format_args!("{dropped} writes to {} on {} are lost at writeback", at.volume, at.body));
        }
    }

    /// The pool has no space left, or has some again.
    pub(crate) fn fill(&self, is_full: bool) {
        self.note(if is_full { "the pool is full" } else { "the pool has space again" });
        self.lock().disks.is_full = is_full;
    }

    /// Syncs a volume that is to be let go; `shown` is whether the path that is unstaged shows the volume and nothing over it.
    pub(super) fn sync(&self, at: &VolumeUse, works: Writeback, shown: bool) -> SyncAnswer {
        let mut inner = self.lock();
        match inner.flaw {
            DriverFlaw::NoSync => SyncAnswer::Written,
            DriverFlaw::SyncOnTop if !shown => SyncAnswer::Written,
            _ => inner.disks.sync(at, works),
        }
    }

    /// Writes to volumes that a machine does not have any more, that are not on their disks and that no mark tells of.
    pub(crate) fn unwritten(&self, body: &str, boot: u64, held: &BTreeSet<String>) -> Vec<(String, u64)> {
        self.lock().disks.let_go(body, boot, held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(boot: u64) -> VolumeUse {
        VolumeUse { body: "node-a".to_owned(), boot, volume: "vol-1".to_owned() }
    }

    #[test]
    fn a_loss_is_heard_once_and_marks_the_volume() {
        let mut disks = Disks::default();
        disks.write(used(1));
        assert_eq!(disks.write_back(&used(1), Writeback::Works), 0);
        disks.write(used(1));
        assert_eq!(disks.write_back(&used(1), Writeback::Fails), 1);
        assert_eq!(disks.sync(&used(1), Writeback::Works), SyncAnswer::Lost);
        assert_eq!(disks.sync(&used(1), Writeback::Works), SyncAnswer::Written);
        assert_eq!(disks.let_go("node-a", 1, &BTreeSet::new()), [], "it is marked");
    }

    #[test]
    fn what_is_let_go_unsynced_is_missing_unless_the_power_went() {
        let mut disks = Disks::default();
        disks.write(used(1));
        assert_eq!(disks.let_go("node-a", 1, &["vol-1".to_owned()].into()), [], "it is still mounted");
        assert_eq!(disks.let_go("node-b", 1, &BTreeSet::new()), []);
        assert_eq!(disks.let_go("node-a", 1, &BTreeSet::new()), [("vol-1".to_owned(), 1)]);
        disks.write(used(1));
        assert_eq!(disks.let_go("node-a", 2, &BTreeSet::new()), [], "the machine was off in between");
    }

    #[test]
    fn a_full_pool_loses_and_tells_a_few_times() {
        let mut disks = Disks { is_full: true, ..Disks::default() };
        let mut tell = || {
            disks.write(used(1));
            disks.sync(&used(1), Writeback::Works)
        };
        assert_eq!(
            [tell(), tell(), tell(), tell()],
            [SyncAnswer::Lost, SyncAnswer::Lost, SyncAnswer::Lost, SyncAnswer::LostAndTold]
        );
    }
}
