//! The API in process, over a store in memory.

mod custom;
mod door;
mod handles;
mod joining;
mod limits;
mod node_references;
mod node_rules;
mod nodes;
mod operations;
mod quotas;
mod refusals;
mod service;
mod snapshots;
mod stolen;
mod support;
