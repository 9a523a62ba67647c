//! The controller's half: making, copying, growing, changing, attaching, listing and removing volumes and snapshots.

mod attach;
mod copy;
mod create;
mod delete;
mod expand;
mod group;
mod list;
mod metadata;
mod modify;
mod snapshot;

pub(crate) use attach::AttachAs;
pub(crate) use create::{blank_claim, choose_kind, logical_block, make_data, sync_data};
pub(crate) use list::data_fault;
pub(crate) use modify::tune;
