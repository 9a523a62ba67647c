//! The same answers from plain lists of objects: for whoever only looks, such as `orlop explain`.

use std::time::Duration;

use api::{Attachment, Node, Pod, PodVolume};

use super::hold::{Held, Hold, Need, Rules, judge, usage};
use super::identity::{AttachmentIdentity, identify};
use super::restored::{lists, may_have};
use super::target::{Around, Target, Unattachable, resolve, targets};
use super::wish::{Because, Other, RestoreListing, Slot, Users, Wish, about};
use crate::Lookup;

/// What was seen of a cluster.
#[derive(Clone, Copy)]
pub struct Sight<'a> {
    pub around: &'a dyn Around,
    pub nodes: &'a [Node],
    pub attachments: &'a [Attachment],
    /// All that were seen; those of other namespaces are counted, not named.
    pub pods: &'a [Pod],
    pub rules: Rules,
}

impl std::fmt::Debug for Sight<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { nodes, attachments, pods, .. } = self;
        let (nodes, attachments, pods) = (nodes.len(), attachments.len(), pods.len());
        write!(f, "Sight {{ {nodes} nodes, {attachments} attachments, {pods} pods }}")
    }
}

impl Sight<'_> {
    /// Why a volume of a scheduled pod is attached to the pod's node, or not yet. An error says that it need not be, or what
    /// has to happen before.
    pub fn of(&self, pod: &Pod, volume: &PodVolume) -> Result<Because, Unattachable> {
        let target = resolve(pod, volume, self.around)?;
        let name = target.attachment(&pod.node);
        let own = self.attachments.iter().find(|held| held.name() == name);
        let elsewhere = self.attachments.iter().filter(|held| *held.node != *pod.node && self.is_of(held, &target));
        let others: Vec<Other<'_>> = elsewhere.map(|attachment| self.other(attachment, &target)).collect();
        Ok(about(&Wish {
            target: &target,
            node_name: &pod.node,
            node: self.node(&pod.node),
            own,
            others: &others,
            doubts: &self.doubts(pod, &target),
            unconfirmed: &self.unconfirmed(&pod.node, &target.unique()),
            listing: self
                .node(&pod.node)
                .found()
                .map_or(RestoreListing::Unlisted, |node| RestoreListing::of(lists(node, &target.unique()))),
            users: &self.users(pod, &target),
            slot: Slot::Free,
            waited: own.map_or(Duration::ZERO, |own| self.age(own)),
        }))
    }

    /// Why an attachment stays, or goes.
    pub fn hold(&self, attachment: &Attachment) -> Hold {
        let node = self.node(&attachment.node);
        let wanting = self.pods.iter().filter(|pod| pod.wants_volumes() && *pod.node == *attachment.node);
        let mut wanted = wanting.flat_map(|pod| targets(pod, self.around));
        let need = match wanted.any(|target| target.attachment(&attachment.node) == attachment.name()) {
            true => Need::Wanted,
            false => Need::Unwanted,
        };
        let usage = usage(node, attachment.name());
        judge(&Held { attachment, need, node, usage, rules: self.rules })
    }

    fn other<'b>(&self, attachment: &'b Attachment, target: &Target) -> Other<'b> {
        let told = self.node(&attachment.node).found().is_some_and(|node| node.reports_attached(&target.unique()));
        Other { attachment, hold: self.hold(attachment), told }
    }

    /// The other nodes that may have a volume since the objects were restored.
    fn unconfirmed(&self, node: &str, unique: &str) -> Vec<Box<str>> {
        let others = self.nodes.iter().filter(|other| other.name() != node && may_have(other, unique));
        others.map(|other| other.name().into()).collect()
    }

    /// The list is the server's own: a node that is not in it does not exist.
    fn node(&self, name: &str) -> Lookup<'_, Node> {
        self.nodes.iter().find(|node| node.name() == name).map_or(Lookup::Absent, Lookup::Found)
    }

    /// Whether an attachment is of this volume: by what it tells itself, or by the volume that it names.
    pub fn is_of(&self, attachment: &Attachment, target: &Target) -> bool {
        identify(attachment, (&target.driver, &target.handle)) == AttachmentIdentity::Of
            || attachment.volume.as_deref().is_some_and(|name| self.stands_for(name, target))
    }

    /// Whether a PersistentVolume is one of this volume.
    fn stands_for(&self, name: &str, target: &Target) -> bool {
        let named = || self.around.volume(name).and_then(|volume| Target::of_volume(&volume).ok()?);
        name == target.name() || named().is_some_and(|named| named.unique() == target.unique())
    }

    /// Attachments to other nodes that may be of this volume: what they attach is not known.
    fn doubts(&self, pod: &Pod, target: &Target) -> Vec<&Attachment> {
        let unknown = |held: &&Attachment| {
            *held.node != *pod.node
                && identify(held, (&target.driver, &target.handle)) == AttachmentIdentity::Unknown
                && held.volume.as_deref().is_some_and(|name| self.around.volume(name).is_none())
        };
        self.attachments.iter().filter(unknown).collect()
    }

    fn users(&self, pod: &Pod, target: &Target) -> Users {
        let unique = target.unique();
        let uses = |other: &&Pod| {
            other.wants_volumes()
                && other.node != pod.node
                && targets(other, self.around).iter().any(|used| used.unique() == unique)
        };
        let (here, elsewhere): (Vec<&Pod>, Vec<&Pod>) =
            self.pods.iter().filter(uses).partition(|other| other.namespace() == pod.namespace());
        let mut here: Vec<Box<str>> = here.into_iter().map(|other| other.name().into()).collect();
        here.sort();
        Users { here, elsewhere: elsewhere.len() }
    }

    fn age(&self, attachment: &Attachment) -> Duration {
        let seconds = self.rules.now.0.saturating_sub(attachment.meta.created.0);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }
}
