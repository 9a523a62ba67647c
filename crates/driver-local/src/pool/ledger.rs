//! How much of a pool is promised. No byte is promised twice unless the operator allowed overcommitting.
//!
//! A thin volume has a right to bytes that it has not written yet. Those are its *need*; what a pool can still promise
//! is its free space less all needs. A volume that shares extents with a snapshot or clone may have to write them all
//! again, so its need is its whole size. Needs only shrink between two looks while free space shrinks with them, so a
//! remembered need is never too small; when it seems too large, the pool is looked through again.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{MutexGuard, PoisonError};

use driver_sdk::Error;

use super::{Copying, Object, Place, Pool};
use crate::fault;
use crate::linux::statfs;
use crate::record::{Kind, SnapshotRecord, SourceRef, VolumeRecord};

/// What one object was promised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Promise {
    /// Its size as the caller sees it.
    pub size: u64,
    /// Bytes of it that may still have to be taken from free space.
    pub need: u64,
}

/// The pool's filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    pub free: u64,
}

/// What can still be promised.
pub fn available(space: Space, reserve: u64, overcommit: f64, promises: impl Iterator<Item = Promise>) -> u64 {
    let (sizes, needs) = promises.fold((0u64, 0u64), |(sizes, needs), promise| {
        (sizes.saturating_add(promise.size), needs.saturating_add(promise.need))
    });
    if overcommit > 1.0 {
        // Bytes fit a float's 53 bits up to 9 PB; beyond that the error is far below one volume.
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let budget = (space.total.saturating_sub(reserve) as f64 * overcommit) as u64;
        budget.saturating_sub(sizes)
    } else {
        space.free.saturating_sub(reserve).saturating_sub(needs)
    }
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    objects: BTreeMap<String, Promise>,
    in_flight: BTreeMap<u64, Promise>,
    next: u64,
}

/// Space set aside for an operation under way. Dropping it gives the space back.
#[derive(Debug)]
pub struct Reservation<'a> {
    pool: &'a Pool,
    number: u64,
}

impl Reservation<'_> {
    /// The operation is done: the object now holds the promise.
    pub fn settle(self, id: &str, promise: Promise) {
        let mut ledger = self.pool.ledger();
        ledger.objects.insert(id.to_owned(), promise);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.pool.ledger().in_flight.remove(&self.number);
    }
}

impl Pool {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A panic while holding the lock leaves at worst a promise too many, which the next look corrects.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn space(&self) -> Result<Space, Error> {
        let usage = statfs::usage(&self.root).map_err(fault::sys)?;
        Ok(Space { total: usage.total, free: usage.available })
    }

    /// Bytes that a new volume could be promised.
    pub fn available(&self) -> Result<u64, Error> {
        let space = self.space()?;
        let mut ledger = self.ledger();
        if !self.sole_writer {
            self.look_through(&mut ledger)?;
        }
        Ok(self.left(space, &ledger))
    }

    fn left(&self, space: Space, ledger: &Ledger) -> u64 {
        let all = ledger.objects.values().chain(ledger.in_flight.values()).copied();
        available(space, self.reserve, self.overcommit, all)
    }

