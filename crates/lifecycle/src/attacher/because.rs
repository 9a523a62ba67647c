//! Why an attachment is treated as it is.

use std::fmt;

use super::Unfit;
use crate::decision::{Reason, Standing};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    NotOurs,
    Attached,
    /// ATTACHER-3.5: the driver has nothing to attach.
    NothingToDo,
    VolumeUnread,
    NodeUnread,
    SecretUnread,
    /// The volume is gone, and the driver may know what it was.
    HandleUnread,
    /// The attachment came with a backup, and which node has its volume is not known.
    ReportsUnread,
    /// The attachment came with a backup, and its volume may be on this node.
    AwaitsReport {
        node: Box<str>,
    },
    /// The attachment cannot be carried out, or taken back, as things are.
    Unfit(Unfit),
    /// ATTACHER-3.6.3
    Unguarded,
    /// ATTACHER-3.6.9
    Unrecorded,
    /// The node has another id than when an earlier attempt was made (SIDECAR-A5).
    Moved {
        from: String,
        to: String,
    },
    /// ATTACHER-3.6.10
    Wanted {
        node_id: String,
    },
    Published,
    /// ATTACHER-3.7.4
    Leaving,
    LeavingWithoutSecret,
    Unpublished,
    Detached,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs => write!(f, "the attachment is another driver's"),
            Self::Attached => write!(f, "the volume is attached"),
            Self::NothingToDo => write!(f, "the driver attaches nothing, so that the volume is as good as attached"),
            Self::VolumeUnread => write!(f, "the volume has to be read first"),
            Self::NodeUnread => write!(f, "what the driver calls the node has to be read first"),
            Self::SecretUnread => write!(f, "the secret has to be read first"),
            Self::HandleUnread => write!(f, "the volume's object is gone; the driver is asked which volume it was"),
            Self::ReportsUnread => {
                write!(f, "the API server was restored from a backup; which node has the volume has to be read first")
            }
            Self::AwaitsReport { node } => write!(
                f,
                "the API server was restored from a backup; the volume may be on node {node:?} by now, which has not reported \
                 yet or has not let go of it"
            ),
            Self::Unfit(unfit) => unfit.fmt(f),
            Self::Unguarded => write!(f, "the volume must not go while it is attached"),
            Self::Unrecorded => write!(f, "what is going to be published is not written down"),
            Self::Moved { from, to } => {
                write!(f, "the node was {from:?} to the driver and is {to:?} now: an earlier attempt is taken back")
            }
            Self::Wanted { node_id } => write!(f, "the volume is to be attached to {node_id:?}"),
            Self::Published => write!(f, "the driver has published the volume"),
            Self::Leaving => write!(f, "the volume is to be detached"),
            Self::LeavingWithoutSecret => write!(f, "the volume is to be detached, and its secret is gone"),
            Self::Unpublished => write!(f, "the driver has taken the volume back"),
            Self::Detached => write!(f, "the volume is not attached"),
        }
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::NotOurs => "not_ours",
            Self::Attached => "attached",
            Self::NothingToDo => "nothing_to_do",
            Self::VolumeUnread => "volume_unread",
            Self::NodeUnread => "node_unread",
            Self::SecretUnread => "secret_unread",
            Self::HandleUnread => "handle_unread",
            Self::ReportsUnread => "reports_unread",
            Self::AwaitsReport { .. } => "awaits_report",
            Self::Unfit(_) => "unfit",
            Self::Unguarded => "unguarded",
            Self::Unrecorded => "unrecorded",
            Self::Moved { .. } => "moved",
            Self::Wanted { .. } => "wanted",
            Self::Published => "published",
            Self::Leaving => "leaving",
            Self::LeavingWithoutSecret => "leaving_without_secret",
            Self::Unpublished => "unpublished",
            Self::Detached => "detached",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::NotOurs | Self::Attached | Self::Detached => Standing::Settled,
            Self::Unfit(Unfit::NodeMissing { .. } | Unfit::DriverNotOnNode { .. } | Unfit::VolumeGoing { .. }) => {
                Standing::Waiting
            }
            Self::AwaitsReport { .. } => Standing::Waiting,
            Self::Unfit(_) => Standing::Stuck,
            Self::NothingToDo
            | Self::VolumeUnread
            | Self::NodeUnread
            | Self::SecretUnread
            | Self::HandleUnread
            | Self::ReportsUnread
            | Self::Unguarded
            | Self::Unrecorded
            | Self::Moved { .. }
            | Self::Wanted { .. }
            | Self::Published
            | Self::Leaving
            | Self::LeavingWithoutSecret
            | Self::Unpublished => Standing::Moving,
        }
    }
}
