//! Write a CSI driver that cannot advertise what it does not implement.
//!
//! A driver implements small traits, one per capability ([`slots`]), and fills slots with them ([`builder`]). The SDK
//! does the rest: capabilities, validation, locking, joining of repeated calls, deadlines, panics, the finality rule,
//! redaction, metrics, the call log, sockets and shutdown.
//!
//! # Must never know
//! Kubernetes. The few key names that kubelet puts into CSI maps are in [`keys`].

pub mod builder;
mod capabilities;
pub mod error;
pub mod failpoint;
pub mod id;
pub mod keys;
pub mod metrics;
mod pipeline;
mod selftest;
mod serve;
pub mod server;
pub mod slots;
pub mod testing;
pub mod types;
mod validate;
pub mod writers;

pub use async_trait::async_trait;
pub use builder::{BadIdentity, ControllerSlots, DefinitionError, DriverBuilder, Identity, NodeSlots};
pub use csi;
pub use error::{Error, Kind, Reason, Residue};
pub use id::derive_id;
pub use pipeline::{Running, call};
pub use selftest::SelfTestError;
pub use server::{Driver, Mode, ServeError};
pub use slots::*;
pub use types::*;
