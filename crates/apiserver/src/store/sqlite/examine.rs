//! Reading a record with the assumption that it lies.
//!
//! Nothing is written here, so a damaged record stays as it is for whoever can still read something out of it.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, named_params};

use super::copy::copy_files;
use super::place::Place;
use super::rows::{self, APPLICATION_ID, FORMAT, Meta, ReadRow, Tally};
use super::{Damage, OpenError};
use crate::store::durable::{Entry, Image};
use crate::store::object::Revision;

/// Findings beyond this many add nothing to a report.
const MAX_FINDINGS: usize = 100;
/// Unreadable places are stepped over one revision at a time this often, then in strides that double.
const SMALL_STEPS: u32 = 20_000;

/// A record and what is wrong with it.
#[derive(Debug)]
pub(super) struct Found {
    /// All that can be trusted row by row.
    pub(super) image: Image,
    /// Rows of `image` and their checksums.
    pub(super) tally: Tally,
    pub(super) damage: Vec<Damage>,
}

/// How long a database that another process has open is waited for. Who uses a store holds it to its end.
const BUSY_PATIENCE: Duration = Duration::from_millis(100);

/// Opens the database without changing anything in it, now or when it is closed. One that another process has open is an
/// error, also when the lock of its directory was removed.
pub(super) fn connect(place: &Place) -> Result<Connection, OpenError> {
    let path = place.database();
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = connect_with(&path, flags).map_err(OpenError::Sqlite)?;
    // Each row would otherwise be asked for in vain, and be called damaged.
    match db.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0)) {
        Err(error) if is_busy(&error) => Err(OpenError::Locked { dir: place.dir.clone(), pid: None }),
        Ok(_) | Err(_) => Ok(db),
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
    matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked))
}

/// A copy of a store's files, removed when it is dropped.
#[derive(Debug)]
pub(super) struct TemporaryCopy(Place);

impl Drop for TemporaryCopy {
    fn drop(&mut self) {
        // It is in the directory of temporary files, which is emptied by others too.
        let _ = std::fs::remove_dir_all(&self.0.dir);
    }
}

/// Opens the database to read it, also where nothing can be written: SQLite needs to write even to read what the
/// write-ahead file holds, so that such a store is read from a copy.
pub(super) fn connect_to_read(place: &Place) -> Result<(Connection, Option<TemporaryCopy>), OpenError> {
    if rustix::fs::access(&place.dir, rustix::fs::Access::WRITE_OK).is_ok() {
        return Ok((connect(place)?, None));
    }
    let pending = |path: PathBuf| path.metadata().is_ok_and(|found| found.len() > 0);
    if pending(place.write_ahead()) || pending(place.rollback()) {
        let copy = temporary_copy(place)?;
        return Ok((connect(&copy.0)?, Some(copy)));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let address = immutable_address(&place.database()).map_err(OpenError::Sqlite)?;
    Ok((connect_with(Path::new(&address), flags).map_err(OpenError::Sqlite)?, None))
}

/// The address of a database that does not change while it is read.
fn immutable_address(path: &Path) -> rusqlite::Result<String> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let text = path.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(path.clone()))?;
    let escaped = text.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    Ok(format!("file:{escaped}?immutable=1"))
}

fn temporary_copy(place: &Place) -> Result<TemporaryCopy, OpenError> {
    let parent = std::env::temp_dir();
    let io = |path: PathBuf| move |source: std::io::Error| OpenError::Io { path, source };
    for attempt in 0_u32.. {
        let dir = parent.join(format!("orlop-check-{}-{attempt}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => {
                let copy = TemporaryCopy(Place::at(&dir));
                copy_files(place, &copy.0).map_err(|(path, source)| OpenError::Io { path, source })?;
                return Ok(copy);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && attempt < 1_000 => {}
            Err(error) => return Err(io(dir)(error)),
        }
    }
    Err(io(parent)(std::io::ErrorKind::AlreadyExists.into()))
}

fn connect_with(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY_PATIENCE)?;
    // Closing would otherwise move the write-ahead file into the database and remove it, also when it is damaged.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // One connection alone: no shared-memory file, and nobody else can slip in.
    db.execute_batch("PRAGMA locking_mode = EXCLUSIVE; PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;")?;
    Ok(db)
}

/// Checks everything. `mark` is what the mark beside the database says.
pub(super) fn scan(db: &Connection, mark: Result<Option<Revision>, Damage>) -> Result<Found, OpenError> {
    let mut scan = Scan::default();
    let acknowledged = scan.mark(mark);
    scan.format(db)?;
    let meta = Meta::read(db).map_err(|problem| scan.find(Damage::Row { table: "meta", row: 1, problem })).ok();
    scan.rows(db, acknowledged.max(Revision(meta.as_ref().map_or(0, |meta| meta.revision))));
    if let Some(meta) = &meta {
        scan.account(meta);
    }
    let newest = scan.entries.last().map_or(Revision(0), |entry| entry.revision);
    let reached = newest.max(Revision(meta.as_ref().map_or(0, |meta| meta.revision)));
    if reached < acknowledged {
        scan.find(Damage::Lost { after: reached, acknowledged });
    }
    scan.structure(db);
    let Scan { entries, tally, damage, .. } = scan;
    let (uuid, floor, floors) = meta.map_or_else(Default::default, |meta| (meta.uuid, meta.floor, meta.floors));
    let floors = floors.into_iter().map(|(resource, floor)| (resource.into(), Revision(floor))).collect();
    let image = Image { uuid, revision: reached.max(acknowledged), floor: Revision(floor), floors, entries };
    Ok(Found { image, tally, damage })
}

