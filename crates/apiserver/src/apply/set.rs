//! Sets of fields, and their form in managedFields (FieldsV1).
//!
//! Invariants: the nodes of a set are in the order of their steps, each step once; a node is a member itself, or has
//! something below it, or both. So equal sets have one form, and the algebra is one pass over two sorted lists that
//! moves what stays instead of copying it. A field and the fields below it are owned apart from each other.

use serde_json::{Map, Value};
use thiserror::Error;

use super::path::{Path, Step, StepError};

/// A set of fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    nodes: Vec<Node>,
}

/// What a set says about one step.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    step: Step,
    part: Part,
}

/// The part of a set at one place and below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// Whether the place itself is a member.
    pub(super) itself: bool,
    pub(super) below: FieldSet,
}

impl Part {
    pub(super) fn is_empty(&self) -> bool {
        !self.itself && self.below.is_empty()
    }

    pub(super) fn absorb(&mut self, other: Part) {
        self.itself |= other.itself;
        self.below.absorb(other.below);
    }
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
    pub const fn new() -> Self {
        Self { nodes: Vec::new() }
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
        self.nodes.is_empty()
    }

    /// Adds a path; the root itself is never a member.
    pub fn insert(&mut self, path: &[Step]) {
        let [first, rest @ ..] = path else { return };
        let part = self.part_mut(first);
        match rest {
            [] => part.itself = true,
            rest => part.below.insert(rest),
        }
    }

    pub fn contains(&self, path: &[Step]) -> bool {
        match path {
            [] => false,
            [last] => self.has(last),
            [first, rest @ ..] => self.below(first).is_some_and(|child| child.contains(rest)),
        }
    }

    pub(super) fn has(&self, step: &Step) -> bool {
        self.part(step).is_some_and(|part| part.itself)
    }

    /// The set below a step: its prefix view.
    pub fn below(&self, step: &Step) -> Option<&FieldSet> {
        self.part(step).map(|part| &part.below).filter(|below| !below.is_empty())
    }

    fn part(&self, step: &Step) -> Option<&Part> {
        let at = self.nodes.binary_search_by(|node| node.step.cmp(step)).ok()?;
        Some(&self.nodes[at].part)
    }

    /// The part at a step, which the caller fills.
    fn part_mut(&mut self, step: &Step) -> &mut Part {
        let at = match self.nodes.binary_search_by(|node| node.step.cmp(step)) {
            Ok(at) => at,
            Err(at) => {
                self.nodes.insert(at, Node { step: step.clone(), part: Part::default() });
                at
            }
        };
        &mut self.nodes[at].part
    }

