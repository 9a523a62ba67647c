//! The five CSI services over the slots.
//!
//! Every handler is one line: it gives the request to the pipeline together with a function that gates, validates and
//! plans. Those functions are in the files named after what they serve.

mod attachments;
mod controller;
mod group;
mod identity;
mod metadata;
mod node;
mod page;
mod snapshots;
mod volumes;

use std::sync::Arc;

use crate::builder::{ControllerTable, Definition, NodeTable};
use crate::error::{Error, Reason};
use crate::pipeline::Pipeline;
use crate::validate::Rules;

type Result<T> = std::result::Result<T, Error>;

/// What all services of one driver share.
pub(crate) struct Shared {
    pub(crate) definition: Definition,
    pub(crate) pipeline: Pipeline,
    rules: Rules,
}

impl Shared {
    pub(crate) fn new(definition: Definition, pipeline: Pipeline) -> Self {
        let rules = Rules::of(&definition);
        Self { definition, pipeline, rules }
    }
}

/// The Identity service.
#[derive(Clone)]
pub(crate) struct IdentityService {
    pub(crate) shared: Arc<Shared>,
}

/// The Controller, GroupController and SnapshotMetadata services.
#[derive(Clone)]
pub(crate) struct ControllerService {
    pub(crate) shared: Arc<Shared>,
    pub(crate) table: Arc<ControllerTable>,
}

/// The Node service.
#[derive(Clone)]
pub(crate) struct NodeService {
    pub(crate) shared: Arc<Shared>,
    pub(crate) table: Arc<NodeTable>,
}

/// The gate: the object in a slot, or UNIMPLEMENTED.
fn filled<S: ?Sized>(slot: &Option<Arc<S>>, rpc: &'static str) -> Result<Arc<S>> {
    slot.clone().ok_or_else(|| Reason::Unsupported(rpc).into())
}
