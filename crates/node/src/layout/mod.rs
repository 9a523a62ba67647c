//! Where everything lies on disk, and what it is called (NODE-2 and NODE-2.2).
//!
//! The paths are a contract: a kubelet can take over the directory, and the other way round. They are built from names
//! that others chose, so a name is checked once, when it becomes a [`Name`]; a path made here never leaves the root.
//!
//! # Invariants
//! 1. Nothing here touches the disk but [`prepare`] and [`data::store`], through [`Host`].
//! 2. What was written can be found again: [`Plugin::from_directory`] and the `from_path` functions are the way back.

pub mod data;
mod names;
#[cfg(test)]
mod tests;

use std::path::{Component, Path, PathBuf};

use api::keys::plugin;

pub use data::{Lifecycle, Stored, VolumeData, Wrote};
pub use names::{BadName, Name, inline_handle, per_pod_name, split_unique_name};

use crate::host::{Host, HostError};

/// Directories of the agent: readable for its group, closed for others.
pub const DIRECTORY_MODE: u32 = 0o750;

const PODS: &str = "pods";
const PLUGINS: &str = "plugins";
const REGISTRY: &str = "plugins_registry";
const VOLUMES: &str = "volumes";
const DEVICES: &str = "volumeDevices";
const SUB_PATHS: &str = "volume-subpaths";
const GLOBAL_MOUNT: &str = "globalmount";
const MOUNT: &str = "mount";
const STAGING: &str = "staging";
const PUBLISH: &str = "publish";

/// What kind of volume a directory holds. The names are those of the kubelet's plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plugin {
    Csi,
    EmptyDir,
    HostPath,
    Local,
    Nfs,
    Secret,
    ConfigMap,
    DownwardApi,
    Projected,
}

impl Plugin {
    pub const ALL: [Plugin; 9] = [
        Plugin::Csi,
        Plugin::EmptyDir,
        Plugin::HostPath,
        Plugin::Local,
        Plugin::Nfs,
        Plugin::Secret,
        Plugin::ConfigMap,
        Plugin::DownwardApi,
        Plugin::Projected,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Plugin::Csi => plugin::CSI,
            Plugin::EmptyDir => plugin::EMPTY_DIR,
            Plugin::HostPath => plugin::HOST_PATH,
            Plugin::Local => plugin::LOCAL,
            Plugin::Nfs => plugin::NFS,
            Plugin::Secret => plugin::SECRET,
            Plugin::ConfigMap => plugin::CONFIG_MAP,
            Plugin::DownwardApi => plugin::DOWNWARD_API,
            Plugin::Projected => plugin::PROJECTED,
        }
    }

    /// Its name as a directory: `/` becomes `~`.
    pub fn directory(self) -> String {
        self.name().replace('/', "~")
    }

    /// The way back from [`Plugin::directory`]; `None` for a plugin we do not know.
    pub fn from_directory(name: &std::ffi::OsStr) -> Option<Plugin> {
        Plugin::ALL.into_iter().find(|plugin| name == plugin.directory().as_str())
    }
}

/// A root directory that the agent cannot work in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the root directory {} is not an absolute path without \".\" and \"..\"; give one such as /var/lib/kubelet", .0.display())]
pub struct BadRoot(pub PathBuf);

/// The agent's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    pub fn new(root: impl Into<PathBuf>) -> Result<Layout, BadRoot> {
        let root = root.into();
        let clean: PathBuf = root.components().collect();
        let plain = root.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        // Comparing texts: two paths are equal also when one of them says `a//b` or `a/`.
        if root.is_absolute() && plain && clean.as_os_str() == root.as_os_str() {
            Ok(Layout { root })
        } else {
            Err(BadRoot(root))
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn pods(&self) -> PathBuf {
        self.root.join(PODS)
    }

    pub fn plugins(&self) -> PathBuf {
        self.root.join(PLUGINS)
    }

    /// Where registrars put their sockets.
    pub fn registry(&self) -> PathBuf {
        self.root.join(REGISTRY)
    }

    /// Where a driver's registrar listens, by convention.
    pub fn registration_socket(&self, driver: &Name) -> PathBuf {
        self.registry().join(format!("{driver}-reg.sock"))
    }

    /// Where a driver listens, by convention; its registrar says where it really does.
    pub fn endpoint(&self, driver: &Name) -> PathBuf {
        self.plugins().join(driver).join("csi.sock")
    }

    pub fn pod(&self, uid: &Name) -> PodDirectory {
        PodDirectory { path: self.pods().join(uid) }
    }

    /// What the agent keeps for CSI: a directory per driver, and [`Layout::blocks`].
    pub fn csi(&self) -> PathBuf {
        self.plugins().join(plugin::CSI)
    }

    /// The staged volumes of one driver: a directory each, named after its handle.
    pub fn staged_by(&self, driver: &Name) -> PathBuf {
        self.csi().join(driver)
    }

    /// A filesystem volume of a driver on this machine, whoever uses it.
    pub fn staged(&self, driver: &Name, handle: &str) -> Staged {
        Staged { directory: self.staged_by(driver).join(names::hex_digest(&[handle])) }
    }

    /// The block volumes of all drivers: a directory each, next to `staging` and `publish`.
    pub fn blocks(&self) -> PathBuf {
        self.csi().join(DEVICES)
    }

    /// A block volume on this machine.
    pub fn block(&self, volume: &Name) -> Result<Block, BadName> {
        // Both are taken by directories that all volumes share (NODE-2, block quirk).
        if matches!(volume.as_str(), STAGING | PUBLISH) {
            return Err(BadName::Reserved(volume.to_string()));
        }
        Ok(Block { blocks: self.blocks(), volume: volume.clone() })
    }

    /// Where the block devices of local volumes are mounted.
    pub fn local_mounts(&self) -> PathBuf {
        self.plugins().join(plugin::LOCAL).join("mounts")
    }

    pub fn local_mount(&self, volume: &Name) -> PathBuf {
        self.local_mounts().join(volume)
    }

    /// The local volumes that pods have as devices. With `~`, unlike [`Layout::local_mounts`].
    pub fn local_blocks(&self) -> PathBuf {
        self.plugins().join(Plugin::Local.directory()).join(DEVICES)
    }

    /// The map directory of a local volume in block mode.
    pub fn local_block(&self, volume: &Name) -> PathBuf {
        self.local_blocks().join(volume)
    }
}

