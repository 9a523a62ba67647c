//! The mark of a volume that lost writes: a sealed record beside the volume's data, which stays until an operator removes it.
//!
//! A write that failed after the workload was told that it succeeded leaves no trace that survives an unmount. So the mark is
//! on disk before anything else is done with the volume. Every volume has a small file of reserved space, so that the mark can
//! be written when the pool is full.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use driver_sdk::Error;
use serde::{Deserialize, Serialize};

use crate::core::is_ours;
use crate::fault;
use crate::pool::{Hold, HoldError, Object};
use crate::record::{self, ReadError};
use linux::SysError;
use linux::durable;

/// The mark.
const LOSS: &str = "loss.json";
/// Reserved space for the mark.
const ROOM: &str = "loss.room";
/// More than a mark needs: what it says of an error is limited.
const ROOM_BYTES: usize = 4096;
/// An error's text in a mark.
const LONGEST_ERROR: usize = 1000;

/// The first words of the condition of a marked volume. Other programs recognise it by them.
pub const CONDITION_PREFIX: &str = "writes were lost:";

/// What is known of the writes that a volume lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LossRecord {
    /// When the first and the last failure were seen, in milliseconds since 1970.
    pub first_ms: u64,
    pub last_ms: u64,
    /// How many failures were seen.
    pub count: u64,
    /// What failed last: "writing the filesystem to its device".
    pub doing: String,
    /// How it failed.
    pub error: String,
    /// Of a copy: the volume or snapshot that it was copied from, where the writes were lost.
    pub copied_from: Option<String>,
    /// The use of the volume whose caller was told of the loss.
    pub told: Option<Told>,
}

/// The caller of NodeUnstageVolume is told of a loss before the volume is unmounted in spite of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// One staging of the volume: the boot, and the kernel's number of the loop device's attachment.
    pub staging: String,
    pub times: u32,
}

/// What a volume's directory says of lost writes.
#[derive(Debug)]
pub enum LossMark {
    None,
    Marked(LossRecord),
    /// There is a mark that cannot be read. The volume counts as marked.
    Unreadable(ReadError),
}

/// One failure to be marked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LossEvent<'a> {
    pub(crate) doing: &'a str,
    pub(crate) error: &'a str,
    pub(crate) now_ms: u64,
    /// Set if the caller of NodeUnstageVolume is told of this failure: which staging it is.
    pub(crate) telling: Option<&'a str>,
}

/// A failure that is still to be marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnnotedLoss {
    pub(crate) doing: &'static str,
    pub(crate) error: rustix::io::Errno,
}

impl UnnotedLoss {
    /// The volume's condition until the mark can be written.
    pub(crate) fn sentence(self) -> String {
        format!(
            "{CONDITION_PREFIX} {} failed ({}), and that cannot be noted beside the volume while its pool is full. Free space in \
             the pool, then check the data, or restore it",
            self.doing, self.error
        )
    }
}

impl LossMark {
    pub fn of(object: &Object) -> LossMark {
        match record::read(&object.dir().join(LOSS)) {
            Ok(record) => LossMark::Marked(record),
            Err(ReadError::Missing(_)) => LossMark::None,
            Err(error) => LossMark::Unreadable(error),
        }
    }

    /// How often the caller was told of a loss during this staging.
    pub(crate) fn times_told(&self, staging: &str) -> u32 {
        match self {
            LossMark::Marked(LossRecord { told: Some(told), .. }) if told.staging == staging => told.times,
            LossMark::None | LossMark::Marked(_) | LossMark::Unreadable(_) => 0,
        }
    }
}

/// What the condition of this volume says of lost writes; `None` if it has no mark.
pub(crate) fn condition(object: &Object, id: &str, pool: &Path) -> Option<String> {
    let what = match LossMark::of(object) {
        LossMark::None => return None,
        LossMark::Marked(record) => sentence(&record),
        LossMark::Unreadable(error) => format!("the mark that says so cannot be read ({error})"),
    };
    Some(format!(
        "{CONDITION_PREFIX} {what}. What was written before may be missing or damaged. Check the data, or restore it; then \
         clear this with `orlop driver accept-loss {id} --pool {}`",
        pool.display()
    ))
}

fn sentence(record: &LossRecord) -> String {
    let LossRecord { first_ms, last_ms, count, doing, error, copied_from, told: _ } = record;
    let source = copied_from.as_ref().map(|id| format!(" in {id}, of which this is a copy,")).unwrap_or_default();
    let times = match count {
        0 | 1 => format!("at {}", utc(*last_ms)),
        _ => format!("{count} times from {} to {}", utc(*first_ms), utc(*last_ms)),
    };
    format!("{doing} failed{source} {times} ({error})")
}

