//! What happens to a machine while nobody wants it to: its agent dies, it reboots, its cable is pulled, it is off for long
//! and somebody says that it is out of service, its Node object is deleted and comes back, a filesystem on it breaks.
//!
//! What a cluster does about that is here as well, as far as storage depends on it: a node that is not heard of is not
//! ready, and pods of a node that is gone are ended by force.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use api::keys::{annotation, label, taint};
use api::{Key, Kind};
use lifecycle::registration::lease::AgentHistory;
use node::host::{Access, Force};
use node::layout::Layout;
use runtime::client::Preconditions;
use runtime::watch;
use runtime::{Client, Patch};
use rustix::io::Errno;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Also;
use super::witness::{DEVICES, Eyes, ROOT, shown};
use crate::driver::{Attach, Model, NodeSide, Places, VolumeUse, Writeback};
use crate::faults::{Ask, Fate, Fates, Flow, Verdict};
use crate::machine::{Machine, Power, Superblock};
use crate::outage::Outage;
use crate::random::Random;
use crate::world::Weather;
use crate::{Component, Process, World, keys};

const SECOND: Duration = Duration::from_secs(1);
/// A node that was not heard of for so long is not ready.
const GRACE: Duration = Duration::from_secs(10);
/// The type of what a person mounts over a volume.
pub(super) const COVER: &str = "tmpfs";
/// A clone's boots are counted from here.
const CLONE_BOOTS: u64 = 1_000;

/// Whether a machine reaches the API server. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Cable(Arc<AtomicBool>);

impl Cable {
    fn is_cut(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, cut: bool) {
        self.0.store(cut, Ordering::Relaxed);
    }
}

/// Fates behind a cable: while it is cut, nothing arrives.
pub(super) struct Cabled<F> {
    pub(super) fates: F,
    pub(super) cable: Cable,
}

impl<F: Fates> Fates for Cabled<F> {
    fn request(&mut self, ask: &Ask<'_>) -> Verdict {
        let verdict = self.fates.request(ask);
        match self.cable.is_cut() {
            true => Verdict { fate: Fate::RequestLost, ..verdict },
            false => verdict,
        }
    }

    fn event(&mut self, watch: u64) -> Flow {
        let flow = self.fates.event(watch);
        if self.cable.is_cut() { Flow::Broken } else { flow }
    }
}

/// A machine with its driver, and the ways to hurt it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) machine: Machine,
    pub(super) side: NodeSide,
    pub(super) cable: Cable,
    /// The name of the agent's component.
    pub(super) agent: String,
    /// While this lasts, the agent stands still.
    pub(super) suspended: Outage,
    /// Counts how often the agent was killed.
    pub(super) kills: watch::Sender<u64>,
    zone: &'static str,
    boots: AtomicU64,
    /// An agent has worked on this machine.
    has_worked: AtomicBool,
}

impl Place {
    pub(super) fn new(machine: &Machine, side: NodeSide, zone: &'static str) -> Self {
        let (machine, kills) = (machine.clone(), watch::Sender::new(0));
        let agent = match machine.is_clone() {
            true => format!("agent-{}-clone", machine.name()),
            false => format!("agent-{}", machine.name()),
        };
        let (suspended, has_worked) = (Outage::default(), AtomicBool::new(false));
        let boots = AtomicU64::new(1);
        Self { machine, side, cable: Cable::default(), agent, suspended, kills, zone, boots, has_worked }
    }

    fn power_on(&self) {
        if self.machine.power() == Power::Off {
            self.machine.power_on(self.boots.fetch_add(1, Ordering::Relaxed) + 1);
        }
    }

    /// Whether an agent has worked on this machine's disk. A clone's disk is its original's.
    pub(super) fn history(&self) -> AgentHistory {
        let is_first = !self.machine.is_clone() && !self.has_worked.swap(true, Ordering::Relaxed);
        if is_first { AgentHistory::FirstStart } else { AgentHistory::WorkedBefore }
    }

    pub(super) fn boots(&self) -> u64 {
        self.boots.load(Ordering::Relaxed)
    }
}

