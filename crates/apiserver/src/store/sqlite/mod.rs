//! The durable record: one SQLite database in write-ahead mode, synced at every commit, with one connection.
//!
//! SQLite keeps the order and survives power cuts, but it trusts the disk: a changed byte gives a wrong value or drops
//! the rest of the write-ahead file without a word. So every row has a checksum, all rows are accounted for (`rows`),
//! and what was acknowledged is noted beside the database (`place::Mark`). All of it is checked when the store is
//! opened (`examine`).

mod copy;
mod examine;
mod place;
mod room;
mod rows;

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;

pub use self::copy::{CopyError, Salvaged, restore, salvage};

use self::copy::{PAGE_BYTES, write_store};
use self::examine::{connect, connect_to_read, scan};
use self::place::{DirLock, Mark, Place, read_mark};
use self::room::{DatabaseBytes, Room};
use self::rows::{FORMAT, Meta, Tally};
use super::backup::Snapshot;
use super::durable::{Compaction, Durable, DurableError, Entry, Image, StoreSpace};
use super::index::Index;
use super::object::{Event, Revision};

/// One thing that is wrong with a record.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum Damage {
    #[error("file {file}: {problem}")]
    File { file: &'static str, problem: String },
    #[error("the database: {problem}")]
    Database { problem: String },
    #[error("table {table}, row {row}: {problem}")]
    Row { table: &'static str, row: u64, problem: String },
    #[error("table {table}, behind row {after}: {problem}")]
    Unreadable { table: &'static str, after: Revision, problem: String },
    #[error("table {table}: revisions {from} to {to} are missing")]
    Missing { table: &'static str, from: Revision, to: Revision },
    #[error("table {table}: up to revision {upto} there should be {expected} rows; {found} good ones are there")]
    Count { table: &'static str, upto: Revision, expected: u64, found: u64 },
    #[error("revisions {} to {acknowledged} were acknowledged and are gone", after.next())]
    Lost { after: Revision, acknowledged: Revision },
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} is in use by {}", dir.display(), user(*pid))]
    Locked { dir: PathBuf, pid: Option<u32> },
    #[error("the store has format {found}; this program knows formats up to {supported}: use a newer one")]
    Newer { found: i64, supported: i64 },
    /// Nothing was changed. [`salvage`] builds a store from what is good.
    #[error("the store in {} is damaged: {}", dir.display(), sentence(damage))]
    Damaged { dir: PathBuf, damage: Vec<Damage> },
    #[error("there is no store in {}", dir.display())]
    Absent { dir: PathBuf },
    #[error("opening {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("opening the database")]
    Sqlite(#[source] rusqlite::Error),
    #[error("the database's journal mode stays {mode}")]
    NoWriteAhead { mode: String },
    #[error("making an empty store")]
    Create(#[source] Box<CopyError>),
    #[error("starting the writer's thread")]
    Thread(#[source] io::Error),
}

fn user(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

fn sentence(damage: &[Damage]) -> String {
    damage.iter().map(Damage::to_string).collect::<Vec<_>>().join("; ")
}

/// Opens or makes the store in `dir`, and reads it.
pub(super) fn open(dir: &Path, checkpoint_pages: u32) -> Result<(Image, SqliteLog), OpenError> {
    let place = Place::at(dir);
    place.make_dir().map_err(|source| OpenError::Io { path: dir.to_owned(), source })?;
    let lock = DirLock::take(&place)?;
    let mut room = Room::open(&place);
    let mark = ensure_files(&place)?;
    let db = connect(&place)?;
    let examined = scan(&db, mark)?;
    if !examined.damage.is_empty() {
        return Err(OpenError::Damaged { dir: dir.to_owned(), damage: examined.damage });
    }
    let meta = Meta::read(&db).map_err(|problem| OpenError::Damaged {
        dir: dir.to_owned(),
        damage: vec![Damage::Row { table: "meta", row: 1, problem }],
    })?;
    prepare_for_writing(&db, checkpoint_pages, &place)?;
    room.allocate_write_ahead(&place, write_ahead_bytes(checkpoint_pages));
    room.look(DatabaseBytes::default());
    let database =
        FileIdentity::of(&place.database()).map_err(|source| OpenError::Io { path: place.database(), source })?;
    let file = std::fs::File::options().write(true).open(place.database());
    let file = file.map_err(|source| OpenError::Io { path: place.database(), source })?;
    let mut mark = Mark::open(&place).map_err(|source| OpenError::Io { path: place.mark(), source })?;
    // A crash can come between a commit and its note. From here on readers see that commit.
    mark.set(examined.image.revision).map_err(|source| OpenError::Io { path: place.mark(), source })?;
    let tally = examined.tally;
    let log = SqliteLog { db, mark, meta, tally, failed: false, room, place, database, file, _lock: lock };
    Ok((examined.image, log))
}

/// Size of the write-ahead file before it is moved into the database, with one large batch behind it.
fn write_ahead_bytes(checkpoint_pages: u32) -> u64 {
    u64::from(checkpoint_pages) * u64::from(PAGE_BYTES) + (4 << 20)
}

/// Which file a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    fn of(path: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(path)?;
        Ok(Self { device: found.dev(), inode: found.ino() })
    }
}

/// A store that is not running, as it lies on disk.
#[derive(Debug)]
pub struct Examined {
    /// What can be trusted: all of it if nothing is damaged.
    pub snapshot: Snapshot,
    /// Versions of objects, the live ones and those of history.
    pub rows: u64,
    pub damage: Vec<Damage>,
}

/// Reads and checks a store without changing it. One that is in use, or that is not there, is an error.
pub fn examine(dir: &Path) -> Result<Examined, OpenError> {
    let place = Place::at(dir);
    if !dir.try_exists().map_err(|source| OpenError::Io { path: dir.to_owned(), source })? {
        return Err(OpenError::Absent { dir: dir.to_owned() });
    }
    let _lock = DirLock::take_existing(&place)?;
    let mark = read_mark(&place);
    if !place.database().exists() {
        return match (&mark, place.write_ahead().exists()) {
            (Ok(None), false) => Err(OpenError::Absent { dir: dir.to_owned() }),
            _ => Err(missing_database(&place)),
        };
    }
    let (db, _copy) = connect_to_read(&place)?;
    let found = scan(&db, mark)?;
    Ok(Examined { rows: found.tally.rows, damage: found.damage, snapshot: live(found.image) })
}

/// What an image holds now, without its history.
fn live(image: Image) -> Snapshot {
    let (uuid, revision) = (image.uuid.clone(), image.revision);
    Snapshot { uuid, revision, objects: Index::load(image).live_objects() }
}

fn missing_database(place: &Place) -> OpenError {
    let missing = Damage::File { file: "store.db", problem: "it is missing, and a store was here".to_owned() };
    OpenError::Damaged { dir: place.dir.clone(), damage: vec![missing] }
}

/// A new store is made only where no trace of an old one is.
fn ensure_files(place: &Place) -> Result<Result<Option<Revision>, Damage>, OpenError> {
    let mark = read_mark(place);
    let in_database = |source| OpenError::Io { path: place.database(), source };
    if place.database().try_exists().map_err(in_database)? {
        return Ok(mark);
    }
    match &mark {
        Ok(None | Some(Revision(0))) if !place.write_ahead().exists() => {
            // In this order, so that a database that is found later is in a directory that stays.
            place.sync_ancestors().map_err(|source| OpenError::Io { path: place.dir.clone(), source })?;
            write_store(place, &Image::default()).map_err(|error| OpenError::Create(Box::new(error)))?;
            Ok(Ok(Some(Revision(0))))
        }
        Ok(_) | Err(_) => Err(missing_database(place)),
    }
}

fn prepare_for_writing(db: &Connection, checkpoint_pages: u32, place: &Place) -> Result<(), OpenError> {
    let mode =
        db.query_row("PRAGMA journal_mode = WAL", (), |row| row.get::<_, String>(0)).map_err(OpenError::Sqlite)?;
    if mode != "wal" {
        return Err(OpenError::NoWriteAhead { mode });
    }
    // FULL syncs the write-ahead file at every commit; NORMAL would lose acknowledged writes in a power cut.
    db.execute_batch(&format!(
        "PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 16777216;
         PRAGMA wal_autocheckpoint = {checkpoint_pages};"
    ))
    .map_err(OpenError::Sqlite)?;
    // A process that was killed before its sync leaves a commit that can be read here and is on no disk yet. Readers
    // are about to see it, so it is made durable first: this syncs the write-ahead file, moves all of it into the
    // database and syncs that.
    match checkpoint(db) {
        // Pages that cannot be moved for lack of space stay in the write-ahead file and are synced there.
        Err(error) if is_disk_full(&error) => {
            let path = place.write_ahead();
            let synced = std::fs::File::open(&path).and_then(|file| file.sync_all());
            synced.map_err(|source| OpenError::Io { path, source })
        }
        outcome => outcome.map_err(OpenError::Sqlite),
    }
}

/// Whether SQLite could not write because the disk is full. It has then undone what it had begun: the last write of a
/// commit is the one that makes it count.
fn is_disk_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
}

/// Moves the whole write-ahead file into the database and empties it.
fn checkpoint(db: &Connection) -> rusqlite::Result<()> {
    match db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, i64>(0))? {
        0 => Ok(()),
        _ => Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None)),
    }
}

/// A batch with no more bytes than this is written without a look at the disk.
const SMALL_BATCH: u64 = 256 << 10;

/// As the connection sees them, with what its transaction has changed.
fn database_bytes(db: &Connection, place: &Place) -> DatabaseBytes {
    let pages = |name| db.pragma_query_value(None, name, |row| row.get::<_, u32>(0)).unwrap_or(0);
    let bytes = |name| u64::from(pages(name)) * u64::from(PAGE_BYTES);
    let length = std::fs::metadata(place.database()).map_or(0, |found| found.len());
    DatabaseBytes { reusable: bytes("freelist_count"), pending: bytes("page_count").saturating_sub(length), length }
}

/// The record of an open store.
#[derive(Debug)]
pub(super) struct SqliteLog {
    db: Connection,
    mark: Mark,
    meta: Meta,
    /// Of all rows.
    tally: Tally,
    failed: bool,
    room: Room,
    place: Place,
    /// The database that is open, to notice that its path leads elsewhere.
    database: FileIdentity,
    /// The same, to give it blocks. Closing it ends SQLite's locks on the file, so that it stays open as long as `db`.
    file: std::fs::File,
    _lock: DirLock,
}

impl SqliteLog {
    fn append_rows(&mut self, events: &[Arc<Event>]) -> rusqlite::Result<()> {
        let value = |event: &Arc<Event>| event.new_version().map_or(0, |new| new.value.len() as u64);
        let before = (events.iter().map(value).sum::<u64>() > SMALL_BATCH).then(|| self.database_bytes().pending);
        let transaction = self.db.transaction()?;
        let mut tally = self.tally;
        for event in events {
            tally += rows::insert(&transaction, &Entry::of(event))?;
        }
        if let Some(before) = before
            && let growth = database_bytes(&transaction, &self.place).pending.saturating_sub(before)
            && growth > 0
            && !self.room.can_take(before, growth)
        {
            // The transaction ends here, and nothing of it is written.
            return Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None));
        }
        transaction.commit()?;
        self.tally = tally;
        Ok(())
    }

    fn remove_rows(&mut self, plan: &Compaction) -> rusqlite::Result<()> {
        let transaction = self.db.transaction()?;
        let mut tally = self.tally;
        for row in &plan.rows {
            tally -= rows::remove(&transaction, *row)?;
        }
        let mut meta = Meta { format: FORMAT, revision: plan.revision.0, tally, ..self.meta.clone() };
        meta.floors.extend(plan.floors.iter().map(|(resource, floor)| (resource.to_string(), floor.0)));
        meta.write(&transaction)?;
        transaction.commit()?;
        (self.tally, self.meta) = (tally, meta);
        Ok(())
    }

    /// Does something with the database, and again if the disk was full: once the write-ahead file can be written from its
    /// start, and once the reserve was given up.
    fn with_reserve(
        &mut self,
        doing: &'static str,
        act: impl Fn(&mut Self) -> rusqlite::Result<()>,
    ) -> Result<(), DurableError> {
        let is_full = |outcome: &rusqlite::Result<()>| outcome.as_ref().is_err_and(is_disk_full);
        let mut outcome = act(self);
        if is_full(&outcome) && self.move_write_ahead() {
            outcome = act(self);
        }
        if is_full(&outcome) && self.room.ran_out() {
            self.move_write_ahead();
            outcome = act(self);
        }
        match outcome {
            Ok(()) => Ok(()),
            Err(error) if is_disk_full(&error) => Err(DurableError::doing(doing)(error).for_want_of_space()),
            Err(error) => self.noting(Err(DurableError::doing(doing)(error))),
        }
    }

    /// Moves what is in the write-ahead file into the database, as far as it can. Gives whether the file is then written
    /// from its start, where it has its blocks already.
    fn move_write_ahead(&self) -> bool {
        let moved = self
            .db
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
        // If it cannot, the next commit tries again.
        moved.is_ok_and(|(frames, moved)| frames > 0 && frames == moved)
    }

    /// An open file can be written to after it was removed, and everything in it is then lost when it is closed.
    fn require_in_place(&mut self) -> Result<(), DurableError> {
        let path = self.place.database();
        let problem = match FileIdentity::of(&path) {
            Ok(found) if found == self.database => return Ok(()),
            Ok(_) => io::Error::other(format!("{} is another file than the one that was opened", path.display())),
            Err(error) => error,
        };
        self.noting(Err(DurableError::doing("looking for the database where it was opened")(problem)))
    }

    fn database_bytes(&self) -> DatabaseBytes {
        database_bytes(&self.db, &self.place)
    }

    fn noting<T, E>(&mut self, result: Result<T, E>) -> Result<T, E> {
        self.failed |= result.is_err();
        result
    }
}

