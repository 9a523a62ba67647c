//! At the start: what earlier runs left on this machine, from its disk and its mount table (NODE-21).
//!
//! Not only pods' directories are looked at, but everything that the agent keeps: what was staged and had no pod at the
//! moment of a crash is found as well (NODE-31.2, NODE-30.8, NODE-30.9). Each volume is one of three: healthy
//! and finished, then it is left alone; in doubt, then it is asked for again if a pod wants it and taken away if none does;
//! or dead. Whether mounts live is asked of all at once, for a moment only: hundreds that do not answer cost no
//! more than one, and are looked at again later.

mod unread;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::Uid;
use futures_util::stream::{self, StreamExt as _};
use lifecycle::attach::unique_name;
use lifecycle::node::selinux::Label;
use lifecycle::node::{Held, Origin};

use crate::Agent;
use crate::actual::{Attachable, Entry, PodEntry, Shape, VolumeId, What};
use crate::agent::Unread;
use crate::host::{Found, HostError, Mounts};
use crate::layout::{Block, Lifecycle, Name, Plugin, Staged, Stored, VolumeData, data, per_pod_name};

/// How long a mount is waited for while nothing else goes on.
const GLANCE: Duration = Duration::from_secs(1);

/// How many mounts are looked at at once.
const AT_ONCE: usize = 256;

/// The SELinux context that a volume was mounted with.
fn context(kept: &VolumeData) -> Option<Label> {
    kept.selinux.as_deref().and_then(Label::parse)
}

/// The mount table, what of it is dead, and which boot it is of.
struct Scene {
    mounts: Mounts,
    dead: BTreeSet<PathBuf>,
    boot: Option<String>,
}

/// Whether a call to a driver has surely ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finished {
    Yes,
    Unknown,
}

impl Scene {
    /// What metadata and the mount table say together about one mount point. A dead mount is taken away whoever made it;
    /// metadata of an earlier boot is not about a mount of this one.
    fn held(&self, mount: &Path, kept: &VolumeData, finished: Finished) -> Held {
        let there = self.mounts.at(mount).is_some();
        match (there, kept.is_of_earlier_boot(self.boot.as_deref()), finished) {
            (true, _, _) if self.dead.contains(mount) => Held::Corrupted,
            (true, false, Finished::Yes) => Held::Yes,
            (true, false, Finished::Unknown) => Held::Maybe(Origin::Seen),
            (true, true, _) | (false, _, _) => Held::Maybe(Origin::Recorded),
        }
    }
}

impl Agent {
    /// Finds everything. A path that does not answer is left for later, and stops nothing else.
    pub(crate) async fn reconstruct(&self) -> Result<(), HostError> {
        let scene = &self.survey().await?;
        self.find_staged(scene).await?;
        self.find_blocks(&scene.mounts).await?;
        self.find_local().await?;
        self.find_local_devices().await?;
        for entry in self.host.list(&self.options.layout.pods()).await? {
            if let Some(uid) = Name::found(&entry.name) {
                self.find_pod(&uid, scene).await?;
            }
        }
        let found = self.world().actual.len();
        tracing::info!(volumes = found, "what earlier runs left was found");
        Ok(())
    }

    /// Looks at every mount below the root (NODE-31.9).
    async fn survey(&self) -> Result<Scene, HostError> {
        let mounts = self.host.mounts().await?;
        let root = self.options.layout.root();
        let points: BTreeSet<PathBuf> = mounts.under(root).map(|mount| mount.point.clone()).collect();
        let glances = stream::iter(points.into_iter().filter(|point| point != root))
            .map(|point| async move { self.is_dead(&point).await.then_some(point) });
        let dead = glances.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect::<Vec<_>>().await;
        let dead = dead.into_iter().collect();
        Ok(Scene { mounts, dead, boot: self.boot() })
    }

    /// Whether a mount is known to be dead after a moment. What does not answer is looked at again when there is time.
    async fn is_dead(&self, point: &Path) -> bool {
        match tokio::time::timeout(GLANCE, self.host.find(point)).await {
            Ok(Ok(Found::Corrupted { errno, message })) => {
                tracing::warn!(path = %point.display(), errno, message, "a mount is dead");
                return true;
            }
            Ok(Ok(_)) => return false,
            Ok(Err(error)) => tracing::warn!(%error, "a mount cannot be looked at"),
            Err(_) => tracing::warn!(path = %point.display(), "a mount does not answer at once"),
        }
        self.look_again.notify_one();
        false
    }

