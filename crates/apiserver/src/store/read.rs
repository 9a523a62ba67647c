//! Reads: which objects, as of when.

use std::sync::Arc;

use super::key::Scope;
use super::object::{Revision, Stored};

/// The state a read shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Everything acknowledged so far.
    Latest,
    /// The newest state, which must have reached this revision.
    NotOlderThan(Revision),
    /// The state right after this revision.
    Exact(Revision),
}

/// One page of a list.
#[derive(Debug, Clone, Copy)]
pub struct List<'a> {
    pub scope: &'a Scope,
    pub at: At,
    pub limit: Option<usize>,
    /// Start behind this path, the last one of the page before.
    pub after: Option<&'a str>,
}

impl<'a> List<'a> {
    pub fn latest(scope: &'a Scope) -> Self {
        Self { scope, at: At::Latest, limit: None, after: None }
    }

    pub fn at(scope: &'a Scope, at: At) -> Self {
        Self { at, ..Self::latest(scope) }
    }
}

/// Objects in the order of their paths, all as of one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Later pages are asked for at exactly this revision; a watch after it misses nothing and repeats nothing.
    pub revision: Revision,
    pub items: Vec<Arc<Stored>>,
    /// Is there anything behind the last item?
    pub more: bool,
}

/// History does not reach back far enough.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
#[error("history before revision {oldest} is gone; {requested} is too old")]
pub struct TooOld {
    pub requested: Revision,
    pub oldest: Revision,
}

#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
pub enum ReadError {
    #[error(transparent)]
    TooOld(#[from] TooOld),
    #[error("revision {requested} is not reached yet; the newest is {current}")]
    Future { requested: Revision, current: Revision },
}
