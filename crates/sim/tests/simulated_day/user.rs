//! A user with too much time: makes, edits and deletes claims, volumes and pods, and writes events.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sim::{Component, Random};
use tokio::time::Instant;

/// More of each kind than this are not kept around.
const CROWD: usize = 40;

pub(crate) struct User {
    component: Component,
    client: Client,
    random: Random,
    made: u64,
    claims: Vec<String>,
    volumes: Vec<String>,
    pods: Vec<String>,
    pub(crate) deeds: usize,
}

impl User {
    pub(crate) fn new(component: Component, random: Random) -> Self {
        let client = component.client();
        let (claims, volumes, pods) = (Vec::new(), Vec::new(), Vec::new());
        Self { component, client, random, made: 0, claims, volumes, pods, deeds: 0 }
    }

    pub(crate) async fn live_until(&mut self, end: Instant) {
        while Instant::now() < end {
            let pause = self.random.between(&(Duration::from_secs(1)..=Duration::from_secs(40)));
            tokio::time::sleep(pause).await;
            self.act().await;
            self.deeds += 1;
        }
    }

    async fn act(&mut self) {
        match self.random.below(10) {
            0..=2 => self.make_claim().await,
            3 | 4 => self.edit_claim().await,
            5 => self.delete_claim().await,
            6 => self.make_or_delete_volume().await,
            7 => self.make_or_delete_pod().await,
            _ => self.write_event().await,
        }
    }

    fn name(&mut self, of: &str) -> String {
        self.made += 1;
        format!("{of}-{}", self.made)
    }

    /// One of these, which is then no longer among them.
    fn take(random: &mut Random, from: &mut Vec<String>) -> Option<String> {
        let at = usize::try_from(random.below(from.len() as u64)).unwrap_or_default();
        (!from.is_empty()).then(|| from.swap_remove(at))
    }

    async fn make_claim(&mut self) {
        if self.claims.len() >= CROWD {
            return self.delete_claim().await;
        }
        let name = self.name("claim");
        let size = format!("{}Gi", 1 + self.random.below(100));
        let claim = json!({
            "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
        });
        self.create::<PersistentVolumeClaim>(&self.namespaced(), claim).await;
        self.claims.push(name);
    }

    async fn edit_claim(&mut self) {
        let Some(name) = self.random.pick(&self.claims).cloned() else { return };
        let labels = json!({"metadata": {"labels": {format!("l{}", self.random.below(5)): "v"}}});
        let claims: Api<PersistentVolumeClaim> = self.namespaced();
        self.note(&name, claims.patch(&name, &PatchParams::default(), &Patch::Merge(labels)).await);
    }

    async fn delete_claim(&mut self) {
        let Some(name) = Self::take(&mut self.random, &mut self.claims) else { return };
        let claims: Api<PersistentVolumeClaim> = self.namespaced();
        self.note(&name, claims.delete(&name, &DeleteParams::default()).await);
    }

    async fn make_or_delete_volume(&mut self) {
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        if self.volumes.len() < CROWD && self.random.below(2) == 0 {
            let name = self.name("volume");
            let volume = json!({
                "metadata": {"name": name},
                "spec": {
                    "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                    "csi": {"driver": "sim.example", "volumeHandle": name},
                },
            });
            self.create(&volumes, volume).await;
            return self.volumes.push(name);
        }
        let Some(name) = Self::take(&mut self.random, &mut self.volumes) else { return };
        self.note(&name, volumes.delete(&name, &DeleteParams::default()).await);
        let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        self.note(&name, volumes.patch(&name, &PatchParams::default(), &release).await);
    }

    async fn make_or_delete_pod(&mut self) {
        let pods: Api<Pod> = self.namespaced();
        if self.pods.len() < CROWD && self.random.below(2) == 0 {
            let name = self.name("pod");
            let claim = self.random.pick(&self.claims).cloned().unwrap_or_else(|| "none".to_owned());
            let pod = json!({
                "metadata": {"name": name},
                "spec": {
                    "containers": [{"name": "main", "image": "none"}],
                    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
                },
            });
            self.create(&pods, pod).await;
            return self.pods.push(name);
        }
        let Some(name) = Self::take(&mut self.random, &mut self.pods) else { return };
        self.note(&name, pods.delete(&name, &DeleteParams::default()).await);
    }

    async fn write_event(&mut self) {
        let name = self.name("event");
        let event = json!({
            "metadata": {"name": name}, "type": "Normal", "reason": "Looked", "message": "nothing to see",
            "involvedObject": {"kind": "Pod", "apiVersion": "v1", "namespace": "default", "name": "somebody"},
        });
        self.create::<Event>(&self.namespaced(), event).await;
    }

    fn namespaced<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::default_namespaced(self.client.clone())
    }

    async fn create<K>(&self, api: &Api<K>, object: Value)
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug,
    {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let object: K = serde_json::from_value(object).expect("the user writes well-formed objects");
        self.note(&name, api.create(&PostParams::default(), &object).await);
    }

    /// People look at what they get and go on.
    fn note<T>(&self, name: &str, outcome: kube::Result<T>) {
        if let Err(error) = outcome {
            self.component.note(format_args!("{name}: {error}"));
        }
    }
}
