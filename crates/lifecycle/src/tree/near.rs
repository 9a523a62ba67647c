//! What stands around one claim, so that a tree of thousands is not looked through for each of them.
//!
//! A claim that has its volume, and whose pods have their nodes and volumes, is explained by what it leads to: its pods,
//! their claims, those claims' volumes, attachments and pods. Anything else may depend on the whole cluster, and is shown
//! all of it. That both give the same tree is tested.

use std::collections::{BTreeMap, BTreeSet};

use api::{Attachment, Claim, Event, Key, Meta, Pod, Volume};

use crate::explain::{Listing, Picture};

/// Who leads to whom in a picture.
pub(super) struct Surroundings<'a> {
    all: &'a Picture,
    claims: BTreeMap<&'a Key, &'a Claim>,
    volumes: BTreeMap<&'a str, &'a Volume>,
    /// By claim.
    pods: BTreeMap<Key, Vec<&'a Pod>>,
    /// By volume; those of volumes inside of pods under no name.
    attachments: BTreeMap<&'a str, Vec<&'a Attachment>>,
    /// By the name of what they are about.
    events: BTreeMap<&'a str, Vec<&'a Event>>,
    /// The picture of the last one asked for; what does not depend on the claim is in it from the start.
    near: Picture,
}

impl<'a> Surroundings<'a> {
    pub(super) fn new(all: &'a Picture) -> Self {
        let mut pods: BTreeMap<Key, Vec<&Pod>> = BTreeMap::new();
        for pod in all.pods.items() {
            for claim in pod.claims() {
                pods.entry(pod.meta.key.sibling(&claim)).or_default().push(pod);
            }
        }
        let mut attachments: BTreeMap<&str, Vec<&Attachment>> = BTreeMap::new();
        for attachment in all.attachments.items() {
            attachments.entry(attachment.volume.as_deref().unwrap_or_default()).or_default().push(attachment);
        }
        let mut events: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in all.events.items() {
            events.entry(&event.about.name).or_default().push(event);
        }
        Self {
            all,
            claims: all.claims.items().iter().map(|claim| (claim.key(), claim)).collect(),
            volumes: all.volumes.items().iter().map(|volume| (volume.name(), volume)).collect(),
            pods,
            attachments,
            events,
            near: apart(all),
        }
    }

    /// The picture to explain a claim by, and what is below it.
    pub(super) fn of(&mut self, claim: &Claim) -> &Picture {
        let mut claims: BTreeMap<&Key, &Claim> = BTreeMap::new();
        let mut pods: BTreeMap<&Key, &Pod> = BTreeMap::new();
        for pod in self.users(claim.key()) {
            pods.insert(&pod.meta.key, pod);
            for name in pod.claims() {
                match self.claims.get(&pod.meta.key.sibling(&name)) {
                    Some(found) if pod.scheduled() => claims.insert(found.key(), found),
                    Some(_) | None => return self.all,
                };
            }
        }
        if let Some(own) = self.claims.get(claim.key()) {
            claims.insert(own.key(), own);
        }
        if !claims.values().all(|claim| self.at_rest(claim)) {
            return self.all;
        }
        for claim in claims.values() {
            pods.extend(self.users(claim.key()).map(|pod| (&pod.meta.key, pod)));
        }
        let volumes: Vec<&Volume> =
            claims.values().filter_map(|claim| self.volumes.get(&*claim.volume_name).copied()).collect();
        let names: BTreeSet<&str> = volumes.iter().map(|volume| volume.name()).chain([""]).collect();
        let attachments = names.iter().filter_map(|name| self.attachments.get(name)).flatten().copied();
        let metas = claims.values().map(|claim| &claim.meta).chain(pods.values().map(|pod| &pod.meta));
        let metas = metas.chain(volumes.iter().map(|volume| &volume.meta));
        let (all, near) = (self.all, &mut self.near);
        near.events = narrowed(&all.events, said_about(&self.events, metas));
        near.attachments = narrowed(&all.attachments, attachments);
        near.claims = narrowed(&all.claims, claims.into_values());
        near.pods = narrowed(&all.pods, pods.into_values());
        near.volumes = narrowed(&all.volumes, volumes.into_iter());
        near
    }

    fn users(&self, claim: &Key) -> impl Iterator<Item = &'a Pod> {
        self.pods.get(claim).into_iter().flatten().copied()
    }

    /// Whether nothing is looked for on the claim's behalf, and nothing goes.
    fn at_rest(&self, claim: &Claim) -> bool {
        let volume = self.volumes.get(&*claim.volume_name);
        claim.fully_bound()
            && !claim.meta.is_deleting()
            && volume.is_some_and(|volume| volume.designates(claim) && !volume.meta.is_deleting())
    }
}

/// What is the same around every claim.
fn apart(all: &Picture) -> Picture {
    Picture {
        now: all.now,
        classes: all.classes.clone(),
        nodes: all.nodes.clone(),
        csi_nodes: all.csi_nodes.clone(),
        drivers: all.drivers.clone(),
        capacities: all.capacities.clone(),
        quotas: all.quotas.clone(),
        leases: all.leases.clone(),
        node_events: all.node_events.clone(),
        snapshots: all.snapshots.clone(),
        grants: all.grants.clone(),
        intents: all.intents.clone(),
        namespaces: all.namespaces.clone(),
        ..Picture::default()
    }
}

fn said_about<'a>(
    events: &BTreeMap<&'a str, Vec<&'a Event>>,
    metas: impl Iterator<Item = &'a Meta>,
) -> impl Iterator<Item = &'a Event> {
    let names: BTreeSet<&str> = metas.map(|meta| meta.key.name()).collect();
    names.into_iter().filter_map(|name| events.get(name)).flatten().copied()
}

/// What could not be seen of the whole cannot be seen of a part.
fn narrowed<'a, T: Clone + 'a>(all: &Listing<T>, items: impl Iterator<Item = &'a T>) -> Listing<T> {
    match all {
        Listing::Seen(_) => Listing::Seen(items.cloned().collect()),
        unseen => unseen.clone(),
    }
}
