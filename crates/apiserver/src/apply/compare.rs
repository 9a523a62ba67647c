//! What changed between two versions of an object, field by field.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::path::{Path, Step, same};
use super::set::FieldSet;
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
    pub(super) fn without(self, ignored: &FieldSet) -> Comparison {
        if ignored.is_empty() {
            return self;
        }
        Comparison {
            added: self.added.without_below(ignored),
            modified: self.modified.without_below(ignored),
            removed: self.removed.without_below(ignored),
        }
    }
}

/// Compares two versions of a value of one type.
pub fn compare(old: &Value, new: &Value, shape: Shape<'_>) -> Result<Comparison, Misfits> {
    let mut comparer = Comparer { path: Vec::new(), found: Comparison::default() };
    comparer.visit(Sides { old: Some(old), new: Some(new) }, shape)?;
    Ok(comparer.found)
}

#[derive(Clone, Copy)]
struct Sides<'v> {
    old: Option<&'v Value>,
    new: Option<&'v Value>,
}

/// Whether a value was compared as one whole.
#[derive(PartialEq, Eq)]
enum Visited {
    Whole,
    Parts,
}

struct Comparer {
    path: Path,
    found: Comparison,
}

impl Comparer {
    fn visit(&mut self, sides: Sides<'_>, shape: Shape<'_>) -> Result<(), Misfits> {
        let (old, new) = (shape.atom(sides.old), shape.atom(sides.new));
        let visited = match (sides.old, sides.new) {
            (_, None) => self.visit_atom(sides, &old)?,
            (None, _) => self.visit_atom(sides, &new)?,
            _ => {
                // An undeclared value may have become of another kind: it is compared as both.
                if std::mem::discriminant(&old) != std::mem::discriminant(&new) {
                    self.visit_atom(sides, &old)?;
                }
                self.visit_atom(sides, &new)?
            }
        };
        if visited == Visited::Parts {
            match (sides.old, sides.new) {
                (None, _) => self.found.added.insert(&self.path),
                (_, None) => self.found.removed.insert(&self.path),
                _ => {}
            }
        }
        Ok(())
    }

    fn visit_atom(&mut self, sides: Sides<'_>, atom: &Atom<'_>) -> Result<Visited, Misfits> {
        match atom {
            Atom::Scalar(scalar) => {
                let misfit = |side: Option<&Value>| side.and_then(|value| scalar_misfit(*scalar, value));
                if let (Some(old), Some(_)) = (misfit(sides.old), misfit(sides.new)) {
                    return Err(Misfits::one(&self.path, format!("lhs: {old}")));
                }
                Ok(self.whole(sides))
            }
            Atom::List(list) => {
                let (old, new) = (items(sides.old), items(sides.new));
                if list.is_atomic() || (old.is_empty() && new.is_empty()) {
                    return Ok(self.whole(sides));
                }
                self.visit_items(list, old, new)
            }
            Atom::Map(map) => {
                let (old, new) = (fields(sides.old), fields(sides.new));
                // Two empty values are compared as wholes: null and empty differ.
                let both_empty = old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty);
                if map.unity == Unity::Atomic || both_empty {
                    return Ok(self.whole(sides));
                }
                self.visit_fields(map, old, new)
            }
        }
    }

    fn whole(&mut self, sides: Sides<'_>) -> Visited {
        match (sides.old, sides.new) {
            (None, _) => self.found.added.insert(&self.path),
            (_, None) => self.found.removed.insert(&self.path),
            (Some(old), Some(new)) if !same(old, new) => self.found.modified.insert(&self.path),
            _ => {}
        }
        Visited::Whole
    }

    fn visit_fields(&mut self, map: &Mapping<'_>, old: Fields<'_>, new: Fields<'_>) -> Result<Visited, Misfits> {
        let mut pairs: BTreeMap<&str, Sides<'_>> = BTreeMap::new();
        for (name, value) in old.into_iter().flatten() {
            pairs.insert(name, Sides { old: Some(value), new: None });
        }
        for (name, value) in new.into_iter().flatten() {
            pairs.entry(name).or_insert(Sides { old: None, new: None }).new = Some(value);
        }
        for (name, sides) in pairs {
            self.path.push(Step::field(name));
            let child = map.child(name).ok_or_else(|| Misfits::one(&self.path, "field not declared in schema".into()));
            let outcome = child.and_then(|shape| self.visit(sides, shape));
            self.path.pop();
            outcome?;
        }
        Ok(Visited::Parts)
    }

    fn visit_items(&mut self, list: &Listing<'_>, old: &[Value], new: &[Value]) -> Result<Visited, Misfits> {
        let mut pairs: BTreeMap<Step, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for (index, item) in old.iter().enumerate() {
            pairs.entry(self.step(list, index, item)?).or_default().0.push(item);
        }
        for (index, item) in new.iter().enumerate() {
            pairs.entry(self.step(list, index, item)?).or_default().1.push(item);
        }
        for (step, (old, new)) in pairs {
            self.path.push(step);
            let outcome = self.visit_item(list, &old, &new);
            self.path.pop();
            outcome?;
        }
        Ok(Visited::Parts)
    }

    fn step(&self, list: &Listing<'_>, index: usize, item: &Value) -> Result<Step, Misfits> {
        list.step(item).map_err(|why| Misfits::one(&self.path, format!("element {index}: {why}")))
    }

    /// Items that are there twice are one whole on their side.
    fn visit_item(&mut self, list: &Listing<'_>, old: &[&Value], new: &[&Value]) -> Result<(), Misfits> {
        match (old, new) {
            ([], []) => Ok(()),
            ([] | [_], [] | [_]) => {
                self.visit(Sides { old: old.first().copied(), new: new.first().copied() }, list.item)
            }
            ([_, _, ..], [_, _, ..]) => {
                let unchanged = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new));
                if !unchanged {
                    self.found.modified.insert(&self.path);
                }
                Ok(())
            }
            ([_, _, ..], _) => {
                if let [only] = new {
                    self.visit(Sides { old: None, new: Some(only) }, list.item)?;
                }
                self.found.removed.insert(&self.path);
                Ok(())
            }
            (_, [_, _, ..]) => {
                if let [only] = old {
                    self.visit(Sides { old: Some(only), new: None }, list.item)?;
                }
                self.found.added.insert(&self.path);
                Ok(())
            }
        }
    }
}

type Fields<'v> = Option<&'v Map<String, Value>>;

fn fields(value: Option<&Value>) -> Fields<'_> {
    value.and_then(Value::as_object)
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
