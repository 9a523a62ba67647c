//! One volume that pods on one node want: attach it, wait, or say why not (ATTACH-6.4, attach pass; ATTACH-6.5).
//!
//! # Invariants
//! 1. A volume for one node gets no attachment while any other node has one, confirmed or not, coming or going
//!    (CTRL-14.31). Whether a node really has it is unknown until its attachment is gone.
//! 2. Nor while an attachment of the driver whose volume is not known is on another node.
//! 3. Nor while another node may have it since the objects were restored from a backup. A node that says that it has the volume
//!    gets an attachment in any case.
//! 4. An error of the attacher ends nothing: the attachment stays, and the attacher tries again (CTRL-13.32,
//!    CTRL-13.33).

use std::fmt;
use std::time::Duration;

use api::{Attachment, Node, Word};

use super::hold::Hold;
use super::target::{Sharing, Target};
use crate::{Decision, Lookup, Notice, Reason, Standing};

/// After this long without a word from the attacher its silence is said (ATTACH-6.8).
pub const OVERDUE: Duration = Duration::from_secs(120);

const FAILED: &str = "FailedAttachVolume";
const SUCCEEDED: &str = "SuccessfulAttachVolume";

/// What is known about a volume that pods on a node want.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    pub target: &'a Target,
    pub node_name: &'a str,
    pub node: Lookup<'a, Node>,
    /// The attachment of the volume to this node, if there is one.
    pub own: Option<&'a Attachment>,
    /// The attachments of the same volume to other nodes.
    pub others: &'a [Other<'a>],
    /// The driver's attachments to other nodes whose volume is not known.
    pub doubts: &'a [&'a Attachment],
    /// Other nodes that may have the volume since the objects were restored from a backup.
    pub unconfirmed: &'a [Box<str>],
    pub listing: RestoreListing,
    /// Pods that want the volume on other nodes.
    pub users: &'a Users,
    pub slot: Slot,
    /// How long the attacher has been waited for.
    pub waited: Duration,
}

/// An attachment of the volume to another node, and why it is there.
#[derive(Debug, Clone)]
pub struct Other<'a> {
    pub attachment: &'a Attachment,
    pub hold: Hold,
    /// Whether that node was told that it has the volume.
    pub told: bool,
}

/// Whether the node said, after the objects were restored from a backup, that it has the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreListing {
    Listed,
    Unlisted,
}

impl RestoreListing {
    pub fn of(is_listed: bool) -> Self {
        if is_listed { Self::Listed } else { Self::Unlisted }
    }
}

/// Who uses a volume elsewhere, as far as somebody of one namespace may know.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Users {
    /// Names of pods of the same namespace, in order.
    pub here: Vec<Box<str>>,
    /// How many there are in other namespaces.
    pub elsewhere: usize,
}

/// Whether the driver may be given one more thing to do (CTRL-14.46).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    Free,
    Full { limit: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Create the attachment.
    Attach,
}

/// A node that has the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub node: Word,
    pub hold: Hold,
}

/// Why a volume is attached to a node, or not yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    NodeMissing {
        node: Box<str>,
    },
    Unmanaged {
        node: Box<str>,
    },
    /// Other nodes have it, and it may be on one only.
    Held {
        volume: Box<str>,
        holders: Vec<Holder>,
        users: Users,
    },
    /// Another node may have it: a VolumeAttachment of the driver names a PersistentVolume that does not exist.
    Doubtful {
        volume: Box<str>,
        attachment: Box<str>,
        named: Box<str>,
        node: Word,
    },
    /// Another node had it first although both have an attachment; this node is not told until that one is gone.
    Second {
        volume: Box<str>,
        holder: Holder,
    },
    Queued {
        driver: Word,
        limit: usize,
    },
    Attach {
        node: Box<str>,
    },
    /// The node has it, and the attachment that told so is lost with what happened after the backup.
    Recover {
        node: Box<str>,
    },
    Attaching {
        driver: Word,
        node: Box<str>,
    },
    /// The attacher says why it did not work, and tries again.
    Failed {
        volume: Box<str>,
        message: Box<str>,
        code: Option<i32>,
    },
    /// The attacher says nothing.
    Overdue {
        volume: Box<str>,
        driver: Word,
        handle: Box<str>,
    },
    /// An earlier attachment to the same node is on its way out.
    Leaving {
        volume: Box<str>,
        error: Option<Box<str>>,
    },
    /// It is attached, and the node is about to be told.
    Unreported {
        volume: Box<str>,
        node: Box<str>,
    },
    /// Other nodes may have it since the objects were restored from a backup, and it may be on one only.
    Unconfirmed {
        volume: Box<str>,
        nodes: Vec<Box<str>>,
    },
    Attached {
        volume: Box<str>,
        node: Box<str>,
    },
}

/// What to do about a volume that pods on a node want.
pub fn decide(wish: &Wish<'_>) -> Decision<Action, Because> {
    match about(wish) {
        because @ (Because::Attach { .. } | Because::Recover { .. }) => Decision::act(because, Action::Attach),
        because => Decision::rest(because),
    }
}

