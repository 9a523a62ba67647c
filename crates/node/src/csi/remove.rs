//! NodeUnpublishVolume and NodeUnstageVolume: the way back (NODE-13).

use std::path::Path;

use api::Uid;
use csi::v1;
use csi::v1::node_service_capability::rpc::Type as NodeRpc;
use lifecycle::node::Class;
use lifecycle::node::because::Stage;
use lifecycle::outcome::Call;

use super::{Seen, failed, text};
use crate::Agent;
use crate::actual::What;
use crate::host::HostError;
use crate::layout::{Name, Plugin, Published, Staged, data};
use crate::reconcile::{Failure, View};
use crate::volumes::{release_corrupted, sub_path};

impl Agent {
    /// Takes a filesystem volume from a pod. What is on disk is enough for it.
    pub(crate) async fn unpublish(&self, pod: &Uid, view: &View) -> Result<(), Failure> {
        const AT: Stage = Stage::TearDown;
        let What::Csi { handle, .. } = &view.what else { return Ok(()) };
        let Some(held) = view.entry.as_ref().and_then(|entry| entry.pods.get(pod)) else { return Ok(()) };
        let uid = Name::new(pod.as_str()).map_err(|error| Failure::transient(AT, error))?;
        let place = self.options.layout.pod(&uid);
        let published = place.csi(&held.spec);
        let asked = self.ask(&view.what, AT)?;
        // From here on the volume counts as half there: a restart does not take it for finished.
        let marker = place.ready_marker(Plugin::Csi, &held.spec);
        self.host.remove_file(&marker).await.map_err(Failure::host(AT))?;
        sub_path::clean(&*self.host, &place, &held.spec).await.map_err(Failure::host(AT))?;
        let target_path = text(&published.mount());
        let request = v1::NodeUnpublishVolumeRequest { volume_id: handle.to_string(), target_path };
        let answer = asked.driver.node_unpublish_volume(request, self.options.timeout).await;
        answer.map_err(|error| failed(Call::NodeUnpublish, AT, held.held, &error))?;
        self.surely_unmounted(&published.mount(), AT).await?;
        self.remove_published(&published).await.map_err(|error| Failure::of(Class::Uncertain, AT, error))?;
        if let Some(directory) = marker.parent() {
            self.host.remove_directory(directory).await.map_err(|error| Failure::of(Class::Uncertain, AT, error))?;
        }
        Ok(())
    }

    /// Takes a filesystem volume from the machine, once no pod has it.
    pub(crate) async fn unstage(&self, view: &View) -> Result<(), Failure> {
        const AT: Stage = Stage::UnmountDevice;
        let What::Csi { driver, handle, .. } = &view.what else { return Ok(()) };
        let staged = self.options.layout.staged(driver, handle);
        self.unreferenced(&staged).await?;
        let asked = self.ask(&view.what, AT)?;
        if asked.can(NodeRpc::StageUnstageVolume) {
            let staging_target_path = text(&staged.mount());
            let request = v1::NodeUnstageVolumeRequest { volume_id: handle.to_string(), staging_target_path };
            let answer = asked.driver.node_unstage_volume(request, self.options.timeout).await;
            answer.map_err(|error| failed(Call::NodeUnstage, AT, view.device(), &error))?;
        }
        self.surely_unmounted(&staged.mount(), AT).await?;
        self.remove_staged(&staged).await.map_err(|error| Failure::of(Class::Uncertain, AT, error))
    }

    /// Nothing else shows the volume: a mount that leaked keeps it from being unstaged (NODE-13.2.2).
    pub(super) async fn unreferenced(&self, staged: &Staged) -> Result<(), Failure> {
        const AT: Stage = Stage::UnmountDevice;
        let mounts = self.host.mounts().await.map_err(Failure::host(AT))?;
        let path = staged.mount();
        // Copies of the agent's own root show the same directory under another path.
        let below = staged.mount().strip_prefix(self.options.layout.root()).map(Path::to_path_buf).unwrap_or_default();
        let other = mounts.copies(&path).find(|mount| !mount.point.ends_with(&below));
        match other {
            Some(mount) => {
                let message = format!("the volume is still mounted at {}", mount.point.display());
                Err(Failure::of(Class::Uncertain, AT, message))
            }
            None => Ok(()),
        }
    }

    /// The driver says that it is gone; the mount table says whether it is (NODE-31.5). A dead mount that its driver
    /// does not own any more is taken out by the agent.
    async fn surely_unmounted(&self, path: &Path, stage: Stage) -> Result<(), Failure> {
        let uncertain = |error: HostError| Failure::of(Class::Uncertain, stage, error);
        match self.look(path).await {
            Ok(Seen::NotMounted) => Ok(()),
            Ok(Seen::Mounted) => {
                let message =
                    format!("the driver says that the volume is gone, but {} is still mounted", path.display());
                Err(Failure::of(Class::Uncertain, stage, message))
            }
            Ok(Seen::Corrupted(_)) => release_corrupted(&*self.host, path).await.map_err(uncertain),
            Err(error) if error.is_hung() => release_corrupted(&*self.host, path).await.map_err(uncertain),
            Err(error) => Err(uncertain(error)),
        }
    }

    /// Removes what was made for staging, should an earlier removal have failed, or the driver never been asked.
    pub(crate) async fn forget_staged(&self, view: &View) -> Result<(), Failure> {
        let What::Csi { driver, handle, .. } = &view.what else { return Ok(()) };
        let staged = self.options.layout.staged(driver, handle);
        let removed = self.remove_staged(&staged).await;
        removed.map_err(|error| Failure::of(Class::Uncertain, Stage::UnmountDevice, error))
    }

    /// Removes a pod's volume directory: never what is in a volume, never a mount point.
    pub(crate) async fn remove_published(&self, published: &Published) -> Result<(), HostError> {
        self.host.remove_directory(&published.mount()).await?;
        data::remove(&*self.host, &published.data()).await?;
        self.host.remove_directory(published.directory()).await
    }

    pub(crate) async fn remove_staged(&self, staged: &Staged) -> Result<(), HostError> {
        self.host.remove_directory(&staged.mount()).await?;
        data::remove(&*self.host, &staged.data()).await?;
        self.host.remove_directory(staged.directory()).await
    }
}
