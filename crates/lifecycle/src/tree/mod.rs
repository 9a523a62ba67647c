//! Tree: claims, their volumes, where those are attached and which pods have them mounted, as one picture.
//!
//! Nothing is decided here. States are those of the objects, reasons those of [`crate::explain`]; what is added is who
//! stands under whom, and what stands under nobody: volumes that no claim has, attachments of volumes that do not exist,
//! and creations that were begun for claims that are gone.
//!
//! # Invariants
//! 1. Every claim, volume, attachment and intent that is in scope is in the tree once; a pod is under each of its claims.
//! 2. What could not be looked at is in [`Tree::unseen`], and nothing is called missing because of it.

mod grow;
mod near;
mod render;
#[cfg(test)]
mod tests;

use api::Key;

pub use grow::grow;
pub(crate) use render::{unseen_text, unseen_value, usage_value};

use crate::decision::Standing;
use crate::explain::{Subject, Unseen};
use crate::measured::Usage;

/// What is to be in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    /// `None` means all.
    pub namespace: Option<Box<str>>,
    /// Names of claims; empty means all of them, and what stands under no claim.
    pub claims: Vec<Box<str>>,
}

impl Scope {
    fn has(&self, claim: &Key) -> bool {
        self.has_namespace(claim.namespace())
            && (self.claims.is_empty() || self.claims.iter().any(|name| **name == *claim.name()))
    }

    fn has_namespace(&self, namespace: Option<&str>) -> bool {
        self.namespace.as_deref().is_none_or(|wanted| namespace == Some(wanted))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    pub scope: Scope,
    /// By key.
    pub claims: Vec<Branch>,
    /// What stands under no claim: volumes, then attachments, then intents.
    pub loose: Vec<Branch>,
    pub unseen: Vec<Unseen>,
}

/// Somebody in the tree, and what stands under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// The kind is `Intent` for a creation that was begun.
    pub subject: Subject,
    pub state: &'static str,
    /// Seconds.
    pub age: Option<i64>,
    /// As it was written, and in bytes.
    pub size: Option<(Box<str>, i64)>,
    pub usage: Option<Usage>,
    /// Absent where there is nothing to say.
    pub why: Option<Why>,
    pub details: Details,
    pub below: Vec<Branch>,
}

/// Why something is in the state it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// The decision that gave the reason, or `around`.
    pub step: &'static str,
    pub code: &'static str,
    pub standing: Standing,
    pub sentence: String,
}

/// What is told with `-o wide`, and to programs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Details {
    pub class: Option<Box<str>>,
    pub access: Option<String>,
    pub reclaim: Option<&'static str>,
    pub node: Option<Box<str>>,
    pub driver: Option<Box<str>>,
    pub handle: Option<Box<str>>,
    /// The claim that something was begun for.
    pub claim: Option<String>,
}

impl Tree {
    /// Whether nothing moves, waits or is stuck.
    pub fn settled(&self) -> bool {
        self.claims.iter().chain(&self.loose).all(Branch::settled)
    }
}

impl Branch {
    fn settled(&self) -> bool {
        let own = self.why.as_ref().is_none_or(|why| why.standing == Standing::Settled);
        own && self.below.iter().all(Branch::settled)
    }
}
