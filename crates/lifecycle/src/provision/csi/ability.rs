//! What a driver can do, as far as provisioning and attaching ask (PROVISION-2.6, ATTACHER-3.2).

use std::collections::BTreeSet;
use std::fmt;

use super::source::Wanted;

/// Something a driver says it can do, by the specification's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ability {
    ControllerService,
    CreateDelete,
    Snapshots,
    Clones,
    Modify,
    SingleNodeMultiWriter,
    Topology,
    Publish,
    PublishReadOnly,
    ListVolumes,
    ListPublishedNodes,
    Capacity,
    GetVolume,
    VolumeCondition,
}

/// All that a driver says it can do.
pub type Abilities = BTreeSet<Ability>;

impl Ability {
    pub fn name(self) -> &'static str {
        match self {
            Ability::ControllerService => "CONTROLLER_SERVICE",
            Ability::CreateDelete => "CREATE_DELETE_VOLUME",
            Ability::Snapshots => "CREATE_DELETE_SNAPSHOT",
            Ability::Clones => "CLONE_VOLUME",
            Ability::Modify => "MODIFY_VOLUME",
            Ability::SingleNodeMultiWriter => "SINGLE_NODE_MULTI_WRITER",
            Ability::Topology => "VOLUME_ACCESSIBILITY_CONSTRAINTS",
            Ability::Publish => "PUBLISH_UNPUBLISH_VOLUME",
            Ability::PublishReadOnly => "PUBLISH_READONLY",
            Ability::ListVolumes => "LIST_VOLUMES",
            Ability::ListPublishedNodes => "LIST_VOLUMES_PUBLISHED_NODES",
            Ability::Capacity => "GET_CAPACITY",
            Ability::GetVolume => "GET_VOLUME",
            Ability::VolumeCondition => "VOLUME_CONDITION",
        }
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the driver would have to be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the CSI driver cannot {purpose}: it lacks the capability {ability}")]
pub struct Lacking {
    pub ability: Ability,
    pub purpose: &'static str,
}

/// Whether the driver can make and delete volumes at all.
pub fn basic(has: &Abilities) -> Result<(), Lacking> {
    need(has, Ability::ControllerService, "provision volumes")?;
    need(has, Ability::CreateDelete, "create and delete volumes")
}

/// Whether the driver can make what a claim asks for.
pub fn check(has: &Abilities, wanted: &Wanted, attributes_class: &str) -> Result<(), Lacking> {
    basic(has)?;
    match wanted {
        Wanted::Nothing => {}
        Wanted::Snapshot(_) => need(has, Ability::Snapshots, "restore snapshots")?,
        Wanted::Clone(_) => need(has, Ability::Clones, "clone volumes")?,
    }
    match attributes_class {
        "" => Ok(()),
        _ => need(has, Ability::Modify, "apply a VolumeAttributesClass"),
    }
}

fn need(has: &Abilities, ability: Ability, purpose: &'static str) -> Result<(), Lacking> {
    if has.contains(&ability) { Ok(()) } else { Err(Lacking { ability, purpose }) }
}
