//! Quotas: fills in what a namespace may use and what it does use, and keeps it true.
//!
//! Admission charges what is created and changed, in the same commit, so that nothing has to be recounted for it. What is
//! left is a quota that is new or changed, and objects that go away. A count is written only if the quota has not changed
//! since before its objects were counted. Every charge is a change of the quota, so no count can miss one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::admission::usage::{self, Measure, Usage};
use crate::auth::User;
use crate::catalog::{self, Resource, Snapshot};
use crate::crd;
use crate::kinds::{Endpoint, read};
use crate::schema::quantity::{Format, Quantity};
use crate::store::{Change, Event, List, Scope, Start, Watch};
use crate::verbs::{Core, Failure, Outcome, Write, decode};

const QUOTAS: &str = "resourcequotas";
/// Objects that go together are counted together.
const GATHER: Duration = Duration::from_millis(250);
/// Work that failed is tried again after this.
const RETRY: Duration = Duration::from_secs(5);
/// Everything is counted again this often, in case somebody has written into a status.
const RECOUNT: Duration = Duration::from_secs(300);

/// The counter and what it watches.
struct Counter<'a> {
    core: &'a Arc<Core>,
    served: Arc<Snapshot>,
    changes: Vec<Watch>,
    /// Namespaces whose quotas are to be counted.
    dirty: BTreeSet<String>,
    next_recount: Instant,
}

pub(crate) async fn run(core: &Arc<Core>) {
    loop {
        match Counter::begin(core) {
            Some(mut counter) => counter.follow().await,
            None => tokio::time::sleep(RETRY).await,
        }
    }
}

impl<'a> Counter<'a> {
    fn begin(core: &'a Arc<Core>) -> Option<Self> {
        let served = core.served();
        // Definitions are watched only to notice that other kinds are served.
        let watched = |resource: &&Arc<Resource>| is_counted(resource) || resource.stored_as == crd::DEFINITIONS;
        let start = Start::After(core.store.revision());
        let watch = |resource: &Arc<Resource>| core.store.watch(Scope::all(&resource.stored_as), start).ok();
        let changes: Option<Vec<Watch>> = served.stored().filter(watched).map(watch).collect();
        let dirty = namespaces_with_quotas(core)?;
        Some(Self { core, changes: changes?, dirty, next_recount: Instant::now() + RECOUNT, served })
    }

