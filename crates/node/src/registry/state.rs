//! What is known of the plugins of this machine. Data only: no I/O, and time comes in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lifecycle::registration::announce::Said;
use lifecycle::registration::instances::{Instance, Instances};
use runtime::Stopper;
use runtime::csi::Driver;
use tokio::time::Instant;

use crate::drivers::Registered;

/// How far a socket is with its registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Nobody has asked it yet.
    Found,
    Registering,
    /// Its driver is registered and used through it.
    Used,
    /// Its driver is registered, and used through a newer socket.
    Standby,
    Failed {
        why: String,
    },
    /// Its socket is gone, and its driver stays for a moment: a registrar that restarts comes back.
    Leaving,
}

/// One plugin, for `explain` and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    pub socket: String,
    /// As the plugin said, if it could be asked.
    pub driver: Option<String>,
    pub endpoint: Option<String>,
    pub standing: Standing,
}

/// A connection to a driver through what one socket said.
#[derive(Debug, Clone)]
pub(super) struct Held {
    /// Which file of that path it was.
    pub(super) generation: u64,
    pub(super) socket: String,
    pub(super) endpoint: String,
    pub(super) driver: Driver,
    /// Ends the connection.
    pub(super) end: Stopper,
    /// What the driver said of this node; from then on it is used.
    pub(super) said: Option<Arc<Said>>,
    /// The plugin was told that it is registered.
    pub(super) told: bool,
}

impl Held {
    fn registered(&self) -> Option<Registered> {
        let said = self.said.as_ref()?;
        let (name, node_id) = (said.driver.clone(), said.node_id.clone());
        Some(Registered { name, driver: self.driver.clone(), node_id })
    }
}

/// A driver whose last socket is gone.
#[derive(Debug)]
struct Left {
    until: Instant,
    held: Held,
}

#[derive(Debug)]
struct Seen {
    generation: u64,
    /// What it said it is.
    driver: Option<String>,
    problem: Option<String>,
    /// Whether a person has to change something: then nothing of the driver is kept for its sake.
    refused: bool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    counter: u64,
    seen: BTreeMap<String, Seen>,
    instances: Instances<Held>,
    left: BTreeMap<String, Left>,
}

/// What Node and CSINode should be told.
#[derive(Debug)]
pub(super) struct Known {
    /// In the order in which the drivers came.
    pub(super) said: Vec<Said>,
    /// Drivers that are not registered at the moment and stay announced.
    pub(super) kept: BTreeSet<String>,
    /// When the first of them is forgotten.
    pub(super) until: Option<Instant>,
}

impl State {
    pub(super) fn found(&mut self, socket: &str) {
        self.counter += 1;
        let driver = self.seen.get(socket).and_then(|seen| seen.driver.clone());
        let seen = Seen { generation: self.counter, driver, problem: None, refused: false };
        self.seen.insert(socket.to_owned(), seen);
    }

    pub(super) fn gone(&mut self, socket: &str) {
        self.seen.remove(socket);
    }

    /// Which file is at that path, if any.
    pub(super) fn seen(&self, socket: &str) -> Option<u64> {
        self.seen.get(socket).map(|seen| seen.generation)
    }

    /// Which file of that path is registered, or being registered.
    pub(super) fn held(&self, socket: &str) -> Option<u64> {
        self.instances.get(socket).map(|instance| instance.held.generation)
    }

    /// Notes how an attempt ended.
    pub(super) fn tried(&mut self, socket: &str, driver: Option<&str>, problem: Option<(String, bool)>) {
        let Some(seen) = self.seen.get_mut(socket) else { return };
        if let Some(driver) = driver {
            seen.driver = Some(driver.to_owned());
        }
        (seen.problem, seen.refused) = match problem {
            Some((why, refused)) => (Some(why), refused),
            None => (None, false),
        };
    }

    pub(super) fn insert(&mut self, socket: &str, instance: Instance<Held>) {
        self.instances.insert(socket, instance);
    }

    /// The registration itself, if it is still the one of that file.
    pub(super) fn instance(&mut self, socket: &str, generation: u64) -> Option<&mut Instance<Held>> {
        self.instances.get_mut(socket).filter(|instance| instance.held.generation == generation)
    }

