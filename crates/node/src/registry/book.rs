//! The acting half of `lifecycle::registration::announce`: Node and CSINode, one write at a time.

use std::sync::Arc;
use std::time::Duration;

use api::node::NodeDriver;
use api::{CsiNode, Key, Kind, Meta, Node};
use lifecycle::registration::announce::{self, Action, Because, Kept, NodeChange, Observed, Verdict};
use lifecycle::{Lookup, Reason as _, migration};
use runtime::client::{Error, Preconditions};
use runtime::{Context, Live, Patch};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Registry;
use super::state::Known;
use api::keys::annotation;

/// More writes than any change needs; beyond it somebody writes against us.
const ROUNDS: usize = 16;

/// Whether CSINode was initialised (NODE-4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The node has no CSINode of its own yet, or nobody could be asked.
    Starting,
    Initialised,
}

/// Why Node and CSINode do not say what they should.
#[derive(Debug, thiserror::Error)]
pub enum AnnounceError {
    #[error("writing Node and CSINode: {0}")]
    Api(#[from] Error),
    #[error("Node and CSINode changed as fast as they were written")]
    Unsettled,
}

impl AnnounceError {
    /// Whether the same would fail in the same way until a person changes something.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Api(error) => {
                matches!(error, Error::Invalid { .. } | Error::Forbidden { .. } | Error::Refused { .. })
            }
            Self::Unsettled => false,
        }
    }
}

/// What is written, and by one writer at a time.
#[derive(Debug)]
pub(super) struct Book {
    context: Context,
    key: Key,
    migrated: String,
    one: Mutex<()>,
}

/// What the server said in this pass about what the cache lacks.
#[derive(Default)]
struct Absent {
    node: bool,
    csi_node: bool,
}

impl Book {
    pub(super) fn new(context: &Context, node: &str) -> Self {
        let migrated = migration::plugins().join(",");
        Self { context: context.clone(), key: Key::cluster(node), migrated, one: Mutex::new(()) }
    }

    /// Writes until there is nothing left to write. `known` is asked before each step.
    pub(super) async fn write(&self, known: impl Fn() -> (Known, Waiting)) -> Result<Verdict, AnnounceError> {
        let _one = self.one.lock().await;
        let mut absent = Absent::default();
        for _ in 0..ROUNDS {
            let (known, waiting) = known();
            let verdict = self.decide(&known, waiting, &absent);
            let Some(action) = verdict.decision.actions.first() else { return Ok(verdict) };
            tracing::debug!(because = verdict.decision.because.code(), ?action, "announcing");
            self.act(action, &mut absent).await?;
        }
        Err(AnnounceError::Unsettled)
    }

    fn decide(&self, known: &Known, waiting: Waiting, absent: &Absent) -> Verdict {
        let (node, csi_node) = (self.node(), self.csi_node());
        announce::decide(&Observed {
            node: lookup(node.as_deref(), absent.node),
            csi_node: lookup(csi_node.as_deref(), absent.csi_node),
            said: &known.said,
            kept: match waiting {
                Waiting::ForEverybody => Kept::Everybody,
                Waiting::ForSome => Kept::Only(&known.kept),
            },
            migrated: &self.migrated,
        })
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.context.cache::<Node>().get(&self.key)
    }

    fn csi_node(&self) -> Option<Arc<CsiNode>> {
        self.context.cache::<CsiNode>().get(&self.key)
    }

    async fn act(&self, action: &Action, absent: &mut Absent) -> Result<(), Error> {
        let Self { context, key, .. } = self;
        match action {
            Action::ReadNode => absent.node = matches!(context.read::<Node>(key).await?, Live::Absent),
            Action::ReadCsiNode => absent.csi_node = matches!(context.read::<CsiNode>(key).await?, Live::Absent),
            Action::ChangeNode(change) => {
                let Some(node) = self.node() else { return Ok(()) };
                let patch = Patch::Merge(node_patch(&node.meta, change));
                if let Err(error) = context.patch::<Node>(key, &patch).await {
                    context.reconsider::<Node>(key, error).await?;
                }
            }
            Action::CreateCsiNode { owner, migrated } => {
                let body = new_csi_node(key.name(), owner.as_str(), migrated);
                absent.csi_node = false;
                if let Err(error) = context.create::<CsiNode>(None, &body).await {
                    context.reconsider::<CsiNode>(key, error).await?;
                }
            }
            Action::DeleteCsiNode => {
                let Some(csi_node) = self.csi_node() else { return Ok(()) };
                self.delete(&csi_node).await?;
            }
            Action::ChangeCsiNode { drivers, migrated } => {
                let Some(csi_node) = self.csi_node() else { return Ok(()) };
                let patch = Patch::Merge(csi_node_patch(&csi_node.meta, drivers, migrated));
                if let Err(error) = context.patch::<CsiNode>(key, &patch).await {
                    context.reconsider::<CsiNode>(key, error).await?;
                }
            }
        }
        Ok(())
    }

