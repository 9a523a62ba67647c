//! `emptyDir`: a directory that lives as long as its pod (NODE-24).
//!
//! # Invariants
//! 1. The marker is made last and removed first. While it is there the volume is whole; for one in memory the mount must be
//!    there as well, because it does not survive a reboot and the marker does.
//! 2. A volume that is ready is not touched: its content is the pod's.

use std::path::PathBuf;

use super::unmount_all;
use crate::host::{Access, Found, Host, HostError, MountCall, Ownership, When};
use crate::layout::{DIRECTORY_MODE, Name, Plugin, PodDirectory};

/// Everybody may write: the pod's users are not known.
const MODE: u32 = 0o777;

/// What the directory is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// The disk that the agent's root is on.
    Default,
    /// Memory, at most so many bytes.
    Memory {
        size: Option<u64>,
    },
    HugePages {
        page_size: u64,
    },
}

/// The size of a volume in memory: the least of what the node can give, what the pod may use and what the volume may have.
pub fn memory_size(node_allocatable: Option<u64>, pod_limit: Option<u64>, size_limit: Option<u64>) -> Option<u64> {
    [node_allocatable, pod_limit, size_limit].into_iter().flatten().filter(|bytes| *bytes > 0).min()
}

/// A volume of this kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmptyDir {
    pub directory: PathBuf,
    pub marker: PathBuf,
    pub medium: Medium,
    /// `fsGroup`.
    pub group: Option<u32>,
}

impl EmptyDir {
    pub fn new(pod: &PodDirectory, volume: &Name, medium: Medium, group: Option<u32>) -> Self {
        Self {
            directory: pod.volume(Plugin::EmptyDir, volume),
            marker: pod.ready_marker(Plugin::EmptyDir, volume),
            medium,
            group,
        }
    }
}

pub async fn set_up(host: &dyn Host, volume: &EmptyDir) -> Result<(), HostError> {
    if is_ready(host, volume).await? {
        return Ok(());
    }
    host.make_directory(&volume.directory, DIRECTORY_MODE).await?;
    mount(host, volume).await?;
    host.set_mode(&volume.directory, MODE).await?;
    if let Some(group) = volume.group {
        let (root, access, when) = (volume.directory.clone(), Access::ReadWrite, When::Always);
        // The directory is open for everybody, so a group that cannot be set costs nobody the volume.
        if let Err(error) = host.own(&Ownership { root, group, access, when }, &|_| {}).await {
            tracing::warn!(volume = %volume.directory.display(), %error, "an emptyDir does not belong to its pod's group");
        }
    }
    if let Some(around) = volume.marker.parent() {
        host.make_directory(around, DIRECTORY_MODE).await?;
    }
    host.make_file(&volume.marker, 0o644).await
}

async fn is_ready(host: &dyn Host, volume: &EmptyDir) -> Result<bool, HostError> {
    if host.find(&volume.marker).await? != Found::File {
        return Ok(false);
    }
    match volume.medium {
        Medium::Default => Ok(host.find(&volume.directory).await? == Found::Directory),
        Medium::Memory { .. } | Medium::HugePages { .. } => Ok(host.mounts().await?.at(&volume.directory).is_some()),
    }
}

async fn mount(host: &dyn Host, volume: &EmptyDir) -> Result<(), HostError> {
    let (fs_type, options) = match volume.medium {
        Medium::Default => return Ok(()),
        Medium::Memory { size } => ("tmpfs", size.map(|bytes| format!("size={bytes}"))),
        Medium::HugePages { page_size } => ("hugetlbfs", Some(format!("pagesize={page_size}"))),
    };
    if host.mounts().await?.at(&volume.directory).is_some() {
        return Ok(());
    }
    let mut call = MountCall {
        fs_type: fs_type.to_owned(),
        source: fs_type.to_owned(),
        target: volume.directory.clone(),
        options: options.into_iter().collect(),
    };
    if fs_type == "tmpfs" {
        // What is in memory for being secret must not reach a disk; old kernels do not know the word.
        call.options.push("noswap".to_owned());
        match host.mount(&call).await {
            Err(HostError::Refused { .. }) => call.options.retain(|option| option != "noswap"),
            answer => return answer,
        }
    }
    host.mount(&call).await
}

/// Takes a volume away with its content, whatever it was made of. Its pod is gone.
pub async fn tear_down(host: &dyn Host, pod: &PodDirectory, volume: &Name) -> Result<(), HostError> {
    let (directory, marker) = (pod.volume(Plugin::EmptyDir, volume), pod.ready_marker(Plugin::EmptyDir, volume));
    host.remove_file(&marker).await?;
    unmount_all(host, &directory).await?;
    host.remove_tree(&directory).await?;
    match marker.parent() {
        Some(around) => host.remove_tree(around).await,
        None => Ok(()),
    }
}
