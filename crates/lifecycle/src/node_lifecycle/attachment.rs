//! An attachment to a machine that was taken out of the cluster, by a driver whose attacher ran on that machine: no other
//! program can take the attacher's finalizer off.

use std::fmt;
use std::time::Duration;

use api::{Attachment, Node};

use super::volume::MachineDriver;
use crate::attacher::finalizer_of;
use crate::decision::{Decision, Lookup, Notice, Reason, Standing};

impl MachineDriver {
    /// Whether the attachment waits for an attacher that ran on the machine it names.
    pub fn awaits_attacher(&self, attachment: &Attachment) -> bool {
        attachment.meta.is_deleting()
            && *attachment.attacher == *self.name
            && *attachment.node != *self.server
            && attachment.meta.finalizers.iter().any(|held| held.as_str() == finalizer_of(&self.name))
    }
}

/// An attachment to be released, and the state of the machine that it names.
#[derive(Debug, Clone, Copy)]
pub struct AttachmentHealth<'a> {
    pub attachment: &'a Attachment,
    pub driver: &'a MachineDriver,
    /// The Node of the machine.
    pub node: Lookup<'a, Node>,
    /// For how long the watcher has known that the Node does not exist.
    pub gone_for: Duration,
    pub quarantine: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachmentLifecycleAction {
    /// Ask the server for the Node, then decide again.
    ReadNode,
    /// Take off the finalizer of the attacher. The driver is not asked.
    ReleaseAttachment,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachmentLifecycleReason {
    /// The attachment is not being deleted, or other finalizers hold it.
    AttachmentInUse,
    /// The attacher on the machine detaches the volume.
    MachineDetaches,
    AttachmentNodeUnread,
    /// The machine was taken out; it may be back within this time.
    AttachedMachineMissing {
        left: Duration,
    },
    AttachedMachineGone {
        machine: Box<str>,
    },
}

pub type AttachmentLifecycleDecision = Decision<AttachmentLifecycleAction, AttachmentLifecycleReason>;

/// Decides whether an attachment to a machine that is gone is released without its attacher.
pub fn decide(health: &AttachmentHealth<'_>) -> AttachmentLifecycleDecision {
    use AttachmentLifecycleReason as Why;
    if !health.driver.awaits_attacher(health.attachment) {
        return Decision::rest(Why::AttachmentInUse);
    }
    match health.node {
        Lookup::Found(_) => Decision::rest(Why::MachineDetaches),
        Lookup::NotCached => Decision::act(Why::AttachmentNodeUnread, AttachmentLifecycleAction::ReadNode),
        Lookup::Absent if health.gone_for < health.quarantine => {
            Decision::rest(Why::AttachedMachineMissing { left: health.quarantine - health.gone_for })
        }
        Lookup::Absent => Decision::act(
            Why::AttachedMachineGone { machine: (*health.attachment.node).into() },
            AttachmentLifecycleAction::ReleaseAttachment,
        ),
    }
}

impl fmt::Display for AttachmentLifecycleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AttachmentInUse => f.write_str("the attachment is in use, or another finalizer holds it"),
            Self::MachineDetaches => f.write_str("the attacher on the machine detaches the volume"),
            Self::AttachmentNodeUnread => f.write_str("the server is asked for the machine's Node"),
            Self::AttachedMachineMissing { left } => {
                write!(f, "the machine of the attachment has no Node; it is waited for {} s more", left.as_secs())
            }
            Self::AttachedMachineGone { machine } => write!(
                f,
                "the machine {machine:?} was taken out of the cluster, and the attacher of its volumes with it; the driver is \
                 not asked to detach"
            ),
        }
    }
}

impl Reason for AttachmentLifecycleReason {
    fn code(&self) -> &'static str {
        match self {
            Self::AttachmentInUse => "attachment_in_use",
            Self::MachineDetaches => "machine_detaches",
            Self::AttachmentNodeUnread => "node_unread",
            Self::AttachedMachineMissing { .. } => "machine_missing",
            Self::AttachedMachineGone { .. } => "machine_gone",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::AttachmentInUse => Standing::Settled,
            Self::MachineDetaches | Self::AttachedMachineMissing { .. } => Standing::Waiting,
            Self::AttachmentNodeUnread | Self::AttachedMachineGone { .. } => Standing::Moving,
        }
    }

    fn notice(&self) -> Option<Notice> {
        match self {
            Self::AttachedMachineGone { .. } => {
                Some(Notice::warning("AttachmentForgotten", format!("Removing the VolumeAttachment: {self}")))
            }
            Self::AttachmentInUse
            | Self::MachineDetaches
            | Self::AttachmentNodeUnread
            | Self::AttachedMachineMissing { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn driver() -> MachineDriver {
        MachineDriver { name: "d".to_owned(), topology_key: "topology.d/node".to_owned(), server: "server".to_owned() }
    }

    fn attachment(change: impl FnOnce(&mut Value)) -> Attachment {
        let meta = json!({"name": "a", "deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": [finalizer_of("d")]});
        let spec = json!({"attacher": "d", "nodeName": "m", "source": {"persistentVolumeName": "v"}});
        let mut attachment = json!({"metadata": meta, "spec": spec, "status": {"attached": true}});
        change(&mut attachment);
        serde_json::from_value(attachment).expect("an attachment")
    }

    #[test]
    fn an_attachment_is_released_only_when_it_is_being_deleted_and_its_machine_is_gone() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "m"}})).expect("a node");
        let release = Some(AttachmentLifecycleAction::ReleaseAttachment);
        let read = Some(AttachmentLifecycleAction::ReadNode);
        for (case, attachment, node, waited, want) in [
            ("being deleted", attachment(|_| ()), Lookup::Absent, 40, release),
            ("too early", attachment(|_| ()), Lookup::Absent, 39, None),
            ("not read", attachment(|_| ()), Lookup::NotCached, 99, read),
            ("the machine is there", attachment(|_| ()), Lookup::Found(&node), 99, None),
            ("in use", attachment(|it| it["metadata"]["deletionTimestamp"] = Value::Null), Lookup::Absent, 99, None),
            ("another driver's", attachment(|it| it["spec"]["attacher"] = json!("o")), Lookup::Absent, 99, None),
            ("the server's", attachment(|it| it["spec"]["nodeName"] = json!("server")), Lookup::Absent, 99, None),
            (
                "others hold it",
                attachment(|it| it["metadata"]["finalizers"] = json!(["x/y"])),
                Lookup::Absent,
                99,
                None,
            ),
        ] {
            let decided = decide(&AttachmentHealth {
                attachment: &attachment,
                driver: &driver(),
                node,
                gone_for: Duration::from_secs(waited),
                quarantine: Duration::from_secs(40),
            });
            assert_eq!(decided.actions, Vec::from_iter(want), "{case}");
        }
    }
}
