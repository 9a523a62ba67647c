//! The way back without a driver, for those that never come back (NODE-31.25). An operator has to ask for it.
//!
//! Only what the agent's own layout says is touched: a mount at the place where the driver was asked to mount. What else the
//! driver did for the volume nobody else can undo.

use std::path::Path;

use api::Uid;
use lifecycle::Notice;
use lifecycle::node::Class;
use lifecycle::node::because::Stage;

use super::Seen;
use crate::Agent;
use crate::actual::What;
use crate::host::HostError;
use crate::layout::{Name, Plugin};
use crate::reconcile::{Failure, View};
use crate::volumes::{release_corrupted, sub_path, unmount_all};

/// The reason of the event that says so.
const REASON: &str = "VolumeUnmountedWithoutDriver";

impl Agent {
    pub(crate) async fn unpublish_alone(&self, pod: &Uid, view: &View) -> Result<(), Failure> {
        const AT: Stage = Stage::TearDown;
        let Some(held) = view.entry.as_ref().and_then(|entry| entry.pods.get(pod)) else { return Ok(()) };
        let uncertain = |error: HostError| Failure::of(Class::Uncertain, AT, error);
        let uid = Name::new(pod.as_str()).map_err(|error| Failure::transient(AT, error))?;
        let place = self.options.layout.pod(&uid);
        let published = place.csi(&held.spec);
        let marker = place.ready_marker(Plugin::Csi, &held.spec);
        self.host.remove_file(&marker).await.map_err(Failure::host(AT))?;
        sub_path::clean(&*self.host, &place, &held.spec).await.map_err(Failure::host(AT))?;
        self.unmount_alone(&published.mount(), AT).await?;
        self.remove_published(&published).await.map_err(uncertain)?;
        if let Some(directory) = marker.parent() {
            self.host.remove_directory(directory).await.map_err(uncertain)?;
        }
        self.tell_alone(view, Some(pod), &published.mount()).await;
        Ok(())
    }

    pub(crate) async fn unstage_alone(&self, view: &View) -> Result<(), Failure> {
        const AT: Stage = Stage::UnmountDevice;
        let What::Csi { driver, handle, .. } = &view.what else { return Ok(()) };
        let staged = self.options.layout.staged(driver, handle);
        self.unreferenced(&staged).await?;
        self.unmount_alone(&staged.mount(), AT).await?;
        self.remove_staged(&staged).await.map_err(|error| Failure::of(Class::Uncertain, AT, error))?;
        self.tell_alone(view, None, &staged.mount()).await;
        Ok(())
    }

    /// Unmounts what is at a path of the agent's own. What is mounted below it is somebody else's, and stays with it.
    pub(crate) async fn unmount_alone(&self, path: &Path, stage: Stage) -> Result<(), Failure> {
        let uncertain = |error: HostError| Failure::of(Class::Uncertain, stage, error);
        let mounts = self.host.mounts().await.map_err(uncertain)?;
        if let Some(other) = mounts.under(path).find(|mount| mount.point != path) {
            let message = format!("{} is mounted below the volume; it is not unmounted", other.point.display());
            return Err(Failure::of(Class::Uncertain, stage, message));
        }
        match self.look(path).await {
            Ok(Seen::NotMounted) => Ok(()),
            Ok(Seen::Mounted) => unmount_all(&*self.host, path).await.map_err(uncertain),
            Ok(Seen::Corrupted(_)) => release_corrupted(&*self.host, path).await.map_err(uncertain),
            Err(error) if error.is_hung() => release_corrupted(&*self.host, path).await.map_err(uncertain),
            Err(error) => Err(uncertain(error)),
        }
    }

    /// Says what was done without the driver: to the pod, or else to the volume.
    pub(crate) async fn tell_alone(&self, view: &View, pod: Option<&Uid>, path: &Path) {
        let What::Csi { driver, handle, .. } = &view.what else { return };
        let message = format!(
            "Unmounted {} without the driver {driver}, which has been away for too long; what else it did for the volume \
             stays as it is",
            path.display()
        );
        tracing::warn!(volume = %handle, %driver, path = %path.display(), "unmounted without the driver");
        self.metrics.unmounted_alone(driver.as_str());
        let notice = Notice::warning(REASON, message);
        let pod = pod.and_then(|uid| self.by_uid.first(uid.as_str()));
        match pod {
            Some(pod) => self.notices.always(&*pod, &notice),
            None => {
                if let Some(volume) = self.volume_of(&view.what).await {
                    self.notices.always(&*volume, &notice);
                }
            }
        }
    }
}