    /// Everything that drivers staged here, with or without a pod.
    async fn find_staged(&self, scene: &Scene) -> Result<(), HostError> {
        let layout = &self.options.layout;
        let blocks = layout.blocks();
        for driver in self.host.list(&layout.csi()).await? {
            let Some(driver) =
                Name::found(&driver.name).filter(|name| blocks.file_name() != Some(OsStr::new(name.as_str())))
            else {
                continue;
            };
            for volume in self.host.list(&layout.staged_by(&driver)).await? {
                let directory = layout.staged_by(&driver).join(&volume.name);
                let staged = Staged::from_path(directory.clone());
                self.metrics.reconstructed.inc();
                match data::load(&*self.host, &staged.data()).await? {
                    Stored::Good(kept) => {
                        let device = scene.held(&staged.mount(), &kept, Finished::Unknown);
                        self.found_staged(&kept, device);
                    }
                    // Somebody removed it: what is mounted is somebody's volume all the same (NODE-13.2.3).
                    Stored::Absent if scene.mounts.at(&staged.mount()).is_some() => {
                        tracing::error!(path = %staged.data().display(), "metadata of a staged volume is missing");
                        self.unreadable(Unread::Staged { driver: driver.clone(), directory });
                    }
                    // A directory without metadata: nothing was ever asked for, or everything was taken away.
                    Stored::Absent => self.clear_empty(&staged).await,
                    Stored::Damaged(why) => {
                        tracing::error!(path = %staged.data().display(), %why, "metadata of a staged volume is damaged");
                        self.unreadable(Unread::Staged { driver: driver.clone(), directory });
                    }
                }
            }
        }
        Ok(())
    }

    fn found_staged(&self, kept: &VolumeData, device: Held) {
        let Ok(driver) = Name::new(&kept.driver) else { return };
        let id = VolumeId::from(unique_name(&kept.driver, &kept.handle));
        let what = What::Csi { driver, handle: kept.handle.as_str().into(), shape: Shape::Filesystem };
        let mut world = self.world();
        let entry = world.actual.entry(id).or_insert_with(|| Entry::new(what, Attachable::Unknown));
        entry.device = device;
        entry.context = context(kept).or(entry.context.take());
    }

    /// Directories of staged volumes that nobody knows and that could not be removed when they were found.
    pub(crate) async fn sweep_staged(&self) {
        let layout = &self.options.layout;
        let blocks = layout.blocks();
        for driver in self.host.list(&layout.csi()).await.unwrap_or_default() {
            let Some(driver) = Name::found(&driver.name).filter(|_| blocks.file_name() != Some(&driver.name)) else {
                continue;
            };
            for volume in self.host.list(&layout.staged_by(&driver)).await.unwrap_or_default() {
                let staged = Staged::from_path(layout.staged_by(&driver).join(&volume.name));
                let known = self.world().actual.values().any(|entry| match &entry.what {
                    What::Csi { handle, .. } => staged.is_of(handle),
                    What::InTree { .. } | What::LocalDevice { .. } => false,
                });
                if !known && matches!(data::load(&*self.host, &staged.data()).await, Ok(Stored::Absent)) {
                    self.clear_empty(&staged).await;
                }
            }
        }
    }

    /// An empty directory that a crash left goes; anything else stays and is said.
    async fn clear_empty(&self, staged: &Staged) {
        if let Err(error) = self.remove_staged(staged).await {
            tracing::warn!(%error, "a directory of a staged volume has no metadata and is not empty");
        }
    }

    /// Devices that drivers gave to this machine.
    async fn find_blocks(&self, mounts: &Mounts) -> Result<(), HostError> {
        for volume in self.host.list(&self.options.layout.blocks()).await? {
            let Some(block) =
                Name::found(&volume.name).and_then(|name| self.options.layout.block(&name).ok().map(|b| (name, b)))
            else {
                continue;
            };
            let (name, block) = block;
            self.metrics.reconstructed.inc();
            match data::load(&*self.host, &block.data()).await? {
                Stored::Good(kept) => self.found_block(&kept, &name, mounts).await?,
                // Metadata comes first and goes last: without it and without content nobody was asked for anything.
                Stored::Absent if self.clear_unasked(&block).await.is_ok() => {}
                Stored::Absent | Stored::Damaged(_) => self.unreadable(Unread::Block { volume: name }),
            }
        }
        Ok(())
    }

