//! The three patch formats of `PATCH` (API-4.5), as pure functions over JSON values.
//!
//! Invariant: a patch never makes a document deeper than what the server can read back, nor larger than what its own
//! size explains; nothing here panics on any input.

mod go_value;
pub mod json;
pub mod merge;
pub mod strategic;

pub(crate) use go_value::{go_syntax, go_text};
