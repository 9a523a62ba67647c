//! A seeded world for Orlop: the in-process API server, paused time, faults, a model driver and a user.
//!
//! A [`World`] is one simulation. It owns the seed, the time, the API server on its memory store, and the [`Journal`].
//! Every part under test is a [`Component`]: its client's requests pass a fault layer, which decides for each one, from
//! the seed alone or from a script, what becomes of it. A component can crash there, before or after a write.
//!
//! # What makes a run repeat
//! 1. One thread, one runtime, paused time: [`simulate`] gives every run a fresh thread, and tasks run in the order in
//!    which they were woken.
//! 2. No clock and no randomness but the world's ([`Random`], one stream per purpose, so that a draw more in one
//!    place changes nothing elsewhere).
//! 3. No iteration over hash maps. What dependencies do is theirs: kube's `Controller` picks from hash maps, and a test
//!    that runs it must seed those (`tests/simulated_day`). Our own runtime does not use it.
//!
//! Two runs of one seed have equal journals and equal [`World::record`]s, line by line, also in two processes. A seed
//! therefore is a bug report.

mod administrator;
mod clock;
mod component;
pub mod driver;
pub mod faults;
mod journal;
pub mod keys;
pub mod machine;
pub mod nodes;
mod number;
mod outage;
mod process;
mod random;
pub mod storage;
pub mod user;
mod world;

pub use component::{Component, Ended};
pub use journal::Journal;
pub use number::{Number, Total};
pub use process::Process;
pub use random::{Odds, Random, Seed};
pub use world::{Setup, World, WorldError, simulate};
