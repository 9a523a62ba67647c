//! The API in process, over a store in memory.

mod custom;
mod door;
mod limits;
mod refusals;
mod service;
mod support;
