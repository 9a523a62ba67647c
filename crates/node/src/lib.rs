//! The node agent: a bound volume reaches the pod's directory on this machine, and leaves it again without a trace.
//!
//! | Module | What it does |
//! |---|---|
//! | [`host`] | everything the agent asks of its machine, as one trait: real Linux, or a model of it |
//! | [`layout`] | where everything lies on disk, and what it is called there |
//! | [`volumes`] | volumes that need no driver: emptyDir, hostPath, local, NFS; block mappings, parts of volumes |
//! | [`orphans`] | directories of pods that are gone |
//! | [`drivers`] | the CSI drivers that are registered on this machine |
//! | [`pods`] | the pods of this node, as far as their volumes need them |
//! | [`desired`] | what those pods want, resolved from claims to volumes |
//! | [`actual`] | what this machine has |
//! | `reconcile` | one volume: look, decide, do one step, look again |
//! | `csi`, `block`, `in_tree` | the steps, for each kind of volume |
//! | `reconstruct` | what earlier runs left, found at the start |
//! | `status` | what the node says that it uses, stored before anything is mounted |
//! | `tokens`, `stats` | service account tokens for drivers; how full volumes are, and whether mounts live |
//! | [`agent`] | all of it together |
//! | [`registry`] | how they are found and registered, and what Node and CSINode say of it |
//! | [`registrar`] | the other side of registration, beside a driver; [`liveness`] asks the driver whether it is well |
//!
//! # Invariants
//! 1. Nothing here touches a path, a mount or a device but through [`host::Host`]; each of its calls ends, also when the
//!    kernel does not answer. One dead mount stops nothing but itself.
//! 2. What is on disk says what may be mounted, and is written before a driver is called. An agent that knows nothing
//!    finds everything again.
//! 3. Nothing here spawns a task. The agent is a future; dropping it is a crash, and nothing is lost by one.

pub mod actual;
pub mod agent;
mod block;
mod cleanup;
mod csi;
pub mod desired;
pub mod drivers;
pub mod host;
mod in_tree;
pub mod layout;
pub mod liveness;
mod metrics;
pub mod orphans;
pub mod pods;
mod reconcile;
mod reconstruct;
pub mod registrar;
pub mod registry;
mod stats;
mod status;
mod tokens;
pub mod volumes;

pub use agent::{Agent, Options};
