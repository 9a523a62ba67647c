//! Kubernetes' own programs as peers: built from their Go module, started on loopback, and spoken to over HTTP.
//!
//! # Invariants
//! 1. Whatever is started is a child of this process and ends with its guard.
//! 2. `orlop api` and kube-apiserver are both an [`Endpoint`]: what is asked of the one can be asked of the other.

mod beside;
mod client;
mod control_plane;
mod embedded;
mod endpoint;
mod process;
mod programs;
mod up;

pub(crate) use beside::Beside;
pub(crate) use client::{Answer, Client, Question, Stream};
pub(crate) use control_plane::{ControlPlane, Durability, Options};
pub(crate) use embedded::Embedded;
pub(crate) use endpoint::{Credential, Endpoint};
pub(crate) use programs::{Program, Programs};
pub(crate) use up::Up;
