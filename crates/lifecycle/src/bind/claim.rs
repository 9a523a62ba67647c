//! The claim's side of binding: BIND-4.3, rules BIND-U1 to BIND-U11 and BIND-B1 to BIND-B5.
//!
//! # Invariants
//! 1. The volume is written before the claim (BIND-W1 before BIND-W3). Every prefix of the four writes is a state from
//!    which this function goes on, so a crash needs no clean-up (CTRL-I9).
//! 2. A volume that the cache lacks is read live before anything is called lost: [`Lookup::NotCached`].
//! 3. A claim that is going away gets nothing new; a binding that had begun is finished (CTRL-14.5).

use std::fmt;

use api::{Claim, ClaimPhase, Class, Key, Meta, Revision, Volume, VolumePhase, Word};

use super::compatible::{self, Mismatch};
use super::shelf::Offer;
use super::status::{self, Status};
use crate::decision::{Decision, Lookup, Notice, Reason, Standing};
use crate::migration::{self, Mark};

/// Everything the binder looks at for one claim.
#[derive(Debug)]
pub struct Seen<'a> {
    pub claim: &'a Claim,
    pub volume: VolumeSeen<'a>,
    pub class: ClassSeen<'a>,
    /// Unscheduled pods that use the claim, in order of their names.
    pub pods: &'a [Box<str>],
}

/// The volume a claim names, or what could be given to it.
#[derive(Debug, Clone)]
pub enum VolumeSeen<'a> {
    Named(Lookup<'a, Volume>),
    Open(Offer),
}

/// The class a claim has, and who serves it.
#[derive(Debug, Clone, Copy)]
pub enum ClassSeen<'a> {
    /// The claim says nothing. The default, if there is one, is filled in when nothing fits without a class.
    Unset {
        default: Option<&'a Class>,
    },
    /// The claim says that it wants none.
    None,
    Missing {
        name: &'a str,
    },
    Found {
        class: &'a Class,
        supply: Supply,
    },
}

/// Who makes volumes of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supply {
    /// A provisioner in another process, which is asked through annotations.
    External,
    /// A provisioner in this process, which needs no asking.
    Beside,
    /// A plugin of the binder itself.
    Plugin,
    /// Nobody: the class says so, or names a plugin that does not exist.
    Nobody,
    /// Somebody may, but this binder was told not to ask.
    SwitchedOff,
}

/// What to do for a claim. Each is one write, except where it says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The cache lacks the volume: ask the server, then decide again. No write.
    ReadVolume { name: Box<str> },
    /// BIND-C0: correct the `migrated-to` annotation.
    Migrate(Mark),
    /// BIND-W1: the volume points at the claim. `chosen` says that the system chose it.
    Reserve { volume: Target, chosen: bool },
    /// BIND-W2: the volume's phase is Bound.
    MarkBound { volume: Target },
    /// BIND-W3: the claim points at the volume, and knows that binding is complete.
    Point { volume: Word, chosen: bool },
    /// BIND-W4 and every other change of the claim's status.
    SetStatus(Status),
    /// BIND-U3: fill in the default class.
    Classify { class: Word },
    /// Ask an external provisioner, by both annotations. A migrated plugin is asked under its driver's name, which needs no
    /// `migrated-to` beside it: that mark is for claims that still name the plugin (BIND-4.11).
    Ask { provisioner: Word },
    /// Run a plugin of this process. No write by itself.
    Provision { class: Word },
}

/// An object to write, and the revision at which it was judged: a write to any other must fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub name: Box<str>,
    pub revision: Revision,
}

