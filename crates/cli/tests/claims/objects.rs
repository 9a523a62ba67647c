//! Objects as tests write them, and questions about them.

use std::collections::BTreeSet;
use std::time::Duration;

use api::keys::label;
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::wait::{Condition, await_condition};
use serde_json::{Value, json};

use super::stage::Stage;

/// Long enough for a busy machine; nothing is asserted about it.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// A claim for 64Mi of the stage's class.
pub(super) fn claim(stage: &Stage, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": stage.class(),
            "resources": {"requests": {"storage": "64Mi"}},
        },
    })
}

/// A class of the stage's driver; `more` is put over it.
pub(super) fn class(stage: &Stage, name: &str, more: &Value) -> Value {
    let mut class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": stage.driver_name(), "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
    });
    for (key, value) in more.as_object().unwrap() {
        class[key] = value.clone();
    }
    class
}

/// The node that the driver runs on, as a kubelet would have registered it.
pub(super) fn node(name: &str, topology: (&str, &str)) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {label::HOSTNAME.text(): name, topology.0: topology.1}},
    })
}

/// What a kubelet tells about its room and its health.
pub(super) fn node_status() -> Value {
    let room = json!({"cpu": "4", "memory": "4Gi", "pods": "110", "ephemeral-storage": "10Gi"});
    json!({"status": {
        "allocatable": room, "capacity": room,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }})
}

/// The driver as the node's kubelet registered it.
pub(super) fn csi_node(name: &str, driver: &str, topology: (&str, &str)) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
        "spec": {"drivers": [{"name": driver, "nodeID": topology.1, "topologyKeys": [topology.0]}]},
    })
}

/// A pod that uses a claim.
pub(super) fn pod(name: &str, claim: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "none", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        },
    })
}

impl Stage {
    pub(super) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(super) fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    pub(super) async fn create_claim(&self, body: &Value) -> PersistentVolumeClaim {
        let body = serde_json::from_value(body.clone()).unwrap();
        self.claims().create(&PostParams::default(), &body).await.unwrap()
    }

    /// Waits until the claim is bound. Gives its volume.
    pub(super) async fn bound(&self, name: &str) -> PersistentVolume {
        let bound = |claim: Option<&PersistentVolumeClaim>| {
            claim.and_then(|claim| claim.status.as_ref()?.phase.as_deref()) == Some("Bound")
        };
        let claim = self.until(self.claims(), name, "bound", bound).await.unwrap();
        let volume = claim.spec.unwrap().volume_name.unwrap();
        let bound = |volume: Option<&PersistentVolume>| phase(volume) == Some("Bound");
        self.until(self.volumes(), &volume, "bound", bound).await.unwrap()
    }

    /// Deletes a claim and waits until it is gone.
    pub(super) async fn delete_claim(&self, name: &str) {
        drop(self.claims().delete(name, &kube::api::DeleteParams::default()).await.unwrap());
        self.until(self.claims(), name, "gone", |claim: Option<&PersistentVolumeClaim>| claim.is_none()).await;
    }

    /// Waits until there is no such volume.
    pub(super) async fn volume_gone(&self, name: &str) {
        self.until(self.volumes(), name, "gone", |volume: Option<&PersistentVolume>| volume.is_none()).await;
    }

    /// Waits until a condition holds; fails with what is there instead.
    pub(super) async fn until<K>(&self, api: Api<K>, name: &str, what: &str, condition: impl Condition<K>) -> Option<K>
    where
        K: kube::Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + serde::Serialize + 'static,
    {
        match tokio::time::timeout(PATIENCE, await_condition(api.clone(), name, condition)).await {
            Ok(reached) => reached.unwrap(),
            Err(_) => {
                let now = api.get_opt(name).await.unwrap().map(|object| serde_json::to_string_pretty(&object).unwrap());
                let events = self.events_about(name).await.join("\n");
                panic!("{name} is not {what} after {PATIENCE:?}:\n{}\n{events}", now.unwrap_or("it is gone".into()));
            }
        }
    }