impl Durable for SqliteLog {
    fn append(&mut self, events: &[Arc<Event>]) -> Result<(), DurableError> {
        let Some(last) = events.last() else { return Ok(()) };
        self.require_in_place()?;
        self.with_reserve("writing to the database", |log| log.append_rows(events))?;
        let noted = self.mark.set(last.revision).map_err(DurableError::doing("noting what is acknowledged"));
        self.noting(noted)
    }

    fn compact(&mut self, plan: &Compaction) -> Result<(), DurableError> {
        self.with_reserve("removing old rows from the database", |log| log.remove_rows(plan))
    }

    fn settle(&mut self) -> Result<(), DurableError> {
        self.require_in_place()?;
        let synced = self.mark.sync().map_err(DurableError::doing("syncing the note of what is acknowledged"));
        self.noting(synced)
    }

    fn space(&mut self) -> StoreSpace {
        let mut database = self.database_bytes();
        if database.pending > 0 && self.room.is_scarce(database.pending) {
            // The database takes its blocks while there are any. Otherwise the write-ahead file, which grows with every
            // commit, takes them, and can then never be emptied.
            self.move_write_ahead();
            database = self.database_bytes();
        }
        let space = self.room.look(database);
        if space == StoreSpace::Enough {
            self.room.allocate_ahead(&self.file, database.length);
        }
        space
    }
}

impl Drop for SqliteLog {
    fn drop(&mut self) {
        // Only a tidy end; the next start does the same work otherwise. After a failure nothing may be touched.
        if !self.failed
            && let Err(error) = checkpoint(&self.db)
        {
            tracing::warn!(%error, "the store's write-ahead file stays for the next start");
        }
    }
}
