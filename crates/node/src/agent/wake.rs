//! What changes wakes whom it concerns; nothing polls (NODE-31.11 to NODE-31.13).

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Attachment, Claim, CsiDriver, Key, Node, Volume};
use futures_util::future::select_all;
use lifecycle::attach::{Target, attachment_name};
use lifecycle::node::slots;
use runtime::Cache;
use runtime::csi::Link;
use runtime::watch;

use super::Agent;
use crate::actual::{VolumeId, What};
use runtime::Subscription;

impl Agent {
    /// Lets every kind of change put its keys on the queues, for as long as the answer lives.
    pub(super) fn subscribe(&self) -> Vec<Subscription> {
        let queue = self.pod_queue.clone();
        let pods = self.pods.subscribe(move |change| queue.add(change.key().clone()));
        let [claims, volumes] = self.follow_claims();
        vec![pods, claims, volumes, self.follow_attachments(), self.follow_node(), self.follow_driver_objects()]
    }

    fn follow_driver_objects(&self) -> Subscription {
        let (world, volumes, pods, report) =
            (self.world.clone(), self.volume_queue.clone(), self.pod_queue.clone(), self.report.clone());
        self.context.cache::<CsiDriver>().subscribe(move |change| {
            let name = change.key().name();
            let mut world = world.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            for id in world.volumes() {
                if driver_of(&world, &id).is_some_and(|driver| driver == name) {
                    world.forgive(&id);
                    volumes.add(id);
                }
            }
            for pod in world.desired.pods() {
                pods.add(pod.pod.meta.key.clone());
            }
            report.notify_one();
        })
    }

    /// A claim or a volume: the pods whose volumes come from it are resolved again.
    fn follow_claims(&self) -> [Subscription; 2] {
        let (queue, pods, world) = (self.pod_queue.clone(), self.pods.clone(), self.world.clone());
        let claims = self.context.cache::<Claim>().subscribe(move |change| {
            let claim = change.key();
            for pod in pods.walk().filter(|pod| Some(pod.namespace()) == claim.namespace()) {
                if names_claim(&pod, claim.name()) {
                    forgive(&world, &pod);
                    queue.add(pod.meta.key.clone());
                }
            }
        });
        let (queue, pods, world) = (self.pod_queue.clone(), self.pods.clone(), self.world.clone());
        let news = self.volume_news.clone();
        let volumes = self.context.cache::<Volume>().subscribe(move |change| {
            news.notify_one();
            let Some(claim) = change.object().claim.as_ref().map(|claim| claim.key.clone()) else { return };
            for pod in pods.walk().filter(|pod| Some(pod.namespace()) == claim.namespace()) {
                if names_claim(&pod, claim.name()) {
                    forgive(&world, &pod);
                    queue.add(pod.meta.key.clone());
                }
            }
        });
        [claims, volumes]
    }

    fn follow_attachments(&self) -> Subscription {
        let (node, world, queue) = (self.options.node.clone(), self.world.clone(), self.volume_queue.clone());
        let (drivers, volumes) = (self.drivers.clone(), self.context.cache::<Volume>());
        self.context.cache::<Attachment>().subscribe(move |change| {
            let attachment = change.object();
            if attachment.node != *node {
                return;
            }
            if news_of_no_slot(change.before(), change.after()) {
                drivers.had_no_slot(&attachment.attacher);
            }
            let stands_for = stands_for(attachment, &volumes);
            let mut world = world.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let named = |id: &VolumeId| {
                let parsed = lifecycle::attach::parse_unique(id.as_str());
                parsed.is_some_and(|(driver, handle)| attachment_name(driver, handle, &node) == attachment.name())
            };
            let id = match stands_for {
                Some(id) => world.knows(&id).then_some(id),
                // Its volume's object is gone, or it stands in a pod: each name is a hash, and all are looked at.
                None => world.volumes().into_iter().find(named),
            };
            if let Some(id) = id {
                world.forgive(&id);
                queue.add(id);
            }
        })
    }