    /// Takes a registration out. A driver that nobody else stands for stays until `until`.
    pub(super) fn remove(&mut self, socket: &str, until: Option<Instant>) -> Option<String> {
        let instance = self.instances.remove(socket)?;
        let driver = instance.driver;
        let alone = self.instances.chosen(&driver, |held| held.said.is_some()).is_none();
        match until {
            Some(until) if alone && instance.held.told => {
                if let Some(before) = self.left.insert(driver.clone(), Left { until, held: instance.held }) {
                    before.held.end.stop();
                }
            }
            Some(_) | None => instance.held.end.stop(),
        }
        Some(driver)
    }

    /// A driver is registered anew: what was kept of it may go.
    pub(super) fn back(&mut self, driver: &str) {
        if let Some(left) = self.left.remove(driver) {
            left.held.end.stop();
        }
    }

    /// Forgets drivers whose time is over, and names them.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<String> {
        let over: Vec<String> =
            self.left.iter().filter(|(_, left)| left.until <= now).map(|(name, _)| name.clone()).collect();
        for driver in &over {
            self.back(driver);
        }
        over
    }

    /// The connection to use for a driver.
    pub(super) fn chosen(&self, driver: &str) -> Option<&Held> {
        let here = self.instances.chosen(driver, |held| held.said.is_some()).map(|instance| &instance.held);
        here.or_else(|| self.left.get(driver).map(|left| &left.held))
    }

    pub(super) fn registered(&self, driver: &str) -> Option<Registered> {
        self.chosen(driver)?.registered()
    }

    /// Another answer of the driver that is used.
    pub(super) fn say(&mut self, said: &Said) {
        let chosen = self.chosen(&said.driver).map(|held| (held.socket.clone(), held.generation));
        let Some((socket, generation)) = chosen else { return };
        if let Some(instance) = self.instance(&socket, generation) {
            instance.held.said = Some(Arc::new(said.clone()));
        }
    }

    pub(super) fn known(&self) -> Known {
        let drivers: BTreeSet<&str> = self.instances.iter().map(|(_, instance)| instance.driver.as_str()).collect();
        let chosen = drivers.iter().filter_map(|driver| self.instances.chosen(driver, |held| held.said.is_some()));
        let mut said: Vec<(u64, &Arc<Said>)> =
            chosen.filter_map(|instance| Some((instance.order, instance.held.said.as_ref()?))).collect();
        said.sort_by_key(|(order, _)| *order);
        let trying = self.seen.values().filter(|seen| !seen.refused).filter_map(|seen| seen.driver.clone());
        Known {
            said: said.into_iter().map(|(_, said)| Said::clone(said)).collect(),
            kept: self.left.keys().cloned().chain(trying).collect(),
            until: self.left.values().map(|left| left.until).min(),
        }
    }

    /// All of them, by socket.
    pub(super) fn plugins(&self) -> Vec<Plugin> {
        let of_seen = self.seen.iter().map(|(socket, seen)| {
            let instance = self.instances.get(socket);
            let used = |instance: &Instance<Held>| {
                let chosen = self.chosen(&instance.driver);
                chosen.is_some_and(|chosen| chosen.socket == *socket)
            };
            let standing = match (instance, &seen.problem) {
                (Some(instance), _) if !instance.held.told => Standing::Registering,
                (Some(instance), _) if used(instance) => Standing::Used,
                (Some(_), _) => Standing::Standby,
                (None, Some(why)) => Standing::Failed { why: why.clone() },
                (None, None) => Standing::Found,
            };
            let endpoint = instance.map(|instance| instance.held.endpoint.clone());
            Plugin { socket: socket.clone(), driver: seen.driver.clone(), endpoint, standing }
        });
        let of_left = self.left.iter().map(|(driver, left)| Plugin {
            socket: left.held.socket.clone(),
            driver: Some(driver.clone()),
            endpoint: Some(left.held.endpoint.clone()),
            standing: Standing::Leaving,
        });
        of_seen.chain(of_left).collect()
    }
}
