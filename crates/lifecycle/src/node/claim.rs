//! Which volume a pod's claim stands for (NODE-5.4).

use api::keys::finalizer;
use api::{Claim, ClaimPhase, Pairs, Uid, Volume, VolumeMode};

use super::Because;
use crate::decision::Lookup;

/// How a pod asks for a claim.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub pod: &'a Uid,
    /// `namespace/name`.
    pub claim: &'a str,
    /// Whether the claim was to be made for this very pod.
    pub ephemeral: bool,
    /// What its containers do with it: at least one of the two.
    pub mounts: bool,
    pub devices: bool,
}

/// Where the pod runs. A node whose labels are not known is asked nothing.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub node: &'a str,
    pub labels: Option<&'a Pairs>,
}

/// The claim, if the pod may use it: it then names its volume.
pub fn claim<'a>(asked: &Asked<'_>, claim: Lookup<'a, Claim>) -> Result<&'a Claim, Because> {
    let name = || asked.claim.into();
    let Some(claim) = claim.found() else { return Err(Because::ClaimMissing { claim: name() }) };
    if asked.ephemeral && claim.meta.controller().is_none_or(|owner| owner.uid != *asked.pod) {
        return Err(Because::ClaimNotOurs { claim: name() });
    }
    // A protected claim that is being deleted still belongs to its pods, or a restart would break running ones.
    if claim.meta.is_deleting() && !claim.meta.has_finalizer(finalizer::PVC_PROTECTION) {
        return Err(Because::ClaimGoing { claim: name() });
    }
    match claim.phase == ClaimPhase::Bound && !claim.volume_name.is_empty() {
        true => Ok(claim),
        false => Err(Because::ClaimNotBound { claim: name() }),
    }
}

/// The volume, if it is the claim's, fits how the pod uses it, and can be reached from here.
pub fn volume<'a>(
    asked: &Asked<'_>,
    claim: &Claim,
    volume: Lookup<'a, Volume>,
    place: Place<'_>,
) -> Result<&'a Volume, Because> {
    let Some(volume) = volume.found() else {
        return Err(Because::VolumeMissing { volume: claim.volume_name.clone() });
    };
    let name = || volume.name().into();
    let ours = volume.claim.as_ref().is_some_and(|reference| reference.uid.as_ref() == Some(&claim.meta.uid));
    if !ours {
        return Err(Because::VolumeOfAnother { volume: name(), claim: asked.claim.into() });
    }
    let wrong = match volume.mode {
        VolumeMode::Filesystem => asked.devices.then_some(("a device", "Filesystem")),
        VolumeMode::Block => asked.mounts.then_some(("a filesystem", "Block")),
    };
    if let Some((wanted, has)) = wrong {
        return Err(Because::ModeMismatch { volume: name(), wanted, has });
    }
    match place.labels.is_none_or(|labels| volume.reachable_from(place.node, labels)) {
        true => Ok(volume),
        false => Err(Because::OutOfReach { volume: name() }),
    }
}
