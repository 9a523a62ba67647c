//! SCHED-5 on objects as the wire has them.

mod limits;
mod places;
mod pursuits;
mod rooms;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::keys::annotation;
use api::{Attachment, Capacity, Claim, Class, CsiDriver, CsiNode, Key, Node, Pod, Volume, Word};
use serde_json::{Value, json};

use super::place::{self, Action, place};
use super::{Assignment, Book, Cluster, Means, Moment, Step};
use crate::bind::tests::{over, read};

/// A cluster of maps.
#[derive(Default)]
struct World {
    claims: BTreeMap<Key, Arc<Claim>>,
    volumes: BTreeMap<Key, Arc<Volume>>,
    classes: BTreeMap<Key, Arc<Class>>,
    nodes: BTreeMap<Key, Arc<Node>>,
    drivers: BTreeMap<Key, Arc<CsiDriver>>,
    csi_nodes: BTreeMap<Key, Arc<CsiNode>>,
    capacities: Vec<Arc<Capacity>>,
    pods: BTreeMap<Key, Arc<Pod>>,
    attachments: Vec<Arc<Attachment>>,
}

impl Cluster for World {
    fn claim(&self, key: &Key) -> Option<Arc<Claim>> {
        self.claims.get(key).cloned()
    }
    fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.volumes.get(&Key::cluster(name)).cloned()
    }
    fn class(&self, name: &str) -> Option<Arc<Class>> {
        self.classes.get(&Key::cluster(name)).cloned()
    }
    fn driver(&self, name: &str) -> Option<Arc<CsiDriver>> {
        self.drivers.get(&Key::cluster(name)).cloned()
    }
    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(&Key::cluster(name)).cloned()
    }
    fn csi_node(&self, name: &str) -> Option<Arc<CsiNode>> {
        self.csi_nodes.get(&Key::cluster(name)).cloned()
    }
    fn nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.values().cloned().collect()
    }
    fn capacities(&self, class: &str) -> Vec<Arc<Capacity>> {
        self.capacities.iter().filter(|capacity| capacity.storage_class_name == *class).cloned().collect()
    }
    fn users(&self, claim: &Key) -> Vec<Arc<Pod>> {
        let uses = |pod: &&Arc<Pod>| pod.claims().any(|name| pod.meta.key.sibling(&name) == *claim);
        self.pods.values().filter(uses).filter(|pod| !pod.terminated()).cloned().collect()
    }
    fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        self.pods.values().filter(|pod| &*pod.node == node && !pod.terminated()).cloned().collect()
    }
    fn attachments_on(&self, node: &str) -> Vec<Arc<Attachment>> {
        self.attachments.iter().filter(|attachment| attachment.node == *node).cloned().collect()
    }
}

/// Puts an object into its map.
macro_rules! put {
    ($world:expr, $map:ident, $object:expr) => {{
        let object = Arc::new($object);
        $world.$map.insert(object.meta.key.clone(), object);
    }};
}
use put;

impl World {
    /// Two nodes `a` and `b` in zones of the same names, and the class `late` that waits for a pod.
    fn new() -> Self {
        let mut world = Self::default();
        put!(world, nodes, node("a", json!({})));
        put!(world, nodes, node("b", json!({})));
        put!(world, classes, class("late", json!({})));
        world
    }

    fn book(&self) -> Book {
        let mut book = Book::default();
        self.volumes.values().for_each(|volume| book.shelf.put(volume.clone()));
        for claim in self.claims.values() {
            assert_eq!(book.saw(claim, NOW), None, "nothing was kept before");
        }
        book
    }

    fn place(&self, pod: &Pod) -> place::Verdict {
        place(pod, self, &self.book(), NOW)
    }

    /// The node and the means, or the sentence.
    fn placed(&self, pod: &Pod) -> Result<(String, Vec<Means>), String> {
        outcome(self.place(pod))
    }

    fn refusal(&self, pod: &Pod) -> String {
        self.placed(pod).expect_err("no node should do")
    }
}

const NOW: Moment = Moment::from_secs(1000);

