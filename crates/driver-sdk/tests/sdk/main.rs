//! The SDK as its callers see it: a small driver in memory, all of its slots filled, behind the real services.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail the test")]

mod chaos;
mod contract;
mod derivation;
mod example;
mod failpoints;
mod groups;
mod metadata;
mod model;
mod node;
mod pipeline;
mod secrets;
mod serving;
mod volumes;
