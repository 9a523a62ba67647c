//! Several machines: how the server takes others in (`orlop up --serve-machines`, `orlop token`), and how another machine
//! joins (`orlop node --server`).
//!
//! The server runs the API, the controllers, the scheduler's half, and what a machine runs for itself. A machine that
//! joined runs its own driver with what stands beside it, and its agent: each machine's volumes are made, attached, mounted
//! and deleted by itself, and nobody else touches them.
//!
//! # Invariants
//! 1. The key of a machine is made on it and never leaves it. A token is shown only to a server whose authority has the
//!    key that the token names.
//! 2. What was joined stays joined: a restart needs no token, and certificates are renewed long before they end.
//! 3. Absence of the server stops nobody: mounts stay, and everything goes on when it is back.

mod ask;
mod enrolment;
mod machine;
mod server;
mod token;

pub(crate) use machine::{JoinArgs, run};
pub(crate) use server::{Company, Listen, binding_mode, note_address, prepare, warn_of_class};
pub(crate) use token::{Args as TokenArgs, token};

/// Where machines that joined keep the intents of their provisioners.
const NAMESPACE: &str = "orlop-machines";
