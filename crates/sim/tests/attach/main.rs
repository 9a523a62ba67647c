//! The attach/detach controller on the API server, beside an attacher, nodes and a user that are played (spec controllers
//! 6, 12, 13.5, 18.4, 19).
//!
//! `played` holds the parts that are not ours, with a model of the storage that notices what must never happen: a volume
//! for one node on two, a mount of what is not attached, a detach of what is mounted without evidence.

mod batches;
mod lives;
mod nodes;
mod orphans;
mod played;
mod rig;
mod waits;
