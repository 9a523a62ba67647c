//! A pod on a node that is not well: its condition Ready, its eviction, and its end without the node.

use std::fmt;
use std::time::Duration;

use api::keys::{finalizer, taint};
use api::node::{NodeTaint, Readiness, Toleration};
use api::{Node, Pod};

use crate::attach::node::Freshness;
use crate::decision::{Decision, Lookup, Notice, Reason, Standing};
use crate::schedule::tolerates;

/// The facts that one process has about a pod and its node.
#[derive(Debug, Clone, Copy)]
pub struct PodHealth<'a> {
    pub pod: &'a Pod,
    pub node: Lookup<'a, Node>,
    pub freshness: Freshness,
    /// For how long the watcher has seen the pod on a node with a taint that evicts.
    pub tainted_for: Duration,
    /// For how long the watcher has known that the pod's node does not exist.
    pub orphaned_for: Duration,
    /// For how long a node has to be gone until its pods are ended.
    pub quarantine: Duration,
}

/// A read, or one step towards a pod's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodLifecycleAction {
    /// Ask the server for the node, then decide again.
    ReadNode,
    /// Write False into the pod's condition Ready.
    SayNotReady,
    /// Ask for the pod's end; its node confirms it, if it can.
    Evict,
    /// End the pod without its node.
    ForceDelete,
}

/// Why a pod stays, or goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodLifecycleReason {
    Unscheduled,
    NodeUnread,
    /// Nothing is wrong with its node, or it tolerates what is.
    Stays,
    NodeNotReady,
    /// It is evicted after this time.
    Tolerates {
        left: Duration,
    },
    /// It does not tolerate a taint of its node, or not any longer.
    Tainted {
        key: Box<str>,
    },
    /// It was asked to end, and its node has to say that it did.
    AwaitsNode,
    /// Its node is out of service, and an operator answers for that.
    OutOfService,
    /// Its node does not exist; it may be back within this time.
    NodeMissing {
        left: Duration,
    },
    NodeGone,
    /// It was ended, and finalizers of others hold it.
    HeldByFinalizers,
}

pub type PodDecision = Decision<PodLifecycleAction, PodLifecycleReason>;

/// Says what to do about a pod.
pub fn decide(health: &PodHealth<'_>) -> PodDecision {
    use PodLifecycleReason as Why;
    let pod = health.pod;
    if !pod.scheduled() {
        return Decision::rest(Why::Unscheduled);
    }
    match health.node {
        Lookup::NotCached => Decision::act(Why::NodeUnread, PodLifecycleAction::ReadNode),
        Lookup::Absent if health.orphaned_for < health.quarantine => {
            Decision::rest(Why::NodeMissing { left: health.quarantine - health.orphaned_for })
        }
        Lookup::Absent => end(pod, Why::NodeGone),
        Lookup::Found(node) => match on_node(health, node) {
            // A cache may show a node as it was before it came back.
            decided if takes_away(&decided) && health.freshness == Freshness::Cached => {
                Decision::act(Why::NodeUnread, PodLifecycleAction::ReadNode)
            }
            decided => decided,
        },
    }
}

fn takes_away(decided: &PodDecision) -> bool {
    decided.actions.iter().any(|action| matches!(action, PodLifecycleAction::Evict | PodLifecycleAction::ForceDelete))
}

fn on_node(health: &PodHealth<'_>, node: &Node) -> PodDecision {
    use PodLifecycleReason as Why;
    let pod = health.pod;
    let ready = node.ready == Readiness::Ready;
    if pod.meta.is_deleting() {
        return match !ready && node.has_taint(taint::OUT_OF_SERVICE) {
            true => end(pod, Why::OutOfService),
            false => Decision::rest(Why::AwaitsNode),
        };
    }
    if pod.terminated() {
        return Decision::rest(Why::Stays);
    }
    if !ready && pod.ready {
        return Decision::act(Why::NodeNotReady, PodLifecycleAction::SayNotReady);
    }
    match eviction(pod, node, health.tainted_for) {
        Eviction::Never => Decision::rest(Why::Stays),
        Eviction::After(left) => Decision::rest(Why::Tolerates { left }),
        Eviction::Now(key) => Decision::act(Why::Tainted { key }, PodLifecycleAction::Evict),
    }
}

/// Ends a pod without its node, unless that was done and others' finalizers hold it.
fn end(pod: &Pod, why: PodLifecycleReason) -> PodDecision {
    match pod.shut_down() && !pod.meta.has_finalizer(finalizer::HOST_MOUNT) {
        true => Decision::rest(PodLifecycleReason::HeldByFinalizers),
        false => Decision::act(why, PodLifecycleAction::ForceDelete),
    }
}

