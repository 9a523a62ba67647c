//! The provisioning engine on the API server in this process: every rule of PROVISION-2.4, PROVISION-2.5,
//! PROVISION-2.10 and PROVISION-2.11 that can be seen from outside, and what becomes of it when the process dies
//! between any two writes.

mod crash;
mod deletion;
mod handles;
mod intents;
mod nfs;
mod outcomes;
mod rig;
mod storage;
