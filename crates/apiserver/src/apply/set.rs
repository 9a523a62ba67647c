//! Sets of fields, and their form in managedFields (FieldsV1).
//!
//! Invariant: a child set is never empty; a path is in the set when its last step is a member where the steps before it
//! lead. A field and the fields below it are owned apart from each other.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use thiserror::Error;

use super::path::{Path, Step, StepError};

/// A set of fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    members: BTreeSet<Step>,
    children: BTreeMap<Step, FieldSet>,
}

/// Why a FieldsV1 value cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FieldsError {
    #[error("expected a map of fields, got {0}")]
    NotAMap(&'static str),
    #[error("parsing key as path element: {0}")]
    Step(StepError),
}

impl FieldSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// The set of these paths of plain field names: `FieldSet::of(&[&["status"], &["metadata", "name"]])`.
    pub fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(&path.iter().map(|name| Step::field(name)).collect::<Path>());
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// Adds a path; the root itself is never a member.
    pub fn insert(&mut self, path: &[Step]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub fn contains(&self, path: &[Step]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|child| child.contains(rest)),
        }
    }

    pub(super) fn has(&self, step: &Step) -> bool {
        self.members.contains(step)
    }

    /// The set below a step: its prefix view.
    pub fn below(&self, step: &Step) -> Option<&FieldSet> {
        self.children.get(step)
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Step> {
        self.members.iter()
    }

    pub(super) fn children(&self) -> impl Iterator<Item = (&Step, &FieldSet)> {
        self.children.iter()
    }

    pub(super) fn from_parts(members: BTreeSet<Step>, children: BTreeMap<Step, FieldSet>) -> Self {
        let children = children.into_iter().filter(|(_, child)| !child.is_empty()).collect();
        Self { members, children }
    }

    pub fn union(&self, other: &FieldSet) -> FieldSet {
        let mut all = self.clone();
        all.absorb(other);
        all
    }

    /// Adds every path of another set.
    pub fn absorb(&mut self, other: &FieldSet) {
        self.members.extend(other.members.iter().cloned());
        for (step, theirs) in &other.children {
            self.children.entry(step.clone()).or_default().absorb(theirs);
        }
    }

    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let shared = self.children.iter().filter_map(|(step, mine)| {
            other.children.get(step).map(|theirs| (step.clone(), mine.intersection(theirs)))
        });
        FieldSet::from_parts(&self.members & &other.members, shared.collect())
    }

    /// The paths of this set that are not in the other one.
    pub fn difference(&self, other: &FieldSet) -> FieldSet {
        let left = self.children.iter().map(|(step, mine)| match other.children.get(step) {
            Some(theirs) => (step.clone(), mine.difference(theirs)),
            None => (step.clone(), mine.clone()),
        });
        FieldSet::from_parts(&self.members - &other.members, left.collect())
    }

    /// The paths of this set that are neither in the other one nor below a path of it.
    pub fn without_below(&self, other: &FieldSet) -> FieldSet {
        let left =
            self.children.iter().filter(|(step, _)| !other.members.contains(step)).map(|(step, mine)| {
                match other.children.get(step) {
                    Some(theirs) => (step.clone(), mine.without_below(theirs)),
                    None => (step.clone(), mine.clone()),
                }
            });
        FieldSet::from_parts(&self.members - &other.members, left.collect())
    }

    /// Every path: what is owned at a level comes before what is owned below it.
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Path, paths: &mut Vec<Path>) {
        for member in &self.members {
            let mut path = prefix.clone();
            path.push(member.clone());
            paths.push(path);
        }
        for (step, child) in &self.children {
            prefix.push(step.clone());
            child.collect(prefix, paths);
            prefix.pop();
        }
    }

    /// Reads FieldsV1. Steps of an unknown type are left out.
    pub fn decode(fields: &Value) -> Result<FieldSet, FieldsError> {
        Ok(decode_node(fields)?.0)
    }

    /// The set as FieldsV1.
    pub fn encode(&self) -> Value {
        let mut fields = Map::new();
        for member in &self.members {
            fields.insert(member.encode(), Value::Object(Map::new()));
        }
        for (step, child) in &self.children {
            let mut below = child.encode();
            if let (Value::Object(below), true) = (&mut below, self.members.contains(step)) {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            fields.insert(step.encode(), below);
        }
        Value::Object(fields)
    }
}

/// The set of a node, and whether the node itself is a member: it is when it says so or when nothing is below it.
fn decode_node(fields: &Value) -> Result<(FieldSet, bool), FieldsError> {
    let fields = match fields {
        Value::Object(fields) => fields,
        Value::Null => return Ok((FieldSet::new(), true)),
        Value::Array(_) => return Err(FieldsError::NotAMap("a list")),
        _ => return Err(FieldsError::NotAMap("a scalar")),
    };
    let mut set = FieldSet::new();
    let mut is_member = false;
    for (key, below) in fields {
        if key == "." {
            is_member = true;
            continue;
        }
        let step = match Step::decode(key) {
            Ok(step) => step,
            Err(StepError::UnknownType) => continue,
            Err(error) => return Err(FieldsError::Step(error)),
        };
        let (child, child_is_member) = decode_node(below)?;
        if child_is_member {
            set.members.insert(step.clone());
        }
        if !child.is_empty() {
            set.children.entry(step).or_default().absorb(&child);
        }
    }
    is_member |= set.is_empty();
    Ok((set, is_member))
}