impl Target {
    pub fn of(meta: &Meta) -> Self {
        Self { name: meta.key.name().into(), revision: meta.revision }
    }
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    Migration,
    CacheMayLag {
        volume: Box<str>,
    },
    Fits {
        volume: Box<str>,
    },
    /// The claim asks for this one, and it is free.
    Named {
        volume: Box<str>,
    },
    Designated {
        volume: Box<str>,
    },
    Bound {
        volume: Box<str>,
    },
    StatusBehind {
        volume: Box<str>,
    },
    ClaimGoing,
    /// A volume names this claim and does not suit it.
    ReservedUnsuitable {
        volume: Box<str>,
        mismatch: Mismatch,
    },
    NamedUnsuitable {
        volume: Box<str>,
        mismatch: Mismatch,
    },
    NamedMissing {
        volume: Box<str>,
    },
    /// The volume this claim names is another's.
    Taken {
        volume: Box<str>,
        holder: Option<Key>,
    },
    /// The same, though the system chose it: this should not happen.
    TakenFromUs {
        volume: Box<str>,
    },
    NoBindingMode {
        class: Box<str>,
    },
    DefaultClass {
        class: Box<str>,
    },
    NoClass,
    NoPod,
    PodUnscheduled {
        pods: Vec<Box<str>>,
    },
    ClassMissing {
        class: Box<str>,
    },
    NothingFits {
        class: Box<str>,
        provisioner: Box<str>,
    },
    AwaitingProvisioner {
        class: Box<str>,
        provisioner: Box<str>,
    },
    NoProvisioner {
        class: Box<str>,
        provisioner: Box<str>,
    },
    SwitchedOff {
        class: Box<str>,
    },
    LostPointer,
    LostVolume {
        volume: Box<str>,
    },
    Misbound {
        volume: Box<str>,
    },
}

/// A decision about a claim.
pub type Verdict = Decision<Action, Because>;

/// Says what to do next for one claim.
pub fn decide(seen: &Seen<'_>) -> Verdict {
    let claim = seen.claim;
    match migration::mark(claim.provisioner(), claim.migrated_to()) {
        Mark::Right => {}
        mark => return Decision::act(Because::Migration, Action::Migrate(mark)),
    }
    match (claim.bind_completed(), &seen.volume) {
        (true, VolumeSeen::Open(_)) => lost(claim, Because::LostPointer),
        (true, VolumeSeen::Named(volume)) => completed(claim, *volume),
        (false, VolumeSeen::Named(volume)) => named(claim, *volume),
        (false, VolumeSeen::Open(offer)) => open(seen, offer),
    }
}

/// BIND-B2 to BIND-B5: binding was complete once.
fn completed(claim: &Claim, volume: Lookup<'_, Volume>) -> Verdict {
    let name = claim.volume_name.clone();
    match volume {
        Lookup::NotCached => Decision::act(Because::CacheMayLag { volume: name.clone() }, Action::ReadVolume { name }),
        Lookup::Absent => lost(claim, Because::LostVolume { volume: name }),
        Lookup::Found(volume) => match &volume.claim {
            None => join(claim, volume),
            Some(reference) if reference.uid.as_ref() == Some(claim.uid()) => join(claim, volume),
            Some(_) => lost(claim, Because::Misbound { volume: name }),
        },
    }
}

/// BIND-U7 to BIND-U11: the claim names its volume, and binding never was complete.
fn named(claim: &Claim, volume: Lookup<'_, Volume>) -> Verdict {
    let name = claim.volume_name.clone();
    let volume = match volume {
        Lookup::NotCached => {
            return Decision::act(Because::CacheMayLag { volume: name.clone() }, Action::ReadVolume { name });
        }
        Lookup::Absent => return pending(claim, Because::NamedMissing { volume: name }),
        Lookup::Found(volume) => volume,
    };
    let Some(reference) = &volume.claim else {
        return match compatible::named(claim, volume) {
            // The binding has not begun, so a claim that goes away does not begin it.
            Ok(()) if claim.meta.is_deleting() => Decision::rest(Because::ClaimGoing),
            Ok(()) => join(claim, volume),
            Err(mismatch) => pending(claim, Because::NamedUnsuitable { volume: name, mismatch }),
        };
    };
    if reference.designates(claim) {
        // Upstream binds here without looking (BIND-U9); a volume that cannot serve the claim is said, not given
        // (CTRL-14.4).
        return match compatible::designated(claim, volume) {
            Err(mismatch) if mismatch != Mismatch::Deleting => {
                pending(claim, Because::NamedUnsuitable { volume: name, mismatch })
            }
            _ => join(claim, volume),
        };
    }
    let because = match claim.bound_by_controller() {
        false => return pending(claim, Because::Taken { volume: name, holder: Some(reference.key.clone()) }),
        true => Because::TakenFromUs { volume: name },
    };
    Decision::rest(because)
}

