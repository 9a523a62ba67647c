//! What a pod's volume is to a driver: resolving claim and volume, and whether it is attached at all (ATTACH-6.2,
//! ATTACH-6.5, MIGRATE-10).
//!
//! Nothing is remembered: who wants what is computed from the objects as they are, so that a changed volume or driver
//! counts at once (CTRL-14.37, CTRL-14.38, CTRL-14.47).

use std::fmt;
use std::sync::Arc;

use api::{
    AccessMode, AccessModes, Claim, ClaimPhase, CsiDriver, Key, Pod, PodSource, PodVolume, Source, Volume, Word,
};
use serde_json::Value;

use super::names::{attachment_name, unique_name};
use crate::{ephemeral, migration};

/// The objects that a pod's volume leads to, as far as somebody knows them.
pub trait Around {
    fn claim(&self, key: &Key) -> Option<Arc<Claim>>;
    fn volume(&self, name: &str) -> Option<Arc<Volume>>;
    fn driver(&self, name: &str) -> Option<Arc<CsiDriver>>;
}

/// A volume as its driver attaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub driver: Word,
    pub handle: Box<str>,
    pub origin: Origin,
    pub sharing: Sharing,
}

/// Where the attacher finds what the driver needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Volume {
        name: Box<str>,
    },
    /// A volume inside a pod: its translation is stored nowhere but in the attachment (MIGRATE-10.2).
    Inline {
        name: Box<str>,
        spec: Box<Value>,
    },
}

/// Whether several nodes may have it at once (ATTACH-6.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    OneNode,
    ManyNodes,
}

/// Why a pod's volume is nothing to attach, or not yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unattachable {
    /// The claim is not known, not bound, or was not made for the pod.
    ClaimMissing {
        claim: Box<str>,
    },
    ClaimUnbound {
        claim: Box<str>,
    },
    ClaimOfAnother {
        claim: Box<str>,
    },
    VolumeMissing {
        volume: Box<str>,
    },
    /// The volume belongs to another claim, though the claim names it.
    VolumeOfAnother {
        volume: Box<str>,
    },
    /// Nothing that a CSI driver attaches: a directory, a network filesystem, a volume made inside the pod's life.
    NotAttached,
    /// The driver says that its volumes need no attaching.
    NotRequired {
        driver: Word,
    },
    Untranslatable {
        message: Box<str>,
    },
}

impl fmt::Display for Unattachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClaimMissing { claim } => write!(f, "claim {claim:?} does not exist"),
            Self::ClaimUnbound { claim } => write!(f, "claim {claim:?} has no volume yet"),
            Self::ClaimOfAnother { claim } => write!(f, "claim {claim:?} was not made for this pod"),
            Self::VolumeMissing { volume } => write!(f, "volume {volume:?} does not exist"),
            Self::VolumeOfAnother { volume } => write!(f, "volume {volume:?} belongs to another claim"),
            Self::NotAttached => f.write_str("volumes of this kind are not attached"),
            Self::NotRequired { driver } => write!(f, "driver {driver} needs no attaching"),
            Self::Untranslatable { message } => write!(f, "the volume cannot be said in its driver's words: {message}"),
        }
    }
}

impl Target {
    /// Its name in a node's status.
    pub fn unique(&self) -> String {
        unique_name(&self.driver, &self.handle)
    }

    /// The name of its attachment on a node.
    pub fn attachment(&self, node: &str) -> String {
        attachment_name(&self.driver, &self.handle, node)
    }

    /// What events call it: the PersistentVolume's name.
    pub fn name(&self) -> &str {
        match &self.origin {
            Origin::Volume { name } | Origin::Inline { name, .. } => name,
        }
    }

    /// A volume as its driver attaches it, whether or not anybody wants that. `None` if no driver does.
    pub fn of_volume(volume: &Volume) -> Result<Option<Self>, migration::Untranslatable> {
        let origin = Origin::Volume { name: volume.name().into() };
        if let Source::Csi { driver, handle } = &volume.source {
            let (driver, handle) = (driver.clone(), handle.clone());
            return Ok(Some(Self { driver, handle, origin, sharing: sharing(volume.access) }));
        }
        let Some(source) = migration::csi_source(volume)? else { return Ok(None) };
        let sharing = sharing(migration::csi_access(&source.driver, volume.access));
        Ok(Some(Self { driver: Word::new(&source.driver), handle: source.volume_handle.into(), origin, sharing }))
    }

