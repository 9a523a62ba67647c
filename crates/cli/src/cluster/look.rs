//! Looks at a cluster: what stands around one claim or volume, all at once, as far as it may be read.

use api::keys::label;
use api::node::PodPhase;
use api::object::UnixSeconds;
use api::{Claim, ConfigMap, DataSource, Event, Grant, Key, Kind, Object, Pod, Snapshot, Uid, Volume, Word};
use lifecycle::explain::{Begun, Listing, Picture};
use lifecycle::registration::lease::ANOTHER_MACHINE_EVENT;
use runtime::client::{Error, Selection};
use runtime::{Client, Clock};
use serde::Deserialize;

/// Objects per page.
const PAGE: u32 = 500;

/// Whether a pod is to have a claim's volume, and has not got it.
fn waits(pod: &Pod, claim: &Claim) -> bool {
    pod.namespace() == claim.namespace()
        && pod.phase == PodPhase::Pending
        && pod.volumes_ready.as_ref().is_none_or(|said| !said.ready)
        && pod.claims().any(|name| *name == *claim.name())
}

/// One look at a cluster.
pub(crate) struct Eye<'a> {
    client: &'a Client,
    now: UnixSeconds,
}

impl<'a> Eye<'a> {
    pub(crate) fn new(client: &'a Client, clock: &dyn Clock) -> Self {
        Self { client, now: UnixSeconds(clock.now().as_second()) }
    }

    /// What stands around a claim. A claim that has its volume needs less of it, unless a pod waits for the two.
    pub(crate) async fn around_claim(&self, claim: &Claim) -> Picture {
        let namespace = Key::cluster(claim.namespace());
        let here = Selection { namespace: Some(claim.namespace().to_owned()), ..Selection::default() };
        let all = Selection::default();
        let going = claim.meta.is_deleting();
        let (claims, pods, events, namespaces) =
            tokio::join!(self.list(&here), self.list::<Pod>(&here), self.list(&here), self.one(&namespace));
        let open = claim.volume_name.is_empty() || pods.items().iter().any(|pod| waits(pod, claim));
        let (volumes, classes) = tokio::join!(self.volumes_for(claim, open), self.list_if(open, &all));
        let bound = !claim.volume_name.is_empty();
        let (nodes, csi_nodes, drivers, attachments, leases, node_events) = tokio::join!(
            self.list_if(open || going || bound, &all),
            self.list_if(open, &all),
            self.list_if(open, &all),
            self.list(&all),
            self.list_if(open || going, &all),
            self.node_events(bound),
        );
        let (capacities, intents, snapshots) = tokio::join!(
            self.list_if(open, &all),
            self.intents(open),
            self.list_if(open && claim.source.is_some() || going, &here),
        );
        let mut picture = Picture {
            now: self.now,
            claims,
            volumes,
            classes,
            pods,
            nodes,
            csi_nodes,
            drivers,
            attachments,
            capacities,
            leases,
            events,
            node_events,
            snapshots,
            intents,
            namespaces,
            ..Picture::default()
        };
        if let Some(source) = &claim.source {
            self.source_elsewhere(&mut picture, claim, source).await;
        }
        picture
    }

    /// What stands around a volume.
    pub(crate) async fn around_volume(&self, volume: &Volume) -> Picture {
        let claim = volume.claim.as_ref().map(|reference| reference.key.clone());
        let there = claim.as_ref().and_then(Key::namespace).unwrap_or_default();
        let in_namespace = Selection { namespace: Some(there.to_owned()), ..Selection::default() };
        let about = format!("involvedObject.kind={},involvedObject.name={}", Kind::VOLUME.kind, volume.name());
        let events = Selection { fields: Some(about), ..Selection::default() };
        let all = Selection::default();
        let (claims, classes, pods, nodes, csi_nodes) = tokio::join!(
            self.maybe_one(claim.as_ref()),
            self.list(&all),
            self.list_if(!there.is_empty(), &in_namespace),
            self.list(&all),
            self.list(&all),
        );
        let (drivers, attachments, leases, events, node_events) = tokio::join!(
            self.list(&all),
            self.list(&all),
            self.list(&all),
            self.list::<Event>(&events),
            self.node_events(true),
        );
        Picture {
            now: self.now,
            claims,
            volumes: Listing::Seen(vec![volume.clone()]),
            classes,
            pods,
            nodes,
            csi_nodes,
            drivers,
            attachments,
            leases,
            events,
            node_events,
            ..Picture::default()
        }
    }

