//! Whom a change concerns. Every rule here turns one change into a few keys; none looks at the whole world, but for a
//! driver that changes its mind about attaching.

use std::sync::Arc;

use api::{Attachment, Claim, CsiDriver, Node, Pod, Volume};
use lifecycle::attach::restored::{RestoreReport, restore_report};
use runtime::{Change, Queue, Subscription};

use super::gate::{Gate, Waiter};
use super::progress::{Blocked, Ends, Told};
use super::view::{View, unique_of};

/// What is worked on: volumes by their unique names, nodes by theirs.
#[derive(Debug, Clone)]
pub(super) struct Queues {
    pub(super) volumes: Queue<Box<str>>,
    pub(super) nodes: Queue<Box<str>>,
}

impl Queues {
    pub(super) fn call(&self, waiter: Option<Waiter>) {
        match waiter {
            Some(Waiter::Volume(unique)) => self.volumes.add(unique),
            Some(Waiter::Node(node)) => self.nodes.add(node),
            None => {}
        }
    }
}

/// What the subscribers need. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Wake {
    pub(super) view: View,
    pub(super) queues: Queues,
    pub(super) gate: Arc<Gate>,
    pub(super) blocked: Arc<Blocked>,
    pub(super) told: Arc<Told>,
    pub(super) ends: Ends,
}

impl Wake {
    /// Listens for as long as the answer lives.
    pub(super) fn subscribe(&self) -> [Subscription; 6] {
        let Self { view, .. } = self;
        let [pods, claims, volumes, nodes, attachments, drivers] = std::array::from_fn(|_| self.clone());
        [
            view.pods.subscribe(move |change| pods.on_pod(change)),
            view.claims.subscribe(move |change| claims.on_claim(change)),
            view.volumes.subscribe(move |change| volumes.on_volume(change)),
            view.nodes.subscribe(move |change| nodes.on_node(change)),
            view.attachments.subscribe(move |change| attachments.on_attachment(change)),
            view.drivers.subscribe(move |change| drivers.on_driver(change)),
        ]
    }

    /// Everything once more.
    pub(super) fn all(&self) {
        self.view.pods.walk().for_each(|pod| self.pod(&pod));
        for attachment in self.view.attachments.walk() {
            self.view.track(&attachment);
            self.queues.nodes.add(attachment.node.as_str().into());
        }
        self.view.nodes.walk().for_each(|node| self.queues.nodes.add(node.name().into()));
    }

    /// A pod and the volumes it names.
    fn pod(&self, pod: &Pod) {
        if !pod.scheduled() {
            return;
        }
        self.queues.nodes.add(pod.node.clone());
        self.view.targets(pod).iter().for_each(|target| self.queues.volumes.add(target.unique().into()));
    }

    fn on_pod(&self, change: &Change<Pod>) {
        let pod = match change {
            Change::Added(pod) => pod,
            // Of a pod's life only these matter: that it gets a node, and that it stops wanting its volumes.
            Change::Changed { old, new } if old.node == new.node && old.wants_volumes() == new.wants_volumes() => {
                return;
            }
            Change::Changed { new, .. } => new,
            Change::Removed(pod) => {
                self.told.forget(&pod.meta.uid);
                pod
            }
        };
        if !pod.volumes.is_empty() {
            self.pod(pod);
        }
    }

    /// CTRL-13.45: a claim that was bound after its pod was scheduled.
    fn on_claim(&self, change: &Change<Claim>) {
        if let Change::Changed { old, new } = change
            && (old.phase, &old.volume_name, &old.meta.owners) == (new.phase, &new.volume_name, &new.meta.owners)
        {
            return;
        }
        self.view.pods_of(change.key()).iter().for_each(|pod| self.pod(pod));
    }

