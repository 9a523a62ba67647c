//! Where a volume may be made: the chosen node, topology, and room.

use api::{Amount, Capacity, Claim, Class, ClassName, Key, Kind, Node};

use super::{Finding, Picture, Subject, Trail};
use crate::decision::Lookup;

/// How many terms or capacities are shown.
const SHOWN: usize = 3;

fn class_of<'a>(picture: &'a Picture, claim: &Claim) -> Option<&'a Class> {
    match claim.class() {
        ClassName::Named(name) => picture.class(name).found(),
        ClassName::Unset | ClassName::None => None,
    }
}

/// Adds what is wrong with the place.
pub(super) fn look(trail: &mut Trail<'_>, claim: &Claim, driver: &str) {
    let picture = trail.picture;
    let class = class_of(picture, claim);
    match claim.selected_node() {
        Some(name) => {
            let subject = || Subject::of(Kind::NODE.kind, &Key::cluster(name));
            match picture.node(name) {
                Lookup::Absent => trail.find(subject(), &Finding::NodeGone { node: name.into() }, Vec::new()),
                Lookup::NotCached => {}
                Lookup::Found(node) => {
                    if let Some(finding) = on(picture, node, class, driver) {
                        let evidence = class.map(allowed).unwrap_or_default();
                        trail.find(subject(), &finding, evidence);
                    }
                }
            }
        }
        None => anywhere(trail, class),
    }
    room(trail, claim);
}

/// What keeps a driver from making a volume for a node.
fn on(picture: &Picture, node: &Node, class: Option<&Class>, driver: &str) -> Option<Finding> {
    let name: Box<str> = node.name().into();
    if let Some(class) = class.filter(|class| excludes(class, node)) {
        return Some(Finding::TopologyExcludes { class: class.name().into(), node: Some(name) });
    }
    let registered = match picture.csi_node(node.name()) {
        Lookup::Found(csi) => csi.driver(driver),
        Lookup::Absent => None,
        Lookup::NotCached => return None,
    };
    let Some(registered) = registered else {
        // Provisioners that are no CSI drivers register nowhere.
        let csi = picture.drivers.items().iter().any(|held| held.meta.key.name() == driver);
        return csi.then(|| Finding::NodeLacksDriver { node: name, driver: driver.into() });
    };
    let missing = registered.topology_keys().iter().find(|key| !node.meta.labels.has(key));
    missing.map(|key| Finding::TopologyKeyMissing { node: name, key: key.as_str().into() })
}

fn excludes(class: &Class, node: &Node) -> bool {
    !class.allowed_topologies.is_empty() && !class.allowed_topologies.iter().any(|term| term.matches(&node.meta.labels))
}

/// Without a chosen node, some node has to be where the class allows.
fn anywhere(trail: &mut Trail<'_>, class: Option<&Class>) {
    let picture = trail.picture;
    let Some(class) = class else { return };
    let nodes = picture.nodes.items();
    if picture.nodes.is_seen() && !nodes.is_empty() && nodes.iter().all(|node| excludes(class, node)) {
        let subject = Subject::of(Kind::STORAGE_CLASS.kind, &class.meta.key);
        let mut evidence = allowed(class);
        evidence.push(format!("none of {} nodes has such labels", nodes.len()));
        trail.find(subject, &Finding::TopologyExcludes { class: class.name().into(), node: None }, evidence);
    }
}

/// Adds that the class allows no place where there is a node.
pub(super) fn nowhere(trail: &mut Trail<'_>, claim: &Claim) {
    let class = class_of(trail.picture, claim);
    anywhere(trail, class);
}

/// The allowed topologies of a class, as lines.
fn allowed(class: &Class) -> Vec<String> {
    let terms = class.allowed_topologies.iter().take(SHOWN).map(|term| {
        let expressions = term.match_label_expressions.iter();
        let texts: Vec<String> =
            expressions.map(|held| format!("{} in ({})", held.key, held.values.join(", "))).collect();
        format!("the class allows {}", texts.join(" and "))
    });
    terms.collect()
}

/// Adds that there is no room, where the driver publishes how much there is and the scheduler goes by it.
pub(super) fn room(trail: &mut Trail<'_>, claim: &Claim) {
    let picture = trail.picture;
    let Some(class) = class_of(picture, claim).filter(|class| class.delayed()) else { return };
    let driver = picture.drivers.items().iter().find(|driver| driver.meta.key.name() == &*class.provisioner);
    let published = driver.is_some_and(|driver| driver.spec.storage_capacity == Some(true));
    let Some(asked) = claim.request.as_ref().filter(|_| published && picture.capacities.is_seen()) else { return };
    let of_class: Vec<&Capacity> =
        picture.capacities.items().iter().filter(|capacity| *capacity.storage_class_name == *class.name()).collect();
    let chosen = claim.selected_node().and_then(|name| picture.node(name).found());
    let reaches = |capacity: &Capacity| match (&capacity.node_topology, chosen) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(topology), Some(node)) => topology.matches(&node.meta.labels),
    };
    let limits = of_class.iter().filter(|capacity| reaches(capacity)).filter_map(|capacity| capacity.limit());
    let largest = limits.max().cloned();
    if largest.as_ref().is_some_and(|largest| largest >= asked) {
        return;
    }
    let line = |capacity: &&Capacity| {
        let limit = capacity.limit().map_or("nothing", Amount::text);
        format!("CSIStorageCapacity {} has room for {limit}", capacity.meta.key)
    };
    let evidence = of_class.iter().take(SHOWN).map(line).collect();
    let finding = Finding::NoRoom { class: class.name().into(), asked: asked.clone(), largest };
    trail.find(Subject::of(Kind::STORAGE_CLASS.kind, &class.meta.key), &finding, evidence);
}
