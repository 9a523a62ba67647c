//! The format: two tables, a checksum on every row, and an account of all rows.
//!
//! `log` has one row per version that can still be asked for, under its revision; a row without a value marks a delete.
//! `meta` has one row. Up to its `revision`, the number of rows in `log` and the sum of their checksums are what `meta`
//! says. Behind it, every revision has its row. So a row that is missing, doubled or changed is noticed wherever it is.

use std::collections::BTreeMap;
use std::ops::{AddAssign, SubAssign};
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, Row, named_params};
use serde::{Deserialize, Serialize};

use crate::store::durable::Entry;
use crate::store::key::Key;
use crate::store::object::{Revision, Stored, UnixMillis};

/// Counted up when the layout changes. A program refuses a higher one than its own.
pub(super) const FORMAT: i64 = 1;
/// Marks the file as ours: "ORLP".
pub(super) const APPLICATION_ID: i64 = 0x4f52_4c50;

pub(super) const SCHEMA: &str = "
    CREATE TABLE meta (id INTEGER PRIMARY KEY CHECK (id = 1), body TEXT NOT NULL, checksum INTEGER NOT NULL);
    CREATE TABLE log (
        revision INTEGER PRIMARY KEY,
        resource TEXT NOT NULL,
        path TEXT NOT NULL,
        created INTEGER NOT NULL,
        expires INTEGER,
        value BLOB,
        checksum INTEGER NOT NULL
    );";

const INSERT: &str = "INSERT INTO log (revision, resource, path, created, expires, value, checksum)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const DELETE: &str = "DELETE FROM log WHERE revision = :revision RETURNING checksum";
pub(super) const SELECT_AFTER: &str = "SELECT revision, resource, path, created, expires, value, checksum
    FROM log WHERE revision > :after ORDER BY revision";

/// SQLite knows signed numbers only. Ours come back as they went in, whatever their highest bit.
pub(super) fn signed(number: u64) -> i64 {
    number.cast_signed()
}

/// A number of rows and the sum of their checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Tally {
    pub(super) rows: u64,
    pub(super) sum: u64,
}

impl AddAssign<u32> for Tally {
    fn add_assign(&mut self, checksum: u32) {
        self.rows += 1;
        self.sum = self.sum.wrapping_add(checksum.into());
    }
}

impl SubAssign<u32> for Tally {
    fn sub_assign(&mut self, checksum: u32) {
        self.rows = self.rows.saturating_sub(1);
        self.sum = self.sum.wrapping_sub(checksum.into());
    }
}

/// The row of `meta`, in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meta {
    pub(super) format: i64,
    pub(super) uuid: String,
    /// Rows up to here are in `tally`; rows behind it are contiguous.
    pub(super) revision: u64,
    pub(super) tally: Tally,
    pub(super) floor: u64,
    pub(super) floors: BTreeMap<String, u64>,
}

impl Meta {
    pub(super) fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        let body =
            serde_json::to_string(self).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        let checksum = crc32c::crc32c(body.as_bytes());
        db.prepare_cached("INSERT OR REPLACE INTO meta (id, body, checksum) VALUES (1, ?1, ?2)")?
            .execute((body, checksum))
            .map(drop)
    }

    pub(super) fn read(db: &Connection) -> Result<Self, String> {
        let mut statement =
            db.prepare("SELECT body, checksum FROM meta WHERE id = 1").map_err(|error| error.to_string())?;
        let (body, checksum): (String, u32) =
            statement.query_row((), |row| Ok((row.get(0)?, row.get(1)?))).map_err(|error| error.to_string())?;
        if crc32c::crc32c(body.as_bytes()) != checksum {
            return Err("its checksum is wrong".to_owned());
        }
        let meta: Self = serde_json::from_str(&body).map_err(|error| error.to_string())?;
        if Revision(meta.revision) >= Revision::UNREACHABLE {
            return Err(format!("it says revision {}, which no store reaches", meta.revision));
        }
        Ok(meta)
    }
}

/// Writes a row and gives its checksum.
pub(super) fn insert(db: &Connection, entry: &Entry) -> rusqlite::Result<u32> {
    let columns = Columns::of(entry);
    let checksum = columns.checksum();
    let Columns { revision, resource, path, created, expires, value } = columns;
    // By position: names would be looked for in the statement again and again.
    db.prepare_cached(INSERT)?.execute((revision, resource, path, created, expires, value, checksum))?;
    Ok(checksum)
}

