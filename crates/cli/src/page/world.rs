//! The cluster as the watch caches know it, in the form that decisions and explanations take.
//!
//! Kinds that did not change since the last look are not copied again. Kinds that few clusters serve are followed only once a
//! claim needs them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::keys::label;
use api::object::UnixSeconds;
use api::{
    Attachment, Capacity, Claim, Class, ConfigMap, CsiDriver, CsiNode, Event, Grant, Kind, Lease, Namespace, Node,
    Object, Pod, Snapshot, Volume,
};
use control::Context;
use lifecycle::explain::{Listing, Picture};
use runtime::cache::Caches;
use runtime::client::{Error, Selection};
use runtime::{Cache, Change, Clock, Subscription};

use super::marks::{self, Extent, Marks};
use crate::cluster::look;

/// One kind: its cache, and whether it changed since it was copied.
#[derive(Debug)]
struct Kept<T: Object> {
    cache: Cache<T>,
    changed: Arc<AtomicBool>,
    _subscription: Subscription,
}

impl<T: Object + Clone> Kept<T> {
    /// Follows all objects of a kind; `mark` is told of every change.
    fn all(caches: &Caches, mark: impl Fn(&Change<T>) + Send + Sync + 'static) -> Self {
        Self::some(caches, Selection::default(), mark)
    }

    fn some(caches: &Caches, selection: Selection, mark: impl Fn(&Change<T>) + Send + Sync + 'static) -> Self {
        let cache = caches.selected::<T>(selection);
        let changed = Arc::new(AtomicBool::new(true));
        let flag = Arc::clone(&changed);
        let subscription = cache.subscribe(move |change| {
            flag.store(true, Ordering::Release);
            mark(change);
        });
        Self { cache, changed, _subscription: subscription }
    }

    /// Copies the kind, if there is anything new about it.
    fn look(&self, into: &mut Listing<T>) {
        let changed = self.changed.swap(false, Ordering::AcqRel);
        if !self.cache.is_synced() {
            *into = self.unseen();
        } else if changed || !matches!(into, Listing::Seen(_)) {
            *into = Listing::Seen(self.cache.walk().map(|object| (*object).clone()).collect());
        }
    }

    fn unseen(&self) -> Listing<T> {
        match self.cache.failure().as_deref() {
            None => Listing::Failed("it is still being read".to_owned()),
            Some(Error::Forbidden { .. }) => Listing::NotAllowed,
            Some(Error::NotFound { .. }) => Listing::NotServed,
            Some(error) => Listing::Failed(error.to_string()),
        }
    }

    /// What keeps us from following.
    fn trouble(&self) -> Option<Trouble> {
        let failure = self.cache.failure()?;
        let why = match &*failure {
            Error::NotFound { .. } => return None,
            Error::Forbidden { .. } => "not allowed".to_owned(),
            error => error.to_string(),
        };
        Some(Trouble { what: T::KIND.plural, why })
    }
}

/// A kind that cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    /// The kind's plural.
    pub(super) what: &'static str,
    pub(super) why: String,
}

/// Everything that is followed.
#[derive(Debug)]
pub(super) struct World {
    caches: Caches,
    marks: Marks,
    claims: Kept<Claim>,
    volumes: Kept<Volume>,
    classes: Kept<Class>,
    pods: Kept<Pod>,
    nodes: Kept<Node>,
    csi_nodes: Kept<CsiNode>,
    drivers: Kept<CsiDriver>,
    attachments: Kept<Attachment>,
    capacities: Kept<Capacity>,
    leases: Kept<Lease>,
    events: Kept<Event>,
    journals: Kept<ConfigMap>,
    namespaces: Kept<Namespace>,
    /// Followed once a claim asks for a copy of one, or from another namespace.
    snapshots: Option<Kept<Snapshot>>,
    grants: Option<Kept<Grant>>,
    picture: Picture,
}

impl World {
    /// Begins to follow. The marks say from now on what changes.
    pub(super) fn follow(context: &Context, marks: &Marks) -> Self {
        let caches = &context.caches;
        let volumes = caches.selected::<Volume>(Selection::default());
        let pods = caches.selected::<Pod>(Selection::default());
        let journals = Selection { labels: Some(label::INTENTS.text().to_owned()), ..Selection::default() };
        let attached = volumes.clone();
        Self {
            claims: Kept::all(caches, named(marks, marks::of_claim)),
            volumes: Kept::all(caches, named(marks, marks::of_volume)),
            pods: Kept::all(caches, named(marks, marks::of_pod)),
            attachments: Kept::all(caches, named(marks, move |change| marks::of_attachment(change, &attached))),
            events: Kept::all(caches, named(marks, move |change| marks::of_event(change, &volumes, &pods))),
            nodes: Kept::all(caches, reaching(marks, marks::of_node)),
            classes: Kept::all(caches, reaching(marks, |_| Extent::Unsettled)),
            csi_nodes: Kept::all(caches, reaching(marks, |_| Extent::Unsettled)),
            drivers: Kept::all(caches, reaching(marks, |_| Extent::Unsettled)),
            capacities: Kept::all(caches, reaching(marks, |_| Extent::Unsettled)),
            namespaces: Kept::all(caches, reaching(marks, |_| Extent::Unsettled)),
            journals: Kept::some(caches, journals, reaching(marks, |_| Extent::Unsettled)),
            // A lease changes every few seconds, and only its age matters, which changes anyway.
            leases: Kept::all(caches, |_| {}),
            snapshots: None,
            grants: None,
            caches: caches.clone(),
            marks: marks.clone(),
            picture: Picture::default(),
        }
    }

