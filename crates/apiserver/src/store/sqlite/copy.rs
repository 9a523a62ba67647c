//! Whole copies: restoring a backup, and saving what is left of a damaged store.
//!
//! Every copy is built beside its place and moved there by one rename, so that it is complete or not there. A store
//! made from a copy continues far behind the newest revision the copy knows: the original may have gone on, and a
//! client that saw its later revisions must find out that history was cut, not wait for numbers that come twice.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;

use super::examine::{connect, scan};
use super::place::{DirLock, Mark, Place, create_private, read_mark};
use super::rows::{APPLICATION_ID, FORMAT, Meta, SCHEMA, Tally, insert};
use super::{Damage, OpenError, live};
use crate::store::attach_doubt::in_doubt;
use crate::store::backup::Snapshot;
use crate::store::durable::{Entry, Image};
use crate::store::object::{Revision, Stored, UnixMillis};

/// How far a restored store's revisions are at least ahead of what its source knew.
const LEAP: u64 = 1_000_000_000;
/// Revisions stay below half of what SQLite's signed numbers hold.
const LAST: u64 = 1 << 62;
/// Rows of typical objects fit several to a page; a commit still writes little beyond its own rows.
pub(super) const PAGE_BYTES: u32 = 8192;

#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("{} exists and is not an empty directory", path.display())]
    Occupied { path: PathBuf },
    #[error("reading the store to copy")]
    Source(#[source] OpenError),
    #[error("{} has nothing that can be read", path.display())]
    NothingLeft { path: PathBuf, damage: Vec<Damage> },
    #[error("working on {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("writing the copy's database")]
    Database(#[source] rusqlite::Error),
    #[error("the copy does not read back as it was written: {damage:?}")]
    Unfaithful { damage: Vec<Damage> },
}

/// What could be saved of a damaged store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Salvaged {
    /// The new store starts here.
    pub revision: Revision,
    pub objects: usize,
    /// What was wrong with the old one. An object whose newest row is named here is back at an older version, or gone.
    pub damage: Vec<Damage>,
}

/// Makes a store at `to` of the objects of a backup. `to` must not exist or be empty. Gives the revision at which the
/// new store starts.
pub fn restore(from: &Snapshot, to: &Path, now: UnixMillis) -> Result<Revision, CopyError> {
    let image = continued(from, now);
    Draft::begin(to)?.finish(&image)?;
    Ok(image.revision)
}

/// Makes a store at `to` of a damaged one at `from`: each object at its newest version that can still be trusted.
/// `from` stays as it is.
pub fn salvage(from: &Path, to: &Path, now: UnixMillis) -> Result<Salvaged, CopyError> {
    let source = Place::at(from);
    let _lock = DirLock::take_existing(&source).map_err(CopyError::Source)?;
    let draft = Draft::begin(to)?;
    // Reading happens on copies of the files, because SQLite may write even when it only reads.
    let scratch = draft.scratch(&source)?;
    let found = connect(&scratch).and_then(|db| scan(&db, read_mark(&scratch))).map_err(CopyError::Source)?;
    let (image, damage) = (found.image, found.damage);
    if image.entries.is_empty() && !damage.is_empty() {
        return Err(CopyError::NothingLeft { path: from.to_owned(), damage });
    }
    fs::remove_dir_all(&scratch.dir).map_err(in_path(&scratch.dir))?;
    let image = continued(&live(image), now);
    draft.finish(&image)?;
    Ok(Salvaged { revision: image.revision, objects: image.entries.len(), damage })
}

/// The same objects in a store whose history begins behind everything that clients can have seen.
///
/// The source may have gone on after the copy was made, and may have been restored from the same copy before: two
/// restores must not use a revision twice either. So the distance comes from the time. Counted in microseconds it runs
/// ahead of any store that writes fewer than a million times a second; the leap is for clocks that are wrong.
///
/// What says where volumes are attached comes in doubt, as a new version: a client that knows the old one sees a change.
fn continued(from: &Snapshot, now: UnixMillis) -> Image {
    let last = LAST.saturating_sub(from.objects.len() as u64 + 1);
    let start = Revision(from.revision.0.saturating_add(LEAP).max(now.0.saturating_mul(1_000)).min(last));
    let (mark, mut revision) = (start.to_string(), start);
    let mut entries: Vec<Entry> = Vec::with_capacity(from.objects.len());
    for object in &from.objects {
        entries.push(match in_doubt(object, &mark) {
            Some(value) => {
                revision = revision.next();
                Entry::live(&Arc::new(Stored { value, revision, ..Stored::clone(object) }))
            }
            None => Entry::live(object),
        });
    }
    entries.sort_by_key(|entry| entry.revision);
    Image { uuid: from.uuid.clone(), revision, floor: revision, entries, ..Image::default() }
}