/// BIND-U1 to BIND-U6: the claim names nothing.
fn open(seen: &Seen<'_>, offer: &Offer) -> Verdict {
    let claim = seen.claim;
    let going = claim.meta.is_deleting();
    let delayed = match seen.class {
        ClassSeen::Found { class, .. } if class.volume_binding_mode.is_none() => {
            return Decision::rest(Because::NoBindingMode { class: class.name().into() });
        }
        ClassSeen::Found { class, .. } => class.delayed(),
        ClassSeen::Unset { .. } | ClassSeen::None | ClassSeen::Missing { .. } => false,
    };
    match offer {
        // With the uid on it, the volume was being bound to this very claim: that is finished, whatever happens.
        Offer::Designated(volume) if !going || bonded(claim, volume) => join(claim, volume),
        Offer::Designated(_) => Decision::rest(Because::ClaimGoing),
        Offer::Unsuitable(volume, mismatch) => {
            pending(claim, Because::ReservedUnsuitable { volume: volume.name().into(), mismatch: *mismatch })
        }
        Offer::Free(_) | Offer::Nothing if going => Decision::rest(Because::ClaimGoing),
        // Rule 9: with delayed binding a free volume is the scheduler's to choose.
        Offer::Free(volume) if !delayed => join(claim, volume),
        Offer::Free(_) | Offer::Nothing => supply(seen),
    }
}

fn bonded(claim: &Claim, volume: &Volume) -> bool {
    volume.claim.as_ref().is_some_and(|reference| reference.uid.as_ref() == Some(claim.uid()))
}

/// BIND-U3 to BIND-U6: nothing fits.
fn supply(seen: &Seen<'_>) -> Verdict {
    let claim = seen.claim;
    let (class, supply) = match seen.class {
        ClassSeen::Unset { default: Some(class) } => {
            let name = Word::new(class.name());
            return Decision::act(
                Because::DefaultClass { class: class.name().into() },
                Action::Classify { class: name },
            );
        }
        ClassSeen::Unset { default: None } | ClassSeen::None => return pending(claim, Because::NoClass),
        ClassSeen::Missing { name } => return pending(claim, Because::ClassMissing { class: name.into() }),
        ClassSeen::Found { class, supply } => (class, supply),
    };
    if class.delayed() && claim.selected_node().is_none() {
        let because = match seen.pods {
            [] => Because::NoPod,
            pods => Because::PodUnscheduled { pods: pods.to_vec() },
        };
        return pending(claim, because);
    }
    let (name, provisioner): (Box<str>, Box<str>) = (class.name().into(), (&*class.provisioner).into());
    match supply {
        Supply::SwitchedOff => pending(claim, Because::SwitchedOff { class: name }),
        Supply::Nobody => pending(claim, Because::NoProvisioner { class: name, provisioner }),
        Supply::Beside => pending(claim, Because::AwaitingProvisioner { class: name, provisioner }),
        Supply::Plugin => {
            let action = Action::Provision { class: Word::new(class.name()) };
            Decision::act(Because::NothingFits { class: name, provisioner }, action)
        }
        Supply::External => ask(claim, class),
    }
}

/// BIND-P2 and BIND-P4: an external provisioner is asked once, and then waited for.
fn ask(claim: &Claim, class: &Class) -> Verdict {
    let provisioner = Word::new(migration::driver_of(&class.provisioner).unwrap_or(&class.provisioner));
    let (name, plain): (Box<str>, Box<str>) = (class.name().into(), (&*provisioner).into());
    let asked = claim.meta.annotation(api::keys::annotation::STORAGE_PROVISIONER) == Some(&*provisioner);
    if asked {
        return pending(claim, Because::AwaitingProvisioner { class: name, provisioner: plain });
    }
    let because = Because::NothingFits { class: name, provisioner: plain };
    Decision::act(because, Action::Ask { provisioner })
}

