//! From access modes to a driver's (SIDECAR-1.6).

use api::{AccessMode, AccessModes};
use serde::{Deserialize, Serialize};

use super::ability::{Abilities, Ability};

/// A driver's access mode, of those that a claim can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Access {
    SingleNodeWriter,
    SingleNodeSingleWriter,
    SingleNodeMultiWriter,
    MultiNodeReaderOnly,
    MultiNodeMultiWriter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadAccess {
    #[error("no access mode is asked for that this program knows")]
    Unknown,
    #[error("ReadWriteOncePod cannot be combined with other access modes")]
    PodAndMore,
    #[error("ReadOnlyMany and ReadWriteOnce cannot be given by one capability")]
    ReadersAndOneWriter,
}

/// The table: one capability for a set of modes.
pub fn of_set(modes: AccessModes, has: &Abilities) -> Result<Access, BadAccess> {
    let fine = has.contains(&Ability::SingleNodeMultiWriter);
    let contains = |mode| modes.contains(mode);
    if contains(AccessMode::ReadWriteOncePod) {
        return match modes.len() {
            1 if fine => Ok(Access::SingleNodeSingleWriter),
            1 => Ok(Access::SingleNodeWriter),
            _ => Err(BadAccess::PodAndMore),
        };
    }
    if contains(AccessMode::ReadWriteMany) {
        return Ok(Access::MultiNodeMultiWriter);
    }
    match (contains(AccessMode::ReadOnlyMany), contains(AccessMode::ReadWriteOnce)) {
        (true, true) => Err(BadAccess::ReadersAndOneWriter),
        (true, false) => Ok(Access::MultiNodeReaderOnly),
        (false, true) if fine => Ok(Access::SingleNodeMultiWriter),
        (false, true) => Ok(Access::SingleNodeWriter),
        (false, false) => Err(BadAccess::Unknown),
    }
}

/// One capability per mode of the claim, in its order, as CreateVolume gets them.
///
/// A claim with ReadWriteOnce and ReadOnlyMany passes here and fails when it is attached, as upstream: the volume may
/// still be used in one of the two ways.
pub fn of_each(modes: AccessModes, has: &Abilities) -> Result<Vec<Access>, BadAccess> {
    if modes.is_empty() || modes.has_unknown() {
        return Err(BadAccess::Unknown);
    }
    if modes.contains(AccessMode::ReadWriteOncePod) && modes.len() > 1 {
        return Err(BadAccess::PodAndMore);
    }
    modes.iter().map(|mode| of_set(AccessModes::of(&[mode]), has)).collect()
}
