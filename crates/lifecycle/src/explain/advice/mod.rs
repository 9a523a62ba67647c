//! What a person can do about a reason. Every reason has an answer here, if only that there is nothing to do.

mod messages;
mod pods;
mod volumes;

use api::keys::{annotation, taint};
use api::{Claim, Volume};

pub(super) use pods::{attach, hold, node};
pub(super) use volumes::without_advice;

use super::finding::{Finding, PodTrouble};
use super::growing::Growth;
use super::source::Problem;
use crate::bind::claim::Because as Bind;
use crate::bind::compatible::Mismatch;
use crate::ephemeral::Because as Ephemeral;
use crate::health::TroubleKind;
use crate::outcome::Code;
use crate::protect::Because as Protect;
use crate::provision::claim::Because as Provision;
use crate::provision::delete::Because as Delete;
use crate::provision::intent::Because as Intent;
use crate::release::volume::Because as Release;
use crate::schedule::place::Because as Schedule;
use crate::schedule::{Refusal, Unready};

type Advice = Vec<String>;

fn say<const N: usize>(lines: [&str; N]) -> Advice {
    lines.map(str::to_owned).to_vec()
}

const BINDER: &str = "The next move is the binder's and takes it less than a second. If nothing changes, see that \
     kube-controller-manager or `orlop controllers` runs and may write claims and volumes.";

/// About a claim that the binder judged.
pub(super) fn bind(claim: &Claim, because: &Bind) -> Advice {
    let (name, namespace) = (claim.name(), claim.namespace());
    match because {
        Bind::Bound { .. } | Bind::ClaimGoing | Bind::AwaitingProvisioner { .. } | Bind::NothingFits { .. } => {
            Vec::new()
        }
        Bind::Migration
        | Bind::Fits { .. }
        | Bind::Named { .. }
        | Bind::Designated { .. }
        | Bind::StatusBehind { .. }
        | Bind::DefaultClass { .. } => say([BINDER]),
        Bind::CacheMayLag { volume } => vec![format!("Ask somebody who may: kubectl get pv {volume}")],
        Bind::ReservedUnsuitable { volume, mismatch } | Bind::NamedUnsuitable { volume, mismatch } => {
            unsuitable(claim, volume, *mismatch)
        }
        Bind::NamedMissing { volume } => vec![
            format!("Create a PersistentVolume named {volume:?} that suits the claim."),
            format!("Or make the claim anew without spec.volumeName: kubectl delete pvc {name} -n {namespace}"),
        ],
        Bind::Taken { volume, .. } | Bind::TakenFromUs { volume } => vec![
            format!(
                "Make the claim anew with another spec.volumeName, or with none: kubectl delete pvc {name} -n {namespace}"
            ),
            format!("If the other claim is gone for good, take spec.claimRef off volume {volume:?}."),
        ],
        Bind::NoBindingMode { class } => {
            vec![format!("Set volumeBindingMode of storage class {class:?}: make it anew.")]
        }
        Bind::NoClass => no_class(claim),
        Bind::NoPod => vec![
            "Nothing is wrong: the class waits for a pod, so that the volume is made where the pod runs.".to_owned(),
            format!("Create a pod that uses claim {name:?}; or use a class with volumeBindingMode Immediate."),
        ],
        Bind::PodUnscheduled { .. } => say(["The volume follows as soon as the pod can be scheduled."]),
        Bind::ClassMissing { class } => vec![
            format!("Create storage class {class:?}; the claim goes on by itself."),
            format!("Or make the claim anew with a class that exists: kubectl delete pvc {name} -n {namespace}"),
        ],
        Bind::NoProvisioner { class, .. } => vec![
            format!(
                "Create a PersistentVolume of class {class:?} that suits the claim: this class makes none by itself."
            ),
            "Or make the claim anew with a class that has a provisioner.".to_owned(),
        ],
        Bind::SwitchedOff { .. } => {
            say(["Start the binder with --enable-dynamic-provisioning, or create a volume by hand."])
        }
        Bind::LostPointer | Bind::LostVolume { .. } => lost(claim),
        Bind::Misbound { volume } => vec![
            format!(
                "Volume {volume:?} is another claim's. Back up what this claim's pods still see, then make it anew."
            ),
            format!("kubectl delete pvc {name} -n {namespace}"),
        ],
    }
}

