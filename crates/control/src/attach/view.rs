//! Who wants which volume where, and what is attached: computed from the caches, through indexes, each time somebody asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{Attachment, Claim, CsiDriver, Key, Node, Pod, PodSource, Volume};
use lifecycle::attach::target::{Around, Target, targets};
use lifecycle::attach::{
    AttachmentIdentity, identify, is_hashed_name, parse_unique, published, resolve, restored, wish,
};
use lifecycle::{Lookup as Known, attach::hold};
use runtime::cache::Lookup;
use runtime::{Cache, Index};

use crate::Context;
use crate::index::{ATTACHMENTS_BY_NODE, ATTACHMENTS_BY_VOLUME, NODES_RESTORED, PODS_BY_CLAIM, PODS_BY_NODE, RESTORED};

/// Volumes by what their driver calls them; two objects may name one volume.
const VOLUMES_BY_HANDLE: Index<Volume> = Index {
    name: "attach-handle",
    values: |volume, put| {
        if let Ok(Some(target)) = Target::of_volume(volume) {
            put(&target.handle);
        }
    },
};

/// Pods by the unique names of in-tree volumes that stand in them.
const PODS_BY_INLINE: Index<Pod> = Index {
    name: "attach-inline",
    values: |pod, put| {
        for volume in pod.volumes.iter().filter(|volume| matches!(volume.source, PodSource::InTree { .. })) {
            if let Ok(target) = resolve(pod, volume, &Nothing) {
                put(&target.unique());
            }
        }
    },
};

/// An in-tree volume inside a pod leads to no other object.
struct Nothing;

impl Around for Nothing {
    fn claim(&self, _: &Key) -> Option<Arc<Claim>> {
        None
    }
    fn volume(&self, _: &str) -> Option<Arc<Volume>> {
        None
    }
    fn driver(&self, _: &str) -> Option<Arc<CsiDriver>> {
        None
    }
}

/// Everything, but what drivers say of themselves: each one counts as one that attaches.
struct AnyDriver<'a>(&'a View);

impl Around for AnyDriver<'_> {
    fn claim(&self, key: &Key) -> Option<Arc<Claim>> {
        self.0.claim(key)
    }
    fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.0.volume(name)
    }
    fn driver(&self, _: &str) -> Option<Arc<CsiDriver>> {
        None
    }
}

#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) pods: Cache<Pod>,
    pods_by_claim: Lookup<Pod>,
    pods_by_node: Lookup<Pod>,
    pods_by_inline: Lookup<Pod>,
    pub(super) claims: Cache<Claim>,
    pub(super) volumes: Cache<Volume>,
    volumes_by_handle: Lookup<Volume>,
    pub(super) nodes: Cache<Node>,
    nodes_restored: Lookup<Node>,
    pub(super) drivers: Cache<CsiDriver>,
    pub(super) attachments: Cache<Attachment>,
    attachments_by_node: Lookup<Attachment>,
    attachments_by_volume: Lookup<Attachment>,
    orphans: Arc<Mutex<Orphans>>,
}

/// Attachments whose volume no object and no note tells. Few.
#[derive(Debug, Default)]
struct Orphans {
    /// Their volume's object is gone: the hash in their name, or what it stood for when it was last seen, says what they
    /// attach.
    keys: BTreeSet<Key>,
    /// The unique names of the volumes that attachments with a name of their own had when they were last known.
    seen: BTreeMap<Key, Box<str>>,
}

/// The pods on one node that want a volume.
#[derive(Debug)]
pub(super) struct Want {
    pub(super) node: Box<str>,
    pub(super) target: Target,
    /// In key order.
    pub(super) pods: Vec<Arc<Pod>>,
}

