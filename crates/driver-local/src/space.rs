//! Watching the free space under the pools.
//!
//! A thin image has blocks only for what was written to it. When the filesystem under its pool is full, writes that the
//! workload was told are done cannot be stored any more, and the volume's filesystem is damaged. The ledger keeps that from
//! happening as long as only this driver uses the filesystem and nothing is overcommitted. For all other cases free space is
//! watched: below a first level it is told, and at a floor the thin volumes are frozen. A frozen volume pauses its writers
//! and loses nothing; it is thawed by itself when there is space again, and before anything is unmounted. Should the driver
//! die, the guard process of each frozen volume thaws it. Raw devices become read-only instead (`raw_devices`).
//!
//! Freezing writes out what is in memory, and that needs space as well. So the floor is above zero, and what may still have
//! to be written out counts as used. In a pool that is full already nothing is frozen: a freeze would not end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use driver_sdk::{Condition, Error, Reason, VolumeId};
use rustix::io::Errno;

use crate::config::Role;
use crate::core::{Core, Found};
use crate::fault;
use crate::node::{mounts_of_loop, open_to_freeze};
use crate::params::shown;
use crate::pool::{Hold, Place, Pool, Space};
use crate::record::{AccessKind, Kind, VolumeRecord};
use linux::flush::OpenMount;
use linux::freeze::{self, Frozen};
use linux::loopdev::{self, BackingFile};
use linux::mountinfo::MountTable;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Faster than this nothing is expected to fill a pool.
const FASTEST_WRITER: u64 = GIB;
const SHORTEST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How long the writing out of one volume may take before its freeze is given up.
const FREEZE_PATIENCE: Duration = Duration::from_secs(120);

/// How a pool is doing for space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Level {
    #[default]
    Enough,
    NearlyFull,
    Full,
}

/// What one look at a pool found.
#[derive(Debug, Clone, Copy)]
struct SpaceLook {
    space: Space,
    reserve: u64,
    /// Bytes that volumes may still have to take from free space.
    unwritten: u64,
    /// Bytes in memory, of all filesystems of the machine, that are not written out yet.
    dirty: u64,
}

impl SpaceLook {
    /// Below this, volumes are frozen.
    fn floor(&self) -> u64 {
        (self.reserve / 2).max((self.space.total / 32).min(32 * MIB))
    }

    /// Below this, people are told; above it, volumes are thawed.
    fn warning(&self) -> u64 {
        self.reserve.max((self.space.total / 20).min(10 * GIB)).max(2 * self.floor())
    }

    /// Free space once everything in memory is written out.
    fn settled(&self) -> u64 {
        self.space.free.saturating_sub(self.dirty.min(self.unwritten))
    }

    /// The pool's level, given the level of the look before. A pool whose free space covers all that its volumes may still
    /// write is not short of space, however little is free.
    fn level(&self, before: Level) -> Level {
        if self.space.free >= self.unwritten.saturating_add(self.floor()) {
            return Level::Enough;
        }
        match self.settled() {
            settled if settled >= self.warning() => Level::Enough,
            settled if settled < self.floor() || before == Level::Full => Level::Full,
            _ => Level::NearlyFull,
        }
    }

    /// Is there still room to write out what a freeze writes out?
    fn may_freeze(&self) -> bool {
        self.space.free >= self.floor() / 4
    }

    /// When to look again: before the fastest writer could reach the floor.
    fn next_look(&self) -> Duration {
        let margin = self.settled().saturating_sub(self.floor());
        let millis = margin.saturating_mul(1000) / FASTEST_WRITER;
        Duration::from_millis(millis).clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }
}

/// Volumes that are frozen because their pool is full, and volumes that must not be frozen now.
#[derive(Debug, Default)]
pub(crate) struct FrozenVolumes {
    frozen: BTreeMap<String, (Frozen, PathBuf)>,
    /// Volumes whose raw device is read-only because their pool is full, and their directories.
    pub(crate) protected: BTreeMap<String, PathBuf>,
    /// Volumes with calls under way that unmount them, and how many.
    pub(crate) leaving: BTreeMap<String, usize>,
}

/// Keeps a volume from being frozen for as long as this lives.
#[derive(Debug)]
pub(crate) struct KeepThawed<'a> {
    core: &'a Core,
    id: String,
}

impl Drop for KeepThawed<'_> {
    fn drop(&mut self) {
        let mut volumes = self.core.frozen_volumes();
        if let Some(calls) = volumes.leaving.get_mut(&self.id) {
            *calls -= 1;
            if *calls == 0 {
                volumes.leaving.remove(&self.id);
            }
        }
    }
}

