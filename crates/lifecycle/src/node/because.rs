//! Why a pod has a volume, or does not have it yet.

use std::fmt;

use super::selinux::{Flaw, Label};
use crate::decision::{Notice, Reason, Standing};

/// Why the agent does what it does about a volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    // From the pod to the volume.
    ClaimMissing {
        claim: Box<str>,
    },
    /// It is being deleted, and nothing protects it any more.
    ClaimGoing {
        claim: Box<str>,
    },
    ClaimNotBound {
        claim: Box<str>,
    },
    /// A claim that should have been made for the pod, and was not.
    ClaimNotOurs {
        claim: Box<str>,
    },
    VolumeMissing {
        volume: Box<str>,
    },
    VolumeOfAnother {
        volume: Box<str>,
        claim: Box<str>,
    },
    ModeMismatch {
        volume: Box<str>,
        wanted: &'static str,
        has: &'static str,
    },
    /// The volume cannot be reached from this node.
    OutOfReach {
        volume: Box<str>,
    },
    Unsupported {
        volume: Box<str>,
        what: Box<str>,
    },
    /// It cannot be mounted with the SELinux contexts that the pod asks for.
    BadContext {
        volume: Box<str>,
        flaw: Flaw,
    },
    // From the volume to the mount.
    /// The node's status does not say yet that the volume is in use here.
    NotReported,
    /// The controller has not listed it as attached.
    NotAttached,
    AttachmentGoing,
    AttachFailed {
        message: Box<str>,
    },
    /// The driver attaches no further volume to this node.
    NoSlot {
        message: Box<str>,
    },
    DriverMissing {
        driver: Box<str>,
    },
    DriverDown {
        driver: Box<str>,
        why: Box<str>,
    },
    /// What the driver's object says is not known yet, not even whether there is one.
    DriverUnread {
        driver: Box<str>,
    },
    UsedByPod {
        pod: Box<str>,
    },
    /// It is mounted for others, with another SELinux context or with none.
    OtherContext {
        has: Option<Label>,
        wants: Option<Label>,
    },
    Staging,
    Publishing,
    Republishing,
    Expanding,
    Ready,
    // The way back.
    Unwanted,
    /// The driver has been away for too long: the machine takes the volume away by itself.
    Alone {
        driver: Box<str>,
    },
    Unused,
    Gone,
    /// Not all pods of this node, or not the node itself, are known yet.
    NotKnownYet,
    /// The mount is there and every access fails.
    Corrupted,
    /// The path does not answer.
    Hung {
        message: Box<str>,
    },
    /// An operation failed and is tried again.
    Failed {
        stage: Stage,
        volume: Box<str>,
        message: Box<str>,
    },
}

