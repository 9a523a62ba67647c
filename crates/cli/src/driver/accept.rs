//! `orlop driver accept-loss`: an operator decides that a volume is used in spite of the writes that it lost.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use driver_local::loss::{self, Accepted};

use super::args::parse_pools;
use super::file::ConfigFile;

/// Clear the mark of volumes that lost writes, once their data is checked or restored.
///
/// A volume is marked when what was written to it could not be stored, such as in a full pool. Until the mark is cleared its
/// condition is abnormal. Snapshots and clones carry the mark of their source and are cleared by their own ids. The driver may
/// run or not.
#[derive(Debug, clap::Args)]
pub(crate) struct AcceptArgs {
    /// Id of a volume or snapshot, as its condition names it.
    #[arg(value_name = "VOLUME_ID", required = true)]
    volumes: Vec<String>,

    /// Directory of the pool; may be given more than once.
    #[arg(long, value_name = "[NAME=]DIR")]
    pool: Vec<String>,

    /// The driver's TOML file, which names the pools.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(super) fn accept(args: &AcceptArgs) -> anyhow::Result<()> {
    let file = args.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
    let named = if args.pool.is_empty() { file.pools.unwrap_or_default() } else { args.pool.clone() };
    let pools: Vec<PathBuf> = parse_pools(&named)?.into_iter().map(|pool| pool.path).collect();
    if pools.is_empty() {
        bail!("no pool given: name the volume's pool with --pool DIR, or the driver's file with --config FILE");
    }
    let mut failed = false;
    for id in &args.volumes {
        match loss::accept(&pools, id).with_context(|| format!("accepting the loss of {id}")) {
            Ok(Accepted::Cleared(said)) => println!("{id}: cleared; it said: {said}"),
            Ok(Accepted::NotMarked) => println!("{id}: has no mark of lost writes; nothing was changed"),
            Err(error) => {
                eprintln!("orlop driver: {error:#}");
                failed = true;
            }
        }
    }
    if failed {
        bail!("not every loss was accepted");
    }
    Ok(())
}
