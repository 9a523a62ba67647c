//! One day, from midnight to midnight, and what must be true at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt as _, reflector as reflect};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use sim::faults::{Fair, Faults, Seeded};
use sim::{Component, Seed, Setup, World, simulate};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::keeper;
use crate::user::User;

/// What is left of a day.
pub(crate) struct Record {
    pub(crate) journal: Vec<String>,
    pub(crate) store: Vec<String>,
    /// What had not settled at its end.
    pub(crate) complaints: Vec<String>,
    /// What the user did.
    pub(crate) deeds: usize,
}

impl Record {
    pub(crate) fn text(&self) -> String {
        [&self.journal[..], &["-- store".to_owned()], &self.store[..]].concat().join("\n")
    }
}

/// Lives through a day of this length. Its last part is calm, so that everything can settle.
pub(crate) fn live(seed: Seed, length: Duration) -> Record {
    let mut setup = Setup::default();
    // Short enough that a watch which is held for minutes comes too late.
    setup.store.history.min_events = 10;
    simulate(seed, setup, |world| through(world, length)).expect("a world can be made")
}

async fn through(world: World, length: Duration) -> Record {
    let started = Instant::now();
    // kube's backoff takes its jitter from this thread's generator.
    fastrand::seed(world.random("jitter").number());
    let rough = |name: &str| world.component(name, Seeded::new(&world, name, Faults::rough()));
    let slow = |name: &str| {
        let faults = Faults { hold: Duration::from_secs(60)..=Duration::from_secs(1_200), ..Faults::rough() };
        world.component(name, Seeded::new(&world, name, faults))
    };
    let mut others = JoinSet::new();
    let plain = || watcher::Config::default();
    others.spawn(keeper::run(rough("keeper")));
    others.spawn(follow::<PersistentVolume>(rough("volumes"), plain()));
    others.spawn(follow::<Pod>(slow("pods"), plain().streaming_lists()));
    others.spawn(follow::<Event>(slow("events"), plain().page_size(20)));
    let (claims, writer) = reflector::store::<PersistentVolumeClaim>();
    others.spawn(mirror(rough("mirror"), writer));

    let mut user = User::new(rough("user"), world.random("user"));
    user.live_until(started + length - length / 12).await;
    world.calm();
    // Events expire an hour after they were written.
    tokio::time::sleep_until(started + length + Duration::from_secs(3600)).await;
    let complaints = complaints(&world, &claims).await;
    drop(others);
    Record { complaints, journal: world.journal().lines(), store: world.record(), deeds: user.deeds }
}

/// Notes what a watcher sees.
async fn follow<K>(component: Component, config: watcher::Config)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = pin!(watcher(Api::<K>::all(component.client()), config).default_backoff());
    while let Some(event) = events.next().await {
        component.note(brief(&event));
    }
}

/// Keeps a reflector, and notes what it sees.
async fn mirror(component: Component, writer: reflector::store::Writer<PersistentVolumeClaim>) {
    let claims = Api::<PersistentVolumeClaim>::all(component.client());
    let seen = watcher(claims, watcher::Config::default().streaming_lists()).default_backoff();
    let mut events = pin!(reflect(writer, seen));
    while let Some(event) = events.next().await {
        component.note(brief(&event));
    }
}

fn brief<K: Resource<DynamicType = ()>>(event: &watcher::Result<watcher::Event<K>>) -> String {
    let object = |what: &str, object: &K| {
        format!("{what} {} at {}", object.name_any(), object.resource_version().unwrap_or_default())
    };
    match event {
        Ok(watcher::Event::Init) => "restarted".to_owned(),
        Ok(watcher::Event::InitApply(one)) => object("found", one),
        Ok(watcher::Event::InitDone) => "complete".to_owned(),
        Ok(watcher::Event::Apply(one)) => object("saw", one),
        Ok(watcher::Event::Delete(one)) => object("lost", one),
        Err(error) => format!("failed: {error}"),
    }
}

/// What is not as it would be if nothing had ever gone wrong, although nothing has for a while.
async fn complaints(world: &World, mirrored: &Store<PersistentVolumeClaim>) -> Vec<String> {
    let client = world.component("judge", Fair).client();
    let claims = Api::<PersistentVolumeClaim>::all(client.clone());
    let claims = claims.list(&ListParams::default()).await.expect("claims can be listed").items;
    let mut complaints = Vec::new();
    for claim in &claims {
        if claim.metadata.deletion_timestamp.is_some() {
            complaints.push(format!("{} never goes away", claim.name_any()));
        }
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase != Some("Bound") {
            complaints.push(format!("{} is {phase:?}", claim.name_any()));
        }
    }
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let maps = maps.list(&ListParams::default()).await.expect("maps can be listed").items;
    let kept: BTreeSet<_> = maps.iter().map(|map| map.name_any()).collect();
    let wanted: BTreeSet<_> = claims.iter().map(|claim| claim.name_any()).collect();
    complaints.extend(wanted.difference(&kept).map(|name| format!("{name} has no map")));
    complaints.extend(kept.difference(&wanted).map(|name| format!("the map of {name} is left")));

    let versions = |claim: &PersistentVolumeClaim| (claim.name_any(), claim.resource_version());
    let seen: BTreeMap<_, _> = mirrored.state().iter().map(|claim| versions(claim)).collect();
    let there: BTreeMap<_, _> = claims.iter().map(versions).collect();
    if seen != there {
        complaints.push(format!("the reflector has {seen:?}, the server has {there:?}"));
    }
    let events = Api::<Event>::all(client).list(&ListParams::default()).await.expect("events can be listed").items;
    complaints.extend(events.iter().map(|event| format!("{} is older than an hour", event.name_any())));
    complaints
}
