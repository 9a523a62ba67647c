//! Nodes whose agents stop renewing their leases: conditions and taints.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{Key, Kind, Lease, Node};
use lifecycle::Reason as _;
use lifecycle::node_lifecycle::node::{
    AGENT_CONDITIONS, CONDITION_TAINTS, ConditionTaint, LeaseSilence, NodeHealth, NodeLifecycleAction,
    NodeLifecycleReason, UNKNOWN_MESSAGE, UNKNOWN_REASON, decide, lost_notice,
};
use runtime::client::{Error, Selection};
use runtime::{Cache, Change, Patch, Queue, Stop, Subscription, Verdict, queue};
use serde_json::{Value, json};

use super::times::Heard;
use super::{BACKOFF, Options, ROUNDS, notices};
use crate::{Context, Notices};

/// Where the leases of nodes are.
const NAMESPACE: &str = "kube-node-lease";

#[derive(Debug)]
pub(super) struct Nodes {
    context: Context,
    notices: Notices,
    nodes: Cache<Node>,
    leases: Cache<Lease>,
    queue: Queue<Key>,
    heard: Heard,
    /// Lost nodes whose pods are not evicted because no other node is heard of. They are looked at again with the next sign of
    /// life of any node.
    doubtful: Arc<Mutex<BTreeSet<Key>>>,
    grace: Duration,
    workers: usize,
    _subscriptions: [Subscription; 2],
}

impl Nodes {
    pub(super) fn new(context: &Context, options: &Options) -> Self {
        let nodes = context.cache::<Node>();
        let selection = Selection { namespace: Some(NAMESPACE.to_owned()), ..Selection::default() };
        let leases = context.caches.selected::<Lease>(selection);
        let queue = Queue::new("node_lifecycle_nodes", BACKOFF, &context.metrics, &context.entropy);
        let keys = queue.clone();
        let node_news = nodes.subscribe(move |change| {
            let matters = match change {
                Change::Added(_) | Change::Removed(_) => true,
                Change::Changed { old, new } => {
                    (old.ready, old.ready_since, &old.taints) != (new.ready, new.ready_since, &new.taints)
                }
            };
            if matters {
                keys.add(change.key().clone());
            }
        });
        let doubtful = Arc::<Mutex<BTreeSet<Key>>>::default();
        let (keys, waiting) = (queue.clone(), doubtful.clone());
        let lease_news = leases.subscribe(move |change| {
            keys.add(Key::cluster(change.key().name()));
            let waiting = std::mem::take(&mut *waiting.lock().unwrap_or_else(PoisonError::into_inner));
            waiting.into_iter().for_each(|key| keys.add(key));
        });
        Self {
            context: context.clone(),
            notices: notices(context),
            nodes,
            leases,
            queue,
            heard: Heard::default(),
            doubtful,
            grace: options.grace,
            workers: options.workers,
            _subscriptions: [node_news, lease_news],
        }
    }

