//! node-driver-registrar, which nobody here wrote, registers a driver with our agent.
//!
//! The scenario is a test of the package `orlop` (`crates/cli/tests/registration/agent.rs`); this finds the program.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tokio::process::Command;

use super::golang::Go;
use super::peers;
use crate::report::Ending;

/// What `cargo xtask conformance registration` takes.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// A csi-node-driver-registrar that somebody built; its Go module cannot be had everywhere.
    #[arg(long, value_name = "PROGRAM")]
    registrar: Option<PathBuf>,
}

pub(super) async fn run(go: &Go, args: &Args) -> Ending {
    match peers::REGISTRAR.find(go, args.registrar.as_deref()) {
        Ok(program) => Ending::from(play(&program).await),
        Err(why) => Ending::Skipped(format!("{why:#}")),
    }
}

async fn play(program: &Path) -> anyhow::Result<()> {
    let mut tests = Command::from(crate::tools::cargo());
    tests.args(["test", "--workspace", "--test", "registration", "gos_registrar"]);
    tests.env("ORLOP_GO_REGISTRAR", program).current_dir(crate::root()).kill_on_drop(true);
    let status = tests.status().await.context("running cargo test")?;
    if status.success() { Ok(()) } else { bail!("the scenario ended with {status}; see the lines above") }
}
