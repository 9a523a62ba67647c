//! Where a volume may go, and where it is (PROVISION-2.9).
//!
//! # Invariants
//! 1. Equal inputs give equal requirements: nothing depends on the order of lists or on chance.
//! 2. Only nodes that run the driver count. A place where it does not run would be promised for nothing.

use std::collections::{BTreeMap, BTreeSet};

use api::class::TopologyTerm;
use api::{CsiNode, Node, Pairs, Word};
use serde::{Deserialize, Serialize};

use crate::decision::Lookup;

/// A place: labels with their values, in order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Term(pub BTreeMap<String, String>);

impl Term {
    /// The pairs of a node's labels under these keys; `None` if one is missing.
    pub fn of_node(keys: &[Word], labels: &Pairs) -> Option<Term> {
        keys.iter().map(|key| Some((key.to_string(), labels.get(key)?.to_owned()))).collect::<Option<_>>().map(Term)
    }

    /// Whether every pair is one of `other`'s.
    pub fn is_within(&self, other: &Term) -> bool {
        self.0.iter().all(|(key, value)| other.0.get(key) == Some(value))
    }

    /// Terms are ordered by length, then by their pairs.
    fn rank(&self) -> (usize, &BTreeMap<String, String>) {
        (self.0.len(), &self.0)
    }
}

/// What the driver is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    pub requisite: Vec<Term>,
    pub preferred: Vec<Term>,
}

/// Whether a delayed volume may go only to the chosen node's place (`--strict-topology`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strictness {
    #[default]
    Preferred,
    Strict,
}

/// Whether an immediate volume without allowed topologies gets a requirement (`--immediate-topology`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Immediate {
    #[default]
    Aggregated,
    Unconstrained,
}

/// Everything that decides where a volume may go.
#[derive(Debug)]
pub struct Seen<'a> {
    pub driver: &'a str,
    pub claim_name: &'a str,
    pub allowed: &'a [TopologyTerm],
    /// The node that the scheduler chose.
    pub selected: Option<Selected<'a>>,
    pub strictness: Strictness,
    pub immediate: Immediate,
    pub nodes: &'a dyn Nodes,
}

/// The nodes of the cluster, each with what its drivers say.
pub trait Nodes: std::fmt::Debug {
    /// In order of their names.
    fn visit(&self, visit: &mut dyn FnMut(&CsiNode, &Pairs));
}

#[derive(Debug, Clone, Copy)]
pub struct Selected<'a> {
    pub name: &'a str,
    pub csi_node: Lookup<'a, CsiNode>,
    pub node: Lookup<'a, Node>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// The node is gone: another has to be chosen.
    #[error("the selected node {node:?} has no CSINode: it is gone, or the driver never ran there")]
    NodeGone { node: String },
    #[error("the CSINode of {node:?} lists no topology keys for the driver {driver}; has the driver registered there?")]
    NoKeys { node: String, driver: String },
    #[error("the node {node:?} is not known")]
    NodeUnknown { node: String },
    #[error("the node {node:?} lacks one of the labels {keys}, which its driver says it has")]
    LabelMissing { node: String, keys: String },
    #[error("the selected node's topology {place:?} is in none of the class' allowed topologies")]
    NotAllowed { place: Term },
    #[error("no node runs the driver {driver} with topology labels yet")]
    NoNodes { driver: String },
}

/// What to tell the driver about places; `None` is nothing.
pub fn requirement(seen: &Seen<'_>) -> Result<Option<Requirement>, NoPlace> {
    let selected = seen.selected.as_ref().map(|selected| place_of(seen, selected)).transpose()?;
    let allowed = flatten(seen.allowed);
    if let (Some((_, place)), Strictness::Strict) = (&selected, seen.strictness) {
        if !allowed.is_empty() && !allowed.iter().any(|term| term.is_within(place)) {
            return Err(NoPlace::NotAllowed { place: place.clone() });
        }
        let only = vec![place.clone()];
        return Ok(Some(Requirement { requisite: only.clone(), preferred: only }));
    }
    let terms = if !seen.allowed.is_empty() {
        allowed
    } else if selected.is_none() && seen.immediate == Immediate::Unconstrained {
        return Ok(None);
    } else {
        aggregate(seen, selected.as_ref().map(|(keys, _)| *keys))?
    };
    let requisite = sorted(terms);
    if requisite.is_empty() {
        return Ok(None);
    }
    let first = match &selected {
        None => spread(seen.claim_name, requisite.len()),
        Some((_, place)) => requisite
            .iter()
            .position(|term| term.is_within(place))
            .ok_or_else(|| NoPlace::NotAllowed { place: place.clone() })?,
    };
    let mut preferred = requisite.clone();
    preferred.rotate_left(first);
    Ok(Some(Requirement { requisite, preferred }))
}

