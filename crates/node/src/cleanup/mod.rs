//! Directories of pods, once nothing in them is mounted (NODE-22).

use api::Uid;

use crate::Agent;
use crate::layout::Name;
use crate::orphans::{Swept, sweep};

impl Agent {
    /// Removes the directory of a pod that has nothing any more. Gives whether it is gone.
    pub(crate) async fn clear_pod_directory(&self, uid: &Uid) -> bool {
        let Ok(uid) = Name::new(uid.as_str()) else { return true };
        match sweep(&*self.host, &self.options.layout, &uid).await {
            Swept::Removed => true,
            Swept::Kept(reasons) => {
                for because in reasons {
                    tracing::warn!(pod = %uid, %because, "the directory of a pod stays");
                }
                false
            }
        }
    }

    /// The directory of a pod whose object is gone goes with its last volume.
    pub(crate) async fn clear_if_orphaned(&self, uid: &Uid) {
        let held = !self.world().held_by(uid).is_empty();
        if !held && !self.by_uid.any(uid.as_str()) {
            self.clear_pod_directory(uid).await;
        }
    }

    /// Removes directories of pods that nobody knows: neither the server, nor the agent as holders of a volume.
    pub(crate) async fn sweep_orphans(&self) {
        let Ok(directories) = self.host.list(&self.options.layout.pods()).await else { return };
        let (mut orphans, mut kept) = (0, 0);
        for directory in directories {
            let Some(uid) = Name::found(&directory.name).map(|name| Uid::from(name.as_str())) else { continue };
            let held = {
                let world = self.world();
                !world.known || !world.held_by(&uid).is_empty() || world.desired.pod(&uid).is_some()
            };
            if !held && !self.by_uid.any(uid.as_str()) {
                orphans += 1;
                if !self.clear_pod_directory(&uid).await {
                    kept += 1;
                }
            }
        }
        self.metrics.swept.set(orphans);
        self.metrics.unswept.set(kept);
    }
}
