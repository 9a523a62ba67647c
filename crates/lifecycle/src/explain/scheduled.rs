//! A pod without a node: what `orlop scheduler` decides about it from the same picture.
//!
//! A cluster may have another scheduler, whose word comes first where there is one. It knows more about processors and
//! memory; about volumes the two ask the same questions.

use std::sync::Arc;

use api::{Attachment, Capacity, Claim, Class, CsiDriver, CsiNode, Key, Kind, Node, Pod, Volume};

use super::{Picture, Step, Subject, Told, Trail, advice};
use crate::schedule::place::place;
use crate::schedule::{Book, Cluster, Moment};

/// Adds what a scheduler says about a pod, if enough could be looked at.
pub(super) fn look(trail: &mut Trail<'_>, pod: &Pod) {
    let picture = trail.picture;
    let seen = picture.nodes.is_seen() && picture.claims.is_seen() && picture.volumes.is_seen();
    if !seen || !picture.classes.is_seen() {
        return;
    }
    let mut book = Book::default();
    picture.volumes.items().iter().cloned().for_each(|volume| book.shelf.put(Arc::new(volume)));
    let because = place(pod, picture, &book, Moment::ZERO).because;
    let scope = "judged by volumes, taints and placement; processors and memory are not looked at".to_owned();
    let told = Told::evidence([scope]).fixed(advice::schedule(&because));
    trail.push(Subject::of(Kind::POD.kind, &pod.meta.key), Step::Schedule, &because, told);
}

fn found<T: Clone>(items: &[T], is: impl Fn(&T) -> bool) -> Option<Arc<T>> {
    items.iter().find(|item| is(item)).cloned().map(Arc::new)
}

fn all<T: Clone>(items: &[T], are: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
    items.iter().filter(|item| are(item)).cloned().map(Arc::new).collect()
}

impl Cluster for Picture {
    fn claim(&self, key: &Key) -> Option<Arc<Claim>> {
        found(self.claims.items(), |claim| claim.key() == key)
    }

    fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        found(self.volumes.items(), |volume| volume.name() == name)
    }

    fn class(&self, name: &str) -> Option<Arc<Class>> {
        found(self.classes.items(), |class| class.name() == name)
    }

    fn driver(&self, name: &str) -> Option<Arc<CsiDriver>> {
        found(self.drivers.items(), |driver| driver.meta.key.name() == name)
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        found(self.nodes.items(), |node| node.name() == name)
    }

    fn csi_node(&self, name: &str) -> Option<Arc<CsiNode>> {
        found(self.csi_nodes.items(), |node| node.meta.key.name() == name)
    }

    fn nodes(&self) -> Vec<Arc<Node>> {
        let mut nodes = all(self.nodes.items(), |_| true);
        nodes.sort_by(|a, b| a.name().cmp(b.name()));
        nodes
    }

    fn capacities(&self, class: &str) -> Vec<Arc<Capacity>> {
        all(self.capacities.items(), |capacity| *capacity.storage_class_name == *class)
    }

    fn users(&self, claim: &Key) -> Vec<Arc<Pod>> {
        let here = |pod: &Pod| Some(pod.namespace()) == claim.namespace() && !pod.terminated();
        all(self.pods.items(), |pod| here(pod) && pod.claims().any(|name| *name == *claim.name()))
    }

    fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        all(self.pods.items(), |pod| *pod.node == *node && !pod.terminated())
    }

    fn attachments_on(&self, node: &str) -> Vec<Arc<Attachment>> {
        all(self.attachments.items(), |attachment| *attachment.node == *node)
    }
}
