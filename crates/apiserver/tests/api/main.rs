//! The API in process, over a store in memory.

mod custom;
mod door;
mod limits;
mod refusals;
mod nodes;
mod operations;
mod quotas;
mod service;
mod snapshots;
mod support;
