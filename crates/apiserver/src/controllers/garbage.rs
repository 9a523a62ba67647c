//! Owner references: objects whose owners are gone are deleted, and owners that asked for it wait for, or let go of,
//! what they own (API-2.1).
//!
//! An owner of a kind that is not served is taken as alive: deleting what belongs to something unknown would be worse
//! than keeping it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::auth::User;
use crate::catalog::{Resource, Snapshot};
use crate::kinds::{Endpoint, read};
use crate::request::{DeleteOptions, DryRun, FieldValidation, Preconditions, Propagation};
use crate::store::{Change, Event, List, Scope, Start, Watch};
use crate::verbs::{Core, Deletion, Effect, Failure, Outcome, Warnings, Write, decode_outline};

/// Changes are gathered this long before they are acted on: owners and dependents often go together.
const GATHER: Duration = Duration::from_secs(1);
/// Work that failed is tried again after this.
const RETRY: Duration = Duration::from_secs(5);
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// Where an object lives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Position in the collector's list.
    resource: usize,
    namespace: Option<String>,
    name: String,
}

/// What garbage collection knows about an object.
#[derive(Debug, Clone)]
struct Node {
    place: Place,
    owners: Vec<Owner>,
    leaving: Option<Leaving>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    uid: String,
    /// Whether objects of its kind are known here.
    served: bool,
    /// A foreground deletion of the owner waits for this object.
    blocks: bool,
}

/// What a dying owner asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// After its dependents.
    Foreground,
    /// Without them.
    Orphan,
}

/// Every object by uid, and who depends on whom.
#[derive(Debug, Default)]
struct Graph {
    nodes: BTreeMap<String, Node>,
    dependents: BTreeMap<String, BTreeSet<String>>,
    /// What to look at: uids of dependents and of dying owners.
    dirty: BTreeSet<String>,
}

/// What has to be done about one object.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Leave,
    Delete(Propagation),
    /// Owners with these uids are gone and are to be forgotten.
    Forget(BTreeSet<String>),
    /// The finalizer that waited for dependents can go.
    Release(&'static str),
    /// Dependents are to forget the object first.
    LetGo,
}

impl Graph {
    fn put(&mut self, served: &Snapshot, resource: usize, object: &Value) {
        let uid = read::text(object, "/metadata/uid").to_owned();
        self.unlink(&uid);
        let owners: Vec<Owner> =
            read::list(object, "/metadata/ownerReferences").iter().map(|owner| owner_of(served, owner)).collect();
        for owner in &owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
        }
        let leaving = read::deleting(object).then(|| leaving_of(object)).flatten();
        if !owners.is_empty() || leaving.is_some() {
            self.dirty.insert(uid.clone());
        }
        let namespace = Some(read::namespace(object)).filter(|namespace| !namespace.is_empty()).map(str::to_owned);
        let place = Place { resource, namespace, name: read::name(object).to_owned() };
        self.nodes.insert(uid.clone(), Node { place, owners, leaving });
        // A dying owner changes what its dependents should do.
        if leaving.is_some() {
            self.touch_dependents(&uid);
        }
    }

    fn remove(&mut self, uid: &str) {
        self.unlink(uid);
        if let Some(node) = self.nodes.remove(uid) {
            self.dirty.extend(node.owners.into_iter().map(|owner| owner.uid));
        }
        self.dirty.remove(uid);
        self.touch_dependents(uid);
    }

    fn unlink(&mut self, uid: &str) {
        let owners = self.nodes.get(uid).map(|node| node.owners.clone()).unwrap_or_default();
        for owner in owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }

    fn touch_dependents(&mut self, uid: &str) {
        self.dirty.extend(self.dependents.get(uid).into_iter().flatten().cloned());
    }

    fn dependents_of(&self, uid: &str) -> impl Iterator<Item = (&String, &Node)> {
        self.dependents.get(uid).into_iter().flatten().filter_map(|uid| Some((uid, self.nodes.get(uid)?)))
    }

    fn verdict(&self, uid: &str) -> Verdict {
        let Some(node) = self.nodes.get(uid) else { return Verdict::Leave };
        match node.leaving {
            Some(Leaving::Orphan) if self.dependents.contains_key(uid) => return Verdict::LetGo,
            Some(Leaving::Orphan) => return Verdict::Release(ORPHAN),
            Some(Leaving::Foreground) => {
                let waits = |node: &Node| node.owners.iter().any(|owner| owner.uid == uid && owner.blocks);
                return match self.dependents_of(uid).any(|(_, node)| waits(node)) {
                    true => Verdict::Leave,
                    false => Verdict::Release(FOREGROUND),
                };
            }
            None => {}
        }
        self.verdict_by_owners(uid, node)
    }

    fn verdict_by_owners(&self, uid: &str, node: &Node) -> Verdict {
        if node.owners.is_empty() {
            return Verdict::Leave;
        }
        let gone = |owner: &&Owner| owner.served && !self.nodes.contains_key(&owner.uid);
        let waiting =
            |owner: &&Owner| self.nodes.get(&owner.uid).is_some_and(|owner| owner.leaving == Some(Leaving::Foreground));
        let gone: BTreeSet<String> = node.owners.iter().filter(gone).map(|owner| owner.uid.clone()).collect();
        let waiting = node.owners.iter().filter(waiting).count();
        if gone.len() + waiting >= node.owners.len() {
            // What owns something itself goes after it, when its own owner waits.
            let owns = waiting > 0 && self.dependents.contains_key(uid);
            return Verdict::Delete(if owns { Propagation::Foreground } else { Propagation::Background });
        }
        if gone.is_empty() { Verdict::Leave } else { Verdict::Forget(gone) }
    }
}

