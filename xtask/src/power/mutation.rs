//! Faults that are made on purpose, so that the test is seen to notice them. The program under test is not changed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Calls that write to disk what is in memory.
const SYNCS: &str = "fsync,fdatasync,sync,syncfs";

/// What is done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mutation {
    /// The writers of the volumes count records as synced without a sync.
    UnsyncedRecords,
    /// The syncs of `orlop api` succeed and do nothing.
    UnsyncedStore,
    /// The syncs of `orlop driver` succeed and do nothing.
    UnsyncedPool,
    /// The writers of the volumes count records as synced although the sync failed.
    IgnoredErrors,
    /// The marks of volumes that lost writes are removed when the volumes were let go of.
    RemovedMarks,
}

impl Mutation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::UnsyncedRecords => "unsynced-records",
            Self::UnsyncedStore => "unsynced-store",
            Self::UnsyncedPool => "unsynced-pool",
            Self::IgnoredErrors => "ignored-errors",
            Self::RemovedMarks => "removed-marks",
        }
    }

    /// Without a disk that fails there are no errors and no marks.
    pub(super) fn needs_fault(self) -> bool {
        matches!(self, Self::IgnoredErrors | Self::RemovedMarks)
    }
}

/// A script in this folder that runs the program with syncs that do nothing: strace answers in the kernel's place.
pub(super) fn without_syncs(program: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let strace = crate::tools::find("strace").context("`strace` is missing")?;
    let script = folder.join("without-syncs");
    let text = format!(
        "#!/bin/sh\nexec {} -f -qq --seccomp-bpf -o /dev/null -e trace={SYNCS} -e inject={SYNCS}:retval=0 {} \"$@\"\n",
        strace.display(),
        program.display()
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}