    /// At the revision that was seen: its owner may have been set right meanwhile.
    async fn delete(&self, csi_node: &CsiNode) -> Result<(), Error> {
        let deleted = self.context.client.delete::<CsiNode>(&self.key, &Preconditions::unchanged(&csi_node.meta)).await;
        match deleted {
            Ok(runtime::client::Deleted::Gone) => self.context.gone::<CsiNode>(&csi_node.meta),
            Ok(runtime::client::Deleted::Pending(object)) => drop(self.context.cache::<CsiNode>().wrote(object)),
            Err(error) => self.context.reconsider::<CsiNode>(&self.key, error).await?,
        }
        Ok(())
    }
}

fn lookup<T>(cached: Option<&T>, absent: bool) -> Lookup<'_, T> {
    match cached {
        Some(object) => Lookup::Found(object),
        None if absent => Lookup::Absent,
        None => Lookup::NotCached,
    }
}

fn node_patch(seen: &Meta, change: &NodeChange) -> Value {
    let mut metadata = json!({"uid": seen.uid.as_str(), "resourceVersion": seen.revision.to_string()});
    if !change.labels.is_empty() {
        metadata["labels"] = json!(change.labels);
    }
    if !change.annotations.is_empty() {
        metadata["annotations"] = json!(change.annotations);
    }
    json!({ "metadata": metadata })
}

fn new_csi_node(node: &str, uid: &str, migrated: &str) -> Value {
    json!({
        "apiVersion": Kind::CSI_NODE.api_version(),
        "kind": Kind::CSI_NODE.kind,
        "metadata": {
            "name": node,
            "annotations": {annotation::MIGRATED_PLUGINS.text(): migrated},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}],
        },
        "spec": {"drivers": []},
    })
}

fn csi_node_patch(seen: &Meta, drivers: &[NodeDriver], migrated: &str) -> Value {
    let entry = |driver: &NodeDriver| {
        let mut entry = json!({"name": driver.name, "nodeID": driver.node_id});
        if !driver.topology_keys().is_empty() {
            entry["topologyKeys"] = json!(driver.topology_keys());
        }
        if let Some(count) = driver.allocatable.and_then(|allocatable| allocatable.count) {
            entry["allocatable"] = json!({ "count": count });
        }
        entry
    };
    json!({
        "metadata": {
            "uid": seen.uid.as_str(),
            "resourceVersion": seen.revision.to_string(),
            "annotations": {annotation::MIGRATED_PLUGINS.text(): migrated},
        },
        "spec": {"drivers": drivers.iter().map(entry).collect::<Vec<_>>()},
    })
}

/// For whom entries stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The agent has just started.
    ForEverybody,
    ForSome,
}

impl Registry {
    /// One look at Node and CSINode.
    pub(super) async fn turn(&self, begun: Instant) -> runtime::Verdict {
        let over = self.state().expire(Instant::now());
        for driver in over {
            tracing::info!(driver, "the driver did not come back and is forgotten");
            self.rechoose(&driver);
        }
        let settled = begun + self.options.grace;
        match self.announce(Some(begun)).await {
            Ok(_) => {
                let now = Instant::now();
                let next = self.state().known().until.into_iter().chain((now < settled).then_some(settled)).min();
                let wait = next.map_or(self.options.resync, |next| next.saturating_duration_since(now));
                runtime::Verdict::Again(wait.clamp(Duration::from_millis(1), self.options.resync))
            }
            Err(error) => {
                tracing::warn!(%error, "Node and CSINode do not say yet which drivers are here");
                runtime::Verdict::Failed(error.to_string())
            }
        }
    }

    /// Brings Node and CSINode to what is known.
    pub(super) async fn announce(&self, begun: Option<Instant>) -> Result<Verdict, AnnounceError> {
        let known = || {
            // A registration takes nothing away; only the regular look does, and not before its time.
            let some = begun.is_some_and(|begun| Instant::now() >= begun + self.options.grace);
            (self.state().known(), if some { Waiting::ForSome } else { Waiting::ForEverybody })
        };
        let verdict = self.book.write(known).await?;
        match &verdict.decision.because {
            Because::Announced => drop(self.ready.send_replace(Readiness::Initialised)),
            because => tracing::debug!(%because, "Node and CSINode wait"),
        }
        Ok(verdict)
    }
}