/// Volumes that pods of a machine have and that answer.
fn with_pods(machine: &Machine) -> BTreeSet<String> {
    let Ok(layout) = Layout::new(ROOT) else { return BTreeSet::new() };
    machine.with_kernel(|kernel| {
        let mounts = kernel.mounts();
        let of_pods = [layout.pods(), layout.blocks()];
        let shown_there = mounts.0.iter().filter(|mount| of_pods.iter().any(|place| mount.point.starts_with(place)));
        let volumes: BTreeSet<String> = shown_there.filter(|mount| !mount.read_only).filter_map(shown).collect();
        volumes.into_iter().filter(|volume| !kernel.is_broken(&format!("{DEVICES}/{volume}"))).collect()
    })
}

/// How hard life is for machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hardness {
    /// Nothing happens to them.
    Mild,
    Hard,
}

/// Whoever runs the machines and looks after their Node objects.
#[derive(Debug)]
pub(super) struct Days {
    component: Component,
    client: Client,
    eyes: Eyes,
    weather: Weather,
    places: Places,
    model: Model,
    also: BTreeSet<Also>,
}

impl Days {
    pub(super) fn new(world: &World, eyes: &Eyes, (model, also): (&Model, &BTreeSet<Also>), places: Places) -> Self {
        let component = world.component("cluster", crate::faults::Fair);
        let client = Process::new(world, &component, 0).context.client;
        let (model, also) = (model.clone(), also.clone());
        Self { component, client, eyes: eyes.clone(), weather: world.weather(), places, model, also }
    }

    /// Lives through a machine's days until the world is calm, and sets everything right then.
    pub(super) async fn live(&self, place: &Place, mut random: Random, hardness: Hardness) {
        self.register(place).await;
        while !self.weather.is_calm() {
            sleep(random.between(&(5 * SECOND..=45 * SECOND))).await;
            if self.weather.is_calm() || hardness == Hardness::Mild {
                continue;
            }
            match random.below(100) {
                0..=29 => place.kills.send_modify(|kills| *kills += 1),
                30..=44 => self.reboot(place, &mut random).await,
                45..=64 => self.cut(place, &mut random).await,
                65..=79 => self.outage(place, &mut random).await,
                80..=87 => self.deletion(place, &mut random).await,
                _ => self.corrupt(place, &mut random),
            }
        }
        place.cable.set(false);
        place.power_on();
        self.register(place).await;
        self.set_ready(place, "True").await;
        std::future::pending().await
    }

    async fn reboot(&self, place: &Place, random: &mut Random) {
        place.machine.power_off();
        self.lose_attachments(place);
        sleep(random.between(&(SECOND..=20 * SECOND))).await;
        place.power_on();
    }

    /// The backend takes a machine that went off for gone.
    fn lose_attachments(&self, place: &Place) {
        if !self.also.contains(&Also::LostAttachments) || self.model.habits().attach == Attach::Not {
            return;
        }
        let node = place.machine.name();
        self.component.note(format_args!("the backend takes the volumes of {node} away"));
        self.model.tamper(|state| {
            let volumes: Vec<String> = state.volumes_on(node).cloned().collect();
            for volume in volumes {
                // A machine of the same name may run.
                self.eyes.takes_away(node, &volume);
                drop(state.unpublish(&volume, node));
            }
        });
    }

    /// Now and then a machine is suspended, until the world is calm: its agent stands still and goes on where it was.
    pub(super) async fn suspend(&self, place: &Place, mut random: Random, hardness: Hardness) {
        while !self.weather.is_calm() {
            sleep(random.between(&(20 * SECOND..=90 * SECOND))).await;
            if self.weather.is_calm() || hardness == Hardness::Mild {
                continue;
            }
            let time = random.between(&(SECOND..=60 * SECOND));
            place.machine.note(format_args!("suspended for {} s", time.as_secs()));
            place.suspended.begin();
            sleep(time.min(GRACE)).await;
            if time > GRACE {
                self.set_ready(place, "Unknown").await;
                sleep(time - GRACE).await;
            }
            place.machine.note("resumed");
            place.suspended.end();
            self.set_ready(place, "True").await;
        }
        std::future::pending().await
    }

    /// Now and then a copy of a machine runs beside it: the same name, the same disk, another boot.
    pub(super) async fn clone_for_a_while(&self, clone: &Place, original: &Place, mut random: Random) {
        while !self.weather.is_calm() {
            sleep(random.between(&(10 * SECOND..=40 * SECOND))).await;
            if self.weather.is_calm() {
                break;
            }
            clone.machine.copy_disk(&original.machine);
            clone.machine.note("a clone runs");
            let boot = CLONE_BOOTS + clone.boots.fetch_add(1, Ordering::Relaxed);
            clone.machine.power_on(boot);
            sleep(random.between(&(10 * SECOND..=60 * SECOND))).await;
            clone.machine.note("the clone ends");
            clone.machine.power_off();
        }
        std::future::pending().await
    }

