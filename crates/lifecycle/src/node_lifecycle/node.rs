//! A Node and the lease that its agent renews: when the node counts as lost, and which taints that puts on it.

use std::fmt;
use std::time::Duration;

use api::Node;
use api::keys::{Taint, taint};
use api::node::Readiness;

use crate::decision::{Decision, Notice, Reason, Standing};

/// The reason of the conditions of a lost node, as upstream's node-lifecycle controller writes it.
pub const UNKNOWN_REASON: &str = "NodeStatusUnknown";
/// The sentence of the conditions of a lost node.
pub const UNKNOWN_MESSAGE: &str =
    "The agent on this machine (orlop node, or a kubelet) stopped renewing the lease of this node.";
/// The conditions that a node's agent answers for. Those that a node has become Unknown with it.
pub const AGENT_CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// One of the taints that follow from a node's condition Ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionTaint {
    pub key: Taint,
    pub effect: &'static str,
}

const UNREACHABLE_SCHEDULE: ConditionTaint = ConditionTaint { key: taint::UNREACHABLE, effect: "NoSchedule" };
const UNREACHABLE_EXECUTE: ConditionTaint = ConditionTaint { key: taint::UNREACHABLE, effect: "NoExecute" };
const NOT_READY_SCHEDULE: ConditionTaint = ConditionTaint { key: taint::NOT_READY, effect: "NoSchedule" };
const NOT_READY_EXECUTE: ConditionTaint = ConditionTaint { key: taint::NOT_READY, effect: "NoExecute" };

/// All taints that are put on and taken off here; every other taint of a node is left alone.
pub const CONDITION_TAINTS: [ConditionTaint; 4] =
    [UNREACHABLE_SCHEDULE, UNREACHABLE_EXECUTE, NOT_READY_SCHEDULE, NOT_READY_EXECUTE];

impl ConditionTaint {
    pub fn is(&self, key: &str, effect: &str) -> bool {
        self.key.text() == key && self.effect == effect
    }
}

/// The facts that one process has about a node.
#[derive(Debug, Clone, Copy)]
pub struct NodeHealth<'a> {
    pub node: &'a Node,
    pub lease: LeaseSilence,
    /// The shortest silence of any other node that has a lease; none if there is no other.
    pub others: Option<Duration>,
    /// For how long a lease may stay as it is: `--node-monitor-grace-period`.
    pub grace: Duration,
}

/// For how long the watcher has seen a node's lease without a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseSilence {
    /// The node had no lease while the watcher looked: no agent of ours and no kubelet answers for it.
    NoLease,
    /// By a cache, which may lag.
    Cached(Duration),
    /// The server itself showed the unchanged lease in this turn.
    Confirmed(Duration),
}

/// Reads, or one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeLifecycleAction {
    /// Ask the server for the lease, then decide again.
    ReadLease,
    /// Write Unknown into the conditions that the node's agent answers for.
    SayUnknown,
    /// Of [`CONDITION_TAINTS`], the node is to have exactly these.
    SetTaints(Vec<ConditionTaint>),
}

/// Why a node is left alone, or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeLifecycleReason {
    NoLease,
    /// Its agent renews the lease.
    Heard,
    /// Its condition was Unknown when the watcher began, and the watcher has not listened for long enough.
    Listening,
    /// The cache shows an old lease.
    Suspected,
    /// The lease is old, and the node's conditions do not say so yet.
    Silent,
    /// The taints do not fit the condition.
    TaintsDiffer,
    Lost,
    /// It is lost, and no other node is heard of.
    AllSilent,
}

pub type NodeDecision = Decision<NodeLifecycleAction, NodeLifecycleReason>;

