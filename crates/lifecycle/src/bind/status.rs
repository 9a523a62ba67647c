//! What a claim's status should say (BIND-4.5), or nothing when it says so already.

use api::keys::annotation;
use api::{AccessModes, Amount, Claim, ClaimPhase, Volume};

/// The new status of a claim. A field that is `Keep` belongs to somebody else now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub phase: ClaimPhase,
    pub access: AccessModes,
    pub capacity: Field<Option<Amount>>,
    pub attributes_class: Field<Option<Box<str>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field<T> {
    Keep,
    Set(T),
}

/// A claim without a volume: nothing may be left that speaks of one.
pub(super) fn without_volume(claim: &Claim, phase: ClaimPhase) -> Option<Status> {
    let held = &claim.status;
    let clean = held.access.is_empty() && held.capacity.is_none() && held.attributes_class.is_none();
    let status = Status {
        phase,
        access: AccessModes::default(),
        capacity: Field::Set(None),
        attributes_class: Field::Set(None),
    };
    (claim.phase != phase || !clean).then_some(status)
}

/// A claim with its volume. Capacity and attributes class are written with the phase and never after it: from then on
/// they are the resizer's (CTRL-I8).
pub(super) fn bound(claim: &Claim, volume: &Volume) -> Option<Status> {
    let changing = claim.phase != ClaimPhase::Bound;
    let stale = claim.status.access != volume.access;
    let (capacity, attributes_class) = match changing {
        true => (Field::Set(capacity(volume)), Field::Set(volume.attributes_class.clone())),
        false => (Field::Keep, Field::Keep),
    };
    let status = Status { phase: ClaimPhase::Bound, access: volume.access, capacity, attributes_class };
    (changing || stale).then_some(status)
}

/// While a filesystem still has to grow, the claim keeps the size it had before.
fn capacity(volume: &Volume) -> Option<Amount> {
    let before = volume.meta.annotation(annotation::PRE_RESIZE_CAPACITY);
    before.and_then(|text| Amount::parse(text).ok()).or_else(|| volume.capacity.clone())
}
