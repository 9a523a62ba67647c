//! What the store says about nodes, pods and attachments: every version, in the order of the writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::keys::taint;
use api::node::Readiness;
use api::{Attachment, Key, Meta, Node, Uid};
use apiserver::sources::Clock;
use apiserver::store::{Event, Scope, Start, Stored, Watch, WatchEnd};
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::{World, keys};

const NODES: &str = "nodes";
const PODS: &str = "pods";
const ATTACHMENTS: &str = "volumeattachments";
/// Leases of nodes: only agents that could have a clone hold them.
const LEASES: &str = "leases";
pub(super) const WATCHED: [&str; 4] = [NODES, PODS, ATTACHMENTS, LEASES];
/// A lease that was not renewed for so long may be taken over. The agents count from their first look, so that it is longer.
const LEASE_TIME: Duration = Duration::from_secs(40);

/// For so long after the proof that a node is fenced has gone, what was begun because of it may still arrive: a request is
/// on its way, and so is the call of the driver that follows.
const AFTERMATH: Duration = Duration::from_secs(120);

/// A pod, as far as storage on its node goes.
#[derive(Debug, Clone)]
pub(super) struct PodSeen {
    pub(super) key: Key,
    pub(super) uid: Uid,
    pub(super) node: String,
    pub(super) claims: Vec<String>,
    /// Those of them that it wants as devices.
    pub(super) devices: BTreeSet<String>,
    /// Its end was asked for.
    pub(super) deleting: bool,
    /// That, or all of its work is done: its volumes are taken away.
    pub(super) leaving: bool,
    pub(super) ready: Option<Ready>,
}

/// What its node says of the pod's volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) yes: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

/// What is stored now, and what of the past still counts.
#[derive(Debug)]
pub(super) struct Seen {
    watches: Vec<Watch>,
    pub(super) nodes: BTreeMap<String, Arc<Node>>,
    pub(super) pods: BTreeMap<Key, PodSeen>,
    pub(super) attachments: BTreeMap<String, Arc<Attachment>>,
    /// Until when a node was proven to be fenced.
    fenced: BTreeMap<String, Instant>,
    /// Attachments whose end was asked for while their node was fenced.
    excused: BTreeSet<(String, String)>,
    /// The node names that were ever known.
    known: BTreeSet<String>,
    /// When anything was last written.
    pub(super) changed: Instant,
    /// How often each object was written.
    pub(super) written: BTreeMap<Uid, (String, u64)>,
    pub(super) lagged: bool,
    /// How long a node is not ready before it may be detached from by force.
    force_after: Option<Duration>,
    /// Since when a node is not ready.
    unready: BTreeMap<String, Instant>,
    clock: Arc<dyn Clock>,
    /// By node: who holds its lease, and since when nobody has renewed it.
    leases: BTreeMap<String, (String, Instant)>,
    /// Nodes whose lease was taken over after it had not been renewed for its whole time, since this was last asked for.
    taken_over: BTreeSet<String>,
}

