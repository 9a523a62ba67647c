//! Whether a volume suits a claim, and if not, why not: one order of questions for binder, scheduler and `explain`.

use std::fmt;

use api::{Claim, Volume};

/// Why a volume does not suit a claim (BIND-4.3, texts of BIND-U8x).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mismatch {
    Deleting,
    TooSmall,
    Class,
    AttributesClass,
    Mode,
    Access,
    /// Only for volumes that nobody asked for by name.
    Selector,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleting => "the volume is marked for deletion",
            Self::TooSmall => "requested PV is too small",
            Self::Class => "storageClassName does not match",
            Self::AttributesClass => "volumeAttributesClassName does not match",
            Self::Mode => "incompatible volumeMode",
            Self::Access => "incompatible accessMode",
            Self::Selector => "the volume's labels do not match the claim's selector",
        })
    }
}

impl Mismatch {
    /// Every question, in the order in which they are asked.
    pub const ALL: [Self; 7] =
        [Self::Deleting, Self::TooSmall, Self::Class, Self::AttributesClass, Self::Mode, Self::Access, Self::Selector];

    fn holds(self, claim: &Claim, volume: &Volume) -> bool {
        match self {
            Self::Deleting => volume.meta.is_deleting(),
            Self::TooSmall => volume.size() < claim.size(),
            Self::Class => volume.class().text() != claim.class().text(),
            Self::AttributesClass => volume.attributes_class() != claim.attributes_class(),
            Self::Mode => volume.mode != claim.mode,
            Self::Access => !volume.access.contains_all(claim.access),
            Self::Selector => claim.selector.as_ref().is_some_and(|selector| !selector.matches(&volume.meta.labels)),
        }
    }
}

/// Everything that speaks against a volume, in order.
pub fn objections(claim: &Claim, volume: &Volume) -> impl Iterator<Item = Mismatch> {
    Mismatch::ALL.into_iter().filter(|mismatch| mismatch.holds(claim, volume))
}

/// Whether a claim may have a volume it names: selector, affinity and phase are the user's own business (BIND-U8).
pub fn named(claim: &Claim, volume: &Volume) -> Result<(), Mismatch> {
    first(objections(claim, volume).filter(|mismatch| *mismatch != Mismatch::Selector))
}

/// Whether a volume that names the claim may be given to it: its class and labels do not matter (BIND-4.7.8), what it
/// is made of does.
pub fn designated(claim: &Claim, volume: &Volume) -> Result<(), Mismatch> {
    first(objections(claim, volume).filter(|mismatch| !matches!(mismatch, Mismatch::Class | Mismatch::Selector)))
}

/// Whether a volume that nobody reserved may be picked for a claim that names none (BIND-4.7.3 to BIND-4.7.12).
pub fn picked(claim: &Claim, volume: &Volume) -> Result<(), Mismatch> {
    first(objections(claim, volume))
}

fn first(mut objections: impl Iterator<Item = Mismatch>) -> Result<(), Mismatch> {
    objections.next().map_or(Ok(()), Err)
}
