//! The API in process, over a store in memory.

mod custom;
mod quotas;
mod service;
mod snapshots;
mod support;
mod tls;
