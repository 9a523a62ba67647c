//! Directories of pods that are gone (NODE-22).
//!
//! Whoever calls this knows no pod of that uid, and no volume of it that may be mounted: what it had was unpublished. What
//! is on disk is believed more than that. Anything that could be somebody's data keeps the directory, and the answer says
//! what and why.
//!
//! # Invariants
//! 1. Nothing is removed while anything is mounted below the directory, or while one of the pod's devices is mapped
//!    anywhere, dead mounts included.
//! 2. Below `volumes` only empty directories are removed, and the agent's own metadata once the mount beside it is gone
//!    (NODE-31.9). A file that nobody knows keeps everything (NODE-32.23).
//! 3. One path that does not answer costs its deadline and nothing else.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use lifecycle::{Reason, Standing};

use crate::host::{Found, Host, HostError, Mount};
use crate::layout::{Layout, Name, Plugin, PodDirectory, data};

/// Why a directory stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// A volume is still mounted.
    Mounted { path: PathBuf },
    /// A volume is mounted and its filesystem is dead: unpublish it, then
    /// [`crate::volumes::release_corrupted`].
    Corrupted { path: PathBuf, message: String },
    /// It does not answer: as above.
    Hung { path: PathBuf },
    /// A block device is still mapped for the pod.
    Mapped { path: PathBuf },
    /// There is something that the agent did not put there.
    Content { path: PathBuf },
    /// The machine refused.
    Refused(HostError),
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kept::Mounted { path } => write!(f, "a volume is still mounted at {}", path.display()),
            Kept::Corrupted { path, message } => write!(f, "the mount at {} is dead: {message}", path.display()),
            Kept::Hung { path } => write!(f, "{} does not answer", path.display()),
            Kept::Mapped { path } => write!(f, "a block device is still mapped at {}", path.display()),
            Kept::Content { path } => write!(f, "{} is not the agent's to remove", path.display()),
            Kept::Refused(error) => error.fmt(f),
        }
    }
}

impl Reason for Kept {
    fn code(&self) -> &'static str {
        match self {
            Kept::Mounted { .. } => "still_mounted",
            Kept::Corrupted { .. } => "corrupted_mount",
            Kept::Hung { .. } => "hung",
            Kept::Mapped { .. } => "still_mapped",
            Kept::Content { .. } => "unknown_content",
            Kept::Refused(_) => "refused",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Kept::Mounted { .. } | Kept::Mapped { .. } | Kept::Corrupted { .. } | Kept::Hung { .. } => Standing::Moving,
            Kept::Content { .. } | Kept::Refused(_) => Standing::Stuck,
        }
    }
}

impl From<HostError> for Kept {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Hung { path, .. } => Kept::Hung { path },
            refused @ (HostError::Refused { .. } | HostError::WrongFilesystem { .. }) => Kept::Refused(refused),
        }
    }
}

/// What became of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swept {
    /// It is gone.
    Removed,
    /// It stays, for all of these reasons.
    Kept(Vec<Kept>),
}

/// Removes the directory of a pod that is gone, if nothing is in it that could matter.
pub async fn sweep(host: &dyn Host, layout: &Layout, pod: &Name) -> Swept {
    let mut kept = Vec::new();
    match in_use(host, layout, pod).await {
        Ok(reasons) => kept.extend(reasons),
        Err(error) => kept.push(error.into()),
    }
    if kept.is_empty() {
        Sweep { host, kept: &mut kept }.all(&layout.pod(pod)).await;
    }
    if kept.is_empty() { Swept::Removed } else { Swept::Kept(kept) }
}

/// What the mount table knows of the pod.
async fn in_use(host: &dyn Host, layout: &Layout, pod: &Name) -> Result<Vec<Kept>, HostError> {
    let mounts = host.mounts().await?;
    let mut reasons = Vec::new();
    for mount in mounts.under(layout.pod(pod).path()) {
        reasons.push(mounted(host, mount).await);
    }
    // The mount of a block volume lies outside of the pod's directory, under the pod's uid.
    let (blocks, local) = (layout.blocks(), layout.plugins().join(Plugin::Local.directory()));
    let mapped = mounts.0.iter().filter(|mount| {
        let ours = mount.point.starts_with(&blocks) || mount.point.starts_with(&local);
        ours && mount.point.file_name().is_some_and(|name| name == pod.as_str())
    });
    reasons.extend(mapped.map(|mount| Kept::Mapped { path: mount.point.clone() }));
    Ok(reasons)
}

