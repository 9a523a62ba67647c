//! `cargo xtask fuzz`: builds the fuzzer and runs its targets, each as a process of its own, so that a case that kills
//! the process ends one target only, and is known.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::report::Report;

const TARGETS: [&str; 4] = ["http", "credentials", "store", GROWTH];
/// Tries every field of every type once, however long it takes, and has no cases to keep.
const GROWTH: &str = "growth";

/// What `cargo xtask fuzz` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// One of http, credentials, store and growth. Default: each in turn.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    target: Option<String>,
    /// How long each target runs.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    time: u64,
    /// So many cases instead of a time.
    #[arg(long, value_name = "N")]
    runs: Option<u64>,
    /// The same seed gives the same cases.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Run these cases once each and say what they took, instead of making new ones.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["target", "runs"])]
    replay: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut report = Report::default();
    if !args.replay.is_empty() {
        report.section("replay", || {
            fuzzer(&[]).and_then(|mut command| end(command.arg("--replay").args(&args.replay), None))
        });
        return report.close("section");
    }
    let out = crate::target().join("fuzz-cases");
    for target in TARGETS.into_iter().filter(|target| args.target.as_ref().is_none_or(|wanted| wanted == target)) {
        report.section(&format!("fuzz {target}"), || {
            if target == GROWTH {
                return end(&mut program("orlop-growth")?, None);
            }
            let mut command = fuzzer(&[target])?;
            command.arg("--out").arg(&out);
            command.args(["--seed", &args.seed.to_string(), "--time", &args.time.to_string()]);
            if let Some(runs) = args.runs {
                command.args(["--runs", &runs.to_string()]);
            }
            end(&mut command, Some(out.join(format!("current-{target}.json"))))
        });
    }
    report.close("target")
}

/// The program is built as fast code that still checks for overflows.
fn fuzzer(args: &[&str]) -> anyhow::Result<Command> {
    let mut command = program("orlop-fuzz")?;
    command.args(args);
    Ok(command)
}

fn program(name: &str) -> anyhow::Result<Command> {
    let built = crate::tools::cargo()
        .args(["build", "--package", "orlop-fuzz", "--profile", "fuzz"])
        .current_dir(crate::root())
        .status();
    let built = built.context("starting cargo")?;
    if !built.success() {
        bail!("building the fuzzer: {built}");
    }
    Ok(Command::new(crate::target().join("fuzz").join(name)))
}

fn end(command: &mut Command, current: Option<PathBuf>) -> anyhow::Result<()> {
    let status = command.status().context("starting the fuzzer")?;
    match (status.code(), current) {
        (Some(0), _) => Ok(()),
        // Killed: by a stack overflow, by an allocation that failed, or by the kernel for its processor time.
        (None, Some(case)) => bail!("{status}; the case that did it is {}", case.display()),
        _ => bail!("{status}"),
    }
}
