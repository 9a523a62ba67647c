//! Topology as labels of the Node: which are ours, which collide, which are to go.

use std::collections::{BTreeMap, BTreeSet};

use api::keys::annotation;
use api::{CsiNode, Node};

use super::{LONGEST_ID, NodeChange, Observed, Refusal, Said, Texts};

/// The labels that the agent put on the Node, with their values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Record(Texts);

impl Record {
    fn of(node: &Node) -> Self {
        Self(Texts::read(node.meta.annotation(annotation::TOPOLOGY_LABELS)))
    }

    /// Whether the label is there because the agent put it there, and nobody changed it since.
    fn owns(&self, node: &Node, key: &str) -> bool {
        self.0.map.get(key).is_some_and(|value| node.meta.label(key) == Some(value))
    }

    /// Everything that is in either; `after` is right where they differ.
    pub(super) fn with(&self, after: &Self) -> Self {
        let mut map = self.0.map.clone();
        map.extend(after.0.map.clone());
        Self(Texts { map, raw: None })
    }

    pub(super) fn write(&self, before: &Self, key: &'static str, change: &mut NodeChange) {
        self.0.write(&before.0, key, change);
    }
}

/// What becomes of the labels.
#[derive(Debug)]
pub(super) struct Labels {
    /// What the drivers that fit say.
    wanted: BTreeMap<String, String>,
    /// Ours, on the node, and said by nobody.
    old: BTreeSet<String>,
    /// As the record stands.
    pub(super) record: Record,
    /// As it should stand at the end.
    pub(super) after: Record,
    pub(super) refused: BTreeMap<String, Refusal>,
}

impl Labels {
    pub(super) fn weigh(node: &Node, csi_node: &CsiNode, observed: &Observed<'_>) -> Self {
        let record = Record::of(node);
        // A driver that may come back says the same again, as far as anybody knows.
        let absent = |name: &str| !observed.said.iter().any(|said| said.driver == name);
        let waiting = csi_node.drivers.iter().filter(|entry| absent(&entry.name) && observed.kept.has(&entry.name));
        let held: BTreeSet<&str> = waiting.flat_map(|entry| entry.topology_keys().iter().map(|key| &**key)).collect();
        let mut wanted = BTreeMap::new();
        let mut speakers: BTreeMap<String, String> = BTreeMap::new();
        let mut refused = BTreeMap::new();
        for said in observed.said {
            let fits = check(said).and_then(|()| {
                said.topology.iter().try_for_each(|(key, value)| {
                    let mine = record.owns(node, key) && !held.contains(key.as_str());
                    agree(node, said, (key, value), speakers.get(key).map(|other| (other, &wanted)), mine)
                })
            });
            match fits {
                Err(refusal) => drop(refused.insert(said.driver.clone(), refusal)),
                Ok(()) => {
                    for (key, value) in &said.topology {
                        speakers.entry(key.clone()).or_insert_with(|| said.driver.clone());
                        wanted.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        let ours = record.0.map.keys().filter(|key| record.owns(node, key));
        let everybody = matches!(observed.kept, super::Kept::Everybody);
        let gone = ours.filter(|key| !wanted.contains_key(*key) && !held.contains(key.as_str()) && !everybody);
        let old: BTreeSet<String> = gone.cloned().collect();
        let after = after(node, &record, &wanted, &old);
        Self { wanted, old, record, after, refused }
    }

    /// Labels to be set.
    pub(super) fn added(&self, node: &Node) -> BTreeMap<String, Option<String>> {
        let lacking = self.wanted.iter().filter(|(key, value)| node.meta.label(key) != Some(value));
        lacking.map(|(key, value)| (key.clone(), Some(value.clone()))).collect()
    }

    /// Labels to be taken off.
    pub(super) fn removed(&self) -> BTreeMap<String, Option<String>> {
        self.old.iter().map(|key| (key.clone(), None)).collect()
    }
}

/// The record once everything is written: what we set, or had set and still holds.
fn after(node: &Node, record: &Record, wanted: &BTreeMap<String, String>, old: &BTreeSet<String>) -> Record {
    let mut map: BTreeMap<String, String> = BTreeMap::new();
    for (key, value) in &record.0.map {
        if record.owns(node, key) && !old.contains(key) {
            map.insert(key.clone(), value.clone());
        }
    }
    for (key, value) in wanted {
        // A label that was there with that value before us stays somebody else's.
        if record.owns(node, key) || node.meta.label(key) != Some(value) {
            map.insert(key.clone(), value.clone());
        }
    }
    Record(Texts { map, raw: None })
}

fn check(said: &Said) -> Result<(), Refusal> {
    match said.node_id.len() {
        0 => return Err(Refusal::NoNodeId),
        length if length > LONGEST_ID => return Err(Refusal::LongNodeId { length }),
        _ => {}
    }
    match said.topology.iter().find(|(key, value)| !is_key(key) || !is_value(value)) {
        Some((key, value)) => Err(Refusal::NotALabel { key: key.clone(), value: value.clone() }),
        None => Ok(()),
    }
}

/// Whether one segment can stand beside what other drivers and the node say (NODE-4.3).
fn agree(
    node: &Node,
    said: &Said,
    (key, wanted): (&String, &String),
    other: Option<(&String, &BTreeMap<String, String>)>,
    mine: bool,
) -> Result<(), Refusal> {
    if let Some((other, all)) = other
        && let Some(found) = all.get(key)
    {
        let (key, wanted, found, other) = (key.clone(), wanted.clone(), found.clone(), other.clone());
        return match wanted == found || other == said.driver {
            true => Ok(()),
            false => Err(Refusal::Contradiction { key, wanted, found, other }),
        };
    }
    match node.meta.label(key) {
        Some(found) if found != wanted && !mine => {
            Err(Refusal::Collision { key: key.clone(), wanted: wanted.clone(), found: found.to_owned() })
        }
        Some(_) | None => Ok(()),
    }
}

/// `[prefix/]name` as labels have it.
fn is_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let domain = |prefix: &str| {
        let labels = prefix.split('.');
        let word = |label: &str| {
            let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
        };
        prefix.len() <= 253 && labels.clone().count() > 0 && labels.into_iter().all(word)
    };
    !name.is_empty() && is_value(name) && prefix.is_none_or(domain)
}

fn is_value(value: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let outer = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    value.len() <= 63 && value.bytes().all(inner) && outer(bytes.first()) && outer(bytes.last())
}