/// When the taints of a node end a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Eviction {
    Never,
    After(Duration),
    Now(Box<str>),
}

/// Whether a node has a taint that evicts pods.
pub fn evicts_pods(node: &Node) -> bool {
    evicting(node).next().is_some()
}

fn evicting(node: &Node) -> impl Iterator<Item = &NodeTaint> {
    node.taints.iter().filter(|taint| taint.effect == "NoExecute")
}

/// Each taint that evicts has to be tolerated; of the times that the tolerations allow, the shortest counts.
fn eviction(pod: &Pod, node: &Node, waited: Duration) -> Eviction {
    let tolerations = pod.placement.as_ref().map_or(&[][..], |placement| &placement.tolerations);
    let mut next = Eviction::Never;
    for taint in evicting(node) {
        let held: Option<&Toleration> = tolerations.iter().find(|toleration| tolerates(toleration, taint));
        let Some(held) = held else { return Eviction::Now((&*taint.key).into()) };
        let Some(seconds) = held.seconds else { continue };
        let left = Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).saturating_sub(waited);
        next = match next {
            _ if left.is_zero() => return Eviction::Now((&*taint.key).into()),
            Eviction::After(sooner) if sooner <= left => Eviction::After(sooner),
            _ => Eviction::After(left),
        };
    }
    next
}

impl fmt::Display for PodLifecycleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unscheduled => f.write_str("the pod has no node"),
            Self::NodeUnread => f.write_str("the server is asked for the pod's node"),
            Self::Stays => f.write_str("nothing on its node asks the pod to leave"),
            Self::NodeNotReady => f.write_str("the pod's node is not ready"),
            Self::Tolerates { left } => {
                write!(f, "the pod tolerates a taint of its node for {} s more", left.as_secs())
            }
            Self::Tainted { key } => write!(f, "the pod does not tolerate the taint {key} of its node, or no longer"),
            Self::AwaitsNode => f.write_str("the pod is being deleted; its node has to confirm that it ended"),
            Self::OutOfService => {
                write!(f, "the pod's node is not ready and has the taint {}", taint::OUT_OF_SERVICE)
            }
            Self::NodeMissing { left } => {
                write!(f, "the pod's node does not exist; it is waited for {} s more", left.as_secs())
            }
            Self::NodeGone => f.write_str("the pod's node does not exist any more"),
            Self::HeldByFinalizers => f.write_str("the pod was ended without its node; finalizers hold its object"),
        }
    }
}

