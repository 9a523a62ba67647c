//! `cargo xtask sim`: builds the simulator as fast code and lives through as many worlds as wanted.

use std::process::Command;

use anyhow::{Context as _, bail};

/// What `cargo xtask sim` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many worlds.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, value_name = "S", default_value_t = 0)]
    from: u64,
    /// Only this world, with its whole journal.
    #[arg(long, value_name = "S", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Passed on to the simulator.
    #[arg(last = true)]
    rest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let built = Command::new("cargo")
        .args(["build", "--package", "orlop-sim", "--bin", "orlop-sim", "--profile", "sim"])
        .current_dir(crate::root())
        .status()
        .context("starting cargo")?;
    if !built.success() {
        bail!("building the simulator: {built}");
    }
    let mut command = Command::new(crate::target().join("sim/orlop-sim"));
    match args.seed {
        Some(seed) => command.args(["--seed", &seed.to_string()]),
        None => command.args(["--seeds", &args.seeds.to_string(), "--from", &args.from.to_string()]),
    };
    let status = command.args(&args.rest).status().context("starting the simulator")?;
    if status.success() { Ok(()) } else { bail!("orlop-sim: {status}") }
}
