//! What the pods of this node want, resolved from their claims to volumes (NODE-5).

mod contexts;
mod resolve;

pub(crate) use contexts::Contexts;
pub(crate) use resolve::Resolver;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{AccessModes, Amount, Attachment, Claim, Key, Uid, Volume};
use lifecycle::node::Because;
use lifecycle::node::selinux::Judged;
use runtime::Want;
use tokio::time::Instant;

use crate::actual::{VolumeId, What};
use crate::layout::Name;
use crate::pods::LocalPod;

/// One volume that one pod wants.
#[derive(Debug, Clone)]
pub struct Wish {
    pub id: VolumeId,
    pub pod: Arc<LocalPod>,
    /// The volume's name in the pod.
    pub volume: Box<str>,
    pub what: What,
    /// The volume's name in paths.
    pub spec: Name,
    /// The claim it came by, and its uid.
    pub claim: Option<(Key, Uid)>,
    /// The PersistentVolume.
    pub volume_key: Option<Key>,
    pub read_only: bool,
    /// Whether a driver took it over from an in-tree plugin.
    pub migrated: bool,
    pub access: AccessModes,
    /// What of that the claim asks for.
    pub asked: AccessModes,
    /// With which SELinux context it is mounted, if nothing of it is here yet.
    pub selinux: Judged,
    /// How large the volume is.
    pub capacity: Option<Amount>,
    /// How large its claim says that it is.
    pub claimed: Option<Amount>,
    pub since: Instant,
}

/// A pod and what its volumes were resolved to.
#[derive(Debug, Clone)]
pub struct DesiredPod {
    pub pod: Arc<LocalPod>,
    /// By the name in the pod. What the agent leaves to others is not in here.
    pub volumes: BTreeMap<Box<str>, Result<Arc<Wish>, Because>>,
    /// What is followed for it.
    pub wants: Wants,
}

/// The objects that a pod depends on, there or not. The agent follows these and no others of their kinds: a cluster has far
/// more of them than a node.
#[derive(Debug, Clone, Default)]
pub struct Wants {
    claims: Vec<Arc<Want<Claim>>>,
    volumes: Vec<Arc<Want<Volume>>>,
    attachments: Vec<Arc<Want<Attachment>>>,
}

impl Wants {
    fn has_attachment(&self, key: &Key) -> bool {
        self.attachments.iter().any(|want| want.key() == key)
    }
}

/// Everything that is wanted on this node.
#[derive(Debug, Default)]
pub struct Desired {
    pods: BTreeMap<Uid, DesiredPod>,
    wishes: BTreeMap<VolumeId, BTreeMap<Uid, Arc<Wish>>>,
}

impl Desired {
    /// Takes a pod as it is wanted now. Gives the volumes whose wishes changed.
    pub fn set(&mut self, pod: DesiredPod) -> Vec<VolumeId> {
        let uid = pod.pod.uid().clone();
        let mut touched = self.remove(&uid);
        for wish in pod.volumes.values().flatten() {
            self.wishes.entry(wish.id.clone()).or_default().insert(uid.clone(), wish.clone());
            touched.push(wish.id.clone());
        }
        self.pods.insert(uid, pod);
        touched.sort();
        touched.dedup();
        touched
    }

    /// The pod wants nothing any more. Gives the volumes it wanted.
    pub fn remove(&mut self, uid: &Uid) -> Vec<VolumeId> {
        let Some(pod) = self.pods.remove(uid) else { return Vec::new() };
        let ids: Vec<VolumeId> = pod.volumes.values().flatten().map(|wish| wish.id.clone()).collect();
        for id in &ids {
            if let Some(wishes) = self.wishes.get_mut(id) {
                wishes.remove(uid);
                if wishes.is_empty() {
                    self.wishes.remove(id);
                }
            }
        }
        ids
    }

    pub fn pod(&self, uid: &Uid) -> Option<&DesiredPod> {
        self.pods.get(uid)
    }

    pub fn pods(&self) -> impl Iterator<Item = &DesiredPod> {
        self.pods.values()
    }

    /// Who wants a volume, in the order in which the pods were made.
    pub fn wishes(&self, id: &VolumeId) -> Vec<Arc<Wish>> {
        let mut wishes: Vec<_> = self.wishes.get(id).into_iter().flat_map(BTreeMap::values).cloned().collect();
        wishes.sort_by(|a, b| (a.pod.meta.created, a.pod.uid()).cmp(&(b.pod.meta.created, b.pod.uid())));
        wishes
    }

    /// Whether somebody wants a volume.
    pub fn wants(&self, id: &VolumeId) -> bool {
        self.wishes.contains_key(id)
    }

    pub fn wish(&self, id: &VolumeId, pod: &Uid) -> Option<&Arc<Wish>> {
        self.wishes.get(id)?.get(pod)
    }

    /// The volumes that somebody wants, each with one of those wishes.
    pub fn volumes(&self) -> impl Iterator<Item = (&VolumeId, &Arc<Wish>)> {
        self.wishes.iter().filter_map(|(id, wishes)| Some((id, wishes.values().next()?)))
    }
}
