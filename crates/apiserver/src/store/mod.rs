//! The store: objects as bytes under keys, every version of them for a while, and the order in which they changed.
//!
//! # What it promises (API-9)
//! 1. One sequence of revisions over all resources. Each write and each delete takes the next one. None is ever used
//!    for two writes, whatever crashes.
//! 2. A write is acknowledged when it is on disk, and only then can anybody see it. After the acknowledgement every
//!    read sees it.
//! 3. A list shows the state at one revision. All its pages can show the same one.
//! 4. A watch after revision R delivers each write behind R once, in order, or says that R is too old.
//! 5. History is kept for the time and number that [`History`] says, per resource, also across restarts.
//! 6. A damaged record is never opened. [`OpenError::Damaged`] says what is damaged; [`salvage`] builds the last good
//!    state of every object somewhere else and says what it lacks.
//! 7. On a full disk, writes that grow are refused ([`CommitError::NoSpace`]) and everything else goes on, by a reserve that
//!    is kept for it; when there is space again, all writes are accepted again.
//! 8. A store that [`restore`] or [`salvage`] made starts behind every revision that a client of its source can have
//!    seen: such a client is told that history was cut.
//!
//! # How
//! All reads are answered from memory (`index`). Writes go through one writer (`writer`), which checks their
//! conditions, makes a batch of them durable at once ([`Durable`]) and then publishes them to readers and watchers
//! (`watch`). The durable record is SQLite (`sqlite`); in tests and simulation it is a [`MemoryDisk`] and the writer
//! runs on the caller's own task, without threads, timers or clocks.
//!
//! # Not here
//! What objects mean, selectors, resource versions inside objects. Reading the clock: [`Store::tick`] is told the time.

mod attach_doubt;
mod backup;
mod durable;
mod index;
mod key;
mod meter;
mod object;
mod read;
mod sqlite;
mod watch;
mod write;
mod writer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use self::attach_doubt::in_doubt;
pub use self::backup::{Backup, BackupError, Snapshot};
pub use self::durable::{Compaction, Durable, DurableError, Entry, Image, MemoryDisk, StoreSpace};
pub use self::key::{BadKey, Key, Scope};
pub use self::object::{Change, Event, Revision, Stored, UnixMillis};
pub use self::read::{At, List, Page, ReadError, TooOld};
pub use self::sqlite::{CopyError, Damage, Examined, OpenError, Salvaged, examine, restore, salvage};
pub use self::watch::{Start, Watch, WatchEnd};
pub use self::write::{Action, CommitError, Committed, Expect, Write};
pub(crate) use self::writer::Held;
pub use self::writer::Ticked;

use self::index::Index;
use self::watch::View;
use self::writer::{Writer, WriterThread};

/// How much of the past is kept, per resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// Nothing younger than this is dropped, except for the maxima.
    pub min_age_millis: u64,
    /// This many events are kept however old they are.
    pub min_events: usize,
    /// Never more than this many.
    pub max_events: usize,
    /// Never more than this many bytes of values.
    pub max_bytes: usize,
}

impl Default for History {
    fn default() -> Self {
        Self { min_age_millis: 5 * 60 * 1000, min_events: 1_000, max_events: 100_000, max_bytes: 64 << 20 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub history: History,
    /// Writes that share one sync, at most.
    pub batch_writes: usize,
    /// Bytes that share one sync, at most (one write may exceed it).
    pub batch_bytes: usize,
    /// Pages that gather in the write-ahead file before they are moved into the database.
    pub checkpoint_pages: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { history: History::default(), batch_writes: 512, batch_bytes: 4 << 20, checkpoint_pages: 1_000 }
    }
}

/// The requested revision was not reached in time.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
#[error("revision {requested} was not reached in time; the newest is {current}")]
pub struct NotReached {
    pub requested: Revision,
    pub current: Revision,
}

/// A handle; clones are the same store. Dropping the last one closes it.
#[derive(Debug, Clone)]
pub struct Store {
    // The writer goes first: when it ends, it closes the view.
    writer: Arc<Commits>,
    view: Arc<View>,
    uuid: Arc<str>,
}

#[derive(Debug)]
enum Commits {
    /// On the caller's task: deterministic.
    Inline(Mutex<Writer>),
    Thread(WriterThread),
}

impl Store {
    /// An empty store in memory.
    pub fn memory(options: Options) -> Self {
        Self::on_memory(&MemoryDisk::default(), options)
    }

    /// A store in memory that can be dropped and opened again. One store at a time may use the disk.
    pub fn on_memory(disk: &MemoryDisk, options: Options) -> Self {
        Self::inline(disk.image(), Box::new(disk.clone()), options)
    }

    /// A store over any record, whose writer runs on its callers' tasks.
    pub fn inline(image: Image, durable: Box<dyn Durable>, options: Options) -> Self {
        let (uuid, view, writer) = Self::parts(image, durable, options);
        Self { writer: Arc::new(Commits::Inline(Mutex::new(writer))), view, uuid }
    }