fn lost(claim: &Claim) -> Advice {
    let (name, namespace, volume) = (claim.name(), claim.namespace(), &claim.volume_name);
    let mut advice = Vec::new();
    if volume.is_empty() {
        advice.push("If a volume still names this claim, set its policy to Retain, delete the claim, take spec.claimRef off the volume, and make the claim anew with its name as spec.volumeName.".to_owned());
    } else {
        advice.push(format!(
            "If what it was made of still exists, create PersistentVolume {volume:?} anew with spec.claimRef for this claim (namespace, name, uid {}): the claim is Bound again.",
            claim.uid()
        ));
    }
    advice.push(format!(
        "If not, the data is gone: kubectl delete pvc {name} -n {namespace}, and restore from a backup."
    ));
    advice
}

fn no_class(claim: &Claim) -> Advice {
    let name = claim.name();
    let unset = matches!(claim.class(), api::ClassName::Unset);
    let first = match unset {
        true => "Mark a storage class as the default: the claim takes it by itself.".to_owned(),
        false => format!("Make claim {name:?} anew with a storageClassName: an empty one means none, for ever."),
    };
    let labels = if claim.selector.is_some() { ", with the labels of its selector" } else { "" };
    let second = format!("Or create a PersistentVolume without a class that suits claim {name:?}{labels}.");
    vec![first, second]
}

fn unsuitable(claim: &Claim, volume: &str, mismatch: Mismatch) -> Advice {
    let (name, namespace) = (claim.name(), claim.namespace());
    let first = match mismatch {
        Mismatch::Deleting => format!("Wait until volume {volume:?} is gone, and create it anew."),
        Mismatch::TooSmall => {
            format!("Make the claim anew with a request that volume {volume:?} can hold, or give it a larger volume.")
        }
        Mismatch::Class => {
            format!("Give volume {volume:?} the claim's storageClassName, or make the claim anew with the volume's.")
        }
        Mismatch::AttributesClass => {
            format!("Make the claim anew with the volumeAttributesClassName that volume {volume:?} has.")
        }
        Mismatch::Mode => format!("Make the claim anew with the volumeMode that volume {volume:?} has."),
        Mismatch::Access => {
            format!("Make the claim anew with access modes that volume {volume:?} offers, or add them to the volume.")
        }
        Mismatch::Selector => format!("Give volume {volume:?} the labels that the claim selects."),
    };
    vec![first, format!("To make it anew: kubectl delete pvc {name} -n {namespace}, then create it again.")]
}

/// About a provisioner that may have been asked.
pub(super) fn provision(because: &Provision) -> Advice {
    match because {
        Provision::NotAsked => say([BINDER]),
        Provision::NameTaken { volume } => {
            vec![format!(
                "Delete or rename PersistentVolume {volume:?}, which has the name that this claim's volume gets."
            )]
        }
        Provision::HeldBack { .. } => say(["Change the claim or its class: the same request is refused again."]),
        Provision::ClassMissing { class } => vec![format!("Create storage class {class:?}.")],
        Provision::Provisioned { .. } => say([BINDER]),
        Provision::ClaimGone
        | Provision::ClaimGoing
        | Provision::HasVolume { .. }
        | Provision::NoClass
        | Provision::ClassOfAnother { .. }
        | Provision::NoNode { .. }
        | Provision::CacheMayLag { .. }
        | Provision::Wanted { .. } => Vec::new(),
    }
}

/// About a creation that was begun.
pub(super) fn intent(because: &Intent) -> Advice {
    match because {
        Intent::NameTaken { volume } | Intent::SourceTaken { volume } => {
            vec![format!("Delete or rename PersistentVolume {volume:?}, which is in the way of this claim's volume.")]
        }
        Intent::Wanted
        | Intent::Orphaned
        | Intent::Made { .. }
        | Intent::SourceLeaving { .. }
        | Intent::Unclaimed { .. }
        | Intent::Stored { .. }
        | Intent::Refused { .. } => Vec::new(),
    }
}

