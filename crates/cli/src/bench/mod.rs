//! `orlop bench`: load for a cluster, and numbers about how it took it.

mod claims;
mod driver;

use std::process::ExitCode;

use crate::process;

/// Puts load on a cluster and measures how it copes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Claims(Box<claims::Args>),
    Driver(driver::Args),
}

pub(crate) fn run(args: Args) -> ExitCode {
    let (name, done) = match args.what {
        What::Claims(args) => ("claims", process::block_on(claims::run(*args))),
        What::Driver(args) => ("driver", process::block_on(driver::run(args))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("orlop bench {name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
