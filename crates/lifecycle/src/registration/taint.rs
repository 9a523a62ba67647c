//! Startup taints: pods come to a node when its driver is there.
//!
//! A node is born with a taint that keeps pods away. It goes once the node's CSINode lists the driver, which is what a
//! scheduler and an attach/detach controller look at; that the driver runs, or was told that it is registered, is not enough.

use std::fmt;

use api::node::NodeTaint;
use api::{CsiNode, Node};

use crate::decision::{Decision, Lookup, Reason, Standing};

/// One write at the revision that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Takes the startup taints off; the others stay as they are.
    Remove,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// None of the taints is on the node.
    Clean,
    NoNode,
    /// The node's CSINode does not list the driver yet.
    NotListed,
    Listed,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clean => "no startup taint is on the node",
            Self::NoNode => "the node does not exist yet",
            Self::NotListed => "the node's CSINode does not list the driver yet",
            Self::Listed => "the node's CSINode lists the driver",
        })
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::NoNode => "no_node",
            Self::NotListed => "not_listed",
            Self::Listed => "listed",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Clean => Standing::Settled,
            Self::NoNode | Self::NotListed => Standing::Waiting,
            Self::Listed => Standing::Moving,
        }
    }
}

/// `taints` are keys; a taint of any effect goes.
pub fn decide(
    node: Lookup<'_, Node>,
    csi_node: Lookup<'_, CsiNode>,
    driver: &str,
    taints: &[String],
) -> Decision<Action, Because> {
    let Lookup::Found(node) = node else { return Decision::rest(Because::NoNode) };
    let ours = |taint: &NodeTaint| taints.iter().any(|key| *key == *taint.key);
    if !node.taints.iter().any(ours) {
        return Decision::rest(Because::Clean);
    }
    match csi_node.found().is_some_and(|csi_node| csi_node.driver(driver).is_some()) {
        true => Decision::act(Because::Listed, Action::Remove),
        false => Decision::rest(Because::NotListed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(taints: serde_json::Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"taints": taints}})).expect("a node")
    }

    fn csi_node(drivers: serde_json::Value) -> CsiNode {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"drivers": drivers}})).expect("a CSINode")
    }

    #[test]
    fn a_startup_taint_goes_when_the_driver_is_listed_and_others_stay() {
        let taints = json!([{"key": "d/agent-not-ready", "effect": "NoExecute"},
            {"key": "d/agent-not-ready", "effect": "NoSchedule"}, {"key": "gpu", "value": "yes", "effect": "NoSchedule"}]);
        let (node, keys) = (node(taints), ["d/agent-not-ready".to_owned()]);
        let other = csi_node(json!([{"name": "other", "nodeID": "n"}]));
        let listed = csi_node(json!([{"name": "d", "nodeID": "n"}]));
        assert_eq!(decide(Lookup::Found(&node), Lookup::Found(&other), "d", &keys).because, Because::NotListed);
        assert_eq!(decide(Lookup::Found(&node), Lookup::Absent, "d", &keys).because, Because::NotListed);
        let decided = decide(Lookup::Found(&node), Lookup::Found(&listed), "d", &keys);
        assert_eq!(decided.actions, [Action::Remove]);
    }

    #[test]
    fn without_the_taint_there_is_nothing_to_do() {
        let listed = csi_node(json!([{"name": "d", "nodeID": "n"}]));
        let decided = decide(Lookup::Found(&node(json!([]))), Lookup::Found(&listed), "d", &["t".to_owned()]);
        assert!(decided.is_rest() && decided.because.standing() == Standing::Settled);
        assert_eq!(decide(Lookup::Absent, Lookup::Absent, "d", &[]).because, Because::NoNode);
    }
}
