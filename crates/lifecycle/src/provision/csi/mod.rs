//! What a CSI driver is asked for a claim, and what is made of its answer (SIDECAR-1.6, SIDECAR-1.9, PROVISION-2.6 to
//! PROVISION-2.10).
//!
//! In the order in which a claim meets them: [`outline`] checks everything that the claim, its class and the driver's
//! abilities alone decide; [`source`] checks where content comes from; [`topology`] says where the volume may go; the
//! [`Plan`] is all of that as data, to be stored and repeated; [`answer`] judges what the driver said and writes the
//! PersistentVolume.
//!
//! # Invariants
//! 1. A [`Plan`] repeats the same request after a restart, without the claim, its class, its nodes and its sources.
//! 2. A [`Plan`] names secrets and never holds their values.
//! 3. Whatever can be refused without asking anybody is refused before anything is written ([`outline`]).

pub mod ability;
pub mod access;
pub mod answer;
pub mod outline;
pub mod parameters;
pub mod plan;
pub mod secrets;
pub mod source;
#[cfg(test)]
mod tests;
pub mod topology;
mod unfit;

pub use ability::{Abilities, Ability};
pub use outline::{Options, Outline, Seen, outline};
pub use plan::Plan;
pub use unfit::{Standing, Unfit};
