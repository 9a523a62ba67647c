//! Filesystems inside volumes: ext4 (default), XFS and btrfs (LOCAL-F.4, LOCAL-F.5).
//!
//! # Invariants
//! 1. [`probe`] answers "empty" only after it has read everything it wanted to read and found zeros.
//! 2. [`mkfs`] chooses nothing: identity, block and sector sizes are given, so that a repeat makes the same filesystem.
//! 3. Nothing here ever shrinks a filesystem.

mod grow;
mod identity;
mod make;
mod probe;
mod superblock;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use grow::{GrowError, Grown, fs_size, grow, mounted_fs_size};
pub use identity::{CheckError, Checked, UuidChange, UuidError, check, new_uuid};
pub use make::{Mkfs, MkfsError, mkfs};
pub use probe::{Probe, ProbeError, probe};
pub use superblock::SuperblockError;

use super::command::{MissingTool, Tool};

/// How long a repair, growth or identity tool may run: just under the two minutes that the kubelet waits for a call.
const TOOL_DEADLINE: Duration = Duration::from_secs(110);

/// A filesystem this driver can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum FsType {
    #[default]
    Ext4,
    Xfs,
    Btrfs,
}

const E2FSPROGS: &str = "e2fsprogs";
const XFSPROGS: &str = "xfsprogs";
const BTRFS_PROGS: &str = "btrfs-progs";

const MKFS_EXT4: Tool = Tool { name: "mkfs.ext4", package: E2FSPROGS };
const RESIZE2FS: Tool = Tool { name: "resize2fs", package: E2FSPROGS };
const E2FSCK: Tool = Tool { name: "e2fsck", package: E2FSPROGS };
const TUNE2FS: Tool = Tool { name: "tune2fs", package: E2FSPROGS };
const MKFS_XFS: Tool = Tool { name: "mkfs.xfs", package: XFSPROGS };
const XFS_GROWFS: Tool = Tool { name: "xfs_growfs", package: XFSPROGS };
const XFS_ADMIN: Tool = Tool { name: "xfs_admin", package: XFSPROGS };
const MKFS_BTRFS: Tool = Tool { name: "mkfs.btrfs", package: BTRFS_PROGS };
const BTRFS: Tool = Tool { name: "btrfs", package: BTRFS_PROGS };
const BTRFSTUNE: Tool = Tool { name: "btrfstune", package: BTRFS_PROGS };

impl FsType {
    pub const ALL: [FsType; 3] = [FsType::Ext4, FsType::Xfs, FsType::Btrfs];

    /// The name that the kernel, CSI and users know it by.
    pub fn name(self) -> &'static str {
        match self {
            FsType::Ext4 => "ext4",
            FsType::Xfs => "xfs",
            FsType::Btrfs => "btrfs",
        }
    }

    /// The smallest volume we make with it, in bytes. mkfs.xfs enforces its own (LOCAL-0.17), the kernel resizes no
    /// btrfs to less than 256 MiB, and that of ext4 is practical.
    pub fn minimum_bytes(self) -> u64 {
        match self {
            FsType::Ext4 => 32 << 20,
            FsType::Xfs => 300 << 20,
            FsType::Btrfs => 256 << 20,
        }
    }

    /// Every tool that some operation on this filesystem runs.
    pub fn tools(self) -> &'static [Tool] {
        match self {
            FsType::Ext4 => &[MKFS_EXT4, RESIZE2FS, E2FSCK, TUNE2FS],
            FsType::Xfs => &[MKFS_XFS, XFS_GROWFS, XFS_ADMIN],
            FsType::Btrfs => &[MKFS_BTRFS, BTRFS, BTRFSTUNE],
        }
    }

    /// The tools that are not installed; each knows its Debian package.
    pub fn missing_tools(self) -> Vec<MissingTool> {
        self.tools().iter().filter_map(|tool| tool.find().err()).collect()
    }
}

impl fmt::Display for FsType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("filesystem {0:?} is not one of ext4, xfs, btrfs")]
pub struct UnknownFsType(pub String);

impl FromStr for FsType {
    type Err = UnknownFsType;

    fn from_str(name: &str) -> Result<FsType, UnknownFsType> {
        FsType::ALL.into_iter().find(|fs_type| fs_type.name() == name).ok_or_else(|| UnknownFsType(name.to_owned()))
    }
}

/// The identity of a filesystem.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

impl Uuid {
    pub const fn from_bytes(bytes: [u8; 16]) -> Uuid {
        Uuid(bytes)
    }

    /// Any sixteen bytes, such as a digest of a volume id, as a well-formed version 8 (application-defined) identity.
    pub const fn from_digest(mut bytes: [u8; 16]) -> Uuid {
        bytes[6] = bytes[6] & 0x0f | 0x80;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            if matches!(position, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a UUID")]
pub struct NotAUuid(pub String);

impl FromStr for Uuid {
    type Err = NotAUuid;

    fn from_str(text: &str) -> Result<Uuid, NotAUuid> {
        let not = || NotAUuid(text.to_owned());
        let shape: Vec<usize> = text.split('-').map(str::len).collect();
        if shape != [8, 4, 4, 4, 12] || !text.is_ascii() {
            return Err(not());
        }
        let digits = text.replace('-', "");
        let mut bytes = [0; 16];
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| not())?;
        }
        Ok(Uuid(bytes))
    }
}

#[cfg(test)]
mod tests;
