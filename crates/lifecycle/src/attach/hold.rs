//! Why an attachment stays where it is, or goes (ATTACH-6.4, detach pass; ATTACH-6.7).
//!
//! # Invariants
//! 1. What a node uses is taken away only on [`Evidence`]: the node object is gone, an operator put it out of service while
//!    it is not ready, or the driver has taken the volume away already. Time alone is evidence only if the operator said so
//!    (`--force-detach-after`).
//! 2. "Not in use" is believed only of a node object that could have said otherwise.
//! 3. After the objects of a backup were restored, a volume for one node is told to no node while another node may have it
//!    ([`super::restored`]).

use std::fmt;
use std::time::Duration;

use api::keys::{annotation, taint};
use api::node::Readiness;
use api::object::UnixSeconds;
use api::{Attachment, Node};

use super::names::{attachment_name, is_hashed_name, parse_unique};
use super::restored::awaits_report;
use crate::{Lookup, Notice, Reason, Standing};

/// Whether somebody wants an attachment where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A pod on the node does.
    Wanted,
    /// A pod does, but another node had the volume first and it may be on one node only.
    Second,
    /// A pod does, and it may be on one node only; another node has not said what it uses since the objects were restored.
    Unconfirmed,
    Unwanted,
}

/// What is known about one attachment.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    pub attachment: &'a Attachment,
    pub need: Need,
    pub node: Lookup<'a, Node>,
    pub usage: Usage,
    pub rules: Rules,
}

/// Whether the node says that it uses a volume. Without a node nobody says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    Listed,
    NotListed,
}

/// What the operator allows, and what time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub now: UnixSeconds,
    /// `--force-detach-after`: for how long a node has to be not ready until its volumes are taken away. Never by default.
    pub force_after: Option<Duration>,
    /// For how long whoever decides has itself seen the node's condition Ready as it is now. Times that other machines
    /// wrote are not compared with its clock. `None` if it did not measure that, and then no time forces anything.
    pub unready_for: Option<Duration>,
}

/// What proves that a node cannot write to a volume any more, or that an operator answers for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The server has no such node.
    NodeGone,
    /// The taint out-of-service on a node that is not ready.
    OutOfService,
    /// The attachment's status says that the volume is not published to the node.
    Unpublished,
    /// This controller has seen the node not ready for longer than the operator wants to wait.
    NotReadyFor { seconds: u64 },
}

impl Evidence {
    /// The label of the counter of forced detaches; the first two are upstream's.
    pub fn label(self) -> &'static str {
        match self {
            Self::NotReadyFor { .. } => "timeout",
            Self::OutOfService => "out-of-service",
            Self::NodeGone => "node-gone",
            Self::Unpublished => "unpublished",
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeGone => f.write_str("the Node object is gone"),
            Self::OutOfService => write!(f, "the node is not ready and has the taint {}", taint::OUT_OF_SERVICE),
            Self::Unpublished => f.write_str("the driver says that the volume is not published to the node"),
            Self::NotReadyFor { seconds } => {
                write!(
                    f,
                    "this controller has seen the node not ready for {seconds} s, and --force-detach-after is set"
                )
            }
        }
    }
}

/// Why an attachment stays or goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    Wanted,
    /// A pod wants it, but another node had the volume first and it may be on one node only: the node is not told.
    Second,
    /// It was not made by an attach/detach controller: whoever made it ends it.
    NotOurs,
    /// The node does not leave attaching to the controller.
    Unmanaged,
    /// Nobody asked the server about the node yet.
    NodeUnread,
    /// The node object is younger than the attachment and its agent has not spoken yet.
    Unsaid,
    /// The objects were restored from a backup, and the node has not said since then what it uses.
    Restored,
    /// A pod wants it, and another node may have the volume: it has not said what it uses since the objects were restored.
    Unconfirmed,
    /// The node says that it uses the volume, or is about to.
    InUse {
        ready: Readiness,
        force_in: Option<Duration>,
    },
    /// Its end was asked for; the attacher is at work, or says why not.
    Leaving {
        error: Option<Box<str>>,
    },
    /// Nobody wants it and nobody uses it.
    Free,
    /// The node may use it, and it goes all the same.
    Forced {
        evidence: Evidence,
    },
}

