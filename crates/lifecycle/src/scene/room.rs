//! How much room there is: per class and place, and attach slots per node.

use std::collections::BTreeMap;

use api::{Capacity, Class};
use serde::Serialize;

use super::station::{self, Tone};
use crate::explain::{Picture, name_conflict};

/// A class, what was given out of it, and what is left where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pool {
    pub class: Box<str>,
    pub driver: Box<str>,
    /// Volumes of the class.
    pub volumes: usize,
    /// Their sizes together.
    pub given: i64,
    /// Empty where nobody says.
    pub rooms: Vec<Room>,
}

/// What is left in one place, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Room {
    /// The labels of the place, or who says it.
    pub place: String,
    pub free: i64,
    /// The largest volume that may fit, where that is less.
    pub largest: Option<i64>,
}

/// The pools, by class. `asked` is what drivers themselves said, by driver, for those that publish nothing.
pub fn pools(picture: &Picture, asked: &BTreeMap<String, Room>) -> Vec<Pool> {
    let classes = picture.classes.items().iter();
    classes.map(|class| pool(picture, class, asked)).collect()
}

fn pool(picture: &Picture, class: &Class, asked: &BTreeMap<String, Room>) -> Pool {
    let of = picture.volumes.items().iter().filter(|volume| volume.class().text() == class.name());
    let (volumes, given) =
        of.fold((0, 0_i64), |(count, sum), volume| (count + 1, sum.saturating_add(volume.capacity_bytes())));
    let published = picture.capacities.items().iter().filter(|room| *room.storage_class_name == *class.name());
    let mut rooms: Vec<Room> = published.filter_map(room).collect();
    if rooms.is_empty() {
        rooms.extend(asked.get(&*class.provisioner).cloned());
    }
    rooms.sort_by(|a, b| a.place.cmp(&b.place));
    let (name, driver) = (class.name().into(), class.provisioner.to_string().into());
    Pool { class: name, driver, volumes, given, rooms }
}

fn room(capacity: &Capacity) -> Option<Room> {
    let free = capacity.capacity.as_ref()?.bytes();
    let largest = capacity.maximum_volume_size.as_ref().map(api::Amount::bytes).filter(|largest| *largest < free);
    let place = match &capacity.node_topology {
        None => "no node".to_owned(),
        Some(labels) => {
            let values: Vec<&str> = labels.match_labels.iter().map(|(_, value)| value).collect();
            if values.is_empty() { "everywhere".to_owned() } else { values.join(", ") }
        }
    };
    Some(Room { place, free, largest })
}

/// A node and its attach slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    pub name: Box<str>,
    pub state: String,
    pub tone: Tone,
    /// Attachments to it, confirmed or not.
    pub attached: usize,
    /// Of all its drivers together; absent without a limit.
    pub slots: Option<i64>,
}

/// The nodes, by name.
pub fn machines(picture: &Picture) -> Vec<Machine> {
    let mut attached: BTreeMap<&str, usize> = BTreeMap::new();
    for held in picture.attachments.items() {
        *attached.entry(&held.node).or_default() += 1;
    }
    let nodes = picture.nodes.items().iter();
    nodes
        .map(|node| {
            let drawn = station::node(node.name(), Some(node));
            let drivers = picture.csi_node(node.name()).found().map(|csi| &*csi.drivers).unwrap_or_default();
            let limits: Option<Vec<i64>> =
                drivers.iter().map(|driver| Some(i64::from(driver.allocatable?.count?))).collect();
            let slots = limits.filter(|limits| !limits.is_empty()).map(|limits| limits.iter().sum());
            let attached = attached.get(node.name()).copied().unwrap_or_default();
            let (state, tone) = match name_conflict(picture, node) {
                Some(_) => (format!("{}, name in use", drawn.state), Tone::Stuck),
                None => (drawn.state, drawn.tone),
            };
            Machine { name: node.name().into(), state, tone, attached, slots }
        })
        .collect()
}
