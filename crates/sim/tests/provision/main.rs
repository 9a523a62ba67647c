//! The provisioning engine on the API server in this process: every rule of spec sidecars 2.4, 2.5, 2.10 and 2.11 that
//! can be seen from outside, and what becomes of it when the process dies between any two writes.

mod crash;
mod deletion;
mod handles;
mod intents;
mod nfs;
mod outcomes;
mod rig;
mod storage;