    /// What there is at each step, in order.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&Step, &Part)> {
        self.nodes.iter().map(|node| (&node.step, &node.part))
    }

    /// What is below each step, in order.
    pub(super) fn children(&self) -> impl Iterator<Item = (&Step, &FieldSet)> {
        self.parts().map(|(step, part)| (step, &part.below)).filter(|(_, below)| !below.is_empty())
    }

    /// Adds a part; sets are built in the order of their steps.
    pub(super) fn push(&mut self, step: Step, part: Part) {
        if part.is_empty() {
            return;
        }
        match self.nodes.last() {
            Some(last) if last.step >= step => self.part_mut(&step).absorb(part),
            _ => self.nodes.push(Node { step, part }),
        }
    }

    pub fn union(&self, other: &FieldSet) -> FieldSet {
        let mut all = self.clone();
        all.absorb(other.clone());
        all
    }

    /// Adds every path of another set.
    pub fn absorb(&mut self, other: FieldSet) {
        if self.is_empty() {
            *self = other;
            return;
        }
        let room = Vec::with_capacity(self.nodes.len() + other.nodes.len());
        let mut mine = std::mem::replace(&mut self.nodes, room).into_iter().peekable();
        for theirs in other.nodes {
            while let Some(node) = mine.next_if(|node| node.step < theirs.step) {
                self.nodes.push(node);
            }
            self.nodes.push(match mine.next_if(|node| node.step == theirs.step) {
                Some(mut node) => {
                    node.part.absorb(theirs.part);
                    node
                }
                None => theirs,
            });
        }
        self.nodes.extend(mine);
    }

    /// Keeps the nodes that `keep` says, which is shown what the other set has at the same step.
    fn retain_beside(&mut self, other: &FieldSet, keep: impl Fn(&mut Part, Option<&Part>) -> bool) {
        let mut others = other.nodes.as_slice();
        self.nodes.retain_mut(|node| {
            others = &others[steps_before(others, &node.step)..];
            keep(&mut node.part, others.first().filter(|first| first.step == node.step).map(|first| &first.part))
        });
    }

    /// Takes away every path that is not in the other set, too.
    fn intersect(&mut self, other: &FieldSet) {
        self.retain_beside(other, |part, theirs| {
            let Some(theirs) = theirs else { return false };
            part.itself &= theirs.itself;
            part.below.intersect(&theirs.below);
            !part.is_empty()
        });
    }

    /// Takes away every path of the other set.
    pub(super) fn subtract(&mut self, other: &FieldSet) {
        self.retain_beside(other, |part, theirs| {
            let Some(theirs) = theirs else { return true };
            part.itself &= !theirs.itself;
            part.below.subtract(&theirs.below);
            !part.is_empty()
        });
    }

    /// Takes away every path of the other set and everything below it.
    pub(super) fn subtract_below(&mut self, other: &FieldSet) {
        self.retain_beside(other, |part, theirs| match theirs {
            None => true,
            Some(theirs) if theirs.itself => false,
            Some(theirs) => {
                part.below.subtract_below(&theirs.below);
                !part.is_empty()
            }
        });
    }

    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut shared = self.clone();
        shared.intersect(other);
        shared
    }

    /// The paths of this set that are not in the other one.
    pub fn difference(&self, other: &FieldSet) -> FieldSet {
        let mut left = self.clone();
        left.subtract(other);
        left
    }

    /// The paths of this set that are neither in the other one nor below a path of it.
    pub fn without_below(&self, other: &FieldSet) -> FieldSet {
        let mut left = self.clone();
        left.subtract_below(other);
        left
    }

    /// Every path: what is owned at a level comes before what is owned below it.
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Path, paths: &mut Vec<Path>) {
        for (step, _) in self.parts().filter(|(_, part)| part.itself) {
            let mut path = prefix.clone();
            path.push(step.clone());
            paths.push(path);
        }
        for (step, below) in self.children() {
            prefix.push(step.clone());
            below.collect(prefix, paths);
            prefix.pop();
        }
    }

    /// Reads FieldsV1. Steps of an unknown type are left out.
    pub fn decode(fields: &Value) -> Result<FieldSet, FieldsError> {
        Ok(decode_node(fields)?.below)
    }

    /// The set as FieldsV1.
    pub fn encode(&self) -> Value {
        Value::Object(self.encode_fields())
    }

    fn encode_fields(&self) -> Map<String, Value> {
        let node = |(step, part): (&Step, &Part)| {
            let mut below = part.below.encode_fields();
            if part.itself && !below.is_empty() {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (step.encode(), Value::Object(below))
        };
        self.parts().map(node).collect()
    }
}

/// How many of the first nodes are before a step. A small set beside a large one looks at few nodes of the large one: the
/// distance is doubled until it is too far, and then halved.
fn steps_before(nodes: &[Node], step: &Step) -> usize {
    let mut end = 1;
    while end <= nodes.len() && nodes[end - 1].step < *step {
        end *= 2;
    }
    let start = end / 2;
    start + nodes[start..nodes.len().min(end)].partition_point(|node| node.step < *step)
}

/// The part of a node. It is a member itself when it says so or when nothing is below it.
fn decode_node(fields: &Value) -> Result<Part, FieldsError> {
    let fields = match fields {
        Value::Object(fields) => fields,
        Value::Null => return Ok(Part { itself: true, below: FieldSet::new() }),
        Value::Array(_) => return Err(FieldsError::NotAMap("a list")),
        _ => return Err(FieldsError::NotAMap("a scalar")),
    };
    let mut part = Part::default();
    let mut nodes = Vec::with_capacity(fields.len());
    for (key, below) in fields {
        if key == "." {
            part.itself = true;
            continue;
        }
        let step = match Step::decode(key) {
            Ok(step) => step,
            Err(StepError::UnknownType) => continue,
            Err(error) => return Err(FieldsError::Step(error)),
        };
        nodes.push((step, decode_node(below)?));
    }
    // The order of texts is not quite that of steps: numbers differ.
    if !nodes.is_sorted_by(|left, right| left.0 <= right.0) {
        nodes.sort_by(|left, right| left.0.cmp(&right.0));
    }
    part.below.nodes.reserve_exact(nodes.len());
    for (step, below) in nodes {
        part.below.push(step, below);
    }
    part.itself |= part.below.is_empty();
    Ok(part)
}
