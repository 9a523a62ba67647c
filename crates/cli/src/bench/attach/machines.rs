//! Nodes that exist only as objects, and what an agent on each would write.
//!
//! The agents keep their side of the handshake (ATTACH-6.7): a volume is in `volumesInUse` from when its pod is
//! seen until the pod is gone, and nothing counts as attached before `volumesAttached` says so. Like a kubelet, an agent
//! writes its whole list, and not more often than it can.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use api::keys::annotation;
use api::{CsiNode, Key, Kind, Node};
use futures_util::future::join_all;
use lifecycle::attach::unique_name;
use runtime::client::Selection;
use runtime::{Caches, Patch, Subscription};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::bench::consumers::{self, PodLedger};
use crate::bench::ledger::Ledger;
use crate::bench::site::{LABEL, Named, Site};

/// How long changes are collected before they are written.
const BREATH: Duration = Duration::from_millis(50);
/// How long until a write that failed is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// What an agent writes.
const WRITES: &str = "PATCH nodes/status";

type Names = BTreeSet<Arc<str>>;

/// The nodes of a run and their agents.
#[derive(Debug)]
pub(super) struct Machines<'a> {
    site: &'a Site,
    nodes: Vec<String>,
    desk: Arc<Desk>,
    written: AtomicUsize,
    _subscriptions: [Subscription; 2],
}

/// What the agents know.
#[derive(Debug)]
struct Desk {
    /// Unique names of the volumes, by the number of their pod.
    volumes: Mutex<Vec<Arc<str>>>,
    /// The same the other way round.
    numbers: Mutex<BTreeMap<Arc<str>, usize>>,
    /// What each node uses.
    in_use: Vec<watch::Sender<Names>>,
}

impl Desk {
    /// A pod is seen, or gone.
    fn pod(&self, number: usize, seen: bool) {
        let Some(name) = lock(&self.volumes).get(number).cloned() else { return };
        self.in_use[number % self.in_use.len()].send_if_modified(|names| match seen {
            true => names.insert(name),
            false => names.remove(&name),
        });
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Both are written once, as a whole.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Machines<'a> {
    /// Makes nothing yet; notes what the watches show of pods and nodes.
    pub(super) fn follow(caches: &Caches, site: &'a Site, count: usize, ledger: &PodLedger) -> Self {
        let desk = Arc::new(Desk {
            volumes: Mutex::default(),
            numbers: Mutex::default(),
            in_use: (0..count).map(|_| watch::Sender::new(Names::new())).collect(),
        });
        let told = desk.clone();
        let pod_news = ledger.pods().subscribe(move |change| {
            if let Some(number) = consumers::number_of(change.object()) {
                told.pod(number, change.after().is_some());
            }
        });
        let labels = site.labels().iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
        let nodes = caches.selected::<Node>(Selection { labels: Some(labels), ..Selection::default() });
        let (told, ledger) = (desk.clone(), ledger.clone());
        let node_news = nodes.subscribe(move |change| {
            let Some(after) = change.after() else { return };
            let before: BTreeSet<&str> = change
                .before()
                .map(|before| before.attached.iter().map(|volume| &*volume.name).collect())
                .unwrap_or_default();
            let new = after.attached.iter().filter(|volume| !before.contains(&*volume.name));
            let numbers = lock(&told.numbers);
            new.filter_map(|volume| numbers.get(&*volume.name)).for_each(|number| ledger.attached(*number));
        });
        let nodes = (0..count).map(|number| format!("{}-node-{number:03}", site.namespace())).collect();
        let subscriptions = [pod_news, node_news];
        Self { site, nodes, desk, written: AtomicUsize::new(0), _subscriptions: subscriptions }
    }

    /// The node of a pod.
    pub(super) fn node_of(&self, number: usize) -> &str {
        &self.nodes[number % self.nodes.len()]
    }

    /// Learns which volume each pod will use.
    pub(super) fn learn(&self, claims: &Ledger, count: usize) {
        let unique = |number| {
            let volume = claims.volume_of(number).unwrap_or_default();
            Arc::from(unique_name(self.site.driver(), &volume))
        };
        let volumes: Vec<Arc<str>> = (0..count).map(unique).collect();
        *lock(&self.desk.numbers) = volumes.iter().cloned().zip(0..).collect();
        *lock(&self.desk.volumes) = volumes;
    }

    /// How often agents wrote so far.
    pub(super) fn written(&self) -> usize {
        self.written.load(Ordering::Relaxed)
    }

    /// What they wrote since, for a census.
    pub(super) fn wrote_since(&self, before: usize) -> (&'static str, usize) {
        (WRITES, self.written().saturating_sub(before))
    }

    /// Makes Nodes that nothing else is put on, and CSINodes that have the driver.
    pub(super) async fn make(&self) -> anyhow::Result<()> {
        self.site.each(&self.nodes, |name| self.make_one(name)).await
    }

    async fn make_one(&self, name: &str) -> anyhow::Result<()> {
        let client = self.site.client();
        let status =
            json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Bench", "message": "played"}]});
        let body = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name, "labels": self.site.labels(),
                "annotations": {annotation::MANAGED_ATTACH.text(): "true"},
            },
            "spec": {"taints": [{"key": LABEL, "effect": "NoSchedule"}]},
        });
        let node = client.create::<Named>(Kind::NODE, None, &body).await.map_err(|error| anyhow!(error));
        let node = node.context("making a Node")?.metadata;
        let ready = Patch::Merge(json!({"status": status}));
        let patched = client.patch_status::<Named>(Kind::NODE, &node.key, &ready).await;
        patched.map_err(|error| anyhow!(error)).context("making a Node ready")?;
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid.as_str()});
        let body = json!({
            "apiVersion": Kind::CSI_NODE.api_version(), "kind": Kind::CSI_NODE.kind,
            "metadata": {"name": name, "labels": self.site.labels(), "ownerReferences": [owner]},
            "spec": {"drivers": [{"name": self.site.driver(), "nodeID": name, "topologyKeys": null}]},
        });
        let made = client.create::<Named>(Kind::CSI_NODE, None, &body).await;
        made.map(drop).map_err(|error| anyhow!(error)).context("making a CSINode")
    }

    /// Takes them away.
    pub(super) async fn remove(&self) -> anyhow::Result<()> {
        self.site
            .each(&self.nodes, |name| async move {
                self.site.delete::<CsiNode>(&Key::cluster(name)).await?;
                self.site.delete::<Node>(&Key::cluster(name)).await
            })
            .await
    }

    /// Plays the agents for as long as it is polled.
    pub(super) async fn play(&self) -> Infallible {
        let agents = self.nodes.iter().zip(&self.desk.in_use).map(|(node, in_use)| self.agent(node, in_use));
        match join_all(agents).await.pop() {
            Some(never) => never,
            // Without nodes there is nothing to play.
            None => std::future::pending().await,
        }
    }

    async fn agent(&self, node: &str, in_use: &watch::Sender<Names>) -> Infallible {
        let (key, mut news) = (Key::cluster(node), in_use.subscribe());
        loop {
            // The sender lives as long as `self`.
            let _ = news.changed().await;
            sleep(BREATH).await;
            let names = news.borrow_and_update().clone();
            let patch = Patch::Merge(
                json!({"status": {"volumesInUse": names.iter().map(|name| &**name).collect::<Vec<&str>>()}}),
            );
            while self.site.client().patch_status::<Named>(Kind::NODE, &key, &patch).await.is_err() {
                // A run that goes on like this ends by its own patience, and says what is missing.
                sleep(AGAIN).await;
            }
            self.written.fetch_add(1, Ordering::Relaxed);
        }
    }
}