    /// Ends when a watch has fallen behind, or other kinds are served than before.
    async fn follow(&mut self) {
        while Arc::ptr_eq(&self.served, &self.core.served()) {
            if !self.dirty.is_empty() {
                tokio::time::sleep(GATHER).await;
                if !self.drain() {
                    return;
                }
                self.count().await;
                continue;
            }
            let next_recount = self.next_recount;
            let waits = self.changes.iter_mut().map(|changes| Box::pin(changes.next()));
            let change = tokio::select! {
                (change, ..) = futures_util::future::select_all(waits) => Some(change),
                () = tokio::time::sleep_until(next_recount) => None,
            };
            match change {
                Some(Ok(event)) => self.take(&event),
                Some(Err(_)) => return,
                None => {
                    self.next_recount = Instant::now() + RECOUNT;
                    self.dirty.extend(namespaces_with_quotas(self.core).unwrap_or_default());
                }
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
                    Ok(Some(event)) => self.take(&event),
                    Ok(None) => break,
                    Err(_) => return false,
                }
            }
        }
        true
    }

    fn take(&mut self, event: &Event) {
        let Some(namespace) = event.key.namespace() else { return };
        if !self.dirty.contains(namespace) && frees_or_asks(event) {
            self.dirty.insert(namespace.to_owned());
        }
    }

    async fn count(&mut self) {
        for namespace in std::mem::take(&mut self.dirty) {
            if let Err(failure) = self.count_namespace(&namespace).await {
                tracing::warn!(namespace, error = failure.message(), "the quotas of a namespace wait");
                self.dirty.insert(namespace);
            }
        }
        if !self.dirty.is_empty() {
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn count_namespace(&self, namespace: &str) -> Outcome<()> {
        let scope = Scope::namespace(QUOTAS, namespace);
        let Ok(page) = self.core.store.list(&List::latest(&scope)) else { return Ok(()) };
        let Some((resource, rules)) = quotas() else { return Ok(()) };
        let user = User::loopback();
        for stored in page.items {
            let mut write = Write::own(self.core, (resource, rules), Endpoint::Status, &user);
            write.namespace = Some(namespace);
            write.manager = "kube-controller-manager";
            let change = |quota: &Value| Ok(self.counted(quota, namespace));
            match self.core.rewrite(&write, stored.key.name(), &change).await {
                Ok(_) | Err(Failure { code: 404, .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// A quota with the status it should have at this moment.
    fn counted(&self, quota: &Value, namespace: &str) -> Value {
        let hard = read::copy(quota, "/spec/hard");
        let mut used = Usage::new();
        for resource in self.served.stored().filter(|resource| is_counted(resource)) {
            let keys = || read::entries(quota, "/spec/hard").into_iter().map(|(key, _)| key);
            let concerned: Vec<&str> = keys().filter(|key| usage::concerns(resource.named(), key)).collect();
            if concerned.is_empty() {
                continue;
            }
            let usage = self.usage(resource, quota, namespace);
            for key in concerned {
                used.insert(key.to_owned(), usage.get(key).cloned().unwrap_or_else(Quantity::zero));
            }
        }
        let used: Map<String, Value> = used.into_iter().map(|(key, amount)| (key, amount.to_string().into())).collect();
        let mut counted = quota.clone();
        read::set(&mut counted, "/status", json!({"hard": hard, "used": used}));
        counted
    }

    /// What all objects of a resource use of a quota.
    fn usage(&self, resource: &Resource, quota: &Value, namespace: &str) -> Usage {
        let scope = Scope::namespace(&resource.stored_as, namespace);
        let list = List::latest(&scope);
        if usage::measure(resource.named(), quota) == Measure::Number {
            let count = i64::try_from(self.core.store.count(&list).unwrap_or(0)).unwrap_or(i64::MAX);
            let number = Quantity::from_integer(count.into(), Format::DecimalSi);
            return usage::number_keys(resource.named()).map(|key| (key, number.clone())).collect();
        }
        let mut sum = Usage::new();
        for stored in self.core.store.list(&list).map(|page| page.items).unwrap_or_default() {
            for (key, amount) in usage::of(resource.named(), &decode(&stored), quota) {
                let total = sum.get(&key).map_or(Some(amount.clone()), |sum| sum.checked_add(&amount));
                // More than can be counted is as much as can be counted: it exceeds every limit.
                sum.insert(key, total.unwrap_or(amount));
            }
        }
        sum
    }
}

fn is_counted(resource: &Resource) -> bool {
    resource.namespaced && !resource.expires() && usage::is_counted(resource.named())
}

fn quotas() -> Option<(&'static Arc<Resource>, &'static dyn crate::kinds::Rules)> {
    let resource = catalog::built_in().resource("", "v1", QUOTAS)?;
    Some((resource, resource.rules()?))
}

fn namespaces_with_quotas(core: &Core) -> Option<BTreeSet<String>> {
    let page = core.store.list(&List::latest(&Scope::all(QUOTAS))).ok()?;
    Some(page.items.iter().filter_map(|stored| stored.key.namespace()).map(str::to_owned).collect())
}

/// Whether a change gives something back, or is a quota that nobody has counted yet. What is taken was charged already.
fn frees_or_asks(event: &Event) -> bool {
    match &event.change {
        Change::Deleted { .. } => true,
        Change::Created { new } => event.key.resource() == QUOTAS && is_uncounted(&decode(new)),
        Change::Updated { old, new } => match event.key.resource() {
            QUOTAS => is_uncounted(&decode(new)),
            "pods" => decode(old)["status"]["phase"] != decode(new)["status"]["phase"],
            _ => false,
        },
    }
}

/// Whether the status of a quota is not about its spec.
fn is_uncounted(quota: &Value) -> bool {
    let keys = |pointer| read::entries(quota, pointer).into_iter().map(|(key, _)| key.to_owned()).collect::<Vec<_>>();
    quota["spec"]["hard"] != quota["status"]["hard"]
        || (keys("/status/used").is_empty() && !keys("/spec/hard").is_empty())
}
