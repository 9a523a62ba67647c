//! What Node and CSINode should say about the drivers of a machine (NODE-4.2, NODE-4.3, NODE-31.15).
//!
//! The whole is decided from the whole: which drivers are registered, what each said of the node, and what the objects say.
//! So it does not matter what was written last, by whom, or where a process died in between.
//!
//! # Invariants
//! 1. What is new on the Node is written before CSINode, what is old is taken off after it: a driver that CSINode lists
//!    has its node id and its labels.
//! 2. A label is never changed or removed unless the node's own record says that the agent put it there with that value.
//! 3. A driver that cannot be announced takes nothing away from the others; it is named with the reason.
//! 4. CSINode belongs to the Node of its name and uid, or is made anew.

mod labels;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use api::keys::annotation;
use api::node::{Allocatable, NodeDriver};
use api::{CsiNode, Node, Uid, Word};
use serde_json::Value;

use crate::decision::{Decision, Lookup, Reason, Standing};
use labels::Labels;

/// The longest node id that the API takes.
const LONGEST_ID: usize = 256;

/// What a driver said of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub driver: String,
    pub node_id: String,
    pub topology: BTreeMap<String, String>,
    /// How many volumes fit; `None` is no limit, or not known.
    pub limit: Option<i32>,
}

impl Said {
    /// Reads the limit of NodeGetInfo: nothing for 0 and less, and no more than the API can say (NODE-4.3).
    pub fn limit_of(volumes: i64) -> Option<i32> {
        (volumes > 0).then(|| i32::try_from(volumes).unwrap_or(i32::MAX))
    }

    fn entry(&self) -> NodeDriver {
        NodeDriver {
            name: Word::new(&self.driver),
            node_id: self.node_id.as_str().into(),
            topology_keys: Some(self.topology.keys().map(|key| Word::new(key)).collect()),
            allocatable: self.limit.map(|count| Allocatable { count: Some(count) }),
        }
    }
}

/// Drivers that are not registered and whose traces stay for now.
#[derive(Debug, Clone, Copy)]
pub enum Kept<'a> {
    /// The agent has just started: whoever was there may come back.
    Everybody,
    /// These left a moment ago.
    Only(&'a BTreeSet<String>),
}

impl Kept<'_> {
    fn has(&self, driver: &str) -> bool {
        match self {
            Self::Everybody => true,
            Self::Only(drivers) => drivers.contains(driver),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    pub node: Lookup<'a, Node>,
    pub csi_node: Lookup<'a, CsiNode>,
    /// In the order in which they came: of two that contradict each other the first is right.
    pub said: &'a [Said],
    pub kept: Kept<'a>,
    /// In-tree plugins whose volumes this node leaves to CSI drivers, sorted, with commas between.
    pub migrated: &'a str,
}

/// Why a driver cannot be announced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the driver gave the node no id; NodeGetInfo must answer with a node_id")]
    NoNodeId,
    #[error("the driver's node id has {length} bytes and the API takes at most {LONGEST_ID}")]
    LongNodeId { length: usize },
    #[error("the driver's topology key {key:?} or its value {value:?} cannot be a label")]
    NotALabel { key: String, value: String },
    #[error(
        "the driver says that the node's topology {key:?} is {wanted:?}, and the node is labelled {found:?}; \
         take off the label if it is wrong"
    )]
    Collision { key: String, wanted: String, found: String },
    #[error("the driver says that the node's topology {key:?} is {wanted:?}, and driver {other:?} says {found:?}")]
    Contradiction { key: String, wanted: String, found: String, other: String },
}

/// Changes to the Node's metadata; `None` takes a key off.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeChange {
    pub labels: BTreeMap<String, Option<String>>,
    pub annotations: BTreeMap<&'static str, Option<String>>,
}