/// Says what to do about a node.
pub fn decide(health: &NodeHealth<'_>) -> NodeDecision {
    use NodeLifecycleReason as Why;
    let node = health.node;
    let lost = match health.lease {
        LeaseSilence::NoLease => return Decision::rest(Why::NoLease),
        LeaseSilence::Cached(silence) if silence >= health.grace => {
            return Decision::act(Why::Suspected, NodeLifecycleAction::ReadLease);
        }
        LeaseSilence::Confirmed(silence) => silence >= health.grace,
        LeaseSilence::Cached(_) => false,
    };
    // A node without the condition at all has never said anything.
    let says_unknown = node.ready == Readiness::Unknown && node.ready_since.is_some();
    let (wanted, why) = match (lost, node.ready) {
        (true, _) if !says_unknown => return Decision::act(Why::Silent, NodeLifecycleAction::SayUnknown),
        (true, _) if evicts(health) => (vec![UNREACHABLE_SCHEDULE, UNREACHABLE_EXECUTE], Why::Lost),
        (true, _) => (vec![UNREACHABLE_SCHEDULE], Why::AllSilent),
        (false, Readiness::Ready) => (Vec::new(), Why::Heard),
        (false, Readiness::NotReady) => (vec![NOT_READY_SCHEDULE, NOT_READY_EXECUTE], Why::Heard),
        (false, Readiness::Unknown) => return Decision::rest(Why::Listening),
    };
    match CONDITION_TAINTS.iter().all(|taint| wanted.contains(taint) == holds(node, taint)) {
        true => Decision::rest(why),
        false => Decision::act(Why::TaintsDiffer, NodeLifecycleAction::SetTaints(wanted)),
    }
}

/// Whether the pods of a lost node may be asked to end: another node was heard of lately, so that it is this node that is
/// silent and not the watcher that is deaf. What was begun is taken back only when all others are silent, too.
fn evicts(health: &NodeHealth<'_>) -> bool {
    let patience = match holds(health.node, &UNREACHABLE_EXECUTE) {
        true => health.grace,
        false => health.grace / 2,
    };
    health.others.is_some_and(|silence| silence < patience)
}

fn holds(node: &Node, taint: &ConditionTaint) -> bool {
    node.taints.iter().any(|held| taint.is(&held.key, &held.effect))
}

impl fmt::Display for NodeLifecycleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLease => "no agent renews a lease for this node, so that its condition is left to whoever made it",
            Self::Heard => "the node's agent renews its lease",
            Self::Listening => "the node's condition is Unknown; its lease is watched",
            Self::Suspected => "the lease in the cache is old; the server is asked for it",
            Self::Silent => "the agent of the node stopped renewing the node's lease",
            Self::TaintsDiffer => "the node's taints do not fit its condition Ready",
            Self::Lost => "the node is lost: its agent does not renew its lease, and those of other nodes do",
            Self::AllSilent => {
                "the node's agent does not renew its lease, but no other node is heard of either: the fault may be on this \
                 side, and no pod is evicted"
            }
        })
    }
}

impl Reason for NodeLifecycleReason {
    fn code(&self) -> &'static str {
        match self {
            Self::NoLease => "no_lease",
            Self::Heard => "heard",
            Self::Listening => "listening",
            Self::Suspected => "suspected",
            Self::Silent => "silent",
            Self::TaintsDiffer => "taints_differ",
            Self::Lost => "lost",
            Self::AllSilent => "all_silent",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::NoLease | Self::Heard => Standing::Settled,
            Self::Suspected | Self::Silent | Self::TaintsDiffer => Standing::Moving,
            Self::Listening => Standing::Waiting,
            Self::Lost | Self::AllSilent => Standing::Stuck,
        }
    }
}

