//! Making filesystems, with the options of LOCAL-F.5.

use std::fs::OpenOptions;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::superblock::{HEAD_BYTES, open_fresh, read_exactly};
use super::{FsType, MKFS_BTRFS, MKFS_EXT4, MKFS_XFS, Uuid};
use crate::SysError;
use crate::command::{CommandError, Run};

/// What the caller has decided about a new filesystem.
#[derive(Debug)]
pub struct Mkfs<'a> {
    /// The identity, chosen beforehand, so that a filesystem found after a crash can be recognised as ours.
    pub uuid: Uuid,
    /// The logical block size of the loop device; XFS must not use larger sectors than it will be mounted on
    /// (LOCAL-0.15).
    pub sector_size: u32,
    /// The flock of the image. The child holds it as long as it writes, even if we die (LOCAL-G.3).
    pub lock: Option<BorrowedFd<'a>>,
}

#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    #[error("{fs_type} needs at least {} MiB, the device has {} MiB", .fs_type.minimum_bytes() >> 20, .size >> 20)]
    TooSmall { fs_type: FsType, size: u64 },
    #[error(transparent)]
    Sys(#[from] SysError),
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Makes a filesystem on `device`, whatever is there. The caller has probed and decided.
pub fn mkfs(fs_type: FsType, device: &Path, how: &Mkfs<'_>, deadline: Duration) -> Result<(), MkfsError> {
    let (_, size) = open_fresh(device)?;
    if size < fs_type.minimum_bytes() {
        return Err(MkfsError::TooSmall { fs_type, size });
    }
    wipe(device)?;
    let uuid = how.uuid.to_string();
    let run = match fs_type {
        // 4 KiB blocks always: mke2fs would give a small volume 1 KiB blocks for life (LOCAL-0.18). Nothing is
        // discarded, because a fresh image has nothing to discard.
        FsType::Ext4 => {
            Run::new(MKFS_EXT4, deadline).args(["-q", "-F", "-m0", "-b", "4096", "-E", "nodiscard", "-U"]).args([&uuid])
        }
        FsType::Xfs => Run::new(MKFS_XFS, deadline).args(["-q", "-f", "-K"]).args([
            "-m",
            &format!("reflink=1,uuid={uuid}"),
            "-s",
            &format!("size={}", how.sector_size),
        ]),
        FsType::Btrfs => Run::new(MKFS_BTRFS, deadline).args(["-q", "-f", "-K", "-U", &uuid]),
    };
    run.path(device).holding(how.lock).go()?;
    Ok(())
}

/// Zeroes what the probe looks at, if it is not zero already (a fresh sparse image stays sparse).
///
/// Two reasons: no signature of a former filesystem must survive beside the new one, where it would make the probe
/// ambiguous; and mkfs.btrfs refuses a uuid that the device itself still carries from an attempt that was cut short.
fn wipe(device: &Path) -> Result<(), SysError> {
    let (file, size) = open_fresh(device)?;
    let window = usize::try_from(size).unwrap_or(usize::MAX).min(HEAD_BYTES);
    let zeros = vec![0; window];
    for at in [0, size - window as u64] {
        if read_exactly(&file, device, at, window)? != zeros {
            let writable = OpenOptions::new().write(true).open(device).map_err(SysError::on("open", device))?;
            let wiped = writable.write_all_at(&zeros, at).and_then(|()| writable.sync_all());
            wiped.map_err(SysError::on("wipe", device))?;
        }
    }
    Ok(())
}
