//! One volume on this machine: what comes next (NODE-6.2, NODE-7, NODE-9, NODE-16).

use api::Uid;

use super::Because;
use super::selinux::Label;
use super::state::Held;
use crate::decision::Decision;

/// What is known of a volume on this machine.
#[derive(Debug, Clone)]
pub struct Observed<'a> {
    pub attach: Attach<'a>,
    /// Why the driver cannot be asked, if it cannot. `None` for volumes without a driver, too.
    pub driver: Option<Because>,
    /// Whether the machine takes away without the driver what nobody wants any more.
    pub alone: Alone,
    pub staging: Staging,
    /// Whether it is staged.
    pub device: Held,
    pub removal: Removal,
    pub sharing: Sharing,
    /// The SELinux context of what is here of it.
    pub context: Option<&'a Label>,
    /// The pods that want it, in the order in which they asked.
    pub wanted: &'a [Wanted],
    /// The pods that have it, or may have it.
    pub holders: &'a [Holder],
}

/// A pod that has the volume, or may have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub pod: Uid,
    pub held: Held,
    pub wish: Wish,
}

/// Whether a pod that has the volume wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Wanted,
    Unwanted,
    /// The pod lives, and not all of its volumes are known at the moment: this may be one of them.
    Unclear,
}

/// A pod that wants the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub pod: Uid,
    pub held: Held,
    pub due: Due,
    /// The SELinux context it wants the volume with. What it has already keeps the one that it was mounted with.
    pub context: Option<Label>,
}

/// What a pod that has the volume is to get besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    Nothing,
    /// The driver wants to be asked again from time to time.
    Republish,
    /// The volume has become larger than its filesystem.
    Expand,
}

/// How the volume comes to this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attach<'a> {
    NotNeeded,
    Needed {
        /// Whether the server stored that this node uses it.
        reported: bool,
        /// Whether the controller lists it as attached in the node's status.
        listed: bool,
        attachment: Attachment<'a>,
    },
}

/// The VolumeAttachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment<'a> {
    Missing,
    Waiting,
    Going,
    Refused(&'a str),
    /// Refused because no further volume fits on this node.
    Full(&'a str),
    Attached,
}

/// Whether the volume has a step for the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staging {
    Needed,
    NotNeeded,
}

/// Whether anything may be taken away (NODE-5.1, NODE-7: pods and node are known).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    Allowed,
    NotYet,
}

/// Whether the machine may take a volume away by itself (NODE-31.25). An operator's choice, for drivers that were
/// removed while their volumes were in use: what only the driver knows of, such as a device it attached, stays as it
/// is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alone {
    No,
    /// The driver has been away for longer than the operator waits.
    Allowed,
}

/// How many pods may have it at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    Many,
    /// Its only access mode is ReadWriteOncePod.
    OnePod,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Unpublish(Uid),
    /// For a pod, whose group the driver may want to know.
    Stage(Uid),
    Publish(Uid),
    Republish(Uid),
    Expand(Uid),
    Unstage,
    /// Nothing is left: the volume is not in use here any more.
    Forget,
}

impl Step {
    /// The name that backoff and metrics go by (NODE-8.1).
    pub fn operation(&self) -> &'static str {
        match self {
            Self::Unpublish(_) => "volume_unmount",
            Self::Stage(_) | Self::Publish(_) | Self::Republish(_) => "volume_mount",
            Self::Expand(_) => "volume_fs_resize",
            Self::Unstage => "unmount_device",
            Self::Forget => "volume_detach",
        }
    }

    pub fn pod(&self) -> Option<&Uid> {
        match self {
            Self::Unpublish(pod) | Self::Stage(pod) | Self::Publish(pod) | Self::Republish(pod) | Self::Expand(pod) => {
                Some(pod)
            }
            Self::Unstage | Self::Forget => None,
        }
    }
}