impl NodeChange {
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// Reads, or one write at the revision that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    ReadNode,
    ReadCsiNode,
    ChangeNode(NodeChange),
    CreateCsiNode { owner: Uid, migrated: String },
    DeleteCsiNode,
    ChangeCsiNode { drivers: Vec<NodeDriver>, migrated: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// The cache may lag behind.
    NotCached,
    /// There is no Node to belong to.
    NoNode,
    /// CSINode is on its way out.
    Going,
    /// CSINode belongs to another Node of that name.
    Foreign,
    NoCsiNode,
    NodeLacks,
    CsiNodeDiffers,
    /// Fields of a listed driver cannot be changed, so it leaves the list and comes back.
    EntryReplaced,
    NodeHasOld,
    Announced,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotCached => "the server is asked before anything follows from what is missing",
            Self::NoNode => "the node's object does not exist",
            Self::Going => "the CSINode is being deleted",
            Self::Foreign => "the CSINode belongs to another node of the same name",
            Self::NoCsiNode => "the node has no CSINode",
            Self::NodeLacks => "the node lacks a driver's id or topology",
            Self::CsiNodeDiffers => "the CSINode does not list the drivers that are registered",
            Self::EntryReplaced => "a driver says something else of the node than its entry, which cannot be changed",
            Self::NodeHasOld => "the node has ids or labels of drivers that are gone",
            Self::Announced => "Node and CSINode say what the drivers say",
        })
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Self::NotCached => "not_cached",
            Self::NoNode => "no_node",
            Self::Going => "csinode_going",
            Self::Foreign => "csinode_foreign",
            Self::NoCsiNode => "no_csinode",
            Self::NodeLacks => "node_lacks",
            Self::CsiNodeDiffers => "csinode_differs",
            Self::EntryReplaced => "entry_replaced",
            Self::NodeHasOld => "node_has_old",
            Self::Announced => "announced",
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::NoNode | Self::Going => Standing::Waiting,
            Self::Announced => Standing::Settled,
            Self::NotCached | Self::Foreign | Self::NoCsiNode | Self::NodeLacks => Standing::Moving,
            Self::CsiNodeDiffers | Self::EntryReplaced | Self::NodeHasOld => Standing::Moving,
        }
    }
}

/// What to do, and which drivers cannot be announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub decision: Decision<Action, Because>,
    pub refused: BTreeMap<String, Refusal>,
}

impl Verdict {
    fn of(decision: Decision<Action, Because>) -> Self {
        Self { decision, refused: BTreeMap::new() }
    }
}

/// One step towards what the objects should say.
pub fn decide(observed: &Observed<'_>) -> Verdict {
    let node = match observed.node {
        Lookup::Found(node) => node,
        Lookup::NotCached => return Verdict::of(Decision::act(Because::NotCached, Action::ReadNode)),
        Lookup::Absent => return Verdict::of(Decision::rest(Because::NoNode)),
    };
    let csi_node = match observed.csi_node {
        Lookup::Found(csi_node) if csi_node.meta.is_deleting() => return Verdict::of(Decision::rest(Because::Going)),
        Lookup::Found(csi_node) if !belongs(csi_node, node) => {
            return Verdict::of(Decision::act(Because::Foreign, Action::DeleteCsiNode));
        }
        Lookup::Found(csi_node) => csi_node,
        Lookup::NotCached => return Verdict::of(Decision::act(Because::NotCached, Action::ReadCsiNode)),
        Lookup::Absent => {
            let action = Action::CreateCsiNode { owner: node.meta.uid.clone(), migrated: observed.migrated.to_owned() };
            return Verdict::of(Decision::act(Because::NoCsiNode, action));
        }
    };
    let labels = Labels::weigh(node, csi_node, observed);
    let fit: Vec<&Said> = observed.said.iter().filter(|said| !labels.refused.contains_key(&said.driver)).collect();
    let decision = step(node, csi_node, observed, &labels, &fit);
    Verdict { decision, refused: labels.refused }
}

fn step(
    node: &Node,
    csi_node: &CsiNode,
    observed: &Observed<'_>,
    labels: &Labels,
    fit: &[&Said],
) -> Decision<Action, Because> {
    let ids = Ids::of(node);
    let mut change = NodeChange { labels: labels.added(node), ..NodeChange::default() };
    ids.with(fit).write(&ids, annotation::NODE_IDS.text(), &mut change);
    let more = labels.record.with(&labels.after);
    more.write(&labels.record, annotation::TOPOLOGY_LABELS.text(), &mut change);
    if !change.is_empty() {
        return Decision::act(Because::NodeLacks, Action::ChangeNode(change));
    }
    if let Some(decision) = listed(csi_node, observed, fit) {
        return decision;
    }
    let mut change = NodeChange { labels: labels.removed(), ..NodeChange::default() };
    let kept = |driver: &str| observed.kept.has(driver) || fit.iter().any(|said| said.driver == driver);
    ids.only(kept).write(&ids, annotation::NODE_IDS.text(), &mut change);
    labels.after.write(&labels.record, annotation::TOPOLOGY_LABELS.text(), &mut change);
    match change.is_empty() {
        true => Decision::rest(Because::Announced),
        false => Decision::act(Because::NodeHasOld, Action::ChangeNode(change)),
    }
}

