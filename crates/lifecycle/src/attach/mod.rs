//! Attach: when a volume goes to a node, and when it leaves it (spec controllers 6).

mod names;

pub use names::{attachment_name, parse_unique, unique_name};