    /// A store over any record, whose writer has a thread. Callers wait without blocking theirs; only dropping the last
    /// handle blocks, until the last batch is written.
    pub fn threaded(image: Image, durable: Box<dyn Durable>, options: Options) -> std::io::Result<Self> {
        let (uuid, view, writer) = Self::parts(image, durable, options);
        Ok(Self { writer: Arc::new(Commits::Thread(WriterThread::spawn(writer, options)?)), view, uuid })
    }

    /// The store in this directory, made if there is none. Reads all of it and checks all of it.
    pub fn open(dir: &Path, options: Options) -> Result<Self, OpenError> {
        let (image, log) = sqlite::open(dir, options.checkpoint_pages)?;
        Self::threaded(image, Box::new(log), options).map_err(OpenError::Thread)
    }

    fn parts(image: Image, durable: Box<dyn Durable>, options: Options) -> (Arc<str>, Arc<View>, Writer) {
        let uuid = image.uuid.as_str().into();
        let view = Arc::new(View::new(Index::load(image)));
        let writer = Writer::new(Arc::clone(&view), durable, options.history);
        (uuid, view, writer)
    }

    /// Tells this store from every other.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The newest revision that readers see.
    pub fn revision(&self) -> Revision {
        self.view.read().revision()
    }

    /// Why the store takes no more writes, if so. A full disk is no such reason: it passes.
    pub fn stopped(&self) -> Option<Arc<str>> {
        self.view.stopped()
    }

    /// What the store counts about itself, in the text form of Prometheus.
    pub(crate) fn print_metrics(&self, out: &mut String) {
        let (revision, history) = {
            let index = self.view.read();
            (index.revision(), index.history_events())
        };
        self.view.meter().print(revision.0, history, out);
    }

    pub fn get(&self, key: &Key) -> Option<Arc<Stored>> {
        self.view.read().latest(key).cloned()
    }

    pub fn list(&self, list: &List<'_>) -> Result<Page, ReadError> {
        self.view.read().list(list)
    }

    /// How many objects a list without its limit would show.
    pub fn count(&self, list: &List<'_>) -> Result<usize, ReadError> {
        self.view.read().count(list)
    }

    /// Watches a scope. A start in the future is silent until it is passed.
    pub fn watch(&self, scope: Scope, from: Start) -> Result<Watch, TooOld> {
        Watch::start(&self.view, scope, from)
    }

    /// Waits until reads see `revision`.
    pub async fn wait_for(&self, revision: Revision, timeout: Duration) -> Result<Revision, NotReached> {
        // Running out of time is not the answer yet: the revision may have come at the last moment.
        let _ = tokio::time::timeout(timeout, self.view.reached(revision)).await;
        match self.revision() {
            current if current >= revision => Ok(current),
            current => Err(NotReached { requested: revision, current }),
        }
    }

    /// Writes one object. Once the write is handed over it happens, whether or not the caller waits for the answer.
    pub async fn commit(&self, write: Write) -> Result<Committed, CommitError> {
        let mut committed = self.commit_all(vec![write]).await?;
        Ok(committed.pop().expect("one write has one outcome"))
    }

    /// Writes several objects together: all of them, each with a revision of its own, or none. The error is that of the
    /// first write that cannot be.
    pub async fn commit_all(&self, writes: Vec<Write>) -> Result<Vec<Committed>, CommitError> {
        self.commit_holding(writes, None).await
    }

    /// The same. `held` is dropped once the outcome is visible, also when the caller does not wait for it any more.
    pub(crate) async fn commit_holding(
        &self,
        writes: Vec<Write>,
        held: Option<Held>,
    ) -> Result<Vec<Committed>, CommitError> {
        match &*self.writer {
            Commits::Thread(writer) => writer.commit(writes, held).await,
            Commits::Inline(writer) => {
                let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
                let outcome = writer.commit(vec![writes]).pop();
                outcome.expect("a batch of one group has one outcome")
            }
        }
    }

    /// Upkeep: expires objects and forgets history. To be called every second or so with the time of day.
    pub async fn tick(&self, now: UnixMillis) -> Result<Ticked, CommitError> {
        match &*self.writer {
            Commits::Thread(writer) => writer.tick(now).await,
            Commits::Inline(writer) => writer.lock().unwrap_or_else(PoisonError::into_inner).tick(now),
        }
    }

    /// The live objects as they are now, without their history. Costs a reference per object, and holds up writers for
    /// no longer than gathering those takes.
    pub fn snapshot(&self) -> Snapshot {
        let index = self.view.read();
        Snapshot { uuid: self.uuid.as_ref().to_owned(), revision: index.revision(), objects: index.live_objects() }
    }
}
