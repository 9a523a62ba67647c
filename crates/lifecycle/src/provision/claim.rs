//! Whether a claim gets a volume from us: PROVISION-2.4.
//!
//! # Invariants
//! 1. A claim that is going away gets nothing new. Upstream does not exclude it.
//! 2. A claim that had a volume from us is looked at live before it gets a second one: a cache that lags shows it as it
//!    was before (external-provisioner #1469).

use std::fmt;

use api::{Claim, Class, ClassName, Key, Uid, Volume};

use super::Names;
use crate::decision::{Decision, Notice, Reason, Standing};

/// Everything the provisioner looks at for a claim without an open intent.
#[derive(Debug)]
pub struct Seen<'a> {
    pub claim: ClaimSeen<'a>,
    pub class: Option<&'a Class>,
    /// The volume that has the name which this claim's would get.
    pub namesake: Option<&'a Volume>,
    pub names: Names<'a>,
    pub beside: Beside,
    /// The claim was refused in a way that only a change can help, not long ago.
    pub held: Option<Held<'a>>,
}

/// The claim, and how sure we are that it is still like this.
#[derive(Debug, Clone, Copy)]
pub enum ClaimSeen<'a> {
    /// The cache has it, and we never stored a volume for it.
    Cached(&'a Claim),
    /// The cache has it, and we stored a volume for it before.
    Served(&'a Claim),
    /// The server showed it just now.
    Live(&'a Claim),
    Gone,
}

/// Whether a binder in this process asked for the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    Asked,
    NotAsked,
}

/// What was refused, so that it can be told from what is asked now.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    pub claim: &'a Claim,
    pub class: &'a Uid,
    pub message: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask the server for the claim, then decide again. No write.
    ReadClaim { key: Key },
    /// Plan and make a volume, for this node if there is one.
    Provision { node: Option<Box<str>> },
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// PROVISION-2.4.0
    ClaimGone,
    /// It is going away, and nothing was begun for it.
    ClaimGoing,
    /// PROVISION-2.4.1
    HeldBack {
        message: Box<str>,
    },
    /// PROVISION-2.4.2
    HasVolume {
        volume: Box<str>,
    },
    /// PROVISION-2.4.3 and PROVISION-2.4.5: nobody asked us.
    NotAsked,
    /// PROVISION-2.4.6
    NoClass,
    ClassMissing {
        class: Box<str>,
    },
    /// c
    ClassOfAnother {
        class: Box<str>,
        provisioner: Box<str>,
    },
    /// PROVISION-2.4.7
    NoNode {
        class: Box<str>,
    },
    /// a
    Provisioned {
        volume: Box<str>,
    },
    /// A volume of another claim has the name.
    NameTaken {
        volume: Box<str>,
    },
    CacheMayLag {
        claim: Key,
    },
    /// PROVISION-2.4.8
    Wanted {
        claim: Key,
    },
}

pub type Verdict = Decision<Action, Because>;

/// Says whether the claim gets a volume.
pub fn decide(seen: &Seen<'_>) -> Verdict {
    let (claim, sure) = match seen.claim {
        ClaimSeen::Gone => return Decision::rest(Because::ClaimGone),
        ClaimSeen::Cached(claim) | ClaimSeen::Live(claim) => (claim, true),
        ClaimSeen::Served(claim) => (claim, false),
    };
    match obstacle(seen, claim) {
        Some(because) => Decision::rest(because),
        None if !sure => {
            let key = claim.key().clone();
            Decision::act(Because::CacheMayLag { claim: key.clone() }, Action::ReadClaim { key })
        }
        None => {
            let node = claim.selected_node().map(Into::into);
            Decision::act(Because::Wanted { claim: claim.key().clone() }, Action::Provision { node })
        }
    }
}

fn obstacle(seen: &Seen<'_>, claim: &Claim) -> Option<Because> {
    if !claim.volume_name.is_empty() {
        return Some(Because::HasVolume { volume: claim.volume_name.clone() });
    }
    if claim.meta.is_deleting() {
        return Some(Because::ClaimGoing);
    }
    if !asked(seen, claim) {
        return Some(Because::NotAsked);
    }
    let class = match (claim.class(), seen.class) {
        (ClassName::Unset | ClassName::None, _) => return Some(Because::NoClass),
        (ClassName::Named(name), None) => return Some(Because::ClassMissing { class: name.into() }),
        (ClassName::Named(_), Some(class)) => class,
    };
    if !seen.names.has(&class.provisioner) {
        let provisioner = class.provisioner.as_str().into();
        return Some(Because::ClassOfAnother { class: class.name().into(), provisioner });
    }
    if class.delayed() && claim.selected_node().is_none() {
        return Some(Because::NoNode { class: class.name().into() });
    }
    if let Some(volume) = seen.namesake {
        let name = volume.name().into();
        return Some(match volume.designates(claim) {
            true => Because::Provisioned { volume: name },
            false => Because::NameTaken { volume: name },
        });
    }
    seen.held
        .filter(|held| *held.class == class.meta.uid && same_wish(held.claim, claim))
        .map(|held| Because::HeldBack { message: held.message.into() })
}

