//! Building an object out of sight, and showing it by one rename.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

use driver_sdk::{Error, failpoint};

use super::recover::COPY_INTENT;
use super::{Hold, HoldError, Object, ObjectLock, Place, Pool};
use crate::fault;
use crate::record::{self, CopyIntent};
use linux::SysError;
use linux::durable::{self, Renamed, Side};
use linux::tree::{self, TreeError};

/// An object under construction in `.tmp`. Dropping it removes it, unless it was kept for a later attempt.
///
/// Its directory is locked for as long as this lives, so that nothing else clears what is still being built.
#[derive(Debug)]
pub struct Draft<'a> {
    pool: &'a Pool,
    id: String,
    object: Object,
    finished: bool,
    _lock: ObjectLock,
}

impl<'a> Draft<'a> {
    /// Starts from nothing: what an earlier attempt left is removed first.
    pub fn begin(pool: &'a Pool, id: &str) -> Result<Self, Error> {
        let object = Object::at(pool.tmp().join(id));
        let held = |error| match error {
            HoldError::Busy | HoldError::Gone => {
                Error::busy(format!("{id} is still being made or cleared; repeat the call"))
            }
            HoldError::Io(source) => fault::io(format!("locking {}", object.dir().display()), source),
        };
        match object.hold(Hold::Exclusive) {
            Ok(_lock) => remove_object(&object).map_err(fault::sys)?,
            Err(HoldError::Gone) => {}
            Err(error) => return Err(held(error)),
        }
        make_private_dir(object.dir())
            .map_err(|error| fault::io(format!("making {}", object.dir().display()), error))?;
        let lock = object.hold(Hold::Exclusive).map_err(held)?;
        failpoint::hit("draft.made");
        Ok(Self { pool, id: id.to_owned(), object, finished: false, _lock: lock })
    }

    /// What an earlier attempt left, if anything. What is still being built is not left.
    pub fn leftover(pool: &'a Pool, id: &str) -> Option<Self> {
        let object = Object::at(pool.tmp().join(id));
        let lock = object.hold(Hold::Exclusive).ok()?;
        Some(Self { pool, id: id.to_owned(), object, finished: false, _lock: lock })
    }

    /// The leftover of a copy with this intent. Another attempt may have taken its place since the intent was read.
    pub(crate) fn unfinished_copy(pool: &'a Pool, id: &str, intent: &CopyIntent) -> Option<Self> {
        let draft = Self::leftover(pool, id)?;
        match record::read::<CopyIntent>(&draft.object.dir().join(COPY_INTENT)) {
            Ok(now) if now == *intent => Some(draft),
            Ok(_) | Err(_) => {
                draft.keep();
                None
            }
        }
    }

    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Shows the finished object. Everything written into it must be on disk; its directory is synced here.
    pub fn commit(mut self, place: Place) -> Result<Object, Error> {
        if place == Place::Volumes {
            crate::loss::reserve_room(&self.object).map_err(|error| fault::io("reserving space for a mark", error))?;
        }
        durable::fsync_dir(self.object.dir()).map_err(fault::sys)?;
        failpoint::hit("draft.synced");
        let shown = self.pool.object(place, &self.id);
        // The rename may have happened although syncing it failed: then it is unsure, not undone.
        let unsure = |error| fault::sys(error).leaving_residue();
        match durable::rename_noreplace(self.object.dir(), shown.dir(), Side::New).map_err(unsure)? {
            Renamed::Done => {}
            Renamed::NameTaken => return Err(Error::busy(format!("{} appeared meanwhile; repeat the call", self.id))),
        }
        self.finished = true;
        failpoint::hit("draft.renamed");
        Ok(shown)
    }

    /// Leaves it in `.tmp` for the next attempt with the same arguments.
    pub fn keep(mut self) {
        self.finished = true;
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.finished
            && let Err(error) = remove_object(&self.object)
        {
            // Nothing under `.tmp` was ever promised; the next attempt or the next start removes it.
            tracing::warn!(path = %self.object.dir().display(), error = %error, "could not remove a draft");
        }
    }
}

