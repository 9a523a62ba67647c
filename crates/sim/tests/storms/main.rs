//! Answers that never get better: what a process of ours does in an hour in which every write, or every watch, is answered with
//! 500, 502, 409, a body that nobody can read, or 410. The user goes on working beside it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says why by panicking")]

mod all;
#[path = "../provision/storage.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod storage;
mod watches;
mod writes;