impl Hold {
    /// Whether the attachment is to be deleted now.
    pub fn goes(&self) -> bool {
        matches!(self, Self::Free | Self::Forced { .. })
    }

    /// Whether a node is told that the volume is attached, if it is (CTRL-I13).
    pub fn telling(&self) -> Telling {
        match self {
            Self::Wanted | Self::NotOurs | Self::Unmanaged | Self::NodeUnread => Telling::Told,
            Self::Unsaid | Self::InUse { .. } => Telling::Told,
            Self::Second | Self::Restored | Self::Unconfirmed => Telling::AsBefore,
            Self::Leaving { .. } | Self::Free | Self::Forced { .. } => Telling::NotTold,
        }
    }
}

/// Whether a node is told of a volume that is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    Told,
    /// Neither anew nor taken back.
    AsBefore,
    NotTold,
}

/// Judges one attachment.
pub fn judge(held: &Held<'_>) -> Hold {
    let attachment = held.attachment;
    if attachment.meta.is_deleting() {
        let error = attachment.detach_error.as_ref().map(|error| error.message.clone());
        return Hold::Leaving { error };
    }
    match held.need {
        Need::Wanted => return Hold::Wanted,
        Need::Second => return Hold::Second,
        Need::Unconfirmed => return Hold::Unconfirmed,
        Need::Unwanted => {}
    }
    if !is_hashed_name(attachment.name()) {
        return Hold::NotOurs;
    }
    match held.node {
        Lookup::NotCached => Hold::NodeUnread,
        Lookup::Absent => match attachment.attached {
            true => Hold::Forced { evidence: Evidence::NodeGone },
            false => Hold::Free,
        },
        Lookup::Found(node) if !node.attach_is_managed() => Hold::Unmanaged,
        Lookup::Found(node) => match held.usage {
            Usage::Listed => used(held, node),
            Usage::NotListed => unused(attachment, node),
        },
    }
}

/// ATTACH-D4 to ATTACH-D6, with what counts as a reason to go on.
fn used(held: &Held<'_>, node: &Node) -> Hold {
    let ready = node.ready == Readiness::Ready;
    // Upstream takes the taint at its word on a node that works (CTRL-14.41); nobody meant that.
    if !ready && node.has_taint(taint::OUT_OF_SERVICE) {
        return Hold::Forced { evidence: Evidence::OutOfService };
    }
    // Nothing is mounted that was never attached, and what the driver took away cannot be written to. An attachment that was
    // restored says neither.
    if !held.attachment.attached && held.attachment.meta.annotation(annotation::RESTORED).is_none() {
        return Hold::Forced { evidence: Evidence::Unpublished };
    }
    match held.rules.force_after.filter(|_| !ready).zip(held.rules.unready_for) {
        Some((patience, waited)) if waited >= patience => {
            Hold::Forced { evidence: Evidence::NotReadyFor { seconds: waited.as_secs() } }
        }
        Some((patience, waited)) => Hold::InUse { ready: node.ready, force_in: Some(patience - waited) },
        None => Hold::InUse { ready: node.ready, force_in: None },
    }
}

fn unused(attachment: &Attachment, node: &Node) -> Hold {
    if awaits_report(node) {
        return Hold::Restored;
    }
    // A node object that was made after the attachment has lost what the old one said (CTRL-13.42), until its agent
    // speaks.
    let silent = node.ready == Readiness::Unknown && node.ready_since.is_none();
    match attachment.attached && silent && node.meta.created > attachment.meta.created {
        true => Hold::Unsaid,
        false => Hold::Free,
    }
}