impl Seen {
    pub(super) fn new(world: &World, force_after: Option<Duration>) -> Self {
        let store = world.api().store();
        let watches = WATCHED.map(|resource| store.watch(Scope::all(resource), Start::Now));
        Self {
            lagged: watches.iter().any(Result::is_err),
            watches: watches.into_iter().filter_map(Result::ok).collect(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            attachments: BTreeMap::new(),
            fenced: BTreeMap::new(),
            excused: BTreeSet::new(),
            known: BTreeSet::new(),
            changed: Instant::now(),
            written: BTreeMap::new(),
            force_after,
            unready: BTreeMap::new(),
            clock: world.clock().clone(),
            leases: BTreeMap::new(),
            taken_over: BTreeSet::new(),
        }
    }

    /// Takes in everything that was written.
    pub(super) fn look(&mut self) {
        let mut events: Vec<Arc<Event>> = Vec::new();
        for watch in &mut self.watches {
            loop {
                match watch.try_next() {
                    Ok(Some(event)) => events.push(event),
                    Ok(None) | Err(WatchEnd::Closed) => break,
                    Err(WatchEnd::Lagged { .. }) => {
                        self.lagged = true;
                        break;
                    }
                }
            }
        }
        // Each kind has its own watch; together they are one history.
        events.sort_by_key(|event| event.revision);
        for event in events {
            self.take(&event);
        }
        self.remember_fences();
    }

    fn take(&mut self, event: &Event) {
        let name = event.key.name();
        if event.key.resource() == LEASES {
            return self.lease(name, event.new_version());
        }
        if event.key.resource() == NODES && is_heartbeat(event) {
            return;
        }
        self.changed = Instant::now();
        match event.key.resource() {
            NODES => match read::<Node>(event.new_version()) {
                Some(node) => {
                    self.count(&node.meta, "node");
                    self.known.insert(name.to_owned());
                    self.nodes.insert(name.to_owned(), Arc::new(node));
                }
                None => drop(self.nodes.remove(name)),
            },
            PODS => {
                let key = Key::namespaced(event.key.namespace().unwrap_or_default(), name);
                match read::<WirePod>(event.new_version()) {
                    Some(pod) => {
                        self.count(&pod.metadata, "pod");
                        self.pods.insert(key, pod.into());
                    }
                    None => drop(self.pods.remove(&key)),
                }
            }
            _ => self.attachment(name, read(event.new_version())),
        }
        self.remember_fences();
    }

    fn attachment(&mut self, name: &str, new: Option<Attachment>) {
        let old = self.attachments.remove(name);
        let was_going = old.as_ref().is_some_and(|old| old.meta.is_deleting());
        let going = new.as_ref().is_none_or(|new| new.meta.is_deleting());
        if let Some(about) = new.as_ref().or(old.as_deref()) {
            let pair = (about.volume.as_deref().unwrap_or_default().to_owned(), about.node.to_string());
            if going && !was_going && self.is_fenced(&pair.1) {
                self.excused.insert(pair);
            }
        }
        if let Some(new) = new {
            self.count(&new.meta, "attachment");
            self.attachments.insert(name.to_owned(), Arc::new(new));
        }
    }

    fn lease(&mut self, node: &str, new: Option<&Arc<Stored>>) {
        let holder = read::<WireLease>(new).map(|lease| lease.spec.holder_identity);
        let Some(holder) = holder else { return };
        let now = Instant::now();
        let before = self.leases.insert(node.to_owned(), (holder.clone(), now));
        if before.is_some_and(|(held_by, renewed)| held_by != holder && now.duration_since(renewed) >= LEASE_TIME) {
            self.taken_over.insert(node.to_owned());
        }
    }

    /// Nodes whose lease was fairly taken over since the last call.
    pub(super) fn take_overs(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.taken_over)
    }

    fn count(&mut self, meta: &Meta, kind: &str) {
        let what = || (format!("{kind} {}", meta.key), 0);
        self.written.entry(meta.uid.clone()).or_insert_with(what).1 += 1;
    }

    fn remember_fences(&mut self) {
        let now = Instant::now();
        for name in &self.known {
            let gone = self
                .nodes
                .get(name)
                .is_none_or(|node| node.has_taint(taint::OUT_OF_SERVICE) && node.ready != Readiness::Ready);
            match self.nodes.get(name).is_some_and(|node| node.ready != Readiness::Ready) {
                true => drop(self.unready.entry(name.clone()).or_insert(now)),
                false => drop(self.unready.remove(name)),
            }
            let forced = self.force_after.zip(self.unready.get(name)).is_some_and(|(patience, since)| {
                // The controller counts in whole seconds.
                now.duration_since(*since) + Duration::from_secs(2) > patience
            });
            if gone || forced {
                self.fenced.insert(name.clone(), now + AFTERMATH);
            }
        }
    }

    /// Whether there is, or was a moment ago, proof that a node does not write any more.
    pub(super) fn is_fenced(&self, node: &str) -> bool {
        self.fenced.get(node).is_some_and(|until| Instant::now() <= *until)
    }

    /// Whether the detachment of a volume from a node was begun with such a proof.
    pub(super) fn is_excused(&self, volume: &str, node: &str) -> bool {
        self.is_fenced(node) || self.excused.contains(&(volume.to_owned(), node.to_owned()))
    }

