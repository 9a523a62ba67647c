//! What must be true when nothing has gone wrong for a while: every pod has its volumes or says why not, and of what no pod
//! wants nothing is left, on machines, in the backend and in the API.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{AccessMode, Key, Volume, VolumeMode};
use node::layout::{Layout, Name};

use super::days::COVER;
use super::seen::{PodSeen, Seen};
use super::witness::{ROOT, held, shown, target, volumes};
use crate::driver::{Attach, Habits, Model};
use crate::keys;
use crate::machine::Machine;
use crate::storage::witness::{Truth, handle_of};

/// Everything that can be looked at.
pub(super) struct Scene<'a> {
    pub(super) truth: &'a Truth,
    pub(super) seen: &'a Seen,
    pub(super) model: &'a Model,
    pub(super) machines: &'a [Machine],
    /// By machine: handles that pods there may go on using, although their claims are gone.
    pub(super) with_pods: &'a BTreeMap<String, BTreeSet<String>>,
    /// What the backend has attached, node and handle, without any object that tells of it: a backup was restored.
    pub(super) forgotten: &'a BTreeSet<(String, String)>,
}

/// Everything that is not as it should be.
pub(super) fn judge(scene: &Scene<'_>) -> Vec<String> {
    let wanted = Wanted::of(scene);
    let mut found = Vec::new();
    for pod in scene.seen.pods.values() {
        found.extend(unexplained(scene, &wanted, pod));
    }
    for machine in scene.machines {
        found.extend(left_on(machine, scene, &wanted));
    }
    found.extend(left_attached(scene, &wanted));
    found
}

/// What living pods want, by node.
struct Wanted {
    /// Handles of the backend, by node.
    handles: BTreeMap<String, BTreeSet<String>>,
    /// Nodes that want a volume, by its name.
    nodes: BTreeMap<String, BTreeSet<String>>,
    /// Pods that want a volume, by its name.
    pods: BTreeMap<String, BTreeSet<Key>>,
}

impl Wanted {
    fn of(scene: &Scene<'_>) -> Self {
        let mut wanted = Self { handles: BTreeMap::new(), nodes: BTreeMap::new(), pods: BTreeMap::new() };
        for pod in scene.seen.pods.values().filter(|pod| !pod.leaving && !pod.node.is_empty()) {
            for volume in volumes(pod, scene.truth) {
                let (name, handle) = (volume.name().to_owned(), handle_of(volume).unwrap_or_default().to_owned());
                wanted.handles.entry(pod.node.clone()).or_default().insert(handle);
                wanted.nodes.entry(name.clone()).or_default().insert(pod.node.clone());
                wanted.pods.entry(name).or_default().insert(pod.key.clone());
            }
        }
        for (machine, handles) in scene.with_pods {
            wanted.handles.entry(machine.clone()).or_default().extend(handles.iter().cloned());
        }
        wanted
    }

    fn here(&self, node: &str) -> BTreeSet<String> {
        self.handles.get(node).cloned().unwrap_or_default()
    }
}

/// A pod that is neither served nor told why not.
fn unexplained(scene: &Scene<'_>, wanted: &Wanted, pod: &PodSeen) -> Option<String> {
    let (key, node) = (&pod.key, &pod.node);
    if pod.deleting {
        return Some(format!("unexplained: pod {key} on {node} was deleted and is still there"));
    }
    let machine = scene.machines.iter().find(|machine| machine.name() == node)?;
    if pod.leaving {
        return None;
    }
    let mounts = machine.with_kernel(|kernel| kernel.mounts());
    let is_there = |volume: &Arc<Volume>| {
        let at = target(pod, volume);
        at.and_then(|at| mounts.at(&at).and_then(shown)).as_deref() == handle_of(volume)
    };
    match &pod.ready {
        Some(ready) if ready.yes => {
            let bare = volumes(pod, scene.truth).find(|volume| !is_there(volume));
            let missing = pod.claims.len() != volumes(pod, scene.truth).count();
            match bare {
                Some(volume) => Some(format!("unexplained: pod {key} is said to be ready without {}", volume.name())),
                None if missing => Some(format!("unexplained: pod {key} is said to be ready without its claims")),
                None => None,
            }
        }
        Some(ready) if ready.reason.is_empty() || ready.message.is_empty() => {
            Some(format!("unexplained: pod {key} on {node} is not ready, and nobody says why"))
        }
        Some(ready) if !is_hindered(scene, wanted, pod) => {
            let (reason, message) = (&ready.reason, &ready.message);
            Some(format!("unexplained: nothing hinders pod {key} on {node}, and it is {reason}: {message}"))
        }
        Some(_) => None,
        None if pod.claims.is_empty() => None,
        None => Some(format!("unexplained: nobody says anything about pod {key} on {node}")),
    }
}

