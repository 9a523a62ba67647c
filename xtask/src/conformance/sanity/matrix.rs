//! The runs: {mount, block} x {plain folder, XFS with reflinks} x {one socket, two}, and one per other filesystem.

use anyhow::bail;

use super::Mode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Mount,
    Block,
}

impl Access {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::Block => "block",
        }
    }
}

/// What the pool is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolKind {
    /// A folder on the machine's disk, which on most machines is ext4: snapshots are full copies.
    Plain,
    /// An XFS filesystem: snapshots share blocks.
    Reflink,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sockets {
    Unified,
    /// Controller and node are two processes on the same pool.
    Split,
}

/// The filesystem of mounted volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VolumeFs {
    Ext4,
    Xfs,
    Btrfs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) access: Access,
    pub(super) pool: PoolKind,
    pub(super) sockets: Sockets,
    volume_fs: VolumeFs,
}

impl Run {
    /// Such as `mount-ext4-unified`: access, pool, sockets; and the volume's filesystem where it is not ext4.
    pub(super) fn name(&self) -> String {
        let pool = match self.pool {
            PoolKind::Plain => "ext4",
            PoolKind::Reflink => "xfs",
        };
        let sockets = match self.sockets {
            Sockets::Unified => "unified",
            Sockets::Split => "split",
        };
        let volume = match self.volume_fs {
            VolumeFs::Ext4 => "",
            VolumeFs::Xfs => "-xfs-volumes",
            VolumeFs::Btrfs => "-btrfs-volumes",
        };
        format!("{}-{pool}-{sockets}{volume}", self.access.name())
    }

    pub(super) fn modes(&self) -> &'static [Mode] {
        match self.sockets {
            Sockets::Unified => &[Mode::All],
            Sockets::Split => &[Mode::Controller, Mode::Node],
        }
    }

    /// The class parameters, a file of `tests/conformance`. ext4 is what the driver does without any.
    pub(super) fn parameters_file(&self) -> Option<&'static str> {
        match self.volume_fs {
            VolumeFs::Ext4 => None,
            VolumeFs::Xfs => Some("parameters-xfs.yaml"),
            VolumeFs::Btrfs => Some("parameters-btrfs.yaml"),
        }
    }
}

fn all() -> Vec<Run> {
    let mut runs = Vec::new();
    for pool in [PoolKind::Plain, PoolKind::Reflink] {
        for access in [Access::Mount, Access::Block] {
            for sockets in [Sockets::Unified, Sockets::Split] {
                runs.push(Run { access, pool, sockets, volume_fs: VolumeFs::Ext4 });
            }
        }
    }
    let mounted =
        Run { access: Access::Mount, pool: PoolKind::Reflink, sockets: Sockets::Unified, volume_fs: VolumeFs::Xfs };
    runs.push(mounted);
    runs.push(Run { volume_fs: VolumeFs::Btrfs, ..mounted });
    runs
}

/// The runs of these names; all, when none is given.
pub(super) fn select(names: &[String]) -> anyhow::Result<Vec<Run>> {
    let mut runs = all();
    if let Some(unknown) = names.iter().find(|name| !runs.iter().any(|run| run.name() == **name)) {
        let known: Vec<String> = runs.iter().map(Run::name).collect();
        bail!("no run is called {unknown:?}; there are: {}", known.join(", "));
    }
    runs.retain(|run| names.is_empty() || names.contains(&run.name()));
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_is_complete_and_every_name_is_unique() {
        let mut names: Vec<String> = select(&[]).unwrap().iter().map(Run::name).collect();
        assert_eq!(names.len(), 10);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 10);
    }

    #[test]
    fn one_run_is_chosen_by_name_and_a_typo_lists_them() {
        let chosen = select(&["block-xfs-split".to_owned()]).unwrap();
        assert_eq!(chosen.iter().map(Run::name).collect::<Vec<_>>(), ["block-xfs-split"]);
        let error = select(&["mount".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("mount-ext4-unified"), "{error}");
    }
}
