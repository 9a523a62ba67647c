//! node-driver-registrar, which nobody here wrote, registers a driver with our agent.
//!
//! The scenario is a test of the package `orlop` (`crates/cli/tests/registration/agent.rs`); this finds the program.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use super::golang::Go;
use crate::report::Ending;

const REGISTRAR: (&str, &str) = ("github.com/kubernetes-csi/node-driver-registrar", "v2.17.0");

/// What `cargo xtask conformance registration` takes.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// A csi-node-driver-registrar that somebody built; its Go module cannot be had everywhere.
    #[arg(long, value_name = "PROGRAM")]
    registrar: Option<PathBuf>,
}

pub(super) async fn run(go: &Go, args: &Args) -> Ending {
    let program = match &args.registrar {
        Some(program) => program.clone(),
        None => match build(go) {
            Ok(program) => program,
            Err(error) => return Ending::Skipped(format!("{error:#}; name one with --registrar")),
        },
    };
    Ending::from(play(&program).await)
}

fn build(go: &Go) -> anyhow::Result<PathBuf> {
    let source = go.module(REGISTRAR.0, REGISTRAR.1)?;
    let folder = crate::target().join("conformance/bin");
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("csi-node-driver-registrar");
    go.build(&source, "./cmd/csi-node-driver-registrar", &program)?;
    Ok(program)
}

async fn play(program: &std::path::Path) -> anyhow::Result<()> {
    let program = program.canonicalize().with_context(|| format!("{} is not there", program.display()))?;
    let mut tests = Command::new("cargo");
    tests.args(["test", "-p", "orlop", "--test", "registration", "gos_registrar"]);
    tests.env("ORLOP_GO_REGISTRAR", program).current_dir(crate::root()).kill_on_drop(true);
    let status = tests.status().await.context("running cargo test")?;
    if status.success() { Ok(()) } else { bail!("the scenario ended with {status}; see the lines above") }
}
