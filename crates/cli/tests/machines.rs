//! Pods on two machines that share one driver: from a claim to data in a pod's volume, to another machine, and back to nothing.
//!
//! Both machines have a mount namespace and a root directory of their own, an agent and a registrar; the driver mounts in a
//! third namespace whose mounts the machines share, as a driver in a container does. `cargo xtask test` runs the scenarios on
//! the embedded API with programs of ours, `cargo xtask conformance pods` on kube-apiserver, with others in their places:
//!
//! - `ORLOP_TEST_KUBECONFIG` names the cluster; without it every scenario has an API server of its own.
//! - `ORLOP_TEST_SCHEDULER=theirs` and `ORLOP_TEST_ATTACH=theirs`: a scheduler, or an attach/detach controller, runs there already.
//! - `ORLOP_GO_ATTACHER`, `ORLOP_GO_REGISTRAR` and `ORLOP_GO_HOST_PATH` name Go programs that take the place of ours.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says why by panicking")]

mod api_rig;
mod rig;

mod machines {
    mod alone;
    mod cast;
    mod ephemeral;
    mod late;
    mod left;
    mod machine;
    mod moving;
    #[path = "../pods/namespace.rs"]
    #[allow(dead_code, reason = "the tests of pods use the rest")]
    mod namespace;
    mod objects;
    #[path = "../claims/program.rs"]
    #[allow(dead_code, reason = "the tests of claims use the rest")]
    mod program;
    mod room;
    mod staying;
}
