//! `orlop restore`: a new data directory from a backup.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use anyhow::Context as _;
use apiserver::sources::Clock as _;
use apiserver::store::{self, Backup};

use super::new_data::NewData;
use super::{require_roots, shell};
use crate::api::SystemClock;

/// Make a new data directory from a backup.
///
/// Objects come back as they were, with the same certificate authority and the same key for tokens, so that kubeconfigs
/// and tokens go on working. Revisions continue far above those that any client has seen: watches from before are
/// answered 410 Gone, and clients list again.
///
/// Where volumes are attached is not believed: they may have moved since the backup. VolumeAttachments come back, and the
/// drivers are asked again for each; nodes come back with what they said they use, and without what was attached to them.
/// A volume for one node is mounted nowhere new until every node has reported what it uses, was deleted, or is shut down and
/// tainted out-of-service.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orlop restore --from ./state.backup --data ./state-new
  orlop api --data ./state-new")]
pub(crate) struct RestoreArgs {
    /// File that `orlop backup` wrote.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,

    /// Directory to make; it must not exist or be empty.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

pub(super) fn run(args: &RestoreArgs) -> anyhow::Result<String> {
    let new = NewData::begin(&args.data)?;
    let shown = args.from.display();
    let file = File::open(&args.from).with_context(|| format!("--from {shown} cannot be read"))?;
    let backup = Backup::read(BufReader::new(file)).with_context(|| format!("{shown} cannot be restored"))?;
    require_roots(&backup.files, &shown.to_string())?;
    new.write_keys(&backup.files).context("writing the keys")?;
    let revision = store::restore(&backup.snapshot, &new.store(), SystemClock.now()).context("writing the store")?;
    new.finish()?;
    Ok(format!(
        "{}: {} objects as they were at revision {}, and {} files of keys\n\
         Revisions continue above {revision}; clients that watched the old server list again.\n\
         Where volumes are attached is asked again; a volume for one node waits until every node has reported what it uses.\n\
         To serve it: orlop api --data {}\n\
         For orlop up, put its store and pki into the place of those in the directory with the volumes, while nothing runs there.",
        args.data.display(),
        backup.snapshot.objects.len(),
        backup.snapshot.revision,
        backup.files.len(),
        shell(&args.data),
    ))
}