fn owner_of(served: &Snapshot, reference: &Value) -> Owner {
    let kind = served.of_kind(read::text(reference, "/apiVersion"), read::text(reference, "/kind"));
    Owner {
        uid: read::text(reference, "/uid").to_owned(),
        served: kind.is_some_and(|resource| !resource.is_question()),
        blocks: read::flag(reference, "/blockOwnerDeletion"),
    }
}

fn leaving_of(object: &Value) -> Option<Leaving> {
    let finalizers = read::texts(object, "/metadata/finalizers");
    match () {
        () if finalizers.contains(&FOREGROUND) => Some(Leaving::Foreground),
        () if finalizers.contains(&ORPHAN) => Some(Leaving::Orphan),
        () => None,
    }
}

/// The collector and what it watches.
struct Collector {
    core: Arc<Core>,
    served: Arc<Snapshot>,
    resources: Vec<Arc<Resource>>,
    graph: Graph,
    changes: Vec<Watch>,
}

pub(crate) async fn run(core: &Arc<Core>) {
    loop {
        match Collector::begin(core) {
            Some(mut collector) => collector.follow().await,
            None => tokio::time::sleep(RETRY).await,
        }
    }
}

impl Collector {
    fn begin(core: &Arc<Core>) -> Option<Self> {
        let served = core.served();
        let resources: Vec<Arc<Resource>> = served.stored().cloned().collect();
        let (mut graph, mut changes) = (Graph::default(), Vec::new());
        for (index, resource) in resources.iter().enumerate() {
            let scope = Scope::all(&resource.stored_as);
            let page = core.store.list(&List::latest(&scope)).ok()?;
            page.items.iter().for_each(|stored| graph.put(&served, index, &decode_outline(stored)));
            changes.push(core.store.watch(scope, Start::After(page.revision)).ok()?);
        }
        Some(Self { core: Arc::clone(core), served, resources, graph, changes })
    }

    /// Ends when a watch has fallen behind, or other kinds are served than before.
    async fn follow(&mut self) {
        while Arc::ptr_eq(&self.served, &self.core.served()) {
            if !self.graph.dirty.is_empty() {
                tokio::time::sleep(GATHER).await;
                if !self.drain() {
                    return;
                }
                self.collect().await;
                continue;
            }
            let waits = self.changes.iter_mut().map(|changes| Box::pin(changes.next()));
            let (change, index, _) = futures_util::future::select_all(waits).await;
            match change {
                Ok(event) => self.take(index, &event),
                Err(_) => return,
            }
            if !self.drain() {
                return;
            }
        }
    }

    /// Takes all changes there are; false when a watch has fallen behind.
    fn drain(&mut self) -> bool {
        for index in 0..self.changes.len() {
            loop {
                match self.changes[index].try_next() {
                    Ok(Some(event)) => self.take(index, &event),
                    Ok(None) => break,
                    Err(_) => return false,
                }
            }
        }
        true
    }