/// The directory of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDirectory {
    path: PathBuf,
}

impl PodDirectory {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its filesystem volumes: `<plugin>/<volume>`.
    pub fn volumes(&self) -> PathBuf {
        self.path.join(VOLUMES)
    }

    /// Its block volumes: `<plugin>/<volume>`, a symbolic link each.
    pub fn devices(&self) -> PathBuf {
        self.path.join(DEVICES)
    }

    /// What plugins keep for this pod.
    pub fn plugins(&self) -> PathBuf {
        self.path.join(PLUGINS)
    }

    pub fn volume(&self, plugin: Plugin, volume: &Name) -> PathBuf {
        self.volumes().join(plugin.directory()).join(volume)
    }

    /// A CSI volume, which has a directory around it.
    pub fn csi(&self, volume: &Name) -> Published {
        Published { directory: self.volume(Plugin::Csi, volume) }
    }

    /// The link that the container runtime gets.
    pub fn device(&self, plugin: Plugin, volume: &Name) -> PathBuf {
        self.devices().join(plugin.directory()).join(volume)
    }

    /// The parts of volumes that containers get: `<volume>/<container>/<index>`.
    pub fn sub_paths(&self) -> PathBuf {
        self.path.join(SUB_PATHS)
    }

    pub fn sub_paths_of(&self, volume: &Name) -> PathBuf {
        self.sub_paths().join(volume)
    }

    /// `index` counts the mounts of the container.
    pub fn sub_path(&self, volume: &Name, container: &Name, index: usize) -> PathBuf {
        self.sub_paths_of(volume).join(container).join(index.to_string())
    }

    /// There once a plugin has finished a volume.
    pub fn ready_marker(&self, plugin: Plugin, volume: &Name) -> PathBuf {
        self.plugins().join(plugin.directory()).join(volume).join("ready")
    }
}

/// A staged filesystem volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    directory: PathBuf,
}

impl Staged {
    /// One of the directories in [`Layout::staged_by`].
    pub fn from_path(directory: PathBuf) -> Staged {
        Staged { directory }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// `staging_target_path`.
    pub fn mount(&self) -> PathBuf {
        self.directory.join(GLOBAL_MOUNT)
    }

    pub fn data(&self) -> PathBuf {
        self.directory.join(data::FILE)
    }

    /// Whether this is where a volume with this handle is staged: all that is known when its metadata is damaged.
    pub fn is_of(&self, handle: &str) -> bool {
        self.directory.file_name().is_some_and(|name| name == names::hex_digest(&[handle]).as_str())
    }
}

/// A filesystem volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    directory: PathBuf,
}

impl Published {
    /// One of the directories in `volumes/kubernetes.io~csi`.
    pub fn from_path(directory: PathBuf) -> Published {
        Published { directory }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// `target_path`. The driver makes it, never the agent.
    pub fn mount(&self) -> PathBuf {
        self.directory.join(MOUNT)
    }

    pub fn data(&self) -> PathBuf {
        self.directory.join(data::FILE)
    }
}

/// A block volume of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    blocks: PathBuf,
    volume: Name,
}

impl Block {
    /// `staging_target_path`, a directory.
    pub fn staging(&self) -> PathBuf {
        self.blocks.join(STAGING).join(&self.volume)
    }

    /// The directory of [`Block::publish`].
    pub fn published(&self) -> PathBuf {
        self.blocks.join(PUBLISH).join(&self.volume)
    }

    /// `target_path`, a file that the driver makes.
    pub fn publish(&self, pod: &Name) -> PathBuf {
        self.published().join(pod)
    }

    pub fn directory(&self) -> PathBuf {
        self.blocks.join(&self.volume)
    }

    /// The global map path: a bind mount of the device per pod.
    pub fn map(&self) -> PathBuf {
        self.directory().join("dev")
    }

    pub fn mapped(&self, pod: &Name) -> PathBuf {
        self.map().join(pod)
    }

    pub fn data(&self) -> PathBuf {
        self.directory().join("data").join(data::FILE)
    }
}

/// Why the agent's directory cannot be made ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// The mount table has no links in it: what is mounted below would not be found under the other name.
    #[error("the root directory {} is {} under another name; give that one", root.display(), real.display())]
    Linked { root: PathBuf, real: PathBuf },
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Makes the root and what everything else stands in, and lets mounts below it be seen by others (NODE-2).
pub async fn prepare(host: &dyn Host, layout: &Layout) -> Result<(), PrepareError> {
    host.make_directory(layout.root(), DIRECTORY_MODE).await?;
    let real = host.resolve(layout.root()).await?;
    if real != layout.root() {
        return Err(PrepareError::Linked { root: layout.root().to_path_buf(), real });
    }
    host.make_shared(layout.root()).await?;
    for directory in [layout.pods(), layout.plugins(), layout.registry()] {
        host.make_directory(&directory, DIRECTORY_MODE).await?;
    }
    Ok(())
}
