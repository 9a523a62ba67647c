//! Objects as these tests write them.

use api::keys::{condition, label};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use serde_json::{Value, json};

use super::machine::Machine;

/// A class of this driver.
pub(super) fn class(name: &str, driver: &str, binding: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": driver, "reclaimPolicy": "Delete", "volumeBindingMode": binding})
}

/// The driver as whoever installs it describes it.
pub(super) fn driver(name: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": name}, "spec": {
        "attachRequired": true, "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent", "Ephemeral"]}})
}

/// What a claim is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) access: &'static str,
    pub(super) mode: &'static str,
}

pub(super) const FILES: Wanted = Wanted { access: "ReadWriteOnce", mode: "Filesystem" };
pub(super) const DEVICE: Wanted = Wanted { access: "ReadWriteOnce", mode: "Block" };
pub(super) const FOR_ONE_POD: Wanted = Wanted { access: "ReadWriteOncePod", mode: "Filesystem" };

/// The spec of a claim.
pub(super) fn claim_spec(class: &str, Wanted { access, mode }: Wanted) -> Value {
    json!({"accessModes": [access], "volumeMode": mode, "storageClassName": class,
        "resources": {"requests": {"storage": "64Mi"}}})
}

/// A volume of a pod.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    name: &'static str,
    source: Value,
    device: bool,
}

impl Volume {
    pub(super) fn files(name: &'static str, claim: &str) -> Self {
        Self { name, source: json!({"persistentVolumeClaim": {"claimName": claim}}), device: false }
    }

    pub(super) fn device(name: &'static str, claim: &str) -> Self {
        Self { device: true, ..Self::files(name, claim) }
    }

    pub(super) fn of(name: &'static str, source: Value) -> Self {
        Self { name, source, device: false }
    }
}

/// A pod that may run on these machines. Whoever schedules decides.
pub(super) fn pod(name: &str, machines: &[&Machine], volumes: &[Volume]) -> Value {
    let names: Vec<&str> = machines.iter().map(|machine| machine.name.as_str()).collect();
    let wanted = json!([{"key": label::HOSTNAME.text(), "operator": "In", "values": names}]);
    let named = |volume: &Volume| {
        let mut source = volume.source.clone();
        source["name"] = json!(volume.name);
        source
    };
    let of = |device: bool| volumes.iter().filter(move |volume| volume.device == device);
    let mounts: Vec<Value> =
        of(false).map(|volume| json!({"name": volume.name, "mountPath": format!("/{}", volume.name)})).collect();
    let devices: Vec<Value> =
        of(true).map(|volume| json!({"name": volume.name, "devicePath": format!("/dev/{}", volume.name)})).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "automountServiceAccountToken": false,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": wanted}]}}},
        "volumes": volumes.iter().map(named).collect::<Vec<_>>(),
        "containers": [{"name": "main", "image": "example/main", "volumeMounts": mounts, "volumeDevices": devices}]}})
}

/// What a pod is told of something.
pub(super) fn told<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|told| told.type_ == kind)
}

/// Whether its volumes are there.
pub(super) fn is_ready(pod: &Pod) -> bool {
    told(pod, condition::VOLUMES_READY).is_some_and(|told| told.status == "True")
}
