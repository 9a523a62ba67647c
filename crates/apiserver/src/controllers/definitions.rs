//! Definitions of custom resources: new ones get their names accepted, deleted ones lose their objects and then go.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::auth::User;
use crate::catalog::{self, Resource};
use crate::crd;
use crate::kinds::{Endpoint, read};
use crate::request::{DeleteOptions, DryRun, Preconditions};
use crate::store::{List, Scope, Start, Watch};
use crate::verbs::{Core, Deletion, Failure, Outcome, Write, decode};

/// Finalizers of objects take their time; this is how often a dying definition is looked at.
const RETRY: Duration = Duration::from_secs(2);

pub(crate) async fn run(core: &Arc<Core>) {
    let scope = Scope::all(crd::DEFINITIONS);
    loop {
        match begin(core, &scope) {
            Some((mut changes, mut names)) => while follow(core, &mut changes, &mut names).await {},
            None => tokio::time::sleep(RETRY).await,
        }
    }
}

/// The names of all definitions, and a watch from there.
fn begin(core: &Core, scope: &Scope) -> Option<(Watch, BTreeSet<String>)> {
    let page = core.store.list(&List::latest(scope)).ok()?;
    let names = page.items.iter().map(|stored| stored.key.name().to_owned()).collect();
    let changes = core.store.watch(scope.clone(), Start::After(page.revision)).ok()?;
    Some((changes, names))
}

/// Looks at the named definitions and waits for the next change; false when the watch has fallen behind.
async fn follow(core: &Core, changes: &mut Watch, names: &mut BTreeSet<String>) -> bool {
    let mut waiting = BTreeSet::new();
    for name in std::mem::take(names) {
        match work(core, &name).await {
            Ok(true) => {}
            Ok(false) => drop(waiting.insert(name)),
            Err(failure) => {
                tracing::warn!(definition = name, error = failure.message(), "a definition waits");
                waiting.insert(name);
            }
        }
    }
    *names = waiting;
    let pause = async {
        match names.is_empty() {
            true => std::future::pending().await,
            false => tokio::time::sleep(RETRY).await,
        }
    };
    tokio::select! {
        biased;
        change = changes.next() => match change {
            Ok(event) => drop(names.insert(event.key.name().to_owned())),
            Err(crate::store::WatchEnd::Closed) => std::future::pending().await,
            Err(crate::store::WatchEnd::Lagged { .. }) => return false,
        },
        () = pause => {}
    }
    true
}

/// Does what can be done about a definition now, so that it is served from here on.
pub(crate) async fn settle_names(core: &Core, name: &str) -> Outcome<()> {
    work(core, name).await.map(drop)
}

/// True when nothing is left to do.
async fn work(core: &Core, name: &str) -> Outcome<bool> {
    let Some(resource) = catalog::built_in().all().find(|resource| resource.stored_as == crd::DEFINITIONS) else {
        return Ok(true);
    };
    let Some(live) = core.load(resource, None, name) else { return Ok(true) };
    let definition = live.object;
    if read::deleting(&definition) {
        return clean_up(core, resource, &definition).await;
    }
    if crd::is_served(&definition) || conflicts(core, &definition) {
        return Ok(true);
    }
    let now = core.now();
    rewrite(core, resource, name, &|definition: &Value| Ok(crd::accepted(definition, now))).await?;
    Ok(true)
}

async fn rewrite(
    core: &Core,
    resource: &Arc<Resource>,
    name: &str,
    change: &(dyn Fn(&Value) -> Outcome<Value> + Sync),
) -> Outcome<()> {
    let Some(rules) = resource.rules() else { return Ok(()) };
    let user = User::loopback();
    let write = Write::own(core, (resource, rules), Endpoint::Status, &user);
    match core.rewrite(&write, name, change).await {
        Ok(_) | Err(Failure { code: 404, .. }) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// Whether another served definition of the group has one of the names. The later one waits until it is gone.
fn conflicts(core: &Core, definition: &Value) -> bool {
    let names = |definition: &Value| -> BTreeSet<String> {
        let single =
            ["plural", "singular"].map(|field| read::text(definition, &format!("/spec/names/{field}")).to_owned());
        let short = read::texts(definition, "/spec/names/shortNames").into_iter().map(str::to_owned);
        single.into_iter().chain(short).filter(|name| !name.is_empty()).collect()
    };
    let kinds = |definition: &Value| {
        ["kind", "listKind"].map(|field| read::text(definition, &format!("/spec/names/{field}")).to_owned())
    };
    let (own_names, own_kinds) = (names(definition), kinds(definition));
    let scope = Scope::all(crd::DEFINITIONS);
    let Ok(page) = core.store.list(&List::latest(&scope)) else { return true };
    page.items.iter().map(|stored| decode(stored)).any(|other| {
        read::name(&other) != read::name(definition)
            && other["spec"]["group"] == definition["spec"]["group"]
            && crd::is_served(&other)
            && (!names(&other).is_disjoint(&own_names) || kinds(&other).iter().any(|kind| own_kinds.contains(kind)))
    })
}

/// Deletes the objects of a dying definition, then lets it go. True when nothing is left to do.
async fn clean_up(core: &Core, resource: &Arc<Resource>, definition: &Value) -> Outcome<bool> {
    if !read::texts(definition, "/metadata/finalizers").contains(&crd::CLEANUP) {
        return Ok(true);
    }
    let user = User::loopback();
    let options = DeleteOptions {
        grace_period_seconds: None,
        propagation: None,
        orphan_dependents: None,
        preconditions: Preconditions::default(),
        dry_run: DryRun::Off,
    };
    for custom in crd::served(definition).into_iter().take(1).map(Arc::new) {
        let Some(rules) = custom.rules() else { continue };
        let scope = Scope::all(&custom.stored_as);
        let page = core.store.list(&List::latest(&scope));
        for stored in page.map(|page| page.items).unwrap_or_default() {
            let namespace = stored.key.namespace();
            let deletion = Deletion { resource: &custom, rules, namespace, user: &user, options: &options };
            match core.delete(&deletion, stored.key.name()).await {
                Ok(_) | Err(Failure { code: 404, .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
        if core.store.count(&List::latest(&scope)).unwrap_or(1) > 0 {
            return Ok(false);
        }
    }
    let release = |definition: &Value| {
        let mut definition = definition.clone();
        let kept: Vec<&str> =
            read::texts(&definition, "/metadata/finalizers").into_iter().filter(|name| *name != crd::CLEANUP).collect();
        let kept = json!(kept);
        read::set(&mut definition, "/metadata/finalizers", kept);
        Ok(definition)
    };
    rewrite(core, resource, read::name(definition), &release).await?;
    Ok(true)
}