    /// When a node got the status that it is about to have, as its Ready condition says it.
    pub(super) fn ready_since(&self, node: &str, status: &str) -> String {
        let now = i64::try_from(self.clock.now().0 / 1_000).unwrap_or(i64::MAX);
        let ready = if status == "True" { Readiness::Ready } else { Readiness::Unknown };
        let same = self.nodes.get(node).filter(|node| node.ready == ready).and_then(|node| node.ready_since);
        let seconds = same.map_or(now, |since| since.0);
        Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX).to_string()
    }

    /// A volume is not on this node any more: what comes next needs a proof of its own.
    pub(super) fn ended(&mut self, volume: &str, node: &str) {
        self.excused.remove(&(volume.to_owned(), node.to_owned()));
    }
}

#[derive(serde::Deserialize)]
struct WireLease {
    #[serde(default)]
    spec: WireLeaseSpec,
}

#[derive(serde::Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WireLeaseSpec {
    holder_identity: String,
}

#[derive(serde::Deserialize)]
struct WirePod {
    metadata: Meta,
    #[serde(default)]
    spec: WirePodSpec,
    #[serde(default)]
    status: WirePodStatus,
}

#[derive(serde::Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WirePodSpec {
    node_name: String,
    volumes: Vec<WireVolume>,
    containers: Vec<WireContainer>,
}

#[derive(serde::Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WireContainer {
    volume_devices: Vec<WireDevice>,
}

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct WireDevice {
    name: String,
}

#[derive(serde::Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WireVolume {
    name: String,
    persistent_volume_claim: Option<WireClaim>,
}

#[derive(serde::Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WireClaim {
    claim_name: String,
}

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct WirePodStatus {
    phase: String,
    conditions: Vec<WireCondition>,
}

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct WireCondition {
    r#type: String,
    status: String,
    reason: String,
    message: String,
}

impl From<WirePod> for PodSeen {
    fn from(wire: WirePod) -> Self {
        let WirePod { metadata, spec, status } = wire;
        let condition = status.conditions.into_iter().find(|condition| condition.r#type == keys::VOLUMES_READY);
        let ready = condition.map(|WireCondition { status, reason, message, .. }| Ready {
            yes: status == "True",
            reason,
            message,
        });
        let over = matches!(&*status.phase, "Succeeded" | "Failed");
        let devices = spec.containers.into_iter().flat_map(|container| container.volume_devices);
        let devices: BTreeSet<String> = devices.map(|device| device.name).collect();
        let named = |volume: WireVolume| Some((volume.name, volume.persistent_volume_claim?.claim_name));
        let claims: Vec<(String, String)> = spec.volumes.into_iter().filter_map(named).collect();
        let wanted = claims.iter().filter(|(volume, _)| devices.contains(volume));
        Self {
            devices: wanted.map(|(_, claim)| claim.clone()).collect(),
            claims: claims.into_iter().map(|(_, claim)| claim).collect(),
            node: spec.node_name,
            deleting: metadata.is_deleting(),
            leaving: metadata.is_deleting() || over,
            uid: metadata.uid,
            key: metadata.key,
            ready,
        }
    }
}

/// Whether a write to a node says only that its agent is alive. Agents say so for ever.
fn is_heartbeat(event: &Event) -> bool {
    let beats =
        |stored: &Arc<Stored>| std::str::from_utf8(&stored.value).is_ok_and(|text| text.contains("lastHeartbeatTime"));
    if !event.new_version().is_some_and(beats) {
        return false;
    }
    let without = |stored: Option<&Arc<Stored>>| {
        let mut value: serde_json::Value = serde_json::from_slice(&stored?.value).ok()?;
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        for condition in value["status"]["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastHeartbeatTime"] = serde_json::Value::Null;
        }
        Some(value)
    };
    let (old, new) = (without(event.old_version()), without(event.new_version()));
    old.is_some() && old == new
}

/// An object as it was stored. The store keeps the revision beside it.
fn read<T: DeserializeOwned>(stored: Option<&Arc<Stored>>) -> Option<T> {
    let stored = stored?;
    let mut value: serde_json::Value = serde_json::from_slice(&stored.value).ok()?;
    value["metadata"]["resourceVersion"] = stored.revision.0.to_string().into();
    serde_json::from_value(value).ok()
}