    /// Waits for an event about an object of this name. Gives its message.
    pub(super) async fn event(&self, name: &str, reason: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut told = events.watch(&WatchParams::default().timeout(180), "0").await.unwrap().boxed();
        while let Some(event) = told.try_next().await.unwrap() {
            if let WatchEvent::Added(event) | WatchEvent::Modified(event) = event
                && event.involved_object.name.as_deref() == Some(name)
                && event.reason.as_deref() == Some(reason)
            {
                return event.message.unwrap_or_default();
            }
        }
        panic!("no event {reason} about {name}: {:?}", self.events_about(name).await)
    }

    /// Events about an object of this name, oldest first.
    pub(super) async fn events_about(&self, name: &str) -> Vec<String> {
        let events: Api<Event> = Api::all(self.client.clone());
        let listed = events.list(&ListParams::default()).await.unwrap();
        let about = listed.items.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
        about
            .map(|event| format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default()))
            .collect()
    }

    /// Handles of all volumes of this stage's driver that the API knows.
    pub(super) async fn handles(&self) -> BTreeSet<String> {
        let listed = self.volumes().list(&ListParams::default()).await.unwrap();
        let sources = listed.items.into_iter().filter_map(|volume| volume.spec?.csi);
        sources.filter(|csi| csi.driver == self.driver_name()).map(|csi| csi.volume_handle).collect()
    }

    /// Fails unless the pool holds exactly the volumes that the API knows, by the word of `orlop csi list`.
    pub(super) async fn assert_no_leak(&self) {
        let known = self.handles().await;
        assert_eq!(self.listed_by_driver(), known, "what the driver has, and what the API knows");
    }

    /// Sets the policy Delete for volumes that a provisioner kept because their claim was gone when it found their intents.
    async fn delete_retained(&self) {
        let listed = self.volumes().list(&ListParams::default()).await.unwrap();
        for volume in listed.items {
            let spec = volume.spec.unwrap_or_default();
            if spec.persistent_volume_reclaim_policy.as_deref() == Some("Retain")
                && spec.csi.is_some_and(|csi| csi.driver == self.driver_name())
            {
                let patch = Patch::Merge(json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}));
                let name = volume.metadata.name.unwrap_or_default();
                // It may be gone by now.
                drop(self.volumes().patch(&name, &PatchParams::default(), &patch).await);
            }
        }
    }

    /// Waits until that holds, and so many volumes are left. Nothing tells when a driver's list changes, so it is asked.
    pub(super) async fn settled(&self, volumes: usize) {
        let settles = async {
            self.delete_retained().await;
            while self.handles().await.len() != volumes || self.listed_by_driver() != self.handles().await {
                tokio::time::sleep(ASK_AGAIN).await;
                self.delete_retained().await;
            }
        };
        if tokio::time::timeout(PATIENCE, settles).await.is_err() {
            let (has, knows) = (self.listed_by_driver(), self.handles().await);
            panic!("not settled at {volumes} volumes: the driver has {has:?}, the API knows {knows:?}");
        }
    }

    /// What `orlop csi list` says.
    pub(super) fn listed_by_driver(&self) -> BTreeSet<String> {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(["csi", "-o", "json", "--endpoint"]).arg(self.socket()).arg("list");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let entries = listed["entries"].as_array().unwrap_or_else(|| panic!("no entries in {listed}"));
        entries.iter().map(|entry| entry["volume"]["volumeId"].as_str().unwrap().to_owned()).collect()
    }
}

pub(super) fn phase(volume: Option<&PersistentVolume>) -> Option<&str> {
    volume.and_then(|volume| volume.status.as_ref()?.phase.as_deref())
}

/// The driver's name for a volume.
pub(super) fn handle(volume: &PersistentVolume) -> &str {
    &volume.spec.as_ref().unwrap().csi.as_ref().unwrap().volume_handle
}

pub(super) fn name(volume: &PersistentVolume) -> &str {
    volume.metadata.name.as_deref().unwrap()
}
