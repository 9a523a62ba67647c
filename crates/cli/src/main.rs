//! `orlop`: Kubernetes storage in one program.

mod api;
mod bench;
mod cluster;
mod config;
mod controllers;
mod csi;
mod data;
mod demo;
mod driver;
mod explain;
mod join;
mod livenessprobe;
mod mount;
mod node;
mod orphans;
mod page;
mod process;
mod registrar;
mod scheduler;
mod shell;
mod sidecar;
mod stack;
mod top;
mod tree;
mod up;
mod usage;

use std::process::ExitCode;

use clap::FromArgMatches as _;

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
    Up(Box<up::Call>),
    Config(config::Args),
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
    Node(Box<node::Args>),
    Bench(bench::Args),
    Scheduler(Box<scheduler::Args>),
    Token(join::TokenArgs),
    Tree(Box<tree::Args>),
    Explain(explain::Args),
    Top(Box<top::Args>),
    Orphans(Box<orphans::Args>),
    Page(Box<page::Args>),
    Mount(Box<mount::MountArgs>),
    Umount(Box<mount::UmountArgs>),
    Completion(shell::CompletionArgs),
    Man(shell::ManArgs),
    FreezeGuard(driver::GuardArgs),
}

fn main() -> ExitCode {
    let given: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let line = match mount::helper_arguments(&given) {
        None => given,
        Some(Ok(line)) => line,
        Some(Err(wrong)) => {
            eprintln!("orlop: {wrong}");
            // What mount(8) takes for wrong usage.
            return ExitCode::from(1);
        }
    };
    let mut called = shell::called_by(&line);
    let parsed = called.try_get_matches_from_mut(&line).and_then(|matches| Orlop::from_arg_matches(&matches));
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return usage::answer(error, &mut called, &line),
    };
    match parsed.command {
        Command::Demo(args) => demo::run(*args),
        Command::Up(call) => up::run(&call),
        Command::Config(args) => config::run(&args),
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
        Command::Node(args) => node::run(*args),
        Command::Bench(args) => bench::run(args),
        Command::Scheduler(args) => scheduler::run(*args),
        Command::Token(args) => join::token(args),
        Command::Tree(args) => tree::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Orphans(args) => orphans::run(&args),
        Command::Page(args) => page::run(&args),
        Command::Mount(args) => mount::mount(&args),
        Command::Umount(args) => mount::umount(&args),
        Command::Completion(args) => shell::completion(&args),
        Command::Man(args) => shell::man(&args),
        Command::FreezeGuard(args) => driver::guard(&args),
    }
}
