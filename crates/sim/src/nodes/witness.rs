//! What must be true at every moment: somebody who sees every write, every effect in the backend and every change of
//! every machine, and says at once what must never be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{AccessMode, Uid, Volume, VolumeMode};
use apiserver::store::{Scope, Start, Store, Watch, WatchEnd};
use futures_util::future::select_all;
use node::host::{Mount, Mounts};
use node::layout::{Layout, Name};
use tokio::time::Instant;

use super::seen::{self, PodSeen, Seen};
use crate::World;
use crate::driver::{self, Attach, Model, Staging};
use crate::machine::{self, Machine, Power};
use crate::storage::witness::{Truth, Witness, handle_of};

/// Where agents keep everything.
pub const ROOT: &str = "/var/lib/orlop";
/// Where the model driver's volumes are on a machine.
pub(super) const DEVICES: &str = "/dev/sim";

/// Sees everything. Clones are the same.
#[derive(Clone)]
pub(super) struct Eyes {
    inner: Arc<Mutex<Inner>>,
    store: Store,
    /// The witness of claims and volumes.
    pub(super) storage: Witness,
}

impl std::fmt::Debug for Eyes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Eyes").finish_non_exhaustive()
    }
}

struct Inner {
    seen: Seen,
    machines: Vec<Machine>,
    model: Model,
    /// Volumes that one node at a time may have.
    single: BTreeMap<String, bool>,
    /// The PersistentVolumes of the backend's volumes, also of those that are gone.
    names: BTreeMap<String, BTreeSet<String>>,
    /// Mounts of running pods: they must stay.
    running: BTreeMap<Running, PathBuf>,
    /// Volumes that were broken on a machine by the world, not by anybody under test.
    broken: BTreeSet<(String, String)>,
    /// Volumes on machines that they were detached from, with proof that it was safe.
    excused: BTreeSet<(String, String)>,
    /// Mounts of pods, also of those whose claim is gone: what is known of each.
    of_pods: BTreeMap<Running, PodMount>,
    /// When the agent of a machine last ended.
    agent_ends: BTreeMap<String, Instant>,
    /// Volumes, with the node's name, that a machine had when another one of that name took over the node's lease after it
    /// had not been renewed for its whole time. The first machine may be cut off: nobody can make it let go.
    inherited: BTreeSet<(String, String)>,
    /// Whether a backup was restored.
    was_restored: bool,
    /// What the backend has attached, node and handle, although no object tells of it since a backup was restored.
    forgotten: BTreeSet<(String, String)>,
}

/// What is known of a mount that is in a pod's directory.
#[derive(Debug)]
struct PodMount {
    since: Instant,
    /// Whether the pod's claim stood for the volume while it was mounted.
    was_wanted: bool,
}

/// A pod's volume on a machine, in one of its lives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Running {
    machine: String,
    boot: u64,
    pod: Uid,
    volume: String,
}