    pub(crate) async fn found_block(&self, kept: &VolumeData, volume: &Name, mounts: &Mounts) -> Result<(), HostError> {
        let (Ok(driver), Ok(block)) = (Name::new(&kept.driver), self.options.layout.block(volume)) else {
            return Ok(());
        };
        let id = VolumeId::from(unique_name(&kept.driver, &kept.handle));
        let shape = Shape::Block { volume: volume.clone() };
        let what = What::Csi { driver, handle: kept.handle.as_str().into(), shape };
        let mut pods: Vec<Uid> = Vec::new();
        // A pod has it if any of the places that are made for a pod is there (NODE-30.9).
        for directory in [block.map(), block.published()] {
            let children = self.host.list(&directory).await?;
            pods.extend(children.iter().filter_map(|child| Some(Uid::from(Name::found(&child.name)?.as_str()))));
        }
        let origin = match self.has_device(kept, &block, mounts).await? {
            true => Origin::Seen,
            false => Origin::Recorded,
        };
        let mut world = self.world();
        let entry = world.actual.entry(id).or_insert_with(|| Entry::new(what, Attachable::Unknown));
        entry.device = Held::Maybe(origin);
        for pod in pods {
            let held = PodEntry::found(volume, Held::Maybe(origin));
            entry.pods.entry(pod).or_insert(held);
        }
        Ok(())
    }

