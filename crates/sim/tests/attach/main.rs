//! The attach/detach controller on the API server, beside an attacher, nodes and a user that are played (ATTACH-6,
//! CTRL-12, CTRL-13.30 to CTRL-13.45, CTRL-18.4, CTRL-19).
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
