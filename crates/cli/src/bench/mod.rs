//! `orlop bench`: load for a cluster, and numbers about how it took it.
//!
//! Each bench has a namespace of its own ([`site`]), notes what the watches show ([`ledger`], [`consumers`]), and takes away
//! what it made whichever way it ends ([`session`]).

mod attach;
mod claims;
mod consumers;
mod driver;
mod ledger;
mod pods;
mod progress;
mod session;
mod site;
mod span;
mod writes;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use runtime::args::parse_duration;

use crate::cluster::output;
use crate::process;

/// Put load on a cluster and measure how it copes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Claims(Box<claims::Args>),
    Pods(Box<pods::Args>),
    Attach(Box<attach::Args>),
    Driver(driver::Args),
}

/// How hard a bench pushes, and how it tells what it found.
#[derive(Debug, clap::Args)]
struct Pace {
    /// Requests under way at once.
    #[arg(long, value_name = "N", default_value_t = 32)]
    concurrency: usize,
    /// How long each part may take.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    timeout: Duration,
    /// Wait for Enter before deleting, to look at the cluster meanwhile.
    #[arg(long)]
    pause: bool,
    /// Form of the result.
    #[arg(long, short, value_enum, value_name = "FORM", default_value = "text")]
    output: Output,
}

/// The form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

impl Output {
    fn print(self, report: &(impl std::fmt::Display + serde::Serialize)) -> anyhow::Result<()> {
        match self {
            Self::Text => output::write(&report.to_string()),
            Self::Json => output::write(&format!("{}\n", serde_json::to_string(report)?)),
        }
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    let (name, done) = match args.what {
        What::Claims(args) => ("claims", process::block_on(claims::run(*args))),
        What::Pods(args) => ("pods", process::block_on(pods::run(*args))),
        What::Attach(args) => ("attach", process::block_on(attach::run(*args))),
        What::Driver(args) => ("driver", process::block_on(driver::run(args))),
    };
    process::ended(&format!("bench {name}"), done)
}

/// Lets the user look at the cluster while everything is there.
async fn pause(state: &str) -> anyhow::Result<()> {
    eprintln!("{state}; press Enter to delete them");
    let (pressed, enter) = tokio::sync::oneshot::channel();
    // A thread of its own: nobody waits for it when the bench is interrupted instead.
    std::thread::spawn(move || pressed.send(std::io::stdin().read_line(&mut String::new())));
    enter.await.context("waiting for Enter")?.context("waiting for Enter").map(drop)
}