#[derive(Debug, Default)]
struct Scan {
    entries: Vec<Entry>,
    checksums: Vec<u32>,
    tally: Tally,
    damage: Vec<Damage>,
}

impl Scan {
    fn find(&mut self, damage: Damage) {
        if self.damage.len() < MAX_FINDINGS {
            self.damage.push(damage);
        }
    }

    fn mark(&mut self, mark: Result<Option<Revision>, Damage>) -> Revision {
        let problem = match mark {
            Ok(Some(revision)) if revision < Revision::UNREACHABLE => return revision,
            Ok(Some(revision)) => {
                let problem = format!("it says revision {revision}, which no store reaches");
                Damage::File { file: "acknowledged", problem }
            }
            Ok(None) => Damage::File { file: "acknowledged", problem: "it is missing".to_owned() },
            Err(damage) => damage,
        };
        self.find(problem);
        Revision(0)
    }

    fn format(&mut self, db: &Connection) -> Result<(), OpenError> {
        let pragma = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        match (pragma("application_id"), pragma("user_version")) {
            (Ok(APPLICATION_ID), Ok(FORMAT)) => {}
            (Ok(APPLICATION_ID), Ok(found)) if found > FORMAT => {
                return Err(OpenError::Newer { found, supported: FORMAT });
            }
            (Ok(id), Ok(format)) => {
                self.find(Damage::Database { problem: format!("it is marked as {id:#x}, format {format}") });
            }
            (Err(error), _) | (_, Err(error)) => self.find(Damage::Database { problem: error.to_string() }),
        }
        Ok(())
    }

    /// Reads every row that can be read. `end` is how far rows are known to reach.
    fn rows(&mut self, db: &Connection, end: Revision) {
        let mut names = BTreeMap::new();
        let (mut after, mut failures) = (Revision(0), 0u32);
        while let Err((reached, problem)) = self.rows_after(db, after, &mut names) {
            self.find(Damage::Unreadable { table: "log", after: reached, problem });
            failures += 1;
            let stride = 1u64 << failures.saturating_sub(SMALL_STEPS).min(62);
            after = Revision(reached.max(after).0.saturating_add(stride));
            if after > end.max(reached) {
                break;
            }
        }
    }

    fn rows_after(
        &mut self,
        db: &Connection,
        after: Revision,
        names: &mut BTreeMap<String, std::sync::Arc<str>>,
    ) -> Result<(), (Revision, String)> {
        let mut reached = after;
        let mut read = || -> rusqlite::Result<Result<(), String>> {
            let mut statement = db.prepare_cached(rows::SELECT_AFTER)?;
            let mut found = statement.query(named_params! { ":after": rows::signed(after.0) })?;
            while let Some(row) = found.next()? {
                let (revision, read) = match rows::read(row, names)? {
                    ReadRow::Good { entry, checksum } => (entry.revision, Ok((entry, checksum))),
                    ReadRow::Bad { revision, problem } => (revision, Err(problem)),
                };
                // A damaged tree can lead in circles.
                if revision <= reached {
                    return Ok(Err(format!("row {revision} comes again after row {reached}")));
                }
                reached = revision;
                match read {
                    Ok((entry, checksum)) => {
                        self.tally += checksum;
                        self.entries.push(entry);
                        self.checksums.push(checksum);
                    }
                    Err(problem) => self.find(Damage::Row { table: "log", row: revision.0, problem }),
                }
            }
            Ok(Ok(()))
        };
        match read() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(problem)) => Err((reached, problem)),
            Err(error) => Err((reached, error.to_string())),
        }
    }

    /// Are all rows there, and no others?
    fn account(&mut self, meta: &Meta) {
        if meta.format != FORMAT {
            self.find(Damage::Row { table: "meta", row: 1, problem: format!("it says format {}", meta.format) });
        }
        let base = self.entries.partition_point(|entry| entry.revision.0 <= meta.revision);
        let mut found = Tally::default();
        self.checksums[..base].iter().for_each(|checksum| found += *checksum);
        if found != meta.tally {
            let (upto, expected) = (Revision(meta.revision), meta.tally.rows);
            self.find(Damage::Count { table: "log", upto, expected, found: found.rows });
        }
        let mut expected = Revision(meta.revision + 1);
        let tail: Vec<_> = self.entries[base..].iter().map(|entry| entry.revision).collect();
        for revision in tail {
            if revision != expected {
                self.find(Damage::Missing { table: "log", from: expected, to: Revision(revision.0 - 1) });
            }
            expected = revision.next();
        }
    }

    /// Pages can be wrong without a row being wrong: a page that is both free and in use would be overwritten later.
    fn structure(&mut self, db: &Connection) {
        let mut problems = Vec::new();
        let checked = db.pragma_query(None, "quick_check", |row| {
            problems.push(row.get::<_, String>(0)?);
            Ok(())
        });
        if let Err(error) = checked {
            problems.push(error.to_string());
        }
        for problem in problems.into_iter().filter(|problem| problem != "ok") {
            self.find(Damage::Database { problem });
        }
    }
}
