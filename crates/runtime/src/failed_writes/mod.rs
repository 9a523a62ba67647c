//! Writes that fail: how often one pass of a queue looks again at once, and when users hear of the failure.
//!
//! A pass is one run of a queue's handler for one key ([`crate::queue::run`]). A write that conflicts is worth a second look
//! with fresh data, and a third; a server that goes on refusing, failing or answering nonsense is not. The client notes every
//! write of a pass here, so that no handler has to count.
//!
//! # Invariants
//! 1. One object is written to at most [`LOOKS`] + 1 times in one pass while all of these writes fail.
//! 2. A pass whose last write failed and that wants to run again at once waits for the queue's backoff.
//! 3. The event about a failed write is recorded once per change of its reason, and again only after five minutes.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::object::{Key, Kind, Uid};
use tokio::time::Instant;

use crate::client::Error;

/// How often a pass looks again at once after failed writes to one object.
pub const LOOKS: u32 = 2;
/// The reason of the event about a write that keeps failing.
pub const WRITE_FAILED: &str = lifecycle::WRITE_FAILED;
/// While a write keeps failing for the same reason, its event is repeated this often, so that it does not look old.
const TELL_AGAIN: Duration = Duration::from_secs(300);
/// How many objects are remembered.
const REMEMBERED: usize = 4096;

tokio::task_local! {
    static PASS: RefCell<PassWrites>;
}

/// The outcome of the writes of one pass.
#[derive(Debug, Default)]
struct PassWrites {
    failed: BTreeMap<(&'static str, Key), u32>,
    /// Why the last write failed, unless it succeeded.
    unsettled: Option<String>,
}

/// Runs one pass. Gives its output and why its last write failed, if it did.
pub async fn in_pass<F: Future>(work: F) -> (F::Output, Option<String>) {
    let scope = PASS.scope(RefCell::default(), async {
        let output = work.await;
        (output, PASS.with(|pass| pass.borrow_mut().unsettled.take()))
    });
    scope.await
}

/// Notes how a write ended. Outside of a pass nothing is noted.
pub(crate) fn note_write<T>(ended: &Result<T, Error>) {
    let unsettled = ended.as_ref().err().map(|error| crate::causes(error));
    // Not every write belongs to a pass of a queue.
    let _ = PASS.try_with(|pass| pass.borrow_mut().unsettled = unsettled);
}

/// Whether this pass may look again at once after a write to this object failed. Each question counts as one failed write.
/// Outside of a pass nobody counts, and the caller's own pause has to do.
pub fn may_look_again(kind: Kind, key: &Key) -> bool {
    let counted = PASS.try_with(|pass| {
        let mut pass = pass.borrow_mut();
        let failed = pass.failed.entry((kind.plural, key.clone())).or_default();
        *failed += 1;
        *failed <= LOOKS
    });
    counted.unwrap_or(false)
}

/// Which failed writes users were told of.
#[derive(Debug, Default)]
pub(crate) struct ToldFailures(Mutex<BTreeMap<Uid, (String, Instant)>>);

impl ToldFailures {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uid, (String, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this failure is news about the object.
    pub(crate) fn is_news(&self, uid: &Uid, message: &str) -> bool {
        let now = Instant::now();
        let mut told = self.lock();
        if told.get(uid).is_some_and(|(said, at)| said == message && now.duration_since(*at) < TELL_AGAIN) {
            return false;
        }
        if told.len() >= REMEMBERED {
            told.retain(|_, (_, at)| now.duration_since(*at) < TELL_AGAIN);
        }
        if told.len() < REMEMBERED || told.contains_key(uid) {
            told.insert(uid.clone(), (message.to_owned(), now));
        }
        true
    }

    /// A write to the object succeeded: the next failure is news again.
    pub(crate) fn settled(&self, uid: &Uid) {
        self.lock().remove(uid);
    }
}
