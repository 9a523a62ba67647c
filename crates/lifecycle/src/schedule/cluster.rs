//! What a scheduler knows of the cluster.

use std::sync::Arc;

use api::{Attachment, Capacity, Claim, Class, CsiDriver, CsiNode, Key, Node, Pod, Volume};

/// The objects, as far as somebody knows them: a scheduler's caches, a test's maps. Answers are from memory and do not
/// change while a decision is made.
///
/// What is missing here may exist: nothing is decided from an absence but to wait, and whoever waits is woken when the
/// object comes.
pub trait Cluster {
    fn claim(&self, key: &Key) -> Option<Arc<Claim>>;
    fn volume(&self, name: &str) -> Option<Arc<Volume>>;
    fn class(&self, name: &str) -> Option<Arc<Class>>;
    fn driver(&self, name: &str) -> Option<Arc<CsiDriver>>;
    fn node(&self, name: &str) -> Option<Arc<Node>>;
    fn csi_node(&self, name: &str) -> Option<Arc<CsiNode>>;
    /// All nodes in order of their names.
    fn nodes(&self) -> Vec<Arc<Node>>;
    /// What is known about the room of a class.
    fn capacities(&self, class: &str) -> Vec<Arc<Capacity>>;
    /// The pods that use a claim and have not ended, scheduled or not.
    fn users(&self, claim: &Key) -> Vec<Arc<Pod>>;
    /// The pods that have this node and have not ended.
    fn pods_on(&self, node: &str) -> Vec<Arc<Pod>>;
    fn attachments_on(&self, node: &str) -> Vec<Arc<Attachment>>;
}