async fn mounted(host: &dyn Host, mount: &Mount) -> Kept {
    let path = mount.point.clone();
    match host.find(&path).await {
        Ok(Found::Corrupted { message, .. }) => Kept::Corrupted { path, message },
        Ok(_) => Kept::Mounted { path },
        Err(HostError::Hung { .. }) => Kept::Hung { path },
        Err(error) => error.into(),
    }
}

struct Sweep<'a> {
    host: &'a dyn Host,
    kept: &'a mut Vec<Kept>,
}

impl Sweep<'_> {
    async fn all(&mut self, pod: &PodDirectory) {
        self.volumes(&pod.volumes()).await;
        self.sub_paths(&pod.sub_paths()).await;
        if !self.kept.is_empty() {
            // What is left may be needed to unpublish it.
            return;
        }
        for (child, is_directory) in self.children(pod.path()).await {
            let removed = match is_directory {
                true => self.host.remove_tree(&child).await,
                false => self.host.remove_file(&child).await,
            };
            self.note(removed);
        }
        if self.kept.is_empty() {
            self.remove_directory(pod.path()).await;
        }
    }

    /// `<plugin>/<volume>`, and for CSI what the agent keeps beside the mount.
    async fn volumes(&mut self, volumes: &Path) {
        for (plugin, is_directory) in self.children(volumes).await {
            if !is_directory {
                self.kept.push(Kept::Content { path: plugin });
                continue;
            }
            let csi = plugin.file_name().and_then(Plugin::from_directory) == Some(Plugin::Csi);
            for (volume, is_directory) in self.children(&plugin).await {
                match (is_directory, csi) {
                    (false, _) => self.kept.push(Kept::Content { path: volume }),
                    (true, true) => self.csi_volume(&volume).await,
                    (true, false) => self.remove_directory(&volume).await,
                }
            }
            self.remove_if_clean(&plugin).await;
        }
        self.remove_if_clean(volumes).await;
    }

    async fn csi_volume(&mut self, volume: &Path) {
        let before = self.kept.len();
        let mut metadata = Vec::new();
        for (child, is_directory) in self.children(volume).await {
            let name = child.file_name().unwrap_or_default();
            if is_directory && name == "mount" {
                self.remove_directory(&child).await;
            } else if !is_directory && (name == data::FILE || data::is_leftover(name)) {
                metadata.push(child);
            } else {
                self.kept.push(Kept::Content { path: child });
            }
        }
        if self.kept.len() > before {
            return;
        }
        for file in metadata {
            let removed = self.host.remove_file(&file).await;
            self.note(removed);
        }
        self.remove_directory(volume).await;
    }

    /// `<volume>/<container>/<index>`: files or empty directories that something was mounted on.
    async fn sub_paths(&mut self, sub_paths: &Path) {
        for (volume, _) in self.children(sub_paths).await {
            for (container, _) in self.children(&volume).await {
                for (part, is_directory) in self.children(&container).await {
                    match is_directory {
                        true => self.remove_directory(&part).await,
                        false => self.empty_file(&part).await,
                    }
                }
                self.remove_if_clean(&container).await;
            }
            self.remove_if_clean(&volume).await;
        }
        self.remove_if_clean(sub_paths).await;
    }

    /// What a file was mounted on is empty. Anything else is somebody's.
    async fn empty_file(&mut self, part: &Path) {
        match self.host.read(part).await {
            Ok(None) => {}
            Ok(Some(content)) if content.is_empty() => {
                let removed = self.host.remove_file(part).await;
                self.note(removed);
            }
            Ok(Some(_)) => self.kept.push(Kept::Content { path: part.to_path_buf() }),
            Err(error) => self.kept.push(error.into()),
        }
    }

    async fn children(&mut self, directory: &Path) -> Vec<(PathBuf, bool)> {
        match self.host.list(directory).await {
            Ok(entries) => entries.into_iter().map(|entry| (directory.join(entry.name), entry.is_directory)).collect(),
            Err(error) => {
                self.kept.push(error.into());
                Vec::new()
            }
        }
    }

    async fn remove_if_clean(&mut self, directory: &Path) {
        if self.kept.is_empty() {
            self.remove_directory(directory).await;
        }
    }

    /// Only if it is empty: what is in it was put there by somebody.
    async fn remove_directory(&mut self, directory: &Path) {
        match self.host.list(directory).await {
            Ok(entries) if entries.is_empty() => {
                let removed = self.host.remove_directory(directory).await;
                self.note(removed);
            }
            Ok(_) => self.kept.push(Kept::Content { path: directory.to_path_buf() }),
            Err(error) => self.kept.push(error.into()),
        }
    }

    fn note(&mut self, done: Result<(), HostError>) {
        if let Err(error) = done {
            self.kept.push(error.into());
        }
    }
}
