//! A user with bad timing, and the scheduler for what needs one.
//!
//! Names come from small pools, so that a name is used again while others still speak of its last bearer. Every deed is
//! one that a cluster allows: nobody takes finalizers away by force or writes what only controllers write.

use std::collections::BTreeMap;
use std::time::Duration;

use api::keys::annotation;
use api::{Claim, ClassName, Key, Kind, Object, ReclaimPolicy, Uid, Volume, VolumePhase};
use lifecycle::bind::shelf::{Offer, Shelf};
use runtime::client::Preconditions;
use runtime::{Client, Patch};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::driver::BAD_PARAMETER;
use crate::storage::witness::{Truth, Witness};
use crate::{Component, Odds, Process, Random, World, keys};

const NAMESPACE: &str = "default";
const CLAIMS: u64 = 6;
const VOLUMES: u64 = 5;
const PODS: u64 = 4;
/// Where pods may run.
pub const NODES: [(&str, &str); 2] = [("node-a", "a"), ("node-b", "b")];

/// A class as the user makes it.
struct Draft {
    name: &'static str,
    provisioner: &'static str,
    delayed: bool,
    reclaim: &'static str,
    parameter: Option<&'static str>,
}

const DRAFTS: [Draft; 7] = [
    Draft::new("now", keys::DRIVER, false, "Delete"),
    Draft::new("later", keys::DRIVER, true, "Delete"),
    Draft::new("kept", keys::DRIVER, false, "Retain"),
    Draft { parameter: Some(BAD_PARAMETER), ..Draft::new("wrong", keys::DRIVER, false, "Delete") },
    Draft::new("foreign", keys::FOREIGN_DRIVER, false, "Delete"),
    Draft::new("by-hand", api::keys::provisioner::NONE, false, "Retain"),
    Draft::new("by-hand-later", api::keys::provisioner::NONE, true, "Retain"),
];

impl Draft {
    const fn new(name: &'static str, provisioner: &'static str, delayed: bool, reclaim: &'static str) -> Self {
        Self { name, provisioner, delayed, reclaim, parameter: None }
    }

    fn object(&self, default: bool) -> Value {
        let mode = if self.delayed { "WaitForFirstConsumer" } else { "Immediate" };
        let mut class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": self.name, "annotations": {annotation::DEFAULT_CLASS.text(): default.to_string()}},
            "provisioner": self.provisioner, "volumeBindingMode": mode, "reclaimPolicy": self.reclaim,
        });
        if let Some(parameter) = self.parameter {
            class["parameters"] = json!({parameter: "true"});
        }
        class
    }
}

/// The user.
#[derive(Debug)]
pub struct User {
    component: Component,
    client: Client,
    witness: Witness,
    random: Random,
}

impl User {
    /// A user whose requests meet the component's fates.
    pub fn new(world: &World, component: Component, witness: &Witness) -> Self {
        let client = Process::new(world, &component, 0).context.client;
        let random = world.random(component.name());
        Self { component, client, witness: witness.clone(), random }
    }