/// Milliseconds since 1970 as a date and time in UTC, by the calendar's 400-year cycle that begins in March of year 0.
fn utc(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Reserves the space for a mark, unless it is there.
pub(crate) fn reserve_room(object: &Object) -> io::Result<()> {
    let path = object.dir().join(ROOM);
    if fs::metadata(&path).is_ok_and(|meta| meta.len() >= ROOM_BYTES as u64) {
        return Ok(());
    }
    // Bytes that are not zero take space on every filesystem.
    File::create(path)?.write_all(&[b'.'; ROOM_BYTES])
}

/// Marks a volume, or adds to its mark. When this returns success the mark is on disk.
pub(crate) fn mark(object: &Object, event: LossEvent<'_>) -> Result<(), Error> {
    let LossEvent { doing, error, now_ms, telling } = event;
    let before = LossMark::of(object);
    let told = telling.map(|staging| Told { staging: staging.to_owned(), times: before.times_told(staging) + 1 });
    let (doing, error) = (doing.to_owned(), error.chars().take(LONGEST_ERROR).collect());
    let record = match before {
        LossMark::Marked(old) => LossRecord {
            last_ms: now_ms,
            count: old.count.saturating_add(1),
            doing,
            error,
            told: told.or(old.told),
            ..old
        },
        // The mark of a newer program says more than this program could.
        LossMark::Unreadable(ReadError::Newer { .. }) => return Ok(()),
        LossMark::None | LossMark::Unreadable(_) => {
            LossRecord { first_ms: now_ms, last_ms: now_ms, count: 1, doing, error, copied_from: None, told }
        }
    };
    tracing::error!(volume = %object.dir().display(), doing = %record.doing, error = %record.error, "writes were lost");
    write(object, &record).map_err(|failed| {
        Error::data_loss(format!(
            "{} failed ({}) and that could not be noted beside the volume; nothing was unmounted: free space in the pool and \
             repeat the call",
            record.doing, record.error
        ))
        .because(failed)
    })
}

/// A copy of a marked volume or snapshot is marked too.
pub(crate) fn copy_mark(from: &Object, from_id: &str, to: &Object) -> Result<(), Error> {
    let mut record = match LossMark::of(from) {
        LossMark::None => return Ok(()),
        LossMark::Marked(record) => record,
        LossMark::Unreadable(error) => return Err(fault::record(error)),
    };
    record.copied_from.get_or_insert_with(|| from_id.to_owned());
    record.told = None;
    write(to, &record).map_err(fault::sys)
}

fn write(object: &Object, record: &LossRecord) -> Result<(), SysError> {
    let path = object.dir().join(LOSS);
    let bytes = record::seal_over(record, &path).map_err(SysError::on("encode", &path))?;
    match durable::write_file_atomic(object.dir(), LOSS.as_ref(), &bytes, 0o600) {
        Err(error) if error.is_out_of_space() => {
            match durable::write_file_into_room(object.dir(), ROOM.as_ref(), LOSS.as_ref(), &bytes) {
                // An earlier mark has taken the room. It is written over: one that a crash tears still counts as a mark.
                Err(error) if error.is(rustix::io::Errno::NOENT) => {
                    durable::write_file_into_room(object.dir(), LOSS.as_ref(), LOSS.as_ref(), &bytes)
                }
                other => other,
            }
        }
        other => other,
    }
}

/// What came of accepting a loss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// The mark is gone. It said this.
    Cleared(String),
    /// There was no mark.
    NotMarked,
}

#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    #[error("{0:?} is not the id of a volume or snapshot of this driver")]
    NotAnId(String),
    #[error("{id} is not in {}", .pools.iter().map(|pool| pool.display().to_string()).collect::<Vec<_>>().join(", "))]
    NotFound { id: String, pools: Vec<PathBuf> },
    #[error("{0} is being worked on by the driver; repeat the command")]
    Busy(String),
    #[error("locking {id}")]
    Lock {
        id: String,
        #[source]
        source: HoldError,
    },
    #[error("removing the mark of {id}")]
    Remove {
        id: String,
        #[source]
        source: SysError,
    },
}