/// The next of the four writes that join claim and volume (BIND-4.6), or rest.
fn join(claim: &Claim, volume: &Volume) -> Verdict {
    let name: Box<str> = volume.name().into();
    let designated = volume.designates(claim);
    if !bonded(claim, volume) {
        let because = match (designated, &*claim.volume_name == volume.name()) {
            (true, _) => Because::Designated { volume: name },
            (false, true) => Because::Named { volume: name },
            (false, false) => Because::Fits { volume: name },
        };
        // A volume that a user reserved keeps the user's word for it: no mark that the system chose it.
        let chosen = volume.claim.is_none();
        return Decision::act(because, Action::Reserve { volume: Target::of(&volume.meta), chosen });
    }
    let because = Because::Designated { volume: name.clone() };
    if volume.phase != VolumePhase::Bound {
        return Decision::act(because, Action::MarkBound { volume: Target::of(&volume.meta) });
    }
    if &*claim.volume_name != volume.name() || !claim.bind_completed() {
        let chosen = &*claim.volume_name != volume.name();
        return Decision::act(because, Action::Point { volume: Word::new(volume.name()), chosen });
    }
    match status::bound(claim, volume) {
        Some(status) => Decision::act(Because::StatusBehind { volume: name }, Action::SetStatus(status)),
        None => Decision::rest(Because::Bound { volume: name }),
    }
}

/// The claim waits: its phase says so, if it does not already.
fn pending(claim: &Claim, because: Because) -> Verdict {
    without_volume(claim, because, ClaimPhase::Pending)
}

fn lost(claim: &Claim, because: Because) -> Verdict {
    without_volume(claim, because, ClaimPhase::Lost)
}

fn without_volume(claim: &Claim, because: Because, phase: ClaimPhase) -> Verdict {
    match status::without_volume(claim, phase) {
        Some(status) => Decision::act(because, Action::SetStatus(status)),
        None => Decision::rest(because),
    }
}