/// What failed, with the words that upstream's events begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    WaitForAttach,
    MountDevice,
    SetUp,
    Own,
    Expand,
    /// The same for a device.
    MapAttach,
    SetUpDevice,
    MapDevice,
    TearDown,
    UnmountDevice,
}

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Self::WaitForAttach => "MountVolume.WaitForAttach",
            Self::MountDevice => "MountVolume.MountDevice",
            Self::SetUp => "MountVolume.SetUp",
            Self::Own => "MountVolume.SetVolumeOwnership",
            Self::Expand => "NodeExpandVolume.NodeExpandVolume",
            Self::MapAttach => "MapVolume.WaitForAttach",
            Self::SetUpDevice => "MapVolume.SetUpDevice",
            Self::MapDevice => "MapVolume.MapPodDevice",
            Self::TearDown => "UnmountVolume.TearDown",
            Self::UnmountDevice => "UnmountDevice",
        }
    }

    /// The reason of the event (NODE-26). Upstream has none for the way back (NODE-31.22).
    fn event(self) -> &'static str {
        match self {
            Self::WaitForAttach | Self::MountDevice | Self::SetUp | Self::Own => "FailedMount",
            Self::Expand => "VolumeResizeFailed",
            Self::MapAttach | Self::SetUpDevice | Self::MapDevice => "FailedMapVolume",
            Self::TearDown | Self::UnmountDevice => "FailedUnmount",
        }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClaimMissing { claim } => write!(f, "the claim {claim} does not exist"),
            Self::ClaimGoing { claim } => write!(f, "the claim {claim} is being deleted"),
            Self::ClaimNotBound { claim } => write!(f, "the claim {claim} has no volume yet"),
            Self::ClaimNotOurs { claim } => write!(f, "the claim {claim} was not made for this pod"),
            Self::VolumeMissing { volume } => write!(f, "the volume {volume:?} does not exist"),
            Self::VolumeOfAnother { volume, claim } => {
                write!(f, "the volume {volume:?} does not belong to the claim {claim}")
            }
            Self::ModeMismatch { volume, wanted, has } => {
                write!(f, "the volume {volume:?} has volumeMode {has}, and the pod uses it as {wanted}")
            }
            Self::OutOfReach { volume } => write!(f, "the volume {volume:?} cannot be reached from this node"),
            Self::Unsupported { volume, what } => write!(f, "the volume {volume:?} cannot be mounted here: {what}"),
            Self::BadContext { volume, flaw } => write!(f, "the volume {volume:?} cannot be mounted: {flaw}"),
            Self::NotReported => write!(f, "the node's status does not list the volume as in use yet"),
            Self::NotAttached => write!(f, "the volume is not attached to this node yet"),
            Self::AttachmentGoing => write!(f, "the volume is being detached from this node"),
            Self::AttachFailed { message } => write!(f, "attaching the volume failed: {message}"),
            Self::NoSlot { message } => write!(f, "no further volume can be attached to this node: {message}"),
            Self::DriverMissing { driver } => {
                write!(f, "the driver {driver} is not among the drivers that are registered on this node")
            }
            Self::DriverDown { driver, why } => write!(f, "the driver {driver} does not answer: {why}"),
            Self::DriverUnread { driver } => {
                write!(f, "the CSIDrivers of this cluster could not be read yet, and {driver} may be one of them")
            }
            Self::UsedByPod { pod } => {
                write!(f, "the volume is for one pod at a time, and the pod with uid {pod} has it on this node")
            }
            Self::OtherContext { has, wants } => {
                let name = |label: &Option<Label>| match label {
                    Some(label) => format!("the SELinux context {label}"),
                    None => "no SELinux context".to_owned(),
                };
                let (has, wants) = (name(has), name(wants));
                write!(f, "the volume is used on this node with {has}, and the pod wants it with {wants}")
            }
            Self::Staging => write!(f, "the volume is being staged"),
            Self::Publishing => write!(f, "the volume is being published"),
            Self::Republishing => write!(f, "the driver wants the volume to be published again"),
            Self::Expanding => write!(f, "the filesystem is being grown"),
            Self::Ready => write!(f, "the volume is mounted"),
            Self::Unwanted => write!(f, "no pod of that uid wants the volume any more"),
            Self::Alone { driver } => {
                write!(f, "the driver {driver} has been away for too long; the agent unmounts its volumes itself")
            }
            Self::Unused => write!(f, "no pod has the volume any more"),
            Self::Gone => write!(f, "nothing of the volume is left on this node"),
            Self::NotKnownYet => write!(f, "nothing is taken away before the node and its pods are known"),
            Self::Corrupted => write!(f, "the mount is dead and is made anew"),
            Self::Hung { message } => write!(f, "{message}"),
            Self::Failed { stage, volume, message } => {
                write!(f, "{} failed for volume {volume:?} : {message}", stage.name())
            }
        }
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::ClaimMissing { .. } => "claim_missing",
            Self::ClaimGoing { .. } => "claim_going",
            Self::ClaimNotBound { .. } => "claim_not_bound",
            Self::ClaimNotOurs { .. } => "claim_not_ours",
            Self::VolumeMissing { .. } => "volume_missing",
            Self::VolumeOfAnother { .. } => "volume_of_another",
            Self::ModeMismatch { .. } => "mode_mismatch",
            Self::OutOfReach { .. } => "out_of_reach",
            Self::Unsupported { .. } => "unsupported",
            Self::BadContext { .. } => "bad_context",
            Self::NotReported => "not_reported",
            Self::NotAttached => "not_attached",
            Self::AttachmentGoing => "attachment_going",
            Self::AttachFailed { .. } => "attach_failed",
            Self::NoSlot { .. } => "no_slot",
            Self::DriverMissing { .. } => "driver_missing",
            Self::DriverDown { .. } => "driver_down",
            Self::DriverUnread { .. } => "driver_unread",
            Self::UsedByPod { .. } => "used_by_pod",
            Self::OtherContext { .. } => "other_context",
            Self::Staging => "staging",
            Self::Publishing => "publishing",
            Self::Republishing => "republishing",
            Self::Expanding => "expanding",
            Self::Ready => "ready",
            Self::Unwanted => "unwanted",
            Self::Alone { .. } => "alone",
            Self::Unused => "unused",
            Self::Gone => "gone",
            Self::NotKnownYet => "not_known_yet",
            Self::Corrupted => "corrupted",
            Self::Hung { .. } => "hung",
            Self::Failed { .. } => "failed",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Ready | Self::Gone => Standing::Settled,
            Self::Staging
            | Self::Publishing
            | Self::Republishing
            | Self::Expanding
            | Self::Unwanted
            | Self::Alone { .. }
            | Self::Unused
            | Self::NotReported
            | Self::Corrupted
            | Self::Failed { .. } => Standing::Moving,
            Self::ClaimMissing { .. }
            | Self::ClaimNotBound { .. }
            | Self::NotAttached
            | Self::AttachmentGoing
            | Self::AttachFailed { .. }
            | Self::NoSlot { .. }
            | Self::DriverMissing { .. }
            | Self::DriverDown { .. }
            | Self::DriverUnread { .. }
            | Self::UsedByPod { .. }
            | Self::OtherContext { .. }
            | Self::NotKnownYet
            | Self::Hung { .. } => Standing::Waiting,
            Self::ClaimGoing { .. }
            | Self::ClaimNotOurs { .. }
            | Self::VolumeMissing { .. }
            | Self::VolumeOfAnother { .. }
            | Self::ModeMismatch { .. }
            | Self::OutOfReach { .. }
            | Self::BadContext { .. }
            | Self::Unsupported { .. } => Standing::Stuck,
        }
    }

    fn notice(&self) -> Option<Notice> {
        match self {
            Self::Failed { stage, .. } => Some(Notice::warning(stage.event(), self.to_string())),
            // Waiting for others is no failure until they failed (NODE-9: no events while a volume is not attached).
            // Whoever makes a claim's volume tells the claim what keeps it.
            Self::ClaimNotBound { .. } | Self::NotReported | Self::NotAttached | Self::NotKnownYet => None,
            _ => match self.standing() {
                Standing::Settled | Standing::Moving => None,
                Standing::Waiting | Standing::Stuck => Some(Notice::warning("FailedMount", self.to_string())),
            },
        }
    }
}
