//! How full volumes are, and whether their mounts still live (NODE-19).

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Uid;
use csi::v1;
use csi::v1::node_service_capability::rpc::Type as NodeRpc;
use csi::v1::volume_usage::Unit;
use futures_util::stream::{self, StreamExt as _};
use lifecycle::Notice;
use lifecycle::health;
use lifecycle::node::Held;
use lifecycle::node::because::Stage;
use tokio::time::{Instant, sleep};

use crate::Agent;
use crate::actual::{Entry, PodEntry, Shape, VolumeId, What};
use crate::desired::Wish;
use crate::host::{Found, HostError};
use crate::layout::Name;

/// How many drivers are asked at once.
const AT_ONCE: usize = 8;

/// The numbers of one volume, in the order of the metrics.
type Numbers = [Option<f64>; 7];

impl Agent {
    /// Asks for every mounted volume from time to time.
    pub(crate) async fn watch_stats(&self) {
        let Some(period) = self.options.stats.filter(|period| !period.is_zero()) else { return };
        loop {
            sleep(self.context.entropy.longer(period, 1.0)).await;
            self.inspect_mounts().await;
            let mounted = self.mounted();
            let all: Vec<_> = stream::iter(mounted)
                .map(|(wish, path)| async move { (self.usage(&wish, &path).await, wish) })
                .buffered(AT_ONCE)
                .collect()
                .await;
            // Of several pods with one claim the first counts.
            let mut by_claim = BTreeMap::<(String, String), Numbers>::new();
            for (numbers, wish) in all {
                if let (Some(numbers), Some((claim, _))) = (numbers, &wish.claim) {
                    let key = (claim.namespace().unwrap_or_default().to_owned(), claim.name().to_owned());
                    by_claim.entry(key).or_insert(numbers);
                }
            }
            let shown: Vec<_> =
                by_claim.into_iter().map(|((namespace, claim), numbers)| (namespace, claim, numbers)).collect();
            self.metrics.stats.show(&shown);
        }
    }

    /// What pods want and have, and the path that a driver is asked about.
    fn mounted(&self) -> Vec<(Arc<Wish>, std::path::PathBuf)> {
        let world = self.world();
        let mut found = Vec::new();
        for (id, entry) in &world.actual {
            for (pod, held) in &entry.pods {
                let Some(wish) = world.desired.wish(id, pod).filter(|_| held.held == Held::Yes) else { continue };
                if let Some(path) = self.published_path(entry, pod, &held.spec) {
                    found.push((wish.clone(), path));
                }
            }
        }
        found
    }

    /// Where a pod's volume of a driver is seen.
    fn published_path(&self, entry: &Entry, pod: &Uid, spec: &Name) -> Option<std::path::PathBuf> {
        let uid = Name::new(pod.as_str()).ok()?;
        match &entry.what {
            What::Csi { shape: Shape::Filesystem | Shape::Inline, .. } => {
                Some(self.options.layout.pod(&uid).csi(spec).mount())
            }
            What::Csi { shape: Shape::Block { volume }, .. } => {
                Some(self.options.layout.block(volume).ok()?.mapped(&uid))
            }
            What::InTree { .. } | What::LocalDevice { .. } => None,
        }
    }

