//! Whether a volume suits a claim, and if not, why not: one order of questions for binder, scheduler and `explain`.

use std::fmt;

use api::{Claim, Volume};

/// Why a volume does not suit a claim (spec controllers 4.3, texts of U8x).
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

/// Whether a claim may have a volume it names: selector, affinity and phase are the user's own business (U8).
pub fn named(claim: &Claim, volume: &Volume) -> Result<(), Mismatch> {
    if volume.meta.is_deleting() {
        return Err(Mismatch::Deleting);
    }
    if volume.capacity_bytes() < claim.request_bytes() {
        return Err(Mismatch::TooSmall);
    }
    if volume.class().text() != claim.class().text() {
        return Err(Mismatch::Class);
    }
    substance(claim, volume)
}

/// Whether a volume that names the claim may be given to it: its class and labels do not matter (4.7 rule 8), what it is
/// made of does.
pub fn designated(claim: &Claim, volume: &Volume) -> Result<(), Mismatch> {
    if volume.meta.is_deleting() {
        return Err(Mismatch::Deleting);
    }
    if volume.capacity_bytes() < claim.request_bytes() {
        return Err(Mismatch::TooSmall);
    }
    substance(claim, volume)
}

/// Whether a volume that nobody reserved may be picked for a claim that names none (4.7 rules 3 to 12).
pub fn picked(claim: &Claim, volume: &Volume) -> Result<(), Mismatch> {
    named(claim, volume)?;
    match &claim.selector {
        Some(selector) if !selector.matches(&volume.meta.labels) => Err(Mismatch::Selector),
        _ => Ok(()),
    }
}

fn substance(claim: &Claim, volume: &Volume) -> Result<(), Mismatch> {
    if volume.attributes_class() != claim.attributes_class() {
        return Err(Mismatch::AttributesClass);
    }
    if volume.mode != claim.mode {
        return Err(Mismatch::Mode);
    }
    if !volume.access.contains_all(claim.access) {
        return Err(Mismatch::Access);
    }
    Ok(())
}