impl View {
    pub(super) fn new(context: &Context) -> Self {
        let (pods, volumes) = (context.cache::<Pod>(), context.cache::<Volume>());
        let (attachments, nodes) = (context.cache::<Attachment>(), context.cache::<Node>());
        Self {
            pods_by_claim: pods.index(PODS_BY_CLAIM),
            pods_by_node: pods.index(PODS_BY_NODE),
            pods_by_inline: pods.index(PODS_BY_INLINE),
            pods,
            claims: context.cache(),
            volumes_by_handle: volumes.index(VOLUMES_BY_HANDLE),
            volumes,
            nodes_restored: nodes.index(NODES_RESTORED),
            nodes,
            drivers: context.cache(),
            attachments_by_node: attachments.index(ATTACHMENTS_BY_NODE),
            attachments_by_volume: attachments.index(ATTACHMENTS_BY_VOLUME),
            attachments,
            orphans: Arc::default(),
        }
    }

    pub(super) async fn synced(&self) {
        self.pods.synced().await;
        self.claims.synced().await;
        self.volumes.synced().await;
        self.nodes.synced().await;
        self.drivers.synced().await;
        self.attachments.synced().await;
    }

    pub(super) fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(&Key::cluster(name))
    }

    /// What a pod wants attached, whether or not it still wants it.
    pub(super) fn targets(&self, pod: &Pod) -> Vec<Target> {
        targets(pod, self)
    }

    /// The pods of a claim.
    pub(super) fn pods_of(&self, claim: &Key) -> Vec<Arc<Pod>> {
        self.pods_by_claim.all(&claim.to_string())
    }

    /// The pods that have this node and have not ended.
    pub(super) fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        self.pods_by_node.all(node)
    }

    pub(super) fn attachments_on(&self, node: &str) -> Vec<Arc<Attachment>> {
        self.attachments_by_node.all(node)
    }

    /// The attachments that name a volume.
    pub(super) fn attachments_naming(&self, volume: &str) -> Vec<Arc<Attachment>> {
        self.attachments_by_volume.all(volume)
    }

    /// What pods want on a node, by the names of the attachments that would give it.
    pub(super) fn wanted_on(&self, node: &str) -> BTreeMap<String, Target> {
        let pods = self.pods_on(node);
        let wanting = pods.iter().filter(|pod| pod.wants_volumes());
        let wanted = wanting.flat_map(|pod| self.targets(pod));
        wanted.map(|target| (target.attachment(node), target)).collect()
    }

    /// Who wants a volume, node by node, the oldest pod's node first.
    pub(super) fn wants(&self, unique: &str) -> Vec<Want> {
        let mut pods: BTreeMap<Key, Arc<Pod>> = BTreeMap::new();
        let of_claims = self.volumes_of(unique).into_iter().filter_map(|volume| volume.claim.clone());
        let of_claims = of_claims.flat_map(|claim| self.pods_of(&claim.key));
        for pod in of_claims.chain(self.pods_by_inline.all(unique)).filter(|pod| pod.wants_volumes()) {
            pods.insert(pod.meta.key.clone(), pod);
        }
        let mut wants: BTreeMap<Box<str>, Want> = BTreeMap::new();
        for pod in pods.into_values() {
            let Some(target) = self.targets(&pod).into_iter().find(|target| target.unique() == unique) else {
                continue;
            };
            let node = pod.node.clone();
            let want = wants.entry(node.clone()).or_insert_with(|| Want { node, target, pods: Vec::new() });
            want.pods.push(pod);
        }
        self.recover(unique, &mut wants);
        let mut wants: Vec<Want> = wants.into_values().collect();
        wants.sort_by_key(|want| want.pods.iter().map(|pod| pod.meta.created).min());
        wants
    }

    /// Adds the nodes that have a volume without an attachment, since the objects were restored from a backup: it has to be
    /// attached there before it can be detached, or kept from other nodes.
    fn recover(&self, unique: &str, wants: &mut BTreeMap<Box<str>, Want>) {
        let reporting = self.nodes_restored.all(RESTORED);
        for node in reporting.iter().filter(|node| restored::lists(node, unique)) {
            let volumes = self.volumes_of(unique);
            let Some(target) = volumes.iter().find_map(|volume| Target::of_volume(volume).ok()?) else { continue };
            if self.attachments.get(&Key::cluster(&target.attachment(node.name()))).is_none() {
                let name: Box<str> = node.name().into();
                wants.entry(name.clone()).or_insert_with(|| Want { node: name, target, pods: Vec::new() });
            }
        }
    }

    /// The objects that name a volume.
    fn volumes_of(&self, unique: &str) -> Vec<Arc<Volume>> {
        let Some((_, handle)) = parse_unique(unique) else { return Vec::new() };
        let mut volumes = self.volumes_by_handle.all(handle);
        volumes.retain(|volume| unique_of(volume).is_some_and(|held| held == unique));
        volumes
    }

    /// All attachments of a volume: those that name or carry it, and those whose name alone says so.
    pub(super) fn attachments_of(&self, unique: &str) -> Vec<Arc<Attachment>> {
        let mut found: BTreeMap<Key, Arc<Attachment>> = BTreeMap::new();
        let named = self.volumes_of(unique).into_iter().flat_map(|volume| self.attachments_naming(volume.name()));
        for attachment in named.chain(self.attachments_by_volume.all(unique)) {
            found.insert(attachment.meta.key.clone(), attachment);
        }
        if let Some(volume) = parse_unique(unique) {
            let orphans = self.orphans();
            for orphan in orphans.keys.iter().filter_map(|key| self.attachments.get(key)) {
                let seen = orphans.seen.get(&orphan.meta.key).is_some_and(|seen| **seen == *unique);
                if seen || identify(&orphan, volume) == AttachmentIdentity::Of {
                    found.insert(orphan.meta.key.clone(), orphan);
                }
            }
        }
        found.into_values().collect()
    }

    /// Attachments to other nodes that may be of a volume: nothing tells what they attach.
    pub(super) fn doubts(&self, unique: &str, node: &str) -> Vec<Arc<Attachment>> {
        let Some(volume) = parse_unique(unique) else { return Vec::new() };
        let orphans = self.orphans();
        let unseen = orphans.keys.iter().filter(|key| !orphans.seen.contains_key(*key));
        let mut doubts: Vec<Arc<Attachment>> = unseen.filter_map(|key| self.attachments.get(key)).collect();
        doubts.retain(|held| *held.node != *node && identify(held, volume) == AttachmentIdentity::Unknown);
        doubts
    }

    /// The unique name of what an attachment attaches, as far as it can be known.
    pub(super) fn identity(&self, attachment: &Attachment) -> Option<String> {
        let node = attachment.node.as_str();
        // An object of the same name may stand for another volume by now.
        let volume = attachment.volume.as_deref().and_then(|name| self.volume(name));
        let target = volume.and_then(|volume| Target::of_volume(&volume).ok()?);
        let named = |target: &Target| match is_hashed_name(attachment.name()) {
            true => target.attachment(node) == attachment.name(),
            false => *target.driver == *attachment.attacher,
        };
        let published = published(attachment);
        published.or_else(|| target.filter(named).map(|target| target.unique()))
    }

    /// An attachment came, changed or went, or its volume did.
    pub(super) fn track(&self, attachment: &Attachment) {
        let (identity, key) = (self.identity(attachment), &attachment.meta.key);
        let gone = self.attachments.get(key).is_none();
        let mut orphans = self.orphans();
        match (gone, identity) {
            (true, _) => {
                orphans.keys.remove(key);
                orphans.seen.remove(key);
            }
            (false, None) => drop(orphans.keys.insert(key.clone())),
            (false, Some(unique)) => {
                orphans.keys.remove(key);
                if !is_hashed_name(attachment.name()) {
                    orphans.seen.insert(key.clone(), unique.into());
                }
            }
        }
    }

    fn orphans(&self) -> MutexGuard<'_, Orphans> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the node was told that it has the volume.
    pub(super) fn told(&self, node: &str, unique: &str) -> bool {
        self.node(node).is_some_and(|node| node.reports_attached(unique))
    }

    /// The other nodes that may have a volume that no attachment tells of, since the objects were restored from a backup.
    pub(super) fn unconfirmed(&self, node: &str, unique: &str) -> Vec<Box<str>> {
        let restored = self.nodes_restored.all(RESTORED);
        let others = restored.iter().filter(|other| other.name() != node && restored::may_have(other, unique));
        others.map(|other| other.name().into()).collect()
    }

    /// Whether a pod on its node wants an attachment, given what is wanted there.
    pub(super) fn need(&self, attachment: &Attachment, wanted: &BTreeMap<String, Target>) -> hold::Need {
        use lifecycle::attach::target::Sharing;
        let Some(target) = wanted.get(attachment.name()) else {
            return match attachment.attached && self.is_used_whatever_its_driver_says(attachment) {
                true => hold::Need::Wanted,
                false => hold::Need::Unwanted,
            };
        };
        if self.is_of_a_volume_that_is_gone(attachment, target) {
            return hold::Need::Unwanted;
        }
        match target.sharing {
            Sharing::ManyNodes => hold::Need::Wanted,
            Sharing::OneNode => match self.turn(attachment, &target.unique()) {
                hold::Need::Wanted if !self.unconfirmed(&attachment.node, &target.unique()).is_empty() => {
                    hold::Need::Unconfirmed
                }
                need => need,
            },
        }
    }

    /// Whether an attachment that is not attached names a PersistentVolume that was replaced by another one of the same handle.
    /// It cannot be carried out any more: it ends, and is made again for the PersistentVolume that there is.
    fn is_of_a_volume_that_is_gone(&self, attachment: &Attachment, target: &Target) -> bool {
        let named = attachment.volume.as_deref().filter(|name| *name != target.name());
        !attachment.attached && named.is_some_and(|name| self.volume(name).is_none())
    }

    /// Whether a pod on its node uses the volume of an attachment whose driver has stopped asking for attachments. The pod
    /// may be about to mount it, and the node to say so: it is detached as any other, once the pod is gone and the node does
    /// not use it (CTRL-13.41).
    fn is_used_whatever_its_driver_says(&self, attachment: &Attachment) -> bool {
        let says_no =
            self.driver(&attachment.attacher).is_some_and(|driver| driver.spec.attach_required == Some(false));
        let uses = |pod: &Arc<Pod>| {
            let targets = targets(pod, &AnyDriver(self));
            pod.wants_volumes() && targets.iter().any(|target| target.attachment(&attachment.node) == attachment.name())
        };
        says_no && self.pods_on(&attachment.node).iter().any(uses)
    }

    /// Of several nodes that have a volume for one, does this one come first?
    fn turn(&self, attachment: &Attachment, unique: &str) -> hold::Need {
        let others = self.attachments_of(unique);
        let mut others = others.iter().filter(|other| other.node != attachment.node);
        let told = |attachment: &Attachment| self.told(&attachment.node, unique);
        let precedes = |other: &Arc<Attachment>| wish::precedes((other, told(other)), (attachment, told(attachment)));
        match others.any(precedes) {
            true => hold::Need::Second,
            false => hold::Need::Wanted,
        }
    }

    /// Why an attachment is where it is.
    pub(super) fn hold(&self, attachment: &Attachment, rules: hold::Rules) -> hold::Hold {
        let node = self.node(&attachment.node);
        let node = node.as_deref().map_or(Known::NotCached, Known::Found);
        let need = match attachment.meta.is_deleting() {
            // It goes, whoever wants it.
            true => hold::Need::Unwanted,
            false => self.need(attachment, &self.wanted_on(&attachment.node)),
        };
        let usage = hold::usage(node, attachment.name());
        hold::judge(&hold::Held { attachment, need, node, usage, rules })
    }
}

/// The unique name of a volume, if a driver attaches it.
pub(super) fn unique_of(volume: &Volume) -> Option<String> {
    Some(Target::of_volume(volume).ok()??.unique())
}

impl Around for View {
    fn claim(&self, key: &Key) -> Option<Arc<Claim>> {
        self.claims.get(key)
    }

    fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.volumes.get(&Key::cluster(name))
    }

    fn driver(&self, name: &str) -> Option<Arc<CsiDriver>> {
        self.drivers.get(&Key::cluster(name))
    }
}
