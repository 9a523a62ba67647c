//! How much room is told to the scheduler: one CSIStorageCapacity per class and place (PROVISION-2.12).
//!
//! # Invariants
//! 1. For one class and one place there is at most one object; of several, the first by age, then by name, stays.
//! 2. An object is written only if what it says would change.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use api::object::Owner;
use api::{BindingMode, Capacity, Class};
use serde_json::{Value, json};

use crate::provision::csi::topology::{Nodes, Term};

/// One class in one place. An empty place is everywhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    pub class: String,
    pub place: Term,
}

/// Whether classes that bind at once are told, too (`--capacity-for-immediate-binding`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Immediate {
    #[default]
    Skipped,
    Told,
}

/// The places where a driver runs, each once. A driver without topology is everywhere.
pub fn places(driver: &str, nodes: &dyn Nodes) -> BTreeSet<Term> {
    let mut places = BTreeSet::new();
    nodes.visit(&mut |csi_node, labels| {
        if let Some(driver) = csi_node.driver(driver) {
            places.extend(Term::of_node(driver.topology_keys(), labels));
        }
    });
    places
}

/// Whether room of a class is told. A class that does not say when it binds counts as delayed.
pub fn is_told(class: &Class, driver: &str, immediate: Immediate) -> bool {
    let delayed = class.volume_binding_mode != Some(BindingMode::Immediate);
    *class.provisioner == *driver && (delayed || immediate == Immediate::Told)
}

/// What an object stands for; `None` if no producer writes such a one.
pub fn item_of(object: &Capacity) -> Option<Item> {
    let topology = object.node_topology.as_ref()?;
    let labels = topology.match_labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    let item = Item { class: object.storage_class_name.to_string(), place: Term(labels.collect()) };
    topology.match_expressions.is_empty().then_some(item)
}

/// What the driver said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub bytes: i64,
    /// The largest volume, if the driver limits it.
    pub largest: Option<i64>,
}

/// Who owns the objects, if anybody does: they go with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedBy(pub Option<Owner>);

/// What to do with the objects of one item.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// These are too many, or nobody wants the item any more.
    Remove(Vec<&'a str>),
    /// Ask the driver, and then [`write`]; the object that there is, if there is one.
    Ask { held: Option<&'a str> },
}

/// What to do next with an item and the objects that stand for it.
pub fn step<'a>(wanted: bool, objects: &[&'a Capacity]) -> Step<'a> {
    let mut sorted: Vec<&Capacity> = objects.to_vec();
    sorted.sort_by_key(|object| (object.meta.created, object.meta.key.clone()));
    let mut names = sorted.iter().map(|object| object.meta.key.name());
    let held = if wanted { names.next() } else { None };
    let rest: Vec<&str> = names.collect();
    match (wanted, rest.is_empty()) {
        (true, true) => Step::Ask { held },
        (false, _) | (true, false) => Step::Remove(rest),
    }
}

/// The change that makes an object say what is true; `None` if it does.
pub fn change(object: &Capacity, room: Room, owner: &OwnedBy) -> Option<Value> {
    let bytes = object.capacity.as_ref().map(api::Amount::bytes);
    let largest = object.maximum_volume_size.as_ref().map(api::Amount::bytes);
    let owned = match &owner.0 {
        None => true,
        Some(owner) => object.meta.owners.iter().any(|held| held.uid == owner.uid),
    };
    if bytes == Some(room.bytes) && largest == room.largest && owned {
        return None;
    }
    let mut body = json!({
        "metadata": {"resourceVersion": object.meta.revision.to_string()},
        "capacity": amount(room.bytes),
        "maximumVolumeSize": room.largest.map(amount),
    });
    if !owned {
        body["metadata"]["ownerReferences"] = references(owner);
    }
    Some(body)
}

/// The owner references of an object.
pub fn references(owner: &OwnedBy) -> Value {
    let reference = |owner: &Owner| json!({"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid, "controller": true});
    Value::Array(owner.0.iter().map(reference).collect())
}

/// The amount as objects hold it.
pub fn amount(bytes: i64) -> String {
    api::Amount::from_bytes(bytes).text().to_owned()
}