    fn follow_node(&self) -> Subscription {
        let (world, queue, report) = (self.world.clone(), self.volume_queue.clone(), self.report.clone());
        self.nodes.subscribe(move |change| {
            report.notify_one();
            let listed = |node: Option<&Arc<Node>>| -> BTreeSet<Box<str>> {
                node.into_iter().flat_map(|node| node.attached.iter().map(|held| held.name.clone())).collect()
            };
            let (before, after) = (listed(change.before()), listed(change.after()));
            let mut world = world.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            for name in before.symmetric_difference(&after) {
                let id = VolumeId::from(name.to_string());
                if world.knows(&id) {
                    world.forgive(&id);
                    queue.add(id);
                }
            }
        })
    }

    /// Follows drivers that come, go, or lose their connection.
    pub(super) async fn follow_drivers(&self) {
        let mut changes = self.drivers.changes();
        let mut links: Vec<(String, watch::Receiver<Link>)> = Vec::new();
        loop {
            let names = self.drivers.names();
            links.retain(|(name, _)| names.contains(name));
            for name in names {
                let Some(registered) = self.drivers.get(&name) else { continue };
                let fresh = registered.driver.link();
                match links.iter_mut().find(|(held, _)| *held == name) {
                    Some((_, link)) if link.same_channel(&fresh) => {}
                    Some((_, link)) => *link = fresh,
                    None => links.push((name, fresh)),
                }
            }
            let moved = async {
                match links.is_empty() {
                    true => std::future::pending().await,
                    false => {
                        let changed = links.iter_mut().map(|(_, link)| Box::pin(link.changed()));
                        let (ended, at, _) = select_all(changed).await;
                        (ended.is_err(), at)
                    }
                }
            };
            let gone = tokio::select! {
                biased;
                // The sender lives as long as `self.drivers`.
                _ = changes.changed() => None,
                (ended, at) = moved => ended.then_some(at),
            };
            if let Some(at) = gone {
                links.remove(at);
            }
            self.wake_drivers();
        }
    }

    /// Everything that a driver is needed for.
    fn wake_drivers(&self) {
        let mut world = self.world();
        for id in world.volumes() {
            if driver_of(&world, &id).is_some() {
                world.forgive(&id);
                self.volume_queue.add(id);
            }
        }
    }

    pub(crate) fn wake_all(&self) {
        let ids = self.world().volumes();
        for id in ids {
            self.volume_queue.add(id);
        }
        self.report.notify_one();
    }
}

/// The volume that an attachment is named after, as far as its PersistentVolume tells.
fn stands_for(attachment: &Attachment, volumes: &Cache<Volume>) -> Option<VolumeId> {
    let volume = volumes.get(&Key::cluster(attachment.volume.as_deref()?))?;
    let target = Target::of_volume(&volume).ok().flatten()?;
    (target.attachment(&attachment.node) == attachment.name()).then(|| target.unique().into())
}

/// Whether a volume was refused for want of a slot, and that is news (NODE-4.4).
fn news_of_no_slot(before: Option<&Arc<Attachment>>, after: Option<&Arc<Attachment>>) -> bool {
    let error = |attachment: &Arc<Attachment>| attachment.attach_error.clone();
    let now = after.and_then(error).filter(|error| error.code == Some(slots::FULL));
    now.is_some() && now != before.and_then(error)
}

fn names_claim(pod: &crate::pods::LocalPod, claim: &str) -> bool {
    use crate::pods::VolumeSource;
    pod.volumes.iter().any(|volume| match &volume.source {
        VolumeSource::Claim { name, .. } => &**name == claim,
        VolumeSource::Ephemeral => pod.claim_of(&volume.name) == claim,
        _ => false,
    })
}

fn forgive(world: &std::sync::Mutex<super::World>, pod: &crate::pods::LocalPod) {
    let mut world = world.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let ids: Vec<VolumeId> = match world.desired.pod(pod.uid()) {
        Some(desired) => desired.volumes.values().flatten().map(|wish| wish.id.clone()).collect(),
        None => return,
    };
    for id in ids {
        world.forgive(&id);
    }
}

fn driver_of(world: &super::World, id: &VolumeId) -> Option<String> {
    let what = world.actual.get(id).map(|entry| entry.what.clone());
    let what = what.or_else(|| world.desired.wishes(id).first().map(|wish| wish.what.clone()))?;
    match what {
        What::Csi { driver, .. } => Some(driver.as_str().to_owned()),
        What::InTree { .. } | What::LocalDevice { .. } => None,
    }
}
