//! The volumes that could be given away, sorted so that the right one is found without looking at the others.
//!
//! Upstream scans every volume for every claim (BIND-4.7). Here a volume stands in one of two places: with the
//! claim it names, or on the shelf of its class, mode, attributes class and access modes, ordered by size and then by
//! name. A claim looks first for the volumes that name it, across all access modes (CTRL-14.2), and then takes the
//! smallest one that fits from the shelf with the fewest access modes beyond those it asked for. Ties go to the smaller
//! name (CTRL-14.19).
//!
//! The shelf owns no text: rows order the volumes themselves, by what is written in them. With 100,000 volumes that is a
//! few megabytes instead of fifty.
//!
//! A scheduler asks for each node, and most volumes of a cluster with local disks can be reached from one node only. Those
//! stand a second time with the label that their nodes must have, so that a node sees its own and not all others.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use api::selector::{Operator, Requirement};
use api::{Amount, Claim, Key, Pairs, Volume, VolumeMode, VolumePhase, Word};

use super::compatible::{self, Mismatch};

/// Where a free volume stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    class: Word,
    mode: VolumeMode,
    attributes_class: Word,
    /// The access modes as a set.
    access: u8,
}

/// A volume in the order of its name, which is found by its name.
#[derive(Debug, Clone)]
struct Named(Arc<Volume>);

impl Ord for Named {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.name().cmp(other.0.name())
    }
}

impl PartialOrd for Named {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Named {}

impl Borrow<str> for Named {
    fn borrow(&self) -> &str {
        self.0.name()
    }
}

/// A volume that names a claim, in the order of that claim's key and then of its own name.
#[derive(Debug)]
enum Reserved {
    /// Before every volume that names this claim: where a search for them begins.
    Before(Box<Key>),
    Volume(Arc<Volume>),
}

impl Reserved {
    fn order(&self) -> (Option<&Key>, Option<&str>) {
        match self {
            Self::Before(key) => (Some(key), None),
            Self::Volume(volume) => (volume.claim.as_ref().map(|claim| &claim.key), Some(volume.name())),
        }
    }
}

impl Ord for Reserved {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Reserved {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Reserved {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Reserved {}

/// Volumes of one place: size, then name. A size alone stands before all volumes of that size.
type Row = BTreeSet<(Amount, Option<Named>)>;

/// Volumes by place.
type Rows = BTreeMap<Place, Row>;

/// A label, or the field of a node's name, and the one value it must have.
type Near = (Word, Word);

/// Every volume that is free or reserved.
#[derive(Debug, Default)]
pub struct Shelf {
    volumes: BTreeSet<Named>,
    /// All free ones.
    free: Rows,
    /// Of those, the ones that need no certain label of a node.
    open: Rows,
    /// The others by that label.
    near: BTreeMap<Near, Rows>,
    /// The keys of these labels, and how many volumes have each.
    near_keys: BTreeMap<Word, usize>,
    /// Those that name a claim.
    reserved: BTreeSet<Reserved>,
}

/// What the shelf has for a claim.
#[derive(Debug, Clone)]
pub enum Offer {
    /// A volume names the claim and suits it.
    Designated(Arc<Volume>),
    /// A volume names the claim and does not suit it. Nothing else is given: whoever reserved it meant it (CTRL-14.3).
    Unsuitable(Arc<Volume>, Mismatch),
    /// The smallest free volume that fits.
    Free(Arc<Volume>),
    Nothing,
}

/// Where a claim's volume has to be reachable from, when that is known.
#[derive(Debug, Clone, Copy)]
pub struct On<'a> {
    pub name: &'a str,
    pub labels: &'a Pairs,
}

impl Shelf {
    /// Puts a volume where it belongs now; a later state replaces an earlier one.
    pub fn put(&mut self, volume: Arc<Volume>) {
        self.remove(volume.name());
        match &volume.claim {
            Some(_) => {
                self.reserved.insert(Reserved::Volume(volume.clone()));
            }
            None if free(&volume) => self.shelve(&volume),
            None => return,
        }
        self.volumes.insert(Named(volume));
    }

