//! Our finalizer leaves a volume that is on its way out once nothing attaches it (ATTACHER-3.8).

use std::time::Duration;

use api::{Key, Volume};
use lifecycle::attacher::volume::decide;
use runtime::{Patch, Verdict};
use serde_json::json;

use super::Attacher;

const ROUNDS: usize = 16;

impl Attacher {
    pub(super) async fn volume(&self, name: Box<str>) -> Verdict {
        let key = Key::cluster(&name);
        for _ in 0..ROUNDS {
            let Some(volume) = self.volumes.get(&key) else { return Verdict::Done };
            // An attachment of a volume that is going is never carried out, so that one which the cache lacks has
            // published nothing.
            let user = self.users.first(&name);
            if decide(&volume, &self.about, user.as_ref().map(|user| user.name())).is_rest() {
                return Verdict::Done;
            }
            let held = volume.meta.finalizers.iter().map(|held| held.as_str());
            let kept: Vec<&str> = held.filter(|held| *held != self.about.finalizer).collect();
            let patch = Patch::Merge(json!({"metadata": {
                "uid": volume.meta.uid,
                "resourceVersion": volume.meta.revision.to_string(),
                "finalizers": kept,
            }}));
            let Err(error) = self.context.patch::<Volume>(&key, &patch).await else { continue };
            if let Err(error) = self.context.reconsider::<Volume>(&key, error).await {
                return Verdict::Failed(error.to_string());
            }
        }
        Verdict::Again(Duration::ZERO)
    }
}
