//! Reasons that no controller of ours gives, because it is not theirs to decide: a pod that nobody schedules, a provisioner
//! that does not run, a finalizer of somebody else.

use std::fmt;

use api::Amount;

use super::advice;
use super::growing::Growth;
use super::source::Problem;
use super::text::Age;
use crate::decision::{Reason, Standing};
use crate::health::TroubleKind;
use crate::outcome::{Call, Code, Outcome, Retry, outcome};
use crate::registration::lease::ANOTHER_MACHINE;

/// What was found around a claim or a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// What decides could not be looked at.
    Blind {
        what: &'static str,
    },
    /// The claim says that it is bound, and its volume could not be looked at.
    SaidBound {
        volume: Box<str>,
    },
    /// What somebody who may look said last.
    Said {
        by: Box<str>,
        message: Box<str>,
    },
    /// A controller cannot write to the object, as its event says.
    WriteFailed {
        by: Box<str>,
        message: Box<str>,
    },
    NamespaceGoing {
        namespace: Box<str>,
    },
    /// The binder's lease ran out.
    BinderSilent {
        lease: Box<str>,
        seconds: i64,
    },
    /// What keeps a pod and the claim waiting for each other.
    Pod {
        pod: Box<str>,
        why: PodTrouble,
    },
    AttachFailed {
        node: Box<str>,
        message: Box<str>,
    },
    ProvisionerAbsent {
        name: Box<str>,
    },
    /// It ran, and its lease ran out.
    ProvisionerSilent {
        name: Box<str>,
        lease: Box<str>,
        seconds: i64,
    },
    /// The driver is installed, and nothing shows whether its provisioner runs.
    ProvisionerUnseen {
        name: Box<str>,
    },
    ProvisionerRuns {
        name: Box<str>,
    },
    CallFailed {
        call: Call,
        code: Code,
        message: Box<str>,
    },
    NodeGone {
        node: Box<str>,
    },
    NodeLacksDriver {
        node: Box<str>,
        driver: Box<str>,
    },
    TopologyKeyMissing {
        node: Box<str>,
        key: Box<str>,
    },
    /// The class allows no place where there is a node, or not the chosen one.
    TopologyExcludes {
        class: Box<str>,
        node: Option<Box<str>>,
    },
    NoRoom {
        class: Box<str>,
        asked: Amount,
        largest: Option<Amount>,
    },
    Source {
        kind: Box<str>,
        name: Box<str>,
        problem: Problem,
    },
    /// The claim asks for more than its volume has.
    Growing {
        asked: Amount,
        has: Amount,
        growth: Growth,
    },
    FinalizersLeft {
        finalizers: Vec<Box<str>>,
    },
    /// What the node of a pod says about its volumes.
    AgentSays {
        node: Box<str>,
        message: Box<str>,
    },
    AgentSilent {
        node: Box<str>,
    },
    /// The node has to take a pod's volumes down, and may have said why it has not.
    PodLeaving {
        node: Box<str>,
        said: Option<Box<str>>,
    },
    PodNodeGone {
        node: Box<str>,
    },
    PodNodeNotReady {
        node: Box<str>,
    },
    /// A driver says that something is wrong with a volume; the machine is where the volume is, if that is known.
    VolumeAbnormal {
        volume: Box<str>,
        message: Box<str>,
        node: Option<Box<str>>,
    },
    /// Nothing is heard of a machine any more, for so many seconds.
    NodeLost {
        node: Box<str>,
        seconds: Option<i64>,
    },
    /// An agent stopped because another machine acts under its node's name.
    NodeNameInUse {
        node: Box<str>,
        message: Box<str>,
    },
}

/// What is the matter with a pod that uses, or should use, a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodTrouble {
    /// It was given a node past the scheduler, which therefore never chooses a volume.
    Pinned {
        node: Box<str>,
    },
    Gated,
    Refused {
        message: Box<str>,
    },
    /// No scheduler has said anything about it.
    Unnoticed {
        scheduler: Box<str>,
    },
    /// It keeps a claim that is being deleted.
    Holds,
    /// The same, though it has ended.
    HoldsEnded,
    /// It stands for a machine that shows the volume at a path.
    HoldsForHost {
        node: Box<str>,
        path: Box<str>,
    },
    NotStarted {
        message: Box<str>,
    },
    AttachedElsewhere {
        node: Box<str>,
    },
}