/// About a volume that the binder judged.
pub(super) fn release(volume: &Volume, because: &Release) -> Advice {
    let name = volume.name();
    let forget =
        format!("kubectl patch pv {name} --type json -p '[{{\"op\":\"remove\",\"path\":\"/spec/claimRef\"}}]'");
    match because {
        Release::Unclaimed | Release::Reserved { .. } | Release::Bound { .. } => Vec::new(),
        Release::Maintenance
        | Release::ClaimGone { .. }
        | Release::ClaimElsewhere { .. }
        | Release::NeverGiven { .. }
        | Release::ClaimsTurn { .. } => say([BINDER]),
        Release::CacheMayLag { claim } => {
            vec![format!(
                "Ask somebody who may: kubectl get pvc {} -n {}",
                claim.name(),
                claim.namespace().unwrap_or_default()
            )]
        }
        Release::ModeMismatch { claim } => {
            vec![format!(
                "Make claim {claim} anew with volumeMode {}, or the volume with the claim's.",
                volume.mode.name()
            )]
        }
        Release::Retained { .. } => vec![
            format!("To give the volume with its data to another claim: {forget}"),
            format!("To be rid of it: delete what it is made of, then kubectl delete pv {name}"),
        ],
        // What keeps it is further down the chain.
        Release::DeletedElsewhere { .. } => Vec::new(),
        Release::NoDeleter { .. } => vec![
            format!("Delete what it is made of by hand, then kubectl delete pv {name}"),
            format!("Or keep it for another claim: {forget}"),
        ],
        Release::NoRecycler => {
            vec![format!("Recycling is gone from Kubernetes: empty the volume by hand, then {forget}")]
        }
        Release::UnknownPolicy => say(["Set persistentVolumeReclaimPolicy to Retain or Delete."]),
    }
}

/// About what a volume is made of.
pub(super) fn delete(volume: &Volume, because: &Delete) -> Advice {
    let name = volume.name();
    match because {
        Delete::LetGo => vec![format!(
            "Somebody took the provisioner's finalizer off volume {name:?}: see whether what it was made of still exists."
        )],
        Delete::Shared { volume: twin } => vec![
            format!(
                "To keep the data: kubectl patch pv {name} -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Retain\"}}}}'"
            ),
            format!("To delete it: release PersistentVolume {twin:?}, with the policy Delete, or delete that object."),
        ],
        Delete::ClaimLives { claim } => vec![format!("Delete claim {claim} first, if nobody needs it.")],
        Delete::NotOurs
        | Delete::Unguarded
        | Delete::Kept { .. }
        | Delete::InUse
        | Delete::Unclaimed
        | Delete::CacheMayLag { .. }
        | Delete::Released { .. }
        | Delete::Emptied
        | Delete::Gone => Vec::new(),
    }
}

/// About a protecting finalizer.
pub(super) fn protect(because: &Protect) -> Advice {
    match because {
        Protect::Unused | Protect::Unguarded => say([
            "The next move is the protection controller's. If nothing changes, see that kube-controller-manager or `orlop controllers` runs.",
        ]),
        Protect::CacheMayLag => say(["Ask somebody who may list pods which of them uses the claim."]),
        Protect::UsedByPod { .. } => Vec::new(),
        Protect::Bound => {
            say(["The volume serves its claim until that is deleted, and then goes. A deletion cannot be taken back."])
        }
        Protect::UsedByClaim { claim } => vec![format!("Give claim {claim} another class, or delete it.")],
        Protect::UsedByVolume { volume } => vec![format!("Volume {volume:?} has to go first.")],
        Protect::Guarded | Protect::Released => Vec::new(),
    }
}

/// About a pod that a scheduler judged.
pub(super) fn schedule(because: &Schedule) -> Advice {
    match because {
        Schedule::Chosen { node } => vec![format!(
            "Volumes do not keep the pod from node {node:?}. If nothing changes, see that a scheduler runs: kube-scheduler, or `orlop scheduler`."
        )],
        Schedule::LeadsNowhere { .. } => {
            say(["The next move is the scheduler's. If nothing changes, see that it runs."])
        }
        Schedule::Unready { why, .. } => vec![unready(why)],
        Schedule::Refused(tally) if tally.nodes == 0 => say(["Add a node."]),
        Schedule::Refused(tally) => {
            // What is the matter with a node is seldom what is the matter with the pod.
            let (sick, other): (Vec<&Refusal>, Vec<&Refusal>) = tally.refusals.keys().partition(|one| is_sick(one));
            other.into_iter().chain(sick).map(unfit).collect()
        }
    }
}

