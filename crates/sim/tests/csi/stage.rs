//! A world with a driver, one process with binder, protection and sidecar, and a user.

use std::cell::Cell;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::keys::annotation;
use api::object::{Key, Kind};
use control::bind::{self, Binder};
use control::protect::{self, Protector};
use control::provision;
use control::provision::csi::{GuardOptions, Options, Sidecar, SidecarOptions, Sweep};
use runtime::client::{self, Client, Patch, Preconditions, Selection};
use runtime::queue::Backoff;
use runtime::{Entropy, Metrics, Stop};
use serde_json::{Value, json};
use sim::faults::{Action, Ask, Fair, Fate, Refusal, Verdict};
use sim::{Process, Seed, Setup, World, simulate};

use crate::driver::{Driver, NAME};

/// Long enough for a good many retries, and no time at all on the wall.
pub(crate) const SETTLED: Duration = Duration::from_secs(300);

/// Something bad that happens to one write of the process' first life.
#[derive(Debug, Clone)]
pub(crate) struct Mishap {
    /// Which of its writes, events and leases apart, counted from 1.
    pub(crate) write: usize,
    pub(crate) fate: Fate,
}

pub(crate) fn mishaps(writes: usize) -> Vec<Mishap> {
    let fates = [Fate::CrashBefore, Fate::CrashAfter, Fate::AnswerLost, Fate::RequestLost];
    let each = |write| fates.clone().into_iter().map(move |fate| Mishap { write, fate });
    (1..=writes).flat_map(each).collect()
}

/// What there is to know of the process, and to do to it.
#[derive(Default)]
pub(crate) struct Behind {
    metrics: Mutex<Option<Metrics>>,
    /// Nobody can read a secret.
    pub(crate) no_secrets: AtomicBool,
}

/// What a test can touch.
pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) driver: Driver,
    writes: Arc<Mutex<Vec<String>>>,
    pub(crate) behind: Arc<Behind>,
}

pub(crate) fn options() -> SidecarOptions {
    let backoff = Backoff::default();
    SidecarOptions {
        provisioner: Options::default(),
        engine: provision::Options::new("disk.example.com_host_1", "default"),
        guards: GuardOptions { sweep: Sweep::Every(Duration::from_secs(300)), workers: 1, backoff },
        capacity: None,
    }
}

/// Plays `scenario` beside a process that meets `mishap` and is started again whenever it dies.
pub(crate) fn play<T, S, F>(options: &SidecarOptions, mishap: Option<Mishap>, scenario: S) -> T
where
    T: Send,
    S: FnOnce(Stage) -> F + Send,
    F: Future<Output = T>,
{
    let run = async |world: World| {
        let driver = Driver::new();
        let writes = Arc::new(Mutex::new(Vec::new()));
        let component = world.component("user", Fair);
        let (metrics, entropy) = (Metrics::new(&runtime::time::SystemClock), Entropy::seeded(7));
        let client = Client::new(component.client(), client::Options::default(), &metrics, &entropy);
        let behind = Arc::<Behind>::default();
        let stage = Stage { client, driver: driver.clone(), writes: writes.clone(), behind: behind.clone() };
        let life = Cell::new(0);
        let lives = async {
            loop {
                let mishap = mishap.as_ref().filter(|_| life.get() == 0);
                one_life(&world, life.get(), mishap, &writes, (&driver, options, &behind)).await;
                life.set(life.get() + 1);
            }
        };
        tokio::select! {
            biased;
            () = lives => unreachable!("the process is always started again"),
            output = scenario(stage) => output,
        }
    };
    simulate(Seed(1), Setup::default(), run).expect("a world can be made")
}

async fn one_life(
    world: &World,
    life: u64,
    mishap: Option<&Mishap>,
    writes: &Arc<Mutex<Vec<String>>>,
    (driver, options, behind): (&Driver, &SidecarOptions, &Arc<Behind>),
) {
    let (mishap, writes) = (mishap.cloned(), writes.clone());
    let mut seen = 0;
    let hidden = behind.clone();
    let script = move |ask: &Ask<'_>| -> Verdict {
        if ask.path.contains("/secrets/") && hidden.no_secrets.load(Ordering::Relaxed) {
            return Fate::Refused(Refusal::Unavailable { seconds: 1 }).into();
        }
        let write = matches!(ask.action, Action::Create | Action::Update | Action::Delete);
        if !write || ask.path.contains("/events") {
            return Fate::Answered.into();
        }
        seen += 1;
        writes.lock().expect("nobody panicked").push(format!("{} {}", ask.method, ask.path));
        let hit = mishap.as_ref().filter(|mishap| mishap.write == seen);
        hit.map_or(Fate::Answered, |mishap| mishap.fate.clone()).into()
    };
    let component = world.component("orlop", script);
    let process = Process::new(world, &component, life);
    let context = process.context.clone();
    *behind.metrics.lock().expect("nobody panicked") = Some(context.metrics.clone());
    let stop = Stop::never();
    let socket = runtime::csi::Driver::new(driver.clone(), runtime::csi::Options::default(), &context.metrics);
    let work = async {
        let facts = socket.ready().await;
        let binder = Binder::new(&context, bind::Options::default());
        let protector = Protector::new(&context, protect::Options::default());
        let sidecar = Sidecar::new(&context, &socket, &facts, options.clone());
        tokio::join!(Box::pin(binder.run(&stop)), Box::pin(protector.run(&stop)), Box::pin(sidecar.run(&stop)));
    };
    let both = async { tokio::join!(work, socket.run(&stop)) };
    component.run(process.run(&stop, both)).await;
}

