//! `orlop check`: is everything there that was written?

use std::path::PathBuf;

use anyhow::bail;
use apiserver::store::examine;

use super::{KEYS, STORE, advise, damage_report, read_keys, require_roots};

/// Read all of a data directory and say what is damaged, without changing anything.
///
/// The server must not run: it has checked its store when it started.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Directory of `orlop api`.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

pub(super) fn run(args: &CheckArgs) -> anyhow::Result<String> {
    let data = args.data.display();
    let examined = examine(&args.data.join(STORE)).map_err(|error| advise(error, &args.data))?;
    if !examined.damage.is_empty() {
        bail!("the store in {data} is damaged\n{}", damage_report(&examined.damage, &args.data));
    }
    let keys = read_keys(&args.data)?;
    require_roots(&keys, &args.data.join(KEYS).display().to_string())?;
    let (objects, revision) = (examined.snapshot.objects.len(), examined.snapshot.revision);
    Ok(format!("{data}: {objects} objects at revision {revision}, {} versions with history: no damage", examined.rows))
}
