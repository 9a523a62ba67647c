//! Volumes that need no driver (NODE-24), and what all volumes share.
//!
//! Each is a few functions on [`Host`]: one that makes the volume ready, one that takes it away. All may be repeated, also
//! after a crash between any two of their steps, and taking away needs nothing but what is on disk.
//!
//! One volume is changed by one caller at a time; different volumes at once are fine.

pub mod block;
pub mod empty_dir;
pub mod host_path;
pub mod local;
pub mod nfs;
pub mod sub_path;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::host::{Force, Found, Host, HostError, Mounts};

/// Takes a mount away and removes the directory or file it was on. Nothing else is removed: content is refused
/// (NODE-29.4).
pub async fn clean_mount_point(host: &dyn Host, path: &Path) -> Result<(), HostError> {
    unmount_all(host, path).await?;
    match host.find(path).await? {
        Found::Nothing => Ok(()),
        Found::Directory => host.remove_directory(path).await,
        _ => host.remove_file(path).await,
    }
}

/// Unmounts every layer at a path. What is still mounted when the machine said yes is an error (NODE-31.5).
pub async fn unmount_all(host: &dyn Host, path: &Path) -> Result<(), HostError> {
    let layers = host.mounts().await?.0.iter().filter(|mount| mount.point == path).count();
    for _ in 0..layers {
        host.unmount(path, Force::No).await?;
    }
    still_mounted(host, path).await
}

/// Takes a mount out of the tree whose filesystem does not answer, or answers every question with the same error
/// (NODE-31.9): first as one does for a server that is gone, and if that is not enough, at once.
///
/// A mount that answers is refused: somebody may be writing to it. So is the only mount of a filesystem on a device while
/// it is in use: out of sight it would stay active, and the next mount of the device would find it again.
pub async fn release_corrupted(host: &dyn Host, path: &Path) -> Result<(), HostError> {
    match host.find(path).await {
        Ok(Found::Corrupted { .. }) | Err(HostError::Hung { .. }) => {}
        Ok(_) => {
            let message = "it answers; it is unmounted like any other".to_owned();
            let path = path.to_path_buf();
            return Err(HostError::Refused { doing: "force the unmount of", path, errno: 0, message });
        }
        Err(error) => return Err(error),
    }
    let mounts = host.mounts().await?;
    for _ in mounts.0.iter().filter(|mount| mount.point == path) {
        match host.unmount(path, Force::Yes).await {
            Err(_) if may_detach(&mounts, path) => host.unmount(path, Force::Lazy).await?,
            answer => answer?,
        }
    }
    still_mounted(host, path).await
}

pub(crate) fn may_detach(mounts: &Mounts, path: &Path) -> bool {
    mounts.at(path).is_none_or(|mount| {
        // A filesystem without a device has the number of none; btrfs says so, too, and has one.
        let on_device = mount.device.0 != 0 || mount.fs_type == "btrfs";
        let elsewhere = mounts.0.iter().any(|other| other.device == mount.device && other.point != path);
        !on_device || elsewhere
    })
}

async fn still_mounted(host: &dyn Host, path: &Path) -> Result<(), HostError> {
    match host.mounts().await?.at(path) {
        None => Ok(()),
        Some(mount) => {
            let message = format!("{} is still mounted there", mount.source.display());
            Err(HostError::Refused { doing: "unmount", path: path.to_path_buf(), errno: 0, message })
        }
    }
}
