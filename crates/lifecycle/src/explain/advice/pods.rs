//! What a person can do about a pod whose volumes are not there, or not gone.

use api::keys::{annotation, taint};

use super::{Advice, messages, say};
use crate::attach::{Because as Attach, Hold};
use crate::explain::Finding;
use crate::node::Because as Node;

pub(super) const ATTACHER: &str =
    "See that the driver's attacher runs (external-attacher, or `orlop sidecar`), and its log.";

/// About a volume that is to be attached.
pub(in crate::explain) fn attach(because: &Attach) -> Advice {
    match because {
        Attach::Attached { .. } | Attach::Attach { .. } | Attach::Recover { .. } | Attach::Queued { .. } => Vec::new(),
        Attach::Unreported { .. } => say([
            "The next move is the attach/detach controller's: see that kube-controller-manager or `orlop controllers` runs.",
        ]),
        Attach::NodeMissing { node } => {
            vec![format!("Node {node:?} has to come back, or the pod has to go elsewhere.")]
        }
        Attach::Unmanaged { node } => vec![format!(
            "Set annotation {} of node {node:?} to \"true\": CSI volumes are attached by the controller only.",
            annotation::MANAGED_ATTACH
        )],
        Attach::Held { .. } | Attach::Second { .. } => {
            say(["The volume is for one node at a time: what is said of its holder says what releases it."])
        }
        Attach::Unconfirmed { nodes, .. } => {
            let mut advice =
                say(["Each node that is named reports when its agent runs and has let go of what no pod wants."]);
            advice.extend(nodes.iter().map(|node| {
                format!(
                    "If {node} is shut down for good: kubectl taint node {node} {}=nodeshutdown:NoExecute, or delete the \
                     Node. If its agent is a kubelet, see that it has no volume too many, then: kubectl annotate node {node} {}-",
                    taint::OUT_OF_SERVICE,
                    annotation::RESTORED
                )
            }));
            advice
        }
        Attach::Doubtful { attachment, node, .. } => vec![
            format!("See on node {node:?} whether the volume is mounted there, and unmount it."),
            format!("Then: kubectl delete volumeattachment {attachment}"),
        ],
        Attach::Attaching { .. } | Attach::Overdue { .. } => say([ATTACHER]),
        Attach::Failed { code: Some(8), .. } => say([
            "The node can have no more volumes of this driver: move pods away from it, or give it more slots.",
            "The message is the driver's: the log of its controller says more.",
        ]),
        Attach::Failed { .. } => say(["The message is the driver's: the log of its controller says more."]),
        Attach::Leaving { .. } => say(["An earlier attachment to the same node ends first.", ATTACHER]),
    }
}

/// About a node that has a volume which is wanted elsewhere.
pub(in crate::explain) fn hold(hold: &Hold, node: &str) -> Advice {
    match hold {
        Hold::Wanted | Hold::Second => vec![format!("Delete the pod that uses the volume on node {node:?}.")],
        Hold::NotOurs => say(["Whoever made the VolumeAttachment has to delete it."]),
        Hold::Unmanaged => vec![format!("Detach the volume from node {node:?} by hand.")],
        Hold::Restored => vec![format!(
            "The agent of node {node:?} reports when it runs. If the node's agent is a kubelet, see that it does not have the \
             volume, then: kubectl annotate node {node} {}-",
            annotation::RESTORED
        )],
        Hold::Unconfirmed | Hold::NodeUnread | Hold::Unsaid | Hold::Free | Hold::Forced { .. } => Vec::new(),
        Hold::InUse { ready: api::node::Readiness::Ready, .. } => {
            vec![format!("The agent on node {node:?} unmounts the volume first; its log says why it has not.")]
        }
        Hold::InUse { .. } => vec![
            format!("Bring node {node:?} back, so that it unmounts the volume."),
            format!(
                "If it is shut down for good: kubectl taint node {node} {}=nodeshutdown:NoExecute, or delete the Node.",
                taint::OUT_OF_SERVICE
            ),
        ],
        Hold::Leaving { .. } => say([ATTACHER]),
    }
}

/// About a claim that has the name which a pod's own is to get.
pub(super) fn not_ours(claim: &str) -> String {
    format!("A claim of that name was there before the pod: delete claim {claim:?}, or rename the pod or its volume.")
}