pub(crate) fn class(more: Value) -> Value {
    let mut class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
        "provisioner": NAME, "reclaimPolicy": "Delete"});
    for (key, value) in more.as_object().expect("a map of fields") {
        class[key] = value.clone();
    }
    class
}

pub(crate) fn claim(name: &str, more: Value) -> Value {
    let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "default", "name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}}}});
    for (key, value) in more.as_object().expect("a map of fields") {
        claim["spec"][key] = value.clone();
    }
    claim
}

fn kind_of(body: &Value) -> Kind {
    let known = [
        Kind::CLAIM,
        Kind::VOLUME,
        Kind::STORAGE_CLASS,
        Kind::SECRET,
        Kind::NODE,
        Kind::CSI_NODE,
        Kind::ATTACHMENT,
        Kind::SNAPSHOT,
        Kind::SNAPSHOT_CONTENT,
        Kind::CAPACITY,
    ];
    let name = body["kind"].as_str().expect("it has a kind");
    known.into_iter().find(|kind| kind.kind == name).unwrap_or_else(|| panic!("the test makes no {name}"))
}

impl Stage {
    /// What a scraper reads of the process.
    pub(crate) fn metrics(&self) -> String {
        self.behind.metrics.lock().expect("nobody panicked").as_ref().expect("it runs").encode()
    }

    pub(crate) async fn make(&self, body: &Value) -> Value {
        let kind = kind_of(body);
        let namespace = (kind.scope == api::Scope::Namespaced).then_some("default");
        self.client.create(kind, namespace, body).await.unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    pub(crate) async fn get(&self, kind: Kind, name: &str) -> Option<Value> {
        let key = match kind.scope {
            api::Scope::Namespaced => Key::namespaced("default", name),
            api::Scope::Cluster => Key::cluster(name),
        };
        match self.client.get(kind, &key).await {
            Ok(object) => Some(object),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn change(&self, kind: Kind, name: &str, patch: Value) {
        let key = match kind.scope {
            api::Scope::Namespaced => Key::namespaced("default", name),
            api::Scope::Cluster => Key::cluster(name),
        };
        let patched: Result<Value, _> = match patch.get("status") {
            Some(_) => self.client.patch_status(kind, &key, &Patch::Merge(patch)).await,
            None => self.client.patch(kind, &key, &Patch::Merge(patch)).await,
        };
        patched.unwrap_or_else(|error| panic!("{error}"));
    }

    pub(crate) async fn list(&self, kind: Kind) -> Vec<Value> {
        let page = self.client.list::<Value>(kind, &Selection::default(), 0, None).await;
        page.expect("it can be listed").items
    }

    /// Asks for a claim's end; what guards it holds it.
    pub(crate) async fn drop_claim(&self, name: &str) {
        let key = Key::namespaced("default", name);
        self.client.delete::<api::Claim>(&key, &Preconditions::default()).await.expect("it can be deleted");
    }

    /// Lets everybody do all they want.
    pub(crate) async fn wait(&self) {
        tokio::time::sleep(SETTLED).await;
    }

    /// Waits until something holds; a day is long enough for anything that comes by itself.
    pub(crate) async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Stage) -> bool) {
        for _ in 0..10_000 {
            if holds(self).await {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("never happened: {what}");
    }

    pub(crate) async fn volume_of(&self, claim: &str) -> Option<Value> {
        let claim = self.get(Kind::CLAIM, claim).await?;
        self.get(Kind::VOLUME, claim["spec"]["volumeName"].as_str().filter(|name| !name.is_empty())?).await
    }

    pub(crate) async fn is_bound(&self, claim: &str) -> bool {
        self.get(Kind::CLAIM, claim).await.is_some_and(|claim| claim["status"]["phase"] == "Bound")
    }

    /// Events as `reason: message`.
    pub(crate) async fn events(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let line = |event: &Value| format!("{}: {}", text(&event["reason"]), text(&event["message"]));
        self.list(Kind::EVENT).await.iter().map(line).collect()
    }

    pub(crate) fn writes(&self) -> Vec<String> {
        self.writes.lock().expect("nobody panicked").clone()
    }

    /// Whether an object carries a finalizer.
    pub(crate) async fn holds(&self, kind: Kind, name: &str, finalizer: api::keys::Finalizer) -> bool {
        let object = self.get(kind, name).await.unwrap_or_default();
        object["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|held| held == finalizer.text()))
    }

    /// Asserts that there are exactly these volumes, as the driver and as the API know them.
    pub(crate) async fn assert_volumes(&self, count: usize) {
        let stored = self.list(Kind::VOLUME).await;
        let mut names: Vec<&str> = stored.iter().filter_map(|volume| volume["metadata"]["name"].as_str()).collect();
        names.sort_unstable();
        assert_eq!((self.driver.names().len(), names.len()), (count, count), "{:?} {names:?}", self.driver.names());
        assert_eq!(self.driver.names(), names);
    }
}

/// The node that a claim was given.
pub(crate) fn selected(claim: &Value) -> Option<&str> {
    claim["metadata"]["annotations"][annotation::SELECTED_NODE.text()].as_str()
}
