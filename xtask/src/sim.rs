//! `cargo xtask sim`: builds the simulator as fast code and lives through as many worlds as wanted.

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::conformance::{Profile, build};

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

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    build(Profile::Checked).await?;
    let mut command = Command::new(crate::target().join("sim/orlop-sim"));
    match args.seed {
        Some(seed) => command.args(["--seed", &seed.to_string()]),
        None => command.args(["--seeds", &args.seeds.to_string(), "--from", &args.from.to_string()]),
    };
    let status = command.args(&args.rest).kill_on_drop(true).status().await.context("starting the simulator")?;
    if status.success() { Ok(()) } else { bail!("orlop-sim: {status}") }
}