fn unready(why: &Unready) -> String {
    match why {
        Unready::Missing { claim } => format!("Create claim {claim:?}, which the pod names."),
        Unready::NotYetMade { claim } => {
            format!("Claim {claim:?} is made for the pod by the ephemeral-volume controller; see that it runs.")
        }
        Unready::Lost { claim, .. } => format!("Claim {claim:?} has lost its volume: explain that one."),
        Unready::Deleting { claim } => format!("Claim {claim:?} is being deleted: make it and the pod anew."),
        Unready::NotOwned { claim, .. } => pods::not_ours(claim),
        Unready::Immediate => {
            "A claim of the pod that does not wait for a node has no volume: explain that one.".to_owned()
        }
        Unready::Unsuitable { claim, volume, .. } => {
            format!("Make volume {volume:?} suit claim {claim:?}, or take the reservation off it.")
        }
    }
}

/// Whether a node is refused for what it is in itself.
fn is_sick(refusal: &Refusal) -> bool {
    let sick = [taint::NOT_READY, taint::UNREACHABLE].map(|taint| taint.text());
    matches!(refusal, Refusal::Taint { key, .. } if sick.contains(&&**key))
}

fn unfit(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Unschedulable => "Let pods onto a node again: kubectl uncordon NODE.".to_owned(),
        Refusal::Taint { .. } if is_sick(refusal) => {
            "Bring the nodes back that are not ready: `kubectl get nodes` shows which, `kubectl describe node NAME` why."
                .to_owned()
        }
        Refusal::Taint { key, .. } => {
            format!("Give the pod a toleration for taint {key:?}, or take the taint off a node.")
        }
        Refusal::Placement => "Relax the pod's nodeSelector or node affinity, or label a node for it.".to_owned(),
        Refusal::ClaimInUse => "Another pod has a ReadWriteOncePod claim of this one: end it first.".to_owned(),
        Refusal::TooManyVolumes => "The nodes have as many volumes as they can: add a node, or move pods.".to_owned(),
        Refusal::DriverMissing { driver } => {
            format!("See that the node plugin of driver {driver:?} runs on the nodes.")
        }
        Refusal::VolumeGone => "A claim of the pod has lost its volume: explain that one.".to_owned(),
        Refusal::VolumeElsewhere | Refusal::Zone => {
            "The pod's volumes are where no allowed node is: relax the pod's placement, or add a node there.".to_owned()
        }
        Refusal::NothingToBind => {
            "No free volume can be reached from a node the pod may have: create one, or use a class with a provisioner."
                .to_owned()
        }
        Refusal::NoRoom => "Free or add storage on the nodes the pod may have, or ask for less.".to_owned(),
    }
}

/// About a claim made for a pod.
pub(super) fn ephemeral(because: &Ephemeral) -> Advice {
    match because {
        Ephemeral::NotOwned { claim, pod, .. } => vec![format!(
            "Delete or rename claim {claim:?}, or rename pod {pod:?} or its volume: the pod needs a claim of its own by this name."
        )],
        Ephemeral::PodGoing
        | Ephemeral::Exists { .. }
        | Ephemeral::Missing { .. }
        | Ephemeral::CacheMayLag { .. }
        | Ephemeral::NotEphemeral => Vec::new(),
    }
}

