//! Whether a value fits its type: no undeclared fields, no wrong kinds, no item of a set or keyed list twice.
//!
//! The texts are part of the protocol (API-4.4): `.spec.foo: field not declared in schema`.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::path::{Path, Step, path_text};
use super::shape::{Atom, ItemKind, Listing, Mapping, Scalar, Shape};
use crate::patch::{go_syntax, go_text};

/// Every misfit of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfits(pub(super) Vec<Misfit>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Misfit {
    path: Path,
    message: String,
}

/// Whether an item of a set or keyed list may be there twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duplicates {
    Refused,
    /// Stored objects may have them: they were accepted before the list was a set.
    Allowed,
}

impl fmt::Display for Misfit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_slice() {
            [] => write!(out, "{}", self.message),
            path => write!(out, "{}: {}", path_text(path), self.message),
        }
    }
}

impl fmt::Display for Misfits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => write!(out, "{one}"),
            many => {
                write!(out, "errors:")?;
                many.iter().try_for_each(|misfit| write!(out, "\n  {misfit}"))
            }
        }
    }
}

impl std::error::Error for Misfits {}

impl Misfits {
    pub(super) fn one(path: &[Step], message: String) -> Self {
        Misfits(vec![Misfit { path: path.to_vec(), message }])
    }

    /// A misfit of the value that is being looked at; who looked into it adds the way there.
    pub(super) fn here(message: String) -> Self {
        Self::one(&[], message)
    }

    /// The same misfits, seen from one level higher.
    pub(super) fn below(mut self, step: Step) -> Self {
        self.0.iter_mut().for_each(|misfit| misfit.path.insert(0, step.clone()));
        self
    }
}

/// Misfits that are reported, and the bytes of their texts; the one that goes beyond is the last one.
const MOST_MISFITS: usize = 1_000;
const MOST_MISFIT_BYTES: usize = 1 << 20;

/// Checks a whole object.
pub(super) fn check(value: &Value, shape: Shape<'_>, duplicates: Duplicates) -> Result<(), Misfits> {
    let mut checker = Checker { duplicates, misfits: Vec::new(), room: MOST_MISFIT_BYTES };
    checker.visit(value, shape, &Place::Root);
    if checker.misfits.is_empty() { Ok(()) } else { Err(Misfits(checker.misfits)) }
}

struct Checker {
    duplicates: Duplicates,
    misfits: Vec<Misfit>,
    /// Bytes that are left for the texts of misfits.
    room: usize,
}

/// The way to a value. It is a path only for those who have to name it, which on a good object is nobody.
enum Place<'p> {
    Root,
    Field(&'p Place<'p>, &'p str),
    Item(&'p Place<'p>, &'p Step),
    Index(&'p Place<'p>, usize),
}

impl Place<'_> {
    fn path(&self) -> Path {
        let (above, step) = match self {
            Place::Root => return Path::new(),
            Place::Field(above, name) => (above, Step::field(name)),
            Place::Item(above, step) => (above, (*step).clone()),
            Place::Index(above, index) => (above, Step::Index(i64::try_from(*index).unwrap_or(i64::MAX))),
        };
        let mut path = above.path();
        path.push(step);
        path
    }
}

impl Checker {
    /// Notes a misfit unless there is no room: a path repeats the keys of all items above it.
    fn report(&mut self, place: &Place<'_>, message: String) {
        if self.misfits.len() >= MOST_MISFITS || self.room == 0 {
            return;
        }
        let misfit = Misfit { path: place.path(), message };
        self.room = self.room.saturating_sub(misfit.to_string().len());
        self.misfits.push(misfit);
    }

    fn visit(&mut self, value: &Value, shape: Shape<'_>, place: &Place<'_>) {
        match shape.atom(Some(value)) {
            Atom::Scalar(scalar) => {
                if let Some(message) = scalar_misfit(scalar, value) {
                    self.report(place, message);
                }
            }
            Atom::List(list) => match value {
                Value::Array(items) => self.visit_items(&list, items, place),
                Value::Null => {}
                other => self.report(place, format!("expected list, got &{{{}}}", go_text(other))),
            },
            Atom::Map(map) => match value {
                Value::Object(fields) => self.visit_fields(&map, fields, place),
                Value::Null => {}
                other => self.report(place, format!("expected map, got &{{{}}}", go_text(other))),
            },
        }
    }

    fn visit_fields(&mut self, map: &Mapping<'_>, fields: &serde_json::Map<String, Value>, place: &Place<'_>) {
        for (name, value) in fields {
            let here = Place::Field(place, name);
            match map.child(name) {
                Some(shape) => self.visit(value, shape, &here),
                // One undeclared field of a map is enough to refuse it.
                None => return self.report(&here, "field not declared in schema".to_owned()),
            }
        }
    }

    fn visit_items(&mut self, list: &Listing<'_>, items: &[Value], place: &Place<'_>) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            if let ItemKind::Atomic = list.kind {
                self.visit(item, list.item, &Place::Index(place, index));
                continue;
            }
            let step = match list.step(item) {
                Ok(step) => step,
                Err(why) => return self.report(place, format!("element {index}: {why}")),
            };
            if self.duplicates == Duplicates::Refused && !seen.insert(step.clone()) {
                self.report(place, format!("duplicate entries for key {step}"));
            }
            self.visit(item, list.item, &Place::Item(place, &step));
        }
    }
}

/// Why a value is not of a scalar type; null is of every type.
pub(super) fn scalar_misfit(scalar: Scalar, value: &Value) -> Option<String> {
    let fits = match (scalar, value) {
        (_, Value::Null) => true,
        (Scalar::Number, value) => value.is_number(),
        (Scalar::Text, value) => value.is_string(),
        (Scalar::Bool, value) => value.is_boolean(),
        (Scalar::Any, value) => !value.is_array() && !value.is_object(),
    };
    if fits {
        return None;
    }
    Some(match scalar {
        Scalar::Number => format!("expected numeric (int or float), got {}", go_type(value)),
        Scalar::Text => format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value)),
        Scalar::Bool => format!("expected boolean, got &{{{}}}", go_text(value)),
        Scalar::Any => format!("expected any scalar, got &{{{}}}", go_text(value)),
    })
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