/// Whether an owner is the Node itself, not another one that had its name.
fn belongs(csi_node: &CsiNode, node: &Node) -> bool {
    let owner = |owner: &api::object::Owner| {
        &*owner.kind == "Node" && *owner.name == *node.name() && owner.uid == node.meta.uid
    };
    csi_node.meta.owners.iter().any(owner)
}

/// What CSINode's list should become, if it differs.
fn listed(csi_node: &CsiNode, observed: &Observed<'_>, fit: &[&Said]) -> Option<Decision<Action, Because>> {
    let mut drivers = Vec::new();
    let mut replaced = false;
    for entry in &csi_node.drivers {
        match fit.iter().find(|said| *said.driver == *entry.name).map(|said| said.entry()) {
            Some(wanted) if fixed(&wanted) == fixed(entry) => {
                drivers.push(if same(&wanted, entry) { entry.clone() } else { wanted });
            }
            Some(_) => replaced = true,
            None if observed.kept.has(&entry.name) => drivers.push(entry.clone()),
            None => {}
        }
    }
    if !replaced {
        let known = |said: &&&Said| !csi_node.drivers.iter().any(|entry| *entry.name == *said.driver);
        drivers.extend(fit.iter().filter(known).map(|said| said.entry()));
    }
    let migrated = observed.migrated.to_owned();
    let marked = csi_node.meta.annotation(annotation::MIGRATED_PLUGINS).unwrap_or_default() == migrated;
    if marked && drivers[..] == csi_node.drivers[..] {
        return None;
    }
    let because = if replaced { Because::EntryReplaced } else { Because::CsiNodeDiffers };
    Some(Decision::act(because, Action::ChangeCsiNode { drivers, migrated }))
}

/// What of an entry can never be changed by a write.
fn fixed(entry: &NodeDriver) -> (&str, BTreeSet<&str>) {
    (&entry.node_id, entry.topology_keys().iter().map(|key| &**key).collect())
}

/// Two entries that differ only in how nothing is written are the same.
fn same(a: &NodeDriver, b: &NodeDriver) -> bool {
    let count = |entry: &NodeDriver| entry.allocatable.and_then(|allocatable| allocatable.count);
    fixed(a) == fixed(b) && count(a) == count(b)
}

/// A JSON map of texts in an annotation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Texts {
    map: BTreeMap<String, String>,
    /// As it stands there; `None` if it does not.
    raw: Option<String>,
}

impl Texts {
    /// What cannot be read counts as empty: it is written anew.
    fn read(raw: Option<&str>) -> Self {
        let value: Option<Value> = raw.and_then(|raw| serde_json::from_str(raw).ok());
        let pairs = value.as_ref().and_then(Value::as_object).into_iter().flatten();
        let map = pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
        Self { map, raw: raw.map(str::to_owned) }
    }

    /// Puts the annotation into `change` if `self` says something else than `before`.
    fn write(&self, before: &Self, key: &'static str, change: &mut NodeChange) {
        let unreadable = before.raw.is_some() && before.map.is_empty();
        if self.map == before.map && !unreadable {
            return;
        }
        let empty = self.map.is_empty();
        if empty && before.raw.is_none() {
            return;
        }
        let text = Value::from_iter(self.map.iter().map(|(key, value)| (key.clone(), value.clone()))).to_string();
        change.annotations.insert(key, (!empty).then_some(text));
    }
}

/// The annotation with what each driver calls the node.
struct Ids(Texts);

impl Ids {
    fn of(node: &Node) -> Self {
        Self(Texts::read(node.meta.annotation(annotation::NODE_IDS)))
    }

    fn with(&self, fit: &[&Said]) -> Self {
        let mut map = self.0.map.clone();
        map.extend(fit.iter().map(|said| (said.driver.clone(), said.node_id.clone())));
        Self(Texts { map, raw: None })
    }

    fn only(&self, kept: impl Fn(&str) -> bool) -> Self {
        let pairs = self.0.map.iter().filter(|(driver, _)| kept(driver));
        Self(Texts { map: pairs.map(|(driver, id)| (driver.clone(), id.clone())).collect(), raw: None })
    }

    fn write(&self, before: &Self, key: &'static str, change: &mut NodeChange) {
        self.0.write(&before.0, key, change);
    }
}
