//! `cargo xtask readme`: types what README tells a stranger to type, exactly as it is printed.
//!
//! The first command builds a release, which is why the tests run the same words with the program they were built with
//! (`crates/cli/tests/readme.rs`); this is for before a release, and for CI.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::report::Report;

/// The commands that stand alone in a block: what somebody with a fresh clone types.
const COMMANDS: [&str; 2] = ["cargo run --release -- demo", "cargo xtask test"];

/// What `cargo xtask readme` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only commands that contain this.
    #[arg(long, value_name = "PART")]
    only: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let readme = fs::read_to_string(crate::root().join("README.md")).context("reading README.md")?;
    let printed = alone(&readme);
    let mut report = Report::default();
    for command in COMMANDS.into_iter().filter(|command| args.only.as_ref().is_none_or(|part| command.contains(part))) {
        report.section(command, || type_it(command, &printed));
    }
    report.close("command")
}

fn type_it(command: &str, printed: &[&str]) -> anyhow::Result<()> {
    if !printed.contains(&command) {
        bail!("README has no block with only this command; it has {printed:?}");
    }
    let status = Command::new("sh").args(["-c", command]).current_dir(crate::root()).stdin(Stdio::null()).status();
    let status = status.context("starting a shell")?;
    if status.success() { Ok(()) } else { bail!("{status}") }
}

/// The lines that are alone in a block of commands.
fn alone(readme: &str) -> Vec<&str> {
    let lines: Vec<&str> = readme.lines().collect();
    let blocks = lines.windows(3).filter(|three| three[0] == "```sh" && three[2] == "```");
    blocks.map(|three| three[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_found_where_it_stands_alone_in_a_block() {
        let text = "# x\n```sh\none\n```\n```sh\ntwo\nthree\n```\n```text\nfour\n```\n";
        assert_eq!(alone(text), ["one"]);
    }

    #[test]
    fn readme_has_both_commands() {
        let readme = fs::read_to_string(crate::root().join("README.md")).expect("there is a README");
        assert!(COMMANDS.iter().all(|command| alone(&readme).contains(command)), "{:?}", alone(&readme));
    }
}