/// The default among classes: the newest, and of two that are equally old the one whose name comes first (BIND-4.8).
pub fn default_class<'a>(classes: impl IntoIterator<Item = &'a Class>) -> Option<&'a Class> {
    let defaults = classes.into_iter().filter(|class| class.is_default());
    defaults.min_by(|a, b| b.meta.created.cmp(&a.meta.created).then_with(|| a.name().cmp(b.name())))
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Migration => write!(f, "a CSI driver has taken over from the provisioner that the claim names"),
            Self::CacheMayLag { volume } => write!(f, "volume {volume:?} is not in the cache, which may lag"),
            Self::Fits { volume } => write!(f, "volume {volume:?} is the smallest that fits"),
            Self::Named { volume } => write!(f, "volume {volume:?} is the one that the claim names, and it is free"),
            Self::Designated { volume } => write!(f, "volume {volume:?} is reserved for this claim"),
            Self::Bound { volume } => write!(f, "claim and volume {volume:?} are bound to each other"),
            Self::StatusBehind { volume } => {
                write!(f, "the claim is bound to {volume:?} and its status does not say so yet")
            }
            Self::ClaimGoing => write!(f, "the claim is being deleted, so it gets no volume"),
            Self::ReservedUnsuitable { volume, mismatch } => {
                write!(f, "volume {volume:?} is reserved for this claim and does not suit it: {mismatch}")
            }
            Self::NamedUnsuitable { volume, mismatch } => {
                write!(f, "Cannot bind to requested volume \"{volume}\": {mismatch}")
            }
            Self::NamedMissing { volume } => write!(f, "the claim names volume {volume:?}, which does not exist"),
            Self::Taken { volume, .. } | Self::TakenFromUs { volume } => {
                write!(f, "volume \"{volume}\" already bound to a different claim.")
            }
            Self::NoBindingMode { class } => write!(f, "storage class {class:?} has no volumeBindingMode"),
            Self::DefaultClass { class } => write!(f, "the claim names no class and {class:?} is the default"),
            Self::NoClass => write!(f, "no persistent volumes available for this claim and no storage class is set"),
            Self::NoPod => write!(f, "waiting for first consumer to be created before binding"),
            Self::PodUnscheduled { pods } => match pods.as_slice() {
                [pod] => write!(f, "waiting for pod {pod} to be scheduled"),
                pods => write!(f, "waiting for pods {} to be scheduled", pods.join(",")),
            },
            Self::ClassMissing { class } => write!(f, "storageclass.storage.k8s.io \"{class}\" not found"),
            Self::NothingFits { provisioner, .. } => write!(f, "no volume fits, so {provisioner:?} is asked for one"),
            Self::AwaitingProvisioner { provisioner, .. } => write!(
                f,
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
            ),
            Self::NoProvisioner { class, provisioner } => {
                write!(
                    f,
                    "no volume fits, and nobody makes volumes of class {class:?}: its provisioner is {provisioner:?}"
                )
            }
            Self::SwitchedOff { class } => {
                write!(f, "no volume fits, and making volumes of class {class:?} is switched off")
            }
            Self::LostPointer => {
                write!(f, "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
            }
            Self::LostVolume { .. } => {
                write!(f, "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
            }
            Self::Misbound { .. } => {
                write!(f, "Two claims are bound to the same volume, this one is bound incorrectly")
            }
        }
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::Migration => "migration",
            Self::CacheMayLag { .. } => "cache_may_lag",
            Self::Fits { .. } => "fits",
            Self::Named { .. } => "named",
            Self::Designated { .. } => "designated",
            Self::Bound { .. } => "bound",
            Self::StatusBehind { .. } => "status_behind",
            Self::ClaimGoing => "claim_going",
            Self::ReservedUnsuitable { .. } => "reserved_unsuitable",
            Self::NamedUnsuitable { .. } => "named_unsuitable",
            Self::NamedMissing { .. } => "named_missing",
            Self::Taken { .. } => "taken",
            Self::TakenFromUs { .. } => "taken_from_us",
            Self::NoBindingMode { .. } => "no_binding_mode",
            Self::DefaultClass { .. } => "default_class",
            Self::NoClass => "no_class",
            Self::NoPod => "no_pod",
            Self::PodUnscheduled { .. } => "pod_unscheduled",
            Self::ClassMissing { .. } => "class_missing",
            Self::NothingFits { .. } => "nothing_fits",
            Self::AwaitingProvisioner { .. } => "awaiting_provisioner",
            Self::NoProvisioner { .. } => "no_provisioner",
            Self::SwitchedOff { .. } => "switched_off",
            Self::LostPointer => "lost_pointer",
            Self::LostVolume { .. } => "lost_volume",
            Self::Misbound { .. } => "misbound",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Bound { .. } | Self::ClaimGoing => Standing::Settled,
            Self::Migration
            | Self::CacheMayLag { .. }
            | Self::Fits { .. }
            | Self::Named { .. }
            | Self::Designated { .. }
            | Self::StatusBehind { .. }
            | Self::DefaultClass { .. }
            | Self::NothingFits { .. } => Standing::Moving,
            Self::NoPod | Self::PodUnscheduled { .. } | Self::AwaitingProvisioner { .. } => Standing::Waiting,
            Self::ReservedUnsuitable { .. }
            | Self::NamedUnsuitable { .. }
            | Self::NamedMissing { .. }
            | Self::Taken { .. }
            | Self::TakenFromUs { .. }
            | Self::NoBindingMode { .. }
            | Self::NoClass
            | Self::ClassMissing { .. }
            | Self::NoProvisioner { .. }
            | Self::SwitchedOff { .. }
            | Self::LostPointer
            | Self::LostVolume { .. }
            | Self::Misbound { .. } => Standing::Stuck,
        }
    }

    fn notice(&self) -> Option<Notice> {
        let text = self.to_string();
        match self {
            Self::NoPod => Some(Notice::normal("WaitForFirstConsumer", text)),
            Self::PodUnscheduled { .. } => Some(Notice::normal("WaitForPodScheduled", text)),
            Self::NoClass => Some(Notice::normal("FailedBinding", text)),
            Self::Taken { .. } | Self::TakenFromUs { .. } => Some(Notice::warning("FailedBinding", text)),
            Self::NamedUnsuitable { .. } | Self::ReservedUnsuitable { .. } => {
                Some(Notice::warning("VolumeMismatch", text))
            }
            Self::AwaitingProvisioner { .. } => Some(Notice::normal("ExternalProvisioning", text)),
            Self::ClassMissing { .. } | Self::NoProvisioner { .. } | Self::NoBindingMode { .. } => {
                Some(Notice::warning("ProvisioningFailed", text))
            }
            Self::LostPointer | Self::LostVolume { .. } => Some(Notice::warning("ClaimLost", text)),
            Self::Misbound { .. } => Some(Notice::warning("ClaimMisbound", text)),
            Self::Migration
            | Self::CacheMayLag { .. }
            | Self::Fits { .. }
            | Self::Named { .. }
            | Self::Designated { .. }
            | Self::Bound { .. }
            | Self::StatusBehind { .. }
            | Self::ClaimGoing
            | Self::NamedMissing { .. }
            | Self::DefaultClass { .. }
            | Self::NothingFits { .. }
            | Self::SwitchedOff { .. } => None,
        }
    }
}
