//! The project's own tasks: what CI runs, and nothing it does not.
//!
//! # Invariants
//! 1. A task ends what it started (processes by their id, mounts, loop devices, folders), also when it fails and when
//!    it is interrupted: every such thing has a guard, and the tasks that own one run as futures that a signal drops.
//! 2. A task reports every failure it finds, not the first one only.

mod bench;
mod codegen;
mod conformance;
mod disk;
mod dist;
mod fuzz;
mod kubernetes;
mod leftovers;
mod power;
mod readme;
mod report;
mod sim;
mod suite;
mod tidy;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Orlop's own tasks")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Write the Rust code for the .proto files (committed, so that building Orlop needs no protobuf compiler).
    Codegen {
        /// Write nothing; fail if the committed code is not what would be written.
        #[arg(long)]
        check: bool,
    },
    /// Check what the compiler cannot: crate arrows, sizes, key literals, banned words, documents, cited rules.
    Tidy(tidy::TidyArgs),
    /// Run every test that needs no Go, with all its set-up, and look for what the tests left behind.
    Test(suite::Args),
    /// Compare with the outside world: official descriptors, csi-sanity, grpc-go. Needs Go.
    Conformance(conformance::Args),
    /// Look for inputs that make the API server or its store panic, hang or grow.
    Fuzz(fuzz::Args),
    /// Live through thousands of seeded worlds full of faults, and check what must always hold.
    Sim(sim::Args),
    /// Cut the power of a virtual machine that uses volumes and the store, and look whether all is there that was acknowledged.
    Power(power::Args),
    /// The part of `power` that runs in the virtual machine.
    #[command(hide = true)]
    PowerGuest(power::GuestArgs),
    /// Measure.
    Bench(bench::Args),
    /// Build the program as it is shipped, one static file; print its size, and try it: alone, in an empty container, and with
    /// the demonstration.
    Dist(dist::Args),
    /// Type README's two commands exactly as they are printed: a release build with the demonstration, and all tests.
    Readme(readme::Args),
}

fn main() -> ExitCode {
    let Args { task } = Args::parse();
    let done = match task {
        Task::Codegen { check } => codegen::run(check),
        Task::Tidy(args) => tidy::run(&args),
        Task::Test(args) => suite::run(args),
        Task::Conformance(args) => interruptible(conformance::run(args)),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Sim(args) => interruptible(sim::run(args)),
        Task::Power(args) => interruptible(power::run(args)),
        Task::PowerGuest(args) => interruptible(power::run_guest(args)),
        Task::Bench(args) => interruptible(bench::run(args)),
        Task::Dist(args) => interruptible(dist::run(args)),
        Task::Readme(args) => readme::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a task that owns processes and mounts. A signal drops the task, and its guards clean up.
fn interruptible(task: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            done = task => done,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted; everything this task started was ended"),
            _ = terminate.recv() => anyhow::bail!("terminated; everything this task started was ended"),
        }
    })
}

/// The workspace's root folder.
fn root() -> std::path::PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Where cargo builds.
fn target() -> std::path::PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into)
}
