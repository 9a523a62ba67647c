//! NFS, through mount(8) and its helper (NODE-24).

use std::path::Path;

use super::{clean_mount_point, unmount_all};
use crate::host::{Access, Force, Found, Host, HostError, MountCall};
use crate::layout::DIRECTORY_MODE;

/// Where the helper of mount(8) may be.
const HELPERS: [&str; 2] = ["/sbin/mount.nfs", "/usr/sbin/mount.nfs"];
const FILESYSTEMS: &str = "/proc/filesystems";

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    pub server: String,
    pub path: String,
    pub access: Access,
    /// Of the PersistentVolume.
    pub options: Vec<String>,
}

impl Export {
    /// `server:/path`; an IPv6 address in brackets.
    fn source(&self) -> String {
        let server = &self.server;
        let bare_v6 = server.contains(':') && !server.starts_with('[');
        if bare_v6 { format!("[{server}]:{}", self.path) } else { format!("{server}:{}", self.path) }
    }

    /// Each once, in order.
    fn options(&self) -> Vec<String> {
        let mut options = self.options.clone();
        if self.access == Access::ReadOnly {
            options.push("ro".to_owned());
        }
        options.sort();
        options.dedup();
        options
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NfsError {
    #[error("this machine cannot mount NFS: mount.nfs is not installed; on Debian it is in the package nfs-common")]
    NoHelper,
    #[error(
        "the kernel of this machine has no NFS client: load its module, or run the pod on a machine that has one ({0})"
    )]
    NoClient(HostError),
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Mounts an export, unless something is mounted there. The mount table is asked and not the path: the server may not let
/// us look at it.
pub async fn set_up(host: &dyn Host, export: &Export, target: &Path) -> Result<(), NfsError> {
    if host.mounts().await?.at(target).is_some() {
        return Ok(());
    }
    if !has_helper(host).await? {
        return Err(NfsError::NoHelper);
    }
    host.make_directory(target, DIRECTORY_MODE).await?;
    let call = MountCall {
        fs_type: "nfs".to_owned(),
        source: export.source(),
        target: target.to_path_buf(),
        options: export.options(),
    };
    let Err(error) = host.mount(&call).await else { return Ok(()) };
    // What it may have mounted before it failed, and the directory: the next attempt begins anew.
    if let Err(error) = clean_mount_point(host, target).await {
        tracing::warn!(target = %target.display(), %error, "a failed NFS mount was not cleaned up");
    }
    match (&error, has_client(host).await?) {
        (HostError::Refused { .. }, false) => Err(NfsError::NoClient(error)),
        _ => Err(error.into()),
    }
}

async fn has_helper(host: &dyn Host) -> Result<bool, HostError> {
    for helper in HELPERS {
        if host.find(Path::new(helper)).await? != Found::Nothing {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A machine that does not say counts as one that has it.
async fn has_client(host: &dyn Host) -> Result<bool, HostError> {
    let Some(known) = host.read(Path::new(FILESYSTEMS)).await? else { return Ok(true) };
    let known = String::from_utf8_lossy(&known);
    Ok(known.lines().filter_map(|line| line.split_whitespace().last()).any(|name| matches!(name, "nfs" | "nfs4")))
}

/// Unmounts, by force when the server does not answer.
pub async fn tear_down(host: &dyn Host, target: &Path) -> Result<(), HostError> {
    match unmount_all(host, target).await {
        Err(HostError::Hung { .. }) => host.unmount(target, Force::Yes).await?,
        answer => answer?,
    }
    clean_mount_point(host, target).await
}
