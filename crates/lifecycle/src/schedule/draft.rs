//! How the claims of a pod would get their volumes on one node (SCHED-5.2, SCHED-F1 to SCHED-F4), and how good that is
//! (SCHED-5.4).

use std::collections::{BTreeMap, BTreeSet};

use api::keys::provisioner;
use api::{Amount, Class, Node, Volume, Word};

use super::book::{Means, Step};
use super::capacity::{Rooms, Takes};
use super::refusal::Refusal;
use super::wants::{Hold, State, Want};
use crate::bind::shelf::{Offer, On, Shelf};

/// What there is for all nodes, without what others were promised.
pub(super) struct Reserved<'a> {
    /// By class; only those whose driver says how much room it has.
    pub(super) rooms: &'a BTreeMap<Word, Rooms>,
    pub(super) taken: &'a BTreeSet<Word>,
    pub(super) shelf: &'a Shelf,
}

/// What a node would do for the pod.
pub(super) struct Found {
    pub(super) steps: Vec<Step>,
    pub(super) score: u64,
}

/// What the claims of one class ask for, and of how much.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    asked: i64,
    of: i64,
}

type Shares = BTreeMap<Word, Share>;

/// The same while it is put together.
struct Draft<'a> {
    place: &'a Node,
    reserved: &'a Reserved<'a>,
    steps: Vec<Step>,
    /// Volumes that nobody or one of the pod's own claims has.
    taken: BTreeSet<Word>,
    takes: BTreeMap<Word, Takes>,
    existing: Shares,
    made: Shares,
}

/// SCHED-F1 to SCHED-F4. Reasons add up, but for the one that makes the others pointless.
pub(super) fn volumes(place: &Node, wants: &[Want], reserved: &Reserved<'_>) -> Result<Found, Vec<Refusal>> {
    let mut refusals = Vec::new();
    let taken = reserved.taken.clone();
    let (takes, existing, made) = (BTreeMap::new(), Shares::new(), Shares::new());
    let mut draft = Draft { place, reserved, steps: Vec::new(), taken, takes, existing, made };
    for want in wants {
        let State::Bound { volume } = &want.state else { continue };
        match volume {
            None => return Err(vec![Refusal::VolumeGone]),
            Some(volume) if draft.reaches(volume) => draft.add(want, Means::Bound),
            Some(_) => refusals.push(Refusal::VolumeElsewhere),
        }
    }
    if let Err(refusal) = draft.delayed(wants) {
        refusals.push(refusal);
    }
    refusals.dedup();
    match refusals.is_empty() {
        true => Ok(draft.found()),
        false => Err(refusals),
    }
}

impl Draft<'_> {
    fn reaches(&self, volume: &Volume) -> bool {
        volume.reachable_from(self.place.name(), &self.place.meta.labels)
    }

    fn add(&mut self, want: &Want, means: Means) {
        let (claim, uid) = (want.claim.key().clone(), want.claim.uid().clone());
        self.steps.push(Step { claim, uid, means, asked: false });
    }

    fn found(mut self) -> Found {
        self.steps.sort_by(|a, b| a.means.cmp(&b.means).then_with(|| a.claim.cmp(&b.claim)));
        // With volumes that exist, only those are compared.
        let score = score(if self.existing.is_empty() { &self.made } else { &self.existing });
        Found { steps: self.steps, score }
    }

    /// SCHED-F2 to SCHED-F4: each delayed claim, the smallest first.
    fn delayed(&mut self, wants: &[Want]) -> Result<(), Refusal> {
        let mut waiting: Vec<(&Want, &Class, &Hold)> = Vec::new();
        for want in wants {
            if let State::Delayed { class, hold } = &want.state {
                waiting.push((want, class, hold));
            }
        }
        // SCHED-F2 first: a claim that is meant for another node ends the matter, whatever else could be found.
        let apart = |hold: &Hold| matches!(hold, Hold::Node(node) if **node != *self.place.name());
        if waiting.iter().any(|(_, _, hold)| apart(hold)) {
            return Err(Refusal::NothingToBind);
        }
        waiting.sort_by_key(|(want, _, _)| (want.claim.request_bytes(), want.claim.key().clone()));
        let mut left = Vec::new();
        for (want, class, hold) in waiting {
            match hold {
                Hold::Node(_) => self.add(want, Means::Make),
                Hold::Volume(volume) if !self.reaches(volume) => return Err(Refusal::VolumeElsewhere),
                Hold::Volume(volume) => self.add(want, held(want, volume)),
                Hold::Nothing if self.take(want, class) => {}
                Hold::Nothing => left.push((want, class)),
            }
        }
        left.into_iter().try_for_each(|(want, class)| self.make(want, class))
    }

    /// SCHED-F3: the smallest free volume that fits, if there is one.
    fn take(&mut self, want: &Want, class: &Class) -> bool {
        let on = On { name: self.place.name(), labels: &self.place.meta.labels };
        let Offer::Free(volume) = self.reserved.shelf.offer_on(&want.claim, on, &self.taken) else { return false };
        let name = Word::new(volume.name());
        self.taken.insert(name.clone());
        let share = asked(&mut self.existing, class, want);
        share.of = share.of.saturating_add(volume.capacity_bytes());
        self.add(want, Means::Volume { volume: name });
        true
    }

    /// SCHED-F4: somebody makes volumes of the class, for this node, and there is room.
    fn make(&mut self, want: &Want, class: &Class) -> Result<(), Refusal> {
        let labels = &self.place.meta.labels;
        if matches!(&*class.provisioner, "" | provisioner::NONE) {
            return Err(Refusal::NothingToBind);
        }
        let allowed = &class.allowed_topologies;
        if !allowed.is_empty() && !allowed.iter().any(|term| term.matches(labels)) {
            return Err(Refusal::NothingToBind);
        }
        let bytes = want.claim.request_bytes();
        let name = Word::new(class.name());
        if let Some(rooms) = self.reserved.rooms.get(&name).filter(|_| bytes > 0) {
            let room = rooms.take(labels, bytes, self.takes.entry(name).or_default()).ok_or(Refusal::NoRoom)?;
            // Assigned, not summed: the claims of a class share one room.
            let of = room.capacity.as_ref().or(room.limit()).map_or(0, Amount::bytes);
            asked(&mut self.made, class, want).of = of;
        }
        self.add(want, Means::Make);
        Ok(())
    }
}

fn held(want: &Want, volume: &Volume) -> Means {
    let name = Word::new(volume.name());
    match volume.designates(&want.claim) {
        true => Means::Designated { volume: name },
        // Promised to another pod with the same claim: whoever comes first writes it.
        false => Means::Volume { volume: name },
    }
}

fn asked<'a>(shares: &'a mut Shares, class: &Class, want: &Want) -> &'a mut Share {
    let share = shares.entry(Word::new(class.name())).or_default();
    share.asked = share.asked.saturating_add(want.claim.request_bytes());
    share
}

/// The default shape: the less of the room is asked for, the better; the mean over the classes, rounded.
fn score(shares: &Shares) -> u64 {
    let free = |share: &Share| match share.of > 0 && share.asked <= share.of {
        true => 100 - u64::try_from(i128::from(share.asked) * 100 / i128::from(share.of)).unwrap_or(100),
        false => 0,
    };
    let count = u64::try_from(shares.len()).unwrap_or(1).max(1);
    (shares.values().map(free).sum::<u64>() * 2 + count) / (2 * count)
}