/// What can be done now, the most urgent first. Whoever acts takes the first that is not held back by its own failures,
/// and decides again.
pub fn decide(observed: &Observed<'_>) -> Decision<Step, Because> {
    let mut actions = Vec::new();
    let mut because = None;
    for (pod, reason) in leaving(observed) {
        match blocked_removal(observed) {
            // What a pod wants and cannot have anew without the driver is left to it.
            Some(alone @ Because::Alone { .. }) if reason == Because::Unwanted => {
                actions.push(Step::Unpublish(pod.clone()));
                because = because.or(Some(alone));
            }
            Some(Because::Alone { .. }) => because = because.or_else(|| observed.driver.clone()),
            Some(blocked) => because = because.or(Some(blocked)),
            None => {
                actions.push(Step::Unpublish(pod.clone()));
                because = because.or(Some(reason));
            }
        }
    }
    for wanted in observed.wanted {
        let stands = standing(observed, wanted);
        let pod = wanted.pod.clone();
        let step = match stands {
            Because::Staging => Some(Step::Stage(pod)),
            Because::Publishing => Some(Step::Publish(pod)),
            Because::Republishing => Some(Step::Republish(pod)),
            Because::Expanding => Some(Step::Expand(pod)),
            _ => None,
        };
        actions.extend(step);
        if stands != Because::Ready {
            because = because.or(Some(stands));
        }
    }
    let useless =
        observed.device == Held::Corrupted || observed.wanted.first().is_none_or(|next| is_other(observed, next));
    if observed.holders.is_empty() && useless {
        return unused(observed, because);
    }
    Decision { because: because.unwrap_or(Because::Ready), actions }
}

/// Whether a pod wants the volume with another SELinux context than it has, or is about to get for whoever came first. Two
/// contexts are two volumes: all of the one goes before anything of the other comes (NODE-15.6, NODE-30.15).
fn is_other(observed: &Observed<'_>, wanted: &Wanted) -> bool {
    context(observed) != wanted.context.as_ref()
}

fn context<'a>(observed: &Observed<'a>) -> Option<&'a Label> {
    match observed.device.is_none() && observed.holders.is_empty() {
        true => observed.wanted.first().and_then(|first| first.context.as_ref()),
        false => observed.context,
    }
}

/// Nobody has it: the machine lets go of it.
fn unused(observed: &Observed<'_>, because: Option<Because>) -> Decision<Step, Because> {
    if observed.device.is_none() {
        return Decision::act(Because::Gone, Step::Forget);
    }
    match blocked_removal(observed) {
        Some(alone @ Because::Alone { .. }) if observed.wanted.is_empty() => Decision::act(alone, Step::Unstage),
        Some(blocked) => Decision::rest(blocked),
        None => Decision::act(because.unwrap_or(Because::Unused), Step::Unstage),
    }
}

fn blocked_removal(observed: &Observed<'_>) -> Option<Because> {
    match observed.removal {
        Removal::NotYet => Some(Because::NotKnownYet),
        Removal::Allowed => match (&observed.driver, observed.alone) {
            (Some(Because::DriverMissing { driver } | Because::DriverDown { driver, .. }), Alone::Allowed) => {
                Some(Because::Alone { driver: driver.clone() })
            }
            (driver, _) => driver.clone(),
        },
    }
}

/// The pods that have it and should not: they do not want it any more, or what they have is dead.
fn leaving<'a>(observed: &'a Observed<'_>) -> impl Iterator<Item = (&'a Uid, Because)> {
    observed.holders.iter().filter_map(|holder| match holder.wish {
        Wish::Unwanted => Some((&holder.pod, Because::Unwanted)),
        Wish::Wanted => is_dead(observed, holder.held).then_some((&holder.pod, Because::Corrupted)),
        Wish::Unclear => None,
    })
}

/// Whether what a pod has cannot come alive again. What may be a view of a dead filesystem is taken away, too, or the volume
/// could never be staged anew.
fn is_dead(observed: &Observed<'_>, held: Held) -> bool {
    matches!((observed.device, held), (_, Held::Corrupted) | (Held::Corrupted, Held::Maybe(_)))
}