/// Why a volume that pods on a node want is where it is. The controller acts on the same answer.
pub fn about(wish: &Wish<'_>) -> Because {
    match wish.own {
        Some(own) => with(wish, own),
        None => without(wish),
    }
}

fn with(wish: &Wish<'_>, own: &Attachment) -> Because {
    let volume = || wish.target.name().into();
    if own.meta.is_deleting() {
        let error = own.detach_error.as_ref().map(|error| error.message.clone());
        return Because::Leaving { volume: volume(), error };
    }
    if let Some(first) = before(wish, own) {
        return Because::Second { volume: volume(), holder: first };
    }
    if own.attached {
        let node = wish.node_name.into();
        let told = wish.node.found().is_some_and(|node| node.reports_attached(&wish.target.unique()));
        return match told {
            true => Because::Attached { volume: volume(), node },
            false if wish.target.sharing == Sharing::OneNode && !wish.unconfirmed.is_empty() => {
                Because::Unconfirmed { volume: volume(), nodes: wish.unconfirmed.to_vec() }
            }
            false => Because::Unreported { volume: volume(), node },
        };
    }
    match &own.attach_error {
        Some(error) => Because::Failed { volume: volume(), message: error.message.clone(), code: error.code },
        None if wish.waited >= OVERDUE => {
            let (driver, handle) = (wish.target.driver.clone(), wish.target.handle.clone());
            Because::Overdue { volume: volume(), driver, handle }
        }
        None => Because::Attaching { driver: wish.target.driver.clone(), node: wish.node_name.into() },
    }
}

fn without(wish: &Wish<'_>) -> Because {
    let node = match wish.node {
        Lookup::Found(node) => node,
        Lookup::NotCached | Lookup::Absent => return Because::NodeMissing { node: wish.node_name.into() },
    };
    if !node.attach_is_managed() {
        return Because::Unmanaged { node: wish.node_name.into() };
    }
    if wish.listing == RestoreListing::Listed {
        return Because::Recover { node: wish.node_name.into() };
    }
    if wish.target.sharing == Sharing::OneNode && !wish.others.is_empty() {
        let holder = |other: &Other<'_>| Holder { node: other.attachment.node.clone(), hold: other.hold.clone() };
        let holders = wish.others.iter().map(holder).collect();
        return Because::Held { volume: wish.target.name().into(), holders, users: wish.users.clone() };
    }
    if let (Sharing::OneNode, Some(doubt)) = (wish.target.sharing, wish.doubts.first()) {
        return Because::Doubtful {
            volume: wish.target.name().into(),
            attachment: doubt.name().into(),
            named: doubt.volume.clone().unwrap_or_default(),
            node: doubt.node.clone(),
        };
    }
    if wish.target.sharing == Sharing::OneNode && !wish.unconfirmed.is_empty() {
        return Because::Unconfirmed { volume: wish.target.name().into(), nodes: wish.unconfirmed.to_vec() };
    }
    match wish.slot {
        Slot::Full { limit } => Because::Queued { driver: wish.target.driver.clone(), limit },
        Slot::Free => Because::Attach { node: wish.node_name.into() },
    }
}

/// The node that had a volume for one node before this one did. Two controllers at once, or a hand, may have made both.
fn before(wish: &Wish<'_>, own: &Attachment) -> Option<Holder> {
    if wish.target.sharing == Sharing::ManyNodes {
        return None;
    }
    let told = wish.node.found().is_some_and(|node| node.reports_attached(&wish.target.unique()));
    let first = wish.others.iter().find(|other| precedes((other.attachment, other.told), (own, told)))?;
    Some(Holder { node: first.attachment.node.clone(), hold: first.hold.clone() })
}

