//! Disk space for the store's own needs, on a filesystem that others fill up.
//!
//! Guarantees:
//! - A file of allocated blocks is kept beside the database while there is room for it. It is removed as soon as the
//!   filesystem is short of space, so that deletes, leases and other small writes still find blocks.
//! - While space is short the store says so ([`StoreSpace::Low`]), and its writer refuses writes that grow. Pages that are
//!   free inside the database are space like any other: the file of a database does not become smaller, so that objects
//!   which are deleted give space back nowhere else.
//! - When there is room again, the file is made again and everything is accepted, without a restart.
//! - The write-ahead file has its blocks from the start, and the database some behind its end, so that no one else can take
//!   them while the store runs.
//! - The write-ahead file can always be emptied into the database: where space is scarce, the database takes its blocks
//!   before anything more is written.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::place::{Place, create_private};
use crate::store::durable::StoreSpace;

const MIB: u64 = 1 << 20;

/// The amounts that decide, for a filesystem of a given size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RoomLimits {
    /// Size of the file that is given up when space is short.
    reserve: u64,
    /// Less space than this is too little, in the filesystem and in free pages of the database together.
    low: u64,
    /// As much as this is enough again.
    enough: u64,
}

impl RoomLimits {
    fn of(total: u64) -> Self {
        let reserve = (total / 32).clamp(MIB, 16 * MIB);
        Self { reserve, low: reserve / 2, enough: reserve * 2 }
    }

    /// Whether space is short, given whether it was before.
    fn is_low(&self, was_low: bool, available: u64) -> bool {
        available < if was_low { self.enough } else { self.low }
    }
}

/// Bytes of the database that matter to the space there is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DatabaseBytes {
    /// In pages that can be written to again.
    pub(super) reusable: u64,
    /// Written, and in the write-ahead file only: the database will take them from the filesystem.
    pub(super) pending: u64,
    /// Of its file.
    pub(super) length: u64,
}

/// Blocks that the database has behind its end, for the pages that deletes and leases add on a full disk.
const AHEAD: u64 = 512 << 10;

/// The space of one open store.
#[derive(Debug)]
pub(super) struct Room {
    reserve: PathBuf,
    dir: PathBuf,
    is_low: bool,
    /// The length of the database behind which it has blocks.
    ahead_of: Option<u64>,
}

impl Room {
    /// Looks at the filesystem before anything is written, and gives up the reserve where nothing could be.
    pub(super) fn open(place: &Place) -> Self {
        let mut room = Self { reserve: place.reserve(), dir: place.dir.clone(), is_low: false, ahead_of: None };
        room.look(DatabaseBytes::default());
        room
    }

    /// How much space there is now.
    pub(super) fn look(&mut self, database: DatabaseBytes) -> StoreSpace {
        // A filesystem that cannot be asked is not held against its writers: a write that fails says more.
        let Ok(found) = statvfs(&self.dir) else { return self.space(u64::MAX) };
        let (free, total) = (found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize);
        let (limits, free) = (RoomLimits::of(total), free.saturating_sub(database.pending));
        match (self.is_low, limits.is_low(self.is_low, free.saturating_add(database.reusable))) {
            (false, true) => {
                self.fall(free);
            }
            (true, false) => {
                self.is_low = false;
                tracing::info!(free, "the store's disk has room again: all writes are accepted");
                self.fill(limits, free);
            }
            (false, false) => self.fill(limits, free),
            (true, true) => {}
        }
        self.space(free)
    }

    /// Notes that a write found no space. Gives whether it is worth trying again: blocks have become free.
    pub(super) fn ran_out(&mut self) -> bool {
        self.fall(0)
    }

    /// Whether there is little enough space that every block is worth a look.
    pub(super) fn is_scarce(&self, pending: u64) -> bool {
        statvfs(&self.dir).is_ok_and(|found| {
            let limits = RoomLimits::of(found.f_blocks * found.f_frsize);
            found.f_bavail * found.f_frsize < pending.saturating_add(2 * limits.enough)
        })
    }