impl PodTrouble {
    fn write(&self, f: &mut fmt::Formatter<'_>, pod: &str) -> fmt::Result {
        match self {
            Self::Pinned { node } => write!(
                f,
                "pod {pod:?} has spec.nodeName {node:?}, so the scheduler passes it over and the claim is never given a volume"
            ),
            Self::Gated => write!(f, "pod {pod:?} has scheduling gates, so no node is chosen for it"),
            Self::Refused { message } => write!(f, "pod {pod:?} cannot be scheduled: {message}"),
            Self::Unnoticed { scheduler } => {
                write!(f, "no scheduler has said anything about pod {pod:?}, which asks for scheduler {scheduler:?}")
            }
            Self::Holds => write!(f, "pod {pod:?} uses the claim"),
            Self::HoldsEnded => {
                write!(f, "pod {pod:?} has ended and still counts as a user, for as long as the pod object exists")
            }
            Self::HoldsForHost { node, path } => write!(f, "node {node:?} itself has it mounted at {path:?}"),
            Self::NotStarted { message } => write!(f, "pod {pod:?} cannot use the volume: {message}"),
            Self::AttachedElsewhere { node } => {
                write!(f, "pod {pod:?} waits until the volume is detached from node {node:?}")
            }
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Pinned { .. } => "pod_pinned",
            Self::Gated => "pod_gated",
            Self::Refused { .. } => "pod_refused",
            Self::Unnoticed { .. } => "pod_unnoticed",
            Self::Holds | Self::HoldsEnded => "pod_holds",
            Self::HoldsForHost { .. } => "host_holds",
            Self::NotStarted { .. } => "pod_not_started",
            Self::AttachedElsewhere { .. } => "attached_elsewhere",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Pinned { .. } | Self::Gated => Standing::Stuck,
            Self::Refused { .. }
            | Self::Unnoticed { .. }
            | Self::Holds
            | Self::HoldsEnded
            | Self::HoldsForHost { .. }
            | Self::NotStarted { .. }
            | Self::AttachedElsewhere { .. } => Standing::Waiting,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blind { what } => write!(f, "why is not known, because {what} could not be looked at"),
            Self::SaidBound { volume } => {
                write!(f, "the claim says that it is bound to volume {volume:?}, which could not be looked at")
            }
            Self::Said { by, message } => write!(f, "{by} said last: {message}"),
            Self::WriteFailed { by, message } => write!(f, "{by} cannot go on: {message}"),
            Self::NamespaceGoing { namespace } => write!(f, "namespace {namespace:?} is being deleted"),
            Self::BinderSilent { lease, seconds } => {
                write!(f, "the volume binder does not run: its lease {lease} was last renewed {} ago", Age(*seconds))
            }
            Self::Pod { pod, why } => why.write(f, pod),
            Self::AttachFailed { node, message } => {
                write!(f, "the volume cannot be attached to or detached from node {node:?}: {message}")
            }
            Self::ProvisionerAbsent { name } => {
                write!(f, "nobody makes volumes: nothing in this cluster goes by the name {name:?}")
            }
            Self::ProvisionerSilent { name, lease, seconds } => {
                write!(f, "provisioner {name:?} does not run: its lease {lease} was last renewed {} ago", Age(*seconds))
            }
            Self::ProvisionerUnseen { name } => {
                write!(
                    f,
                    "the driver of provisioner {name:?} is known here, and nothing shows that its provisioner runs"
                )
            }
            Self::ProvisionerRuns { name } => {
                write!(f, "provisioner {name:?} runs, and works on it or has not come to it yet")
            }
            Self::CallFailed { call, code, message } => failed(f, (*call, *code), message),
            Self::NodeGone { node } => {
                write!(f, "node {node:?}, which was chosen for the claim, does not exist any more")
            }
            Self::NodeLacksDriver { node, driver } => {
                write!(f, "driver {driver:?} is not registered on node {node:?}, which was chosen for the claim")
            }
            Self::TopologyKeyMissing { node, key } => {
                write!(f, "node {node:?} lacks the label {key:?}, by which its driver says where a volume may be")
            }
            Self::TopologyExcludes { class, node: Some(node) } => {
                write!(
                    f,
                    "the allowedTopologies of class {class:?} exclude node {node:?}, which was chosen for the claim"
                )
            }
            Self::TopologyExcludes { class, node: None } => {
                write!(f, "no node is where the allowedTopologies of class {class:?} allow a volume")
            }
            Self::NoRoom { class, asked, largest } => no_room(f, (class, asked), largest.as_ref()),
            Self::Source { kind, name, problem } => write!(f, "the content comes from {kind} {name:?}, {problem}"),
            Self::Growing { asked, has, growth } => grows(f, (asked, has), *growth),
            Self::FinalizersLeft { finalizers } => write!(f, "the object is kept by {}", finalizers.join(", ")),
            Self::AgentSays { node, message } => write!(f, "node {node:?} says: {message}"),
            Self::AgentSilent { node } => {
                write!(f, "nothing is missing but the mount, and node {node:?} has said nothing about it yet")
            }
            Self::PodLeaving { node, said: None } => write!(f, "node {node:?} has to take its volumes down"),
            Self::PodLeaving { node, said: Some(said) } => {
                write!(f, "node {node:?} has to take its volumes down, and said last: {said}")
            }
            Self::PodNodeGone { node } => write!(f, "its node {node:?} does not exist any more"),
            Self::PodNodeNotReady { node } => write!(f, "its node {node:?} is not ready, so that nobody works there"),
            Self::VolumeAbnormal { volume, message, .. } => abnormal(f, volume, message),
            Self::NodeLost { node, seconds } => lost_machine(f, node, *seconds),
            Self::NodeNameInUse { node, message } => name_in_use(f, node, message),
        }
    }
}