    /// The API server's wall clock steps until the world is calm.
    pub(super) async fn step_server_clock(&self, world: &World) {
        let mut random = world.random("server clock");
        while !self.weather.is_calm() {
            sleep(random.between(&(5 * SECOND..=30 * SECOND))).await;
            let seconds = i64::try_from(random.below(7_200)).unwrap_or_default() - 3_600;
            self.component.note(format_args!("the server's wall clock is off by {seconds} s"));
            world.server_offset().set(seconds * 1_000);
        }
        std::future::pending().await
    }

    /// The pool goes and comes back until the world is calm.
    pub(super) async fn lose_pool(&self, random: Random) {
        self.model.lose_pool_for_sure(random).await;
    }

    /// A person mounts something over volumes and takes it away again, until the world is calm.
    pub(super) async fn overmount(&self, place: &Place, mut random: Random) {
        let machine = &place.machine;
        while !self.weather.is_calm() {
            sleep(random.between(&(5 * SECOND..=40 * SECOND))).await;
            let mounts = machine.with_kernel(|kernel| kernel.mounts());
            let directories = mounts.0.iter().filter(|mount| mount.fs_type != "devtmpfs" && shown(mount).is_some());
            let points: Vec<PathBuf> = directories.map(|mount| mount.point.clone()).collect();
            let Some(point) = random.pick(&points).filter(|_| !self.weather.is_calm()) else { continue };
            let cover = Superblock { fs_type: COVER, source: COVER };
            let text = format!("a person mounts something over {}", point.display());
            let _ = machine.act(&text, |kernel| kernel.mount(cover, point, Access::ReadWrite));
            sleep(random.between(&(5 * SECOND..=40 * SECOND))).await;
            let is_covered =
                machine.with_kernel(|kernel| kernel.mounts().at(point).is_some_and(|top| top.fs_type == COVER));
            if is_covered {
                let text = format!("a person uncovers {}", point.display());
                let _ = machine.act(&text, |kernel| kernel.unmount(point, Force::No));
            }
        }
        std::future::pending().await
    }

    /// Pods write to their volumes, kernels write to disks, and now and then the pool is full, until the world is calm.
    pub(super) async fn write_files(&self, machines: Vec<Machine>, mut random: Random) {
        let mut is_full = false;
        while !self.weather.is_calm() {
            sleep(random.between(&(Duration::from_millis(500)..=4 * SECOND))).await;
            if random.below(10) == 0 {
                is_full = !is_full;
                self.model.fill(is_full);
            }
            for machine in &machines {
                let Power::On { boot } = machine.power() else { continue };
                for volume in with_pods(machine) {
                    let at = VolumeUse { body: machine.body(), boot, volume };
                    match random.below(3) {
                        0 => self.model.write_back(&at, Writeback::Works),
                        _ => self.model.write(at),
                    }
                }
            }
        }
        self.model.fill(false);
        std::future::pending().await
    }

    async fn cut(&self, place: &Place, random: &mut Random) {
        let time = random.between(&(2 * SECOND..=90 * SECOND));
        place.machine.note(format_args!("cable cut for {} s", time.as_secs()));
        place.cable.set(true);
        sleep(time.min(GRACE)).await;
        if time > GRACE {
            self.set_ready(place, "Unknown").await;
            sleep(time - GRACE).await;
        }
        place.machine.note("cable back");
        place.cable.set(false);
        self.set_ready(place, "True").await;
    }

    /// Off for a while. People tell the cluster so in one of two ways, or not at all.
    async fn outage(&self, place: &Place, random: &mut Random) {
        place.machine.power_off();
        self.lose_attachments(place);
        sleep(GRACE).await;
        self.set_ready(place, "Unknown").await;
        sleep(random.between(&(SECOND..=20 * SECOND))).await;
        match random.below(3) {
            0 => {
                let entry =
                    json!([{"key": taint::OUT_OF_SERVICE.text(), "value": "nodeshutdown", "effect": "NoExecute"}]);
                self.patch(place, json!({"spec": {"taints": entry}})).await;
                self.collect(place, random).await;
            }
            1 => {
                self.delete(place).await;
                self.collect(place, random).await;
            }
            _ => {}
        }
        sleep(random.between(&(SECOND..=60 * SECOND))).await;
        place.power_on();
        self.register(place).await;
        self.set_ready(place, "True").await;
    }

