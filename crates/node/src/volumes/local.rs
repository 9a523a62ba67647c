//! `local`: a directory or a block device of this machine as a PersistentVolume (NODE-24).
//!
//! Of a block device the filesystem is mounted once for the machine, and that mount is what pods get.

use std::path::{Path, PathBuf};

use super::clean_mount_point;
use crate::host::{Access, Host, HostError, Kind, MountCall, Mounts, Owned, Ownership, Progress, When};
use crate::layout::{DIRECTORY_MODE, Layout, Name};

/// The volume, as its PersistentVolume says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    pub name: Name,
    pub path: PathBuf,
    /// Empty for the default.
    pub fs_type: String,
    pub options: Vec<String>,
    pub access: Access,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    #[error("the local path {} of the volume is neither a directory nor a block device", .0.display())]
    NoSource(PathBuf),
    #[error("the local path {} of the volume is no block device, and the volume is to be one", .0.display())]
    NoDevice(PathBuf),
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Where the files of a volume are on this machine. Formats and mounts a block device that is not mounted yet.
pub async fn stage(host: &dyn Host, layout: &Layout, volume: &Local) -> Result<PathBuf, LocalError> {
    match host.look(&volume.path).await?.kind {
        Kind::Directory => Ok(host.resolve(&volume.path).await?),
        Kind::BlockDevice => {
            let target = layout.local_mount(&volume.name);
            if host.mounts().await?.at(&target).is_none() {
                host.make_directory(&target, DIRECTORY_MODE).await?;
                let device = host.resolve(&volume.path).await?;
                host.format_and_mount(&device, &global(volume, &target)).await?;
            }
            Ok(target)
        }
        _ => Err(LocalError::NoSource(volume.path.clone())),
    }
}

/// The device of a volume in block mode.
pub async fn device(host: &dyn Host, path: &Path) -> Result<PathBuf, LocalError> {
    match host.look(path).await?.kind {
        Kind::BlockDevice => Ok(host.resolve(path).await?),
        _ => Err(LocalError::NoDevice(path.to_path_buf())),
    }
}

fn global(volume: &Local, target: &Path) -> MountCall {
    let mut options = volume.options.clone();
    if volume.access == Access::ReadOnly {
        options.push("ro".to_owned());
    }
    options.sort();
    options.dedup();
    let source = volume.path.display().to_string();
    MountCall { fs_type: volume.fs_type.clone(), source, target: target.to_path_buf(), options }
}

/// Ends what [`stage`] began, when no pod has the volume any more. A directory was never mounted.
pub async fn unstage(host: &dyn Host, layout: &Layout, volume: &Name) -> Result<(), HostError> {
    clean_mount_point(host, &layout.local_mount(volume)).await
}

/// Grows the filesystem of a volume to its device. A directory has nothing to grow.
pub async fn expand(host: &dyn Host, layout: &Layout, volume: &Name) -> Result<(), HostError> {
    let mounted = layout.local_mount(volume);
    match host.mounts().await?.at(&mounted) {
        Some(_) => host.grow(&mounted).await,
        None => Ok(()),
    }
}

/// What became of the pod's `fsGroup`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    NotAsked,
    Applied(Owned),
    /// Another pod has the volume, and its files are its group's.
    LeftTo {
        group: u32,
    },
}

/// What a pod asks of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub target: PathBuf,
    pub access: Access,
    pub group: Option<(u32, When)>,
}

/// Shows a staged volume to a pod. Its files become its group's only if no other pod has it, and before the pod has it:
/// what is shown is finished.
pub async fn set_up(
    host: &dyn Host,
    (layout, volume): (&Layout, &Local),
    staged: &Path,
    wanted: &Wanted,
    progress: Progress<'_>,
) -> Result<Group, LocalError> {
    let mounts = host.mounts().await?;
    if mounts.at(&wanted.target).is_some() {
        return Ok(Group::NotAsked);
    }
    let group = match wanted.group {
        Some((group, _)) if has_other_pod(&mounts, layout, staged) => {
            let seen = host.look(staged).await?.group;
            if seen == group { Group::NotAsked } else { Group::LeftTo { group: seen } }
        }
        Some((group, when)) if wanted.access == Access::ReadWrite => {
            let ownership = Ownership { root: staged.to_path_buf(), group, access: wanted.access, when };
            Group::Applied(host.own(&ownership, progress).await?)
        }
        Some(_) | None => Group::NotAsked,
    };
    host.make_directory(&wanted.target, DIRECTORY_MODE).await?;
    bind(host, volume, staged, wanted).await?;
    Ok(group)
}

fn has_other_pod(mounts: &Mounts, layout: &Layout, staged: &Path) -> bool {
    let pods = layout.pods();
    mounts.references(staged).any(|mount| mount.point.starts_with(&pods))
}

/// The mount options of the volume count for the pod's mount, too; of those only mount(8) knows all.
async fn bind(host: &dyn Host, volume: &Local, staged: &Path, wanted: &Wanted) -> Result<(), HostError> {
    let plain = |option: &String| matches!(option.as_str(), "ro" | "rw" | "defaults" | "bind");
    let read_only = wanted.access == Access::ReadOnly || volume.options.iter().any(|option| option == "ro");
    if volume.options.iter().all(plain) {
        let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
        return host.bind(staged, &wanted.target, access).await;
    }
    let mut call = global(volume, &wanted.target);
    call.fs_type = String::new();
    call.source = staged.display().to_string();
    call.options.retain(|option| option != "bind");
    call.options.insert(0, "bind".to_owned());
    if read_only && !call.options.iter().any(|option| option == "ro") {
        call.options.push("ro".to_owned());
    }
    host.mount(&call).await
}

/// Takes the volume from a pod.
pub async fn tear_down(host: &dyn Host, target: &Path) -> Result<(), HostError> {
    clean_mount_point(host, target).await
}
