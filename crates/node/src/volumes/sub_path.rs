//! Taking the parts of volumes away that containers had (NODE-25). Showing them is [`Host::expose`].

use std::path::Path;

use super::{clean_mount_point, release_corrupted};
use crate::host::{Found, Host, HostError};
use crate::layout::{Name, PodDirectory};

/// Unmounts and removes every part of a volume that containers of a pod had, before the volume itself goes.
///
/// The directory of all parts goes with the last of them. A part whose filesystem is dead is taken out by force: the
/// volume behind it is unmounted next, and says what is wrong.
pub async fn clean(host: &dyn Host, pod: &PodDirectory, volume: &Name) -> Result<(), HostError> {
    let parts = pod.sub_paths_of(volume);
    for container in host.list(&parts).await? {
        let container = parts.join(container.name);
        for part in host.list(&container).await? {
            clean_one(host, &container.join(part.name)).await?;
        }
        host.remove_directory(&container).await?;
    }
    host.remove_directory(&parts).await?;
    if host.list(&pod.sub_paths()).await?.is_empty() {
        host.remove_directory(&pod.sub_paths()).await?;
    }
    Ok(())
}

async fn clean_one(host: &dyn Host, part: &Path) -> Result<(), HostError> {
    if host.mounts().await?.at(part).is_some() {
        match host.find(part).await {
            Ok(Found::Corrupted { .. }) | Err(HostError::Hung { .. }) => release_corrupted(host, part).await?,
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
    clean_mount_point(host, part).await
}