    /// The Node object goes although the machine runs, and comes back.
    async fn deletion(&self, place: &Place, random: &mut Random) {
        self.delete(place).await;
        if random.below(2) == 0 {
            self.collect(place, random).await;
        }
        sleep(random.between(&(Duration::from_millis(1)..=30 * SECOND))).await;
        self.register(place).await;
    }

    /// A filesystem of a volume stops answering.
    fn corrupt(&self, place: &Place, random: &mut Random) {
        let mounts = place.machine.with_kernel(|kernel| kernel.mounts());
        let found: Vec<(PathBuf, String)> = mounts
            .under(std::path::Path::new(ROOT))
            .filter(|mount| mount.fs_type != "devtmpfs")
            .filter_map(|mount| Some((mount.point.clone(), shown(mount)?)))
            .collect();
        let errno = *random.pick(&[Errno::NOTCONN, Errno::STALE, Errno::IO]).unwrap_or(&Errno::IO);
        if let Some((point, volume)) = random.pick(&found) {
            self.eyes.breaks(place.machine.name(), volume);
            place.machine.corrupt(point, errno);
        }
    }

    /// Pods of a node that is gone are ended by force.
    async fn collect(&self, place: &Place, random: &mut Random) {
        sleep(random.between(&(Duration::ZERO..=10 * SECOND))).await;
        let name = place.machine.name();
        let pods = self.eyes.look_at(|seen| {
            let here = seen.pods.values().filter(|pod| pod.node == name);
            here.map(|pod| (pod.key.clone(), pod.uid.clone())).collect::<Vec<_>>()
        });
        for (key, uid) in pods {
            self.component.note(format_args!("ends pod {key} of {name}"));
            let only = Preconditions { uid: Some(uid), ..Preconditions::default() };
            drop(self.client.delete_now::<api::Pod>(&key, &only).await);
        }
    }

    async fn delete(&self, place: &Place) {
        let key = Key::cluster(place.machine.name());
        self.component.note(format_args!("deletes node {key}"));
        drop(self.client.delete::<api::Node>(&key, &Preconditions::default()).await);
        drop(self.client.delete::<api::CsiNode>(&key, &Preconditions::default()).await);
    }

    /// There is a Node object that says what the machine is, and nothing about the past.
    async fn register(&self, place: &Place) {
        let name = place.machine.name();
        let metadata = json!({
            "name": name,
            "labels": {label::HOSTNAME.text(): name, keys::ZONE: place.zone},
            "annotations": {annotation::MANAGED_ATTACH.text(): api::keys::YES},
        });
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
        if self.client.create::<Value>(Kind::NODE, None, &node).await.is_ok() {
            self.component.note(format_args!("registers node {name}"));
            self.set_ready(place, "True").await;
        }
        self.patch(place, json!({"spec": {"taints": null}})).await;
        let keys: Vec<&str> = if self.places == Places::Zones { vec![keys::ZONE] } else { Vec::new() };
        let driver = json!({"name": keys::DRIVER, "nodeID": name, "topologyKeys": keys});
        let node = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": {"name": name}, "spec": {"drivers": [driver]},
        });
        drop(self.client.create::<Value>(Kind::CSI_NODE, None, &node).await);
    }

    async fn set_ready(&self, place: &Place, status: &str) {
        let mut condition = json!([{"type": "Ready", "status": status, "reason": "Simulated", "message": ""}]);
        if self.also.contains(&Also::ForceDetach) {
            // What looks after nodes has a clock that is right; the others' need not be.
            let name = place.machine.name();
            let since = self.eyes.look_at(|seen| seen.ready_since(name, status));
            condition[0]["lastTransitionTime"] = since.into();
        }
        let patch = Patch::Merge(json!({"status": {"conditions": condition}}));
        let key = Key::cluster(place.machine.name());
        drop(self.client.patch_status::<Value>(Kind::NODE, &key, &patch).await);
    }

    async fn patch(&self, place: &Place, patch: Value) {
        let key = Key::cluster(place.machine.name());
        drop(self.client.patch::<Value>(Kind::NODE, &key, &Patch::Merge(patch)).await);
    }
}