/// The event of a node that was lost just now.
pub fn lost_notice(node: &Node) -> Notice {
    let message = format!("Node {} status is now: NodeNotReady: {}", node.name(), NodeLifecycleReason::Silent);
    Notice::warning("NodeNotReady", message)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const GRACE: Duration = Duration::from_secs(50);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn node(ready: Option<&str>, taints: &[ConditionTaint]) -> Node {
        let condition =
            |status: &str| json!({"type": "Ready", "status": status, "lastTransitionTime": "2026-01-02T03:04:05Z"});
        let conditions: Vec<Value> = ready.into_iter().map(condition).collect();
        let taints: Vec<Value> =
            taints.iter().map(|taint| json!({"key": taint.key.text(), "effect": taint.effect})).collect();
        let other = json!({"key": "gpu", "effect": "NoExecute"});
        let taints: Vec<Value> = taints.into_iter().chain([other]).collect();
        let node = json!({"metadata": {"name": "n"}, "spec": {"taints": taints}, "status": {"conditions": conditions}});
        serde_json::from_value(node).expect("a node")
    }

    fn decided(node: &Node, lease: LeaseSilence, others: Option<u64>) -> NodeDecision {
        decide(&NodeHealth { node, lease, others: others.map(seconds), grace: GRACE })
    }

    #[test]
    fn an_old_lease_makes_a_node_unknown_and_unreachable_once_the_server_confirmed_it() {
        use LeaseSilence::{Cached, Confirmed};
        use NodeLifecycleAction::{ReadLease, SayUnknown, SetTaints};
        let both = vec![UNREACHABLE_SCHEDULE, UNREACHABLE_EXECUTE];
        let (ready, starting, fresh) = (node(Some("True"), &[]), node(Some("False"), &[]), node(None, &[]));
        let unknown = node(Some("Unknown"), &[]);
        let told = node(Some("Unknown"), &both);
        let was_starting = node(Some("Unknown"), &[NOT_READY_SCHEDULE, NOT_READY_EXECUTE]);
        for (case, node, lease, want) in [
            ("renewed", &ready, Cached(seconds(49)), None),
            ("the cache may lag", &ready, Cached(GRACE), Some(ReadLease)),
            ("the server shows a newer one", &ready, Confirmed(seconds(0)), None),
            ("confirmed", &ready, Confirmed(GRACE), Some(SayUnknown)),
            ("an agent that died at its start", &starting, Confirmed(GRACE), Some(SayUnknown)),
            ("it never said anything", &fresh, Confirmed(GRACE), Some(SayUnknown)),
            ("said, and not tainted yet", &unknown, Confirmed(GRACE), Some(SetTaints(both.clone()))),
            ("one taint for another", &was_starting, Confirmed(GRACE), Some(SetTaints(both.clone()))),
            ("all done", &told, Confirmed(GRACE), None),
            ("a new watcher", &told, Cached(seconds(3)), None),
        ] {
            assert_eq!(decided(node, lease, Some(5)).actions, Vec::from_iter(want), "{case}");
        }
    }

    #[test]
    fn a_node_that_is_heard_of_has_the_taints_of_its_own_word() {
        use NodeLifecycleAction::SetTaints;
        let heard = LeaseSilence::Cached(seconds(1));
        let unreachable = [UNREACHABLE_SCHEDULE, UNREACHABLE_EXECUTE];
        let back = decided(&node(Some("True"), &unreachable), heard, None);
        assert_eq!(back.actions, [SetTaints(Vec::new())]);
        let starting = decided(&node(Some("False"), &unreachable), heard, None);
        assert_eq!(starting.actions, [SetTaints(vec![NOT_READY_SCHEDULE, NOT_READY_EXECUTE])]);
        assert!(decided(&node(Some("Unknown"), &unreachable), heard, None).is_rest(), "its agent has not spoken yet");
        assert!(decided(&node(None, &[NOT_READY_SCHEDULE]), heard, None).is_rest(), "a new node keeps its taint");
    }

    #[test]
    fn no_pod_is_evicted_while_no_other_node_is_heard_of() {
        use NodeLifecycleAction::SetTaints;
        let lost = LeaseSilence::Confirmed(seconds(60));
        let begun = [UNREACHABLE_SCHEDULE, UNREACHABLE_EXECUTE];
        let careful = vec![UNREACHABLE_SCHEDULE];
        for (case, taints, others, want) in [
            ("one of two", &[][..], Some(9), Some(SetTaints(begun.to_vec()))),
            ("the only node", &[][..], None, Some(SetTaints(careful.clone()))),
            ("the other has just become quiet", &[][..], Some(25), Some(SetTaints(careful.clone()))),
            ("what was begun goes on for a while", &begun[..], Some(49), None),
            ("all are silent by now", &begun[..], Some(50), Some(SetTaints(careful.clone()))),
            ("still", &careful[..], Some(70), None),
            ("one is back", &careful[..], Some(0), Some(SetTaints(begun.to_vec()))),
        ] {
            let decided = decided(&node(Some("Unknown"), taints), lost, others);
            assert_eq!(decided.actions, Vec::from_iter(want), "{case}");
        }
        let why = decided(&node(Some("Unknown"), &careful), lost, None).because;
        assert_eq!((why.standing(), why.to_string().contains("no pod is evicted")), (Standing::Stuck, true));
    }

    #[test]
    fn a_node_that_never_had_a_lease_is_left_to_whoever_made_it() {
        for ready in [Some("True"), Some("False"), None] {
            let decided = decided(&node(ready, &[UNREACHABLE_EXECUTE]), LeaseSilence::NoLease, Some(0));
            assert_eq!((decided.is_rest(), decided.because), (true, NodeLifecycleReason::NoLease));
        }
    }
}
