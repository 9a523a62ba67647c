//! What drives any step of a volume's life.
//!
//! | Module | What it does |
//! |---|---|
//! | [`client`] | typed calls to the Kubernetes API; an answer that was lost is a value of its own |
//! | [`cache`] | one watch per kind and process, indexes, and what we wrote ourselves |
//! | [`queue`] | keys to work on: once at a time, with backoff |
//! | [`lease`] | who leads; work stops before somebody else may start |
//! | [`events`] | what happened, told to users without flooding them |
//! | [`csi`] | a driver on a socket that may be absent, slow or restarted |
//! | [`metrics`], [`health`] | what operators see |
//! | [`stop`], [`time`], [`entropy`] | the end, the clock and chance, each as an argument |
//! | [`args`] | the flags that all programs of this kind share |
//!
//! # Invariants
//! 1. Nothing here spawns a task or a thread. Everything that runs is a future the caller polls, so that dropping it is
//!    the same as a crash, and a simulator can do that at any point.
//! 2. Time comes from tokio or from [`time::Clock`], chance from [`entropy::Entropy`]. On a paused runtime with a seed
//!    two runs are the same.
//! 3. Nothing iterates in an order that depends on memory addresses or hashes.
//!
//! # Must never know
//! What a claim or a volume means. Decisions live in `lifecycle`, what acts on them in `control` and `node`.

pub mod args;
pub mod cache;
pub mod client;
pub mod csi;
pub mod entropy;
pub mod events;
pub mod health;
mod keys;
pub mod lease;
pub mod metrics;
pub mod queue;
pub mod stop;
pub mod time;

pub use api::object::{Key, Kind, Meta, Object, Revision, Uid};
pub use cache::{Cache, Caches, Change, Index, Lookup};
pub use client::{Client, Patch};
pub use entropy::Entropy;
pub use metrics::Metrics;
pub use queue::{Queue, Verdict};
pub use stop::{Stop, Stopper};
pub use time::Clock;
