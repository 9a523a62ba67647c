//! `cargo xtask bench`: numbers, measured on this machine and printed as a table.
//!
//! A bench runs in a release build of itself: an unoptimised client would measure itself.

mod abuse;
mod api;
mod calls;
mod claims;
mod comparison;
mod driver;
mod load;
mod machine;
mod memory;
mod numbers;
mod pods;
mod processor;
mod stack;
mod subject;
mod turns;
mod up;

use std::os::unix::process::CommandExt as _;

/// What `cargo xtask bench` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// `orlop driver`: snapshots, creation, round trips, memory, staging; beside the Go host-path driver if possible.
    Driver(driver::Args),
    /// `orlop api`: creates, lists, watches, memory, start; beside kube-apiserver with etcd if possible.
    Api(api::Args),
    /// `orlop controllers` and `orlop sidecar`: claims bound and deleted, memory, writes; beside kube-controller-manager and
    /// csi-provisioner if they are given.
    Claims(claims::Args),
    /// `orlop node`, and attaching: volumes to pods, memory and time of an idle agent, its restart; pairs of attaching and
    /// detaching beside kube-controller-manager and csi-attacher if they are given.
    Pods(pods::Args),
    /// `orlop up` under abuse: idle connections, costly writers and a storm of watches at once; health, leases, memory.
    Abuse(abuse::Args),
    /// `orlop up`: start, idle memory and processor time, size of the program, `orlop demo`.
    Up(up::Args),
}

pub(crate) async fn run(Args { what }: Args) -> anyhow::Result<()> {
    // The clients of these benches are programs of their own, or do next to nothing.
    if cfg!(debug_assertions) && !matches!(what, What::Abuse(_) | What::Claims(_) | What::Pods(_) | What::Up(_)) {
        // Nothing was started yet, so replacing this process loses nothing.
        let mut release = crate::tools::cargo();
        release.args(["run", "--quiet", "--release", "--package", "xtask", "--"]).args(std::env::args_os().skip(1));
        return Err(release.current_dir(crate::root()).exec().into());
    }
    match what {
        What::Abuse(args) => abuse::run(args).await,
        What::Driver(args) => driver::run(args).await,
        What::Api(args) => api::run(args).await,
        What::Claims(args) => claims::run(args).await,
        What::Pods(args) => pods::run(args).await,
        What::Up(args) => up::run(args).await,
    }
}
