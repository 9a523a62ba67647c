//! A creation that was begun: it is taken to its end, whatever became of the claim (SIDECAR-P1 to SIDECAR-P9).
//!
//! # Invariants
//! 1. An intent is closed only when the volume is stored as an object, or there is surely nothing.
//! 2. What was made and cannot be stored under its name is undone, unless another object is made of it.
//! 3. A volume that another object stands for is neither stored a second time nor deleted.
//! 4. An intent of an earlier process whose claim does not wait for it may be older than an operator's decision to keep the volume: its
//!    volume is stored with the policy Retain.

use std::fmt;

use api::{Claim, Uid, Volume};

use crate::decision::{Decision, Notice, Reason, Standing};
use crate::outcome::Retry;

/// Everything there is to see of an open intent.
#[derive(Debug)]
pub struct Seen<'a> {
    /// The claim for which it was opened.
    pub uid: &'a Uid,
    pub volume_name: &'a str,
    /// The claim as it is, if it is still there. It changes only what is said, never what is done.
    pub claim: Option<&'a Claim>,
    /// The stored volume with the intent's name.
    pub stored: Option<&'a Volume>,
    /// A stored volume of another name that is made of what was made. Looked for only before something is stored or
    /// undone, and confirmed by the server.
    pub twin: Option<&'a Volume>,
    pub origin: IntentOrigin,
    pub attempt: Attempt<'a>,
}

/// Which process wrote the intent, and what the server says of the claim of one that an earlier process wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntentOrigin {
    /// This process.
    Here,
    /// An earlier process, and the claim waits for its volume.
    Earlier,
    /// An earlier process, and the claim is gone or had a volume already: its volume may have been stored before and taken
    /// away by an operator.
    EarlierUnwanted,
}

impl IntentOrigin {
    /// The origin of an earlier process's intent whose claim the server showed like this.
    pub fn earlier(claim: Option<&Claim>) -> Self {
        match claim.is_some_and(waits) {
            true => Self::Earlier,
            false => Self::EarlierUnwanted,
        }
    }
}

/// What is known of the creation itself.
#[derive(Debug, Clone, Copy)]
pub enum Attempt<'a> {
    /// It may have been called, by us or by a process before us.
    Open,
    /// It is there, and would be stored like this.
    Made(&'a Volume),
    /// There is surely nothing.
    Refused(Retry),
    /// What was made is gone again.
    Undone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Repeat the very same creation.
    Create,
    /// Store the volume.
    Store,
    /// Store the volume with the policy Retain, whatever its class says.
    StoreRetained,
    /// Delete what was made.
    Undo,
    /// Nothing is open any more.
    Close,
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// The claim waits for it.
    Wanted,
    /// The claim is gone or has something else, and what was begun is ended in an orderly way.
    Orphaned,
    Made {
        volume: Box<str>,
    },
    /// The volume is stored.
    Stored {
        volume: Box<str>,
    },
    /// Another object has the name, so that what was made cannot be stored.
    NameTaken {
        volume: Box<str>,
    },
    /// Another object is made of the very same thing.
    SourceTaken {
        volume: Box<str>,
    },
    /// Another object is made of the very same thing and is being deleted: whether the thing goes with it is not known.
    SourceLeaving {
        volume: Box<str>,
    },
    /// The volume of an earlier process's intent is made, and its claim does not wait for it.
    Unclaimed {
        volume: Box<str>,
    },
    Refused {
        retry: Retry,
    },
}

pub type Verdict = Decision<Action, Because>;

/// Says what to do next about an open intent.
pub fn decide(seen: &Seen<'_>) -> Verdict {
    let volume: Box<str> = seen.volume_name.into();
    match seen.attempt {
        Attempt::Refused(retry) => Decision::act(Because::Refused { retry }, Action::Close),
        Attempt::Undone => Decision::act(Because::NameTaken { volume }, Action::Close),
        Attempt::Made(made) => match seen.stored {
            None => match (seen.twin, seen.origin) {
                (Some(twin), origin) => shared(twin, origin),
                (None, IntentOrigin::Here | IntentOrigin::Earlier) => {
                    Decision::act(Because::Made { volume }, Action::Store)
                }
                (None, IntentOrigin::EarlierUnwanted) => {
                    Decision::act(Because::Unclaimed { volume }, Action::StoreRetained)
                }
            },
            Some(stored) if stored.source != made.source => match seen.twin {
                Some(twin) => shared(twin, seen.origin),
                None => Decision::act(Because::NameTaken { volume }, Action::Undo),
            },
            Some(stored) if is_ours(stored, seen.uid) => Decision::act(Because::Stored { volume }, Action::Close),
            Some(_) => Decision::act(Because::SourceTaken { volume }, Action::Close),
        },
        Attempt::Open => match seen.stored {
            Some(stored) if is_ours(stored, seen.uid) && !stored.meta.is_deleting() => {
                Decision::act(Because::Stored { volume }, Action::Close)
            }
            // A stranger under our name says nothing about what we began, and an object that is going may stand for an
            // earlier one (external-provisioner #1469): what we began has to be found before it can be undone.
            Some(_) | None => Decision::act(reason(seen), Action::Create),
        },
    }
}