impl Reason for PodLifecycleReason {
    fn code(&self) -> &'static str {
        match self {
            Self::Unscheduled => "unscheduled",
            Self::NodeUnread => "node_unread",
            Self::Stays => "stays",
            Self::NodeNotReady => "node_not_ready",
            Self::Tolerates { .. } => "tolerates",
            Self::Tainted { .. } => "tainted",
            Self::AwaitsNode => "awaits_node",
            Self::OutOfService => "out_of_service",
            Self::NodeMissing { .. } => "node_missing",
            Self::NodeGone => "node_gone",
            Self::HeldByFinalizers => "held_by_finalizers",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Unscheduled | Self::Stays => Standing::Settled,
            Self::NodeUnread | Self::NodeNotReady | Self::Tainted { .. } => Standing::Moving,
            Self::OutOfService | Self::NodeGone => Standing::Moving,
            Self::Tolerates { .. } | Self::AwaitsNode | Self::NodeMissing { .. } | Self::HeldByFinalizers => {
                Standing::Waiting
            }
        }
    }

    fn notice(&self) -> Option<Notice> {
        match self {
            Self::NodeNotReady => Some(Notice::warning("NodeNotReady", "Node is not ready")),
            Self::Tainted { .. } => {
                Some(Notice::normal("TaintManagerEviction", format!("Marking for deletion: {self}")))
            }
            Self::OutOfService | Self::NodeGone => {
                Some(Notice::warning("ForcedPodDeletion", format!("Deleting the pod without its node: {self}")))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn pod(change: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {"nodeName": "n"}});
        change(&mut pod);
        serde_json::from_value(pod).expect("a pod")
    }

    fn tolerating(tolerations: Value) -> Pod {
        pod(|pod| pod["spec"]["tolerations"] = tolerations)
    }

    fn deleted(grace: i64, finalizers: &[&str]) -> Pod {
        pod(|pod| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            pod["metadata"]["finalizers"] = json!(finalizers);
        })
    }

    fn node(ready: &str, taints: &[&str]) -> Node {
        let taints: Vec<Value> = taints.iter().map(|key| json!({"key": key, "effect": "NoExecute"})).collect();
        let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"taints": taints}, "status": status}))
            .expect("a node")
    }

    fn decided(pod: &Pod, node: Lookup<'_, Node>, waited: u64) -> PodDecision {
        let waited = seconds(waited);
        decide(&PodHealth {
            pod,
            node,
            freshness: Freshness::Live,
            tainted_for: waited,
            orphaned_for: waited,
            quarantine: seconds(40),
        })
    }

    #[test]
    fn a_pod_is_evicted_when_its_shortest_toleration_is_over() {
        use Lookup::Found;
        let unreachable = taint::UNREACHABLE.text();
        let lost = node("Unknown", &[unreachable]);
        let for_seconds =
            |seconds: i64| json!({"key": unreachable, "operator": "Exists", "tolerationSeconds": seconds});
        let (usual, hurried) = (tolerating(json!([for_seconds(300)])), tolerating(json!([for_seconds(-1)])));
        let for_ever = tolerating(json!([{"operator": "Exists"}]));
        for (case, pod, node, waited, evicted) in [
            ("in time", &usual, &lost, 299, false),
            ("its time is over", &usual, &lost, 300, true),
            ("no patience at all", &hurried, &lost, 0, true),
            ("it tolerates everything", &for_ever, &lost, 9999, false),
            ("it tolerates nothing", &pod(|_| ()), &lost, 0, true),
            ("another taint is not tolerated", &usual, &node("Unknown", &[unreachable, "x"]), 0, true),
            ("the node is well", &pod(|_| ()), &node("True", &[]), 0, false),
            ("an operator's taint on a node that is well", &pod(|_| ()), &node("True", &["x"]), 0, true),
        ] {
            let actions = decided(pod, Found(node), waited).actions;
            assert_eq!(actions == [PodLifecycleAction::Evict], evicted, "{case}: {actions:?}");
        }
        let waits = decided(&usual, Found(&lost), 100).because;
        assert_eq!(waits, PodLifecycleReason::Tolerates { left: seconds(200) });
    }

    #[test]
    fn a_pod_that_ends_on_a_lost_node_waits_for_the_node_or_for_the_operators_word() {
        let (gone, unreachable) = (taint::OUT_OF_SERVICE.text(), taint::UNREACHABLE.text());
        let going = deleted(30, &[]);
        for (case, pod, node, ended) in [
            ("lost only", &going, node("Unknown", &[unreachable]), false),
            ("lost and out of service", &going, node("Unknown", &[unreachable, gone]), true),
            ("not ready and out of service", &going, node("False", &[gone]), true),
            ("it works, whatever the taint says", &going, node("True", &[gone]), false),
            ("ended, and somebody's finalizer holds it", &deleted(0, &["x/y"]), node("Unknown", &[gone]), false),
            (
                "its machine's own finalizer",
                &deleted(0, &[finalizer::HOST_MOUNT.text()]),
                node("Unknown", &[gone]),
                true,
            ),
        ] {
            let actions = decided(pod, Lookup::Found(&node), 0).actions;
            assert_eq!(actions == [PodLifecycleAction::ForceDelete], ended, "{case}: {actions:?}");
        }
    }

    #[test]
    fn pods_of_a_node_that_is_gone_end_after_a_quarantine() {
        let pod = pod(|_| ());
        assert_eq!(decided(&pod, Lookup::NotCached, 99).actions, [PodLifecycleAction::ReadNode]);
        let early = decided(&pod, Lookup::Absent, 39);
        assert_eq!(early, Decision::rest(PodLifecycleReason::NodeMissing { left: seconds(1) }));
        assert_eq!(decided(&pod, Lookup::Absent, 40).actions, [PodLifecycleAction::ForceDelete]);
    }

    #[test]
    fn nothing_is_taken_away_because_of_a_node_that_only_a_cache_showed() {
        let (pod, lost) = (pod(|_| ()), node("Unknown", &["x"]));
        let health = PodHealth {
            pod: &pod,
            node: Lookup::Found(&lost),
            freshness: Freshness::Cached,
            tainted_for: seconds(999),
            orphaned_for: seconds(0),
            quarantine: seconds(40),
        };
        assert_eq!(decide(&health).actions, [PodLifecycleAction::ReadNode]);
    }

    #[test]
    fn a_pod_is_said_to_be_not_ready_before_anything_else() {
        let ready = pod(|pod| pod["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]}));
        assert_eq!(
            decided(&ready, Lookup::Found(&node("Unknown", &["x"])), 0).actions,
            [PodLifecycleAction::SayNotReady]
        );
        assert!(decided(&ready, Lookup::Found(&node("True", &[])), 0).is_rest());
    }
}