    fn on_volume(&self, change: &Change<Volume>) {
        if let Change::Changed { old, new } = change
            && (&old.claim, old.access, &old.source) == (&new.claim, new.access, &new.source)
        {
            return;
        }
        for volume in change.before().into_iter().chain(change.after()) {
            let Some(unique) = unique_of(volume) else { continue };
            let pods = volume.claim.iter().flat_map(|claim| self.view.pods_of(&claim.key));
            pods.for_each(|pod| self.pod(&pod));
            for attachment in self.view.attachments_naming(volume.name()) {
                self.view.track(&attachment);
                self.queues.nodes.add(attachment.node.as_str().into());
                self.queues.volumes.add(unique.as_str().into());
            }
        }
    }

    fn on_node(&self, change: &Change<Node>) {
        let node = change.object();
        self.on_report_after_restore(change);
        let managed = match change {
            Change::Added(_) | Change::Removed(_) => true,
            Change::Changed { old, new } => old.attach_is_managed() != new.attach_is_managed(),
        };
        if let Change::Changed { old, new } = change
            && !managed
            && (old.ready, old.ready_since, &old.taints) == (new.ready, new.ready_since, &new.taints)
            && (&old.in_use, &old.attached) == (&new.in_use, &new.attached)
        {
            return;
        }
        self.queues.nodes.add(node.name().into());
        if managed {
            self.view.pods_on(node.name()).iter().for_each(|pod| self.pod(pod));
        }
        // Who waits for what is attached here is told why it stays.
        for attachment in self.view.attachments_on(node.name()) {
            self.blocked.by(&attachment.meta.key).into_iter().for_each(|unique| self.queues.volumes.add(unique));
        }
    }

    /// A node has said what it uses, or cannot use anything any more: whoever waited for it is looked at again. That happens
    /// only after a backup was restored.
    fn on_report_after_restore(&self, change: &Change<Node>) {
        let report = |node: Option<&Arc<Node>>| node.map_or(RestoreReport::Complete, |node| restore_report(node));
        let (before, after) = (report(change.before()), report(change.after()));
        if before == after {
            return;
        }
        for report in [before, after] {
            if let RestoreReport::Lists(volumes) = report {
                volumes.into_iter().for_each(|unique| self.queues.volumes.add(unique));
            }
        }
        self.view.pods.walk().filter(|pod| !pod.volumes.is_empty()).for_each(|pod| self.pod(&pod));
        for attachment in self.view.attachments.walk() {
            self.queues.nodes.add(attachment.node.as_str().into());
            if let Some(unique) = self.view.identity(&attachment) {
                self.queues.volumes.add(unique.into());
            }
        }
    }

    fn on_attachment(&self, change: &Change<Attachment>) {
        let attachment = change.object();
        let gone = change.after().is_none();
        self.view.track(attachment);
        self.ends.follow(change);
        self.queues.call(self.gate.follow(attachment, gone));
        self.queues.nodes.add(attachment.node.as_str().into());
        if let Some(unique) = self.view.identity(attachment) {
            self.queues.volumes.add(unique.into());
        }
        let key = &attachment.meta.key;
        let waiting = if gone { self.blocked.released(key) } else { self.blocked.by(key) };
        waiting.into_iter().for_each(|unique| self.queues.volumes.add(unique));
    }

    /// CTRL-13.41: rare, and only here every volume of a driver is looked at.
    fn on_driver(&self, change: &Change<CsiDriver>) {
        let says =
            |driver: Option<&Arc<CsiDriver>>| driver.and_then(|driver| driver.spec.attach_required) != Some(false);
        if says(change.before()) == says(change.after()) {
            return;
        }
        let name = change.key().name();
        let of_driver = self.view.attachments.walk().filter(|attachment| attachment.attacher == *name);
        of_driver.for_each(|attachment| self.queues.nodes.add(attachment.node.as_str().into()));
        self.view.pods.walk().filter(|pod| !pod.volumes.is_empty()).for_each(|pod| self.pod(&pod));
    }
}
