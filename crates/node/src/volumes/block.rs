//! A block device for a pod: a bind mount of its node, a link for the container runtime, and a loop device that holds it
//! (NODE-17.1.8, NODE-17.2).
//!
//! # Invariants
//! 1. The order of taking down is the reverse of the order of making, and each step may be repeated. While anything of it
//!    is left, the bind mount is, and whoever looks at the mount table sees it.
//! 2. The loop device holds the node open, so that the kernel does not give the device's number to another disk while the
//!    pod has it, also when the agent is gone.

use std::path::PathBuf;

use super::unmount_all;
use crate::host::{Access, Found, Host, HostError};
use crate::layout::DIRECTORY_MODE;

/// A device, and where a pod finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The device, or a file that leads to it.
    pub device: PathBuf,
    /// The file that the device is bound to, of this pod alone.
    pub bound: PathBuf,
    /// The link for the container runtime.
    pub link: PathBuf,
}

/// Maps a device; gives the device as it is after all links, and the loop device that holds it.
pub async fn map(host: &dyn Host, mapping: &Mapping) -> Result<(PathBuf, PathBuf), HostError> {
    let device = host.resolve(&mapping.device).await?;
    make_parent(host, &mapping.bound).await?;
    // A plain file is what an earlier attempt, or the time before a reboot, has left.
    if host.find(&mapping.bound).await? != Found::Device {
        host.make_file(&mapping.bound, 0o660).await?;
        host.bind(&device, &mapping.bound, Access::ReadWrite).await?;
    }
    make_parent(host, &mapping.link).await?;
    host.link(&device, &mapping.link).await?;
    let held = host.hold(&mapping.bound).await?;
    Ok((device, held))
}

async fn make_parent(host: &dyn Host, path: &std::path::Path) -> Result<(), HostError> {
    match path.parent() {
        Some(parent) => host.make_directory(parent, DIRECTORY_MODE).await,
        None => Ok(()),
    }
}

/// Undoes [`map`] or any part of it. The device itself is not needed, and may be gone.
pub async fn unmap(host: &dyn Host, mapping: &Mapping) -> Result<(), HostError> {
    release(host, mapping).await?;
    host.remove_file(&mapping.bound).await
}

/// Says on disk that a pod may get a device, before anybody is asked for it.
pub async fn announce(host: &dyn Host, mapping: &Mapping) -> Result<(), HostError> {
    make_parent(host, &mapping.bound).await?;
    host.make_file(&mapping.bound, 0o660).await
}

/// The same as [`unmap`], but what [`announce`] said stays.
pub async fn release(host: &dyn Host, mapping: &Mapping) -> Result<(), HostError> {
    host.let_go(&mapping.bound).await?;
    // Anything else than a link is not ours.
    if host.find(&mapping.link).await? == Found::Symlink {
        host.remove_file(&mapping.link).await?;
    }
    unmount_all(host, &mapping.bound).await
}
