//! Reading superblocks: the few fields of each filesystem that we decide by.
//!
//! All offsets are absolute, from the start of the device.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use super::{FsType, Uuid};
use crate::SysError;

#[derive(Debug, thiserror::Error)]
pub enum SuperblockError {
    #[error(transparent)]
    Sys(#[from] SysError),
    #[error("there is no {0} superblock where one was expected")]
    Missing(FsType),
}

const EXT_MAGIC: [u8; 2] = [0x53, 0xef];
const EXT_MAGIC_AT: usize = 1080;
const EXT_BASE: usize = 1024;
const EXT_INCOMPAT_RECOVER: u32 = 0x4;
const EXT_INCOMPAT_JOURNAL_DEV: u32 = 0x8;
const EXT_INCOMPAT_EXTENTS: u32 = 0x40;
const EXT_INCOMPAT_64BIT: u32 = 0x80;
const XFS_MAGIC: &[u8] = b"XFSB";
const BTRFS_BASE: usize = 65536;
const BTRFS_MAGIC: &[u8] = b"_BHRfS_M";
const BTRFS_MAGIC_UNFINISHED: &[u8] = b"!BHRfS_M";
const BTRFS_MAGIC_AT: usize = BTRFS_BASE + 64;

/// How much of the start of a device holds all the superblocks we know.
pub(super) const HEAD_BYTES: usize = 1 << 20;

/// What one filesystem's signature looks like on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// A finished filesystem of a kind we make.
    Known(FsType, Uuid),
    /// The signature is there but it is not a filesystem we would mount.
    Odd(&'static str),
}

/// Every filesystem signature of ours in the head of a device. Shorter heads have fewer.
pub(super) fn signatures(head: &[u8]) -> Vec<Found> {
    [ext(head), xfs(head), btrfs(head)].into_iter().flatten().collect()
}

fn ext(head: &[u8]) -> Option<Found> {
    if bytes::<2>(head, EXT_MAGIC_AT)? != EXT_MAGIC {
        return None;
    }
    let incompat = ext_incompat(head)?;
    Some(if incompat & EXT_INCOMPAT_JOURNAL_DEV != 0 {
        Found::Odd("an ext4 journal device")
    } else if incompat & EXT_INCOMPAT_EXTENTS == 0 {
        Found::Odd("an ext2 or ext3 filesystem")
    } else {
        Found::Known(FsType::Ext4, Uuid::from_bytes(bytes(head, EXT_BASE + 0x68)?))
    })
}

fn xfs(head: &[u8]) -> Option<Found> {
    if head.get(..4)? != XFS_MAGIC {
        return None;
    }
    // mkfs.xfs sets this byte first and clears it last.
    let in_progress = *head.get(126)? != 0;
    let uuid = Uuid::from_bytes(bytes(head, 32)?);
    Some(if in_progress { Found::Odd("an unfinished xfs filesystem") } else { Found::Known(FsType::Xfs, uuid) })
}

fn btrfs(head: &[u8]) -> Option<Found> {
    match head.get(BTRFS_MAGIC_AT..BTRFS_MAGIC_AT + 8)? {
        BTRFS_MAGIC => Some(Found::Known(FsType::Btrfs, Uuid::from_bytes(bytes(head, BTRFS_BASE + 32)?))),
        BTRFS_MAGIC_UNFINISHED => Some(Found::Odd("an unfinished btrfs filesystem")),
        _ => None,
    }
}

fn ext_incompat(head: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes(head, EXT_BASE + 0x60)?))
}

/// True when the ext4 journal holds changes that are not yet in place: its superblock must not be edited before.
pub(super) fn ext4_needs_recovery(device: &Path) -> Result<bool, SuperblockError> {
    let head = read_head(device)?;
    ext4_of(&head)?;
    Ok(ext_incompat(&head).is_some_and(|incompat| incompat & EXT_INCOMPAT_RECOVER != 0))
}

/// Fails unless the head holds an ext4 superblock.
fn ext4_of(head: &[u8]) -> Result<(), SuperblockError> {
    match ext(head) {
        Some(Found::Known(..)) => Ok(()),
        Some(Found::Odd(_)) | None => Err(SuperblockError::Missing(FsType::Ext4)),
    }
}

/// The uuid that the superblock on the device carries now.
pub(super) fn uuid(fs_type: FsType, device: &Path) -> Result<Uuid, SuperblockError> {
    let head = read_head(device)?;
    let found = signatures(&head).into_iter().find_map(|found| match found {
        Found::Known(kind, uuid) if kind == fs_type => Some(uuid),
        Found::Known(..) | Found::Odd(_) => None,
    });
    found.ok_or(SuperblockError::Missing(fs_type))
}

/// The block size and the size in bytes that the filesystem on the device believes to have.
pub(super) fn size(fs_type: FsType, device: &Path) -> Result<(u64, u64), SuperblockError> {
    let head = read_head(device)?;
    size_of_head(fs_type, &head).ok_or(SuperblockError::Missing(fs_type))
}

fn size_of_head(fs_type: FsType, head: &[u8]) -> Option<(u64, u64)> {
    let (block_size, blocks) = match fs_type {
        FsType::Ext4 => {
            ext4_of(head).ok()?;
            let low = u32::from_le_bytes(bytes(head, EXT_BASE + 0x04)?);
            let high = match ext_incompat(head)? & EXT_INCOMPAT_64BIT {
                0 => 0,
                _ => u32::from_le_bytes(bytes(head, EXT_BASE + 0x150)?),
            };
            let log = u32::from_le_bytes(bytes(head, EXT_BASE + 0x18)?);
            (1024_u64.checked_shl(log)?, u64::from(high) << 32 | u64::from(low))
        }
        FsType::Xfs => {
            xfs(head)?;
            (u64::from(u32::from_be_bytes(bytes(head, 4)?)), u64::from_be_bytes(bytes(head, 8)?))
        }
        FsType::Btrfs => {
            btrfs(head)?;
            // The size of this device as the filesystem has it (the device item inside the superblock).
            let sector = u64::from(u32::from_le_bytes(bytes(head, BTRFS_BASE + 0x90)?));
            let total = u64::from_le_bytes(bytes(head, BTRFS_BASE + 0xd1)?);
            (sector, total.checked_div(sector)?)
        }
    };
    Some((block_size, blocks.checked_mul(block_size)?))
}

fn bytes<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..at + N)?.try_into().ok()
}

/// The first [`HEAD_BYTES`] of a device, or all of a smaller one. Fails on a short read.
fn read_head(device: &Path) -> Result<Vec<u8>, SysError> {
    let (file, size) = open_fresh(device)?;
    let length = usize::try_from(size).unwrap_or(usize::MAX).min(HEAD_BYTES);
    read_exactly(&file, device, 0, length)
}

/// Opens a device and drops what the page cache has of it: a mounted XFS writes around that cache, and a stale page
/// would show a superblock that is no longer true.
pub(super) fn open_fresh(device: &Path) -> Result<(File, u64), SysError> {
    let file = File::open(device).map_err(SysError::on("open", device))?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(SysError::on("drop the cache of", device))?;
    let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(SysError::on("measure", device))?;
    Ok((file, size))
}

pub(super) fn read_exactly(file: &File, device: &Path, at: u64, length: usize) -> Result<Vec<u8>, SysError> {
    let mut buffer = vec![0; length];
    file.read_exact_at(&mut buffer, at).map_err(SysError::on("read", device))?;
    Ok(buffer)
}