impl Finding {
    /// What to do about it.
    pub(super) fn fix(&self) -> Advice {
        match self {
            Self::Blind { what } => vec![format!("Ask for the right to list {what}, or ask somebody who has it.")],
            Self::SaidBound { .. } | Self::Said { .. } => Vec::new(),
            Self::WriteFailed { .. } => say([
                "The message is the API server's: its log, admission webhooks, quotas and the rights of the controller say more. The \
                 write is repeated by itself.",
            ]),
            Self::NamespaceGoing { .. } => say(["Nothing new is made in a namespace that goes. Use another one."]),
            Self::BinderSilent { .. } => {
                say(["Start the binder again: kube-controller-manager, or `orlop controllers`."])
            }
            Self::Pod { pod, why } => why.fix(pod),
            Self::AttachFailed { .. } => say(["The message is the driver's: the log of its controller says more."]),
            Self::ProvisionerAbsent { name } => vec![
                format!("Install the driver that serves {name:?}, or correct the provisioner of the class."),
                "Or make the claim anew with another class.".to_owned(),
            ],
            Self::ProvisionerSilent { name, .. } => {
                vec![format!("See why the controller of {name:?} stopped: kubectl get pods -A, and its log.")]
            }
            Self::ProvisionerUnseen { name } => {
                vec![format!(
                    "See that the provisioner of {name:?} runs (external-provisioner, or `orlop sidecar`), and its log."
                )]
            }
            Self::ProvisionerRuns { name } => {
                vec![format!("If this lasts, the log of the provisioner of {name:?} says more.")]
            }
            Self::CallFailed { code, message, .. } => failed_call(*code, message),
            Self::Growing { growth, has, .. } => grow(*growth, has.text()),
            Self::NodeGone { .. } => vec![
                "Make the claim's pod anew: the scheduler chooses another node.".to_owned(),
                format!(
                    "If nothing was made on that node, take annotation {} off the claim.",
                    annotation::SELECTED_NODE
                ),
            ],
            Self::NodeLacksDriver { node, .. } => {
                vec![format!("See that the driver's node plugin runs on node {node:?} and is registered with kubelet.")]
            }
            Self::TopologyKeyMissing { node, key } => {
                vec![format!(
                    "Restart the driver's node plugin on node {node:?}: kubelet writes label {key:?} when it registers."
                )]
            }
            Self::TopologyExcludes { class, .. } => {
                vec![format!(
                    "Change the allowedTopologies of class {class:?} (make it anew), or add a node where it allows volumes."
                )]
            }
            Self::NoRoom { .. } => say(["Free or add storage, or make the claim anew with a smaller request."]),
            Self::Source { problem, kind, name } => source(problem, kind, name),
            Self::AgentSays { .. }
            | Self::AgentSilent { .. }
            | Self::PodLeaving { .. }
            | Self::PodNodeGone { .. }
            | Self::PodNodeNotReady { .. } => pods::agent(self),
            Self::VolumeAbnormal { message, node, .. } => volumes::abnormal(message, node.as_deref()),
            Self::NodeLost { node, .. } => volumes::lost(node),
            Self::NodeNameInUse { node, .. } => volumes::name_in_use(node),
            Self::FinalizersLeft { .. } => say([
                "See that whoever owns each finalizer runs. Taking one off by hand leaves what it guards behind, for ever.",
            ]),
        }
    }
}

fn failed_call(code: Code, message: &str) -> Advice {
    if TroubleKind::within(message).is_some() {
        return volumes::trouble(message, None).unwrap_or_default();
    }
    let known = if code == Code::None { messages::provisioning(message) } else { None };
    known.unwrap_or_else(|| say([by_code(code)]))
}

impl PodTrouble {
    fn fix(&self, pod: &str) -> Advice {
        match self {
            Self::Pinned { .. } => vec![format!(
                "Make pod {pod:?} anew without spec.nodeName; a nodeSelector for the node's hostname label chooses it through the scheduler."
            )],
            Self::Gated => vec![format!("Whoever put spec.schedulingGates on pod {pod:?} has to take them off.")],
            Self::Refused { message } => refused(message),
            Self::Unnoticed { scheduler } => {
                vec![format!("See that scheduler {scheduler:?} runs: kube-scheduler, or `orlop scheduler`.")]
            }
            Self::HoldsForHost { node, path } => vec![format!("On node {node:?}: orlop umount {path}")],
            Self::Holds | Self::HoldsEnded => vec![format!("Delete pod {pod:?}; the claim goes right after it.")],
            Self::NotStarted { message } => messages::mounting(message).unwrap_or_else(|| {
                say(["The message is the driver's or kubelet's: their logs on the pod's node say more."])
            }),
            Self::AttachedElsewhere { node } => vec![
                format!("End the pods on node {node:?} that use the volume."),
                format!(
                    "If the node is dead for certain, say so: kubectl taint node {node} {}=:NoExecute",
                    taint::OUT_OF_SERVICE
                ),
            ],
        }
    }
}