    /// What stands around a pod: everything that its claims could need as well.
    pub(crate) async fn around_pod(&self, pod: &Pod) -> Picture {
        let here = Selection { namespace: Some(pod.namespace().to_owned()), ..Selection::default() };
        let all = Selection::default();
        let (claims, volumes, classes, pods, events) = tokio::join!(
            self.list::<Claim>(&here),
            self.list(&all),
            self.list(&all),
            self.list(&here),
            self.list(&here),
        );
        let (nodes, csi_nodes, drivers, attachments, leases) =
            tokio::join!(self.list(&all), self.list(&all), self.list(&all), self.list(&all), self.list(&all));
        let missing = |claims: &Listing<Claim>| {
            let there = |name: &str| claims.items().iter().any(|claim| claim.name() == name);
            claims.is_seen() && pod.claims().any(|name| !there(&name))
        };
        let (capacities, intents, quotas, node_events) = tokio::join!(
            self.list(&all),
            self.intents(true),
            self.list_if(missing(&claims), &here),
            self.node_events(pod.scheduled()),
        );
        Picture {
            now: self.now,
            claims,
            volumes,
            classes,
            pods,
            events,
            node_events,
            quotas,
            nodes,
            csi_nodes,
            drivers,
            attachments,
            leases,
            capacities,
            intents,
            ..Picture::default()
        }
    }

    /// A whole namespace, or all of them, with whatever of the cluster has to do with them.
    pub(crate) async fn all(&self, namespace: Option<&str>) -> Picture {
        let here = Selection { namespace: namespace.map(str::to_owned), ..Selection::default() };
        let all = Selection::default();
        let (claims, pods, events, snapshots, namespaces) = tokio::join!(
            self.list::<Claim>(&here),
            self.list(&here),
            self.list(&here),
            self.list(&here),
            self.namespaces(namespace)
        );
        let (volumes, classes, nodes, csi_nodes, drivers, attachments) = tokio::join!(
            self.list(&all),
            self.list(&all),
            self.list(&all),
            self.list(&all),
            self.list(&all),
            self.list(&all),
        );
        let crosses = |claim: &Claim| claim.source.as_ref().is_some_and(|source| source.namespace.is_some());
        let (capacities, leases, intents, grants, node_events) = tokio::join!(
            self.list(&all),
            self.list(&all),
            self.intents(true),
            self.list_if(claims.items().iter().any(crosses), &all),
            self.node_events(true),
        );
        Picture {
            now: self.now,
            claims,
            volumes,
            classes,
            pods,
            nodes,
            csi_nodes,
            drivers,
            attachments,
            capacities,
            leases,
            events,
            node_events,
            snapshots,
            intents,
            grants,
            namespaces,
            ..Picture::default()
        }
    }

    /// Events by which agents say that another machine uses their node's name.
    async fn node_events(&self, wanted: bool) -> Listing<Event> {
        let about = format!("involvedObject.kind={},reason={ANOTHER_MACHINE_EVENT}", Kind::NODE.kind);
        self.list_if(wanted, &Selection { fields: Some(about), ..Selection::default() }).await
    }

    async fn namespaces(&self, namespace: Option<&str>) -> Listing<api::Namespace> {
        match namespace {
            Some(name) => self.one(&Key::cluster(name)).await,
            None => self.list(&Selection::default()).await,
        }
    }

    /// What can name a volume or a snapshot of a driver, everywhere.
    pub(crate) async fn names_of_volumes(&self) -> (Picture, Listing<api::SnapshotContent>) {
        let all = Selection::default();
        let (claims, volumes, classes, drivers, attachments) =
            tokio::join!(self.list(&all), self.list(&all), self.list(&all), self.list(&all), self.list(&all));
        let (intents, contents, nodes) = tokio::join!(self.intents(true), self.list(&all), self.list(&all));
        let now = self.now;
        let seen =
            Picture { now, claims, volumes, classes, drivers, attachments, intents, nodes, ..Picture::default() };
        (seen, contents)
    }

    /// What shows how full things are.
    pub(crate) async fn usage(&self, namespace: Option<&str>) -> Picture {
        let here = Selection { namespace: namespace.map(str::to_owned), ..Selection::default() };
        let all = Selection::default();
        let (claims, pods, volumes) = tokio::join!(self.list(&here), self.list(&here), self.list(&all));
        let (nodes, csi_nodes, attachments, capacities) =
            tokio::join!(self.list(&all), self.list(&all), self.list(&all), self.list(&all));
        let now = self.now;
        Picture { now, claims, pods, volumes, nodes, csi_nodes, attachments, capacities, ..Picture::default() }
    }

    /// What stands where a claim should be.
    pub(crate) async fn around_missing(&self, key: &Key) -> Picture {
        let here = Selection { namespace: key.namespace().map(str::to_owned), ..Selection::default() };
        let namesakes = Selection { fields: Some(format!("metadata.name={}", key.name())), ..Selection::default() };
        let (pods, events, quotas, claims) =
            tokio::join!(self.list(&here), self.list(&here), self.list(&here), self.list(&namesakes));
        Picture { now: self.now, pods, events, quotas, claims, ..Picture::default() }
    }