    /// A volume that stands inside a pod, or inside an attachment: the translated PersistentVolume's name and spec.
    pub fn inline(name: &str, spec: &Value) -> Option<Self> {
        let csi = spec.get("csi")?;
        let text = |field: &str| csi.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let (driver, handle) = (text("driver")?, text("volumeHandle")?);
        let sharing = match migration::inline_is_exclusive(driver) {
            true => Sharing::OneNode,
            false => Sharing::ManyNodes,
        };
        let origin = Origin::Inline { name: name.into(), spec: Box::new(spec.clone()) };
        Some(Self { driver: Word::new(driver), handle: handle.into(), origin, sharing })
    }
}

/// ATTACH-6.5: forbidden only where every mode is for one node. ReadWriteOncePod has no further meaning here.
fn sharing(modes: AccessModes) -> Sharing {
    let many = [AccessMode::ReadWriteMany, AccessMode::ReadOnlyMany];
    // A mode that nobody here knows may be for one node: with it the volume goes to one node only.
    match (modes.is_empty() && !modes.has_unknown()) || many.into_iter().any(|mode| modes.contains(mode)) {
        true => Sharing::ManyNodes,
        false => Sharing::OneNode,
    }
}

/// Follows a pod's volume to what its driver attaches (ATTACH-6.2).
pub fn resolve(pod: &Pod, volume: &PodVolume, around: &dyn Around) -> Result<Target, Unattachable> {
    let target = match &volume.source {
        PodSource::Claim { name, .. } => of_claim(pod, name, None, around)?,
        PodSource::Ephemeral { .. } => of_claim(pod, &pod.ephemeral_claim(volume), Some(pod), around)?,
        PodSource::InlineCsi { .. } => return Err(Unattachable::NotAttached),
        PodSource::InTree { volume } => of_in_tree(volume, pod.namespace())?,
    };
    match around.driver(&target.driver).and_then(|driver| driver.spec.attach_required) {
        Some(false) => Err(Unattachable::NotRequired { driver: target.driver }),
        // A driver that nobody registered is attached, as upstream does.
        Some(true) | None => Ok(target),
    }
}

/// All volumes of a pod that have to be attached, each once.
pub fn targets(pod: &Pod, around: &dyn Around) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    for target in pod.volumes.iter().filter_map(|volume| resolve(pod, volume, around).ok()) {
        if !targets.iter().any(|held| held.driver == target.driver && held.handle == target.handle) {
            targets.push(target);
        }
    }
    targets
}

fn of_claim(pod: &Pod, name: &str, owner: Option<&Pod>, around: &dyn Around) -> Result<Target, Unattachable> {
    let missing = || Unattachable::ClaimMissing { claim: name.into() };
    let claim = around.claim(&pod.meta.key.sibling(name)).ok_or_else(missing)?;
    if owner.is_some_and(|pod| !ephemeral::owned(&claim, pod)) {
        return Err(Unattachable::ClaimOfAnother { claim: name.into() });
    }
    if claim.phase != ClaimPhase::Bound || claim.volume_name.is_empty() {
        return Err(Unattachable::ClaimUnbound { claim: name.into() });
    }
    let volume_name = &claim.volume_name;
    let missing = || Unattachable::VolumeMissing { volume: volume_name.clone() };
    let volume = around.volume(volume_name).ok_or_else(missing)?;
    let bond = volume.claim.as_ref().and_then(|reference| reference.uid.as_ref());
    if bond != Some(claim.uid()) {
        return Err(Unattachable::VolumeOfAnother { volume: volume_name.clone() });
    }
    let untranslatable =
        |error: migration::Untranslatable| Unattachable::Untranslatable { message: error.to_string().into() };
    Target::of_volume(&volume).map_err(untranslatable)?.ok_or(Unattachable::NotAttached)
}

fn of_in_tree(volume: &Value, namespace: &str) -> Result<Target, Unattachable> {
    let untranslatable =
        |error: migration::Untranslatable| Unattachable::Untranslatable { message: error.to_string().into() };
    let translated = migration::inline_to_csi(volume, namespace).map_err(untranslatable)?;
    let name = translated.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let spec = translated.get("spec").unwrap_or(&Value::Null);
    Target::inline(name, spec).ok_or(Unattachable::NotAttached)
}