    /// Gives the database blocks behind its end.
    pub(super) fn allocate_ahead(&mut self, database: &File, length: u64) {
        if self.ahead_of != Some(length) {
            self.ahead_of = Some(length);
            if let Err(error) = fallocate(database, FallocateFlags::KEEP_SIZE, length, AHEAD) {
                tracing::debug!(%error, "the store's database gets no blocks in advance");
            }
        }
    }

    /// Whether the filesystem has the blocks for a batch twice, in the write-ahead file and in the database, besides what
    /// the database has still to take. Pages that the database cannot take keep the write-ahead file from being emptied,
    /// and once that is full nothing can be written, not even a delete.
    pub(super) fn can_take(&self, pending: u64, growth: u64) -> bool {
        // As for `look`: one that cannot be asked is not held against its writers.
        let Ok(found) = statvfs(&self.dir) else { return true };
        found.f_bavail * found.f_frsize >= pending.saturating_add(growth.saturating_mul(2))
    }

    fn space(&self, free: u64) -> StoreSpace {
        if self.is_low { StoreSpace::Low { free } } else { StoreSpace::Enough }
    }

    fn fall(&mut self, free: u64) -> bool {
        if !self.is_low {
            let dir = self.dir.display();
            tracing::error!(%dir, free, "the store's disk is full: writes that grow are refused until space is freed");
        }
        self.is_low = true;
        match fs::remove_file(&self.reserve) {
            // Freed blocks can be used once the removal is on disk.
            Ok(()) => super::place::sync_dir(&self.dir).is_ok(),
            Err(_) => false,
        }
    }

    /// Makes the reserve where there is room for it. It is an aid: a failure stops nothing.
    fn fill(&self, limits: RoomLimits, free: u64) {
        if free < limits.enough || self.reserve.exists() {
            return;
        }
        let made =
            create_private(&self.reserve).and_then(|file| allocate(&file, FallocateFlags::empty(), limits.reserve));
        if let Err(error) = made {
            tracing::debug!(%error, "the store gets no reserve of disk space");
            let _ = fs::remove_file(&self.reserve);
        }
    }

    /// Gives the write-ahead file its blocks in advance, as far as there is room for them.
    pub(super) fn allocate_write_ahead(&self, place: &Place, wanted: u64) {
        let Ok(found) = statvfs(&self.dir) else { return };
        let limits = RoomLimits::of(found.f_blocks * found.f_frsize);
        let free = found.f_bavail * found.f_frsize;
        let length = wanted.min(limits.reserve).min(free / 2);
        if length == 0 {
            return;
        }
        let file = OpenOptions::new().write(true).open(place.write_ahead());
        if let Err(error) = file.and_then(|file| allocate(&file, FallocateFlags::KEEP_SIZE, length)) {
            tracing::debug!(%error, "the store's write-ahead file gets no blocks in advance");
        }
    }
}

fn allocate(file: &File, flags: FallocateFlags, length: u64) -> io::Result<()> {
    Ok(fallocate(file, flags, 0, length)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_short_below_one_level_and_enough_again_above_a_higher_one() {
        let limits = RoomLimits::of(1 << 40);
        assert_eq!(limits, RoomLimits { reserve: 16 * MIB, low: 8 * MIB, enough: 32 * MIB });
        let cases = [
            ((false, 8 * MIB), false),
            ((false, 8 * MIB - 1), true),
            ((true, 31 * MIB), true),
            ((true, 32 * MIB), false),
        ];
        for ((was_low, available), is_low) in cases {
            assert_eq!(limits.is_low(was_low, available), is_low, "{was_low} {available}");
        }
        assert_eq!(RoomLimits::of(64 * MIB).reserve, 2 * MIB, "a small filesystem keeps less");
    }
}