/// The selected node's keys and place.
fn place_of<'a>(seen: &Seen<'_>, selected: &Selected<'a>) -> Result<(&'a [Word], Term), NoPlace> {
    let node = || selected.name.to_owned();
    let csi_node = match selected.csi_node {
        Lookup::Found(csi_node) => csi_node,
        Lookup::Absent => return Err(NoPlace::NodeGone { node: node() }),
        Lookup::NotCached => return Err(NoPlace::NodeUnknown { node: node() }),
    };
    let keys = csi_node.driver(seen.driver).map(|driver| driver.topology_keys()).unwrap_or_default();
    if keys.is_empty() {
        return Err(NoPlace::NoKeys { node: node(), driver: seen.driver.to_owned() });
    }
    let Some(found) = selected.node.found() else {
        return Err(NoPlace::NodeUnknown { node: node() });
    };
    match Term::of_node(keys, &found.meta.labels) {
        Some(place) => Ok((keys, place)),
        None => {
            let keys = keys.iter().map(Word::as_str).collect::<Vec<_>>().join(", ");
            Err(NoPlace::LabelMissing { node: node(), keys })
        }
    }
}

/// `allowedTopologies` multiplied out: every expression of a term, one of its values each.
pub fn flatten(allowed: &[TopologyTerm]) -> Vec<Term> {
    let mut all = Vec::new();
    for term in allowed {
        let mut terms = vec![Term::default()];
        for expression in &term.match_label_expressions {
            let with = |term: &Term, value: &str| {
                let mut term = term.clone();
                term.0.insert(expression.key.to_string(), value.to_owned());
                term
            };
            terms = terms.iter().flat_map(|term| expression.values.iter().map(|value| with(term, value))).collect();
        }
        all.extend(terms.into_iter().filter(|term| !term.0.is_empty()));
    }
    all
}

/// The places of all nodes that run the driver and have these labels; without keys, those of the first node that has any.
fn aggregate(seen: &Seen<'_>, keys: Option<&[Word]>) -> Result<Vec<Term>, NoPlace> {
    let mut keys: Option<Box<[Word]>> = keys.map(Into::into);
    let mut terms = BTreeSet::new();
    seen.nodes.visit(&mut |csi_node, labels| {
        let own = csi_node.driver(seen.driver).map(|driver| driver.topology_keys()).unwrap_or_default();
        if own.is_empty() {
            return;
        }
        let keys = keys.get_or_insert_with(|| own.into());
        terms.extend(Term::of_node(keys, labels));
    });
    match terms.is_empty() {
        true => Err(NoPlace::NoNodes { driver: seen.driver.to_owned() }),
        false => Ok(terms.into_iter().collect()),
    }
}

fn sorted(mut terms: Vec<Term>) -> Vec<Term> {
    terms.sort_by(|a, b| a.rank().cmp(&b.rank()));
    terms.dedup();
    terms
}

/// Which of `n` places a claim's name prefers: replicas of one set spread, the claims of one replica stay together.
fn spread(claim_name: &str, n: usize) -> usize {
    let numbered = claim_name.rsplit_once('-').and_then(|(before, number)| {
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        Some((before, number.parse::<u32>().ok().filter(|_| digits)?))
    });
    let (hashed, index) = match numbered {
        Some((before, index)) => (before.rsplit_once('-').map_or(before, |(_, set)| set), index),
        None => (claim_name, 0),
    };
    let n = u32::try_from(n).unwrap_or(u32::MAX).max(1);
    usize::try_from(fnv1(hashed).wrapping_add(index) % n).unwrap_or(0)
}

/// 32-bit FNV-1: multiply, then mix in the byte.
fn fnv1(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte))
}
