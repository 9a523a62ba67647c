//! Pods on nodes that are lost, tainted or gone: they are told, asked to end, and ended on evidence.

use std::sync::Arc;
use std::time::Duration;

use api::keys::finalizer;
use api::{Key, Node, Pod};
use lifecycle::attach::node::Freshness;
use lifecycle::node_lifecycle::pod::{PodHealth, PodLifecycleAction, PodLifecycleReason, decide};
use lifecycle::{Lookup, Reason as _};
use runtime::client::{Deleted, Error, Preconditions};
use runtime::{Cache, Change, Index, Patch, Queue, Stop, Subscription, Verdict, queue};
use serde_json::{Value, json};

use super::times::{Absences, Tainted};
use super::{BACKOFF, Options, ROUNDS, notices};
use crate::{Context, Live, Notices};

/// All scheduled pods by their node, those that have ended as well.
const ALL_PODS_BY_NODE: Index<Pod> = Index {
    name: "all-by-node",
    values: |pod, put| {
        if pod.scheduled() {
            put(&pod.node);
        }
    },
};

#[derive(Debug)]
pub(super) struct Pods {
    context: Context,
    notices: Notices,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    queue: Queue<Key>,
    tainted: Arc<Tainted>,
    absences: Arc<Absences>,
    quarantine: Duration,
    workers: usize,
    _subscriptions: [Subscription; 2],
}

impl Pods {
    pub(super) fn new(context: &Context, options: &Options, absences: &Arc<Absences>) -> Self {
        let (pods, nodes) = (context.cache::<Pod>(), context.cache::<Node>());
        let queue = Queue::new("node_lifecycle_pods", BACKOFF, &context.metrics, &context.entropy);
        let tainted = Arc::<Tainted>::default();
        let (keys, times) = (queue.clone(), tainted.clone());
        let pod_news = pods.subscribe(move |change| match change {
            Change::Removed(pod) => times.forget(&pod.meta.key),
            Change::Added(pod) if pod.scheduled() => keys.add(pod.meta.key.clone()),
            Change::Changed { old, new } if new.scheduled() && matters(old, new) => keys.add(new.meta.key.clone()),
            Change::Added(_) | Change::Changed { .. } => {}
        });
        let on_node = pods.index(ALL_PODS_BY_NODE);
        let (keys, gone) = (queue.clone(), absences.clone());
        let node_news = nodes.subscribe(move |change| {
            let matters = match change {
                Change::Added(_) | Change::Removed(_) => true,
                Change::Changed { old, new } => (old.ready, &old.taints) != (new.ready, &new.taints),
            };
            if change.after().is_some() {
                gone.end(change.key().name());
            }
            if matters {
                on_node.all(change.key().name()).iter().for_each(|pod| keys.add(pod.meta.key.clone()));
            }
        });
        Self {
            context: context.clone(),
            notices: notices(context),
            pods,
            nodes,
            queue,
            tainted,
            absences: absences.clone(),
            quarantine: options.grace,
            workers: options.workers,
            _subscriptions: [pod_news, node_news],
        }
    }

