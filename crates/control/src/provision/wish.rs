//! What most provisioners write into the PersistentVolume of a claim (PROVISION-2.10).

use api::keys::{annotation, finalizer};
use api::{Amount, Kind, VolumeMode};
use serde_json::{Value, json};

use super::Wish;

impl Wish {
    /// The PersistentVolume of this wish as `provisioner` would store it, complete but for its source.
    pub fn volume(&self, provisioner: &str) -> Value {
        let Wish { claim, class, volume_name, .. } = self;
        let modes: Vec<&str> = claim.access.iter().map(api::AccessMode::name).collect();
        let mut spec = json!({
            "accessModes": modes,
            "capacity": {"storage": claim.request.as_ref().map_or("0", Amount::text)},
            "storageClassName": claim.class().text(),
            "mountOptions": class.mount_options,
            "volumeMode": match claim.mode {
                VolumeMode::Filesystem => "Filesystem",
                VolumeMode::Block => "Block",
            },
            "claimRef": {
                "apiVersion": Kind::CLAIM.api_version(),
                "kind": Kind::CLAIM.kind,
                "namespace": claim.namespace(),
                "name": claim.name(),
                "uid": claim.uid(),
                "resourceVersion": claim.meta.revision.to_string(),
            },
        });
        if let Some(policy) = class.reclaim_policy {
            spec["persistentVolumeReclaimPolicy"] = policy.name().into();
        }
        json!({
            "apiVersion": Kind::VOLUME.api_version(),
            "kind": Kind::VOLUME.kind,
            "metadata": {
                "name": volume_name,
                "annotations": {annotation::PROVISIONED_BY.text(): provisioner},
                "finalizers": [finalizer::EXTERNAL_PROVISIONER.text()],
            },
            "spec": spec,
        })
    }
}