/// About a volume on its way to a pod's directory.
pub(in crate::explain) fn node(because: &Node, node: &str) -> Advice {
    let log = || vec![format!("The log of the agent and of the driver on node {node:?} says more.")];
    match because {
        Node::Ready
        | Node::Gone
        | Node::Staging
        | Node::Publishing
        | Node::Republishing
        | Node::Expanding
        | Node::Unwanted
        | Node::Alone { .. }
        | Node::Unused
        | Node::NotKnownYet
        | Node::NotReported
        | Node::NotAttached
        | Node::AttachmentGoing => Vec::new(),
        Node::ClaimMissing { claim } => vec![format!("Make the claim {claim:?}, or correct the pod.")],
        Node::ClaimGoing { .. } => say(["Make the claim anew, and then the pod."]),
        Node::ClaimNotBound { claim } => vec![format!("orlop explain pvc/{claim} says why.")],
        Node::ClaimNotOurs { claim } => vec![not_ours(claim)],
        Node::VolumeMissing { .. } | Node::VolumeOfAnother { .. } => {
            say(["The claim's data is lost or another's: make the claim anew."])
        }
        Node::ModeMismatch { .. } => say([messages::MODE]),
        Node::OutOfReach { .. } => {
            say(["Make the pod anew without spec.nodeName: the scheduler knows where it can run."])
        }
        Node::Unsupported { .. } => say(["Use a volume of a kind that this agent mounts."]),
        Node::AttachFailed { .. } => say(["The message is the driver's: the log of its controller says more."]),
        Node::NoSlot { .. } => vec![format!(
            "Let pods with volumes of that driver leave node {node:?}, or make the pod anew where there is room."
        )],
        Node::DriverMissing { driver } => vec![format!(
            "See that the node plugin of {driver} and its registrar run on node {node:?}: the socket has to be registered."
        )],
        Node::DriverUnread { .. } => {
            vec![format!("See that the agent of node {node:?} may list and watch CSIDrivers.")]
        }
        Node::DriverDown { driver, .. } => vec![format!("See that the node plugin of {driver} runs on node {node:?}.")],
        Node::BadContext { .. } => say([
            "Give all containers that mount the volume one seLinuxOptions.level, or set the pod's seLinuxChangePolicy to Recursive.",
        ]),
        Node::OtherContext { .. } => say([
            "It comes when the pods that have the volume are gone; pods with the same seLinuxOptions.level can share it.",
        ]),
        Node::UsedByPod { .. } => say(["ReadWriteOncePod: delete the pod that has the volume."]),
        Node::Corrupted | Node::Hung { .. } => vec![format!(
            "What the mount on node {node:?} stands on does not answer: its server, device or FUSE daemon has to come back."
        )],
        Node::Failed { .. } => log(),
    }
}

/// About what a pod's node says, or does not.
pub(super) fn agent(finding: &Finding) -> Advice {
    match finding {
        Finding::AgentSays { node, message } => {
            let known = super::volumes::trouble(message, Some(&**node)).or_else(|| messages::mounting(message));
            known.unwrap_or_else(|| {
                vec![format!(
                    "The log of the agent (kubelet, or `orlop node`) and of the driver on node {node:?} says more."
                )]
            })
        }
        Finding::AgentSilent { node } => {
            vec![format!("See that kubelet or `orlop node` runs on node {node:?} and reaches the API server.")]
        }
        Finding::PodLeaving { node, .. } => vec![
            format!("See that the agent and the driver run on node {node:?}: they unmount before the pod goes."),
            "Forcing the pod away leaves the mount behind; the volume then stays attached until the node lets go."
                .to_owned(),
        ],
        Finding::PodNodeGone { .. } => {
            say(["If the machine is really gone: kubectl delete pod NAME --grace-period=0 --force"])
        }
        Finding::PodNodeNotReady { node } => vec![
            format!("Bring node {node:?} back."),
            format!(
                "If it is shut down for good: kubectl taint node {node} {}=nodeshutdown:NoExecute, which lets its volumes go elsewhere.",
                taint::OUT_OF_SERVICE
            ),
        ],
        _ => Vec::new(),
    }
}