fn in_path(path: &Path) -> impl FnOnce(io::Error) -> CopyError {
    let path = path.to_owned();
    move |source| CopyError::Io { path, source }
}

/// A copy under construction. Dropping it removes it.
#[derive(Debug)]
struct Draft {
    place: Place,
    to: PathBuf,
}

impl Draft {
    fn begin(to: &Path) -> Result<Self, CopyError> {
        let occupied = || CopyError::Occupied { path: to.to_owned() };
        match fs::read_dir(to).map(|mut entries| entries.next()) {
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(Some(_)) => return Err(occupied()),
            Err(error) => return Err(in_path(to)(error)),
        }
        let name = to.file_name().ok_or_else(occupied)?.to_string_lossy();
        let parent = match to.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            Some(_) | None => PathBuf::from("."),
        };
        let place = Place::at(&parent.join(format!(".{name}.partial")));
        // Left by an attempt that was cut off.
        match fs::remove_dir_all(&place.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(in_path(&place.dir)(error)),
            Ok(()) | Err(_) => {}
        }
        place.make_dir().map_err(in_path(&place.dir))?;
        Ok(Self { place, to: to.to_owned() })
    }

    fn scratch(&self, source: &Place) -> Result<Place, CopyError> {
        let scratch = Place::at(&self.place.dir.join("source"));
        scratch.make_dir().map_err(in_path(&scratch.dir))?;
        copy_files(source, &scratch).map_err(|(path, error)| in_path(&path)(error))?;
        Ok(scratch)
    }

    fn finish(self, image: &Image) -> Result<(), CopyError> {
        write_store(&self.place, image)?;
        let db = connect(&self.place).map_err(CopyError::Source)?;
        let back = scan(&db, read_mark(&self.place)).map_err(CopyError::Source)?;
        drop(db);
        // A copy of a store that has forgotten its name has got a new one.
        let uuid = if image.uuid.is_empty() { &back.image.uuid } else { &image.uuid };
        if back.image != (Image { uuid: uuid.clone(), ..image.clone() }) || !back.damage.is_empty() {
            return Err(CopyError::Unfaithful { damage: back.damage });
        }
        fs::rename(&self.place.dir, &self.to).map_err(in_path(&self.to))?;
        Place::at(&self.to).sync_ancestors().map_err(in_path(&self.to))
    }
}

/// Copies the files of a store into a directory that exists. An error comes with the path that it is about.
pub(super) fn copy_files(source: &Place, to: &Place) -> Result<(), (PathBuf, io::Error)> {
    fs::copy(source.database(), to.database()).map_err(|error| (source.database(), error))?;
    let beside = [Place::write_ahead, Place::rollback, Place::mark];
    for (from, to) in beside.map(|path| (path(source), path(to))) {
        match fs::copy(&from, to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err((from, error)),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After the rename there is nothing here; before it, what is left over is removed by the next attempt too.
        let _ = fs::remove_dir_all(&self.place.dir);
    }
}

/// Fills a directory with a complete store. The database appears last and whole.
pub(super) fn write_store(place: &Place, image: &Image) -> Result<(), CopyError> {
    let (path, partial) = (place.database(), place.dir.join("store.db.partial"));
    Mark::create(place, image.revision).map_err(in_path(&place.mark()))?;
    let file = create_private(&partial).map_err(in_path(&partial))?;
    write_database(&partial, image).map_err(CopyError::Database)?;
    file.sync_all().map_err(in_path(&partial))?;
    fs::rename(&partial, &path).map_err(in_path(&path))?;
    place.sync_dir().map_err(in_path(&place.dir))
}

/// Nobody relies on this file before it is synced and renamed, so SQLite need not protect it meanwhile.
fn write_database(path: &Path, image: &Image) -> rusqlite::Result<()> {
    let mut db = Connection::open(path)?;
    db.execute_batch(&format!(
        "PRAGMA page_size = {PAGE_BYTES}; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
         PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};"
    ))?;
    let transaction = db.transaction()?;
    transaction.execute_batch(SCHEMA)?;
    let mut tally = Tally::default();
    for entry in &image.entries {
        tally += insert(&transaction, entry)?;
    }
    let uuid = match image.uuid.as_str() {
        "" => transaction.query_row("SELECT lower(hex(randomblob(16)))", (), |row| row.get(0))?,
        known => known.to_owned(),
    };
    let floors = image.floors.iter().map(|(resource, floor)| (resource.to_string(), floor.0)).collect();
    let (revision, floor) = (image.revision.0, image.floor.0);
    Meta { format: FORMAT, uuid, revision, tally, floor, floors }.write(&transaction)?;
    transaction.commit()?;
    db.close().map_err(|(_, error)| error)
}