    /// Nodes and classes, before anything else.
    pub async fn set_up(&mut self) {
        for (name, zone) in NODES {
            let labels = json!({api::keys::label::HOSTNAME.text(): name, keys::ZONE: zone});
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
            self.create(Kind::NODE, None, node).await;
            let driver = json!({"name": keys::DRIVER, "nodeID": name, "topologyKeys": [keys::ZONE]});
            let node = json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
                "metadata": {"name": name}, "spec": {"drivers": [driver]},
            });
            self.create(Kind::CSI_NODE, None, node).await;
        }
        let default = self.random.below(2) == 0;
        for draft in &DRAFTS {
            self.create(Kind::STORAGE_CLASS, None, draft.object(default && draft.name == "now")).await;
        }
    }

    /// Does one thing after the other, often quickly.
    pub async fn live_until(&mut self, end: Instant) {
        while Instant::now() < end {
            let quick = Duration::from_millis(1)..=Duration::from_millis(250);
            let slow = Duration::from_millis(500)..=Duration::from_secs(12);
            let pause = self.random.between(if self.random.clone().below(2) == 0 { &quick } else { &slow });
            sleep(pause).await;
            self.act().await;
        }
    }

    async fn act(&mut self) {
        match self.random.below(100) {
            0..=27 => self.make_claim().await,
            28..=39 => self.make_volume().await,
            40..=49 => self.make_pod().await,
            50..=61 => self.delete_claim().await,
            62..=65 => self.replace_claim().await,
            66..=71 => self.delete_volume().await,
            72..=77 => self.delete_pod().await,
            78..=81 => self.edit_claim().await,
            82..=84 => self.point_claim().await,
            85..=88 => self.change_policy().await,
            89..=94 => self.reuse_volume().await,
            95..=97 => self.delete_or_make_class().await,
            _ => self.change_default().await,
        }
    }

    fn pick<T: Clone>(&mut self, from: Vec<T>) -> Option<T> {
        self.random.pick(&from).cloned()
    }

    async fn make_claim(&mut self) {
        let name = format!("claim-{}", self.random.below(CLAIMS));
        let body = self.claim(&name);
        self.create(Kind::CLAIM, Some(NAMESPACE), body).await;
    }

    fn claim(&mut self, name: &str) -> Value {
        let size = format!("{}Gi", 1 + self.random.below(4));
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
        match self.random.below(16) {
            0..=4 => spec["storageClassName"] = "now".into(),
            5 | 6 => spec["storageClassName"] = "later".into(),
            7 => spec["storageClassName"] = "kept".into(),
            8 => spec["storageClassName"] = "wrong".into(),
            9 => spec["storageClassName"] = "foreign".into(),
            10 => spec["storageClassName"] = "by-hand-later".into(),
            11 => spec["storageClassName"] = "".into(),
            12 => {}
            _ => spec["storageClassName"] = "by-hand".into(),
        }
        match self.random.below(12) {
            0 => spec["volumeName"] = format!("volume-{}", self.random.below(VOLUMES)).into(),
            1 => spec["selector"] = json!({"matchLabels": {"colour": "red"}}),
            2 => spec["volumeMode"] = "Block".into(),
            3 => spec["accessModes"] = json!(["ReadWriteMany"]),
            _ => {}
        }
        if self.random.below(10) == 0 {
            let source = format!("claim-{}", self.random.below(CLAIMS));
            spec["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": source});
        }
        let kind = Kind::CLAIM.kind;
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
    }

    async fn make_volume(&mut self) {
        let name = format!("volume-{}", self.random.below(VOLUMES));
        let class = *self.random.pick(&["by-hand", "by-hand", "by-hand-later", ""]).unwrap_or(&"");
        let policy = *self.random.pick(&["Retain", "Retain", "Delete"]).unwrap_or(&"Retain");
        let colour = *self.random.pick(&["red", "blue"]).unwrap_or(&"red");
        // A handle of its own each time: another volume under an old name is another volume.
        let handle = format!("{name}-{}", self.random.number());
        let mut spec = json!({
            "capacity": {"storage": format!("{}Gi", 1 + self.random.below(5))},
            "accessModes": if self.random.below(3) == 0 { json!(["ReadWriteOnce", "ReadWriteMany"]) } else { json!(["ReadWriteOnce"]) },
            "storageClassName": class, "persistentVolumeReclaimPolicy": policy,
            "csi": {"driver": keys::FOREIGN_DRIVER, "volumeHandle": handle},
        });
        if self.random.below(5) == 0 {
            let claim = format!("claim-{}", self.random.below(CLAIMS));
            spec["claimRef"] = json!({"namespace": NAMESPACE, "name": claim});
        }
        let metadata = json!({"name": name, "labels": {"colour": colour}});
        let volume = json!({"apiVersion": "v1", "kind": Kind::VOLUME.kind, "metadata": metadata, "spec": spec});
        self.create(Kind::VOLUME, None, volume).await;
    }

    async fn make_pod(&mut self) {
        let name = format!("pod-{}", self.random.below(PODS));
        let claims: Vec<Key> = self.witness.look_at(|truth| truth.claims.keys().cloned().collect());
        let Some(claim) = self.pick(claims) else { return };
        let mut spec = json!({
            "containers": [{"name": "main", "image": "none"}], "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim.name()}}],
        });
        if self.random.below(2) == 0 {
            spec["nodeName"] = NODES[0].0.into();
        }
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let pod = json!({"apiVersion": "v1", "kind": Kind::POD.kind, "metadata": metadata, "spec": spec});
        self.create(Kind::POD, Some(NAMESPACE), pod).await;
    }

    async fn delete_claim(&mut self) {
        let claims: Vec<Key> = self.witness.look_at(|truth| truth.claims.keys().cloned().collect());
        if let Some(key) = self.pick(claims) {
            self.delete::<Claim>(&key).await;
        }
    }

    /// The same name again, at once.
    async fn replace_claim(&mut self) {
        let claims: Vec<Key> = self.witness.look_at(|truth| truth.claims.keys().cloned().collect());
        let Some(key) = self.pick(claims) else { return };
        self.delete::<Claim>(&key).await;
        let pause = self.random.between(&(Duration::ZERO..=Duration::from_millis(400)));
        sleep(pause).await;
        let body = self.claim(key.name());
        self.create(Kind::CLAIM, Some(NAMESPACE), body).await;
    }

    async fn delete_volume(&mut self) {
        let volumes: Vec<Key> =
            self.witness.look_at(|truth| truth.volumes.values().map(|volume| volume.meta.key.clone()).collect());
        if let Some(key) = self.pick(volumes) {
            self.delete::<Volume>(&key).await;
        }
    }

    async fn delete_pod(&mut self) {
        let pods: Vec<Key> = self.witness.look_at(|truth| truth.pods.keys().cloned().collect());
        if let Some(key) = self.pick(pods) {
            self.delete::<api::Pod>(&key).await;
        }
    }

    async fn edit_claim(&mut self) {
        let claims: Vec<Key> = self.witness.look_at(|truth| truth.claims.keys().cloned().collect());
        let Some(key) = self.pick(claims) else { return };
        let label = json!({"metadata": {"labels": {"edited": self.random.below(100).to_string()}}});
        self.patch(Kind::CLAIM, &key, label).await;
    }

    /// A claim that has no volume yet is told which one to take.
    async fn point_claim(&mut self) {
        let open = |truth: &Truth| {
            let open = truth.claims.values().filter(|claim| claim.volume_name.is_empty());
            open.map(|claim| claim.key().clone()).collect::<Vec<_>>()
        };
        let claims = self.witness.look_at(open);
        let volumes: Vec<Box<str>> = self.witness.look_at(|truth| truth.volumes.keys().cloned().collect());
        if let (Some(key), Some(volume)) = (self.pick(claims), self.pick(volumes)) {
            self.patch(Kind::CLAIM, &key, json!({"spec": {"volumeName": volume}})).await;
        }
    }

    async fn change_policy(&mut self) {
        let volumes: Vec<_> = self.witness.look_at(|truth| truth.volumes.values().cloned().collect());
        let Some(volume) = self.pick(volumes) else { return };
        let policy = if volume.reclaim == ReclaimPolicy::Delete { "Retain" } else { "Delete" };
        self.witness.flips(&volume.meta);
        let patch = json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
        self.patch(Kind::VOLUME, &volume.meta.key, patch).await;
    }

    /// The way to use a kept volume again: its claim is gone, and an administrator takes the reference away.
    async fn reuse_volume(&mut self) {
        let released = |truth: &Truth| {
            let kept = truth.volumes.values().filter(|volume| volume.reclaim == ReclaimPolicy::Retain);
            kept.filter(|volume| volume.phase == VolumePhase::Released).cloned().collect::<Vec<_>>()
        };
        let volumes = self.witness.look_at(released);
        // What was to be deleted at any time may be half gone: nobody in his senses uses it again.
        let volumes = volumes.into_iter().filter(|volume| !self.witness.was_flipped(&volume.meta)).collect();
        let Some(volume) = self.pick(volumes) else { return };
        self.witness.reclaims(&volume.meta);
        let revision = volume.meta.revision.to_string();
        let patch = json!({"metadata": {"resourceVersion": revision}, "spec": {"claimRef": null}});
        self.patch(Kind::VOLUME, &volume.meta.key, patch).await;
    }

    async fn delete_or_make_class(&mut self) {
        let Some(draft) = self.random.pick(&DRAFTS) else { return };
        let (there, object) =
            (self.witness.look_at(|truth| truth.classes.contains_key(draft.name)), draft.object(false));
        match there {
            true => self.delete::<api::Class>(&Key::cluster(draft.name)).await,
            false => self.create(Kind::STORAGE_CLASS, None, object).await,
        }
    }

    async fn change_default(&mut self) {
        let Some(draft) = self.random.pick(&DRAFTS) else { return };
        let (key, value) = (Key::cluster(draft.name), self.random.happens(Odds::of_10_000(5_000)).to_string());
        let patch = json!({"metadata": {"annotations": {annotation::DEFAULT_CLASS.text(): value}}});
        self.patch(Kind::STORAGE_CLASS, &key, patch).await;
    }

    async fn create(&self, kind: Kind, namespace: Option<&str>, body: Value) {
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.component.note(format_args!("makes {kind} {name} {}", body["spec"]));
        self.note(&name, self.client.create::<Value>(kind, namespace, &body).await.map(drop));
    }

    async fn patch(&self, kind: Kind, key: &Key, patch: Value) {
        self.component.note(format_args!("changes {kind} {key} {patch}"));
        self.note(key, self.client.patch::<Value>(kind, key, &Patch::Merge(patch)).await.map(drop));
    }

    async fn delete<T: Object>(&self, key: &Key) {
        self.component.note(format_args!("deletes {} {key}", T::KIND));
        self.note(key, self.client.delete::<T>(key, &Preconditions::default()).await.map(drop));
    }

    /// People look at what they get and go on.
    fn note(&self, what: impl std::fmt::Display, outcome: Result<(), runtime::client::Error>) {
        if let Err(error) = outcome {
            self.component.note(format_args!("{what}: {error}"));
        }
    }
}

