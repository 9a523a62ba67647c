//! What changed between two versions of an object, field by field.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::path::{Step, same};
use super::set::{FieldSet, Part};
use super::shape::{Atom, Listing, Mapping, Shape, Unity};
use super::validate::{Misfits, scalar_misfit};

/// The fields that differ; no field is in two of the sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

impl Comparison {
    /// The comparison as if these fields and everything below them did not exist.
    pub(super) fn without(mut self, ignored: &FieldSet) -> Comparison {
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            set.subtract_below(ignored);
        }
        self
    }
}

/// Compares two versions of a value of one type.
pub fn compare(old: &Value, new: &Value, shape: Shape<'_>) -> Result<Comparison, Misfits> {
    let found = visit(Sides { old: Some(old), new: Some(new) }, shape)?;
    // The root is no field, whatever became of it.
    let Difference { added, modified, removed } = found;
    Ok(Comparison { added: added.below, modified: modified.below, removed: removed.below })
}

#[derive(Clone, Copy)]
struct Sides<'v> {
    old: Option<&'v Value>,
    new: Option<&'v Value>,
}

/// What differs at one place and below it.
#[derive(Default)]
struct Difference {
    added: Part,
    modified: Part,
    removed: Part,
}

impl Difference {
    fn absorb(&mut self, other: Self) {
        self.added.absorb(other.added);
        self.modified.absorb(other.modified);
        self.removed.absorb(other.removed);
    }

    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Puts what was found at a step below this place. Most of what is compared is equal, so steps are made only here.
    fn put(&mut self, found: Self, step: impl FnOnce() -> Step) {
        if found.is_empty() {
            return;
        }
        let step = step();
        self.added.below.push(step.clone(), found.added);
        self.modified.below.push(step.clone(), found.modified);
        self.removed.below.push(step, found.removed);
    }
}

/// Whether a value was compared as one whole.
#[derive(PartialEq, Eq)]
enum Visited {
    Whole,
    Parts,
}

fn visit(sides: Sides<'_>, shape: Shape<'_>) -> Result<Difference, Misfits> {
    let (old, new) = (shape.atom(sides.old), shape.atom(sides.new));
    let mut found = Difference::default();
    let visited = match (sides.old, sides.new) {
        (_, None) => visit_atom(sides, &old, &mut found)?,
        (None, _) => visit_atom(sides, &new, &mut found)?,
        _ => {
            // An undeclared value may have become of another kind: it is compared as both.
            if std::mem::discriminant(&old) != std::mem::discriminant(&new) {
                visit_atom(sides, &old, &mut found)?;
            }
            visit_atom(sides, &new, &mut found)?
        }
    };
    if visited == Visited::Parts {
        match (sides.old, sides.new) {
            (None, _) => found.added.itself = true,
            (_, None) => found.removed.itself = true,
            _ => {}
        }
    }
    Ok(found)
}

fn visit_atom(sides: Sides<'_>, atom: &Atom<'_>, found: &mut Difference) -> Result<Visited, Misfits> {
    match atom {
        Atom::Scalar(scalar) => {
            let misfit = |side: Option<&Value>| side.and_then(|value| scalar_misfit(*scalar, value));
            if let Some(old) = misfit(sides.old)
                && misfit(sides.new).is_some()
            {
                return Err(Misfits::here(format!("lhs: {old}")));
            }
            Ok(whole(sides, found))
        }
        Atom::List(list) => {
            let (old, new) = (items(sides.old), items(sides.new));
            if list.is_atomic() || (old.is_empty() && new.is_empty()) {
                return Ok(whole(sides, found));
            }
            visit_items(list, old, new, found)
        }
        Atom::Map(map) => {
            let (old, new) = (fields(sides.old), fields(sides.new));
            // Two empty values are compared as wholes: null and empty differ.
            let both_empty = old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty);
            if map.unity == Unity::Atomic || both_empty {
                return Ok(whole(sides, found));
            }
            visit_fields(map, old, new, found)
        }
    }
}

fn whole(sides: Sides<'_>, found: &mut Difference) -> Visited {
    match (sides.old, sides.new) {
        (None, _) => found.added.itself = true,
        (_, None) => found.removed.itself = true,
        (Some(old), Some(new)) if !same(old, new) => found.modified.itself = true,
        _ => {}
    }
    Visited::Whole
}

/// Walks two maps together: both are in the order of their keys.
fn visit_fields(
    map: &Mapping<'_>,
    old: Fields<'_>,
    new: Fields<'_>,
    found: &mut Difference,
) -> Result<Visited, Misfits> {
    let mut old = old.into_iter().flatten().peekable();
    let mut new = new.into_iter().flatten().peekable();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return Ok(Visited::Parts),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((old, _)), Some((new, _))) => old.cmp(new),
        };
        let left = if order.is_le() { old.next() } else { None };
        let right = if order.is_ge() { new.next() } else { None };
        let Some((name, _)) = left.or(right) else { return Ok(Visited::Parts) };
        let sides = Sides { old: left.map(|(_, value)| value), new: right.map(|(_, value)| value) };
        let child = map.child(name).ok_or_else(|| Misfits::here("field not declared in schema".to_owned()));
        let below = child.and_then(|shape| visit(sides, shape)).map_err(|misfits| misfits.below(map.step(name)))?;
        found.put(below, || map.step(name));
    }
}

fn visit_items(list: &Listing<'_>, old: &[Value], new: &[Value], found: &mut Difference) -> Result<Visited, Misfits> {
    let mut pairs: BTreeMap<Step, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for (index, item) in old.iter().enumerate() {
        pairs.entry(item_step(list, index, item)?).or_default().0.push(item);
    }
    for (index, item) in new.iter().enumerate() {
        pairs.entry(item_step(list, index, item)?).or_default().1.push(item);
    }
    for (step, (old, new)) in pairs {
        match visit_item(list, &old, &new) {
            Ok(below) => found.put(below, || step),
            Err(misfits) => return Err(misfits.below(step)),
        }
    }
    Ok(Visited::Parts)
}

fn item_step(list: &Listing<'_>, index: usize, item: &Value) -> Result<Step, Misfits> {
    list.step(item).map_err(|why| Misfits::here(format!("element {index}: {why}")))
}

/// Items that are there twice are one whole on their side.
fn visit_item(list: &Listing<'_>, old: &[&Value], new: &[&Value]) -> Result<Difference, Misfits> {
    let mut found = Difference::default();
    match (old, new) {
        ([], []) => {}
        ([] | [_], [] | [_]) => {
            return visit(Sides { old: old.first().copied(), new: new.first().copied() }, list.item);
        }
        ([_, _, ..], [_, _, ..]) => {
            let unchanged = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new));
            found.modified.itself = !unchanged;
        }
        ([_, _, ..], _) => {
            if let [only] = new {
                found.absorb(visit(Sides { old: None, new: Some(only) }, list.item)?);
            }
            found.removed.itself = true;
        }
        (_, [_, _, ..]) => {
            if let [only] = old {
                found.absorb(visit(Sides { old: Some(only), new: None }, list.item)?);
            }
            found.added.itself = true;
        }
    }
    Ok(found)
}

type Fields<'v> = Option<&'v Map<String, Value>>;

fn fields(value: Option<&Value>) -> Fields<'_> {
    value.and_then(Value::as_object)
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
