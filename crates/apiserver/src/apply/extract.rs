//! The set of fields that a value has: its leaves, whole atomic values, items of sets and keyed lists, keys of maps.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::path::Step;
use super::set::{FieldSet, Part};
use super::shape::{Atom, Listing, Mapping, Shape, Unity};

/// The fields of a value. Each part of the set is built once and in order, whatever order the items of lists have.
pub fn fields_of(value: &Value, shape: Shape<'_>) -> FieldSet {
    part_of(value, shape).below
}

fn part_of(value: &Value, shape: Shape<'_>) -> Part {
    let itself = || Part { itself: true, below: FieldSet::new() };
    match (shape.atom(Some(value)), value) {
        (Atom::Scalar(_), _) => itself(),
        (Atom::List(list), _) if list.is_atomic() => itself(),
        (Atom::List(list), Value::Array(items)) => Part { itself: false, below: items_of(&list, items) },
        (Atom::Map(map), _) if map.unity == Unity::Atomic => itself(),
        (Atom::Map(map), Value::Object(fields)) => Part { itself: false, below: fields_of_map(&map, fields) },
        (Atom::List(_) | Atom::Map(_), _) => Part::default(),
    }
}

fn fields_of_map(map: &Mapping<'_>, fields: &Map<String, Value>) -> FieldSet {
    let mut set = FieldSet::new();
    for (name, value) in fields {
        let mut part = map.child(name).map(|shape| part_of(value, shape)).unwrap_or_default();
        let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        // A key of a map is owned besides what is below it; a field of a struct only when nothing is below it.
        part.itself |= is_empty || map.declared(name).is_none();
        set.push(Step::field(name), part);
    }
    set
}

/// An item that is there twice is owned as a whole: nobody can say which of the two is meant.
fn items_of(list: &Listing<'_>, items: &[Value]) -> FieldSet {
    let mut by_step: BTreeMap<Step, Option<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(step) = list.step(item) {
            by_step.entry(step).and_modify(|item| *item = None).or_insert(Some(item));
        }
    }
    let mut set = FieldSet::new();
    for (step, item) in by_step {
        let below = item.map(|item| part_of(item, list.item).below).unwrap_or_default();
        set.push(step, Part { itself: true, below });
    }
    set
}