    pub fn remove(&mut self, name: &str) {
        let Some(Named(old)) = self.volumes.take(name) else { return };
        match old.claim {
            Some(_) => drop(self.reserved.remove(&Reserved::Volume(old))),
            None => self.unshelve(&old),
        }
    }

    fn shelve(&mut self, volume: &Arc<Volume>) {
        let (place, row) = (place(volume), (volume.size(), Some(Named(volume.clone()))));
        let rows = match near(volume) {
            None => &mut self.open,
            Some(near) => {
                *self.near_keys.entry(near.0.clone()).or_default() += 1;
                self.near.entry(near).or_default()
            }
        };
        rows.entry(place.clone()).or_default().insert(row.clone());
        self.free.entry(place).or_default().insert(row);
    }

    fn unshelve(&mut self, volume: &Arc<Volume>) {
        let (place, row) = (place(volume), (volume.size(), Some(Named(volume.clone()))));
        discard(&mut self.free, &place, &row);
        let Some(near) = near(volume) else { return discard(&mut self.open, &place, &row) };
        if let Some(rows) = self.near.get_mut(&near) {
            discard(rows, &place, &row);
            if rows.is_empty() {
                self.near.remove(&near);
            }
        }
        if let Some(count) = self.near_keys.get_mut(&near.0) {
            *count -= 1;
            if *count == 0 {
                self.near_keys.remove(&near.0);
            }
        }
    }

    /// What the binder offers: volumes that name the claim first, then the smallest that fits.
    pub fn offer(&self, claim: &Claim) -> Offer {
        match self.designated(claim) {
            Some(volume) => match compatible::designated(claim, &volume) {
                Ok(()) => Offer::Designated(volume),
                Err(mismatch) => Offer::Unsuitable(volume, mismatch),
            },
            None => smallest(&self.free, claim, |_| true).map_or(Offer::Nothing, Offer::Free),
        }
    }

    /// What the scheduler offers on one node: the same, reachable from there and not yet promised to another claim.
    pub fn offer_on(&self, claim: &Claim, node: On<'_>, taken: &BTreeSet<Word>) -> Offer {
        let reachable = |volume: &Volume| volume.reachable_from(node.name, node.labels);
        match self.designated(claim) {
            // Rule 8: a volume that names the claim decides alone, also against this node.
            Some(volume) if !reachable(&volume) => Offer::Nothing,
            Some(volume) => match compatible::designated(claim, &volume) {
                Ok(()) => Offer::Designated(volume),
                Err(mismatch) => Offer::Unsuitable(volume, mismatch),
            },
            None => {
                let allowed = |volume: &Volume| reachable(volume) && !taken.contains(&Word::new(volume.name()));
                let rows = std::iter::once(&self.open).chain(self.near(node));
                let found = rows.filter_map(|rows| smallest(rows, claim, allowed));
                let order = |volume: &Arc<Volume>| {
                    let access = volume.access.set();
                    (access.count_ones(), access, volume.size(), Word::new(volume.name()))
                };
                found.min_by_key(order).map_or(Offer::Nothing, Offer::Free)
            }
        }
    }

    /// The volumes that stand with a label of this node.
    fn near<'a>(&'a self, node: On<'a>) -> impl Iterator<Item = &'a Rows> {
        self.near_keys.keys().filter_map(move |key| {
            let value = if **key == *NAME_FIELD { Some(node.name) } else { node.labels.get(key) };
            self.near.get(&(key.clone(), Word::new(value?)))
        })
    }

