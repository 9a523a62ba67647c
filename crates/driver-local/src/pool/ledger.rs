//! How much of a pool is promised. No byte is promised twice unless the operator allowed overcommitting.
//!
//! A volume has a right to bytes that it has not written yet. Those are its *need*; what a pool can still promise is its
//! free space less all needs. Writing turns need into used space and discarding turns it back, behind our back and at
//! any time, so needs are measured whenever they are asked for and never remembered. A volume that shares extents with
//! a snapshot or clone may have to write them all again (LOCAL-0.22), so its need is its whole size, written or not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{MutexGuard, PoisonError};

use driver_sdk::Error;

use super::{Copying, Object, Place, Pool};
use crate::fault;
use crate::params::shown;
use crate::record::{Kind, SnapshotRecord, SourceRef, VolumeRecord};
use linux::statfs;

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

/// How much of its size a volume may still have to take from free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// What its image has not got on disk.
    Unwritten,
    /// Everything: it shares what is on disk with others, or nobody counts what it has on disk.
    Everything,
}

/// A volume as the ledger has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    pub size: u64,
    pub claim: Claim,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    objects: BTreeMap<String, Holding>,
    in_flight: BTreeMap<u64, Promise>,
    next: u64,
    /// Something went with which volumes may have shared extents: look through the pool before the next answer.
    stale: bool,
}

/// Space set aside for an operation under way. Dropping it gives the space back.
#[derive(Debug)]
pub struct Reservation<'a> {
    pool: &'a Pool,
    number: u64,
}

impl Reservation<'_> {
    /// The operation is done: the new volume now holds the promise.
    pub fn settle(self, id: &str, holding: Holding) {
        self.pool.ledger().objects.insert(id.to_owned(), holding);
    }

    /// The operation is done: the volume has grown.
    pub fn settle_growth(self, id: &str, size: u64) {
        if let Some(holding) = self.pool.ledger().objects.get_mut(id) {
            holding.size = size;
        }
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
        let mut ledger = self.ledger();
        if !self.sole_writer || ledger.stale {
            self.look_through(&mut ledger)?;
        }
        self.left(&ledger)
    }

    fn left(&self, ledger: &Ledger) -> Result<u64, Error> {
        // Free space is read after the needs: what is written in between counts twice, never not at all.
        let held: Vec<Promise> = ledger.objects.iter().map(|(id, holding)| self.promise(id, *holding)).collect();
        let all = held.into_iter().chain(ledger.in_flight.values().copied());
        Ok(available(self.space()?, self.reserve, self.overcommit, all))
    }

    /// Bytes that all volumes together may still have to take from free space.
    pub(crate) fn unwritten(&self) -> Result<u64, Error> {
        let mut ledger = self.ledger();
        if !self.sole_writer || ledger.stale {
            self.look_through(&mut ledger)?;
        }
        let needs = ledger.objects.iter().map(|(id, holding)| self.promise(id, *holding).need);
        Ok(needs.fold(0, u64::saturating_add))
    }

    /// Bytes that a volume may still have to take from free space, as the last look through the pool had it.
    pub(crate) fn need_of(&self, id: &str) -> u64 {
        let holding = self.ledger().objects.get(id).copied();
        holding.map_or(0, |holding| self.promise(id, holding).need)
    }

    /// What a volume was promised and may still need, as of now.
    fn promise(&self, id: &str, Holding { size, claim }: Holding) -> Promise {
        let written = match claim {
            Claim::Everything => 0,
            // Without an image there is nothing on disk that it could go on to use.
            Claim::Unwritten => written(&self.object(Place::Volumes, id)),
        };
        Promise { size, need: size.saturating_sub(written) }
    }

    /// Sets space aside, or says how much there would be.
    pub fn reserve(&self, wanted: Promise) -> Result<Reservation<'_>, Error> {
        self.confirm()?;
        let mut ledger = self.ledger();
        if !self.sole_writer || ledger.stale {
            self.look_through(&mut ledger)?;
        }
        let asked = if self.overcommit > 1.0 { wanted.size } else { wanted.need };
        let left = self.left(&ledger)?;
        if left < asked {
            return Err(Error::no_space(format!(
                "pool {:?} can promise {left} more bytes ({}), {asked} ({}) are needed",
                self.name,
                shown(left),
                shown(asked)
            )));
        }
        let number = ledger.next;
        ledger.next += 1;
        ledger.in_flight.insert(number, wanted);
        Ok(Reservation { pool: self, number })
    }

    /// A volume is gone, and with it its promise.
    pub fn forget(&self, id: &str) {
        let mut ledger = self.ledger();
        let gone = ledger.objects.remove(id);
        ledger.stale |= gone.is_some_and(|holding| holding.claim == Claim::Everything);
    }

    /// A snapshot or group is gone: volumes may have their extents to themselves again.
    pub fn forget_shares(&self) {
        self.ledger().stale = true;
    }

    /// What a volume that was just copied, or is a copy, may have to write again.
    pub fn copied_claim(&self, kind: Kind) -> Claim {
        match (self.features.copying, kind) {
            (Copying::Full, Kind::Image) => Claim::Unwritten,
            (Copying::Reflink, _) | (Copying::Full, Kind::Directory | Kind::Subvolume) => Claim::Everything,
        }
    }

    /// Its extents are shared from now on.
    pub fn mark_shared(&self, id: &str) {
        if self.features.copying == Copying::Reflink
            && let Some(holding) = self.ledger().objects.get_mut(id)
        {
            holding.claim = Claim::Everything;
        }
    }

    pub(super) fn build_ledger(&self) -> Result<(), Error> {
        self.look_through(&mut self.ledger())
    }

    /// Reads every object's promise from disk.
    fn look_through(&self, ledger: &mut Ledger) -> Result<(), Error> {
        let listing = |place| self.ids(place).map_err(|error| fault::io("listing the pool", error));
        let mut volumes = Vec::new();
        let mut shared = BTreeSet::new();
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
            ledger.objects.insert(id, holding_of(&object, record.as_ref(), sharing));
        }
        ledger.stale = false;
        Ok(())
    }
}