fn outcome(verdict: place::Verdict) -> Result<(String, Vec<Means>), String> {
    let sentence = verdict.because.to_string();
    match verdict.actions.into_iter().next() {
        Some(Action::Assume(assignment)) => {
            let means = assignment.steps.into_iter().map(|step| step.means).collect();
            Ok((assignment.node.to_string(), means))
        }
        Some(Action::Unpin { .. }) | None => Err(sentence),
    }
}

fn node(name: &str, patch: Value) -> Node {
    let base = json!({"metadata": {"name": name, "labels": {"host": name, "zone": name}}});
    read(over(base, patch))
}

fn class(name: &str, patch: Value) -> Class {
    let base = json!({"metadata": {"name": name}, "provisioner": "d.example.com",
                      "volumeBindingMode": "WaitForFirstConsumer"});
    read(over(base, patch))
}

/// A claim for 2Gi of class `late`.
fn claim(name: &str, patch: Value) -> Claim {
    let base = json!({
        "metadata": {"name": name, "namespace": "n", "uid": format!("{name}-uid"), "resourceVersion": "50"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "late",
                 "resources": {"requests": {"storage": "2Gi"}}},
        "status": {"phase": "Pending"},
    });
    read(over(base, patch))
}

/// A patch for a claim that has a volume for good.
fn bound_to(volume: &str) -> Value {
    json!({"metadata": {"annotations": {annotation::BIND_COMPLETED.0: "yes"}}, "spec": {"volumeName": volume},
           "status": {"phase": "Bound"}})
}

/// A patch for a claim that is meant for a node.
fn meant_for(node: &str) -> Value {
    json!({"metadata": {"annotations": {annotation::SELECTED_NODE.0: node}}})
}

/// A free volume of 2Gi of class `late` that every node reaches.
fn volume(name: &str, patch: Value) -> Volume {
    let base = json!({
        "metadata": {"name": name, "uid": format!("{name}-uid"), "resourceVersion": "7"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "late", "capacity": {"storage": "2Gi"},
                 "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": "d.example.com", "volumeHandle": name}},
        "status": {"phase": "Available"},
    });
    read(over(base, patch))
}

/// A patch for a volume that only nodes of a zone reach.
fn only_in(zone: &str) -> Value {
    let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
    json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}})
}

fn reference(claim: &str) -> Value {
    json!({"spec": {"claimRef": {"namespace": "n", "name": claim, "uid": format!("{claim}-uid")}}})
}

/// A pod that uses these claims.
fn pod(name: &str, claims: &[&str], patch: Value) -> Pod {
    let volumes: Vec<Value> =
        claims.iter().map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}})).collect();
    let base = json!({"metadata": {"name": name, "namespace": "n", "uid": format!("{name}-uid")},
                      "spec": {"volumes": volumes, "schedulerName": "default-scheduler"}});
    read(over(base, patch))
}

fn capacity(name: &str, zone: &str, patch: Value) -> Capacity {
    let base = json!({
        "metadata": {"name": name, "namespace": "driver", "resourceVersion": "20"},
        "storageClassName": "late",
        "nodeTopology": {"matchLabels": {"zone": zone}},
        "capacity": "5Gi",
    });
    read(over(base, patch))
}

/// The driver of class `late` tells how much room it has.
fn telling() -> CsiDriver {
    read(json!({"metadata": {"name": "d.example.com"}, "spec": {"storageCapacity": true}}))
}

fn volume_means(name: &str) -> Means {
    Means::Volume { volume: Word::new(name) }
}

/// An assignment by hand.
fn assignment(pod: &Pod, node: &str, steps: &[(&str, Means)]) -> Assignment {
    let step = |(claim, means): &(&str, Means)| Step {
        claim: Key::namespaced("n", claim),
        uid: format!("{claim}-uid").as_str().into(),
        means: means.clone(),
        asked: false,
    };
    Assignment {
        pod: pod.meta.key.clone(),
        uid: pod.meta.uid.clone(),
        node: Word::new(node),
        steps: steps.iter().map(step).collect(),
        since: NOW,
        stage: super::Stage::Preparing,
    }
}

fn words(texts: &[&str]) -> BTreeSet<Word> {
    texts.iter().map(|text| Word::new(text)).collect()
}
