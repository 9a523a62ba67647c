//! A world with one node's agent, a user, and a fault at a chosen request of the agent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{Key, Kind};
use futures_util::future::BoxFuture;
use node::drivers::Drivers;
use node::registry::{self, Options, Registry};
use runtime::{Client, Context, Patch, Stop};
use serde_json::{Value, json};
use sim::faults::{Action, Ask, EVERY_FATE, Fair, Fates, Once, Verdict};
use sim::{Ended, Process, Seed, Setup, World, simulate};
use tokio::time::{sleep, timeout};

use crate::plugins::{Log, Shelf};

pub(crate) const NODE: &str = "node-1";
pub(crate) const GRACE: Duration = Duration::from_secs(60);

/// Notes all writes, whatever becomes of them.
#[derive(Clone)]
pub(crate) struct Noted {
    once: Once,
    log: Log,
}

impl Noted {
    pub(crate) fn never(log: &Log) -> Self {
        Self { once: Once::never(), log: log.clone() }
    }
}

impl Fates for Noted {
    fn request(&mut self, ask: &Ask<'_>) -> Verdict {
        if !matches!(ask.action, Action::Read | Action::Watch) && !ask.path.contains("/events") {
            let mut log = self.log.lock().expect("nobody panicked");
            log.push(format!("{} {}", ask.method, ask.path));
        }
        self.once.request(ask)
    }
}

/// Makes the parts of the process under test, and runs them.
pub(crate) type Start = Arc<dyn Fn(Context, &Stage) -> BoxFuture<'static, ()> + Send + Sync>;

/// What a scenario works with.
pub(crate) struct Stage {
    pub(crate) user: User,
    pub(crate) shelf: Shelf,
    pub(crate) log: Log,
    /// The agent's present life.
    now: Mutex<Option<(Drivers, Arc<Registry>)>>,
}

impl Stage {
    pub(crate) fn drivers(&self) -> Drivers {
        self.now.lock().expect("nobody panicked").as_ref().expect("it lives").0.clone()
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.now.lock().expect("nobody panicked").as_ref().expect("it lives").1.clone()
    }

    pub(crate) fn alive(&self, drivers: Drivers, registry: Arc<Registry>) {
        *self.now.lock().expect("nobody panicked") = Some((drivers, registry));
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().expect("nobody panicked").clone()
    }

    /// How many writes to paths with this end there were.
    pub(crate) fn writes(&self, path: &str) -> usize {
        self.log().iter().filter(|line| line.ends_with(path)).count()
    }
}

/// The registry alone.
pub(crate) fn registry() -> Start {
    Arc::new(|context, stage| {
        registry::narrow(&context.caches, NODE);
        let drivers = Drivers::default();
        let options = Options { grace: GRACE, ..Options::new(NODE, std::path::Path::new("/nowhere")) };
        let registry = Arc::new(Registry::with(&context, drivers.clone(), Arc::new(stage.shelf.clone()), options));
        stage.alive(drivers, registry.clone());
        Box::pin(async move { registry.run(&Stop::never()).await })
    })
}

/// Plays a scenario once without faults, and then once for every request and every fate.
pub(crate) fn at_every_request(start: &Start, scenario: impl AsyncFn(&Stage) + Send + Sync) {
    Once::at_every_request(&EVERY_FATE, |once| {
        let log = Log::default();
        play_with(start, Noted { once, log: log.clone() }, &log, &scenario);
    });
}

/// Plays a scenario without faults.
pub(crate) fn play(start: &Start, scenario: impl AsyncFnOnce(&Stage) + Send) {
    let log = Log::default();
    play_with(start, Noted::never(&log), &log, scenario);
}

/// Plays a scenario with these fates in the process' first life, and none in the next ones.
pub(crate) fn play_with(
    start: &Start,
    fates: impl Fates + 'static,
    log: &Log,
    scenario: impl AsyncFnOnce(&Stage) + Send,
) {
    let played = simulate(Seed(1), Setup::default(), async |world: World| {
        let desk = world.component("user", Fair);
        let user = User { client: Process::new(&world, &desk, 0).context.client };
        let stage = Stage { user, shelf: Shelf::new(log), log: log.clone(), now: Mutex::new(None) };
        tokio::select! {
            biased;
            () = lives(&world, fates, start, &stage) => unreachable!("a process that crashed starts again"),
            () = scenario(&stage) => {}
        }
    });
    played.expect("a world can be made");
}

async fn lives(world: &World, fates: impl Fates + 'static, start: &Start, stage: &Stage) {
    let mut component = world.component("agent", fates);
    for life in 1.. {
        let process = Process::new(world, &component, life);
        let work = start(process.context.clone(), stage);
        match component.run(process.run(&Stop::never(), work)).await {
            Ended::Crashed => component = world.component("agent", Fair),
            Ended::Finished(()) => return std::future::pending().await,
        }
    }
}

/// Somebody with kubectl.
pub(crate) struct User {
    client: Client,
}

impl User {
    pub(crate) async fn create(&self, kind: Kind, mut body: Value) -> Value {
        body["apiVersion"] = kind.api_version().into();
        body["kind"] = kind.kind.into();
        let namespace = body["metadata"]["namespace"].as_str().map(str::to_owned);
        self.client.create::<Value>(kind, namespace.as_deref(), &body).await.expect("the server takes it")
    }

    pub(crate) async fn node(&self, labels: Value) -> Value {
        self.create(Kind::NODE, json!({"metadata": {"name": NODE, "labels": labels}})).await
    }

    pub(crate) async fn patch(&self, kind: Kind, key: &Key, patch: Value) {
        self.client.patch::<Value>(kind, key, &Patch::Merge(patch)).await.expect("the server takes it");
    }

    pub(crate) async fn get(&self, kind: Kind, key: &Key) -> Option<Value> {
        match self.client.get::<Value>(kind, key).await {
            Ok(object) => Some(object),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn list(&self, kind: Kind) -> Vec<Value> {
        let listed = self.client.list::<Value>(kind, &Default::default(), 0, None).await;
        listed.expect("the server answers").items
    }

    /// Our Node, or null.
    pub(crate) async fn our(&self, kind: Kind) -> Value {
        self.get(kind, &Key::cluster(NODE)).await.unwrap_or_default()
    }

    pub(crate) async fn delete<T: api::Object>(&self, key: &Key) {
        self.client.delete::<T>(key, &Default::default()).await.expect("the server takes it");
    }

    /// The names of the drivers that CSINode lists.
    pub(crate) async fn listed(&self) -> Vec<String> {
        let csi_node = self.our(Kind::CSI_NODE).await;
        let drivers = csi_node["spec"]["drivers"].as_array().cloned().unwrap_or_default();
        drivers.iter().map(|driver| driver["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub(crate) async fn until(&self, what: &str, done: impl AsyncFn() -> bool) {
        let wait = async {
            while !done().await {
                sleep(Duration::from_millis(250)).await;
            }
        };
        assert!(timeout(Duration::from_secs(900), wait).await.is_ok(), "never happened: {what}");
    }
}