/// Whether there is a reason why a pod cannot have one of its volumes.
fn is_hindered(scene: &Scene<'_>, wanted: &Wanted, pod: &PodSeen) -> bool {
    let habits: &Habits = scene.model.habits();
    let attaches = habits.attach == Attach::Required;
    let namespace = pod.key.namespace().unwrap_or_default();
    let claims = pod.claims.iter().map(|claim| scene.truth.claims.get(&Key::namespaced(namespace, claim)));
    let unusable =
        claims.into_iter().any(|claim| claim.is_none_or(|claim| claim.meta.is_deleting() || !claim.fully_bound()));
    // What the backend has attached and no object tells of since a restore stays there until a person detaches it.
    let forgotten_here =
        scene.forgotten.iter().filter(|(node, _)| *node == *pod.node).map(|(_, handle)| handle.clone());
    let here: BTreeSet<String> = wanted.here(&pod.node).into_iter().chain(forgotten_here).collect();
    let full = habits.per_node > 0 && here.len() > habits.per_node as usize;
    unusable
        || (attaches && full)
        || volumes(pod, scene.truth).any(|volume| {
            let one = |mode| volume.access.len() == 1 && volume.access.contains(mode);
            let nodes = wanted.nodes.get(volume.name()).map_or(0, BTreeSet::len);
            let pods = wanted.pods.get(volume.name()).map_or(0, BTreeSet::len);
            let single = one(AccessMode::ReadWriteOnce) || one(AccessMode::ReadWriteOncePod);
            let claim = volume.claim.as_ref().map(|owner| owner.key.name().to_owned()).unwrap_or_default();
            let mismatch = pod.devices.contains(&claim) != (volume.mode == VolumeMode::Block);
            let forgotten = handle_of(volume)
                .is_some_and(|handle| scene.forgotten.iter().any(|(node, held)| held == handle && *node != *pod.node));
            (attaches && forgotten)
                || (attaches && single && nodes > 1)
                || (one(AccessMode::ReadWriteOncePod) && pods > 1)
                || mismatch
        })
}

/// What is left on a machine of what no pod wants.
fn left_on(machine: &Machine, scene: &Scene<'_>, wanted: &Wanted) -> Vec<String> {
    let node = machine.name();
    let here = wanted.here(node);
    let mut found = Vec::new();
    for volume in held(machine).difference(&here) {
        found.push(format!("left behind: {node} still has {volume}, and no pod wants it"));
    }
    let pods: BTreeSet<&str> =
        scene.seen.pods.values().filter(|pod| pod.node == node).map(|pod| pod.uid.as_str()).collect();
    let Ok(layout) = Layout::new(ROOT) else { return found };
    let (mounts, loops) = machine.with_kernel(|kernel| {
        let loops: Vec<(PathBuf, PathBuf)> = kernel.loops().map(|(path, held)| (path, held.to_owned())).collect();
        (kernel.mounts(), loops)
    });
    // What a person mounted is the person's.
    let below = mounts.under(Path::new(ROOT)).filter(|mount| mount.point != Path::new(ROOT));
    for mount in below.filter(|mount| mount.fs_type != COVER) {
        let of_a_pod = mount.point.iter().any(|part| part.to_str().is_some_and(|part| pods.contains(part)));
        let staged =
            shown(mount).is_some_and(|volume| here.contains(&volume)) && !mount.point.starts_with(layout.pods());
        if !of_a_pod && !staged {
            found.push(format!("left behind: {} on {node} is a mount of nobody", mount.point.display()));
        }
    }
    for (path, held) in loops {
        if !held.file_name().and_then(|name| name.to_str()).is_some_and(|name| pods.contains(name)) {
            found.push(format!("left behind: {} on {node} holds {}", path.display(), held.display()));
        }
    }
    found.extend(left_directories(machine, scene, &layout, &pods));
    found
}

