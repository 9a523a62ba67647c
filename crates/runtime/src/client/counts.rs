//! How often what was asked: "writes per claim" is a number we promise.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// What a request asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Read one.
    Get,
    /// Read a page.
    List,
    /// Follow changes.
    Watch,
    /// Store a new object.
    Create,
    /// Replace an object.
    Update,
    /// Change parts of an object.
    Patch,
    /// Ask for an object's end.
    Delete,
}

impl Verb {
    /// The name in metrics and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
        }
    }

    /// Whether it can change something.
    pub const fn writes(self) -> bool {
        match self {
            Verb::Get | Verb::List | Verb::Watch => false,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => true,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Requests by verb and resource; a part of an object counts as a resource of its own (`persistentvolumeclaims/status`).
#[derive(Debug, Default)]
pub struct Counts(Mutex<BTreeMap<(Verb, String), u64>>);

impl Counts {
    pub(super) fn add(&self, verb: Verb, resource: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((verb, resource.to_owned())).or_default() += 1;
    }

    /// How often `verb` was asked of `resource`.
    pub fn of(&self, verb: Verb, resource: &str) -> u64 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&(verb, resource.to_owned())).copied().unwrap_or(0)
    }

    /// All counts in order.
    pub fn all(&self) -> BTreeMap<(Verb, String), u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Every write, events and leases apart.
    pub fn writes(&self) -> u64 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = counts.iter().filter(|((verb, resource), _)| {
            verb.writes() && resource != api::object::Kind::EVENT.plural && resource != api::object::Kind::LEASE.plural
        });
        counted.map(|(_, count)| count).sum()
    }
}
