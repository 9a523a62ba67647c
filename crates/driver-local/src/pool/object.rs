//! One object's directory: its files, and the lock that other processes see.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::record::{self, ReadError};
use linux::SysError;
use linux::durable::{self, Lasting};
use linux::patience::{Next, Patience};

const RECORD: &str = "record.json";
const ATTACH: &str = "attach.json";
const NOTES: &str = "node.json";

/// How long a lock may look taken before it counts as taken.
const LOCK_PATIENCE: Duration = Duration::from_millis(40);

/// The directory of a volume, snapshot or group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    dir: PathBuf,
}

/// How an object is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    Shared,
    Exclusive,
}

#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// Another process works on it, perhaps a tool that outlived the driver that started it.
    #[error("another process works on it")]
    Busy,
    #[error("it is gone")]
    Gone,
    #[error("locking it")]
    Io(#[source] io::Error),
}

/// Holds an object against other processes. A child that inherits the descriptor goes on holding it.
#[derive(Debug)]
pub struct ObjectLock(OwnedFd);

impl AsFd for ObjectLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Takes a lock that may look taken for a moment: between fork and exec, a child of ours has copies of all our
/// descriptors, and with them a lock that we have just given back.
fn lock_soon(fd: &OwnedFd, operation: FlockOperation) -> Result<(), HoldError> {
    let mut patience = Patience::of(LOCK_PATIENCE);
    loop {
        match rustix::fs::flock(fd, operation) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) if patience.wait() == Next::LookAgain => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(HoldError::Busy),
            Err(error) => return Err(HoldError::Io(error.into())),
        }
    }
}

impl Object {
    pub fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The data of an image volume.
    pub fn image(&self) -> PathBuf {
        self.dir.join("image")
    }

    /// The data of a directory volume.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Where an inline volume is staged.
    pub fn private_staging(&self) -> PathBuf {
        self.dir.join("staged")
    }

    /// A member of a group.
    pub fn member(&self, number: usize) -> Object {
        Self::at(self.dir.join(number.to_string()))
    }

    /// Locks it, and makes sure that it is still in its place once locked.
    pub fn hold(&self, hold: Hold) -> Result<ObjectLock, HoldError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = match rustix::fs::open(&self.dir, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOENT) => return Err(HoldError::Gone),
            Err(error) => return Err(HoldError::Io(error.into())),
        };
        let operation = match hold {
            Hold::Shared => FlockOperation::NonBlockingLockShared,
            Hold::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        lock_soon(&fd, operation)?;
        let held = File::from(fd);
        let mine = held.metadata().map_err(HoldError::Io)?;
        match fs::symlink_metadata(&self.dir) {
            Ok(now) if (now.dev(), now.ino()) == (mine.dev(), mine.ino()) => Ok(ObjectLock(held.into())),
            Ok(_) => Err(HoldError::Gone),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(HoldError::Gone),
            Err(error) => Err(HoldError::Io(error)),
        }
    }

    pub fn record<T: DeserializeOwned>(&self) -> Result<T, ReadError> {
        record::read(&self.dir.join(RECORD))
    }

    pub fn has_record(&self) -> bool {
        self.dir.join(RECORD).exists()
    }

    pub fn write_record<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<(), SysError> {
        self.write(RECORD, value, Lasting::PowerCut)
    }

    /// As [`Self::write_record`], where what comes later makes the record's name durable: the commit of a draft, or a journal
    /// that keeps changes in order.
    pub fn draft_record<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<(), SysError> {
        self.write(RECORD, value, Lasting::PowerCutOnceDirectoryIsSynced)
    }

    pub fn attachments(&self) -> Result<record::Attachments, ReadError> {
        match record::read(&self.dir.join(ATTACH)) {
            Err(ReadError::Missing(_)) => Ok(record::Attachments::default()),
            other => other,
        }
    }

    /// Writes the attachments; none are no file, so that the last detach needs no space in a full pool.
    pub fn write_attachments(&self, value: &record::Attachments) -> Result<(), SysError> {
        if value.nodes.is_empty() { self.remove(ATTACH) } else { self.write(ATTACH, value, Lasting::PowerCut) }
    }

    /// Notes of this boot; those of an earlier one, or unreadable ones, say nothing any more.
    pub fn notes(&self, boot_id: &str) -> record::NodeNotes {
        let empty = || record::NodeNotes { boot_id: boot_id.to_owned(), ..Default::default() };
        match record::read::<record::NodeNotes>(&self.dir.join(NOTES)) {
            Ok(notes) if notes.boot_id == boot_id => notes,
            Ok(_) | Err(_) => empty(),
        }
    }

    /// Writes the notes; empty ones are no file, so that unstaging needs no space in a full pool.
    pub fn write_notes(&self, value: &record::NodeNotes) -> Result<(), SysError> {
        if value.staged.is_none() && value.published.is_empty() {
            self.remove(NOTES)
        } else {
            self.write(NOTES, value, Lasting::Process)
        }
    }

    fn remove(&self, name: &'static str) -> Result<(), SysError> {
        let path = self.dir.join(name);
        match fs::remove_file(&path) {
            Ok(()) => durable::fsync_dir(&self.dir),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(SysError::on("remove", &path)(error)),
        }
    }

    fn write<T>(&self, name: &'static str, value: &T, lasting: Lasting) -> Result<(), SysError>
    where
        T: Serialize + DeserializeOwned,
    {
        let path = self.dir.join(name);
        let bytes = record::seal_over(value, &path).map_err(SysError::on("encode", &path))?;
        durable::write_file(&self.dir, name.as_ref(), &bytes, (0o600, lasting))
    }
}