    async fn usage(&self, wish: &Wish, path: &std::path::Path) -> Option<Numbers> {
        let What::Csi { driver, handle, .. } = &wish.what else { return None };
        let asked = self.ask_for(wish, Stage::SetUp).ok()?;
        if !asked.can(NodeRpc::GetVolumeStats) {
            return None;
        }
        let request = v1::NodeGetVolumeStatsRequest {
            volume_id: handle.to_string(),
            volume_path: crate::csi::text(path),
            ..Default::default()
        };
        let began = Instant::now();
        let answer = asked.driver.node_get_volume_stats(request, self.options.timeout).await;
        self.metrics.collected(driver.as_str(), began.elapsed());
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                // A refusal may say that something is wrong with the volume itself, such as that its pool is missing.
                if let Some(words) = health::known_words(error.message()) {
                    self.note_condition(wish, Some(words));
                }
                return None;
            }
        };
        let mut numbers = numbers(&answer.usage);
        if let Some(condition) = answer.volume_condition.filter(|_| asked.can(NodeRpc::VolumeCondition)) {
            numbers[6] = Some(if condition.abnormal { 1.0 } else { 0.0 });
            self.note_condition(wish, condition.abnormal.then_some(&*condition.message));
        }
        Some(numbers)
    }

    /// Tells what a driver says of a volume's condition when that changes: in an event and in the pod's condition.
    fn note_condition(&self, wish: &Wish, abnormal: Option<&str>) {
        let pod = self.by_uid.first(wish.pod.uid().as_str()).unwrap_or_else(|| wish.pod.clone());
        let said = pod.said.as_ref();
        let key = (wish.id.clone(), wish.pod.uid().clone());
        let before = {
            let mut world = self.world();
            let before = world.conditions.get(&key).cloned();
            match (abnormal, before.as_ref().map(Option::as_deref)) {
                (Some(now), Some(Some(before))) if health::is_same(before, now) => return,
                (None, Some(None)) => return,
                _ => world.conditions.insert(key, abnormal.map(Into::into)),
            };
            before.flatten()
        };
        // An earlier life of the agent may have told it.
        let told = |now: &str| before.is_none() && said.is_some_and(|said| said.message.contains(now));
        let left = said.is_some_and(|said| &*said.reason == health::ABNORMAL_REASON);
        let notice = match abnormal {
            Some(now) => {
                let notice = Notice::warning(health::ABNORMAL_EVENT, format!("Volume {}: {now}", wish.volume));
                (!told(now)).then_some(notice)
            }
            None if before.is_some() || left => {
                let message = format!("Volume {}: {}", wish.volume, health::WELL_AGAIN);
                Some(Notice::normal(health::NORMAL_EVENT, message))
            }
            None => return,
        };
        if let Some(notice) = notice {
            self.notices.always(&*wish.pod, &notice);
        }
        self.wake_pod(wish.pod.uid());
    }

    /// Looks at every mount that should live: one that is dead is made anew, one that is gone is asked for again.
    pub(crate) async fn inspect_mounts(&self) {
        let mut mounts = self.mounts_of(|_| true);
        mounts.retain(|mount| mount.held == Held::Yes);
        self.inspect(mounts).await;
    }

    /// The same for one volume, about which something failed: what may be there can be what is in the way, and is dead for
    /// ever unless it is taken away (NODE-31.9).
    pub(crate) async fn inspect_volume(&self, id: &VolumeId) {
        self.inspect(self.mounts_of(|other| other == id)).await;
    }

    async fn inspect(&self, points: Vec<MountPoint>) {
        let Ok(mounts) = self.host.mounts().await else { return };
        let probes = stream::iter(points).map(|point| {
            let mounted = mounts.at(&point.path).is_some();
            async move {
                let found = match mounted {
                    true => Some(self.host.find(&point.path).await),
                    false => None,
                };
                (point, found)
            }
        });
        let probed: Vec<_> = probes.buffered(AT_ONCE).collect().await;
        for (point, found) in probed {
            self.note_silence(&point.volume, point.pod.as_ref(), found.as_ref());
            let now = match (found, &point.pod) {
                (None, Some(_)) if point.held == Held::Yes => Held::Maybe(lifecycle::node::Origin::Seen),
                // A driver need not mount anything to stage a volume, and what may be there need not be.
                (None, _) => continue,
                (Some(Ok(Found::Corrupted { .. })), _) => Held::Corrupted,
                // A path that does not answer may answer later: nothing is known about it now.
                (Some(Ok(_) | Err(_)), _) => continue,
            };
            self.demote(&point, now);
        }
    }

    /// A mount that does not answer is said in its pod's condition, until it answers again.
    fn note_silence(&self, id: &VolumeId, pod: Option<&Uid>, found: Option<&Result<Found, HostError>>) {
        let Some(pod) = pod else { return };
        let key = (id.clone(), pod.clone());
        let silent = match found {
            Some(Err(error)) if error.is_hung() => Some(error.to_string()),
            Some(_) | None => None,
        };
        let changed = {
            let mut world = self.world();
            match silent {
                Some(message) => world.silent.insert(key, message.into()).is_none(),
                None => world.silent.remove(&key).is_some(),
            }
        };
        if changed {
            tracing::warn!(volume = %id, %pod, "whether the mount answers has changed");
            self.volume_queue.add(id.clone());
        }
    }

    /// The mounts of some volumes that are there, or may be, as far as the agent knows: of pods, and of the machine.
    fn mounts_of(&self, which: impl Fn(&VolumeId) -> bool) -> Vec<MountPoint> {
        let world = self.world();
        let mut points = Vec::new();
        for (id, entry) in world.actual.iter().filter(|(id, _)| which(id)) {
            let What::Csi { driver, handle, shape: Shape::Filesystem | Shape::Inline } = &entry.what else { continue };
            if entry.device != Held::Corrupted {
                let path = self.options.layout.staged(driver, handle).mount();
                points.push(MountPoint { volume: id.clone(), pod: None, path, held: entry.device });
            }
            for (pod, PodEntry { spec, held, .. }) in &entry.pods {
                if *held != Held::Corrupted
                    && let Some(path) = self.published_path(entry, pod, spec)
                {
                    points.push(MountPoint { volume: id.clone(), pod: Some(pod.clone()), path, held: *held });
                }
            }
        }
        points
    }

    fn demote(&self, point: &MountPoint, now: Held) {
        let MountPoint { volume, pod, held, .. } = point;
        let changed = {
            let mut world = self.world();
            let entry = world.actual.get_mut(volume);
            let slot = match (entry, pod) {
                (Some(entry), Some(pod)) => entry.pods.get_mut(pod).map(|pod| &mut pod.held),
                (Some(entry), None) => Some(&mut entry.device),
                (None, _) => None,
            };
            // An operation may have changed it while the path was looked at.
            slot.filter(|slot| *slot == held).map(|slot| *slot = now).is_some()
        };
        if changed {
            tracing::warn!(%volume, ?pod, held = ?now, "a mount is not what it was");
            self.volume_queue.add(volume.clone());
        }
    }
}

/// Where a volume is mounted, or may be.
struct MountPoint {
    volume: VolumeId,
    /// The pod that it is for; none: the machine.
    pod: Option<Uid>,
    path: std::path::PathBuf,
    /// What was known when it was looked up.
    held: Held,
}

fn numbers(usage: &[v1::VolumeUsage]) -> Numbers {
    let mut numbers = Numbers::default();
    for one in usage {
        let at = match Unit::try_from(one.unit) {
            Ok(Unit::Bytes) => [(0, one.total), (1, one.available), (2, one.used)],
            Ok(Unit::Inodes) => [(3, one.total), (4, one.available), (5, one.used)],
            Ok(Unit::Unknown) | Err(_) => continue,
        };
        for (place, value) in at {
            numbers[place] = Some(value as f64);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: NODE-19
    #[test]
    fn bytes_and_inodes_are_told_apart_and_unknown_units_are_passed_over() {
        let usage = |unit: i32, total: i64| v1::VolumeUsage { available: 1, total, used: 2, unit };
        let read = numbers(&[usage(1, 10), usage(2, 20), usage(9, 30)]);
        assert_eq!(read, [Some(10.0), Some(1.0), Some(2.0), Some(20.0), Some(1.0), Some(2.0), None]);
    }
}