    /// Sets space aside, or says how much there would be.
    pub fn reserve(&self, wanted: Promise) -> Result<Reservation<'_>, Error> {
        let space = self.space()?;
        let mut ledger = self.ledger();
        let fits = |ledger: &Ledger| {
            let asked = if self.overcommit > 1.0 { wanted.size } else { wanted.need };
            self.left(space, ledger) >= asked
        };
        if !self.sole_writer || !fits(&ledger) {
            self.look_through(&mut ledger)?;
        }
        if !fits(&ledger) {
            let left = self.left(space, &ledger);
            let asked = wanted.need.max(wanted.size);
            return Err(Error::no_space(format!("pool {:?} can promise {left} more bytes, {asked} are needed", self.name)));
        }
        let number = ledger.next;
        ledger.next += 1;
        ledger.in_flight.insert(number, wanted);
        Ok(Reservation { pool: self, number })
    }

    /// The object is gone, and with it its promise.
    pub fn forget(&self, id: &str) {
        self.ledger().objects.remove(id);
    }

    /// Its extents are shared from now on.
    pub fn mark_shared(&self, id: &str) {
        if self.features.copying == Copying::Reflink
            && let Some(promise) = self.ledger().objects.get_mut(id)
        {
            promise.need = promise.size;
        }
    }

    pub(super) fn build_ledger(&self) -> Result<(), Error> {
        self.look_through(&mut self.ledger())
    }

    /// Reads every object's promise from disk.
    fn look_through(&self, ledger: &mut Ledger) -> Result<(), Error> {
        let listing = |place| self.ids(place).map_err(|error| fault::io("listing the pool", error));
        let mut volumes = Vec::new();
        let mut shared = std::collections::BTreeSet::new();
        for id in listing(Place::Volumes)? {
            let object = self.object(Place::Volumes, &id);
            // A damaged record promises what its image says.
            let record = object.record::<VolumeRecord>().ok();
            if let Some(VolumeRecord { source: Some(source), .. }) = &record {
                shared.insert(id.clone());
                if let SourceRef::Volume(source) = source {
                    shared.insert(source.clone());
                }
            }
            volumes.push((id, object, record));
        }
        for id in listing(Place::Snapshots)? {
            if let Ok(record) = self.object(Place::Snapshots, &id).record::<SnapshotRecord>() {
                shared.insert(record.source);
            }
        }
        for id in listing(Place::Groups)? {
            if let Ok(record) = self.object(Place::Groups, &id).record::<crate::record::GroupRecord>() {
                shared.extend(record.sources);
            }
        }
        ledger.objects.clear();
        for (id, object, record) in volumes {
            let sharing = self.features.copying == Copying::Reflink && shared.contains(&id);
            ledger.objects.insert(id, promise_of(&object, record.as_ref(), sharing));
        }
        Ok(())
    }
}

/// What a volume on disk holds and may still need.
fn promise_of(object: &Object, record: Option<&VolumeRecord>, sharing: bool) -> Promise {
    let image = fs::metadata(object.image());
    let on_disk = image.as_ref().map_or(0, |meta| meta.len());
    let size = record.map_or(on_disk, |record| record.size.max(on_disk));
    let written = match record.map(|record| record.kind) {
        Some(Kind::Image) | None => image.map_or(0, |meta| meta.blocks().saturating_mul(512)),
        // Without quotas nobody counts what a directory holds; its whole size stays promised.
        Some(Kind::Directory | Kind::Subvolume) => 0,
    };
    Promise { size, need: if sharing { size } else { size.saturating_sub(written) } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn free_space_less_what_thin_volumes_may_still_write_can_be_promised() {
        let space = Space { total: 10 * GIB, free: 8 * GIB };
        let written = Promise { size: 4 * GIB, need: 3 * GIB };
        assert_eq!(available(space, GIB, 1.0, [written].into_iter()), 4 * GIB);
    }

    #[test]
    fn overcommitting_counts_sizes_against_a_multiple_of_the_pool() {
        let space = Space { total: 10 * GIB, free: GIB };
        let volume = Promise { size: 15 * GIB, need: 14 * GIB };
        assert_eq!(available(space, 0, 2.0, [volume].into_iter()), 5 * GIB);
    }

    proptest! {
        #[test]
        fn without_overcommit_all_needs_together_never_exceed_free_space(
            total in 1u64..1 << 40,
            requests in proptest::collection::vec(1u64..1 << 36, 0..64),
        ) {
            let space = Space { total, free: total };
            let mut granted: Vec<Promise> = Vec::new();
            for size in requests {
                if available(space, 0, 1.0, granted.iter().copied()) >= size {
                    granted.push(Promise { size, need: size });
                }
            }
            prop_assert!(granted.iter().map(|promise| promise.need).sum::<u64>() <= total);
        }
    }
}
