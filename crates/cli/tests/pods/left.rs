//! What is left of pods and claims that are gone, looked for everywhere.

use node::layout::Layout;

use super::cluster::{Cluster, Node};
use super::objects;
use crate::rig::left::{entries, loops_on};

impl Cluster {
    /// Everything in the API and on the machine that should have gone.
    pub(super) async fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for path in [objects::PODS, objects::CLAIMS, objects::VOLUMES, objects::ATTACHMENTS] {
            let objects = self.list(path).await;
            left.extend(objects.iter().map(|object| format!("{path}: {}", object["metadata"]["name"])));
        }
        for node in &self.nodes {
            left.extend(left_on(node));
        }
        left.extend(loops_on(&self.scratch.path("")).into_iter().map(|(device, file)| format!("{device} on {file}")));
        left
    }
}

/// Mounts, directories and images of a node.
fn left_on(node: &Node) -> Vec<String> {
    let mut left = Vec::new();
    let table = node.namespace.mounts();
    let top = node.root.parent().expect("it is in a folder");
    // The agent keeps its root as a mount, as a kubelet's is one.
    let points = table.below(top).map(|mount| &mount.mount_point).filter(|point| **point != node.root);
    left.extend(points.map(|point| format!("mount on {}: {}", node.name, point.display())));
    let staged = Layout::new(&node.root).unwrap().csi().join(node.driver_name());
    let folders =
        [node.root.join("pods"), staged, node.pool.join("volumes"), node.pool.join(".tmp"), node.pool.join(".trash")];
    for folder in folders {
        left.extend(entries(&folder).iter().map(|path| format!("file on {}: {}", node.name, path.display())));
    }
    left
}