/// Where one pod stands with the volume.
pub fn standing(observed: &Observed<'_>, wanted: &Wanted) -> Because {
    match (wanted.held, wanted.due) {
        (Held::Yes, Due::Nothing) => return Because::Ready,
        (Held::Corrupted, _) => return Because::Corrupted,
        (Held::Yes, Due::Republish | Due::Expand) | (Held::No | Held::Maybe(_), _) => {}
    }
    if observed.sharing == Sharing::OnePod
        && let Some(other) = observed.holders.iter().find(|holder| holder.pod != wanted.pod)
    {
        return Because::UsedByPod { pod: other.pod.as_str().into() };
    }
    if is_other(observed, wanted) {
        return Because::OtherContext { has: context(observed).cloned(), wants: wanted.context.clone() };
    }
    if let Some(missing) = unattached(observed) {
        // What works goes on working; it is not asked for again meanwhile.
        return if wanted.held == Held::Yes { Because::Ready } else { missing };
    }
    if let Some(driver) = &observed.driver {
        return if wanted.held == Held::Yes { Because::Ready } else { driver.clone() };
    }
    match (observed.staging, observed.device) {
        (Staging::Needed, Held::Corrupted) => Because::Corrupted,
        (Staging::Needed, Held::No | Held::Maybe(_)) => Because::Staging,
        (Staging::Needed, Held::Yes) | (Staging::NotNeeded, _) => match (wanted.held, wanted.due) {
            (Held::Yes, Due::Expand) => Because::Expanding,
            (Held::Yes, Due::Republish | Due::Nothing) => Because::Republishing,
            (Held::No | Held::Maybe(_) | Held::Corrupted, _) => Because::Publishing,
        },
    }
}

/// Why the volume cannot be mounted yet, as far as attaching goes (NODE-9).
fn unattached(observed: &Observed<'_>) -> Option<Because> {
    let Attach::Needed { reported, listed, attachment } = observed.attach else { return None };
    // What this machine has in this boot was listed before. The handshake is for what is new here, and for what only the
    // metadata of an earlier boot speaks for.
    let known = observed.device.shows_attached();
    if !known && !reported {
        return Some(Because::NotReported);
    }
    match attachment {
        Attachment::Refused(message) => Some(Because::AttachFailed { message: message.into() }),
        Attachment::Full(message) => Some(Because::NoSlot { message: message.into() }),
        Attachment::Going => Some(Because::AttachmentGoing),
        Attachment::Missing | Attachment::Waiting => Some(Because::NotAttached),
        Attachment::Attached if known || listed => None,
        Attachment::Attached => Some(Because::NotAttached),
    }
}

#[cfg(test)]
mod dead {
    use super::*;
    use crate::node::state::Origin;

    /// A publish whose end is not known, on a filesystem that died.
    /// Rules: NODE-31.9, NODE-30.10
    #[test]
    fn a_doubtful_view_of_a_dead_filesystem_goes_and_then_the_volume_is_staged_anew() {
        let pod = Uid::from("pod");
        let maybe = Held::Maybe(Origin::Seen);
        let wanted = [Wanted { pod: pod.clone(), held: maybe, due: Due::Nothing, context: None }];
        let holders = [Holder { pod: pod.clone(), held: maybe, wish: Wish::Wanted }];
        let observed = Observed {
            attach: Attach::NotNeeded,
            driver: None,
            alone: Alone::No,
            staging: Staging::Needed,
            device: Held::Corrupted,
            removal: Removal::Allowed,
            sharing: Sharing::Many,
            context: None,
            wanted: &wanted,
            holders: &holders,
        };
        assert_eq!(decide(&observed).actions.first(), Some(&Step::Unpublish(pod)));
        let wanted = [Wanted { held: Held::No, ..wanted[0].clone() }];
        let observed = Observed { wanted: &wanted, holders: &[], ..observed };
        assert_eq!(decide(&observed).actions.first(), Some(&Step::Unstage));
    }
}
