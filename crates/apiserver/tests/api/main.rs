//! The API in process, over a store in memory.

mod custom;
mod service;
mod support;
mod tls;