/// Chooses nodes and volumes for claims with delayed binding, as far as storage sees it.
#[derive(Debug)]
pub struct Scheduler {
    user: User,
    /// Claims for which a node was chosen in vain: how often, and when the next choice is.
    tried: BTreeMap<Uid, (u32, Instant)>,
}

impl Scheduler {
    pub fn new(world: &World, component: Component, witness: &Witness) -> Self {
        Self { user: User::new(world, component, witness), tried: BTreeMap::new() }
    }

    /// Looks around every so often, for ever.
    pub async fn run(&mut self) {
        loop {
            let pause = self.user.random.between(&(Duration::from_millis(200)..=Duration::from_secs(5)));
            sleep(pause).await;
            let waiting = self.user.witness.look_at(waiting);
            for (claim, offer) in waiting {
                if self.is_time(claim.uid()) {
                    self.choose(&claim, offer).await;
                }
            }
        }
    }

    /// As kube-scheduler, it waits longer after each choice for the same claim; longer than that one's ten seconds, because
    /// lives are short here, and two who disagree for ever are not what a storm is.
    fn is_time(&mut self, claim: &Uid) -> bool {
        let now = Instant::now();
        let (tries, next) = self.tried.entry(claim.clone()).or_insert((0, now));
        if now < *next {
            return false;
        }
        *next = now + Duration::from_secs(1 << (*tries).min(5));
        *tries += 1;
        true
    }

