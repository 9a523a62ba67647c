//! The acting halves of a volume's life: each observes from caches, lets `lifecycle` decide, and does what was decided.
//!
//! | Module | The step |
//! |---|---|
//! | [`bind`] | claims and volumes find each other, and part; reclaim by plugins of this process |
//! | [`provision`] | volumes are made for claims and deleted, by anything that is a [`provision::Provisioner`] |
//! | [`schedule`] | pods get the node that their volumes can be reached from |
//! | [`capacity`] | the scheduler is told how much room a driver has, and where |
//! | [`health`] | a claim says what its driver says of its volume's condition |
//! | [`attacher`] | a driver publishes volumes to nodes, and takes them back |
//! | [`protect`] | what is in use does not go away |
//! | [`ephemeral`] | claims that are made for a pod |
//! | [`attach`] | volumes go to the nodes of their pods, and leave them |
//! | [`node_lifecycle`] | machines that are not heard of any more, and what they had |
//!
//! # Invariants
//! 1. A pass over one object does one write at a time, feeds the answer into the cache, and decides again.
//! 2. Every write says what it expects to find: a revision, a `test`, or a uid. A conflict is no error: read and decide again.
//! 3. A write whose answer was lost is followed by a read, never by an assumption.
//! 4. Nothing here spawns a task. Each controller is a future; dropping it is a crash, and nothing is lost by one.

pub mod attach;
pub mod attacher;
pub mod bind;
pub mod capacity;
pub mod ephemeral;
mod handles;
pub mod health;
mod index;
pub mod node_lifecycle;
pub mod protect;
pub mod provision;
pub mod schedule;

pub use runtime::{Context, Live, Notices, handoff};
