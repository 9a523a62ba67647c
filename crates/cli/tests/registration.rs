//! Registration with real programs: `orlop driver`, `orlop registrar`, `orlop livenessprobe`, `orlop sidecar` and
//! `orlop api` as processes, the agent's registry on real sockets, kill -9 and sockets that somebody removes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says why by panicking")]

mod api_rig;
mod rig;

mod registration {
    mod agent;
    mod commands;
    mod liveness;
    mod program;
    mod registrar;
}