    /// The volume that names this claim. One that knows its uid counts before one that only knows its name.
    fn designated(&self, claim: &Claim) -> Option<Arc<Volume>> {
        let from = self.reserved.range(Reserved::Before(Box::new(claim.key().clone()))..);
        let volumes = from.filter_map(|reserved| match reserved {
            Reserved::Volume(volume) => Some(volume),
            Reserved::Before(_) => None,
        });
        let naming = volumes.take_while(|volume| volume.claim.as_ref().is_some_and(|named| named.key == *claim.key()));
        let designating = naming.filter(|volume| volume.designates(claim));
        let by_bond = |volume: &&Arc<Volume>| volume.claim.as_ref().is_some_and(|reference| reference.uid.is_none());
        let suits = |volume: &&Arc<Volume>| compatible::designated(claim, volume).is_err();
        designating.min_by_key(|volume| (by_bond(volume), suits(volume), volume.size())).cloned()
    }

    /// Free volumes of a class, for a scheduler that wants to know whether looking is worth it, and for `explain`.
    pub fn free_of_class<'a>(&'a self, class: &str) -> impl Iterator<Item = &'a Arc<Volume>> {
        let class = Word::new(class);
        let shelves = self.free.iter().filter(move |(place, _)| place.class == class);
        shelves.flat_map(|(_, shelf)| volumes(shelf.iter()))
    }

    pub fn len(&self) -> usize {
        self.volumes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty()
    }
}

/// The smallest volume of these that suits the claim and is allowed.
fn smallest(rows: &Rows, claim: &Claim, allowed: impl Fn(&Volume) -> bool) -> Option<Arc<Volume>> {
    if claim.access.has_unknown() {
        return None;
    }
    let mut shelves = shelves(rows, claim);
    // Fewest access modes first; the set itself breaks ties, so that the order never depends on chance.
    shelves.sort_by_key(|(access, _)| (access.count_ones(), *access));
    let found = shelves.into_iter().try_for_each(|(_, shelf)| {
        let fits = volumes(shelf.range((claim.size(), None)..));
        let mut suiting = fits.filter(|volume| compatible::picked(claim, volume).is_ok() && allowed(volume));
        suiting.next().map_or(ControlFlow::Continue(()), |volume| ControlFlow::Break(volume.clone()))
    });
    found.break_value()
}

fn volumes<'a>(row: impl Iterator<Item = &'a (Amount, Option<Named>)>) -> impl Iterator<Item = &'a Arc<Volume>> {
    row.filter_map(|(_, named)| named.as_ref().map(|Named(volume)| volume))
}

/// The shelves whose volumes have every access mode the claim asks for.
fn shelves<'a>(rows: &'a Rows, claim: &Claim) -> Vec<(u8, &'a Row)> {
    let wanted = claim.access.set();
    let with = |access| Place {
        class: Word::new(claim.class().text()),
        mode: claim.mode,
        attributes_class: Word::new(claim.attributes_class()),
        access,
    };
    let all = with(0)..=with(u8::MAX);
    let offering = rows.range(all).filter(|(place, _)| place.access & wanted == wanted);
    offering.map(|(place, shelf)| (place.access, shelf)).collect()
}

/// The one field of a node that a volume can ask for. No label can have this name.
const NAME_FIELD: &str = "field metadata.name";

/// What every node that reaches a volume must have: of the only alternative, a key with one value.
fn near(volume: &Volume) -> Option<Near> {
    let [term] = &*volume.affinity.as_ref()?.node_selector_terms else { return None };
    let only = |requirement: &Requirement| match (requirement.operator, &*requirement.values) {
        (Operator::In, [value]) => Some(value.clone()),
        _ => None,
    };
    let named = term.match_fields.iter().find_map(|field| Some((Word::new(NAME_FIELD), only(field)?)));
    named.or_else(|| term.match_expressions.iter().find_map(|label| Some((label.key.clone(), only(label)?))))
}

/// Rules 6 and 10: a volume that is going, or that is not yet known to be available, is not offered.
fn free(volume: &Volume) -> bool {
    volume.phase == VolumePhase::Available && !volume.meta.is_deleting()
}

fn place(volume: &Volume) -> Place {
    Place {
        class: Word::new(volume.class().text()),
        mode: volume.mode,
        attributes_class: Word::new(volume.attributes_class()),
        access: volume.access.set(),
    }
}

/// Takes one entry out, and its set with it when that was the last.
fn discard<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = map.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(key);
        }
    }
}