impl Core {
    pub(crate) fn frozen_volumes(&self) -> MutexGuard<'_, FrozenVolumes> {
        self.frozen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the space of all pools and acts on it. The answer is the time until the next look.
    pub fn watch_space(&self) -> Duration {
        let mut next = LONGEST_WAIT;
        let mut measures = Vec::new();
        for slot in &self.pools {
            let name = slot.name();
            let Some(pool) = slot.opened() else {
                measures.push((name, None));
                continue;
            };
            match self.watch_pool(pool) {
                Ok((look, level)) => {
                    next = next.min(if level == Level::Full { SHORTEST_WAIT } else { look.next_look() });
                    measures.push((name, Some((look.space.free, level))));
                }
                Err(error) => {
                    tracing::warn!(pool = %name, error = %error.chain(), "the pool's space cannot be looked at");
                    measures.push((name, None));
                }
            }
        }
        *self.measured.lock().unwrap_or_else(PoisonError::into_inner) = measures_text(&measures);
        next
    }

    fn watch_pool(&self, pool: &Pool) -> Result<(SpaceLook, Level), Error> {
        pool.confirm()?;
        let (look, before, now) = pool_level(pool)?;
        let (free, floor) = (shown(look.space.free), shown(look.floor()));
        match now {
            Level::Full if before != now => {
                tracing::error!(pool = %pool.name, free, floor, "pool full: its thin volumes wait for space");
            }
            Level::NearlyFull if before != now => tracing::warn!(pool = %pool.name, free, floor, "pool nearly full"),
            Level::Enough if before != now => {
                tracing::info!(pool = %pool.name, free, "the pool has enough space again")
            }
            _ => {}
        }
        if now == Level::Enough {
            pool.load_ballast();
        }
        match (self.config.role, now) {
            (Role::Controller, _) => {}
            (Role::Node | Role::All, Level::Full) => {
                let protected = self.protect_raw_devices(pool)?;
                if look.may_freeze() {
                    self.freeze_thin_volumes(pool)?;
                } else if before != now {
                    tracing::error!(pool = %pool.name, free, "too little space is left to freeze volumes");
                }
                self.write_out_raw_devices(pool, &protected);
            }
            (Role::Node | Role::All, Level::NearlyFull | Level::Enough) => {
                self.thaw_volumes(|path| path.starts_with(&pool.root));
                self.release_raw_devices(|path| path.starts_with(&pool.root));
            }
        }
        Ok((look, now))
    }

