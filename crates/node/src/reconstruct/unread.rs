//! Volumes whose metadata is damaged: what the API knows may still say which they are (NODE-31.1, NODE-31.8).

use api::{Key, Kind, Uid, Volume};
use lifecycle::Notice;
use lifecycle::attach::Target;
use lifecycle::node::{Held, Origin};
use runtime::Live;
use runtime::client::{Extent, Selection};

use crate::Agent;
use crate::actual::What;
use crate::agent::Unread;
use crate::layout::{Lifecycle, Name, Staged, VolumeData, inline_handle};
use crate::pods::VolumeSource;

/// Objects that are read at once in a search.
const PAGE: u32 = 100;

impl Agent {
    /// Tries again to find out what damaged metadata was about. What stays unknown stays on the list, and on disk.
    pub(crate) async fn retry_unread(&self) {
        let unread = std::mem::take(&mut self.world().unread);
        for one in unread {
            self.metrics.recovered.inc();
            let recovered = match &one {
                Unread::Staged { driver, directory } => {
                    self.staged_of(driver, &Staged::from_path(directory.clone())).await
                }
                Unread::Published { pod, spec } => self.published_of(pod, spec).await,
                Unread::Block { volume } => self.block_of(volume).await,
            };
            if recovered {
                tracing::info!(volume = ?one, "damaged metadata was matched with a volume of the cluster");
                self.wake_all();
            } else {
                self.metrics.unrecovered.inc();
                self.world().unread.push(one);
            }
        }
    }

    /// Says once per life what nobody knows: it keeps directories, and may keep something mounted.
    pub(crate) async fn tell_unread(&self) {
        let unread = self.world().unread.clone();
        if unread.is_empty() {
            return;
        }
        self.nodes.synced().await;
        let node = self.nodes.get(&Key::cluster(&self.options.node));
        for one in unread {
            let message = format!(
                "the metadata of {one} is damaged and no PersistentVolume matches it; what may be mounted stays as it is"
            );
            tracing::warn!(message);
            if let Some(node) = &node {
                self.notices.always(&**node, &Notice::warning("VolumeUnknown", message));
            }
        }
    }

    /// A handle whose hash is the directory's name.
    async fn staged_of(&self, driver: &Name, staged: &Staged) -> bool {
        let named = |volume: &Volume| {
            let target = Target::of_volume(volume).ok().flatten()?;
            (*target.driver == *driver.as_str() && staged.is_of(&target.handle)).then_some(target.handle)
        };
        let handle = match self.held_handle(driver, staged) {
            Some(handle) => Some(handle),
            None => self.search_volumes(named).await,
        };
        let Some(handle) = handle else { return false };
        let kept = VolumeData { driver: driver.to_string(), handle: handle.to_string(), ..VolumeData::default() };
        if let Err(error) = crate::layout::data::store(&*self.host, &staged.data(), &kept).await {
            tracing::warn!(%error, "recovered metadata could not be written");
        }
        let mounts = self.host.mounts().await.unwrap_or_default();
        let mount = staged.mount();
        let held = match mounts.at(&mount).is_some() {
            true if self.is_dead(&mount).await => Held::Corrupted,
            true => Held::Maybe(Origin::Seen),
            false => Held::Maybe(Origin::Recorded),
        };
        self.found_staged(&kept, held);
        true
    }

    /// A pod that has the volume has metadata of its own.
    fn held_handle(&self, driver: &Name, staged: &Staged) -> Option<Box<str>> {
        self.world().actual.values().find_map(|entry| match &entry.what {
            What::Csi { driver: of, handle, .. } if of == driver && staged.is_of(handle) => Some(handle.clone()),
            What::Csi { .. } | What::InTree { .. } | What::LocalDevice { .. } => None,
        })
    }

    /// The first of all volumes that has what is looked for. An agent that keeps few of them has to ask the server for all;
    /// that is for what happens rarely.
    pub(crate) async fn search_volumes<R>(&self, found: impl Fn(&Volume) -> Option<R>) -> Option<R> {
        let cache = self.context.cache::<Volume>();
        if cache.extent() == Extent::All && cache.is_synced() {
            return cache.walk().find_map(|volume| found(&volume));
        }
        let (all, mut next): (_, Option<String>) = (Selection::default(), None);
        loop {
            let page = match self.context.client.list::<Volume>(Kind::VOLUME, &all, PAGE, next.as_deref()).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!(%error, "the volumes cannot be searched now");
                    return None;
                }
            };
            if let Some(found) = page.items.iter().find_map(&found) {
                return Some(found);
            }
            next = Some(page.next?);
        }
    }

    /// The directory is named after the PersistentVolume, or after the volume of a pod that may still be there.
    async fn published_of(&self, pod: &Uid, spec: &Name) -> bool {
        let kept = match self.inline_of(pod, spec) {
            Some(kept) => Some(kept),
            None => self.volume_named(spec).await,
        };
        let (Some(kept), Ok(uid)) = (kept, Name::new(pod.as_str())) else { return false };
        // Without the mount table nothing shows that the volume is attached here.
        let mounts = self.host.mounts().await.unwrap_or_default();
        let origin = match mounts.at(&self.options.layout.pod(&uid).csi(spec).mount()) {
            Some(_) => Origin::Seen,
            None => Origin::Recorded,
        };
        self.found_published(&kept, &uid, spec, Held::Maybe(origin));
        true
    }

    /// A volume that stands in the pod itself: its handle follows from its names (NODE-2.2).
    fn inline_of(&self, uid: &Uid, spec: &Name) -> Option<VolumeData> {
        let pod = self.by_uid.first(uid.as_str())?;
        let volume = pod.volumes.iter().find(|volume| *volume.name == *spec.as_str())?;
        let VolumeSource::Csi(csi) = &volume.source else { return None };
        Some(VolumeData {
            driver: csi.driver.to_string(),
            handle: inline_handle(uid.as_str(), spec.as_str()),
            volume: Some(spec.to_string()),
            lifecycle: Some(Lifecycle::Ephemeral),
            ..VolumeData::default()
        })
    }

    async fn block_of(&self, volume: &Name) -> bool {
        let Some(kept) = self.volume_named(volume).await else { return false };
        // Without the mount table nothing shows that the volume is attached here.
        let mounts = self.host.mounts().await.unwrap_or_default();
        match self.found_block(&kept, volume, &mounts).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "a block volume cannot be looked at");
                false
            }
        }
    }

    async fn volume_named(&self, name: &Name) -> Option<VolumeData> {
        let volume = match self.context.read::<Volume>(&Key::cluster(name.as_str())).await {
            Ok(Live::Found(volume)) => volume,
            Ok(Live::Absent) => return None,
            Err(error) => {
                tracing::warn!(%error, "the volume cannot be read now");
                return None;
            }
        };
        // Also one of an in-tree plugin that a driver took over.
        let target = Target::of_volume(&volume).ok().flatten()?;
        Some(VolumeData {
            driver: target.driver.to_string(),
            handle: target.handle.to_string(),
            volume: Some(name.to_string()),
            lifecycle: Some(Lifecycle::Persistent),
            ..VolumeData::default()
        })
    }
}
