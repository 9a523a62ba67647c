//! From a claim to a pod's mounted volume and back, with real programs on real mounts: an API server, `orlop controllers`,
//! and nodes in mount namespaces of their own, each with driver, sidecar, registrar and agent.
//!
//! - `ORLOP_PODS_SEED` repeats the choices of a run, as far as processes can be made to.
//! - `ORLOP_PODS_CHURN` is how long programs are killed, such as `60s`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says why by panicking")]

mod api_rig;
mod rig;

mod pods {
    mod churn;
    mod cluster;
    mod hung;
    mod left;
    mod measured;
    mod namespace;
    mod objects;
    #[path = "../claims/program.rs"]
    #[allow(dead_code, reason = "the tests of claims use the rest")]
    mod program;
    mod silent;
    mod states;
}