    fn take(&mut self, index: usize, event: &Event) {
        match &event.change {
            Change::Created { new } | Change::Updated { new, .. } => {
                self.graph.put(&self.served, index, &decode_outline(new))
            }
            Change::Deleted { old } => self.graph.remove(read::text(&decode_outline(old), "/metadata/uid")),
        }
    }

    async fn collect(&mut self) {
        let mut failed = false;
        for uid in std::mem::take(&mut self.graph.dirty) {
            let verdict = self.graph.verdict(&uid);
            if let Err(failure) = self.act(&uid, verdict).await {
                tracing::warn!(error = failure.message(), "garbage collection waits");
                self.graph.dirty.insert(uid);
                failed = true;
            }
        }
        if failed {
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn act(&self, uid: &str, verdict: Verdict) -> Outcome<()> {
        let Some(node) = self.graph.nodes.get(uid) else { return Ok(()) };
        match verdict {
            Verdict::Leave => Ok(()),
            Verdict::Delete(propagation) => self.delete(uid, &node.place, propagation).await,
            Verdict::Forget(owners) => self.forget(&node.place, uid, &owners).await,
            Verdict::Release(finalizer) => self.release(&node.place, uid, finalizer).await,
            Verdict::LetGo => {
                let owners = BTreeSet::from([uid.to_owned()]);
                for (dependent, node) in self.graph.dependents_of(uid) {
                    self.forget(&node.place, dependent, &owners).await?;
                }
                self.release(&node.place, uid, ORPHAN).await
            }
        }
    }

    async fn delete(&self, uid: &str, place: &Place, propagation: Propagation) -> Outcome<()> {
        let resource = &self.resources[place.resource];
        let Some(rules) = resource.rules() else { return Ok(()) };
        let options = DeleteOptions {
            grace_period_seconds: None,
            propagation: Some(propagation),
            orphan_dependents: None,
            preconditions: Preconditions { uid: Some(uid.to_owned()), resource_version: None },
            dry_run: DryRun::Off,
        };
        let user = User::loopback();
        let namespace = place.namespace.as_deref();
        let deletion = Deletion { resource, rules, namespace, user: &user, options: &options };
        unless_gone(self.core.delete(&deletion, &place.name).await.map(drop))
    }

    /// Removes owners that are gone from an object.
    async fn forget(&self, place: &Place, uid: &str, owners: &BTreeSet<String>) -> Outcome<()> {
        self.change(place, uid, &|object| {
            let mut kept = read::list(object, "/metadata/ownerReferences").to_vec();
            kept.retain(|owner| !owners.contains(read::text(owner, "/uid")));
            read::set(object, "/metadata/ownerReferences", kept);
        })
        .await
    }

    async fn release(&self, place: &Place, uid: &str, finalizer: &str) -> Outcome<()> {
        self.change(place, uid, &|object| {
            let kept: Vec<&str> =
                read::texts(object, "/metadata/finalizers").into_iter().filter(|name| *name != finalizer).collect();
            let kept = json!(kept);
            read::set(object, "/metadata/finalizers", kept);
        })
        .await
    }

    async fn change(&self, place: &Place, uid: &str, change: &(dyn Fn(&mut Value) + Sync)) -> Outcome<()> {
        let resource = &self.resources[place.resource];
        let Some(rules) = resource.rules() else { return Ok(()) };
        let user = User::loopback();
        let write = Write {
            resource,
            rules,
            endpoint: Endpoint::Main,
            namespace: place.namespace.as_deref(),
            user: &user,
            effect: Effect::Stored,
            manager: "generic-garbage-collector",
            validation: FieldValidation::Ignore,
            now: self.core.now(),
            warnings: Warnings::default(),
        };
        let changed = |live: &Value| {
            let mut object = live.clone();
            // Another object may have the name by now.
            if read::text(live, "/metadata/uid") == uid {
                change(&mut object);
            }
            Ok(object)
        };
        unless_gone(self.core.rewrite(&write, &place.name, &changed).await.map(drop))
    }
}

/// An object that is gone, or is another one by now, needs nothing any more.
fn unless_gone(outcome: Outcome<()>) -> Outcome<()> {
    match outcome {
        Err(Failure { code: 404 | 409, .. }) => Ok(()),
        other => other,
    }
}