fn no_room(f: &mut fmt::Formatter<'_>, (class, asked): (&str, &Amount), largest: Option<&Amount>) -> fmt::Result {
    write!(f, "class {class:?} has no room for {asked}: ")?;
    match largest {
        Some(largest) => write!(f, "the largest volume that fits anywhere is {largest}"),
        None => f.write_str("no capacity was published for it"),
    }
}

fn name_in_use(f: &mut fmt::Formatter<'_>, node: &str, message: &str) -> fmt::Result {
    write!(f, "two machines use the node name {node:?}: {}", name_holder(message))
}

fn lost_machine(f: &mut fmt::Formatter<'_>, node: &str, seconds: Option<i64>) -> fmt::Result {
    match seconds {
        Some(seconds) => write!(f, "machine {node:?} is lost: nothing was heard of it for {}", Age(seconds)),
        None => write!(f, "machine {node:?} is lost: nothing is heard of it"),
    }
}

/// What is wrong with a volume, without the advice that a driver of ours adds to it: that is given as the fix.
fn abnormal(f: &mut fmt::Formatter<'_>, volume: &str, message: &str) -> fmt::Result {
    let (kind, words) = TroubleKind::of(message);
    let words = advice::without_advice(kind, words);
    match kind {
        TroubleKind::WritesLost => write!(f, "volume {volume:?} lost writes: {words}"),
        TroubleKind::PoolMissing => write!(f, "volume {volume:?} cannot be reached, its pool is missing: {words}"),
        TroubleKind::PoolFull => write!(f, "the pool of volume {volume:?} is full: {words}"),
        TroubleKind::PoolNearlyFull => write!(f, "the pool of volume {volume:?} is nearly full: {words}"),
        TroubleKind::Other => write!(f, "the driver says of volume {volume:?}: {words}"),
    }
}

/// Who holds the name, of a message that goes on with advice.
fn name_holder(message: &str) -> &str {
    let words = message.strip_prefix(ANOTHER_MACHINE).unwrap_or(message).trim_start();
    let ends = ["; stop that agent", ". Stop one of them"].iter().filter_map(|advice| words.find(advice));
    ends.min().and_then(|end| words.get(..end)).unwrap_or(words)
}

/// The call's name in the CSI specification, as far as explanations meet it.
fn name(call: Call) -> &'static str {
    match call {
        Call::DeleteVolume => "DeleteVolume",
        _ => "CreateVolume",
    }
}

fn failed(f: &mut fmt::Formatter<'_>, (call, code): (Call, Code), message: &str) -> fmt::Result {
    match (call, code) {
        // Without a code nothing was called: the provisioner itself said no.
        (Call::CreateVolume, Code::None) => write!(f, "the provisioner cannot make the volume: {message}"),
        (call, Code::None) => write!(f, "{} failed: {message}", name(call)),
        (call, code) => write!(f, "{} failed with {code}: {message}", name(call)),
    }
}

