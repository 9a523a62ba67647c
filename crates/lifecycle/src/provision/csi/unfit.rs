//! Why there is no plan for a claim, and how that stands (PROVISION-2.6).

use super::ability::Lacking;
use super::access::BadAccess;
use super::parameters::BadParameter;
use super::secrets::BadSecret;
use super::source::{BadSource, NoContent};
use super::topology::NoPlace;
use crate::migration::Untranslatable;

/// Why a claim cannot have a volume of this driver as things are. Nothing was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("a populator for {kind}.{group} makes the volume, from {name}")]
    Populator { group: String, kind: String, name: String },
    #[error(transparent)]
    Source(#[from] BadSource),
    #[error("the class cannot be said in the driver's words: {0}")]
    Class(Untranslatable),
    #[error(transparent)]
    Ability(#[from] Lacking),
    #[error("the claim has a selector; volumes that are made on demand cannot be selected by label")]
    Selector,
    #[error("the claim asks for no storage")]
    NoRequest,
    #[error(transparent)]
    Parameter(#[from] BadParameter),
    #[error(transparent)]
    Access(#[from] BadAccess),
    #[error(transparent)]
    Content(#[from] NoContent),
    #[error(transparent)]
    Place(#[from] NoPlace),
    #[error(transparent)]
    Secret(#[from] BadSecret),
    #[error("the VolumeAttributesClass {name:?} does not exist")]
    NoAttributesClass { name: String },
    #[error("the VolumeAttributesClass {name:?} is of the driver {theirs:?}, not of {ours:?}")]
    ForeignAttributesClass { name: String, theirs: String, ours: String },
}

/// What a refusal to plan means for the claim: upstream's states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Not ours to make ("ignored").
    Ignored,
    /// Wrong as it is ("Finished").
    Wrong,
    /// Something is missing that may come ("NoChange").
    NotYet,
    /// Another node has to be chosen ("Reschedule").
    Elsewhere,
}

impl Unfit {
    pub fn standing(&self) -> Standing {
        match self {
            Unfit::Populator { .. } => Standing::Ignored,
            Unfit::Source(_)
            | Unfit::Class(_)
            | Unfit::Ability(_)
            | Unfit::Selector
            | Unfit::NoRequest
            | Unfit::Parameter(_)
            | Unfit::Access(_)
            | Unfit::ForeignAttributesClass { .. } => Standing::Wrong,
            Unfit::Place(NoPlace::NodeGone { .. }) => Standing::Elsewhere,
            Unfit::Content(_) | Unfit::Place(_) | Unfit::Secret(_) | Unfit::NoAttributesClass { .. } => {
                Standing::NotYet
            }
        }
    }
}
