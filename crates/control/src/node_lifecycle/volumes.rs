//! Volumes on the disks of machines that were taken out of the cluster: their objects go when their claims are gone.

use std::sync::Arc;
use std::time::Duration;

use api::{Key, Node, Volume};
use lifecycle::node_lifecycle::volume::{
    MachineDriver, VolumeHealth, VolumeLifecycleAction, VolumeLifecycleReason, awaits_deletion, decide,
    machine_finalizers,
};
use lifecycle::{Lookup, Reason as _};
use runtime::client::Error;
use runtime::{Cache, Change, Patch, Queue, Stop, Subscription, Verdict, queue};
use serde_json::json;

use super::times::Absences;
use super::{BACKOFF, Options, ROUNDS, notices};
use crate::{Context, Live, Notices};

#[derive(Debug)]
pub(super) struct Volumes {
    context: Context,
    notices: Notices,
    driver: Arc<MachineDriver>,
    volumes: Cache<Volume>,
    nodes: Cache<Node>,
    queue: Queue<Key>,
    absences: Arc<Absences>,
    quarantine: Duration,
    workers: usize,
    _subscriptions: [Subscription; 2],
}

impl Volumes {
    pub(super) fn new(context: &Context, options: &Options, driver: &MachineDriver, absences: &Arc<Absences>) -> Self {
        let (volumes, nodes) = (context.cache::<Volume>(), context.cache::<Node>());
        let driver = Arc::new(driver.clone());
        let queue = Queue::new("node_lifecycle_volumes", BACKOFF, &context.metrics, &context.entropy);
        let (keys, ours) = (queue.clone(), driver.clone());
        let volume_news = volumes.subscribe(move |change| {
            if let Some(volume) = change.after().filter(|volume| awaits(volume, &ours)) {
                keys.add(volume.meta.key.clone());
            }
        });
        let (keys, ours, held) = (queue.clone(), driver.clone(), volumes.clone());
        let node_news = nodes.subscribe(move |change| {
            let Change::Removed(node) = change else { return };
            let on_it = held.walk().filter(|volume| awaits_deletion(volume));
            let on_it = on_it.filter(|volume| ours.machine_of(volume) == Some(node.name()));
            on_it.for_each(|volume| keys.add(volume.meta.key.clone()));
        });
        Self {
            context: context.clone(),
            notices: notices(context),
            driver,
            volumes,
            nodes,
            queue,
            absences: absences.clone(),
            quarantine: options.grace,
            workers: options.workers,
            _subscriptions: [volume_news, node_news],
        }
    }

    pub(super) async fn run(&self, stop: &Stop) {
        let synced = async {
            self.volumes.synced().await;
            self.nodes.synced().await;
        };
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = synced => {}
        }
        let waiting = self.volumes.walk().filter(|volume| awaits(volume, &self.driver));
        waiting.for_each(|volume| self.queue.add(volume.meta.key.clone()));
        queue::run(&self.queue, self.workers, stop, |key| self.pass(key)).await;
    }

    async fn pass(&self, key: Key) -> Verdict {
        let mut live: Option<Live<Node>> = None;
        for _ in 0..ROUNDS {
            let Some(volume) = self.volumes.get(&key) else { return Verdict::Done };
            let Some(machine) = self.driver.machine_of(&volume) else { return Verdict::Done };
            let cached = self.nodes.get(&Key::cluster(machine));
            let node = match (&live, &cached) {
                (Some(live), _) => live.lookup(),
                (None, Some(node)) => Lookup::Found(&**node),
                (None, None) => Lookup::NotCached,
            };
            let gone_for = match node {
                Lookup::Absent => self.absences.note(machine),
                Lookup::Found(_) | Lookup::NotCached => Duration::ZERO,
            };
            let quarantine = self.quarantine;
            let decision = decide(&VolumeHealth { volume: &volume, machine, node, gone_for, quarantine });
            let acted = match decision.actions.first() {
                None => return rest(&decision.because),
                Some(VolumeLifecycleAction::ReadNode) => match self.context.read(&Key::cluster(machine)).await {
                    Ok(read) => {
                        live = Some(read);
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
                Some(VolumeLifecycleAction::Forget) => self.forget(&volume, &decision.because).await,
            };
            if let Err(error) = acted {
                return Verdict::Failed(error.to_string());
            }
        }
        Verdict::Again(BACKOFF.start)
    }

    /// First the deletion, then the finalizers: a machine that comes back in between finds a volume that it has to delete.
    async fn forget(&self, volume: &Volume, because: &VolumeLifecycleReason) -> Result<(), Error> {
        let key = &volume.meta.key;
        if !volume.meta.is_deleting() {
            tracing::warn!(volume = volume.name(), %because, "a volume is forgotten");
            if let Some(notice) = because.notice() {
                self.notices.always(volume, &notice);
            }
            return match self.context.delete::<Volume>(&volume.meta).await {
                Ok(()) => Ok(()),
                Err(error) => self.context.reconsider::<Volume>(key, error).await,
            };
        }
        let released: Vec<&str> = machine_finalizers(volume).collect();
        let held = volume.meta.finalizers.iter().map(|held| held.as_str());
        let others: Vec<&str> = held.filter(|held| !released.contains(held)).collect();
        let metadata = json!({"uid": volume.meta.uid.as_str(), "resourceVersion": volume.meta.revision.to_string(),
            "finalizers": others});
        match self.context.patch::<Volume>(key, &Patch::Merge(json!({"metadata": metadata}))).await {
            Ok(_) => Ok(()),
            Err(error) => self.context.reconsider::<Volume>(key, error).await,
        }
    }
}

/// Whether it is a volume of another machine, and only that machine could delete it now.
fn awaits(volume: &Volume, driver: &MachineDriver) -> bool {
    awaits_deletion(volume) && driver.machine_of(volume).is_some()
}

fn rest(because: &VolumeLifecycleReason) -> Verdict {
    match because {
        VolumeLifecycleReason::MachineMissing { left } => Verdict::Again(*left),
        _ => Verdict::Done,
    }
}
