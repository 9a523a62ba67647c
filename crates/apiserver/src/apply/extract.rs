//! The set of fields that a value has: its leaves, whole atomic values, items of sets and keyed lists, keys of maps.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::path::{Path, Step};
use super::set::FieldSet;
use super::shape::{Atom, Listing, Mapping, Shape, Unity};

/// The fields of a value.
pub fn fields_of(value: &Value, shape: Shape<'_>) -> FieldSet {
    let mut extractor = Extractor { path: Vec::new(), set: FieldSet::new() };
    extractor.visit(value, shape);
    extractor.set
}

struct Extractor {
    path: Path,
    set: FieldSet,
}

impl Extractor {
    fn own(&mut self) {
        self.set.insert(&self.path);
    }

    fn visit(&mut self, value: &Value, shape: Shape<'_>) {
        match (shape.atom(Some(value)), value) {
            (Atom::Scalar(_), _) => self.own(),
            (Atom::List(list), _) if list.is_atomic() => self.own(),
            (Atom::List(list), Value::Array(items)) => self.visit_items(&list, items),
            (Atom::Map(map), _) if map.unity == Unity::Atomic => self.own(),
            (Atom::Map(map), Value::Object(fields)) => self.visit_fields(&map, fields),
            (Atom::List(_) | Atom::Map(_), _) => {}
        }
    }

    fn visit_fields(&mut self, map: &Mapping<'_>, fields: &serde_json::Map<String, Value>) {
        for (name, value) in fields {
            self.path.push(Step::field(name));
            if let Some(shape) = map.child(name) {
                self.visit(value, shape);
            }
            let is_empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
            // A key of a map is owned besides what is below it; a field of a struct only when nothing is below it.
            if is_empty || map.declared(name).is_none() {
                self.own();
            }
            self.path.pop();
        }
    }

    /// An item that is there twice is owned as a whole: nobody can say which of the two is meant.
    fn visit_items(&mut self, list: &Listing<'_>, items: &[Value]) {
        let steps: Vec<Option<Step>> = items.iter().map(|item| list.step(item).ok()).collect();
        let mut seen = BTreeMap::new();
        for step in steps.iter().flatten() {
            *seen.entry(step).or_insert(0_usize) += 1;
        }
        let repeated: BTreeSet<&Step> =
            seen.into_iter().filter(|(_, times)| *times > 1).map(|(step, _)| step).collect();
        for (step, item) in steps.iter().zip(items) {
            let Some(step) = step else { continue };
            self.path.push(step.clone());
            if !repeated.contains(step) {
                self.visit(item, list.item);
            }
            self.own();
            self.path.pop();
        }
    }
}
