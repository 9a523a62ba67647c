//! From a claim to a volume and back, with real programs: an API server, `orlop controllers`, `orlop sidecar`, and
//! `orlop driver` on real loop devices.
//!
//! The same scenarios run on any API server:
//! - `ORLOP_TEST_KUBECONFIG` names one that runs; without it every test starts an `orlop api` of its own. A shared one wants
//!   `--test-threads=1`.
//! - `ORLOP_TEST_CONTROLLERS=theirs` says that it has its own binder and protection, so that none of ours is started.
//! - `ORLOP_TEST_SCHEDULER=theirs` says that a kube-scheduler runs there; `none` that no scheduler is to be used.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says why by panicking")]

mod api_rig;
mod rig;

mod claims {
    mod attaching;
    mod basics;
    mod delayed;
    mod kills;
    mod leaders;
    mod objects;
    mod program;
    mod sources;
    mod stage;
}