    pub(super) async fn run(&self, stop: &Stop) {
        self.tainted.clear();
        let synced = async {
            self.pods.synced().await;
            self.nodes.synced().await;
        };
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = synced => {}
        }
        let scheduled = self.pods.walk().filter(|pod| pod.scheduled());
        scheduled.for_each(|pod| self.queue.add(pod.meta.key.clone()));
        queue::run(&self.queue, self.workers, stop, |key| self.pass(key)).await;
    }

    async fn pass(&self, key: Key) -> Verdict {
        let mut live: Option<Live<Node>> = None;
        for _ in 0..ROUNDS {
            let Some(pod) = self.pods.get(&key) else {
                self.tainted.forget(&key);
                return Verdict::Done;
            };
            let cached = self.nodes.get(&Key::cluster(&pod.node));
            let (node, freshness) = match (&live, &cached) {
                (Some(live), _) => (live.lookup(), Freshness::Live),
                (None, Some(node)) => (Lookup::Found(&**node), Freshness::Cached),
                (None, None) => (Lookup::NotCached, Freshness::Cached),
            };
            let orphaned_for = match node {
                Lookup::Absent => self.absences.note(&pod.node),
                Lookup::Found(_) | Lookup::NotCached => Duration::ZERO,
            };
            let tainted_for = self.tainted.seen(&pod, node);
            let (pod_seen, quarantine) = (&*pod, self.quarantine);
            let health = PodHealth { pod: pod_seen, node, freshness, tainted_for, orphaned_for, quarantine };
            let decision = decide(&health);
            let acted = match decision.actions.first() {
                None => return rest(&pod, &decision.because),
                Some(PodLifecycleAction::ReadNode) => match self.context.read(&Key::cluster(&pod.node)).await {
                    Ok(read) => {
                        live = Some(read);
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
                Some(PodLifecycleAction::SayNotReady) => self.say_not_ready(&pod, &decision.because).await,
                Some(PodLifecycleAction::Evict) => self.evict(&pod, &decision.because).await,
                Some(PodLifecycleAction::ForceDelete) => self.force(&pod, &decision.because).await,
            };
            if let Err(error) = acted {
                return Verdict::Failed(error.to_string());
            }
        }
        Verdict::Again(BACKOFF.start)
    }

    fn told(&self, pod: &Pod, because: &PodLifecycleReason) {
        if let Some(notice) = because.notice() {
            self.notices.always(pod, &notice);
        }
    }

    async fn say_not_ready(&self, pod: &Pod, because: &PodLifecycleReason) -> Result<(), Error> {
        let condition = self.condition("Ready", "False", ("NodeNotReady", because));
        self.write_status(pod, json!({"conditions": [condition]})).await?;
        self.told(pod, because);
        Ok(())
    }

    /// Asks for a pod's end, as taint-eviction does; whoever made it may make another one elsewhere.
    async fn evict(&self, pod: &Pod, because: &PodLifecycleReason) -> Result<(), Error> {
        let condition = self.condition("DisruptionTarget", "True", ("DeletionByTaintManager", because));
        self.write_status(pod, json!({"conditions": [condition]})).await?;
        match self.context.delete::<Pod>(&pod.meta).await {
            Ok(()) => {
                tracing::info!(pod = %pod.meta.key, node = &*pod.node, %because, "a pod is evicted");
                self.told(pod, because);
                Ok(())
            }
            Err(error) => self.context.reconsider::<Pod>(&pod.meta.key, error).await,
        }
    }

    /// Ends a pod without its node, as pod garbage collection does.
    async fn force(&self, pod: &Pod, because: &PodLifecycleReason) -> Result<(), Error> {
        if !pod.terminated() {
            let condition = self.condition("DisruptionTarget", "True", ("DeletionByPodGC", because));
            self.write_status(pod, json!({"phase": "Failed", "conditions": [condition]})).await?;
        }
        if pod.meta.has_finalizer(finalizer::HOST_MOUNT) {
            self.let_go_of_machine(&pod.meta.key).await?;
        }
        match self.context.client.delete_now::<Pod>(&pod.meta.key, &Preconditions::same(&pod.meta)).await {
            Ok(Deleted::Gone) => self.context.gone::<Pod>(&pod.meta),
            Ok(Deleted::Pending(held)) => drop(self.pods.wrote(held)),
            Err(error) => return self.context.reconsider::<Pod>(&pod.meta.key, error).await,
        }
        tracing::warn!(pod = %pod.meta.key, node = &*pod.node, %because, "a pod is deleted without its node");
        self.told(pod, because);
        Ok(())
    }

    /// Takes off the finalizer of `orlop mount`: the machine that would take it off is gone.
    async fn let_go_of_machine(&self, key: &Key) -> Result<(), Error> {
        let Some(pod) = self.pods.get(key) else { return Ok(()) };
        let others = pod.meta.finalizers.iter().map(|held| held.as_str());
        let others: Vec<&str> = others.filter(|held| *held != finalizer::HOST_MOUNT.text()).collect();
        let metadata = json!({"uid": pod.meta.uid.as_str(), "resourceVersion": pod.meta.revision.to_string(),
            "finalizers": others});
        match self.context.patch::<Pod>(key, &Patch::Merge(json!({"metadata": metadata}))).await {
            Ok(_) => Ok(()),
            Err(error) => self.context.reconsider::<Pod>(key, error).await,
        }
    }

    fn condition(&self, kind: &str, status: &str, (reason, because): (&str, &PodLifecycleReason)) -> Value {
        let now = self.context.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        json!({"type": kind, "status": status, "reason": reason, "message": because.to_string(),
            "lastTransitionTime": now})
    }

    /// Conditions are merged by their type. What becomes of a pod that has changed or gone is decided with the next step.
    async fn write_status(&self, pod: &Pod, status: Value) -> Result<(), Error> {
        let patch = Patch::Strategic(json!({"metadata": {"uid": pod.meta.uid.as_str()}, "status": status}));
        match self.context.patch_status::<Pod>(&pod.meta.key, &patch).await {
            Ok(_) => Ok(()),
            Err(error) => self.context.reconsider::<Pod>(&pod.meta.key, error).await,
        }
    }
}

/// Whether a change of a pod changes what is decided about it.
fn matters(old: &Pod, new: &Pod) -> bool {
    let decides = |pod: &Pod| (pod.meta.is_deleting(), pod.grace, pod.ready, pod.phase, pod.meta.finalizers.len());
    old.meta.uid != new.meta.uid
        || old.node != new.node
        || decides(old) != decides(new)
        || old.placement != new.placement
}

fn rest(pod: &Pod, because: &PodLifecycleReason) -> Verdict {
    tracing::debug!(pod = %pod.meta.key, because = because.code(), "the pod's node");
    match because {
        PodLifecycleReason::Tolerates { left } | PodLifecycleReason::NodeMissing { left } => Verdict::Again(*left),
        _ => Verdict::Done,
    }
}