    /// Whether a device of this boot is there: a mount in one of the volume's places, or a device or a link that a driver
    /// published. Such files outlive a reboot, so they count only with metadata that is surely of this boot.
    async fn has_device(&self, kept: &VolumeData, block: &Block, mounts: &Mounts) -> Result<bool, HostError> {
        let boot = self.boot();
        if kept.is_of_earlier_boot(boot.as_deref()) {
            return Ok(false);
        }
        let places = [block.staging(), block.published(), block.map()];
        if places.iter().any(|place| mounts.under(place).next().is_some()) {
            return Ok(true);
        }
        if kept.boot.is_none() || kept.boot != boot {
            return Ok(false);
        }
        for pod in self.host.list(&block.published()).await? {
            let found = self.host.find(&block.published().join(&pod.name)).await?;
            if matches!(found, Found::Device | Found::Symlink) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Devices of local volumes that are mounted for the machine.
    async fn find_local(&self) -> Result<(), HostError> {
        for volume in self.host.list(&self.options.layout.local_mounts()).await? {
            let Some(name) = Name::found(&volume.name) else { continue };
            let id = VolumeId::from(format!("{}/{name}", Plugin::Local.name()));
            let new = || Entry::new(What::InTree { plugin: Plugin::Local, name: name.clone() }, Attachable::No);
            self.world().actual.entry(id).or_insert_with(new).device = Held::Maybe(Origin::Seen);
        }
        Ok(())
    }

    /// Local volumes that pods have as devices. The file of a pod is there before anything else of its device, and goes last.
    async fn find_local_devices(&self) -> Result<(), HostError> {
        for volume in self.host.list(&self.options.layout.local_blocks()).await? {
            let Some(name) = Name::found(&volume.name) else { continue };
            self.metrics.reconstructed.inc();
            let pods = self.host.list(&self.options.layout.local_block(&name)).await?;
            let id = VolumeId::from(format!("{}/{name}", Plugin::Local.name()));
            let mut world = self.world();
            let new = || Entry::new(What::LocalDevice { name: name.clone() }, Attachable::No);
            let entry = world.actual.entry(id).or_insert_with(new);
            for pod in pods.iter().filter_map(|pod| Name::found(&pod.name)) {
                let held = PodEntry::found(&name, Held::Maybe(Origin::Seen));
                entry.pods.insert(pod.as_str().into(), held);
            }
        }
        Ok(())
    }

    /// The volumes of one pod.
    async fn find_pod(&self, uid: &Name, scene: &Scene) -> Result<(), HostError> {
        let directory = self.options.layout.pod(uid);
        for plugin in self.host.list(&directory.volumes()).await? {
            let Some(plugin) = Plugin::from_directory(&plugin.name) else { continue };
            for volume in self.host.list(&directory.volumes().join(plugin.directory())).await? {
                let Some(spec) = Name::found(&volume.name) else { continue };
                self.metrics.reconstructed.inc();
                match plugin {
                    Plugin::Csi => self.find_published(uid, &spec, scene).await?,
                    other => self.found_in_tree(other, uid, &spec),
                }
            }
        }
        Ok(())
    }

    async fn find_published(&self, uid: &Name, spec: &Name, scene: &Scene) -> Result<(), HostError> {
        let place = self.options.layout.pod(uid);
        let published = place.csi(spec);
        match data::load(&*self.host, &published.data()).await? {
            Stored::Good(kept) => {
                let marker = place.ready_marker(Plugin::Csi, spec);
                let finished = match self.host.find(&marker).await? {
                    Found::File => Finished::Yes,
                    _ => Finished::Unknown,
                };
                let held = scene.held(&published.mount(), &kept, finished);
                self.found_published(&kept, uid, spec, held);
            }
            // Nothing was ever asked for: metadata comes first.
            Stored::Absent if scene.mounts.at(&published.mount()).is_none() => {
                if let Err(error) = self.remove_published(&published).await {
                    tracing::warn!(%error, "a pod's volume directory has no metadata and is not empty");
                }
            }
            Stored::Absent | Stored::Damaged(_) => {
                tracing::error!(path = %published.data().display(), "metadata of a published volume is damaged");
                self.unreadable(Unread::Published { pod: uid.as_str().into(), spec: spec.clone() });
            }
        }
        Ok(())
    }

    pub(crate) fn found_published(&self, kept: &VolumeData, uid: &Name, spec: &Name, held: Held) {
        let Ok(driver) = Name::new(&kept.driver) else { return };
        let inline = kept.lifecycle == Some(Lifecycle::Ephemeral);
        let (id, shape) = match inline {
            true => (per_pod_name(Plugin::Csi, uid.as_str(), spec.as_str()), Shape::Inline),
            false => (unique_name(&kept.driver, &kept.handle), Shape::Filesystem),
        };
        let what = What::Csi { driver, handle: kept.handle.as_str().into(), shape };
        let attachable = if inline { Attachable::No } else { Attachable::Unknown };
        let mut world = self.world();
        let entry = world.actual.entry(id.into()).or_insert_with(|| Entry::new(what, attachable));
        entry.pods.insert(uid.as_str().into(), PodEntry::found(spec, held));
        entry.context = context(kept).or(entry.context.take());
        entry.device = match (entry.device, held) {
            // What a pod has was staged: it needs no second call to know that.
            (Held::Maybe(_), Held::Yes) => Held::Yes,
            // A driver need not mount anything to stage a volume: a pod's mount shows as well that it is attached here.
            (Held::Maybe(Origin::Recorded), Held::Maybe(Origin::Seen) | Held::Corrupted) => Held::Maybe(Origin::Seen),
            (device, _) => device,
        };
    }

    fn found_in_tree(&self, plugin: Plugin, uid: &Name, spec: &Name) {
        let id = match plugin {
            Plugin::Local => format!("{}/{spec}", plugin.name()),
            _ => per_pod_name(plugin, uid.as_str(), spec.as_str()),
        };
        if !matches!(plugin, Plugin::EmptyDir | Plugin::HostPath | Plugin::Local | Plugin::Nfs) {
            return;
        }
        let mut world = self.world();
        let new = || Entry::new(What::InTree { plugin, name: spec.clone() }, Attachable::No);
        let entry = world.actual.entry(id.into()).or_insert_with(new);
        if plugin == Plugin::Local {
            entry.device = Held::Maybe(Origin::Seen);
        }
        let held = PodEntry::found(spec, Held::Maybe(Origin::Seen));
        entry.pods.insert(uid.as_str().into(), held);
    }

    fn unreadable(&self, unread: Unread) {
        self.metrics.unreadable.inc();
        let mut world = self.world();
        if !world.unread.contains(&unread) {
            world.unread.push(unread);
        }
    }
}
