//! The decisions of a volume's life: pure functions from what was observed to what to do, with the reason.
//!
//! One folder per step, in the order a claim meets them. Nothing here can do I/O, read a clock or draw a random number:
//! time and chance come in as data. The acting halves are in `control` and `node`.

pub mod attach;
pub mod attacher;
pub mod bind;
pub mod capacity;
pub mod decision;
pub mod driver_limits;
pub mod ephemeral;
pub mod explain;
pub mod health;
pub mod measured;
pub mod migration;
pub mod node;
pub mod node_lifecycle;
pub mod orphans;
pub mod outcome;
pub mod protect;
pub mod provision;
pub mod registration;
pub mod release;
pub mod scene;
pub mod schedule;
pub mod table;
pub mod top;
pub mod tree;

pub use decision::{Decision, Lookup, Notice, Reason, Severity, Standing, WRITE_FAILED};