    /// Freezes every mounted volume of the pool that may still need blocks.
    fn freeze_thin_volumes(&self, pool: &Pool) -> Result<(), Error> {
        let table = MountTable::read().map_err(fault::sys)?;
        let bound = loopdev::Bound::read().map_err(fault::sys)?;
        for id in pool.ids(Place::Volumes).map_err(|error| fault::io("listing the pool", error))? {
            let found = Found { pool, object: pool.object(Place::Volumes, &id) };
            if pool.need_of(&id) == 0 {
                continue;
            }
            let opened = match open_writable(&found, &table, &bound) {
                Ok(Some(opened)) => opened,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(volume = %id, error = %error.chain(), "a volume of the full pool cannot be opened");
                    continue;
                }
            };
            if let Err(error) = self.freeze_volume(&found, &id, opened) {
                // Busy: a call works on it. It is tried again at the next look.
                tracing::warn!(volume = %id, error = %error.chain(), "a volume of the full pool cannot be frozen yet");
            }
        }
        Ok(())
    }

    fn freeze_volume(&self, found: &Found<'_>, id: &str, opened: OpenMount) -> Result<(), Error> {
        let place = opened.place.clone();
        let opened = Arc::new(opened);
        {
            let volumes = self.frozen_volumes();
            if volumes.leaving.contains_key(id) {
                return Ok(());
            }
            if volumes.frozen.contains_key(id) {
                drop(volumes);
                return refreeze(&opened.dir);
            }
        }
        let lock = self.hold(found, Hold::Exclusive)?;
        let guard: Vec<OsString> =
            self.config.hold_guard.iter().cloned().chain([opened.path_for_other_processes()]).collect();
        let frozen = Frozen::freeze(&guard, &[opened], FREEZE_PATIENCE)
            .map_err(|error| Error::backend("freezing a volume of a full pool", error))?;
        drop(lock);
        let mut volumes = self.frozen_volumes();
        if volumes.leaving.contains_key(id) {
            // A call that unmounts it came meanwhile; dropping thaws it.
            return Ok(());
        }
        volumes.frozen.insert(id.to_owned(), (frozen, found.object.dir().to_owned()));
        tracing::warn!(volume = %id, mount = %place.display(), "the volume is frozen: its pool is full");
        Ok(())
    }

    /// Thaws those frozen volumes whose directory is chosen.
    fn thaw_volumes(&self, chosen: impl Fn(&Path) -> bool) {
        let mut volumes = self.frozen_volumes();
        let ids: Vec<String> =
            volumes.frozen.iter().filter(|(_, (_, dir))| chosen(dir)).map(|(id, _)| id.clone()).collect();
        for id in ids {
            volumes.thaw(&id);
        }
    }

    /// Thaws everything, for the end of the driver.
    pub fn thaw_all(&self) {
        self.thaw_volumes(|_| true);
    }

    /// Thaws a volume that is about to be unmounted, and keeps it thawed for as long as the answer lives.
    pub(crate) fn keep_thawed(&self, id: &str) -> KeepThawed<'_> {
        let mut volumes = self.frozen_volumes();
        *volumes.leaving.entry(id.to_owned()).or_default() += 1;
        volumes.thaw(id);
        drop(volumes);
        self.release_raw_devices(|dir| dir.file_name().is_some_and(|name| name == id));
        KeepThawed { core: self, id: id.to_owned() }
    }

    /// Refuses work on a frozen volume: whatever writes to it would wait until its pool has space.
    pub(crate) fn refuse_frozen(&self, id: &VolumeId) -> Result<(), Error> {
        let volumes = self.frozen_volumes();
        let is = match (volumes.frozen.contains_key(id.as_str()), volumes.protected.contains_key(id.as_str())) {
            (true, _) => "frozen",
            (false, true) => "read-only",
            (false, false) => return Ok(()),
        };
        Err(Error::no_space(format!(
            "pool full: volume {id} is {is} until space is freed in its pool; delete something, or grow the pool"
        )))
    }

    /// The same refusal in place of the error of a copy that could not freeze its source once more.
    pub(crate) fn frozen_because_full(&self, error: Error, sources: &[VolumeId]) -> Error {
        let frozen = || sources.iter().find_map(|source| self.refuse_frozen(source).err());
        match error.reason() {
            Reason::Busy(_) => frozen().unwrap_or(error),
            _ => error,
        }
    }

    /// What the last look found, in the text format of metrics.
    pub fn measured(&self) -> String {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is wrong with the space under a volume, if anything. Volumes that have all their blocks are not touched by it.
    pub fn space_condition(&self, id: &VolumeId) -> Result<Option<Condition>, Error> {
        let (found, record) = self.volume(id)?;
        let (look, _, level) = pool_level(found.pool)?;
        if record.kind == Kind::Image && found.pool.need_of(id.as_str()) == 0 {
            return Ok(None);
        }
        let (name, root, free) = (&found.pool.name, found.pool.root.display(), shown(look.space.free));
        let waits = match record.access {
            AccessKind::Mount => "thin volumes that are mounted stay frozen until space is freed",
            AccessKind::Block => "devices of thin block volumes are read-only until space is freed",
        };
        Ok(match level {
            Level::Enough => None,
            Level::NearlyFull => Some(Condition::Abnormal(format!(
                "pool nearly full: {name:?} at {root} has {free} left, and its volumes may still need {}",
                shown(look.unwritten)
            ))),
            Level::Full => Some(Condition::Abnormal(format!("pool full: {name:?} at {root} has {free} left; {waits}"))),
        })
    }
}

impl FrozenVolumes {
    fn thaw(&mut self, id: &str) {
        let Some((frozen, _)) = self.frozen.remove(id) else { return };
        match frozen.thaw() {
            Ok(_) => tracing::info!(volume = %id, "the volume is thawed"),
            Err(error) => tracing::error!(volume = %id, %error, "the volume may still be frozen"),
        }
    }
}

/// Free space and level of each pool; `None` for one that is missing.
fn measures_text(measures: &[(&str, Option<(u64, Level)>)]) -> String {
    let mut text = String::new();
    let mut family = |name: &str, help: &str, value: &dyn Fn(Option<(u64, Level)>) -> Option<u64>| {
        text.push_str(&format!("# HELP orlop_driver_pool_{name} {help}.\n# TYPE orlop_driver_pool_{name} gauge\n"));
        for (pool, measure) in measures {
            if let Some(value) = value(*measure) {
                text.push_str(&format!("orlop_driver_pool_{name}{{pool=\"{pool}\"}} {value}\n"));
            }
        }
    };
    family("missing", "1 for a known pool that is not there", &|measure| Some(u64::from(measure.is_none())));
    family("free_bytes", "Free bytes of the filesystem under the pool", &|measure| measure.map(|(free, _)| free));
    family("level", "0 for enough space, 1 for nearly full, 2 for full", &|measure| {
        measure.map(|(_, level)| match level {
            Level::Enough => 0,
            Level::NearlyFull => 1,
            Level::Full => 2,
        })
    });
    text
}

/// A pool's level now, with what was looked at and the level before.
fn pool_level(pool: &Pool) -> Result<(SpaceLook, Level, Level), Error> {
    let mut level = pool.level.lock().unwrap_or_else(PoisonError::into_inner);
    let look = SpaceLook {
        space: pool.space()?,
        reserve: pool.reserve,
        unwritten: pool.unwritten()?,
        // Where the kernel does not say, everything that is unwritten counts as being on its way.
        dirty: dirty_bytes().unwrap_or(u64::MAX),
    };
    let before = *level;
    *level = look.level(before);
    Ok((look, before, *level))
}