fn grows(f: &mut fmt::Formatter<'_>, (asked, has): (&Amount, &Amount), growth: Growth) -> fmt::Result {
    match growth {
        Growth::Unbegun => write!(f, "the claim asks for {asked} and its volume has {has}: nobody has made it larger"),
        Growth::Controller => write!(f, "the volume has {has}, and the driver is asked to make it {asked}"),
        Growth::Node => write!(f, "the volume is made {asked}, and its filesystem still has {has}"),
        Growth::Infeasible => {
            write!(f, "the driver cannot make the volume larger than {has}, and {asked} is asked for")
        }
    }
}

impl Reason for Finding {
    fn code(&self) -> &'static str {
        match self {
            Self::Blind { .. } => "not_allowed",
            Self::SaidBound { .. } => "said_bound",
            Self::Said { .. } => "said",
            Self::WriteFailed { .. } => "write_failed",
            Self::NamespaceGoing { .. } => "namespace_going",
            Self::BinderSilent { .. } => "binder_silent",
            Self::Pod { why, .. } => why.code(),
            Self::AttachFailed { .. } => "attach_failed",
            Self::ProvisionerAbsent { .. } => "provisioner_absent",
            Self::ProvisionerSilent { .. } => "provisioner_silent",
            Self::ProvisionerUnseen { .. } => "provisioner_unseen",
            Self::ProvisionerRuns { .. } => "provisioner_runs",
            Self::CallFailed { .. } => "call_failed",
            Self::NodeGone { .. } => "node_gone",
            Self::NodeLacksDriver { .. } => "node_lacks_driver",
            Self::TopologyKeyMissing { .. } => "topology_key_missing",
            Self::TopologyExcludes { .. } => "topology_excludes",
            Self::NoRoom { .. } => "no_room",
            Self::Source { .. } => "source",
            Self::Growing { .. } => "growing",
            Self::FinalizersLeft { .. } => "finalizers_left",
            Self::AgentSays { .. } => "agent_says",
            Self::AgentSilent { .. } => "agent_silent",
            Self::PodLeaving { .. } => "pod_leaving",
            Self::PodNodeGone { .. } => "pod_node_gone",
            Self::PodNodeNotReady { .. } => "pod_node_not_ready",
            Self::VolumeAbnormal { message, .. } => TroubleKind::of(message).0.code(),
            Self::NodeLost { .. } => "node_lost",
            Self::NodeNameInUse { .. } => "node_name_in_use",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::SaidBound { .. } => Standing::Settled,
            Self::BinderSilent { .. }
            | Self::ProvisionerAbsent { .. }
            | Self::ProvisionerSilent { .. }
            | Self::TopologyKeyMissing { .. }
            | Self::TopologyExcludes { .. }
            | Self::NoRoom { .. }
            | Self::NodeGone { .. }
            | Self::NodeNameInUse { .. }
            | Self::PodNodeGone { .. } => Standing::Stuck,
            Self::VolumeAbnormal { message, .. } => TroubleKind::of(message).0.standing(),
            Self::Blind { .. }
            | Self::Said { .. }
            | Self::WriteFailed { .. }
            | Self::NamespaceGoing { .. }
            | Self::AttachFailed { .. }
            | Self::ProvisionerUnseen { .. }
            | Self::ProvisionerRuns { .. }
            | Self::NodeLacksDriver { .. }
            | Self::FinalizersLeft { .. }
            | Self::AgentSays { .. }
            | Self::AgentSilent { .. }
            | Self::PodLeaving { .. }
            | Self::NodeLost { .. }
            | Self::PodNodeNotReady { .. } => Standing::Waiting,
            Self::Pod { why, .. } => why.standing(),
            Self::Source { problem, .. } => problem.standing(),
            Self::Growing { growth: Growth::Infeasible, .. } => Standing::Stuck,
            Self::Growing { .. } => Standing::Waiting,
            Self::CallFailed { call, code, .. } => match outcome(*call, *code) {
                Outcome::Refused(Retry::Changed) => Standing::Stuck,
                Outcome::Refused(Retry::Later | Retry::Elsewhere) | Outcome::Unknown | Outcome::Done => {
                    Standing::Waiting
                }
            },
        }
    }
}
