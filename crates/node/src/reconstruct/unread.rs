//! Volumes whose metadata is damaged: what the API knows may still say which they are (weaknesses node 31 #1 #8).

use api::{Key, Volume};
use lifecycle::attach::Target;
use lifecycle::node::{Held, Origin};

use crate::Agent;
use crate::agent::Unread;
use crate::layout::{Lifecycle, Name, Staged, VolumeData};

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
                Unread::Published { pod, spec } => self.published_of(pod.as_str(), spec),
                Unread::Block { volume } => self.block_of(volume).await,
            };
            if !recovered {
                tracing::warn!(volume = ?one, "nobody knows what this volume is; it stays as it is");
                self.metrics.unrecovered.inc();
                self.world().unread.push(one);
            }
        }
    }

    /// A handle whose hash is the directory's name.
    async fn staged_of(&self, driver: &Name, staged: &Staged) -> bool {
        let handle = self.context.cache::<Volume>().walk().find_map(|volume| {
            let target = Target::of_volume(&volume).ok().flatten()?;
            (*target.driver == *driver.as_str() && staged.is_of(&target.handle)).then_some(target.handle)
        });
        let Some(handle) = handle else { return false };
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

    /// The directory is named after the PersistentVolume.
    fn published_of(&self, pod: &str, spec: &Name) -> bool {
        let (Some(kept), Ok(uid)) = (self.volume_named(spec), Name::new(pod)) else { return false };
        self.found_published(&kept, &uid, spec, Held::Maybe(Origin::Seen));
        true
    }

    async fn block_of(&self, volume: &Name) -> bool {
        let Some(kept) = self.volume_named(volume) else { return false };
        match self.found_block(&kept, volume).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "a block volume cannot be looked at");
                false
            }
        }
    }

    fn volume_named(&self, name: &Name) -> Option<VolumeData> {
        let volume = self.context.cache::<Volume>().get(&Key::cluster(name.as_str()))?;
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
