//! The files of a store: who may use them, and how far they were acknowledged.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::{Damage, OpenError};
use crate::store::object::Revision;

/// The paths inside a store's directory.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) dir: PathBuf,
}

impl Place {
    pub(super) fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    pub(super) fn database(&self) -> PathBuf {
        self.dir.join("store.db")
    }

    /// SQLite's own file beside the database: writes that are not in the database yet.
    pub(super) fn write_ahead(&self) -> PathBuf {
        self.dir.join("store.db-wal")
    }

    /// SQLite's other file beside the database: there only while the database is being made to use the one above.
    pub(super) fn rollback(&self) -> PathBuf {
        self.dir.join("store.db-journal")
    }

    pub(super) fn mark(&self) -> PathBuf {
        self.dir.join("acknowledged")
    }

    /// Blocks that are given up when the disk is full.
    pub(super) fn reserve(&self) -> PathBuf {
        self.dir.join("reserve")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// Makes the directory, readable by its owner alone, and those above it that are missing.
    pub(super) fn make_dir(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)
    }

    pub(super) fn sync_dir(&self) -> io::Result<()> {
        sync_dir(&self.dir)
    }

    /// Syncs all directories above: any of them may be new, and what is in it survives a power cut only if it does
    /// itself. Those that are not ours to open are older than the store.
    pub(super) fn sync_ancestors(&self) -> io::Result<()> {
        for dir in std::path::absolute(&self.dir)?.ancestors().skip(1) {
            match sync_dir(dir) {
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

pub(super) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Held as long as a process uses the directory. The kernel lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct DirLock {
    file: File,
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // Closing the file would do it too, but a child that this process is just starting has a copy of the descriptor
        // until its exec, and with it the lock. There is nobody to tell if this fails.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl DirLock {
    pub(super) fn take(place: &Place) -> Result<Self, OpenError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let (path, io) = (place.lock(), |source| OpenError::Io { path: place.lock(), source });
        let mut file = options.open(&path).map_err(io)?;
        Self::flock(&mut file, place)?;
        match Self::sign(&mut file) {
            // Only a message would name this process; a full disk keeps nobody from starting.
            Err(error) if error.kind() != io::ErrorKind::StorageFull => Err(io(error)),
            Ok(()) | Err(_) => Ok(Self { file }),
        }
    }

    /// For a source that is only read: a copy of a store has no lock and needs none.
    pub(super) fn take_existing(place: &Place) -> Result<Option<Self>, OpenError> {
        match OpenOptions::new().read(true).write(true).open(place.lock()).or_else(|_| File::open(place.lock())) {
            Ok(mut file) => {
                Self::flock(&mut file, place)?;
                // Who is refused meanwhile is told about this process. Where nothing can be written, nobody else can
                // use the store either.
                let _ = Self::sign(&mut file);
                Ok(Some(Self { file }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(OpenError::Io { path: place.lock(), source }),
        }
    }

    fn sign(file: &mut File) -> io::Result<()> {
        file.set_len(0)?;
        file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0)
    }

    fn flock(file: &mut File, place: &Place) -> Result<(), OpenError> {
        match rustix::fs::flock(&*file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // The pid is for the message only: the lock itself was decided by the kernel.
                let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                Err(OpenError::Locked { dir: place.dir.clone(), pid })
            }
            Err(errno) => Err(OpenError::Io { path: place.lock(), source: errno.into() }),
        }
    }
}

const MARK_MAGIC: [u8; 8] = *b"ORLOPACK";
const MARK_LEN: usize = 20;

/// The newest acknowledged revision, in a file beside the database.
///
/// SQLite drops the rest of its write-ahead file silently where a checksum does not match: after a crash that is how a
/// torn write is undone, but a damaged byte looks the same and takes acknowledged writes along. So each batch that is
/// durable is noted here. The note is written after the batch is synced and is itself synced only now and then, so it
/// is never ahead of the database: if the database ends before it, writes were lost.
#[derive(Debug)]
pub(super) struct Mark {
    file: File,
    unsynced: bool,
}

impl Mark {
    /// It is whole as soon as it is there, and it is there before anything else is.
    pub(super) fn create(place: &Place, revision: Revision) -> io::Result<()> {
        let partial = place.dir.join("acknowledged.partial");
        let file = create_private(&partial)?;
        file.write_all_at(&encode(revision), 0)?;
        file.sync_all()?;
        fs::rename(&partial, place.mark())?;
        place.sync_dir()
    }

    pub(super) fn open(place: &Place) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(place.mark())?;
        Ok(Self { file, unsynced: true })
    }

    /// Overwrites within one sector, so that no crash leaves half of it.
    pub(super) fn set(&mut self, revision: Revision) -> io::Result<()> {
        self.unsynced = true;
        self.file.write_all_at(&encode(revision), 0)
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.unsynced {
            self.file.sync_data()?;
            self.unsynced = false;
        }
        Ok(())
    }
}

/// What the mark of a store says; none if there is no mark.
pub(super) fn read_mark(place: &Place) -> Result<Option<Revision>, Damage> {
    let damaged = |problem: String| Damage::File { file: "acknowledged", problem };
    match fs::read(place.mark()) {
        Ok(bytes) => match decode(&bytes) {
            Some(revision) => Ok(Some(revision)),
            None => Err(damaged("its checksum or length is wrong".to_owned())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(damaged(error.to_string())),
    }
}

fn encode(revision: Revision) -> [u8; MARK_LEN] {
    let mut bytes = [0; MARK_LEN];
    bytes[..8].copy_from_slice(&MARK_MAGIC);
    bytes[8..16].copy_from_slice(&revision.0.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..16]);
    bytes[16..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Revision> {
    let revision = Revision(u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?));
    (bytes == encode(revision)).then_some(revision)
}