/// The filesystem of a volume, if it is mounted and can be written to.
fn open_writable(found: &Found<'_>, table: &MountTable, bound: &loopdev::Bound) -> Result<Option<OpenMount>, Error> {
    let Ok(record) = found.object.record::<VolumeRecord>() else { return Ok(None) };
    if (record.kind, record.access) != (Kind::Image, AccessKind::Mount) {
        return Ok(None);
    }
    let Ok(image) = File::open(found.object.image()) else { return Ok(None) };
    let backing = BackingFile::of(&image).map_err(fault::sys)?;
    for status in bound.of(backing).map_err(fault::sys)? {
        if mounts_of_loop(table, &status.device).any(|mount| !mount.is_filesystem_read_only()) {
            return open_to_freeze(&status.device, table);
        }
    }
    Ok(None)
}

/// Makes sure that a volume which was frozen still is: another program may have thawed it.
fn refreeze(dir: &File) -> Result<(), Error> {
    match freeze::freeze(dir) {
        Ok(()) => Ok(()),
        Err(error) if error.is(Errno::BUSY) => Ok(()),
        Err(error) => Err(fault::sys(error)),
    }
}

/// What the machine has in memory and not on disk yet.
fn dirty_bytes() -> Option<u64> {
    parse_dirty(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_dirty(meminfo: &str) -> Option<u64> {
    let kib = |key: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(kib("Dirty")?.saturating_add(kib("Writeback")?).saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(free: u64, unwritten: u64, dirty: u64) -> SpaceLook {
        SpaceLook { space: Space { total: 100 * GIB, free }, reserve: 64 * MIB, unwritten, dirty }
    }

    #[test]
    fn a_pool_is_short_only_if_its_volumes_may_still_write_more_than_is_free() {
        let (enough, nearly, full) = (Level::Enough, Level::NearlyFull, Level::Full);
        // The floor is 32 MiB and the warning level 5 GiB.
        let rows = [
            (look(50 * GIB, 10 * GIB, 0), enough, enough, "plenty"),
            (look(40 * MIB, 0, GIB), enough, enough, "little is free, and no volume needs any of it"),
            (look(GIB, 500 * MIB, 0), full, enough, "all promises can be kept, whatever was before"),
            (look(4 * GIB, 10 * GIB, 0), enough, nearly, "promises cannot be kept"),
            (look(20 * MIB, 10 * GIB, 0), nearly, full, "below the floor"),
            (look(GIB, 10 * GIB, 2 * GIB), nearly, full, "what is in memory does not fit"),
            (look(6 * GIB, 3 * GIB, u64::MAX), nearly, enough, "of what is in memory only the unwritten part counts"),
            (look(4 * GIB, 10 * GIB, 0), full, full, "thawed above the warning level only"),
            (look(6 * GIB, 10 * GIB, 0), full, enough, "space is back"),
        ];
        for (look, before, want, why) in rows {
            assert_eq!(look.level(before), want, "{why}: {look:?}");
        }
    }

    #[test]
    fn the_nearer_the_floor_the_sooner_the_next_look() {
        let wait = |free| look(free, 200 * GIB, 0).next_look();
        assert_eq!(wait(90 * GIB), LONGEST_WAIT);
        assert!(wait(2 * GIB) < Duration::from_secs(2) && wait(2 * GIB) > SHORTEST_WAIT);
        assert_eq!(wait(0), SHORTEST_WAIT);
        assert!(!look(0, GIB, 0).may_freeze(), "a freeze in a pool that is full already does not end");
        assert!(look(31 * MIB, GIB, 0).may_freeze());
    }

    #[test]
    fn each_pool_is_measured_and_a_missing_one_only_as_missing() {
        let text = measures_text(&[("a", Some((7, Level::NearlyFull))), ("b", None)]);
        for line in [
            "orlop_driver_pool_missing{pool=\"a\"} 0",
            "orlop_driver_pool_missing{pool=\"b\"} 1",
            "orlop_driver_pool_free_bytes{pool=\"a\"} 7",
            "orlop_driver_pool_level{pool=\"a\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
        assert!(!text.contains("level{pool=\"b\"}"), "{text}");
    }

    #[test]
    fn what_is_in_memory_is_read_from_the_kernels_words() {
        let text = "MemTotal: 10 kB\nDirty:              12 kB\nWriteback:         4 kB\nWritebackTmp:  9 kB\n";
        assert_eq!(parse_dirty(text), Some(16 * 1024));
        assert_eq!(parse_dirty("Dirty: much\n"), None);
    }
}
