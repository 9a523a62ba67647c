//! How a driver is asked: access modes (NODE-10.2), groups (NODE-14), kinds of volumes (NODE-12).

use api::csi::CsiDriverSpec;
use api::{AccessMode, AccessModes};

/// CSI's access mode, with its number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireMode {
    Unknown = 0,
    SingleNodeWriter = 1,
    MultiNodeReaderOnly = 3,
    MultiNodeMultiWriter = 5,
    SingleNodeSingleWriter = 6,
    SingleNodeMultiWriter = 7,
}

/// The access mode that a driver is told. What the claim asks for counts, not all that its volume could do; of several
/// modes the one that lets most in, and else the first (NODE-31.17). A volume that stands in the pod itself lists
/// none and counts as ReadWriteOnce. `tells_writers_apart` is the driver's capability SINGLE_NODE_MULTI_WRITER.
pub fn access_mode(volume: AccessModes, claim: AccessModes, tells_writers_apart: bool) -> WireMode {
    let modes = if claim.is_empty() { volume } else { claim };
    let widest = Some(AccessMode::ReadWriteMany).filter(|widest| modes.contains(*widest));
    match (widest.or(modes.iter().next()), tells_writers_apart) {
        (None, _) if modes.has_unknown() => WireMode::Unknown,
        (None | Some(AccessMode::ReadWriteOnce), true) => WireMode::SingleNodeMultiWriter,
        (Some(AccessMode::ReadWriteOncePod), true) => WireMode::SingleNodeSingleWriter,
        (None | Some(AccessMode::ReadWriteOnce | AccessMode::ReadWriteOncePod), false) => WireMode::SingleNodeWriter,
        (Some(AccessMode::ReadOnlyMany), _) => WireMode::MultiNodeReaderOnly,
        (Some(AccessMode::ReadWriteMany), _) => WireMode::MultiNodeMultiWriter,
    }
}

/// Who lets a pod's group write to a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Nobody,
    /// The driver, when it stages and publishes.
    Driver(u32),
    /// The agent, after the volume was published.
    Agent(u32),
}

/// What the question of ownership depends on.
#[derive(Debug, Clone, Copy)]
pub struct Ownership<'a> {
    pub group: Option<u32>,
    /// The driver's capability VOLUME_MOUNT_GROUP.
    pub driver_mounts_group: bool,
    pub read_only: bool,
    /// The driver's object, if there is one.
    pub driver: Option<&'a CsiDriverSpec>,
    pub fs_type: &'a str,
    /// A volume that stands in the pod itself.
    pub inline: bool,
    pub access: AccessModes,
}

/// A policy that nobody knows: an object that passed no defaulting or is of a newer API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the CSIDriver has the fsGroupPolicy {0:?}, which this agent does not know")]
pub struct UnknownPolicy(pub String);

/// Who owns (NODE-14).
pub fn owner(of: &Ownership<'_>) -> Result<Owner, UnknownPolicy> {
    let Some(group) = of.group else { return Ok(Owner::Nobody) };
    if of.driver_mounts_group {
        return Ok(Owner::Driver(group));
    }
    let policy = match of.driver {
        None => "ReadWriteOnceWithFSType",
        Some(spec) => spec.fs_group_policy.as_deref().unwrap_or_default(),
    };
    let once = || {
        let one_node =
            of.access.contains(AccessMode::ReadWriteOnce) || of.access.contains(AccessMode::ReadWriteOncePod);
        !of.fs_type.is_empty() && (of.inline || one_node)
    };
    let applies = match policy {
        "None" => false,
        "File" => true,
        "ReadWriteOnceWithFSType" => once(),
        other => return Err(UnknownPolicy(other.to_owned())),
    };
    Ok(if applies && !of.read_only { Owner::Agent(group) } else { Owner::Nobody })
}

/// Whether a driver makes volumes of this kind (NODE-11.3). Without its object it makes persistent ones only.
pub fn serves(driver: Option<&CsiDriverSpec>, ephemeral: bool) -> bool {
    let wanted = if ephemeral { "Ephemeral" } else { "Persistent" };
    match driver {
        None => !ephemeral,
        Some(spec) => spec.volume_lifecycle_modes.as_deref().unwrap_or_default().iter().any(|mode| *mode == wanted),
    }
}

/// Whether its volumes have to be attached. Without its object they have to.
pub fn attaches(driver: Option<&CsiDriverSpec>) -> bool {
    driver.and_then(|spec| spec.attach_required).unwrap_or(true)
}
