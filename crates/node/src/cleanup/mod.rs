//! A pod's directory, once nothing in it is mounted (node 13.1, 22, 25).

use api::Uid;

use crate::Agent;
use crate::host::{Force, HostError};
use crate::layout::{Name, PodDirectory};

impl Agent {
    /// Takes away the parts of a volume that containers had.
    pub(crate) async fn clear_sub_paths(&self, pod: &PodDirectory, volume: &Name) -> Result<(), HostError> {
        let volumes = pod.sub_paths_of(volume);
        for container in self.host.list(&volumes).await? {
            let container = volumes.join(&container.name);
            for part in self.host.list(&container).await? {
                let path = container.join(&part.name);
                self.host.unmount(&path, Force::No).await?;
                match part.is_directory {
                    true => self.host.remove_directory(&path).await?,
                    false => self.host.remove_file(&path).await?,
                }
            }
            self.host.remove_directory(&container).await?;
        }
        self.host.remove_directory(&volumes).await
    }

    /// Removes the directory of a pod that has nothing any more. Gives whether it is gone.
    pub(crate) async fn clear_pod_directory(&self, uid: &Uid) -> bool {
        let Ok(uid) = Name::new(uid.as_str()) else { return true };
        let directory = self.options.layout.pod(&uid);
        let mounts = match self.host.mounts().await {
            Ok(mounts) => mounts,
            Err(error) => {
                tracing::warn!(%error, "the mount table cannot be read");
                return false;
            }
        };
        if let Some(mount) = mounts.under(&self.seen(directory.path())).next() {
            tracing::warn!(pod = %uid, mount = %mount.point.display(), "something is still mounted in the pod's directory");
            return false;
        }
        match self.host.remove_tree(directory.path()).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(pod = %uid, %error, "the pod's directory could not be removed");
                false
            }
        }
    }
}