/// What a scheduler's message asks for, where it is about storage.
fn refused(message: &str) -> Advice {
    let hints = [
        ("unbound immediate PersistentVolumeClaims", "Another claim of the pod has no volume: explain that one."),
        ("not found", "A claim that the pod names does not exist: create it."),
        (
            "available persistent volumes to bind",
            "No free volume can be reached from any node the pod may have: create one, or use a class with a provisioner.",
        ),
        ("enough free storage", "Free or add storage on the nodes the pod may have, or ask for less."),
        ("max volume count", "The nodes have as many volumes as they can: add a node, or move pods."),
        ("volume node affinity conflict", "The pod's volumes are where no allowed node is: relax the pod's placement."),
        (
            "PersistentVolume's node affinity",
            "The pod's volumes are where no allowed node is: relax the pod's placement.",
        ),
    ];
    let found = hints.iter().filter(|(phrase, _)| message.contains(phrase)).map(|(_, hint)| (*hint).to_owned());
    let advice: Advice = found.collect();
    if advice.is_empty() {
        say(["Give the pod a node it can run on; the message says what is missing."])
    } else {
        advice
    }
}

fn grow(growth: Growth, has: &str) -> Advice {
    match growth {
        Growth::Unbegun => say([
            "Claims are made larger by the driver's external-resizer, which Orlop has no part for yet: see that one runs.",
        ]),
        Growth::Controller => {
            say(["It is tried again by itself. If that lasts, the log of external-resizer says more."])
        }
        Growth::Node => say([
            "A node makes the filesystem larger while a pod uses the claim: start one, or make it anew if that lasts.",
        ]),
        Growth::Infeasible => vec![format!("Ask for less: the request may go back to anything above {has}.")],
    }
}

fn by_code(code: Code) -> &'static str {
    match code {
        Code::InvalidArgument => {
            "The driver never accepts this: correct the parameters of the class, or what the claim asks for."
        }
        Code::ResourceExhausted => "The backend has no room or no quota left: free some, or ask for less.",
        Code::PermissionDenied | Code::Unauthenticated => {
            "The driver's credentials do not allow it: correct its secret, or its rights at the backend."
        }
        Code::AlreadyExists => "A volume of that name exists with other properties: delete it at the backend.",
        Code::OutOfRange => "The size is outside of what the driver makes: ask for another one.",
        Code::NotFound => {
            "The driver misses something it was told to use, such as the source or the pool: correct the class."
        }
        Code::FailedPrecondition => "The driver says what has to be true first; it is tried again by itself.",
        Code::Unimplemented => "The driver cannot do this: use another class, or ask for less than this claim does.",
        Code::Unavailable | Code::DeadlineExceeded | Code::Aborted | Code::Cancelled => {
            "It is tried again by itself. If that lasts, see that the driver and its backend run and are reachable."
        }
        Code::Internal | Code::Unknown | Code::DataLoss | Code::None | Code::Ok => {
            "It is tried again by itself. If that lasts, the log of the driver's controller says more."
        }
    }
}

fn source(problem: &Problem, kind: &str, name: &str) -> Advice {
    let line = match problem {
        Problem::Missing => format!("Create {kind} {name:?}, or make the claim anew without it."),
        Problem::Going => format!("{kind} {name:?} cannot be used any more: make the claim anew from another source."),
        Problem::Unbound => format!("Explain claim {name:?}: this one waits for it."),
        Problem::NotReady { .. } => {
            format!("See why {kind} {name:?} is not ready: its status and the snapshot controller's log.")
        }
        Problem::Larger { size } => format!("Make the claim anew with a request of at least {size}."),
        Problem::Unlike { what } => format!("Make the claim anew with the {what} of its source."),
        Problem::Ungranted { namespace } => {
            format!(
                "Create a ReferenceGrant in namespace {namespace:?} for claims of this namespace and {kind} {name:?}."
            )
        }
        Problem::Foreign => "See that the populator for this kind of source runs.".to_owned(),
    };
    vec![line]
}
