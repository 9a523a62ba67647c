//! A user who runs pods on nodes, with bad timing.
//!
//! Names come from small pools, so that a name is used again while others still speak of its last bearer. Pods are given to
//! a node at once, as by a scheduler that knows nothing: what cannot be has to be waited for and explained.

use std::time::Duration;

use api::{Key, Kind};
use runtime::client::Preconditions;
use runtime::{Client, Patch};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::witness::Eyes;
use crate::driver::{Attach, Habits};
use crate::{Component, Process, Random, World, keys};

const NAMESPACE: &str = "default";
const CLAIMS: u64 = 4;
const PODS: u64 = 5;
const CLASS: &str = "now";

/// The user.
#[derive(Debug)]
pub(super) struct Tenant {
    component: Component,
    client: Client,
    eyes: Eyes,
    random: Random,
    nodes: Vec<String>,
}

impl Tenant {
    pub(super) fn new(world: &World, eyes: &Eyes, nodes: Vec<String>) -> Self {
        let component = world.component("user", crate::faults::Fair);
        let client = Process::new(world, &component, 0).context.client;
        Self { component, client, eyes: eyes.clone(), random: world.random("user"), nodes }
    }

    /// The class and the driver's object, before anything else.
    pub(super) async fn set_up(&mut self, habits: &Habits) {
        let required = habits.attach == Attach::Required;
        let driver = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": keys::DRIVER},
            "spec": {"attachRequired": required, "podInfoOnMount": true, "fsGroupPolicy": "None"},
        });
        self.create(Kind::CSI_DRIVER, None, driver).await;
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
            "provisioner": keys::DRIVER, "volumeBindingMode": "Immediate", "reclaimPolicy": "Delete",
        });
        self.create(Kind::STORAGE_CLASS, None, class).await;
        for number in 0..CLAIMS {
            self.make_claim(number).await;
        }
    }

    /// Does one thing after the other, often quickly.
    pub(super) async fn live_until(&mut self, end: Instant) {
        while Instant::now() < end {
            let quick = Duration::from_millis(1)..=Duration::from_millis(400);
            let slow = Duration::from_secs(1)..=Duration::from_secs(8);
            let pause = self.random.between(if self.random.clone().below(3) == 0 { &quick } else { &slow });
            sleep(pause).await;
            self.act().await;
        }
    }

    /// Ends every pod, as people do.
    pub(super) async fn leave(&mut self) {
        for key in self.pods() {
            self.delete(&key).await;
        }
    }

    async fn act(&mut self) {
        match self.random.below(100) {
            0..=11 => {
                let number = self.random.below(CLAIMS);
                self.make_claim(number).await;
            }
            12..=49 => self.make_pod().await,
            50..=64 => self.delete_pod().await,
            65..=71 => self.force_delete_pod().await,
            72..=75 => self.finish_pod().await,
            76..=81 => self.delete_claim().await,
            _ => self.move_pod().await,
        }
    }

    fn pods(&self) -> Vec<Key> {
        self.eyes.look_at(|seen| seen.pods.keys().cloned().collect())
    }

    fn a_pod(&mut self) -> Option<Key> {
        let pods = self.pods();
        self.random.pick(&pods).cloned()
    }

    async fn make_claim(&mut self, number: u64) {
        let name = format!("claim-{number}");
        let mode =
            *self.random.pick(&["ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"]).unwrap_or(&"");
        let volume_mode = if self.random.below(4) == 0 { "Block" } else { "Filesystem" };
        let claim = json!({
            "apiVersion": "v1", "kind": Kind::CLAIM.kind, "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "accessModes": [mode], "volumeMode": volume_mode, "storageClassName": CLASS,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        self.create(Kind::CLAIM, Some(NAMESPACE), claim).await;
    }

    async fn make_pod(&mut self) {
        let name = format!("pod-{}", self.random.below(PODS));
        let claims = match self.random.below(4) {
            0 => vec![self.random.below(CLAIMS), self.random.below(CLAIMS)],
            _ => vec![self.random.below(CLAIMS)],
        };
        self.run_pod(&name, claims.iter().map(|claim| format!("claim-{claim}")).collect()).await;
    }

    async fn run_pod(&mut self, name: &str, mut claims: Vec<String>) {
        claims.dedup();
        let Some(node) = self.random.pick(&self.nodes).cloned() else { return };
        let grace = *self.random.pick(&[30, 30, 30, 0]).unwrap_or(&30);
        let (mut volumes, mut mounts, mut devices) = (Vec::new(), Vec::new(), Vec::new());
        for (at, claim) in claims.iter().enumerate() {
            let volume = format!("data-{at}");
            volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}}));
            match self.is_block(claim) {
                true => devices.push(json!({"name": volume, "devicePath": format!("/dev/{volume}")})),
                false => mounts.push(json!({"name": volume, "mountPath": format!("/{volume}")})),
            }
        }
        let main = json!({"name": "main", "image": "none", "volumeMounts": mounts, "volumeDevices": devices});
        let spec = json!({
            "nodeName": node, "containers": [main], "terminationGracePeriodSeconds": grace, "volumes": volumes,
        });
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let pod = json!({"apiVersion": "v1", "kind": Kind::POD.kind, "metadata": metadata, "spec": spec});
        self.create(Kind::POD, Some(NAMESPACE), pod).await;
    }

    fn is_block(&self, claim: &str) -> bool {
        let key = Key::namespaced(NAMESPACE, claim);
        self.eyes
            .storage
            .look_at(|truth| truth.claims.get(&key).is_some_and(|claim| claim.mode == api::VolumeMode::Block))
    }

    async fn delete_pod(&mut self) {
        if let Some(key) = self.a_pod() {
            self.delete(&key).await;
        }
    }

    async fn delete(&self, key: &Key) {
        self.component.note(format_args!("deletes pod {key}"));
        drop(self.client.delete::<api::Pod>(key, &Preconditions::default()).await);
    }

    async fn force_delete_pod(&mut self) {
        if let Some(key) = self.a_pod() {
            self.component.note(format_args!("deletes pod {key} by force"));
            drop(self.client.delete_now::<api::Pod>(&key, &Preconditions::default()).await);
        }
    }

    /// The pod's work is done.
    async fn finish_pod(&mut self) {
        if let Some(key) = self.a_pod() {
            self.component.note(format_args!("finishes pod {key}"));
            let patch = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
            drop(self.client.patch_status::<Value>(Kind::POD, &key, &patch).await);
        }
    }

    async fn delete_claim(&mut self) {
        let claims: Vec<Key> = self.eyes.storage.look_at(|truth| truth.claims.keys().cloned().collect());
        if let Some(key) = self.random.pick(&claims) {
            self.component.note(format_args!("deletes claim {key}"));
            drop(self.client.delete::<api::Claim>(key, &Preconditions::default()).await);
        }
    }

    /// The same claims at once in another pod, wherever it runs: what a Deployment does.
    async fn move_pod(&mut self) {
        let pods = self.eyes.look_at(|seen| {
            let with = seen.pods.values().filter(|pod| !pod.claims.is_empty());
            with.map(|pod| (pod.key.clone(), pod.claims.clone())).collect::<Vec<_>>()
        });
        let Some((key, claims)) = self.random.pick(&pods).cloned() else { return };
        self.delete(&key).await;
        sleep(self.random.between(&(Duration::ZERO..=Duration::from_millis(300)))).await;
        let name = format!("pod-{}", self.random.below(PODS));
        self.run_pod(&name, claims).await;
    }

    async fn create(&self, kind: Kind, namespace: Option<&str>, body: Value) {
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.component.note(format_args!("makes {kind} {name} {}", body["spec"]));
        if let Err(error) = self.client.create::<Value>(kind, namespace, &body).await {
            self.component.note(format_args!("{name}: {error}"));
        }
    }
}
