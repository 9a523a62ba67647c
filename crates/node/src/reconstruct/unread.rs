//! Volumes whose metadata is damaged: what the API knows may still say which they are (weaknesses node 31 #1 #8).

use api::{Key, Kind, Source, Volume};
use lifecycle::node::{Held, Origin};
use runtime::Live;
use runtime::client::Selection;

use crate::Agent;
use crate::agent::Unread;
use crate::layout::{Lifecycle, Name, Staged, VolumeData};

/// Objects that are read at once in a search.
const PAGE: u32 = 100;

impl Agent {
    /// Tries again to find out what damaged metadata was about. What stays unknown stays on the list, and on disk.
    pub(crate) async fn retry_unread(&self) {
        let unread = std::mem::take(&mut self.world().unread);
        for one in unread {
            let recovered = match &one {
                Unread::Staged { driver, directory } => {
                    self.staged_of(driver, &Staged::from_path(directory.clone())).await
                }
                Unread::Published { pod, spec } => self.published_of(pod.as_str(), spec).await,
                Unread::Block { volume } => self.block_of(volume).await,
            };
            if !recovered {
                tracing::warn!(volume = ?one, "nobody knows what this volume is; it stays as it is");
                self.metrics.unreadable.inc();
                self.world().unread.push(one);
            }
        }
    }

    /// A handle whose hash is the directory's name.
    async fn staged_of(&self, driver: &Name, staged: &Staged) -> bool {
        let named = |volume: &Volume| match &volume.source {
            Source::Csi { driver: of, handle } if **of == *driver.as_str() && staged.is_of(handle) => {
                Some(handle.clone())
            }
            _ => None,
        };
        let Some(handle) = self.search_volumes(named).await else { return false };
        let kept = VolumeData { driver: driver.to_string(), handle: handle.to_string(), ..VolumeData::default() };
        if let Err(error) = crate::layout::data::store(&*self.host, &staged.data(), &kept).await {
            tracing::warn!(%error, "recovered metadata could not be written");
        }
        let mounts = self.host.mounts().await.unwrap_or_default();
        let mount = staged.mount();
        let dead = mounts.at(&mount).is_some() && self.is_dead(&mount).await;
        self.found_staged(&kept, if dead { Held::Corrupted } else { Held::Maybe(Origin::Seen) });
        true
    }

    /// The first of all volumes that has what is looked for. The agent keeps few of them, so that the server is asked; it is
    /// rare enough.
    async fn search_volumes<R>(&self, found: impl Fn(&Volume) -> Option<R>) -> Option<R> {
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

    /// The directory is named after the PersistentVolume.
    async fn published_of(&self, pod: &str, spec: &Name) -> bool {
        let (Some(kept), Ok(uid)) = (self.volume_named(spec).await, Name::new(pod)) else { return false };
        self.found_published(&kept, &uid, spec, Held::Maybe(Origin::Seen));
        true
    }

    async fn block_of(&self, volume: &Name) -> bool {
        let Some(kept) = self.volume_named(volume).await else { return false };
        match self.found_block(&kept, volume).await {
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
        let Source::Csi { driver, handle } = &volume.source else { return None };
        Some(VolumeData {
            driver: driver.to_string(),
            handle: handle.to_string(),
            volume: Some(name.to_string()),
            lifecycle: Some(Lifecycle::Persistent),
            ..VolumeData::default()
        })
    }
}