    async fn choose(&mut self, claim: &Claim, offer: Offer) {
        let user = &mut self.user;
        if let Offer::Free(volume) = offer {
            let reference = json!({
                "apiVersion": "v1", "kind": Kind::CLAIM.kind,
                "namespace": claim.namespace(), "name": claim.name(), "uid": claim.uid(),
            });
            let chosen = json!({annotation::BOUND_BY_CONTROLLER.text(): api::keys::YES});
            let metadata = json!({"resourceVersion": volume.meta.revision.to_string(), "annotations": chosen});
            let patch = json!({"metadata": metadata, "spec": {"claimRef": reference}});
            return user.patch(Kind::VOLUME, &volume.meta.key, patch).await;
        }
        let at = usize::try_from(user.random.below(NODES.len() as u64)).unwrap_or_default();
        let chosen = json!({annotation::SELECTED_NODE.text(): NODES[at].0});
        let metadata = json!({"resourceVersion": claim.meta.revision.to_string(), "annotations": chosen});
        user.patch(Kind::CLAIM, claim.key(), json!({"metadata": metadata})).await;
    }
}

/// The claims that wait for a scheduler, and what there is for each.
fn waiting(truth: &Truth) -> Vec<(std::sync::Arc<Claim>, Offer)> {
    let used = |claim: &Claim| {
        let named = |pod: &&std::sync::Arc<api::Pod>| pod.claims().any(|name| *name == *claim.name());
        truth.pods.values().filter(|pod| !pod.meta.is_deleting()).any(|pod| named(&pod))
    };
    let delayed = |claim: &Claim| match claim.class() {
        ClassName::Named(name) => truth.classes.get(name).filter(|class| class.delayed()),
        ClassName::Unset | ClassName::None => None,
    };
    let open = truth.claims.values().filter(|claim| claim.volume_name.is_empty() && !claim.meta.is_deleting());
    let open: Vec<_> = open.filter(|claim| claim.selected_node().is_none() && delayed(claim).is_some()).collect();
    if open.is_empty() {
        return Vec::new();
    }
    let mut shelf = Shelf::default();
    truth.volumes.values().for_each(|volume| shelf.put(volume.clone()));
    let offer = |claim: &&std::sync::Arc<Claim>| {
        let made_by_hand = delayed(claim).is_some_and(|class| class.provisioner == api::keys::provisioner::NONE);
        match shelf.offer(claim) {
            Offer::Free(volume) => Some((std::sync::Arc::clone(claim), Offer::Free(volume))),
            Offer::Nothing if !made_by_hand => Some((std::sync::Arc::clone(claim), Offer::Nothing)),
            Offer::Nothing | Offer::Designated(_) | Offer::Unsuitable(..) => None,
        }
    };
    open.into_iter().filter(|claim| used(claim)).filter_map(|claim| offer(&claim)).collect()
}
