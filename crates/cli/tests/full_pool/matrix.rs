//! The combinations of pools, volumes and ways to fill the pool.

use linux::fs::FsType;

use crate::rig::MIB;

/// Kinds of volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VolumeKind {
    Image(FsType),
    Block,
    Directory,
}

pub(crate) const KINDS: [VolumeKind; 5] = [
    VolumeKind::Image(FsType::Ext4),
    VolumeKind::Image(FsType::Xfs),
    VolumeKind::Image(FsType::Btrfs),
    VolumeKind::Block,
    VolumeKind::Directory,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VolumeProvisioning {
    Thin,
    Thick,
}

/// How the other writer fills the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FillPace {
    /// It stops a moment below the floor, until the driver has frozen a volume, and then takes the rest.
    Gradual,
    /// Faster than the driver looks.
    Sudden,
}

/// One pool with volumes of every kind that can exist in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolCombination {
    pub(crate) pool: FsType,
    pub(crate) provisioning: VolumeProvisioning,
    pub(crate) overcommit: bool,
    pub(crate) fill: FillPace,
}

impl VolumeKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            VolumeKind::Image(fs) => fs.name(),
            VolumeKind::Block => "block",
            VolumeKind::Directory => "directory",
        }
    }

    /// The smallest that there is, or a little more.
    pub(crate) fn size(self) -> u64 {
        match self {
            VolumeKind::Image(FsType::Xfs) => 300 * MIB,
            VolumeKind::Image(FsType::Btrfs) => 256 * MIB,
            VolumeKind::Image(FsType::Ext4) | VolumeKind::Block => 64 * MIB,
            VolumeKind::Directory => 32 * MIB,
        }
    }
}

impl VolumeProvisioning {
    pub(crate) fn name(self) -> &'static str {
        match self {
            VolumeProvisioning::Thin => "thin",
            VolumeProvisioning::Thick => "thick",
        }
    }
}

impl PoolCombination {
    pub(crate) fn all(pool: FsType) -> impl Iterator<Item = Self> {
        [
            (VolumeProvisioning::Thin, FillPace::Gradual),
            (VolumeProvisioning::Thin, FillPace::Sudden),
            // No volume is frozen in a pool whose volumes have all their blocks: there is nothing to wait for.
            (VolumeProvisioning::Thick, FillPace::Sudden),
        ]
        .into_iter()
        .flat_map(move |(provisioning, fill)| {
            [false, true].map(|overcommit| Self { pool, provisioning, overcommit, fill })
        })
    }

    /// Why there is no such volume. The driver takes no notice of `provisioning` for a directory.
    pub(crate) fn impossible(&self, kind: VolumeKind) -> Option<&'static str> {
        (kind == VolumeKind::Directory && self.provisioning == VolumeProvisioning::Thick)
            .then_some("a directory has no image whose blocks could be taken in advance")
    }

    pub(crate) fn volumes(&self) -> impl Iterator<Item = VolumeKind> {
        KINDS.into_iter().filter(|kind| self.impossible(*kind).is_none())
    }

    pub(crate) fn row(&self, kind: VolumeKind) -> String {
        let Self { pool, provisioning, overcommit, fill } = self;
        let overcommit = if *overcommit { "overcommitted" } else { "no overcommit" };
        let fill = if *fill == FillPace::Gradual { "filled slowly" } else { "filled at once" };
        format!("{} volume, {}, pool on {}, {overcommit}, {fill}", kind.name(), provisioning.name(), pool.name())
    }

    /// Thick volumes take all their space at once, overcommitted or not. A pool is overcommitted if it is smaller than its
    /// volumes.
    pub(crate) fn pool_bytes(&self) -> u64 {
        match (self.provisioning, self.overcommit) {
            (VolumeProvisioning::Thin, true) => 640 * MIB,
            (VolumeProvisioning::Thin, false) | (VolumeProvisioning::Thick, _) => 1280 * MIB,
        }
    }
}
