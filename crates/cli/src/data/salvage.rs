//! `orlop salvage`: a new data directory from what is left of a damaged one.

use std::path::PathBuf;

use anyhow::Context as _;
use apiserver::sources::Clock as _;
use apiserver::store::{self, CopyError, OpenError};

use super::new_data::NewData;
use super::{STORE, absent, advise, read_keys, to_go_on};
use crate::api::SystemClock;

/// Make a new data directory from a damaged one: each object at its last good version.
///
/// The damaged directory stays as it is. An object whose newest version is damaged comes back at an older one if
/// history still has it, and is missing otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orlop check --data ./state
  orlop salvage --data ./state --to ./state-new
  orlop api --data ./state-new

For a directory of `orlop up` it prints how what was saved is put beside the volumes, which stay where they are.")]
pub(crate) struct SalvageArgs {
    /// Directory of `orlop up` or `orlop api` that does not open.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Directory to make; it must not exist or be empty.
    #[arg(long, value_name = "NEW_DIR")]
    to: PathBuf,
}

pub(super) fn run(args: &SalvageArgs) -> anyhow::Result<String> {
    let source = args.data.join(STORE);
    if !source.is_dir() {
        return Err(absent(&args.data));
    }
    let new = NewData::begin(&args.to)?;
    let salvaged = match store::salvage(&source, &new.store(), SystemClock.now()) {
        Ok(salvaged) => salvaged,
        Err(CopyError::NothingLeft { .. }) => {
            let shown = source.display();
            anyhow::bail!("nothing in {shown} can be read; a backup is the way back: orlop restore")
        }
        Err(CopyError::Source(error @ OpenError::Locked { .. })) => return Err(advise(error, &args.data)),
        Err(error) => return Err(error).with_context(|| format!("saving what is left of {}", source.display())),
    };
    new.write_keys(&read_keys(&args.data)?).context("copying the keys")?;
    new.finish()?;
    let mut text = format!("{}: {} objects\n", args.to.display(), salvaged.objects);
    match salvaged.damage.as_slice() {
        [] => text += "The store is not damaged: nothing is missing.\n",
        damage => {
            text += "An object whose newest version is named here is back at an older one, or missing:\n";
            damage.iter().for_each(|damage| text += &format!("  {damage}\n"));
        }
    }
    text += &format!("{} is as it was. {}", args.data.display(), to_go_on(&args.data, &args.to));
    Ok(text)
}
