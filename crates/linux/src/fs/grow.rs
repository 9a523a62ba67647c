//! Growing a filesystem to the size of its device. Idempotent: a filesystem that fills its device is left alone.

use std::fs::File;
use std::path::Path;

use rustix::fs::{ext4_ioc_resize_fs, statvfs};
use rustix::io::Errno;

use super::identity::{CheckError, full_check, wants_check};
use super::superblock::{self, SuperblockError, open_fresh};
use super::{BTRFS, FsType, RESIZE2FS, TOOL_DEADLINE, XFS_GROWFS};
use crate::command::{CommandError, Run};
use crate::{SysError, ioctl};

/// What growing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grown {
    /// It filled the device already, up to the rounding of the filesystem.
    Unchanged,
    Grew {
        from: u64,
        to: u64,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum GrowError {
    /// The kernel will not do it online; offline it works.
    #[error("{fs_type} cannot be grown while it is mounted here: {reason}")]
    NotWhileMounted { fs_type: FsType, reason: &'static str },
    /// The tool works on a mounted filesystem only.
    #[error("{0} can only be grown while it is mounted")]
    NeedsMount(FsType),
    #[error(transparent)]
    Sys(#[from] SysError),
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Grows the filesystem on `device`, online when it is mounted at `mount_point`, offline otherwise.
pub fn grow(fs_type: FsType, device: &Path, mount_point: Option<&Path>) -> Result<Grown, GrowError> {
    let measure = || match mount_point {
        Some(mount_point) => mounted_fs_size(fs_type, device, mount_point),
        None => fs_size(fs_type, device),
    };
    let from = measure()?;
    match (fs_type, mount_point) {
        (FsType::Ext4, Some(mount_point)) => grow_ext4_online(device, mount_point)?,
        (FsType::Ext4, None) => grow_ext4_offline(device)?,
        (FsType::Xfs, Some(mount_point)) => {
            Run::new(XFS_GROWFS, TOOL_DEADLINE).args(["-d"]).path(mount_point).go()?;
        }
        (FsType::Btrfs, Some(mount_point)) => {
            Run::new(BTRFS, TOOL_DEADLINE).args(["filesystem", "resize", "max"]).path(mount_point).go()?;
        }
        (FsType::Xfs | FsType::Btrfs, None) => return Err(GrowError::NeedsMount(fs_type)),
    }
    let to = measure()?;
    Ok(if to > from { Grown::Grew { from, to } } else { Grown::Unchanged })
}

/// The ioctl that resize2fs would issue, issued here because its error number says more than the tool's text.
fn grow_ext4_online(device: &Path, mount_point: &Path) -> Result<(), GrowError> {
    let (block_size, size) = superblock::size(FsType::Ext4, device)?;
    let blocks = open_fresh(device)?.1 / block_size;
    if blocks <= size / block_size {
        return Ok(());
    }
    let dir = File::open(mount_point).map_err(SysError::on("open", mount_point))?;
    match ext4_ioc_resize_fs(&dir, blocks) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => Err(GrowError::NotWhileMounted {
            fs_type: FsType::Ext4,
            reason: "the kernel wants CAP_SYS_RESOURCE and this process lacks it",
        }),
        Err(Errno::ROFS) => {
            Err(GrowError::NotWhileMounted { fs_type: FsType::Ext4, reason: "it is mounted read-only" })
        }
        Err(errno) => Err(SysError::on("grow the filesystem at", mount_point)(errno).into()),
    }
}

fn grow_ext4_offline(device: &Path) -> Result<(), GrowError> {
    if superblock::ext4_needs_recovery(device)? {
        full_check(device)?;
    }
    let resize = || Run::new(RESIZE2FS, TOOL_DEADLINE).path(device).go();
    match resize() {
        Err(error) if wants_check(&error) => {
            full_check(device)?;
            resize()?;
        }
        answer => {
            answer?;
        }
    }
    Ok(())
}

/// The size in bytes of an unmounted filesystem, from its superblock.
pub fn fs_size(fs_type: FsType, device: &Path) -> Result<u64, GrowError> {
    Ok(superblock::size(fs_type, device)?.1)
}

/// The size in bytes of a mounted filesystem, from whoever knows it best.
pub fn mounted_fs_size(fs_type: FsType, device: &Path, mount_point: &Path) -> Result<u64, GrowError> {
    match fs_type {
        // ext4 keeps its superblock in the device's page cache, so reading the device is reading the truth.
        FsType::Ext4 => fs_size(fs_type, device),
        FsType::Xfs => {
            let dir = File::open(mount_point).map_err(SysError::on("open", mount_point))?;
            Ok(ioctl::xfs_data_bytes(&dir).map_err(SysError::on("read the geometry of", mount_point))?)
        }
        FsType::Btrfs => {
            let stat = statvfs(mount_point).map_err(SysError::on("read the usage of", mount_point))?;
            Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
        }
    }
}
