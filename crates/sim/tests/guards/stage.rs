//! A world with one process of ours, a user, and a fault at a chosen request of that process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use api::{Key, Kind};
use control::Context;
use futures_util::future::{BoxFuture, join};
use runtime::client::Selection;
use runtime::{Client, Patch, Stop};
use serde_json::{Value, json};
use sim::faults::{Action, Ask, EVERY_FATE, Fair, Fate, Fates, Flow, Once, Refusal, Verdict};
use sim::{Ended, Process, Seed, Setup, World, simulate};
use tokio::time::{sleep, timeout};

/// Makes the controllers of the process under test, and runs them.
pub(crate) type Start = fn(Context) -> BoxFuture<'static, ()>;

/// Plays a scenario once without faults, and then once for every request and every fate.
pub(crate) fn at_every_request(start: Start, scenario: impl AsyncFn(&User) + Send + Sync) {
    Once::at_every_request(&EVERY_FATE, |once| play(start, once, &scenario));
}

/// Plays a scenario with these fates in the process' first life, and none in the next ones.
pub(crate) fn play(start: Start, fates: impl Fates + 'static, scenario: impl AsyncFnOnce(&User) + Send) {
    let played = simulate(Seed(1), Setup::default(), async |world: World| {
        let desk = world.component("user", Fair);
        let user = User { client: Process::new(&world, &desk, 0).context.client };
        let process = lives(&world, fates, start);
        tokio::select! {
            biased;
            () = process => unreachable!("a process that crashed starts again"),
            () = scenario(&user) => {}
        }
    });
    played.expect("a world can be made");
}

async fn lives(world: &World, fates: impl Fates + 'static, start: Start) {
    let mut component = world.component("orlop", fates);
    for life in 1.. {
        let process = Process::new(world, &component, life);
        let work = start(process.context.clone());
        match component.run(process.run(&Stop::never(), work)).await {
            Ended::Crashed => component = world.component("orlop", Fair),
            Ended::Finished(()) => return,
        }
    }
}

/// Controllers side by side.
pub(crate) fn both(one: BoxFuture<'static, ()>, other: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        join(one, other).await;
    })
}

/// What becomes of the events of one kind; everything else is as usual.
#[derive(Clone)]
pub(crate) struct Curtain {
    path: &'static str,
    watches: Vec<u64>,
    /// While it is drawn, the process hears nothing of the kind.
    drawn: Arc<AtomicBool>,
    /// The first watch after that has to list again.
    torn: bool,
    /// How often the process asked for a list of pods.
    lists: Arc<AtomicU64>,
}

impl Curtain {
    pub(crate) fn of(path: &'static str) -> Self {
        Self { path, watches: Vec::new(), drawn: Arc::default(), torn: false, lists: Arc::default() }
    }

    pub(crate) fn lists(&self) -> Arc<AtomicU64> {
        self.lists.clone()
    }

    /// What draws it.
    pub(crate) fn string(&self) -> Arc<AtomicBool> {
        self.drawn.clone()
    }
}

impl Fates for Curtain {
    fn request(&mut self, ask: &Ask<'_>) -> Verdict {
        if ask.action == Action::Read && ask.path == "/api/v1/namespaces/default/pods" {
            self.lists.fetch_add(1, Ordering::Relaxed);
        }
        if ask.action != Action::Watch || ask.path != self.path {
            return Fate::Answered.into();
        }
        self.watches.push(ask.number);
        if self.drawn.load(Ordering::Relaxed) {
            self.torn = true;
            return Fate::Refused(Refusal::Unavailable { seconds: 1 }).into();
        }
        match std::mem::take(&mut self.torn) && ask.goes_on() {
            true => Fate::Refused(Refusal::Gone).into(),
            false => Fate::Answered.into(),
        }
    }

    fn event(&mut self, watch: u64) -> Flow {
        match self.watches.contains(&watch) && self.drawn.load(Ordering::Relaxed) {
            true => Flow::Broken,
            false => Flow::Passes,
        }
    }
}

/// Somebody with kubectl.
pub(crate) struct User {
    client: Client,
}

impl User {
    pub(crate) async fn create(&self, kind: Kind, mut body: Value) {
        body["apiVersion"] = kind.api_version().into();
        body["kind"] = kind.kind.into();
        let namespace = body["metadata"]["namespace"].as_str().map(str::to_owned);
        let made = self.client.create::<Value>(kind, namespace.as_deref(), &body).await;
        made.expect("the server takes it");
    }

    pub(crate) async fn patch(&self, kind: Kind, key: &Key, patch: Value) {
        self.client.patch::<Value>(kind, key, &Patch::Merge(patch)).await.expect("the server takes it");
    }

    pub(crate) async fn patch_status(&self, kind: Kind, key: &Key, patch: Value) {
        self.client.patch_status::<Value>(kind, key, &Patch::Merge(patch)).await.expect("the server takes it");
    }

    pub(crate) async fn get(&self, kind: Kind, key: &Key) -> Option<Value> {
        match self.client.get::<Value>(kind, key).await {
            Ok(object) => Some(object),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Asks for the end of whatever has the name.
    pub(crate) async fn delete<T: api::Object>(&self, key: &Key) {
        self.client.delete::<T>(key, &Default::default()).await.expect("the server takes it");
    }

    /// Ends a pod, as a node does. Somebody may have deleted it meanwhile.
    pub(crate) async fn end_pod(&self, key: &Key, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        let ended = self.client.patch_status::<Value>(Kind::POD, key, &patch).await;
        assert!(ended.is_ok() || ended.is_err_and(|error| error.is_not_found()), "the server takes it");
    }

    /// The messages of events with this reason.
    pub(crate) async fn events(&self, reason: &str) -> Vec<String> {
        let page = self.client.list::<Value>(Kind::EVENT, &Selection::default(), 0, None).await;
        let events = page.expect("the server lists").items;
        let of_reason = events.iter().filter(|event| event["reason"] == reason);
        of_reason.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub(crate) async fn until(&self, what: &str, done: impl AsyncFn() -> bool) {
        let wait = async {
            while !done().await {
                sleep(Duration::from_millis(250)).await;
            }
        };
        assert!(timeout(Duration::from_secs(600), wait).await.is_ok(), "never happened: {what}");
    }

    pub(crate) async fn until_gone(&self, kind: Kind, key: &Key) {
        self.until(&format!("{} {key} goes", kind.kind), async || self.get(kind, key).await.is_none()).await;
    }

    pub(crate) async fn until_there(&self, kind: Kind, key: &Key) {
        self.until(&format!("{} {key} is there", kind.kind), async || self.get(kind, key).await.is_some()).await;
    }

    /// Gives everybody time, and sees that the object is still there.
    pub(crate) async fn stays(&self, kind: Kind, key: &Key) {
        sleep(Duration::from_secs(120)).await;
        assert!(self.get(kind, key).await.is_some(), "{} {key} has to stay", kind.kind);
    }
}

pub(crate) fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}

pub(crate) fn claim(name: &str) -> Value {
    json!({"metadata": {"namespace": "default", "name": name}, "spec": claim_spec()})
}

pub(crate) fn claim_spec() -> Value {
    json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})
}

pub(crate) fn pod(name: &str, node: Option<&str>, volumes: Value) -> Value {
    let containers = json!([{"name": "main", "image": "example/main"}]);
    json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"nodeName": node, "containers": containers, "volumes": volumes, "terminationGracePeriodSeconds": 0},
    })
}
