//! Attach: when a volume goes to a node, and when it leaves it (ATTACH-6).
//!
//! What is attached where is never remembered. A VolumeAttachment says that a volume is on its way to a node, there, or on
//! its way back, and nothing but its absence says that the volume is not there; a node's status says what its agent was
//! told and what it uses. All decisions are made from these, so that a restart loses nothing (CTRL-13.35 to
//! CTRL-13.37).
//!
//! | Module | The question |
//! |---|---|
//! | [`target`] | which of a pod's volumes are attached, and whether to one node only |
//! | [`wish`] | a pod wants a volume on its node: attach it, or why not |
//! | [`hold`] | an attachment nobody wants: may it go, on what evidence |
//! | [`node`] | what a node is told, and what leaves it, in which order |
//! | [`restored`] | which node may have which volume after a backup was restored |
//! | [`look`] | the same reasons from plain lists, for whoever only looks |
//!
//! [`explain`](crate::explain) and events print the same reasons: [`Because`] for who waits, [`Hold`] for who holds.

pub mod hold;
mod identity;
pub mod look;
mod names;
pub mod node;
pub mod restored;
pub mod target;
#[cfg(test)]
mod tests;
pub mod wish;

pub use hold::{Evidence, Hold, judge};
pub use identity::{AttachmentIdentity, identify, published};
pub use look::Sight;
pub use names::{attachment_name, is_hashed_name, parse_unique, unique_name};
pub use target::{Target, resolve};
pub use wish::{Because, about};
