//! What is known about nodes: from the caches, or in node mode from the driver itself (PROVISION-2.9, PROVISION-2.13).

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use api::node::{NodeDriver, Readiness};
use api::{CsiNode, Key, Meta, Node, Pairs};
use csi::v1;
use lifecycle::Lookup;
use lifecycle::provision::csi::topology::{Nodes, Selected, Term};
use runtime::client::Error;
use runtime::csi::{CallError, Driver};
use runtime::{Cache, Change, Subscription};

use super::waiting::What;
use super::{Inner, NodeMode};
use crate::{Context, Live};

/// Where nodes are looked up.
#[derive(Debug)]
pub(super) struct Places {
    context: Context,
    node: Option<NodeMode>,
    /// What the driver said about our node, and on which connection.
    said: Mutex<Option<(u64, Term)>>,
    watched: OnceLock<[Subscription; 2]>,
}

/// Why nothing can be said about nodes now.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unknown {
    #[error("the nodes are not known yet")]
    NotSynced,
    #[error("asking for the node: {0}")]
    Api(Error),
    #[error("asking the driver about its node: {0}")]
    Driver(CallError),
}

impl Places {
    pub(super) fn new(context: &Context, node: Option<NodeMode>) -> Self {
        Self { context: context.clone(), node, said: Mutex::default(), watched: OnceLock::new() }
    }

    /// Starts the watches, which node mode does without, and wakes claims that waited for nodes.
    pub(super) fn declare(&self, inner: &Arc<Inner>) {
        if self.node.is_some() {
            return;
        }
        self.watched.get_or_init(|| {
            let told = Arc::downgrade(inner);
            let csi_nodes = self.context.cache::<CsiNode>().subscribe(move |_| {
                if let Some(inner) = told.upgrade() {
                    inner.wake(&What::Nodes);
                }
            });
            let told = Arc::downgrade(inner);
            let nodes = self.context.cache::<Node>().subscribe(move |change| {
                if let (true, Some(inner)) = (relabelled(change), told.upgrade()) {
                    inner.wake(&What::Nodes);
                }
            });
            [csi_nodes, nodes]
        });
    }

    /// Our own node's place, as the driver names it: asked once per connection.
    pub(super) async fn own(&self, driver: &Driver, wait: Duration) -> Result<Term, Unknown> {
        let connection = driver.facts().map_or(0, |facts| facts.connection);
        if let Some((at, term)) = &*self.said.lock().unwrap_or_else(PoisonError::into_inner)
            && *at == connection
        {
            return Ok(term.clone());
        }
        let info = driver.node_get_info(v1::NodeGetInfoRequest {}, wait).await.map_err(Unknown::Driver)?;
        let term = Term(info.accessible_topology.map(|topology| topology.segments).unwrap_or_default());
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Some((connection, term.clone()));
        Ok(term)
    }

    /// Everything about nodes that one requirement needs.
    pub(super) async fn around(
        &self,
        driver: &Driver,
        selected: Option<&str>,
        wait: Duration,
    ) -> Result<Around, Unknown> {
        if let (Some(node), Some(facts)) = (&self.node, driver.facts()) {
            return Ok(Around::Own(Box::new(Own::new(&node.name, &facts.name, self.own(driver, wait).await?))));
        }
        let (nodes, csi_nodes) = (self.context.cache::<Node>(), self.context.cache::<CsiNode>());
        if !nodes.is_synced() || !csi_nodes.is_synced() {
            return Err(Unknown::NotSynced);
        }
        let selected = match selected {
            None => None,
            Some(name) => {
                let key = Key::cluster(name);
                Some((self.found(&csi_nodes, &key).await?, self.found(&nodes, &key).await?))
            }
        };
        Ok(Around::All { nodes: Cached { nodes, csi_nodes }, selected })
    }

    async fn found<T: api::Object + Clone>(&self, cache: &Cache<T>, key: &Key) -> Result<Live<T>, Unknown> {
        match cache.get(key) {
            Some(object) => Ok(Live::Found(object)),
            None => self.context.read::<T>(key).await.map_err(Unknown::Api),
        }
    }
}

/// Most writes to a node change its status only.
pub(crate) fn relabelled(change: &Change<Node>) -> bool {
    match change {
        Change::Changed { old, new } => old.meta.labels != new.meta.labels,
        Change::Added(_) | Change::Removed(_) => true,
    }
}

/// What one requirement looks at.
#[derive(Debug)]
pub(super) enum Around {
    All { nodes: Cached, selected: Option<(Live<CsiNode>, Live<Node>)> },
    Own(Box<Own>),
}

impl Around {
    pub(super) fn nodes(&self) -> &dyn Nodes {
        match self {
            Around::All { nodes, .. } => nodes,
            Around::Own(own) => &**own,
        }
    }

    pub(super) fn selected<'a>(&'a self, name: Option<&'a str>) -> Option<Selected<'a>> {
        let name = name?;
        match self {
            Around::All { selected, .. } => {
                let (csi_node, node) = selected.as_ref()?;
                Some(Selected { name, csi_node: csi_node.lookup(), node: node.lookup() })
            }
            Around::Own(own) => {
                Some(Selected { name, csi_node: Lookup::Found(&own.csi_node), node: Lookup::Found(&own.node) })
            }
        }
    }
}

/// All nodes that the caches know.
#[derive(Debug)]
pub(crate) struct Cached {
    pub(crate) nodes: Cache<Node>,
    pub(crate) csi_nodes: Cache<CsiNode>,
}

impl Nodes for Cached {
    fn visit(&self, visit: &mut dyn FnMut(&CsiNode, &Pairs)) {
        for csi_node in self.csi_nodes.walk() {
            if let Some(node) = self.nodes.get(&csi_node.meta.key) {
                visit(&csi_node, &node.meta.labels);
            }
        }
    }
}

/// One node, as its driver describes it: in node mode the server is not asked about nodes.
#[derive(Debug)]
pub(super) struct Own {
    csi_node: CsiNode,
    node: Node,
}

impl Own {
    fn new(name: &str, driver: &str, place: Term) -> Self {
        let keys = place.0.keys().map(|key| key.as_str().into()).collect();
        let driver =
            NodeDriver { name: driver.into(), node_id: name.into(), topology_keys: Some(keys), allocatable: None };
        let csi_node = CsiNode { meta: Meta::new(Key::cluster(name)), drivers: Box::new([driver]) };
        let meta = Meta { labels: place.0.iter().collect(), ..Meta::new(Key::cluster(name)) };
        let node = Node {
            meta,
            unschedulable: false,
            taints: Box::default(),
            ready: Readiness::Unknown,
            ready_since: None,
            heartbeat: None,
            attached: Box::default(),
            in_use: Box::default(),
        };
        Self { csi_node, node }
    }
}

impl Nodes for Own {
    fn visit(&self, visit: &mut dyn FnMut(&CsiNode, &Pairs)) {
        visit(&self.csi_node, &self.node.meta.labels);
    }
}
