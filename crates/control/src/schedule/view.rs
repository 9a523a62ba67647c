//! The cluster as the caches know it.

use std::sync::Arc;

use api::{Attachment, Capacity, Claim, Class, CsiDriver, CsiNode, Key, Node, Object, Pod, Volume};
use lifecycle::schedule::Cluster;
use runtime::cache::Lookup;
use runtime::{Cache, Index};

use crate::Context;
use crate::index::{ATTACHMENTS_BY_NODE, PODS_BY_CLAIM, PODS_BY_NODE};

#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) pods: Cache<Pod>,
    pub(super) pods_by_claim: Lookup<Pod>,
    pods_by_node: Lookup<Pod>,
    pub(super) claims: Cache<Claim>,
    pub(super) volumes: Cache<Volume>,
    pub(super) classes: Cache<Class>,
    pub(super) nodes: Cache<Node>,
    pub(super) csi_nodes: Cache<CsiNode>,
    pub(super) drivers: Cache<CsiDriver>,
    pub(super) capacities: Cache<Capacity>,
    capacities_by_class: Lookup<Capacity>,
    pub(super) attachments: Cache<Attachment>,
    attachments_by_node: Lookup<Attachment>,
}

const CAPACITIES_BY_CLASS: Index<Capacity> =
    Index { name: "class", values: |capacity, put| put(&capacity.storage_class_name) };

impl View {
    pub(super) fn new(context: &Context) -> Self {
        let pods = context.cache::<Pod>();
        let capacities = context.cache::<Capacity>();
        let attachments = context.cache::<Attachment>();
        Self {
            pods_by_claim: pods.index(PODS_BY_CLAIM),
            pods_by_node: pods.index(PODS_BY_NODE),
            pods,
            claims: context.cache(),
            volumes: context.cache(),
            classes: context.cache(),
            nodes: context.cache(),
            csi_nodes: context.cache(),
            drivers: context.cache(),
            capacities_by_class: capacities.index(CAPACITIES_BY_CLASS),
            capacities,
            attachments_by_node: attachments.index(ATTACHMENTS_BY_NODE),
            attachments,
        }
    }

    pub(super) async fn synced(&self) {
        self.pods.synced().await;
        self.claims.synced().await;
        self.volumes.synced().await;
        self.classes.synced().await;
        self.nodes.synced().await;
        self.csi_nodes.synced().await;
        self.drivers.synced().await;
        self.capacities.synced().await;
        self.attachments.synced().await;
    }
}

fn named<T: Object>(cache: &Cache<T>, name: &str) -> Option<Arc<T>> {
    cache.get(&Key::cluster(name))
}

impl Cluster for View {
    fn claim(&self, key: &Key) -> Option<Arc<Claim>> {
        self.claims.get(key)
    }

    fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        named(&self.volumes, name)
    }

    fn class(&self, name: &str) -> Option<Arc<Class>> {
        named(&self.classes, name)
    }

    fn driver(&self, name: &str) -> Option<Arc<CsiDriver>> {
        named(&self.drivers, name)
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        named(&self.nodes, name)
    }

    fn csi_node(&self, name: &str) -> Option<Arc<CsiNode>> {
        named(&self.csi_nodes, name)
    }

    fn nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.walk().collect()
    }

    fn capacities(&self, class: &str) -> Vec<Arc<Capacity>> {
        self.capacities_by_class.all(class)
    }

    fn users(&self, claim: &Key) -> Vec<Arc<Pod>> {
        let mut users = self.pods_by_claim.all(&claim.to_string());
        users.retain(|pod| !pod.terminated());
        users
    }

    fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        self.pods_by_node.all(node)
    }

    fn attachments_on(&self, node: &str) -> Vec<Arc<Attachment>> {
        self.attachments_by_node.all(node)
    }
}
