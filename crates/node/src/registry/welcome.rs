//! New nodes are taken into service: the taint that the API server gives them comes off once they say that they are ready.
//!
//! In a cluster kube-controller-manager does this. An agent with the rights of an administrator does it for its own node;
//! one with the identity of its node may not, and this does it for all of them, beside the API server.

use std::time::Duration;

use api::node::Readiness;
use api::{Key, Node};
use lifecycle::registration::machine::is_of_new_nodes;
use runtime::queue::Backoff;
use runtime::{Cache, Context, Queue, Stop, Subscription, Verdict, queue};

use super::taints;

const BACKOFF: Backoff = Backoff { start: Duration::from_millis(100), max: Duration::from_secs(30) };

/// Takes the taint of new nodes off those that are ready.
#[derive(Debug)]
pub struct Welcome {
    context: Context,
    nodes: Cache<Node>,
    queue: Queue<Key>,
    _subscription: Subscription,
}

impl Welcome {
    pub fn new(context: &Context) -> Self {
        let queue = Queue::new("new_nodes", BACKOFF, &context.metrics, &context.entropy);
        let nodes = context.cache::<Node>();
        let keys = queue.clone();
        let subscription = nodes.subscribe(move |change| {
            if let Some(node) = change.after().filter(|node| waits(node)) {
                keys.add(node.meta.key.clone());
            }
        });
        Self { context: context.clone(), nodes, queue, _subscription: subscription }
    }

    pub async fn run(&self, stop: &Stop) {
        queue::run(&self.queue, 1, stop, |key| self.pass(key)).await;
    }

    async fn pass(&self, key: Key) -> Verdict {
        let Some(node) = self.nodes.get(&key).filter(|node| waits(node)) else { return Verdict::Done };
        let removed = taints::remove(&self.context, &node, is_of_new_nodes).await;
        let Err(error) = removed else { return Verdict::Done };
        match self.context.reconsider::<Node>(&key, error).await {
            Ok(()) => Verdict::Again(BACKOFF.start),
            Err(error) => Verdict::Failed(error.to_string()),
        }
    }
}

/// Ready, and still kept from taking pods.
fn waits(node: &Node) -> bool {
    node.ready == Readiness::Ready && node.taints.iter().any(|taint| is_of_new_nodes(&taint.key, &taint.effect))
}