/// Whether a node lists the volume of an attachment among those it uses.
///
/// The names are compared, not the volumes, so that this is known even if the volume's object is gone (CTRL-14.36).
pub fn usage(node: Lookup<'_, Node>, attachment: &str) -> Usage {
    let named = |node: &Node| node.in_use.iter().any(|unique| names(unique, node.name(), attachment));
    match node.found().is_some_and(named) {
        true => Usage::Listed,
        false => Usage::NotListed,
    }
}

/// Whether a unique name and a node make this attachment.
fn names(unique: &str, node: &str, attachment: &str) -> bool {
    parse_unique(unique).is_some_and(|(driver, handle)| attachment_name(driver, handle, node) == attachment)
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taint = taint::OUT_OF_SERVICE;
        match self {
            Self::Wanted => f.write_str("a pod there uses it; it is released when that pod is gone"),
            Self::Second => f.write_str("a pod there waits for it, too; another node had it first"),
            Self::NotOurs => {
                f.write_str("somebody else made its VolumeAttachment; it is released when that is deleted")
            }
            Self::Unmanaged => f.write_str("the node attaches and detaches by itself"),
            Self::NodeUnread => f.write_str("nothing is known of the node yet"),
            Self::Unsaid => f.write_str(
                "the Node object is new and its agent has not reported yet; it is released when the agent reports that \
                 it is not in use",
            ),
            Self::Restored => write!(
                f,
                "the API server was restored from a backup, and the node has not reported since then what it uses; it is \
                 released when the node reports, when the node is shut down and tainted {taint}, or when its Node object is \
                 deleted"
            ),
            Self::Unconfirmed => f.write_str(
                "a pod there wants it; the API server was restored from a backup, and another node may have it since \
                 then",
            ),
            Self::InUse { ready: Readiness::Ready, .. } => f.write_str(
                "no pod there uses it, but the node still has it mounted; it is released when the node reports that it \
                 is not in use",
            ),
            Self::InUse { .. } => write!(
                f,
                "no pod there uses it, but the node had it mounted when it was last heard of, and is not ready; it is \
                 released when the node reports that it is not in use, when the node is shut down and tainted {taint}, or \
                 when its Node object is deleted"
            ),
            Self::Leaving { error: None } => f.write_str("it is being detached"),
            Self::Leaving { error: Some(error) } => write!(f, "it is being detached, which fails: {error}"),
            Self::Free => f.write_str("nobody uses it there; it is detached"),
            Self::Forced { evidence } => write!(f, "it is detached although the node may have it mounted: {evidence}"),
        }
    }
}

impl Reason for Hold {
    fn code(&self) -> &'static str {
        match self {
            Self::Wanted => "wanted",
            Self::Second => "second",
            Self::NotOurs => "not_ours",
            Self::Unmanaged => "node_unmanaged",
            Self::NodeUnread => "node_unread",
            Self::Unsaid => "use_unsaid",
            Self::Restored => "restored",
            Self::Unconfirmed => "unconfirmed",
            Self::InUse { .. } => "in_use",
            Self::Leaving { .. } => "leaving",
            Self::Free => "free",
            Self::Forced { .. } => "forced",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Wanted => Standing::Settled,
            Self::NodeUnread | Self::Free | Self::Forced { .. } => Standing::Moving,
            Self::InUse { ready: Readiness::Ready, .. } | Self::Second | Self::Unsaid => Standing::Waiting,
            Self::Restored | Self::Unconfirmed => Standing::Waiting,
            Self::Leaving { error: None } => Standing::Waiting,
            Self::NotOurs | Self::Unmanaged | Self::InUse { .. } | Self::Leaving { error: Some(_) } => Standing::Stuck,
        }
    }
}

/// The event of a detach that was forced: evidence, holder, and what went on.
pub fn forced(attachment: &Attachment, evidence: Evidence) -> Notice {
    let volume = attachment.volume.as_deref().unwrap_or("inside a pod");
    let message = format!(
        "Detaching volume {volume:?} from node {:?} without waiting for the node to release it: {evidence}",
        attachment.node.as_str()
    );
    Notice::warning("ForcedDetachVolume", message)
}
