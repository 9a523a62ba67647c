//! What a decision is: things to do, and the one reason for them.
//!
//! The reason is a value of the step's own `Because` enum. Logs, events, metrics and `explain` print that same value, so
//! that no two of them can disagree about why something waits.

use std::fmt;

/// Why a step does what it does.
pub trait Reason: fmt::Display + fmt::Debug {
    /// A short name in snake case: the label in metrics and the `reason` in JSON.
    fn code(&self) -> &'static str;

    /// Whether anybody has to do something about it.
    fn standing(&self) -> Standing;

    /// The event that users see of it, with upstream's reason and text where upstream has one.
    fn notice(&self) -> Option<Notice> {
        None
    }
}

/// How far a step is from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// There is nothing left to do.
    Settled,
    /// The next move is ours, and we make it.
    Moving,
    /// Somebody else makes the next move, and is expected to.
    Waiting,
    /// Nothing moves until a person changes something.
    Stuck,
}

impl Standing {
    /// The word for it in texts and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Moving => "moving",
            Self::Waiting => "waiting",
            Self::Stuck => "stuck",
        }
    }
}

/// The reason of the event about an object that a controller cannot write to. `explain` looks for it.
pub const WRITE_FAILED: &str = "WriteFailed";

/// An event on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub severity: Severity,
    /// CamelCase, part of the contract with dashboards.
    pub reason: &'static str,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

impl Notice {
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Normal, reason, message: message.into() }
    }

    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, reason, message: message.into() }
    }
}

/// What to do next, and why. Mostly one action: it changes the world, the world is looked at again, and decided again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Decision<Action, Because> {
    pub because: Because,
    pub actions: Vec<Action>,
}

impl<Action, Because> Decision<Action, Because> {
    pub fn act(because: Because, action: Action) -> Self {
        Self { because, actions: vec![action] }
    }

    /// Nothing to do now: it is settled, or the next move is another's.
    pub fn rest(because: Because) -> Self {
        Self { because, actions: Vec::new() }
    }

    pub fn is_rest(&self) -> bool {
        self.actions.is_empty()
    }
}

/// What is known of an object that another one names.
#[derive(Debug, PartialEq, Eq)]
pub enum Lookup<'a, T> {
    Found(&'a T),
    /// The cache lacks it and nobody has asked the server: a cache may lag, so this proves nothing.
    NotCached,
    /// The server itself said that it does not exist.
    Absent,
}

// Not derived: a derive would ask the same of `T`, and only a reference is copied.
impl<T> Clone for Lookup<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Lookup<'_, T> {}

impl<'a, T> Lookup<'a, T> {
    pub fn found(self) -> Option<&'a T> {
        match self {
            Self::Found(object) => Some(object),
            Self::NotCached | Self::Absent => None,
        }
    }
}
