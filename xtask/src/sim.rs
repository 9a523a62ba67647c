//! `cargo xtask sim`: builds the simulator as fast code and lives through as many worlds as wanted.

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::conformance::{Profile, build};

/// The kinds of worlds.
const KINDS: [&str; 2] = ["storage", "nodes"];

/// What `cargo xtask sim` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which worlds: `storage` (claims and volumes) or `nodes` (pods on machines). Without it, both; with `--seed`, storage.
    #[arg(long, value_name = "KIND", value_parser = KINDS)]
    world: Option<String>,
    /// How many worlds of each kind.
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
    let kinds: Vec<&str> = match (&args.world, args.seed) {
        (Some(kind), _) => vec![kind],
        (None, Some(_)) => vec![KINDS[0]],
        (None, None) => KINDS.to_vec(),
    };
    for kind in kinds {
        let mut command = Command::new(crate::target().join("sim/orlop-sim"));
        command.args(["--world", kind]);
        match args.seed {
            Some(seed) => command.args(["--seed", &seed.to_string()]),
            None => command.args(["--seeds", &args.seeds.to_string(), "--from", &args.from.to_string()]),
        };
        let status = command.args(&args.rest).kill_on_drop(true).status().await.context("starting the simulator")?;
        if !status.success() {
            bail!("orlop-sim: {status}");
        }
    }
    Ok(())
}
