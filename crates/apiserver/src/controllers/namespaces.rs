//! Namespaces: a new one gets its service account, a deleted one loses its content and then itself.
//!
//! A deleted namespace is left alone for a few seconds, so that writers that have not noticed yet are refused instead of
//! racing with the removal (API-6.1).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::auth::User;
use crate::catalog::{self, Resource};
use crate::kinds::{Endpoint, Rules, read};
use crate::request::{DeleteOptions, DryRun, FieldValidation, Preconditions, Propagation};
use crate::store::{Change, List, Scope, Start, Watch, WatchEnd};
use crate::verbs::{Core, Deletion, Effect, Outcome, Warnings, Write, decode};

/// How long a deleted namespace is left alone.
const GRACE: Duration = Duration::from_secs(5);
/// Finalizers of the content take their time; this is how often it is looked at.
const RETRY: Duration = Duration::from_secs(2);
const FINALIZER: &str = "kubernetes";

/// Names of namespaces with work to do, and when.
type Queue = BTreeMap<String, Instant>;

pub(crate) async fn run(core: &Arc<Core>) {
    loop {
        let mut queue = Queue::new();
        match begin(core, &mut queue) {
            Some(changes) => follow(core, changes, &mut queue).await,
            None => return tracing::error!("namespaces are not served"),
        }
    }
}

/// Looks at every namespace, and watches from there.
fn begin(core: &Core, queue: &mut Queue) -> Option<Watch> {
    let scope = Scope::all(&served("namespaces")?.0.stored_as);
    let page = core.store.list(&List::latest(&scope)).ok()?;
    page.items.iter().for_each(|stored| note(&decode(stored), queue));
    core.store.watch(scope, Start::After(page.revision)).ok()
}

/// Ends when the watch has fallen behind.
async fn follow(core: &Core, mut changes: Watch, queue: &mut Queue) {
    loop {
        let next = queue.iter().min_by_key(|(_, at)| **at).map(|(name, at)| (name.clone(), *at));
        let due = async {
            match &next {
                Some((_, at)) => tokio::time::sleep_until(*at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            change = changes.next() => match change {
                Ok(event) => match &event.change {
                    Change::Created { new } | Change::Updated { new, .. } => note(&decode(new), queue),
                    Change::Deleted { old } => drop(queue.remove(old.key.name())),
                },
                Err(WatchEnd::Lagged { .. }) => return,
                Err(WatchEnd::Closed) => std::future::pending().await,
            },
            () = due => {
                if let Some((name, _)) = next {
                    queue.remove(&name);
                    if let Some(wait) = work(core, &name).await {
                        queue.insert(name, Instant::now() + wait);
                    }
                }
            }
        }
    }
}

fn note(namespace: &Value, queue: &mut Queue) {
    let wait = if read::deleting(namespace) { GRACE } else { Duration::ZERO };
    queue.entry(read::name(namespace).to_owned()).or_insert_with(|| Instant::now() + wait);
}

/// Does what a namespace needs; the answer is when to look again.
async fn work(core: &Core, name: &str) -> Option<Duration> {
    let (resource, _) = served("namespaces")?;
    let namespace = core.load(resource, None, name)?.object;
    let done = match read::deleting(&namespace) {
        false => ensure_account(core, name).await.map(|()| true),
        true => remove(core, name, &namespace).await,
    };
    match done {
        Ok(true) => None,
        Ok(false) => Some(RETRY),
        Err(failure) => {
            tracing::warn!(namespace = name, error = failure.message(), "a namespace waits");
            Some(RETRY)
        }
    }
}

fn served(plural: &str) -> Option<(&'static Arc<Resource>, &'static dyn Rules)> {
    let resource = catalog::built_in().resource("", "v1", plural)?;
    Some((resource, resource.rules()?))
}

fn write_of<'a>(core: &Core, plural: &str, namespace: Option<&'a str>, user: &'a User) -> Option<Write<'a>> {
    let (resource, rules) = served(plural)?;
    Some(Write {
        resource,
        rules,
        endpoint: Endpoint::Main,
        namespace,
        user,
        effect: Effect::Stored,
        manager: "namespace-controller",
        validation: FieldValidation::Ignore,
        now: core.now(),
        warnings: Warnings::default(),
    })
}

/// Pods run as the account `default` unless they say otherwise, so every namespace has one.
async fn ensure_account(core: &Core, namespace: &str) -> Outcome<()> {
    let user = User::loopback();
    let Some(write) = write_of(core, "serviceaccounts", Some(namespace), &user) else { return Ok(()) };
    if core.load(write.resource, Some(namespace), "default").is_some() {
        return Ok(());
    }
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    match core.create(&write, account).await {
        Ok(_) => Ok(()),
        // It was made, or the namespace was deleted, a moment ago.
        Err(failure) if [403, 404, 409].contains(&failure.code) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// Deletes the content, then the namespace. True when nothing is left to do.
async fn remove(core: &Core, name: &str, namespace: &Value) -> Outcome<bool> {
    if !read::texts(namespace, "/spec/finalizers").contains(&FINALIZER) {
        return Ok(true);
    }
    let options = DeleteOptions {
        grace_period_seconds: None,
        propagation: Some(Propagation::Background),
        orphan_dependents: None,
        preconditions: Preconditions::default(),
        dry_run: DryRun::Off,
    };
    let user = User::loopback();
    let mut left = 0_usize;
    let all = core.served();
    for resource in all.stored().filter(|resource| resource.namespaced) {
        let Some(rules) = resource.rules() else { continue };
        let scope = Scope::namespace(&resource.stored_as, name);
        let Ok(page) = core.store.list(&List::latest(&scope)) else { continue };
        for stored in &page.items {
            let deletion = Deletion { resource, rules, namespace: Some(name), user: &user, options: &options };
            match core.delete(&deletion, stored.key.name()).await {
                Ok(_) | Err(crate::verbs::Failure { code: 404, .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
        left += core.store.count(&List::latest(&scope)).unwrap_or(1);
    }
    if left > 0 {
        return Ok(false);
    }
    let mut finalized = namespace.clone();
    let kept: Vec<&str> =
        read::texts(namespace, "/spec/finalizers").into_iter().filter(|name| *name != FINALIZER).collect();
    read::set(&mut finalized, "/spec/finalizers", json!(kept));
    read::remove(&mut finalized, "/metadata/resourceVersion");
    if let Some(write) = write_of(core, "namespaces", None, &user) {
        core.finalize(&write, name, finalized).await?;
    }
    Ok(true)
}