/// Removes a row and gives the checksum it had. A row that is not there is an error.
pub(super) fn remove(db: &Connection, revision: Revision) -> rusqlite::Result<u32> {
    db.prepare_cached(DELETE)?.query_row(named_params! { ":revision": signed(revision.0) }, |row| row.get(0))
}

/// A row as SQLite holds it.
struct Columns<'a> {
    revision: i64,
    resource: &'a str,
    path: &'a str,
    created: i64,
    expires: Option<i64>,
    value: Option<&'a [u8]>,
}

impl<'a> Columns<'a> {
    fn of(entry: &'a Entry) -> Self {
        let stored = entry.stored.as_deref();
        Self {
            revision: signed(entry.revision.0),
            resource: entry.key.resource(),
            path: entry.key.path(),
            created: signed(stored.map_or(0, |stored| stored.created.0)),
            expires: stored.and_then(|stored| Some(signed(stored.expires?.0))),
            value: stored.map(|stored| stored.value.as_ref()),
        }
    }

    /// Covers every column, with lengths, so that nothing can move from one column to the next.
    fn checksum(&self) -> u32 {
        let number = |sum, number: i64| crc32c::crc32c_append(sum, &number.to_le_bytes());
        let text = |sum, text: &[u8]| crc32c::crc32c_append(number(sum, text.len() as i64), text);
        let optional = |sum, present: bool| crc32c::crc32c_append(sum, &[present.into()]);
        let mut sum = number(number(0, self.revision), self.created);
        sum = text(text(sum, self.resource.as_bytes()), self.path.as_bytes());
        sum = number(optional(sum, self.expires.is_some()), self.expires.unwrap_or(0));
        text(optional(sum, self.value.is_some()), self.value.unwrap_or_default())
    }
}

/// A row that was read: its entry with its checksum, or why it cannot be trusted.
#[derive(Debug)]
pub(super) enum ReadRow {
    Good { entry: Entry, checksum: u32 },
    Bad { revision: Revision, problem: String },
}

/// `names` holds the resources seen so far: thousands of rows share a few names.
pub(super) fn read(row: &Row<'_>, names: &mut BTreeMap<String, Arc<str>>) -> rusqlite::Result<ReadRow> {
    let revision: i64 = row.get(0)?;
    let bad = |problem: String| Ok(ReadRow::Bad { revision: Revision(revision.cast_unsigned()), problem });
    if Revision(revision.cast_unsigned()) >= Revision::UNREACHABLE {
        return bad("no store reaches its revision".to_owned());
    }
    let (columns, checksum) = match columns(row, revision) {
        Ok((columns, checksum)) if columns.checksum() == checksum => (columns, checksum),
        Ok(_) => return bad("its checksum is wrong".to_owned()),
        Err(error) => return bad(error.to_string()),
    };
    let resource = match names.get(columns.resource) {
        Some(name) => Arc::clone(name),
        None => Arc::clone(names.entry(columns.resource.to_owned()).or_insert_with(|| columns.resource.into())),
    };
    let revision = Revision(revision.cast_unsigned());
    let key = match Key::stored(resource, columns.path) {
        Ok(key) => key,
        Err(error) => return bad(error.to_string()),
    };
    let stored = columns.value.map(|value| {
        Arc::new(Stored {
            key: key.clone(),
            value: Bytes::copy_from_slice(value),
            revision,
            created: Revision(columns.created.cast_unsigned()),
            expires: columns.expires.map(|at| UnixMillis(at.cast_unsigned())),
        })
    });
    Ok(ReadRow::Good { entry: Entry { revision, key, stored }, checksum })
}

fn columns<'a>(row: &'a Row<'_>, revision: i64) -> rusqlite::Result<(Columns<'a>, u32)> {
    let columns = Columns {
        revision,
        resource: row.get_ref(1)?.as_str()?,
        path: row.get_ref(2)?.as_str()?,
        created: row.get(3)?,
        expires: row.get(4)?,
        value: row.get_ref(5)?.as_blob_or_null()?,
    };
    Ok((columns, row.get(6)?))
}