/// PROVISION-2.4.3 and PROVISION-2.4.5: the annotation names us; or we took over from the one it names; or the binder
/// beside us asked.
fn asked(seen: &Seen<'_>, claim: &Claim) -> bool {
    let Some(named) = claim.provisioner() else { return seen.beside == Beside::Asked };
    let own = seen.names.own();
    named == own || (claim.migrated_to() == Some(own) && seen.names.has(named)) || seen.beside == Beside::Asked
}

/// Whether a claim asks for what another state of it asked for: everything that a request is made from.
fn same_wish(before: &Claim, now: &Claim) -> bool {
    before.uid() == now.uid()
        && before.request == now.request
        && before.access == now.access
        && before.attributes_class() == now.attributes_class()
        && before.source == now.source
        && before.selected_node() == now.selected_node()
        // Templates of secrets' names may use any annotation.
        && before.meta.annotations == now.meta.annotations
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClaimGone => write!(f, "the claim is gone"),
            Self::ClaimGoing => write!(f, "the claim is being deleted and no volume was begun for it"),
            Self::HeldBack { message } => {
                write!(f, "the same request was refused as invalid, so it is repeated only slowly: {message}")
            }
            Self::HasVolume { volume } => write!(f, "the claim has volume {volume:?}"),
            Self::NotAsked => write!(f, "nobody asked this provisioner for a volume"),
            Self::NoClass => write!(f, "the claim has no storage class"),
            Self::ClassMissing { class } => write!(f, "storageclass.storage.k8s.io {class:?} not found"),
            Self::ClassOfAnother { class, provisioner } => {
                write!(f, "storage class {class:?} belongs to provisioner {provisioner:?}")
            }
            Self::NoNode { class } => {
                write!(f, "storage class {class:?} waits for a pod, and no node was selected for the claim yet")
            }
            Self::Provisioned { volume } => write!(f, "volume {volume:?} was made for the claim"),
            Self::NameTaken { volume } => write!(
                f,
                "a PersistentVolume {volume:?} exists and is not this claim's; delete or rename it, then this goes on"
            ),
            Self::CacheMayLag { claim } => write!(f, "claim {claim} had a volume before, and the cache may lag"),
            Self::Wanted { claim } => {
                write!(f, "External provisioner is provisioning volume for claim \"{claim}\"")
            }
        }
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::ClaimGone => "claim_gone",
            Self::ClaimGoing => "claim_going",
            Self::HeldBack { .. } => "held_back",
            Self::HasVolume { .. } => "has_volume",
            Self::NotAsked => "not_asked",
            Self::NoClass => "no_class",
            Self::ClassMissing { .. } => "class_missing",
            Self::ClassOfAnother { .. } => "class_of_another",
            Self::NoNode { .. } => "no_node",
            Self::Provisioned { .. } => "provisioned",
            Self::NameTaken { .. } => "name_taken",
            Self::CacheMayLag { .. } => "cache_may_lag",
            Self::Wanted { .. } => "wanted",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::ClaimGone | Self::ClaimGoing | Self::HasVolume { .. } | Self::NoClass => Standing::Settled,
            Self::NotAsked | Self::ClassOfAnother { .. } | Self::NoNode { .. } | Self::Provisioned { .. } => {
                Standing::Waiting
            }
            Self::HeldBack { .. } | Self::ClassMissing { .. } | Self::NameTaken { .. } => Standing::Stuck,
            Self::CacheMayLag { .. } | Self::Wanted { .. } => Standing::Moving,
        }
    }

    fn notice(&self) -> Option<Notice> {
        match self {
            Self::Wanted { .. } => Some(Notice::normal("Provisioning", self.to_string())),
            Self::NameTaken { .. } => Some(Notice::warning("ProvisioningFailed", self.to_string())),
            // The binder tells users of a missing class, and the attempt that was refused told of itself.
            Self::ClassMissing { .. }
            | Self::HeldBack { .. }
            | Self::ClaimGone
            | Self::ClaimGoing
            | Self::HasVolume { .. }
            | Self::NotAsked
            | Self::NoClass
            | Self::ClassOfAnother { .. }
            | Self::NoNode { .. }
            | Self::Provisioned { .. }
            | Self::CacheMayLag { .. } => None,
        }
    }
}
