//! Two machines with a cable between them: `orlop up` on one, and another that joins it with a token. Each is a network and a
//! mount namespace of its own; what mounts, does so on real loop devices.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says why by panicking")]

mod api_rig;
mod rig;

mod join {
    mod cut;
    mod lost;
    mod member;
    #[path = "../claims/program.rs"]
    #[allow(dead_code, reason = "the tests of claims use the rest")]
    mod program;
    mod refused;
    mod site;
}
