//! The configuration file of `orlop up`, and `orlop config`, which checks and shows it.
//!
//! The file is YAML: one mapping from the names of `orlop up`'s flags to their values. What a key may hold is asked of the
//! command line's own definition, value by value, so that file and flags cannot come to mean different things. The file is
//! no place for secrets, and no flag of `up` is one.
//!
//! # Invariants
//! 1. A file with a problem starts nothing, and every problem is told, with its line.
//! 2. A flag that is given wins over the file, for lists as a whole.

mod effective;
mod file;
mod flags;
mod show;
mod yaml;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cluster::output;
use crate::process;

pub(crate) use effective::Effective;
pub(crate) use flags::given_words;

/// Check or show the configuration file of `orlop up`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Tell every problem of a file; the exit code is 1 if there is one. Nothing is started.
    Check {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Print all settings as `orlop up --config FILE` would take them, with the defaults of those that FILE does not name.
    Show {
        /// The file; without it, the defaults.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

const EXAMPLES: &str = "\
Examples:
  orlop config show > orlop.yaml        all settings with their defaults, to begin with
  orlop config check orlop.yaml
  orlop up --config orlop.yaml --log-level debug";

pub(crate) fn run(args: &Args) -> ExitCode {
    match &args.command {
        Command::Check { file } => check(file),
        Command::Show { file } => process::ended("config show", show::print(file.as_deref())),
    }
}

/// 0 if the file can be used, 1 if not.
fn check(file: &Path) -> ExitCode {
    match Effective::of_file(file) {
        Ok(effective) => {
            let count = effective.count();
            let settings = if count == 1 { "setting" } else { "settings" };
            process::ended(
                "config check",
                output::write(&format!("{}: no problems, {count} {settings}\n", file.display())),
            )
        }
        Err(error) => {
            // The report is what was asked for, so it is no message of a failure.
            let written = output::write(&format!("{}\n", process::sentence(&error)));
            match process::ended("config check", written) {
                ExitCode::SUCCESS => ExitCode::from(1),
                failed => failed,
            }
        }
    }
}