impl Pool {
    /// Takes an object away by one rename. What comes back is in the trash: the object no longer exists.
    pub fn discard(&self, place: Place, id: &str) -> Result<Trashed<'_>, Error> {
        let from = self.object(place, id);
        let moved = self.move_to_trash(id, &from).map_err(|error| fault::sys(error).leaving_residue())?;
        failpoint::hit("discard.renamed");
        Ok(moved)
    }

    fn move_to_trash(&self, id: &str, from: &Object) -> Result<Trashed<'_>, SysError> {
        for number in 0.. {
            let to = self.trash().join(format!("{id}.{number}"));
            match durable::rename_noreplace(from.dir(), &to, Side::Old)? {
                Renamed::Done => return Ok(Trashed { pool: self, object: Object::at(to) }),
                Renamed::NameTaken => {}
            }
        }
        unreachable!("an unbounded range has a next number")
    }
}

/// An object in the trash. Removing it may be slow and may be repeated; it is done again with every later deletion in its
/// pool, from time to time, and at every start.
#[derive(Debug)]
#[must_use = "the object's space is only freed by removing it"]
pub struct Trashed<'a> {
    pool: &'a Pool,
    object: Object,
}

impl Trashed<'_> {
    /// Removes it, and tries again what could not be removed before.
    pub fn remove(self) {
        self.pool.stuck_trash().push(self.object);
        self.pool.empty_stuck_trash();
        failpoint::hit("discard.removed");
    }
}

impl Pool {
    /// What is in the trash and could not be removed.
    pub(super) fn stuck_trash(&self) -> MutexGuard<'_, Vec<Object>> {
        self.stuck_trash.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what is in the trash and could not be removed so far.
    pub(crate) fn empty_stuck_trash(&self) {
        let stuck = std::mem::take(&mut *self.stuck_trash());
        for object in stuck {
            if let Err(error) = remove_object(&object) {
                let path = object.dir().display();
                tracing::warn!(%path, error = %error, "could not empty the trash; tried again within minutes");
                self.stuck_trash().push(object);
            }
        }
    }
}

/// Removes an object's directory. Subvolumes in it, its own or those of its members, cannot be walked into as if they
/// were part of it (they are filesystems of their own) and go first.
pub(super) fn remove_object(object: &Object) -> Result<(), TreeError> {
    let members = (0..).map(|number| object.member(number)).take_while(|member| member.dir().is_dir());
    for part in members.chain([object.clone()]) {
        if is_subvolume(&part.data()) {
            remove_subvolume(part.dir(), "data".as_ref())?;
        }
    }
    tree::remove_tree(object.dir())
}

/// Deletes a subvolume with those that its workload made in it, innermost first.
fn remove_subvolume(parent: &Path, name: &OsStr) -> Result<(), TreeError> {
    match tree::subvolume_delete(parent, name) {
        Err(error) if error.is(rustix::io::Errno::NOTEMPTY) => {}
        other => return Ok(other?),
    }
    for nested in nested_subvolumes(&parent.join(name))? {
        if let (Some(parent), Some(name)) = (nested.parent(), nested.file_name()) {
            remove_subvolume(parent, name)?;
        }
    }
    Ok(tree::subvolume_delete(parent, name)?)
}

/// Subvolumes in a directory that are not inside another one. Links are not followed.
fn nested_subvolumes(root: &Path) -> Result<Vec<PathBuf>, SysError> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).map_err(SysError::on("list", &folder))? {
            let entry = entry.map_err(SysError::on("list", &folder))?;
            match entry.file_type() {
                Ok(kind) if !kind.is_dir() => {}
                _ if is_subvolume(&entry.path()) => found.push(entry.path()),
                _ => waiting.push(entry.path()),
            }
        }
    }
    Ok(found)
}

/// The root of a subvolume has an inode number that no other directory of btrfs has.
fn is_subvolume(path: &Path) -> bool {
    const SUBVOLUME_ROOT: u64 = 256;
    let is_root = path.symlink_metadata().is_ok_and(|meta| meta.is_dir() && meta.ino() == SUBVOLUME_ROOT);
    is_root && tree::is_btrfs(path).unwrap_or(false)
}

pub(super) fn make_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// As [`make_private_dir`], where an existing directory is fine.
pub(super) fn ensure_private_dir(path: &Path) -> io::Result<()> {
    match make_private_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && fs::metadata(path)?.is_dir() => Ok(()),
        other => other,
    }
}