/// Of two attachments of a volume for one node, each with whether its node was told of it: does the first one count? A
/// node that may be writing already comes first, then one that is attached, then the older one.
pub fn precedes(one: (&Attachment, bool), other: (&Attachment, bool)) -> bool {
    let rank = |(attachment, told): (&Attachment, bool)| (!told, !attachment.attached, attachment.meta.created.0);
    (rank(one), one.0.name()) < (rank(other), other.0.name())
}

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.here.is_empty(), self.elsewhere) {
            (true, 0) => f.write_str(
                "Volume is already exclusively attached to one node, waiting on detach before it can be attached to \
                 another node",
            ),
            (true, more) => write!(f, "Volume is already used by {more} pod(s) in different namespaces"),
            (false, 0) => write!(f, "Volume is already used by pod(s) {}", self.here.join(", ")),
            (false, more) => write!(
                f,
                "Volume is already used by pod(s) {} and {more} pod(s) in different namespaces",
                self.here.join(", ")
            ),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {:?} has it: {}", self.node.as_str(), self.hold)
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeMissing { node } => write!(f, "the pod's node {node:?} does not exist"),
            Self::Unmanaged { node } => write!(f, "node {node:?} attaches volumes by itself"),
            Self::Held { volume, holders, users } => {
                write!(f, "Waiting for detach for volume \"{volume}\" {users}")?;
                holders.iter().try_for_each(|holder| write!(f, "; {holder}"))
            }
            Self::Doubtful { volume, attachment, named, node } => write!(
                f,
                "Waiting for detach for volume \"{volume}\" VolumeAttachment \"{attachment}\" of node \"{node}\" may be of this \
                 volume: it names PersistentVolume \"{named}\", which does not exist. Delete the VolumeAttachment when node \
                 \"{node}\" does not use the volume"
            ),
            Self::Second { volume, holder } => {
                write!(f, "Waiting for detach for volume \"{volume}\" Volume may be on one node only; {holder}")
            }
            Self::Queued { driver, limit } => {
                write!(f, "driver {driver} has {limit} volumes to attach and detach already; this one is next")
            }
            Self::Attach { node } => write!(f, "the volume is to be attached to node {node:?}"),
            Self::Recover { node } => {
                write!(
                    f,
                    "node {node:?} has the volume, and its VolumeAttachment is not in the backup that was restored"
                )
            }
            Self::Attaching { driver, node } => {
                write!(f, "the attacher of driver {driver} attaches the volume to node {node:?}")
            }
            Self::Failed { volume, message, .. } => {
                write!(f, "AttachVolume.Attach failed for volume \"{volume}\" : {message}")
            }
            Self::Overdue { volume, driver, handle } => write!(
                f,
                "AttachVolume.Attach failed for volume \"{volume}\" : timed out waiting for external-attacher of {driver} \
                 CSI driver to attach volume {handle}"
            ),
            Self::Leaving { volume, error: None } => {
                write!(f, "an earlier attachment of volume {volume:?} to the same node is being taken away first")
            }
            Self::Leaving { volume, error: Some(error) } => {
                write!(
                    f,
                    "AttachVolume.Attach failed for volume \"{volume}\" : volume attachment is being deleted: {error}"
                )
            }
            Self::Unreported { volume, node } => {
                write!(f, "volume {volume:?} is attached; node {node:?} is about to be told")
            }
            Self::Unconfirmed { volume, nodes } => write!(
                f,
                "volume {volume:?} may be in use on another node: the API server was restored from a backup, and these nodes \
                 have not reported since then what they use, or have the volume: {}",
                nodes.join(", ")
            ),
            Self::Attached { volume, .. } => write!(f, "AttachVolume.Attach succeeded for volume \"{volume}\" "),
        }
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::NodeMissing { .. } => "node_missing",
            Self::Unmanaged { .. } => "node_unmanaged",
            Self::Held { .. } => "held",
            Self::Doubtful { .. } => "doubtful",
            Self::Second { .. } => "second",
            Self::Queued { .. } => "queued",
            Self::Attach { .. } => "attach",
            Self::Recover { .. } => "recover",
            Self::Attaching { .. } => "attaching",
            Self::Failed { .. } => "attach_failed",
            Self::Overdue { .. } => "attach_overdue",
            Self::Leaving { .. } => "leaving",
            Self::Unreported { .. } => "unreported",
            Self::Unconfirmed { .. } => "unconfirmed",
            Self::Attached { .. } => "attached",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Attached { .. } => Standing::Settled,
            Self::Attach { .. } | Self::Recover { .. } | Self::Unreported { .. } => Standing::Moving,
            Self::Queued { .. } | Self::Attaching { .. } | Self::Failed { .. } | Self::Overdue { .. } => {
                Standing::Waiting
            }
            Self::Leaving { .. } | Self::Second { .. } | Self::Unconfirmed { .. } => Standing::Waiting,
            Self::NodeMissing { .. } | Self::Unmanaged { .. } | Self::Doubtful { .. } => Standing::Stuck,
            // As long as one of the nodes needs a person, so does this.
            Self::Held { holders, .. } => {
                holders.iter().map(|holder| holder.hold.standing()).fold(Standing::Waiting, Ord::max)
            }
        }
    }

    fn notice(&self) -> Option<Notice> {
        match self {
            Self::Held { .. }
            | Self::Doubtful { .. }
            | Self::Second { .. }
            | Self::Unconfirmed { .. }
            | Self::Failed { .. }
            | Self::Overdue { .. } => Some(Notice::warning(FAILED, self.to_string())),
            Self::Leaving { error: Some(_), .. } => Some(Notice::warning(FAILED, self.to_string())),
            Self::Attached { .. } => Some(Notice::normal(SUCCEEDED, self.to_string())),
            Self::NodeMissing { .. } | Self::Unmanaged { .. } | Self::Queued { .. } | Self::Attach { .. } => None,
            Self::Recover { .. }
            | Self::Attaching { .. }
            | Self::Leaving { error: None, .. }
            | Self::Unreported { .. } => None,
        }
    }
}

/// The event of an attachment that the server did not take.
pub fn refused(volume: &str, message: &str) -> Notice {
    Notice::warning(FAILED, format!("AttachVolume.Attach failed for volume \"{volume}\" : {message}"))
}
