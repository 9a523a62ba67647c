//! What the store holds and what it tells its watchers.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::key::Key;

/// A point in the one sequence of writes over all resources. Kubernetes calls it resourceVersion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// No store gets this far: a million writes a second take a hundred thousand years. A record that claims more is
    /// damaged, and what is below it can be counted on from without overflow.
    pub(super) const UNREACHABLE: Self = Self(1 << 62);

    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Wall-clock time in milliseconds since 1970. The store never reads a clock; callers hand time in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMillis(pub u64);

/// One version of one object.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored {
    pub key: Key,
    /// The object as the caller serialised it. The store never looks inside. It must not contain its own
    /// resourceVersion, which is only known once the write has its place: that is [`Stored::revision`].
    pub value: Bytes,
    /// The write that made this version.
    pub revision: Revision,
    /// The write that created the object.
    pub created: Revision,
    /// When the store removes the object by itself.
    pub expires: Option<UnixMillis>,
}

/// Values can be Secrets, so only their size is shown.
impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} ({} bytes)", self.key, self.revision, self.value.len())
    }
}

/// One write, as watchers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub revision: Revision,
    pub key: Key,
    pub change: Change,
}

/// The versions on both sides of a write: a watch with a selector needs both to say what it means to its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Created { new: Arc<Stored> },
    Updated { old: Arc<Stored>, new: Arc<Stored> },
    Deleted { old: Arc<Stored> },
}

impl Event {
    pub fn new_version(&self) -> Option<&Arc<Stored>> {
        match &self.change {
            Change::Created { new } | Change::Updated { new, .. } => Some(new),
            Change::Deleted { .. } => None,
        }
    }

    pub fn old_version(&self) -> Option<&Arc<Stored>> {
        match &self.change {
            Change::Created { .. } => None,
            Change::Updated { old, .. } | Change::Deleted { old } => Some(old),
        }
    }
}