impl Eyes {
    pub(super) fn new(
        world: &World,
        (storage, model): (&Witness, &Model),
        machines: &[Machine],
        force_after: Option<Duration>,
    ) -> Self {
        let store = world.api().store().clone();
        let inner = Inner {
            seen: Seen::new(world, force_after),
            machines: machines.to_vec(),
            model: model.clone(),
            single: BTreeMap::new(),
            names: BTreeMap::new(),
            running: BTreeMap::new(),
            broken: BTreeSet::new(),
            excused: BTreeSet::new(),
            of_pods: BTreeMap::new(),
            agent_ends: BTreeMap::new(),
            inherited: BTreeSet::new(),
            was_restored: false,
            forgotten: BTreeSet::new(),
        };
        Self { inner: Arc::new(Mutex::new(inner)), store, storage: storage.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks whenever something is written, for ever.
    pub(super) async fn run(&self) {
        let waking = seen::WATCHED.map(|resource| self.store.watch(Scope::all(resource), Start::Now));
        let mut waking: Vec<Watch> = waking.into_iter().filter_map(Result::ok).collect();
        loop {
            let (seen, _, _) = select_all(waking.iter_mut().map(|watch| Box::pin(watch.next()))).await;
            if let Err(WatchEnd::Closed) = seen {
                return;
            }
            for watch in &mut waking {
                while let Ok(Some(_)) = watch.try_next() {}
            }
            self.judge();
        }
    }

    /// Takes in what was written, and judges what is.
    pub(super) fn judge(&self) {
        let found = self.storage.look_at(|truth| self.lock().judge(truth));
        found.into_iter().for_each(|found| self.storage.accuse(found));
    }

    /// The world breaks a volume on a machine: what becomes of its mounts there is nobody's fault.
    pub(super) fn breaks(&self, machine: &str, volume: &str) {
        self.lock().broken.insert((machine.to_owned(), volume.to_owned()));
    }

    /// The agent of a machine ended: the next one does not know what pods were told.
    pub(super) fn agent_ended(&self, body: &str) {
        self.lock().agent_ends.insert(body.to_owned(), Instant::now());
    }

    /// The backend takes a volume from a node by itself.
    pub(super) fn takes_away(&self, node: &str, volume: &str) {
        self.lock().inherited.insert((node.to_owned(), volume.to_owned()));
    }

    /// An older backup of attachments and nodes was restored.
    pub(super) fn restored(&self) {
        self.lock().was_restored = true;
    }

    /// What the backend has attached, node and handle, and no object tells of since a backup was restored.
    pub(super) fn forgotten(&self) -> BTreeSet<(String, String)> {
        self.lock().forgotten.clone()
    }

    /// By machine: handles that are mounted in the directories of pods which live there, and that these pods may work with
    /// although their claims have gone or name other volumes by now. Such a volume stays until the pod ends.
    ///
    /// A pod may work with what was mounted while its claim stood for it, and with what an earlier agent left. Where caches
    /// may be stale (`is_lenient`), an agent may have believed that the claim stands.
    pub(super) fn with_living_pods(
        &self,
        machines: &[Machine],
        is_lenient: bool,
    ) -> BTreeMap<String, BTreeSet<String>> {
        self.judge();
        let inner = self.lock();
        let mut kept: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (mount, known) in &inner.of_pods {
            let Some(machine) = machines.iter().find(|machine| machine.body() == mount.machine) else { continue };
            let lives = |pod: &&PodSeen| pod.uid == mount.pod && pod.node == machine.name() && !pod.leaving;
            let left_by_another = inner.agent_ends.get(&mount.machine).is_some_and(|end| *end >= known.since);
            if inner.seen.pods.values().any(|pod| lives(&pod)) && (is_lenient || known.was_wanted || left_by_another) {
                kept.entry(machine.name().to_owned()).or_default().insert(mount.volume.clone());
            }
        }
        kept
    }

    /// Something about what is stored, as of now.
    pub(super) fn look_at<T>(&self, what: impl FnOnce(&Seen) -> T) -> T {
        let mut inner = self.lock();
        inner.seen.look();
        what(&inner.seen)
    }

    /// For how long nothing was written that storage is about.
    pub(super) fn quiet(&self) -> Duration {
        self.storage.quiet().min(self.look_at(|seen| seen.changed.elapsed()))
    }
}

impl machine::Onlooker for Eyes {
    fn changed(&self, _: &Machine) {
        self.judge();
    }
}

/// The backend asks the witness of claims about deletions, and this one about everything else.
impl driver::Onlooker for Eyes {
    fn deleting(&self, volume: &driver::Volume) {
        driver::Onlooker::deleting(&self.storage, volume);
    }

    fn deletion_called(&self, volume: &driver::Volume) {
        driver::Onlooker::deletion_called(&self.storage, volume);
        self.judge();
        let found = self.lock().still_held(&volume.id);
        found.into_iter().for_each(|found| self.storage.accuse(found));
    }

    fn happened(&self) {
        self.judge();
    }
}

/// The volume of the model driver that a mount shows.
pub(super) fn shown(mount: &Mount) -> Option<String> {
    let source = mount.source.to_str()?;
    let volume = source.strip_prefix(DEVICES).and_then(|rest| rest.strip_prefix('/'));
    let device = || mount.root.strip_prefix("/sim").ok()?.to_str();
    volume.or_else(|| device().filter(|_| mount.fs_type == "devtmpfs")).map(str::to_owned)
}

/// The volumes that a machine has in any form.
pub(super) fn held(machine: &Machine) -> BTreeSet<String> {
    machine.with_kernel(|kernel| {
        let mounted = kernel.mounts().0.iter().filter_map(shown).collect::<Vec<_>>();
        let devices = kernel.list(Path::new(DEVICES)).unwrap_or_default();
        let devices = devices.into_iter().filter_map(|entry| entry.name.into_string().ok());
        mounted.into_iter().chain(devices).collect()
    })
}

/// Whether this mount is a staged filesystem, which every other mount of the volume on a machine is a view of.
fn is_staging(mount: &Mount) -> bool {
    mount.point.file_name().is_some_and(|name| name == "globalmount")
}

/// Where a pod gets a volume.
pub(super) fn target(pod: &PodSeen, volume: &Volume) -> Option<PathBuf> {
    let layout = Layout::new(ROOT).ok()?;
    let (uid, name) = (Name::new(pod.uid.as_str()).ok()?, Name::new(volume.name()).ok()?);
    Some(match volume.mode {
        VolumeMode::Block => layout.block(&name).ok()?.publish(&uid),
        _ => layout.pod(&uid).csi(&name).mount(),
    })
}

/// The volumes that a pod's claims stand for, as far as they are the model driver's.
pub(super) fn volumes<'a>(pod: &'a PodSeen, truth: &'a Truth) -> impl Iterator<Item = &'a Arc<Volume>> {
    pod.claims.iter().filter_map(|claim| {
        let key = api::Key::namespaced(pod.key.namespace().unwrap_or_default(), claim);
        let claim = truth.claims.get(&key)?;
        let volume = truth.volumes.get(&claim.volume_name)?;
        let ours = volume.claim.as_ref().and_then(|owner| owner.uid.as_ref()) == Some(claim.uid());
        (ours && handle_of(volume).is_some()).then_some(volume)
    })
}

impl Inner {
    fn judge(&mut self, truth: &Truth) -> Vec<String> {
        let mut found = Vec::new();
        self.seen.look();
        if self.seen.lagged {
            found.push("the witness was too slow for the history".to_owned());
        }
        self.learn(truth);
        let scenes: Vec<Scene> = self.machines.iter().filter_map(Scene::of).collect();
        let mut held: BTreeSet<(String, String)> = BTreeSet::new();
        for scene in &scenes {
            held.extend(scene.held.iter().map(|volume| (scene.name.clone(), volume.clone())));
        }
        self.inherit(&held);
        for scene in &scenes {
            found.extend(self.machine(scene, &held, truth));
        }
        let runs = |node: &str| scenes.iter().any(|scene| scene.name == node);
        let is_over = |pair: &(String, String)| runs(&pair.0) && !held.contains(pair);
        self.excused.retain(|pair| !is_over(pair));
        self.broken.retain(|pair| !is_over(pair));
        self.inherited.retain(|pair| !is_over(pair));
        self.forget_attached();
        found.extend(self.two_nodes(&scenes));
        found
    }

    /// Once a backup was restored, nothing but the backend may know that a volume is attached somewhere.
    fn forget_attached(&mut self) {
        if !self.was_restored {
            return;
        }
        let objects = self.seen.attachments.values();
        let told = objects.filter_map(|object| {
            let unique = lifecycle::attach::published(object);
            let handle =
                unique.as_deref().and_then(lifecycle::attach::parse_unique).map(|(_, handle)| handle.to_owned());
            let by_name = object.volume.as_deref();
            let named = || self.names.iter().find(|(_, names)| by_name.is_some_and(|name| names.contains(name)));
            Some((object.node.to_string(), handle.or_else(|| named().map(|(handle, _)| handle.clone()))?))
        });
        let told: BTreeSet<(String, String)> = told.collect();
        let attached: Vec<(String, String)> = self.model.tamper(|state| {
            let volumes: Vec<String> = state.volumes().map(|volume| volume.id.clone()).collect();
            let pairs = volumes.iter().flat_map(|id| state.published(id).map(|(node, _)| (node.clone(), id.clone())));
            pairs.collect()
        });
        self.forgotten = attached.into_iter().filter(|pair| !told.contains(pair)).collect();
        // An attachment that is lost would have been taken away on the same proof.
        let given_up = self.forgotten.iter().filter(|(node, _)| self.seen.is_fenced(node));
        self.excused.extend(given_up.cloned());
    }

    fn learn(&mut self, truth: &Truth) {
        for volume in truth.volumes.values() {
            if let Some(handle) = handle_of(volume) {
                let many = [AccessMode::ReadWriteMany, AccessMode::ReadOnlyMany];
                let single = !volume.access.is_empty() && !many.iter().any(|mode| volume.access.contains(*mode));
                self.single.insert(handle.to_owned(), single);
                self.names.entry(handle.to_owned()).or_default().insert(volume.name().to_owned());
            }
        }
    }

    /// Another machine looks after a node: what the first one has stays there.
    fn inherit(&mut self, held: &BTreeSet<(String, String)>) {
        let taken_over = self.seen.take_overs();
        self.inherited.extend(held.iter().filter(|(node, _)| taken_over.contains(node)).cloned());
    }

    /// Everything that is wrong on one machine.
    fn machine(&mut self, scene: &Scene, all: &BTreeSet<(String, String)>, truth: &Truth) -> Vec<String> {
        let mut found = Vec::new();
        let Scene { name, mounts, held, .. } = scene;
        found.extend(self.unattached(name, held, all));
        if self.model.habits().staging == Staging::Required {
            found.extend(unstaged(name, mounts));
        }
        found.extend(self.vanished(scene, truth));
        for (volume, writes) in self.model.unwritten(&scene.body, scene.boot, held) {
            let body = &scene.body;
            found.push(format!(
                "lost writes: {body} let go of {volume}, {writes} writes are not on its disk and nobody is told"
            ));
        }
        found
    }

    /// Staged implies attached, or nothing staged is detached (CTRL-I14, NODE-20).
    fn unattached(&mut self, node: &str, held: &BTreeSet<String>, all: &BTreeSet<(String, String)>) -> Vec<String> {
        if self.model.habits().attach == Attach::Not {
            return Vec::new();
        }
        let mut found = Vec::new();
        for volume in held {
            let pair = (node.to_owned(), volume.clone());
            if self.model.tamper(|state| state.is_published(volume, node)) {
                self.excused.remove(&pair);
                continue;
            }
            let name = self.names.get(volume).cloned().unwrap_or_default();
            if self.excused.contains(&pair) || self.inherited.contains(&pair) {
                continue;
            }
            match self.seen.is_fenced(node) || name.iter().any(|name| self.seen.is_excused(name, node)) {
                true => drop(self.excused.insert(pair)),
                false => found.push(format!("detached while staged: {node} has {volume}, which is not attached to it")),
            }
        }
        let is_held = |handle: &String| all.contains(&(node.to_owned(), handle.clone()));
        let names: Vec<_> = self.names.iter().filter(|(handle, _)| !is_held(handle)).collect();
        for (handle, names) in names {
            if !self.model.tamper(|state| state.is_published(handle, node)) {
                names.iter().for_each(|name| self.seen.ended(name, node));
            }
        }
        found
    }

    /// DeleteVolume is called while machines have the volume.
    fn still_held(&self, volume: &str) -> Vec<String> {
        if self.model.habits().attach == Attach::Not {
            // Nothing in the cluster says that a machine still has it: only the driver can know.
            return Vec::new();
        }
        let scenes = self.machines.iter().filter_map(Scene::of).filter(|scene| scene.held.contains(volume));
        let held = scenes.filter(|scene| {
            let pair = (scene.name.clone(), volume.to_owned());
            !self.excused.contains(&pair) && !self.inherited.contains(&pair)
        });
        held.map(|scene| format!("deleted while staged: DeleteVolume {volume}, and {} has it", scene.body)).collect()
    }

    /// A running pod's mount never disappears.
    fn vanished(&mut self, scene: &Scene, truth: &Truth) -> Vec<String> {
        // Two machines may have one name.
        let Scene { name, body: machine, boot, mounts, .. } = scene;
        // What lies over the mount is nobody's fault.
        let there = |path: &Path, volume: &str| {
            let mut layers = mounts.0.iter().filter(|mount| mount.point == path);
            layers.any(|mount| shown(mount).is_some_and(|shown| shown == volume))
        };
        let pods: Vec<_> = self.seen.pods.values().filter(|pod| pod.node == *name && !pod.leaving).collect();
        let mut wanted = BTreeMap::new();
        for pod in pods {
            for volume in volumes(pod, truth) {
                let (Some(handle), Some(path)) = (handle_of(volume), target(pod, volume)) else { continue };
                let (machine, pod_uid, volume) = (machine.to_owned(), pod.uid.clone(), handle.to_owned());
                let running = Running { machine, boot: *boot, pod: pod_uid, volume };
                wanted.insert(running, (path, pod.ready.as_ref().is_some_and(|ready| ready.yes)));
            }
        }
        self.look_at_pod_mounts(scene, &wanted);
        let broken = |running: &Running| self.broken.contains(&(running.machine.clone(), running.volume.clone()));
        self.running
            .retain(|running, _| running.machine != *machine || (wanted.contains_key(running) && !broken(running)));
        let mut found = Vec::new();
        for (running, path) in self.running.iter().filter(|(running, _)| running.machine == *machine) {
            if !there(path, &running.volume) {
                let (pod, path) = (&running.pod, path.display());
                found.push(format!("vanished: pod {pod} runs on {machine}, and nothing is mounted at {path} any more"));
            }
        }
        for (running, (path, ready)) in wanted {
            if ready && there(&path, &running.volume) && !broken(&running) {
                self.running.insert(running, path);
            }
        }
        found
    }

    /// Remembers what is mounted in the directories of pods.
    fn look_at_pod_mounts(&mut self, scene: &Scene, wanted: &BTreeMap<Running, (PathBuf, bool)>) {
        let pods: BTreeMap<&str, &Uid> = self.seen.pods.values().map(|pod| (pod.uid.as_str(), &pod.uid)).collect();
        let mut now: BTreeMap<Running, bool> = BTreeMap::new();
        for mount in scene.mounts.under(Path::new(ROOT)) {
            let pod = mount.point.iter().find_map(|part| pods.get(part.to_str()?).copied());
            if let (Some(pod), Some(volume)) = (pod, shown(mount)) {
                let at = Running { machine: scene.body.clone(), boot: scene.boot, pod: pod.clone(), volume };
                let is_wanted = wanted.contains_key(&at);
                now.insert(at, is_wanted);
            }
        }
        self.of_pods.retain(|at, _| at.machine != scene.body || now.contains_key(at));
        for (at, is_wanted) in now {
            let fresh = || PodMount { since: Instant::now(), was_wanted: false };
            self.of_pods.entry(at).or_insert_with(fresh).was_wanted |= is_wanted;
        }
    }

    /// Never two nodes for a volume of one node, in the backend or on machines, without proof that one is fenced.
    fn two_nodes(&self, scenes: &[Scene]) -> Vec<String> {
        if self.model.habits().attach == Attach::Not {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (volume, _) in self.single.iter().filter(|(_, single)| **single) {
            let published: BTreeSet<String> =
                self.model.tamper(|state| state.published(volume).map(|(node, _)| node.clone()).collect());
            let is_excused = |node: &str| {
                let pair = (node.to_owned(), volume.clone());
                self.excused.contains(&pair) || self.inherited.contains(&pair)
            };
            let holding: Vec<&Scene> = scenes.iter().filter(|scene| scene.held.contains(volume)).collect();
            // The backend knows names, and several machines may have one.
            let unseen = published.into_iter().filter(|node| !holding.iter().any(|scene| scene.name == *node));
            let is_forgotten = |node: &String| self.forgotten.contains(&(node.clone(), volume.clone()));
            let unseen = unseen.filter(|node| !is_excused(node) && !is_forgotten(node));
            let seen = holding.iter().filter(|scene| !is_excused(&scene.name)).map(|scene| scene.body.clone());
            let nodes: BTreeSet<String> = seen.chain(unseen).collect();
            if nodes.len() > 1 {
                found
                    .push(format!("two nodes: {volume} is on {}", nodes.into_iter().collect::<Vec<_>>().join(" and ")));
            }
        }
        found
    }
}

/// A machine that runs, at one moment.
struct Scene {
    name: String,
    /// What tells it from another machine of the same name.
    body: String,
    boot: u64,
    mounts: Mounts,
    held: BTreeSet<String>,
}

impl Scene {
    fn of(machine: &Machine) -> Option<Self> {
        let Power::On { boot } = machine.power() else { return None };
        let mounts = machine.with_kernel(|kernel| kernel.mounts());
        Some(Self { name: machine.name().to_owned(), body: machine.body(), boot, mounts, held: held(machine) })
    }
}

/// Published implies staged.
fn unstaged(machine: &str, mounts: &Mounts) -> Vec<String> {
    let filesystems = mounts.0.iter().filter(|mount| mount.fs_type != "devtmpfs");
    let shown: BTreeMap<String, Vec<&Mount>> = filesystems.fold(BTreeMap::new(), |mut shown_at, mount| {
        if let Some(volume) = shown(mount) {
            shown_at.entry(volume).or_insert_with(Vec::new).push(mount);
        }
        shown_at
    });
    let loose = shown.iter().filter(|(_, mounts)| !mounts.iter().any(|mount| is_staging(mount)));
    let text = |(volume, mounts): (&String, &Vec<&Mount>)| {
        let at: Vec<String> = mounts.iter().map(|mount| mount.point.display().to_string()).collect();
        format!("published without stage: {machine} has {volume} at {} and not staged", at.join(", "))
    };
    loose.map(text).collect()
}
