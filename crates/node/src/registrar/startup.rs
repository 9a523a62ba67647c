//! Takes startup taints off a node once its CSINode lists the driver.
//!
//! A process that has nothing else to do with nodes calls [`crate::registry::narrow`] first.

use std::time::Duration;

use api::{CsiNode, Key, Node};
use lifecycle::registration::taint::{self, Action, Because};
use lifecycle::{Decision, Lookup};
use runtime::client::Error;
use runtime::queue::Backoff;
use runtime::{Context, Queue, Stop, Subscription, Verdict, queue};

use crate::registry::taints;

const BACKOFF: Backoff = Backoff { start: Duration::from_millis(500), max: Duration::from_secs(60) };
const ROUNDS: usize = 4;

#[derive(Debug, Clone)]
pub struct Options {
    pub node: String,
    pub driver: String,
    /// Keys of taints.
    pub taints: Vec<String>,
}

/// Keeps a node free of its startup taints while the driver is there.
#[derive(Debug)]
pub struct Remover {
    context: Context,
    options: Options,
    key: Key,
    queue: Queue<()>,
    _subscriptions: [Subscription; 2],
}

impl Remover {
    pub fn new(context: &Context, options: Options) -> Self {
        let key = Key::cluster(&options.node);
        let queue = Queue::new("startup_taints", BACKOFF, &context.metrics, &context.entropy);
        let (own, keys) = (key.clone(), queue.clone());
        let nodes = context.cache::<Node>().subscribe(move |change| {
            if *change.key() == own {
                keys.add(());
            }
        });
        let (own, keys) = (key.clone(), queue.clone());
        let csi_nodes = context.cache::<CsiNode>().subscribe(move |change| {
            if *change.key() == own {
                keys.add(());
            }
        });
        Self { context: context.clone(), options, key, queue, _subscriptions: [nodes, csi_nodes] }
    }

    pub async fn run(&self, stop: &Stop) {
        let synced = async {
            self.context.cache::<Node>().synced().await;
            self.context.cache::<CsiNode>().synced().await;
        };
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = synced => {}
        }
        queue::run(&self.queue, 1, stop, |()| self.pass()).await;
    }

    async fn pass(&self) -> Verdict {
        for _ in 0..ROUNDS {
            let decision = self.decide();
            let Some(Action::Remove) = decision.actions.first() else { return Verdict::Done };
            if let Err(error) = self.remove().await {
                tracing::warn!(%error, node = self.options.node, "taking off the startup taints");
                return Verdict::Failed(error.to_string());
            }
        }
        Verdict::Again(Duration::from_secs(1))
    }

    fn decide(&self) -> Decision<Action, Because> {
        let node = self.context.cache::<Node>().get(&self.key);
        let csi_node = self.context.cache::<CsiNode>().get(&self.key);
        let node = node.as_deref().map_or(Lookup::NotCached, Lookup::Found);
        let csi_node = csi_node.as_deref().map_or(Lookup::NotCached, Lookup::Found);
        taint::decide(node, csi_node, &self.options.driver, &self.options.taints)
    }

    async fn remove(&self) -> Result<(), Error> {
        let Some(node) = self.context.cache::<Node>().get(&self.key) else { return Ok(()) };
        let ours = |key: &str, _: &str| self.options.taints.iter().any(|taint| taint == key);
        match taints::remove(&self.context, &node, ours).await {
            Ok(()) => {
                tracing::info!(node = self.options.node, taints = ?self.options.taints, "the node's startup taints are off");
                Ok(())
            }
            Err(error) => self.context.reconsider::<Node>(&self.key, error).await,
        }
    }
}