    pub(super) async fn run(&self, stop: &Stop) {
        self.heard.clear();
        let synced = async {
            self.nodes.synced().await;
            self.leases.synced().await;
        };
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = synced => {}
        }
        // Those that an earlier time of leading had finished with are watched from now on as well.
        self.nodes.walk().for_each(|node| self.queue.add(node.meta.key.clone()));
        queue::run(&self.queue, self.workers, stop, |key| self.pass(key)).await;
    }

    async fn pass(&self, key: Key) -> Verdict {
        let mut confirmed = false;
        for _ in 0..ROUNDS {
            let Some(node) = self.nodes.get(&key) else {
                self.heard.forget(key.name());
                return Verdict::Done;
            };
            let lease = self.leases.get(&Key::namespaced(NAMESPACE, key.name()));
            let lease = match (self.heard.silence(&node, lease.as_deref()), confirmed) {
                (None, _) => LeaseSilence::NoLease,
                (Some(silence), true) => LeaseSilence::Confirmed(silence),
                (Some(silence), false) => LeaseSilence::Cached(silence),
            };
            let others = self.heard.others(key.name());
            let decision = decide(&NodeHealth { node: &node, lease, others, grace: self.grace });
            let acted = match decision.actions.first() {
                None => return self.rest(&node, lease, &decision.because),
                Some(NodeLifecycleAction::ReadLease) => {
                    confirmed = true;
                    self.read_lease(key.name()).await
                }
                Some(NodeLifecycleAction::SayUnknown) => self.say_unknown(&node).await,
                Some(NodeLifecycleAction::SetTaints(wanted)) => self.set_taints(&node, wanted).await,
            };
            if let Err(error) = acted {
                return Verdict::Failed(error.to_string());
            }
        }
        Verdict::Again(BACKOFF.start)
    }

    fn rest(&self, node: &Node, lease: LeaseSilence, because: &NodeLifecycleReason) -> Verdict {
        tracing::debug!(node = node.name(), because = because.code(), "the node's lease");
        if *because == NodeLifecycleReason::AllSilent {
            self.doubtful.lock().unwrap_or_else(PoisonError::into_inner).insert(node.meta.key.clone());
        }
        match lease {
            LeaseSilence::NoLease => Verdict::Done,
            LeaseSilence::Cached(silence) | LeaseSilence::Confirmed(silence) if silence < self.grace => {
                Verdict::Again(self.grace - silence)
            }
            LeaseSilence::Cached(_) | LeaseSilence::Confirmed(_) => Verdict::Done,
        }
    }

    /// Asks the server for the lease, past the cache, which learns the answer.
    async fn read_lease(&self, node: &str) -> Result<(), Error> {
        match self.context.client.get::<Lease>(Kind::LEASE, &Key::namespaced(NAMESPACE, node)).await {
            Ok(lease) => drop(self.leases.wrote(lease)),
            // That there is none is no sign of life.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Writes Unknown into the conditions of the node's agent.
    async fn say_unknown(&self, node: &Node) -> Result<(), Error> {
        let key = &node.meta.key;
        let whole: Value = match self.context.client.get(Kind::NODE, key).await {
            Ok(whole) => whole,
            Err(error) => return self.context.reconsider::<Node>(key, error).await,
        };
        let now = self.context.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let conditions = unknown_conditions(&whole["status"]["conditions"], &now);
        // The revision that was decided about: had the agent written since, this is refused.
        let patch = Patch::Merge(json!({"metadata": written_at(node), "status": {"conditions": conditions}}));
        match self.context.patch_status::<Node>(key, &patch).await {
            Ok(_) => {
                tracing::warn!(node = node.name(), because = %NodeLifecycleReason::Silent, "a node is lost");
                self.notices.always(node, &lost_notice(node));
                // What was decided about other lost nodes counted on this one.
                self.heard.silent(self.grace).into_iter().for_each(|key| self.queue.add(key));
                Ok(())
            }
            Err(error) => self.context.reconsider::<Node>(key, error).await,
        }
    }

    /// Gives a node exactly these of the taints that follow from its condition; the others stay as they are.
    async fn set_taints(&self, node: &Node, wanted: &[ConditionTaint]) -> Result<(), Error> {
        let key = &node.meta.key;
        // The whole object: what the cache holds of a taint lacks when it was added.
        let whole: Value = match self.context.client.get(Kind::NODE, key).await {
            Ok(whole) => whole,
            Err(error) => return self.context.reconsider::<Node>(key, error).await,
        };
        let now = self.context.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let taints = with_taints(&whole["spec"]["taints"], wanted, &now);
        let patch = Patch::Merge(json!({"metadata": written_at(node), "spec": {"taints": taints}}));
        match self.context.patch::<Node>(key, &patch).await {
            Ok(_) => Ok(()),
            Err(error) => self.context.reconsider::<Node>(key, error).await,
        }
    }
}

fn written_at(node: &Node) -> Value {
    json!({"uid": node.meta.uid.as_str(), "resourceVersion": node.meta.revision.to_string()})
}

/// A node's conditions with those of its agent Unknown. Ready is added if it was never said.
fn unknown_conditions(held: &Value, now: &str) -> Vec<Value> {
    let mut conditions = held.as_array().cloned().unwrap_or_default();
    if !conditions.iter().any(|condition| condition["type"] == "Ready") {
        conditions.push(json!({"type": "Ready"}));
    }
    for condition in &mut conditions {
        let of_agent = condition["type"].as_str().is_some_and(|kind| AGENT_CONDITIONS.contains(&kind));
        if of_agent && condition["status"] != "Unknown" {
            condition["status"] = "Unknown".into();
            condition["reason"] = UNKNOWN_REASON.into();
            condition["message"] = UNKNOWN_MESSAGE.into();
            condition["lastTransitionTime"] = now.into();
        }
    }
    conditions
}

fn with_taints(held: &Value, wanted: &[ConditionTaint], now: &str) -> Vec<Value> {
    let text = |taint: &Value, member: &str| taint[member].as_str().unwrap_or_default().to_owned();
    let is = |one: &ConditionTaint, taint: &Value| one.is(&text(taint, "key"), &text(taint, "effect"));
    let mut taints = held.as_array().cloned().unwrap_or_default();
    taints.retain(|taint| {
        let ours = CONDITION_TAINTS.iter().any(|one| is(one, taint));
        !ours || wanted.iter().any(|one| is(one, taint))
    });
    for one in wanted {
        if !taints.iter().any(|taint| is(one, taint)) {
            taints.push(json!({"key": one.key.text(), "effect": one.effect, "timeAdded": now}));
        }
    }
    taints
}

#[cfg(test)]
mod tests {
    use api::keys::taint;

    use super::*;

    #[test]
    fn conditions_of_the_agent_become_unknown_and_others_stay() {
        let held = json!([{"type": "Ready", "status": "True", "reason": "OrlopReady", "lastHeartbeatTime": "h"},
            {"type": "MemoryPressure", "status": "False"}, {"type": "VolumeUnknown", "status": "True", "reason": "x"}]);
        let now = unknown_conditions(&held, "t");
        assert_eq!(now[0]["lastHeartbeatTime"], "h", "when the agent last spoke is kept");
        for condition in &now[..2] {
            assert_eq!((&condition["status"], &condition["reason"]), (&json!("Unknown"), &json!(UNKNOWN_REASON)));
            assert_eq!(condition["lastTransitionTime"], "t");
        }
        assert_eq!(now[2], held[2]);
        assert_eq!(unknown_conditions(&Value::Null, "t")[0]["type"], "Ready");
        assert_eq!(unknown_conditions(&json!(now), "later"), now, "said once");
    }

    #[test]
    fn taints_of_others_and_the_times_of_ours_are_kept() {
        let unreachable = taint::UNREACHABLE.text();
        let held = json!([{"key": "gpu", "value": "yes", "effect": "NoExecute"},
            {"key": unreachable, "effect": "NoSchedule", "timeAdded": "then"},
            {"key": taint::NOT_READY.text(), "effect": "NoSchedule"}]);
        let both = [0, 1].map(|at| CONDITION_TAINTS[at]);
        let now = with_taints(&held, &both, "now");
        assert_eq!(now[..2], [held[0].clone(), held[1].clone()]);
        assert_eq!(now[2], json!({"key": unreachable, "effect": "NoExecute", "timeAdded": "now"}));
        assert_eq!(now.len(), 3);
        assert_eq!(with_taints(&json!(now), &[], "later"), [held[0].clone()]);
        assert_eq!(with_taints(&Value::Null, &[], "later"), Vec::<Value>::new());
    }
}
