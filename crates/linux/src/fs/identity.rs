//! Checking a filesystem and giving a clone an identity of its own (LOCAL-0.16, LOCAL-F.4 "duplicates").

use std::path::Path;

use super::superblock::{self, SuperblockError};
use super::{BTRFSTUNE, E2FSCK, FsType, TOOL_DEADLINE, TUNE2FS, Uuid, XFS_ADMIN};
use crate::command::{CommandError, Run};

/// What a check before mounting found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    Clean,
    /// There were errors and all are repaired.
    Repaired,
    /// The filesystem checks itself when it is mounted, by replaying its log.
    NotApplicable,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("the filesystem has errors that need a person: {text}")]
    Unrepaired { text: String },
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Repairs what can be repaired without asking, before a mount.
pub fn check(fs_type: FsType, device: &Path) -> Result<Checked, CheckError> {
    match fs_type {
        FsType::Ext4 => e2fsck(&["-p"], device),
        FsType::Xfs | FsType::Btrfs => Ok(Checked::NotApplicable),
    }
}

/// A complete ext4 check, journal replay included: what the offline tools demand before they touch a filesystem.
pub(super) fn full_check(device: &Path) -> Result<Checked, CheckError> {
    e2fsck(&["-f", "-p"], device)
}

/// e2fsck answers with bits: 1 repaired, 2 repaired and reboot if mounted, 4 left unrepaired, 8 and up: did not run.
fn e2fsck(flags: &[&str], device: &Path) -> Result<Checked, CheckError> {
    match Run::new(E2FSCK, TOOL_DEADLINE).args(flags).path(device).go() {
        Ok(_) => Ok(Checked::Clean),
        Err(error) => match error.exit_code() {
            Some(1..=3) => Ok(Checked::Repaired),
            Some(4..=7) => Err(CheckError::Unrepaired { text: error.text().to_owned() }),
            Some(_) | None => Err(error.into()),
        },
    }
}

/// True when resize2fs or tune2fs refused because it wants a fresh check first.
pub(super) fn wants_check(error: &CommandError) -> bool {
    error.text().contains("e2fsck -f")
}

/// What became of the attempt to change an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum UuidChange {
    Changed,
    /// The log must be replayed first: mount it once (XFS: with `nouuid`), unmount it and try again.
    LogDirty,
}

#[derive(Debug, thiserror::Error)]
pub enum UuidError {
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("the tool reported success but the filesystem still has the uuid {0}")]
    NotApplied(Uuid),
}

/// Gives the unmounted filesystem on `device` the identity `uuid`.
pub fn new_uuid(fs_type: FsType, device: &Path, uuid: Uuid) -> Result<UuidChange, UuidError> {
    if superblock::uuid(fs_type, device)? == uuid {
        return Ok(UuidChange::Changed);
    }
    let change = match fs_type {
        FsType::Ext4 => change_ext4(device, uuid)?,
        FsType::Xfs => change_xfs(device, uuid)?,
        FsType::Btrfs => {
            // The metadata keeps its old uuid and the superblock maps it: quick, and safe to repeat.
            Run::new(BTRFSTUNE, TOOL_DEADLINE).args(["-f", "-M", &uuid.to_string()]).path(device).go()?;
            UuidChange::Changed
        }
    };
    let now = superblock::uuid(fs_type, device)?;
    match change {
        UuidChange::Changed if now != uuid => Err(UuidError::NotApplied(now)),
        UuidChange::Changed | UuidChange::LogDirty => Ok(change),
    }
}

fn change_ext4(device: &Path, uuid: Uuid) -> Result<UuidChange, UuidError> {
    // A journal that is replayed later would bring the old superblock back.
    if superblock::ext4_needs_recovery(device)? {
        full_check(device)?;
    }
    let tune = || Run::new(TUNE2FS, TOOL_DEADLINE).args(["-U", &uuid.to_string()]).path(device).go();
    match tune() {
        Err(error) if wants_check(&error) => {
            full_check(device)?;
            tune()?;
        }
        answer => {
            answer?;
        }
    }
    Ok(UuidChange::Changed)
}

/// xfs_admin exits with success when it refuses because of a dirty log, so its words decide.
fn change_xfs(device: &Path, uuid: Uuid) -> Result<UuidChange, UuidError> {
    const DIRTY: &str = "valuable metadata changes in a log";
    match Run::new(XFS_ADMIN, TOOL_DEADLINE).args(["-U", &uuid.to_string()]).path(device).go() {
        Ok(text) if text.contains(DIRTY) => Ok(UuidChange::LogDirty),
        Ok(_) => Ok(UuidChange::Changed),
        Err(error) if error.text().contains(DIRTY) => Ok(UuidChange::LogDirty),
        Err(error) => Err(error.into()),
    }
}
