//! `orlop`: Kubernetes storage in one program.

mod api;
mod bench;
mod controllers;
mod csi;
mod data;
mod demo;
mod driver;
mod explain;
mod livenessprobe;
mod process;
mod registrar;
mod scheduler;
mod sidecar;
mod stack;
mod up;

use std::process::ExitCode;

use clap::Parser as _;

/// Kubernetes storage in one program: a claim goes in, a mounted volume comes out.
#[derive(Debug, clap::Parser)]
#[command(name = "orlop", version)]
struct Orlop {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Demo(Box<demo::Args>),
    Up(Box<up::Args>),
    Api(api::Args),
    Backup(data::BackupArgs),
    Restore(data::RestoreArgs),
    Check(data::CheckArgs),
    Salvage(data::SalvageArgs),
    Driver(Box<driver::Args>),
    Csi(Box<csi::Args>),
    Sidecar(Box<sidecar::Args>),
    Registrar(Box<registrar::Args>),
    Livenessprobe(Box<livenessprobe::Args>),
    Controllers(Box<controllers::Args>),
    Bench(bench::Args),
    Scheduler(Box<scheduler::Args>),
    Explain(explain::Args),
    FreezeGuard(driver::GuardArgs),
}

fn main() -> ExitCode {
    match Orlop::parse().command {
        Command::Demo(args) => demo::run(*args),
        Command::Up(args) => up::run(*args),
        Command::Api(args) => api::run(args),
        Command::Backup(args) => data::backup(&args),
        Command::Restore(args) => data::restore(&args),
        Command::Check(args) => data::check(&args),
        Command::Salvage(args) => data::salvage(&args),
        Command::Driver(args) => driver::run(*args),
        Command::Csi(args) => csi::run(*args),
        Command::Sidecar(args) => sidecar::run(*args),
        Command::Registrar(args) => registrar::run(&args),
        Command::Livenessprobe(args) => livenessprobe::run(&args),
        Command::Controllers(args) => controllers::run(*args),
        Command::Bench(args) => bench::run(args),
        Command::Scheduler(args) => scheduler::run(*args),
        Command::Explain(args) => explain::run(&args),
        Command::FreezeGuard(args) => driver::guard(&args),
    }
}
