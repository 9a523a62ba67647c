//! `cargo xtask test`: everything that needs no Go, with its own set-up, and an audit of what was left behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::disk::Scratch;
use crate::leftovers;
use crate::report::Report;
use crate::tools;

/// Names a file; a test that cannot run here appends the reason to it, one line each.
const SKIP_LOG: &str = "ORLOP_SKIP_LOG";

/// What `cargo xtask test` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this package (may be given again). Default: the whole workspace.
    #[arg(long, short, value_name = "NAME")]
    package: Vec<String>,
    /// Passed on to the test programs, such as a part of a test's name.
    #[arg(last = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let mut report = Report::default();
    report.section("tools", tools::provide);

    // A folder of our own makes every loop device, mount and process of this run recognisable.
    let scratch = Scratch::make()?;
    let skips = scratch.path().join("skips.log");
    let folders = [scratch.path().to_path_buf(), crate::target().join("tmp")];
    let before = leftovers::under(&folders);
    if args.package.is_empty() && args.rest.is_empty() {
        // One run of cargo for all of them: documentation tests of their own would build every dependency again.
        report.section("unit, integration and documentation tests", || cargo_test(&args, scratch.path(), &skips));
    } else {
        report.section("chosen tests", || cargo_test(&args, scratch.path(), &skips));
    }
    report.section("nothing left behind", || {
        let left: Vec<String> = leftovers::under(&folders).difference(&before).map(ToString::to_string).collect();
        if left.is_empty() { Ok(()) } else { bail!("the tests left behind:\n{}", left.join("\n")) }
    });
    print_skips(&skips);
    report.close("section")
}

fn cargo_test(args: &Args, scratch: &Path, skips: &Path) -> anyhow::Result<()> {
    let mut command = tools::cargo();
    command.args(["test", "--no-fail-fast"]).current_dir(crate::root());
    match &args.package[..] {
        [] => command.arg("--workspace"),
        names => command.args(names.iter().flat_map(|name| ["-p", name])),
    };
    command.arg("--").args(&args.rest);
    // Knobs of the tests, such as ORLOP_SOAK_SECONDS, come through with the rest of the environment.
    command.env("TMPDIR", scratch).env(SKIP_LOG, skips).env("PATH", path_with_system_folders());
    let status = command.status().context("starting cargo")?;
    if status.success() { Ok(()) } else { bail!("cargo test: {status}") }
}

/// Tools such as mkfs live where a user's path often does not look.
fn path_with_system_folders() -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    std::env::join_paths(folders).unwrap_or(path)
}

fn print_skips(file: &Path) {
    let text = fs::read_to_string(file).unwrap_or_default();
    let counted = counted(&text);
    println!("\n{} skipped for a reason of this machine", counted.values().sum::<usize>());
    for (reason, count) in counted {
        println!("skipped: {reason} ({count} times)");
    }
}

fn counted(text: &str) -> BTreeMap<&str, usize> {
    let mut counted = BTreeMap::new();
    for line in text.lines().map(|line| line.trim_start_matches("skipped: ").trim()).filter(|line| !line.is_empty()) {
        *counted.entry(line).or_default() += 1;
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_reasons_are_counted_together() {
        let counted = counted("skipped: no loop devices\nno loop devices\n\nnot root\n");
        assert_eq!(counted, BTreeMap::from([("no loop devices", 2), ("not root", 1)]));
    }
}
