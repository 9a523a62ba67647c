//! Provision: make a volume for a claim, and delete it when its time is over.
//!
//! The engine here decides when (PROVISION-2.4, PROVISION-2.5, PROVISION-2.11), keeps the intents, the events, the
//! metrics and the order. What a volume is made of is a [`Provisioner`]'s business: a CSI driver on a socket, a
//! directory on a share, anything.
//!
//! # Invariants
//! 1. What [`Provisioner::plan`] gave is in the journal before [`Provisioner::create`] is called with it, and stays there
//!    until the PersistentVolume is stored or the provisioner surely has nothing.
//! 2. While an intent is open, the same plan is repeated: never another one for the same claim.
//! 3. Making and deleting for one claim never overlap.

pub mod csi;
mod engine;
mod intent;
pub mod journal;
mod wish;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use api::{Claim, Class, Uid, Volume};
use lifecycle::Notice;
use lifecycle::outcome::Retry;
use runtime::Queue;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use engine::{Asking, BadNaming, Engine, Naming, Options};

/// Somebody who makes volumes and deletes them (the role of sig-storage-lib-external-provisioner's interface).
pub trait Provisioner: Send + Sync + 'static {
    /// All that is needed to repeat or undo the very same creation after a crash, without the claim and its class, and
    /// to write the PersistentVolume of it. It is stored in the cluster: names of secrets, never their values.
    type Plan: Serialize + DeserializeOwned + fmt::Debug + Clone + Send + Sync + 'static;

    /// The names of classes' `provisioner` that are served, its own first, then those of plugins it took over from.
    fn names(&self) -> &[String];

    /// Called once, before anything else: how to say that something which a claim or a volume waited for has come.
    fn start(&self, _wake: &Wake) {}

    /// Looks at everything before anything is made. It may guard a source against deletion, and makes nothing else.
    fn plan(&self, wish: &Wish) -> impl Future<Output = Result<Self::Plan, Unplanned>> + Send;

    /// Makes the volume, or finds that it exists: it must be idempotent by the plan's volume name.
    ///
    /// After an attempt whose outcome is unknown, a refusal may be returned as [`Failed::Refused`] only if it proves that
    /// the earlier attempt left nothing.
    fn create(&self, plan: &Self::Plan, attempt: Attempt) -> impl Future<Output = Result<Made, Failed>> + Send;

    /// Deletes what a volume is made of; that it is gone already is a success.
    fn delete(&self, volume: &Volume) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Called after each attempt has ended for good, with the volume's plan: sources may be let go of, capacity has changed.
    fn settled(&self, _plan: &Self::Plan, _end: Settled<'_>) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Puts claims and volumes back to work at once, such as when the last attachment of a volume is gone. Clones are the same.
#[derive(Debug, Clone)]
pub struct Wake {
    claims: Queue<Uid>,
    volumes: Queue<Box<str>>,
}

impl Wake {
    /// Looks at the claim again now.
    pub fn claim(&self, uid: &Uid) {
        self.claims.add(uid.clone());
    }

    /// Looks at the volume again now, by its name.
    pub fn volume(&self, name: &str) {
        self.volumes.add(name.into());
    }
}

/// Whether the same creation may have been asked for before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Nobody can have asked for it: the intent was written just now.
    First,
    /// We did, or a process before us may have.
    Repeat,
}

/// How an attempt ended for good.
#[derive(Debug, Clone, Copy)]
pub enum Settled<'a> {
    Stored(&'a Volume),
    /// The provisioner surely has nothing.
    Nothing,
}

/// A claim that wants a volume.
#[derive(Debug, Clone)]
pub struct Wish {
    pub claim: Arc<Claim>,
    pub class: Arc<Class>,
    /// The node that the scheduler chose, if one did.
    pub node: Option<Box<str>>,
    /// The name of the volume to be: the same for the same claim, always.
    pub volume_name: String,
}

/// A volume that exists now.
#[derive(Debug, Clone)]
pub struct Made {
    /// The PersistentVolume to store: complete, with kind, name, claimRef, annotations and finalizers.
    pub volume: Value,
}

/// Why there is no plan. Nothing was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unplanned {
    /// Not ours to make: somebody else does, or nobody. Forgotten without a retry.
    Ignored { message: String, notice: Option<Notice> },
    /// The claim or its class cannot be served as it is ("Finished" upstream): tried again with backoff.
    Refused { message: String, retry: Retry },
    /// Something is missing that may come ("NoChange" upstream): tried again with backoff.
    NotYet { message: String },
}

/// Why a call did not do what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// There is surely nothing.
    #[error("{message}")]
    Refused { message: String, retry: Retry },
    /// There may be something, or may be yet: the same call has to be repeated.
    #[error("{message}")]
    Unknown { message: String },
    /// Somebody still uses it. The volume has to be looked at again when they let go; only if that takes long is it said.
    #[error("{message}")]
    InUse { message: String },
    /// Not ours to delete: another instance does.
    #[error("{message}")]
    NotOurs { message: String },
}