fn left_directories(machine: &Machine, scene: &Scene<'_>, layout: &Layout, pods: &BTreeSet<&str>) -> Vec<String> {
    let node = machine.name();
    let names = |path: &Path| {
        let entries = machine.with_kernel(|kernel| kernel.list(path)).unwrap_or_default();
        entries.into_iter().filter_map(|entry| entry.name.into_string().ok()).collect::<Vec<_>>()
    };
    let mut left: Vec<PathBuf> = Vec::new();
    left.extend(
        names(&layout.pods()).iter().filter(|name| !pods.contains(&***name)).map(|name| layout.pods().join(name)),
    );
    let living: Vec<&Arc<Volume>> = {
        let here = scene.seen.pods.values().filter(|pod| pod.node == node && !pod.leaving);
        here.flat_map(|pod| volumes(pod, scene.truth)).collect()
    };
    let Ok(driver) = Name::new(keys::DRIVER) else { return Vec::new() };
    let staged: BTreeSet<PathBuf> = {
        let mounted = scene.with_pods.get(node).into_iter().flatten();
        let wanted = living.iter().filter_map(|volume| handle_of(volume));
        let handles: Vec<&str> = wanted.chain(mounted.map(String::as_str)).collect();
        handles.into_iter().map(|handle| layout.staged(&driver, handle).directory().to_owned()).collect()
    };
    let by_driver = layout.staged_by(&driver);
    left.extend(names(&by_driver).iter().map(|name| by_driver.join(name)).filter(|path| !staged.contains(path)));
    let volume_names: BTreeSet<&str> = living.iter().map(|volume| volume.name()).collect();
    for shelf in [layout.blocks(), layout.blocks().join("staging"), layout.blocks().join("publish")] {
        let strange = |name: &&String| !volume_names.contains(&***name) && !matches!(&***name, "staging" | "publish");
        left.extend(names(&shelf).iter().filter(strange).map(|name| shelf.join(name)));
    }
    left.iter().map(|path| format!("left behind: {} on {node} is of nobody", path.display())).collect()
}

/// What is left of attachments that no pod needs.
fn left_attached(scene: &Scene<'_>, wanted: &Wanted) -> Vec<String> {
    let mut found = Vec::new();
    for volume in scene.model.volumes() {
        let nodes: Vec<String> =
            scene.model.tamper(|state| state.published(&volume.id).map(|(node, _)| node.clone()).collect());
        let is_forgotten = |node: &&String| scene.forgotten.contains(&((*node).clone(), volume.id.clone()));
        let unwanted = nodes.iter().filter(|node| !wanted.here(node).contains(&volume.id));
        for node in unwanted.filter(|node| !is_forgotten(node)) {
            found.push(format!("left behind: {} is attached to {node}, and no pod there wants it", volume.id));
        }
    }
    for (name, attachment) in &scene.seen.attachments {
        let volume = attachment.volume.as_deref().unwrap_or_default();
        // The object of the volume may be another one by now: what is attached is the handle.
        let handle = lifecycle::attach::published(attachment);
        let handle = handle.as_deref().and_then(lifecycle::attach::parse_unique).map(|(_, handle)| handle);
        let needed = wanted.nodes.get(volume).is_some_and(|nodes| nodes.contains(&*attachment.node))
            || handle.is_some_and(|handle| wanted.here(&attachment.node).contains(handle));
        if !needed || attachment.meta.is_deleting() {
            found.push(format!("left behind: attachment {name} of {volume} to {}", &*attachment.node));
        }
    }
    for (name, node) in &scene.seen.nodes {
        let wanted: BTreeSet<String> =
            wanted.here(name).iter().map(|handle| lifecycle::attach::unique_name(keys::DRIVER, handle)).collect();
        let listed = node.attached.iter().map(|volume| &*volume.name).chain(node.in_use.iter().map(|name| &**name));
        for volume in listed.filter(|volume| !wanted.contains(*volume)) {
            found.push(format!("left behind: node {name} lists {volume}, and no pod there wants it"));
        }
    }
    found
}
