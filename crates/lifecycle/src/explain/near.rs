//! The volumes that a claim did not get, and what spoke against them.

use std::collections::BTreeMap;

use api::{Claim, Volume, VolumePhase};

use super::Picture;
use super::text::modes;
use crate::bind::compatible::{self, Mismatch};

/// How many volumes are shown by name.
const SHOWN: usize = 3;

/// A volume that nobody has.
struct Candidate<'a> {
    volume: &'a Volume,
    /// Not Available: it had a claim before, or nobody looked at it yet.
    busy: bool,
    objections: Vec<Mismatch>,
}

/// Which volumes came near, and how many did not for which reason.
pub(super) fn misses(picture: &Picture, claim: &Claim) -> Vec<String> {
    if !picture.volumes.is_seen() {
        return vec!["volumes could not be looked at, so that one that fits may exist".to_owned()];
    }
    let volumes = picture.volumes.items();
    if volumes.is_empty() {
        return vec!["there are no volumes in the cluster".to_owned()];
    }
    let held = volumes.iter().filter(|volume| is_held(volume)).count();
    let mut candidates: Vec<Candidate<'_>> = volumes
        .iter()
        .filter(|volume| !is_held(volume))
        .map(|volume| Candidate {
            volume,
            busy: volume.phase != VolumePhase::Available,
            objections: compatible::objections(claim, volume).collect(),
        })
        .collect();
    let far = |candidate: &Candidate<'_>| {
        let short = claim.request_bytes().abs_diff(candidate.volume.capacity_bytes());
        (candidate.objections.len() + usize::from(candidate.busy), short)
    };
    candidates.sort_by(|a, b| far(a).cmp(&far(b)).then_with(|| a.volume.name().cmp(b.volume.name())));
    let mut lines = vec![count(volumes.len(), held, &candidates)];
    // A volume that was another claim's and is of another class is nowhere near.
    let far_off = |candidate: &&Candidate<'_>| candidate.busy && candidate.objections.contains(&Mismatch::Class);
    lines.extend(
        candidates
            .iter()
            .filter(|candidate| !far_off(candidate))
            .take(SHOWN)
            .map(|candidate| describe(claim, candidate)),
    );
    lines
}

/// A volume that belongs to a claim, or is kept for one.
fn is_held(volume: &Volume) -> bool {
    volume.phase == VolumePhase::Bound || (volume.claim.is_some() && volume.phase == VolumePhase::Available)
}

fn count(all: usize, held: usize, candidates: &[Candidate<'_>]) -> String {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    for candidate in candidates {
        let first = candidate.objections.first().map_or("not Available", |mismatch| short(*mismatch));
        *counts.entry(first).or_default() += 1;
    }
    let mut parts: Vec<String> = counts.iter().map(|(why, count)| format!("{count} {why}")).collect();
    if held > 0 {
        parts.push(format!("{held} bound or reserved"));
    }
    format!("no volume fits, of {all} in the cluster: {}", parts.join(", "))
}

fn short(mismatch: Mismatch) -> &'static str {
    match mismatch {
        Mismatch::Deleting => "being deleted",
        Mismatch::TooSmall => "too small",
        Mismatch::Class => "of another class",
        Mismatch::AttributesClass => "of another attributes class",
        Mismatch::Mode => "of another volumeMode",
        Mismatch::Access => "without the access modes",
        Mismatch::Selector => "not selected",
    }
}

fn describe(claim: &Claim, candidate: &Candidate<'_>) -> String {
    let volume = candidate.volume;
    let mut parts: Vec<String> =
        candidate.objections.iter().map(|mismatch| against(claim, volume, *mismatch)).collect();
    if candidate.busy {
        parts.push(match (&volume.claim, volume.phase) {
            (Some(before), VolumePhase::Released | VolumePhase::Failed) => {
                format!("it is {} and still names claim {}", volume.phase.name(), before.key)
            }
            (_, phase) => format!("it is {}", phase.name()),
        });
    }
    format!("near: {:?}: {}", volume.name(), parts.join("; "))
}

/// One objection with both sides of it.
pub(super) fn against(claim: &Claim, volume: &Volume, mismatch: Mismatch) -> String {
    let amount = |amount: &Option<api::Amount>| amount.as_ref().map_or("nothing".to_owned(), ToString::to_string);
    match mismatch {
        Mismatch::Deleting => "it is being deleted".to_owned(),
        Mismatch::TooSmall => {
            format!("it has {}, the claim asks for {}", amount(&volume.capacity), amount(&claim.request))
        }
        Mismatch::Class => {
            format!("its class is {:?}, the claim's is {:?}", volume.class().text(), claim.class().text())
        }
        Mismatch::AttributesClass => {
            let (held, wanted) = (volume.attributes_class(), claim.attributes_class());
            format!("its attributes class is {held:?}, the claim's is {wanted:?}")
        }
        Mismatch::Mode => {
            format!("its volumeMode is {}, the claim's is {}", volume.mode.name(), claim.mode.name())
        }
        Mismatch::Access => {
            format!("it offers {}, the claim asks for {}", modes(volume.access), modes(claim.access))
        }
        Mismatch::Selector => "its labels do not match the claim's selector".to_owned(),
    }
}
