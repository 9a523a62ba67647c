//! Taking fields out of a value, and bringing owned fields in line with a type that has changed.

use serde_json::{Map, Value};

use super::path::{Path, Step};
use super::set::{FieldSet, Part};
use super::shape::{Atom, ItemKind, Listing, Mapping, Shape, Unity};

/// The value without these fields. A container that loses its last part stays, empty.
pub fn remove(value: &Value, gone: &FieldSet, shape: Shape<'_>) -> Value {
    match (shape.atom(Some(value)), value) {
        (Atom::List(list), Value::Array(items)) => Value::Array(remove_items(&list, items, gone)),
        (Atom::Map(map), Value::Object(fields)) => Value::Object(remove_fields(&map, fields, gone)),
        _ => value.clone(),
    }
}

fn remove_items(list: &Listing<'_>, items: &[Value], gone: &FieldSet) -> Vec<Value> {
    if list.is_atomic() {
        return Vec::new();
    }
    let kept = items.iter().filter_map(|item| {
        let Ok(step) = list.step(item) else { return Some(item.clone()) };
        match gone.below(&step) {
            _ if gone.has(&step) => None,
            Some(below) => Some(remove(item, below, list.item)),
            None => Some(item.clone()),
        }
    });
    kept.collect()
}

fn remove_fields(map: &Mapping<'_>, fields: &Map<String, Value>, gone: &FieldSet) -> Map<String, Value> {
    if map.unity == Unity::Atomic {
        return Map::new();
    }
    let kept = fields.iter().filter_map(|(name, value)| {
        let step = Step::field(name);
        let left = match (gone.below(&step), map.child(name)) {
            _ if gone.has(&step) => return None,
            (Some(below), Some(shape)) => remove(value, below, shape),
            _ => value.clone(),
        };
        Some((name.clone(), left))
    });
    kept.collect()
}

/// The set with every named field that has owned fields below it. To remove all of a struct is to remove the struct.
pub(super) fn with_named_parents(set: &FieldSet, shape: Option<Shape<'_>>) -> FieldSet {
    let map = shape.map(|shape| shape.atom(None));
    let map = match &map {
        Some(Atom::Map(map)) => Some(map),
        _ => None,
    };
    let list = match shape.map(|shape| shape.atom(Some(&Value::Array(Vec::new())))) {
        Some(Atom::List(list)) => Some(list),
        _ => None,
    };
    let mut all = FieldSet::new();
    for (step, part) in set.parts() {
        let has_parts = !part.below.is_empty();
        let (named, child) = match step {
            Step::Field(name) => {
                let declared = map.is_some_and(|map| map.declared(name).is_some());
                (declared && has_parts, map.and_then(|map| map.child(name)))
            }
            Step::Key(_) => (false, list.as_ref().map(|list| list.item)),
            Step::Value(_) | Step::Index(_) => (false, None),
        };
        let below = if has_parts { with_named_parents(&part.below, child) } else { FieldSet::new() };
        all.push(step.clone(), Part { itself: part.itself || named, below });
    }
    all
}

/// The set after its type has changed: what is atomic now is owned as a whole by those who owned a part of it.
pub(super) fn reconcile(set: &mut FieldSet, shape: Shape<'_>) {
    let mut wholes = FieldSet::new();
    find_wholes(set, shape, &mut Vec::new(), &mut wholes);
    if !wholes.is_empty() {
        set.subtract_below(&wholes);
        set.absorb(wholes);
    }
}

/// Collects the paths of atomic values that have owned parts.
fn find_wholes(set: &FieldSet, shape: Shape<'_>, path: &mut Path, wholes: &mut FieldSet) {
    match shape.atom(None) {
        Atom::Scalar(_) => {}
        Atom::Map(map) if map.is_deduced() => {}
        Atom::Map(map) if map.unity == Unity::Atomic => {
            if !set.is_empty() {
                wholes.insert(path);
            }
        }
        Atom::Map(map) => descend(set, path, wholes, |step| match step {
            Step::Field(name) => map.child(name),
            _ => map.child(""),
        }),
        Atom::List(list) if matches!(list.kind, ItemKind::Atomic) => wholes.insert(path),
        Atom::List(list) => descend(set, path, wholes, |_| Some(list.item)),
    }
}

fn descend<'a>(set: &FieldSet, path: &mut Path, wholes: &mut FieldSet, child: impl Fn(&Step) -> Option<Shape<'a>>) {
    for (step, below) in set.children() {
        let Some(shape) = child(step) else { continue };
        path.push(step.clone());
        find_wholes(below, shape, path, wholes);
        path.pop();
    }
}
