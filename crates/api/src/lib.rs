//! The nouns of Kubernetes storage, as every crate of this project says them: objects, keys, amounts, selectors.
//!
//! Objects here are *projections*: they deserialise from the wire and keep what decisions read. What is written to the API
//! is built where it is written. Nothing in this crate does I/O, reads a clock or draws a random number.

pub mod access;
pub mod amount;
pub mod claim;
pub mod class;
pub mod config;
pub mod csi;
pub mod event;
pub mod intents;
pub mod keys;
pub mod lease;
pub mod namespace;
pub mod node;
pub mod object;
pub mod quantity;
pub mod selector;
mod shared;
pub mod snapshot;
pub mod volume;

pub use access::{AccessMode, AccessModes, VolumeMode};
pub use amount::Amount;
pub use claim::{Claim, ClaimPhase, ClassName, DataSource, SourceField};
pub use class::{AttributesClass, BindingMode, Class};
pub use config::ConfigMap;
pub use csi::{Attachment, AttachmentError, Capacity, CsiDriver};
pub use event::Event;
pub use lease::Lease;
pub use namespace::{Namespace, Quota};
pub use node::{AttachedVolume, CsiNode, Node, Pod, PodSource, PodVolume};
pub use object::{Key, Kind, Meta, Object, Pairs, Revision, Scope, Uid, Word};
pub use snapshot::{Grant, Snapshot, SnapshotContent};
pub use volume::{ClaimRef, ReclaimPolicy, SecretName, Source, Volume, VolumePhase};
