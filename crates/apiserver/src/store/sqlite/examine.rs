//! Reading a record with the assumption that it lies.
//!
//! Nothing is written here, so a damaged record stays as it is for whoever can still read something out of it.

use std::collections::BTreeMap;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, named_params};

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

/// Opens the database without changing anything in it, now or when it is closed.
pub(super) fn connect(place: &Place) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(
        place.database(),
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
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