/// Another object stands for what was made. While it is being deleted, a claim that waits for the volume goes on waiting; an
/// intent without such a claim ends, because whoever deletes the other object decides about the volume as well.
fn shared(twin: &Volume, origin: IntentOrigin) -> Verdict {
    let volume = twin.name().into();
    match (twin.meta.is_deleting(), origin) {
        (true, IntentOrigin::Here | IntentOrigin::Earlier) => Decision::rest(Because::SourceLeaving { volume }),
        (true, IntentOrigin::EarlierUnwanted) | (false, _) => {
            Decision::act(Because::SourceTaken { volume }, Action::Close)
        }
    }
}

fn is_ours(stored: &Volume, uid: &Uid) -> bool {
    stored.claim.as_ref().is_some_and(|reference| reference.uid.as_ref() == Some(uid))
}

fn reason(seen: &Seen<'_>) -> Because {
    match seen.claim.is_some_and(waits) {
        true => Because::Wanted,
        false => Because::Orphaned,
    }
}

/// Whether a claim waits for its volume.
fn waits(claim: &Claim) -> bool {
    claim.volume_name.is_empty() && !claim.meta.is_deleting()
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wanted => write!(f, "the claim waits for its volume"),
            Self::Orphaned => write!(f, "the claim needs it no more, and what was begun is brought to an end"),
            Self::Made { volume } => write!(f, "volume {volume:?} is made and not stored yet"),
            Self::Stored { volume } => write!(f, "Successfully provisioned volume {volume}"),
            Self::NameTaken { volume } => {
                write!(f, "what was made as {volume:?} cannot be stored: another PersistentVolume has that name")
            }
            Self::SourceTaken { volume } => {
                write!(
                    f,
                    "PersistentVolume {volume:?} already stands for the volume that the driver answered with; it is neither \
                     stored a second time nor deleted"
                )
            }
            Self::SourceLeaving { volume } => write!(
                f,
                "PersistentVolume {volume:?} stands for the volume that the driver answered with and is being deleted; \
                 waiting for its end"
            ),
            Self::Unclaimed { volume } => write!(
                f,
                "a provisioner that ended began volume {volume:?}, and its claim does not wait for it any more; it is stored with \
                 the policy Retain, because an operator may have kept its data. Set the policy to Delete to delete it"
            ),
            Self::Refused { retry } => match retry {
                Retry::Later => write!(f, "it was refused, and is tried again later"),
                Retry::Elsewhere => write!(f, "there was no room, another node has to be chosen"),
                Retry::Changed => write!(f, "it was refused as invalid, so it is tried again only slowly"),
            },
        }
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::Wanted => "wanted",
            Self::Orphaned => "orphaned",
            Self::Made { .. } => "made",
            Self::Stored { .. } => "stored",
            Self::NameTaken { .. } => "name_taken",
            Self::SourceTaken { .. } => "source_taken",
            Self::SourceLeaving { .. } => "source_leaving",
            Self::Unclaimed { .. } => "unclaimed",
            Self::Refused { .. } => "refused",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Stored { .. } => Standing::Settled,
            Self::Wanted | Self::Orphaned | Self::Made { .. } | Self::NameTaken { .. } => Standing::Moving,
            Self::Unclaimed { .. } => Standing::Moving,
            Self::SourceLeaving { .. } => Standing::Waiting,
            Self::SourceTaken { .. } => Standing::Stuck,
            Self::Refused { retry } => match retry {
                Retry::Later | Retry::Elsewhere => Standing::Waiting,
                Retry::Changed => Standing::Stuck,
            },
        }
    }

    fn notice(&self) -> Option<Notice> {
        match self {
            Self::Stored { .. } => Some(Notice::normal("ProvisioningSucceeded", self.to_string())),
            Self::NameTaken { .. } | Self::SourceTaken { .. } | Self::SourceLeaving { .. } => {
                Some(Notice::warning("ProvisioningFailed", self.to_string()))
            }
            // Said about the volume: the claim is gone.
            Self::Unclaimed { .. } => Some(Notice::warning("VolumeRetained", self.to_string())),
            // The provisioner's own words about a refusal are told with it.
            Self::Refused { .. } | Self::Wanted | Self::Orphaned | Self::Made { .. } => None,
        }
    }
}
