//! What an agent remembers of its lease between two of its processes: the renewals, in a file of its directory.
//!
//! The next process may take the lease at once if it holds the lock on the directory, which shows that the process before it
//! has ended, and if the lease is as that process left it. Whoever does not hold the lock writes nothing: a later process
//! would take its silence for its end.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use api::object::Revision;
use lifecycle::registration::lease::{AgentHistory, OwnRenewals, Predecessor, Proof};
use linux::durable::{self, Lasting};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

const LOCK: &str = "agent.lock";
const RENEWALS: &str = "agent-lease.json";

/// Keeps renewals for the next process of the agent.
pub trait LeaseMemory: fmt::Debug + Send + Sync {
    /// What the process before this one left, and what shows that it has ended.
    fn predecessor(&self) -> Option<Predecessor>;

    /// Whether an agent has worked with this memory before. A machine that was cloned remembers its original's work.
    fn history(&self) -> AgentHistory;

    /// Before a renewal is sent, and after its answer came.
    fn store(&self, renewals: &OwnRenewals);
}

/// Remembers nothing: each process waits until the lease of the one before it has ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMemory;

impl LeaseMemory for NoMemory {
    fn predecessor(&self) -> Option<Predecessor> {
        None
    }

    fn history(&self) -> AgentHistory {
        AgentHistory::FirstStart
    }

    fn store(&self, _renewals: &OwnRenewals) {}
}

/// Where the API server is that has the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiPlace {
    /// In this process, with its objects on this machine.
    Here,
    Elsewhere,
}

/// Remembers in a directory, for as long as this process holds the lock on it.
#[derive(Debug)]
pub struct DirectoryMemory {
    directory: PathBuf,
    api: ApiPlace,
    lock: Option<File>,
    history: AgentHistory,
}

#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    holder: String,
    answered: Option<StoredRenewal>,
    unanswered: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredRenewal {
    mark: String,
    revision: u64,
}

impl DirectoryMemory {
    /// Takes the lock on `directory`, which exists, if no other process has it.
    pub fn open(directory: &Path, api: ApiPlace) -> Self {
        let lock = match lock(&directory.join(LOCK)) {
            Ok(file) => Some(file),
            Err(error) => {
                let path = directory.display();
                tracing::info!(directory = %path, %error, "the agent's directory is not locked; another agent may use it");
                None
            }
        };
        let is_new = matches!(std::fs::exists(directory.join(RENEWALS)), Ok(false));
        let history = match lock.is_some() && is_new {
            true => AgentHistory::FirstStart,
            // A file that is there, or cannot be looked for, may be an earlier agent's.
            false => AgentHistory::WorkedBefore,
        };
        Self { directory: directory.to_owned(), api, lock, history }
    }
}

fn lock(path: &Path) -> std::io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

impl LeaseMemory for DirectoryMemory {
    fn predecessor(&self) -> Option<Predecessor> {
        self.lock.as_ref()?;
        // A file that is missing or damaged proves nothing, and then the lease is watched.
        let bytes = std::fs::read(self.directory.join(RENEWALS)).ok()?;
        let Stored { holder, answered, unanswered } = serde_json::from_slice(&bytes).ok()?;
        let answered = answered.map(|renewal| (renewal.mark, Revision::new(renewal.revision)));
        let proof = match self.api {
            ApiPlace::Here => Proof::LockBesideTheApi,
            ApiPlace::Elsewhere => Proof::LockOfThisBoot,
        };
        Some(Predecessor { renewals: OwnRenewals { holder, answered, unanswered }, proof })
    }

    fn history(&self) -> AgentHistory {
        self.history
    }

    fn store(&self, renewals: &OwnRenewals) {
        if self.lock.is_none() {
            return;
        }
        let OwnRenewals { holder, answered, unanswered } = renewals.clone();
        let answered = answered.map(|(mark, revision)| StoredRenewal { mark, revision: revision.get() });
        let stored = serde_json::to_vec(&Stored { holder, answered, unanswered }).map_err(|error| error.to_string());
        // It counts for this boot only, so it need not outlive a power cut.
        let written = stored.and_then(|bytes| {
            let lasting = (0o600, Lasting::Process);
            durable::write_file(&self.directory, RENEWALS.as_ref(), &bytes, lasting)
                .map_err(|error| runtime::causes(&error))
        });
        if let Err(error) = written {
            tracing::warn!(error, "the renewal of the lease is not remembered; the next agent has to wait for its end");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renewals() -> OwnRenewals {
        OwnRenewals {
            holder: "orlop/h_d_m_b_p".to_owned(),
            answered: Some(("one".to_owned(), Revision::new(7))),
            unanswered: vec!["two".to_owned()],
        }
    }

    #[test]
    fn the_next_process_finds_what_was_stored_and_a_second_one_at_the_same_time_does_not() {
        let scratch = tempfile::tempdir().expect("a directory");
        let first = DirectoryMemory::open(scratch.path(), ApiPlace::Elsewhere);
        assert_eq!((first.predecessor(), first.history()), (None, AgentHistory::FirstStart));
        first.store(&renewals());
        let second = DirectoryMemory::open(scratch.path(), ApiPlace::Elsewhere);
        assert_eq!(second.predecessor(), None, "the first one runs");
        assert_eq!(second.history(), AgentHistory::WorkedBefore);
        second.store(&OwnRenewals::default());
        drop(first);
        assert_eq!(second.predecessor(), None, "it began without the lock");
        drop(second);
        let third = DirectoryMemory::open(scratch.path(), ApiPlace::Elsewhere);
        let want = Predecessor { renewals: renewals(), proof: Proof::LockOfThisBoot };
        assert_eq!((third.predecessor(), third.history()), (Some(want), AgentHistory::WorkedBefore));
    }

    #[test]
    fn a_damaged_file_proves_nothing() {
        let scratch = tempfile::tempdir().expect("a directory");
        std::fs::write(scratch.path().join(RENEWALS), b"{\"holder\": ").expect("it can be written");
        let memory = DirectoryMemory::open(scratch.path(), ApiPlace::Here);
        assert_eq!((memory.predecessor(), memory.history()), (None, AgentHistory::WorkedBefore));
    }
}
