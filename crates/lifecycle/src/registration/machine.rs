//! The Node object of a machine without kubelet: made if it is missing, and never more of it written than is ours.

use std::collections::BTreeMap;
use std::fmt;

use api::Node;
use api::keys::{annotation, taint};
use api::node::Readiness;

use crate::decision::{Decision, Lookup, Reason, Standing};

/// What the agent says of its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub labels: BTreeMap<String, String>,
    pub readiness: Said,
}

/// Whether pods' volumes can be made ready here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Ready,
    NotReady { why: String },
}

/// Reads, or one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    ReadNode,
    CreateNode,
    /// Labels and annotations that are missing; none is changed.
    AddMetadata {
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<&'static str, String>,
    },
    /// The condition Ready, and nothing else of the status.
    SayReadiness(Said),
    /// Takes off the taint that the API server gives to new nodes.
    Untaint,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    NotCached,
    /// The node does not exist, and this agent has not made it yet.
    New,
    /// It was there while this agent ran: somebody wants the node out of the cluster.
    Removed,
    Unlabelled,
    ReadinessDiffers,
    StillTainted,
    Kept,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotCached => "the server is asked before a node is made",
            Self::New => "the node has no object yet",
            Self::Removed => "somebody deleted the node's object; restart the agent to bring the node back",
            Self::Unlabelled => "the node lacks labels of its machine",
            Self::ReadinessDiffers => "the node's condition is not what the agent says",
            Self::StillTainted => "the node is ready and has the taint of new nodes",
            Self::Kept => "the node's object is as it should be",
        })
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::NotCached => "not_cached",
            Self::New => "new",
            Self::Removed => "removed",
            Self::Unlabelled => "unlabelled",
            Self::ReadinessDiffers => "readiness_differs",
            Self::StillTainted => "still_tainted",
            Self::Kept => "kept",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::NotCached | Self::New | Self::Unlabelled => Standing::Moving,
            Self::ReadinessDiffers | Self::StillTainted => Standing::Moving,
            Self::Removed => Standing::Stuck,
            Self::Kept => Standing::Settled,
        }
    }
}

/// Whether this agent has seen the node's object in this life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    NeverSeen,
    Seen,
}

/// What to do about the Node's object.
pub fn decide(node: Lookup<'_, Node>, wanted: &Wanted, before: Before) -> Decision<Action, Because> {
    let node = match (node, before) {
        (Lookup::Found(node), _) => node,
        (Lookup::NotCached, _) => return Decision::act(Because::NotCached, Action::ReadNode),
        (Lookup::Absent, Before::NeverSeen) => return Decision::act(Because::New, Action::CreateNode),
        // As a kubelet, which does not bring back a node that somebody took out (NODE-4.1).
        (Lookup::Absent, Before::Seen) => return Decision::rest(Because::Removed),
    };
    let missing = |(key, _): &(&String, &String)| !node.meta.labels.has(key);
    let labels: BTreeMap<String, String> =
        wanted.labels.iter().filter(missing).map(|(key, value)| (key.clone(), value.clone())).collect();
    let managed = annotation::MANAGED_ATTACH;
    let lacks = node.meta.annotation(managed) != Some("true");
    let annotations: BTreeMap<&'static str, String> =
        lacks.then(|| (managed.text(), "true".to_owned())).into_iter().collect();
    if !labels.is_empty() || !annotations.is_empty() {
        return Decision::act(Because::Unlabelled, Action::AddMetadata { labels, annotations });
    }
    let (ready, said) = (node.ready == Readiness::Ready, wanted.readiness == Said::Ready);
    if ready != said || node.ready == Readiness::Unknown {
        return Decision::act(Because::ReadinessDiffers, Action::SayReadiness(wanted.readiness.clone()));
    }
    if ready && node.taints.iter().any(|taint| is_of_new_nodes(&taint.key, &taint.effect)) {
        return Decision::act(Because::StillTainted, Action::Untaint);
    }
    Decision::rest(Because::Kept)
}

/// Whether it is the taint that the API server gives to every new node. Where kube-controller-manager runs it takes it off;
/// where it does not, nobody but the agent would.
pub fn is_of_new_nodes(key: &str, effect: &str) -> bool {
    key == taint::NOT_READY.text() && effect == "NoSchedule"
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn wanted(readiness: Said) -> Wanted {
        Wanted { labels: BTreeMap::from([("os".to_owned(), "linux".to_owned())]), readiness }
    }

    fn node(labels: Value, ready: &str, taints: Value) -> Node {
        let meta = json!({"name": "n", "labels": labels, "annotations": {annotation::MANAGED_ATTACH.text(): "true"}});
        let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
        serde_json::from_value(json!({"metadata": meta, "spec": {"taints": taints}, "status": status})).expect("a node")
    }

    fn because(node: &Node, readiness: Said) -> Because {
        decide(Lookup::Found(node), &wanted(readiness), Before::Seen).because
    }

    #[test]
    fn a_missing_node_is_made_once_and_never_brought_back_by_the_same_life() {
        let wanted = wanted(Said::Ready);
        assert_eq!(decide(Lookup::NotCached, &wanted, Before::NeverSeen).actions, [Action::ReadNode]);
        assert_eq!(decide(Lookup::Absent, &wanted, Before::NeverSeen).actions, [Action::CreateNode]);
        let removed = decide(Lookup::Absent, &wanted, Before::Seen);
        assert_eq!((removed.because.standing(), removed.is_rest()), (Standing::Stuck, true));
    }

    #[test]
    fn labels_are_added_and_never_changed() {
        let bare = node(json!({}), "True", json!([]));
        let decided = decide(Lookup::Found(&bare), &wanted(Said::Ready), Before::Seen);
        assert!(matches!(&decided.actions[..], [Action::AddMetadata { labels, annotations }]
            if labels.len() == 1 && annotations.is_empty()));
        let other = node(json!({"os": "windows"}), "True", json!([]));
        assert_eq!(because(&other, Said::Ready), Because::Kept);
    }

    /// Rule: NODE-4.1
    #[test]
    fn readiness_is_said_when_it_differs_and_the_taint_of_new_nodes_goes_with_it() {
        let taints =
            json!([{"key": taint::NOT_READY.text(), "effect": "NoSchedule"}, {"key": "x", "effect": "NoExecute"}]);
        let labels = json!({"os": "linux"});
        let why = || Said::NotReady { why: "starting".to_owned() };
        assert_eq!(because(&node(labels.clone(), "Unknown", json!([])), why()), Because::ReadinessDiffers);
        assert_eq!(because(&node(labels.clone(), "True", json!([])), why()), Because::ReadinessDiffers);
        assert_eq!(because(&node(labels.clone(), "False", taints.clone()), why()), Because::Kept);
        let decided = decide(Lookup::Found(&node(labels.clone(), "True", taints)), &wanted(Said::Ready), Before::Seen);
        assert_eq!(decided.actions, [Action::Untaint]);
    }
}
