//! What has to be painted anew: which ways a change in a cache touches.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use api::{Attachment, Claim, Event, Key, Kind, Node, Object, Pod, Volume};
use lifecycle::registration::lease::ANOTHER_MACHINE_EVENT;
use lifecycle::scene::WayId;
use runtime::{Cache, Change};

use super::board::Board;

/// More marks than this, and everything is painted.
const MOST: usize = 20_000;

/// What was touched since the last painting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Touched {
    pub(super) ways: BTreeSet<WayId>,
    pub(super) extent: Extent,
}

/// How far a change reaches beyond the ways it names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extent {
    #[default]
    Named,
    /// Whatever waits may wait for another reason now.
    Unsettled,
    All,
}

/// Collects marks, and rings the painter's bell.
#[derive(Debug, Clone)]
pub(super) struct Marks {
    touched: Arc<Mutex<Touched>>,
    board: Arc<Board>,
}

impl Marks {
    pub(super) fn new(board: &Arc<Board>) -> Self {
        let everything = Touched { extent: Extent::All, ..Touched::default() };
        Self { touched: Arc::new(Mutex::new(everything)), board: Arc::clone(board) }
    }

    pub(super) fn take(&self) -> Touched {
        std::mem::take(&mut *self.touched.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn add(&self, ways: impl IntoIterator<Item = WayId>, extent: Extent) {
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        touched.ways.extend(ways);
        touched.extent = touched.extent.max(extent);
        if touched.ways.len() > MOST {
            *touched = Touched { extent: Extent::All, ..Touched::default() };
        }
        drop(touched);
        self.board.ring();
    }
}

pub(super) fn of_claim(change: &Change<Claim>) -> Vec<WayId> {
    let mut ways = vec![WayId::Claim(change.key().clone())];
    let states = [change.before(), change.after()].into_iter().flatten();
    let volumes = states.filter(|claim| !claim.volume_name.is_empty());
    ways.extend(volumes.map(|claim| WayId::Volume(claim.volume_name.clone())));
    ways
}

pub(super) fn of_volume(change: &Change<Volume>) -> Vec<WayId> {
    let mut ways = vec![WayId::Volume(change.key().name().into())];
    let states = [change.before(), change.after()].into_iter().flatten();
    ways.extend(states.filter_map(|volume| volume.claim.as_ref()).map(|owner| WayId::Claim(owner.key.clone())));
    ways
}

pub(super) fn of_pod(change: &Change<Pod>) -> Vec<WayId> {
    let states = [change.before(), change.after()].into_iter().flatten();
    states.flat_map(|pod| claims(pod)).collect()
}

fn claims(pod: &Pod) -> Vec<WayId> {
    pod.claims().map(|name| WayId::Claim(pod.meta.key.sibling(&name))).collect()
}

pub(super) fn of_attachment(change: &Change<Attachment>, volumes: &Cache<Volume>) -> Vec<WayId> {
    let states = [change.before(), change.after()].into_iter().flatten();
    states.filter_map(|held| held.volume.as_deref()).flat_map(|name| around_volume(name, volumes)).collect()
}

fn around_volume(name: &str, volumes: &Cache<Volume>) -> Vec<WayId> {
    let owner =
        volumes.get(&Key::cluster(name)).and_then(|volume| volume.claim.as_ref().map(|owner| owner.key.clone()));
    [WayId::Volume(name.into())].into_iter().chain(owner.map(WayId::Claim)).collect()
}

pub(super) fn of_event(change: &Change<Event>, volumes: &Cache<Volume>, pods: &Cache<Pod>) -> Vec<WayId> {
    let about = &change.object().about;
    let key = Key::namespaced(&about.namespace, &about.name);
    match &*about.kind {
        kind if kind == Kind::CLAIM.kind => vec![WayId::Claim(key)],
        kind if kind == Kind::VOLUME.kind => around_volume(&about.name, volumes),
        kind if kind == Kind::POD.kind => pods.get(&key).map(|pod| claims(&pod)).unwrap_or_default(),
        // Two machines with one name concern whatever is on that node.
        kind if kind == Kind::NODE.kind && change.object().reason == *ANOTHER_MACHINE_EVENT => {
            pods.walk().filter(|pod| *pod.node == *about.name).flat_map(|pod| claims(&pod)).collect()
        }
        _ => Vec::new(),
    }
}

/// A node says every few seconds that it lives. That alone changes nothing in the picture.
pub(super) fn of_node(change: &Change<Node>) -> Extent {
    match (change.before(), change.after()) {
        (Some(old), Some(new))
            if old.ready == new.ready
                && old.unschedulable == new.unschedulable
                && old.taints == new.taints
                && old.meta().labels == new.meta().labels =>
        {
            Extent::Named
        }
        _ => Extent::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read<T: Object>(object: serde_json::Value) -> Arc<T> {
        Arc::new(serde_json::from_value(object).expect("it is such an object"))
    }

    #[test]
    fn a_heartbeat_of_a_node_touches_nothing_and_its_end_everything() {
        let node = |ready: &str, beat: &str| -> Arc<Node> {
            read(json!({"metadata": {"name": "n", "resourceVersion": beat},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
        };
        let beat = Change::Changed { old: node("True", "1"), new: node("True", "2") };
        assert_eq!(of_node(&beat), Extent::Named);
        assert_eq!(of_node(&Change::Changed { old: node("True", "2"), new: node("False", "3") }), Extent::All);
        assert_eq!(of_node(&Change::Removed(node("True", "2"))), Extent::All);
    }

    #[test]
    fn a_claim_that_gets_its_volume_touches_the_volumes_own_way() {
        let claim = |volume: &str| -> Arc<Claim> {
            read(json!({"metadata": {"namespace": "n", "name": "c"}, "spec": {"volumeName": volume}}))
        };
        let change = Change::Changed { old: claim(""), new: claim("v") };
        let ways = of_claim(&change);
        assert_eq!(ways, [WayId::Claim(Key::namespaced("n", "c")), WayId::Volume("v".into())]);
    }
}
