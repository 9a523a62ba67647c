//! Schedule: the node for a pod that all of its volumes can be reached from (SCHED-5).
//!
//! Enters: a pod without a node. Leaves: each of its claims has a volume that the chosen node reaches, and then the pod
//! has that node. Two decisions follow each other:
//!
//! | Module | The question |
//! |---|---|
//! | [`place`] | which node, and by which means each claim gets its volume there; or why none |
//! | [`pursue`] | what is left to write or to wait for until the pod may go there; or why it may not any more |
//!
//! What both read is a [`Cluster`]: the objects as far as somebody knows them. What was decided and does not show in the
//! objects yet is in the [`Book`].
//!
//! # Invariants
//! 1. A pod goes to its node only when all its claims are bound and each volume admits the node (CTRL-I10).
//! 2. A claim that is meant for one node is never given another (CTRL-I11): the mark is only written where there is
//!    none. It is taken away only when it leads nowhere, see [`place::Why`].
//! 3. A volume is promised to one claim at a time (CTRL-I12), and room to one claim at a time (CTRL-14.22).
//! 4. All of the book can be lost: what was written is found again in the objects, the rest is decided anew.
//!
//! # Not here
//! A pod's processor and memory, spreading, priorities and preemption. Whoever needs them runs kube-scheduler.

pub mod book;
mod capacity;
mod cluster;
mod draft;
mod limits;
mod node;
pub mod place;
pub mod pursue;
mod refusal;
mod wants;

#[cfg(test)]
mod tests;

pub use book::{Assignment, Book, Means, Stage, Step};
pub use capacity::Ledger;
pub use cluster::Cluster;
pub(crate) use node::tolerates;
pub use refusal::Refusal;
pub use wants::Unready;

/// Time that has passed since the scheduler began, as its caller measures it.
pub type Moment = std::time::Duration;
