//! What is left of pods and claims that are gone, looked for everywhere.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::Value;

use super::machine::Machine;
use super::room::Room;
use crate::rig::left::{entries, loops_on};

impl Room {
    /// Everything in the API, on the machines and in the driver that should have gone.
    pub(super) async fn left(&self) -> Vec<String> {
        let mut left = self.objects_left().await;
        for machine in &self.machines {
            left.extend(self.left_on(machine));
        }
        let mounts = self.floor.mounts();
        left.extend(self.mounted(&mounts).map(|point| format!("mount of the driver: {}", point.display())));
        left.extend(loops_on(&self.scratch.path("")).into_iter().map(|(device, file)| format!("{device} on {file}")));
        left.extend(self.listed_by_driver().iter().map(|entry| format!("volume of the driver: {entry}")));
        for folder in ["volumes", ".tmp", ".trash"] {
            let found = entries(&self.disk().join(folder));
            left.extend(found.iter().map(|path| format!("file of the driver: {}", path.display())));
        }
        left
    }

    async fn objects_left(&self) -> Vec<String> {
        let mut left = Vec::new();
        let told = |path: &str, object: &Value| format!("{path}: {}", object["metadata"]["name"]);
        for path in [self.pods_path(), self.claims_path()] {
            left.extend(self.list(&path).await.iter().map(|object| told(&path, object)));
        }
        let ours = |object: &Value, field: &str| object.pointer(field).is_some_and(|name| *name == self.driver_name());
        for (path, field) in [
            ("/api/v1/persistentvolumes", "/spec/csi/driver"),
            ("/apis/storage.k8s.io/v1/volumeattachments", "/spec/attacher"),
        ] {
            let found = self.list(path).await;
            left.extend(found.iter().filter(|object| ours(object, field)).map(|object| told(path, object)));
        }
        for machine in &self.machines {
            let node: Node = Api::all(self.client.clone()).get(&machine.name).await.unwrap();
            let status = node.status.unwrap_or_default();
            left.extend(
                status.volumes_in_use.iter().flatten().map(|name| format!("in use by {}: {name}", machine.name)),
            );
            let attached = status.volumes_attached.unwrap_or_default();
            left.extend(attached.iter().map(|volume| format!("attached to {}: {}", machine.name, volume.name)));
        }
        left
    }

    /// Mounts, and what the agent keeps on disk.
    fn left_on(&self, machine: &Machine) -> Vec<String> {
        let table = machine.namespace.mounts();
        let mut left: Vec<String> =
            self.mounted(&table).map(|point| format!("mount on {}: {}", machine.name, point.display())).collect();
        let csi = machine.root.join("plugins").join(api::keys::plugin::CSI);
        // The two folders for devices stay, as a kubelet's do.
        let devices = ["staging", "publish"].map(|name| csi.join("volumeDevices").join(name));
        let others = entries(&csi.join("volumeDevices")).into_iter().filter(|path| !devices.contains(path));
        left.extend(others.map(|path| format!("file on {}: {}", machine.name, path.display())));
        for folder in [machine.root.join("pods"), csi.join(self.driver_name())].iter().chain(&devices) {
            left.extend(entries(folder).iter().map(|path| format!("file on {}: {}", machine.name, path.display())));
        }
        left
    }

    /// Mount points below our folder. An agent keeps its root as a mount, as a kubelet's is one.
    fn mounted<'a>(&'a self, table: &'a linux::mountinfo::MountTable) -> impl Iterator<Item = &'a PathBuf> {
        let top = self.scratch.path("");
        let points = table.iter().map(|mount| &mount.mount_point);
        points.filter(move |point| {
            point.starts_with(&top) && !self.machines.iter().any(|machine| machine.root == **point)
        })
    }
}
