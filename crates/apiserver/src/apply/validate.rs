//! Whether a value fits its type: no undeclared fields, no wrong kinds, no item of a set or keyed list twice.
//!
//! The texts are part of the protocol (4.4): `.spec.foo: field not declared in schema`.

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
}

/// Checks a whole object.
pub(super) fn check(value: &Value, shape: Shape<'_>, duplicates: Duplicates) -> Result<(), Misfits> {
    let mut checker = Checker { duplicates, path: Vec::new(), misfits: Vec::new() };
    checker.visit(value, shape);
    if checker.misfits.is_empty() { Ok(()) } else { Err(Misfits(checker.misfits)) }
}

struct Checker {
    duplicates: Duplicates,
    path: Path,
    misfits: Vec<Misfit>,
}

impl Checker {
    fn report(&mut self, message: String) {
        self.misfits.push(Misfit { path: self.path.clone(), message });
    }

    fn visit(&mut self, value: &Value, shape: Shape<'_>) {
        match shape.atom(Some(value)) {
            Atom::Scalar(scalar) => {
                if let Some(message) = scalar_misfit(scalar, value) {
                    self.report(message);
                }
            }
            Atom::List(list) => match value {
                Value::Array(items) => self.visit_items(&list, items),
                Value::Null => {}
                other => self.report(format!("expected list, got &{{{}}}", go_text(other))),
            },
            Atom::Map(map) => match value {
                Value::Object(fields) => self.visit_fields(&map, fields),
                Value::Null => {}
                other => self.report(format!("expected map, got &{{{}}}", go_text(other))),
            },
        }
    }

    fn visit_fields(&mut self, map: &Mapping<'_>, fields: &serde_json::Map<String, Value>) {
        for (name, value) in fields {
            self.path.push(Step::field(name));
            let child = map.child(name);
            match child {
                Some(shape) => self.visit(value, shape),
                None => self.report("field not declared in schema".to_owned()),
            }
            self.path.pop();
            // One undeclared field of a map is enough to refuse it.
            if child.is_none() {
                return;
            }
        }
    }

    fn visit_items(&mut self, list: &Listing<'_>, items: &[Value]) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let step = match &list.kind {
                ItemKind::Atomic => Step::Index(i64::try_from(index).unwrap_or(i64::MAX)),
                _ => match list.step(item) {
                    Ok(step) => step,
                    Err(why) => return self.report(format!("element {index}: {why}")),
                },
            };
            if !seen.insert(step.clone()) && self.duplicates == Duplicates::Refused {
                self.report(format!("duplicate entries for key {step}"));
            }
            self.path.push(step);
            self.visit(item, list.item);
            self.path.pop();
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