/// Removes the mark of a volume or snapshot in one of these pools. It may be in use, and the driver may run.
pub fn accept(pools: &[PathBuf], id: &str) -> Result<Accepted, AcceptError> {
    let (object_id, member) = match id.split_once('.') {
        Some((group, number)) => (group, Some(number)),
        None => (id, None),
    };
    if !is_ours(object_id) || member.is_some_and(|number| number.parse::<usize>().is_err()) {
        return Err(AcceptError::NotAnId(id.to_owned()));
    }
    let places = pools.iter().flat_map(|pool| ["volumes", "snapshots", "groups"].map(|folder| pool.join(folder)));
    let mut found = places.map(|folder| folder.join(object_id)).filter(|dir| dir.is_dir());
    let missing = || AcceptError::NotFound { id: id.to_owned(), pools: pools.to_vec() };
    let owner = Object::at(found.next().ok_or_else(missing)?);
    let lock = owner.hold(Hold::Exclusive).map_err(|error| match error {
        HoldError::Busy => AcceptError::Busy(id.to_owned()),
        HoldError::Gone => missing(),
        source @ HoldError::Io(_) => AcceptError::Lock { id: id.to_owned(), source },
    })?;
    let object = match member {
        Some(number) => Object::at(owner.dir().join(number)),
        None => owner,
    };
    if !object.dir().is_dir() {
        return Err(missing());
    }
    let said = match LossMark::of(&object) {
        LossMark::None => return Ok(Accepted::NotMarked),
        LossMark::Marked(record) => sentence(&record),
        LossMark::Unreadable(error) => error.to_string(),
    };
    let path = object.dir().join(LOSS);
    let removed = fs::remove_file(&path).map_err(SysError::on("remove", &path));
    removed
        .and_then(|()| durable::fsync_dir(object.dir()))
        .map_err(|source| AcceptError::Remove { id: id.to_owned(), source })?;
    drop(lock);
    Ok(Accepted::Cleared(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let rows = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_868_799_000, "2000-02-29T23:59:59Z"),
            (1_709_251_199_000, "2024-02-29T23:59:59Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00Z"),
        ];
        for (ms, want) in rows {
            assert_eq!(utc(ms), want);
        }
    }

    fn event(error: &str) -> LossEvent<'_> {
        LossEvent { doing: "syncing", error, now_ms: 1000, telling: Some("boot/1") }
    }

    #[test]
    fn a_mark_counts_is_copied_and_goes_when_it_is_accepted() {
        let pool = tempfile::tempdir().unwrap();
        let id = "vol-aaaaaaaaaaaaaaaaaaaaaaaaaa";
        let object = Object::at(pool.path().join("volumes").join(id));
        fs::create_dir_all(object.dir()).unwrap();
        reserve_room(&object).unwrap();
        assert_eq!(condition(&object, id, pool.path()), None);
        mark(&object, event("EIO")).unwrap();
        mark(&object, event("ENOSPC")).unwrap();
        let said = condition(&object, id, pool.path()).unwrap();
        assert!(said.starts_with("writes were lost: syncing failed 2 times from 1970"), "{said}");
        assert!(said.contains("(ENOSPC)") && said.contains(&format!("accept-loss {id} --pool ")), "{said}");
        assert_eq!(LossMark::of(&object).times_told("boot/1"), 2);
        assert_eq!(LossMark::of(&object).times_told("boot/2"), 0, "another staging was not told");

        let copy = Object::at(pool.path().join("copy"));
        fs::create_dir(copy.dir()).unwrap();
        copy_mark(&object, id, &copy).unwrap();
        let said = condition(&copy, "snap", pool.path()).unwrap();
        assert!(said.contains(&format!("in {id}, of which this is a copy")), "{said}");

        let pools = [pool.path().to_owned()];
        assert!(matches!(accept(&pools, id).unwrap(), Accepted::Cleared(said) if said.contains("ENOSPC")));
        assert_eq!(accept(&pools, id).unwrap(), Accepted::NotMarked);
        assert!(matches!(accept(&pools, "vol-bbbbbbbbbbbbbbbbbbbbbbbbbb"), Err(AcceptError::NotFound { .. })));
        assert!(matches!(accept(&pools, "../volumes"), Err(AcceptError::NotAnId(_))));
        mark(&object, event("EIO")).unwrap();
        let held = object.hold(Hold::Exclusive).unwrap();
        assert!(matches!(accept(&pools, id), Err(AcceptError::Busy(_))));
        drop(held);
    }

    #[test]
    fn a_mark_that_cannot_be_read_counts_as_a_mark() {
        let place = tempfile::tempdir().unwrap();
        let object = Object::at(place.path().to_owned());
        fs::write(place.path().join(LOSS), "torn").unwrap();
        let said = condition(&object, "vol-x", place.path()).unwrap();
        assert!(said.starts_with(CONDITION_PREFIX) && said.contains("is damaged"), "{said}");
        mark(&object, event("EIO")).unwrap();
        assert!(matches!(LossMark::of(&object), LossMark::Marked(LossRecord { count: 1, .. })));
    }
}