    /// All volumes for a claim that looks for one, or whose pods look for a node; else the one it names.
    async fn volumes_for(&self, claim: &Claim, open: bool) -> Listing<Volume> {
        match open {
            true => self.list(&Selection::default()).await,
            false => self.one(&Key::cluster(&claim.volume_name)).await,
        }
    }

    /// A data source in another namespace, and the grants there.
    async fn source_elsewhere(&self, picture: &mut Picture, claim: &Claim, source: &DataSource) {
        let Some(namespace) = source.namespace.as_deref().filter(|namespace| *namespace != claim.namespace()) else {
            return;
        };
        let key = Key::namespaced(namespace, &source.name);
        let there = Selection { namespace: Some(namespace.to_owned()), ..Selection::default() };
        let (claims, snapshots, grants) =
            tokio::join!(self.one::<Claim>(&key), self.one::<Snapshot>(&key), self.list::<Grant>(&there));
        picture.grants = grants;
        join(&mut picture.claims, claims);
        join(&mut picture.snapshots, snapshots);
    }

    async fn list<T: Object>(&self, selection: &Selection) -> Listing<T> {
        let mut items = Vec::new();
        let mut next: Option<String> = None;
        loop {
            match self.client.list(T::KIND, selection, PAGE, next.as_deref()).await {
                Ok(page) => {
                    items.extend(page.items);
                    match page.next {
                        Some(token) => next = Some(token),
                        None => return Listing::Seen(items),
                    }
                }
                Err(error) => return unseen(error),
            }
        }
    }

    async fn list_if<T: Object>(&self, wanted: bool, selection: &Selection) -> Listing<T> {
        if wanted { self.list(selection).await } else { Listing::NotAsked }
    }

    /// One object as a listing of itself, for questions about it alone.
    async fn one<T: Object>(&self, key: &Key) -> Listing<T> {
        match self.client.get(T::KIND, key).await {
            Ok(object) => Listing::Seen(vec![object]),
            Err(Error::NotFound { .. }) => Listing::Seen(Vec::new()),
            Err(error) => unseen(error),
        }
    }

    async fn maybe_one<T: Object>(&self, key: Option<&Key>) -> Listing<T> {
        match key {
            Some(key) => self.one(key).await,
            None => Listing::NotAsked,
        }
    }

    /// What provisioners of ours have begun and not ended.
    async fn intents(&self, wanted: bool) -> Listing<Begun> {
        let selection = Selection { labels: Some(label::INTENTS.text().to_owned()), ..Selection::default() };
        intents(self.list_if::<ConfigMap>(wanted, &selection).await)
    }
}

/// What journals say was begun.
pub(crate) fn intents(journals: Listing<ConfigMap>) -> Listing<Begun> {
    match journals {
        Listing::Seen(pages) => Listing::Seen(pages.iter().flat_map(begun).collect()),
        Listing::NotAsked => Listing::NotAsked,
        Listing::NotAllowed => Listing::NotAllowed,
        Listing::NotServed => Listing::NotServed,
        Listing::Failed(why) => Listing::Failed(why),
    }
}

fn unseen<T>(error: Error) -> Listing<T> {
    match error {
        Error::Forbidden { .. } => Listing::NotAllowed,
        Error::NotFound { .. } => Listing::NotServed,
        error => Listing::Failed(error.to_string()),
    }
}

/// Adds what was seen elsewhere. What could not be seen there makes the whole uncertain.
fn join<T>(all: &mut Listing<T>, more: Listing<T>) {
    match (&mut *all, more) {
        (Listing::Seen(items), Listing::Seen(found)) => items.extend(found),
        (Listing::NotAsked | Listing::NotServed, more) => *all = more,
        (Listing::Seen(_), Listing::NotAsked | Listing::NotServed) => {}
        (Listing::Seen(_), more) => *all = more,
        (Listing::NotAllowed | Listing::Failed(_), _) => {}
    }
}

/// The part of a journal's entry that says what was begun. One that cannot be read is left to its provisioner.
#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    namespace: Box<str>,
    #[serde(default)]
    claim: Box<str>,
    volume: Box<str>,
    #[serde(default)]
    node: Option<Box<str>>,
}

fn begun(page: &ConfigMap) -> Vec<Begun> {
    let by = Word::new(page.meta.label(label::INTENTS).unwrap_or_default());
    let entries = page.data.iter().flatten().filter_map(|(uid, text)| {
        let entry: Entry = serde_json::from_str(text).ok()?;
        let named = !entry.namespace.is_empty() && !entry.claim.is_empty();
        let key = named.then(|| Key::namespaced(&entry.namespace, &entry.claim));
        Some(Begun { claim: Uid::from(&**uid), key, by: by.clone(), volume: entry.volume, node: entry.node })
    });
    entries.collect()
}
