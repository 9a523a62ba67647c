//! Node lifecycle: machines that are not heard of any more, the pods on them, and the volumes on their disks. What is right is
//! decided in [`lifecycle::node_lifecycle`].
//!
//! On a cluster kube-controller-manager does this (its node-lifecycle, taint-eviction and pod-garbage-collector controllers),
//! and two of them would work against each other: it runs for the embedded API, or where an operator names it.
//!
//! # Invariants
//! 1. Time is measured by this process from what it saw itself, and begins again with each time of leading.
//! 2. A node is called lost only after the server itself showed its lease unchanged; a pod or a volume is taken away only
//!    after the server itself showed its node, or that there is none.
//! 3. Every write names the revision or the uid that it was decided about.
//! 4. Nothing polls: renewals, nodes and pods wake whom they concern, and what is due later waits in its queue.

mod attachments;
mod nodes;
mod pods;
mod times;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join4;
pub use lifecycle::node_lifecycle::volume::MachineDriver;
use runtime::Stop;
use runtime::queue::Backoff;

use crate::{Context, Notices};
use attachments::LostAttachments;
use nodes::Nodes;
use pods::Pods;
use times::Absences;
use volumes::Volumes;

/// Who the events are from.
const SOURCE: &str = "node-controller";
/// How often one object is decided about in a row before others get their turn.
const ROUNDS: usize = 8;
const BACKOFF: Backoff = Backoff { start: Duration::from_millis(500), max: Duration::from_secs(30) };

/// How nodes are watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// For how long a node's lease may stay unchanged, and for how long a node that was deleted may come back before what it
    /// had is ended: `--node-monitor-grace-period`.
    pub grace: Duration,
    /// The driver whose volumes and attachments are released with their machines, if there is one.
    pub driver: Option<MachineDriver>,
    /// How many nodes, pods and volumes are worked on at once, each.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { grace: Duration::from_secs(50), driver: None, workers: 16 }
    }
}

/// The node lifecycle controller.
#[derive(Debug)]
pub struct NodeLifecycle {
    nodes: Nodes,
    pods: Pods,
    volumes: Option<Volumes>,
    attachments: Option<LostAttachments>,
    absences: Arc<Absences>,
}

impl NodeLifecycle {
    pub fn new(context: &Context, options: &Options) -> Self {
        let absences = Arc::<Absences>::default();
        let driver = options.driver.as_ref();
        Self {
            nodes: Nodes::new(context, options),
            pods: Pods::new(context, options, &absences),
            volumes: driver.map(|driver| Volumes::new(context, options, driver, &absences)),
            attachments: driver.map(|driver| LostAttachments::new(context, options, driver, &absences)),
            absences,
        }
    }

    /// Watches until `stop`.
    pub async fn run(&self, stop: &Stop) {
        // What happened before this time of leading was not watched.
        self.absences.clear();
        let volumes = async {
            if let Some(volumes) = &self.volumes {
                volumes.run(stop).await;
            }
        };
        let attachments = async {
            if let Some(attachments) = &self.attachments {
                attachments.run(stop).await;
            }
        };
        join4(self.nodes.run(stop), self.pods.run(stop), volumes, attachments).await;
    }
}

fn notices(context: &Context) -> Notices {
    Notices::new(context.recorder.named(SOURCE))
}
