//! What this process saw begin, and what it told pods about it. None of it is needed after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{Attachment, Key, Pod, Uid};
use lifecycle::Notice;
use runtime::Change;
use tokio::time::Instant;

use super::metrics::{AttachMetrics, Operation};
use crate::Notices;

/// Attachments that are on their way: since when.
#[derive(Debug, Default)]
pub(super) struct Began(Mutex<BTreeMap<Box<str>, Instant>>);

impl Began {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is on its way; gives for how long.
    pub(super) fn waiting(&self, attachment: &str) -> Duration {
        let mut began = self.lock();
        match began.get(attachment) {
            Some(since) => since.elapsed(),
            None => {
                began.insert(attachment.into(), Instant::now());
                Duration::ZERO
            }
        }
    }

    /// It arrived; gives how long that took, if this process saw it begin.
    pub(super) fn arrived(&self, attachment: &str) -> Option<Duration> {
        self.lock().remove(attachment).map(|since| since.elapsed())
    }
}

/// How long attachments took to come and to go. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Ends {
    pub(super) attaching: Arc<Began>,
    pub(super) detaching: Arc<Began>,
    pub(super) metrics: Arc<AttachMetrics>,
}

impl Ends {
    pub(super) fn new(metrics: AttachMetrics) -> Self {
        Self { attaching: Arc::default(), detaching: Arc::default(), metrics: Arc::new(metrics) }
    }

    /// An attachment is gone, or its attacher says anew why not.
    pub(super) fn follow(&self, change: &Change<Attachment>) {
        let (driver, name) = (&change.object().attacher, change.object().name());
        let said = |attachment: Option<&Arc<Attachment>>| attachment.and_then(|held| held.detach_error.clone());
        match change.after() {
            None => {
                self.attaching.arrived(name);
                if let Some(took) = self.detaching.arrived(name) {
                    self.metrics.succeeded(driver, Operation::Detach, took);
                }
            }
            Some(now) if now.detach_error.is_some() && said(change.before()) != now.detach_error => {
                self.metrics.failed(driver, Operation::Detach, self.detaching.waiting(name));
            }
            Some(_) => {}
        }
    }
}

/// What pods were told about each of their volumes, so that only news is told (CTRL-14.48).
#[derive(Debug)]
pub(super) struct Told {
    notices: Notices,
    last: Mutex<BTreeMap<Uid, BTreeMap<Box<str>, Notice>>>,
}

impl Told {
    pub(super) fn new(notices: Notices) -> Self {
        Self { notices, last: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uid, BTreeMap<Box<str>, Notice>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a pod about a volume, unless it is what it was told last. Gives whether it was news.
    pub(super) fn say(&self, pod: &Pod, unique: &str, notice: &Notice) -> bool {
        let mut last = self.lock();
        let of_pod = last.entry(pod.meta.uid.clone()).or_default();
        if of_pod.get(unique) == Some(notice) {
            return false;
        }
        of_pod.insert(unique.into(), notice.clone());
        drop(last);
        self.notices.always(pod, notice);
        true
    }

    /// There is nothing to say about a volume of a pod: whatever comes next is news.
    pub(super) fn clear(&self, pod: &Pod, unique: &str) {
        let mut last = self.lock();
        if let Some(of_pod) = last.get_mut(&pod.meta.uid) {
            of_pod.remove(unique);
            if of_pod.is_empty() {
                last.remove(&pod.meta.uid);
            }
        }
    }

    pub(super) fn forget(&self, pod: &Uid) {
        self.lock().remove(pod);
    }

    pub(super) fn notices(&self) -> &Notices {
        &self.notices
    }
}

/// Volumes that wait for attachments elsewhere to go.
#[derive(Debug, Default)]
pub(super) struct Blocked(Mutex<BTreeMap<Key, BTreeSet<Box<str>>>>);

impl Blocked {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, BTreeSet<Box<str>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, attachment: &Key, unique: &str) {
        self.lock().entry(attachment.clone()).or_default().insert(unique.into());
    }

    /// Who waits for an attachment.
    pub(super) fn by(&self, attachment: &Key) -> BTreeSet<Box<str>> {
        self.lock().get(attachment).cloned().unwrap_or_default()
    }

    /// The attachment is gone: who waited for it.
    pub(super) fn released(&self, attachment: &Key) -> BTreeSet<Box<str>> {
        self.lock().remove(attachment).unwrap_or_default()
    }
}