/// What a volume on disk holds.
fn holding_of(object: &Object, record: Option<&VolumeRecord>, sharing: bool) -> Holding {
    let on_disk = fs::metadata(object.image()).map_or(0, |meta| meta.len());
    let claim = match record.map(|record| record.kind) {
        Some(Kind::Image) | None if !sharing => Claim::Unwritten,
        Some(Kind::Image) | None => Claim::Everything,
        // Without quotas nobody counts what a directory holds; its whole size stays promised.
        Some(Kind::Directory | Kind::Subvolume) => Claim::Everything,
    };
    Holding { size: record.map_or(on_disk, |record| record.size.max(on_disk)), claim }
}

/// Bytes of a volume's image that are on disk.
fn written(object: &Object) -> u64 {
    fs::metadata(object.image()).map_or(0, |meta| meta.blocks().saturating_mul(512))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    /// Rule: LOCAL-F.11
    #[test]
    fn free_space_less_what_thin_volumes_may_still_write_can_be_promised() {
        let space = Space { total: 10 * GIB, free: 8 * GIB };
        let written = Promise { size: 4 * GIB, need: 3 * GIB };
        assert_eq!(available(space, GIB, 1.0, [written].into_iter()), 4 * GIB);
    }

    /// Rule: LOCAL-F.11
    #[test]
    fn overcommitting_counts_sizes_against_a_multiple_of_the_pool() {
        let space = Space { total: 10 * GIB, free: GIB };
        let volume = Promise { size: 15 * GIB, need: 14 * GIB };
        assert_eq!(available(space, 0, 2.0, [volume].into_iter()), 5 * GIB);
    }

    proptest! {
        /// Rules: LOCAL-F.11, LOCAL-I8
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