    /// The cluster as it is known now.
    pub(super) fn look(&mut self, clock: &dyn Clock) -> &Picture {
        self.picture.now = UnixSeconds(clock.now().as_second());
        self.claims.look(&mut self.picture.claims);
        self.follow_rare();
        let picture = &mut self.picture;
        self.volumes.look(&mut picture.volumes);
        self.classes.look(&mut picture.classes);
        self.pods.look(&mut picture.pods);
        self.nodes.look(&mut picture.nodes);
        self.csi_nodes.look(&mut picture.csi_nodes);
        self.drivers.look(&mut picture.drivers);
        self.attachments.look(&mut picture.attachments);
        self.capacities.look(&mut picture.capacities);
        self.leases.look(&mut picture.leases);
        self.events.look(&mut picture.events);
        picture.node_events = about_nodes(&picture.events);
        self.namespaces.look(&mut picture.namespaces);
        let mut journals = Listing::NotAsked;
        self.journals.changed.store(true, Ordering::Release);
        self.journals.look(&mut journals);
        picture.intents = look::intents(journals);
        if let Some(snapshots) = &self.snapshots {
            snapshots.look(&mut picture.snapshots);
        }
        if let Some(grants) = &self.grants {
            grants.look(&mut picture.grants);
        }
        picture
    }

    /// Snapshots and grants are custom resources that a cluster may lack, and are asked for only when a claim names one.
    fn follow_rare(&mut self) {
        let sources =
            || self.picture.claims.items().iter().filter_map(|claim| claim.source.as_ref().map(|of| (claim, of)));
        let wants_snapshots = sources().any(|(_, source)| &*source.kind == Kind::SNAPSHOT.kind);
        let wants_grants = sources()
            .any(|(claim, source)| source.namespace.as_deref().is_some_and(|namespace| namespace != claim.namespace()));
        let marks = &self.marks;
        if wants_snapshots && self.snapshots.is_none() {
            self.snapshots = Some(Kept::all(&self.caches, reaching(marks, |_| Extent::Unsettled)));
        }
        if wants_grants && self.grants.is_none() {
            self.grants = Some(Kept::all(&self.caches, reaching(marks, |_| Extent::Unsettled)));
        }
    }

    /// Whether what the picture is made of has been read once.
    pub(super) fn is_read(&self) -> bool {
        self.claims.cache.is_synced() && self.volumes.cache.is_synced() && self.pods.cache.is_synced()
    }

    /// What cannot be followed at the moment, so that the picture may be old.
    pub(super) fn troubles(&self) -> Vec<Trouble> {
        let all = [
            self.claims.trouble(),
            self.volumes.trouble(),
            self.pods.trouble(),
            self.attachments.trouble(),
            self.nodes.trouble(),
            self.classes.trouble(),
            self.csi_nodes.trouble(),
            self.drivers.trouble(),
            self.capacities.trouble(),
            self.leases.trouble(),
            self.events.trouble(),
            self.namespaces.trouble(),
            self.journals.trouble(),
        ];
        all.into_iter().flatten().collect()
    }
}

fn about_nodes(events: &Listing<Event>) -> Listing<Event> {
    match events {
        Listing::Seen(all) => {
            let about = all.iter().filter(|event| *event.about.kind == *Kind::NODE.kind);
            Listing::Seen(about.cloned().collect())
        }
        // That events cannot be seen is said of all of them.
        Listing::NotAsked | Listing::NotAllowed | Listing::NotServed | Listing::Failed(_) => Listing::NotAsked,
    }
}

/// A subscriber that marks the ways a change names.
fn named<T: Object>(
    marks: &Marks,
    of: impl Fn(&Change<T>) -> Vec<lifecycle::scene::WayId> + Send + Sync + 'static,
) -> impl Fn(&Change<T>) + Send + Sync + 'static {
    let marks = marks.clone();
    move |change| marks.add(of(change), Extent::Named)
}

/// A subscriber for a kind that many ways may depend on.
fn reaching<T: Object>(
    marks: &Marks,
    extent: impl Fn(&Change<T>) -> Extent + Send + Sync + 'static,
) -> impl Fn(&Change<T>) + Send + Sync + 'static {
    let marks = marks.clone();
    move |change| match extent(change) {
        Extent::Named => {}
        extent => marks.add([], extent),
    }
}
