//! The node agent: a bound volume reaches the pod's directory on this machine, and leaves it again without a trace.
//!
//! | Module | What it does |
//! |---|---|
//! | [`host`] | everything the agent asks of its machine, as one trait: real Linux, or a model of it |
//! | [`layout`] | where everything lies on disk, and what it is called there |
//! | [`drivers`] | the CSI drivers that are registered on this machine |
//!
//! # Invariants
//! 1. Nothing here touches a path, a mount or a device but through [`host::Host`]; each of its calls ends, also when the
//!    kernel does not answer. One dead mount stops nothing but itself.
//! 2. What is on disk says what may be mounted, and is written before a driver is called. An agent that knows nothing
//!    finds everything again.
//! 3. Nothing here spawns a task. The agent is a future; dropping it is a crash, and nothing is lost by one.

pub mod drivers;
pub mod host;
pub mod layout;
