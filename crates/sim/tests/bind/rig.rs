//! A world with a binder in it and a user beside it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::object::{Key, Kind};
use control::bind::{Binder, Options};
use runtime::client::{self, Client, Patch, Preconditions, Selection};
use runtime::{Entropy, Metrics, Stop};
use serde_json::{Value, json};
use sim::faults::{Action, Ask, Fair, Fate, Fates, Flow, Verdict};
use sim::{Process, Seed, Setup, World, simulate};

/// Long enough for every retry, and no time at all on the wall.
pub(crate) const SETTLED: Duration = Duration::from_secs(300);

/// Something bad that happens to one write of the binder's first life.
#[derive(Debug, Clone)]
pub(crate) struct Mishap {
    /// Which write to claims and volumes, counted from 1.
    pub(crate) write: usize,
    pub(crate) fate: Fate,
}

/// What the binder hears late, once it is switched on: changes of volumes after an hour, answers about claims after
/// twenty seconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lag(Arc<AtomicBool>);

impl Lag {
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A binder's requests: counted, with one mishap, and late.
struct Script {
    mishap: Option<Mishap>,
    writes: Writes,
    seen: usize,
    lag: Lag,
    /// The watches of volumes, by their requests' numbers.
    volumes: BTreeSet<u64>,
}

impl Fates for Script {
    fn request(&mut self, ask: &Ask<'_>) -> Verdict {
        if ask.action == Action::Watch && ask.path.ends_with("/persistentvolumes") {
            self.volumes.insert(ask.number);
        }
        let late = self.lag.0.load(Ordering::Relaxed);
        if late && ask.action == Action::Read && ask.path.contains("/persistentvolumeclaims/") {
            return Verdict { there: Duration::from_secs(20), ..Fate::Answered.into() };
        }
        let storage = ask.path.contains("/persistentvolume");
        let write = matches!(ask.action, Action::Create | Action::Update | Action::Delete);
        if !(storage && write) {
            return Fate::Answered.into();
        }
        self.seen += 1;
        self.writes.lock().expect("nobody panicked").push(format!("{} {}", ask.method, ask.path));
        let hit = self.mishap.as_ref().filter(|mishap| mishap.write == self.seen);
        hit.map_or(Fate::Answered, |mishap| mishap.fate.clone()).into()
    }

    fn event(&mut self, watch: u64) -> Flow {
        match self.lag.0.load(Ordering::Relaxed) && self.volumes.contains(&watch) {
            true => Flow::Held(Duration::from_secs(3600)),
            false => Flow::Passes,
        }
    }
}

/// The user's hands.
pub(crate) struct User {
    client: Client,
    writes: Writes,
    /// Makes the binder hear late.
    pub(crate) lag: Lag,
}

/// Plays `scenario` beside a binder that meets `mishap` and is started again whenever it dies.
pub(crate) fn play<T, S, F>(mishap: Option<Mishap>, scenario: S) -> T
where
    T: Send,
    S: FnOnce(User) -> F + Send,
    F: Future<Output = T>,
{
    play_with(Options::default(), mishap, scenario)
}

/// The same with a binder that was told something.
pub(crate) fn play_with<T, S, F>(options: Options, mishap: Option<Mishap>, scenario: S) -> T
where
    T: Send,
    S: FnOnce(User) -> F + Send,
    F: Future<Output = T>,
{
    let run = async |world: World| {
        let writes = Arc::new(Mutex::new(Vec::new()));
        let component = world.component("user", Fair);
        let clock = runtime::time::SystemClock;
        let (metrics, entropy) = (Metrics::new(&clock), Entropy::seeded(7));
        let client = Client::new(component.client(), client::Options::default(), &metrics, &entropy);
        let lag = Lag::default();
        let user = User { client, writes: writes.clone(), lag: lag.clone() };
        let life = Cell::new(0);
        let binder = async {
            loop {
                let mishap = mishap.as_ref().filter(|_| life.get() == 0);
                let script = Script {
                    mishap: mishap.cloned(),
                    writes: writes.clone(),
                    seen: 0,
                    lag: lag.clone(),
                    volumes: BTreeSet::new(),
                };
                one_life(&world, life.get(), script, options.clone()).await;
                life.set(life.get() + 1);
            }
        };
        tokio::select! {
            biased;
            () = binder => unreachable!("the binder is always started again"),
            output = scenario(user) => output,
        }
    };
    simulate(Seed(1), Setup::default(), run).expect("a world can be made")
}

type Writes = Arc<Mutex<Vec<String>>>;

async fn one_life(world: &World, life: u64, script: Script, options: Options) {
    let component = world.component("controllers", script);
    let process = Process::new(world, &component, life);
    let binder = Binder::new(&process.context, options);
    let stop = Stop::never();
    component.run(process.run(&stop, binder.run(&stop))).await;
}

pub(crate) fn claim(name: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "default", "name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": {"requests": {"storage": size}}}})
}

pub(crate) fn volume(name: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size},
            "csi": {"driver": "static.example.com", "volumeHandle": name}}})
}

pub(crate) fn class(name: &str, provisioner: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner})
}

/// The full name of an in-tree plugin.
pub(crate) fn in_tree(plugin: &str) -> String {
    format!("{}{plugin}", api::keys::provisioner::IN_TREE_PREFIX)
}

impl User {
    pub(crate) async fn make(&self, body: &Value) -> Value {
        let (kind, namespace) = match body["kind"].as_str() {
            Some("PersistentVolumeClaim") => (Kind::CLAIM, Some("default")),
            Some("PersistentVolume") => (Kind::VOLUME, None),
            Some("StorageClass") => (Kind::STORAGE_CLASS, None),
            Some("Pod") => (Kind::POD, Some("default")),
            other => panic!("the test makes no {other:?}"),
        };
        self.client.create(kind, namespace, body).await.unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    pub(crate) async fn claim(&self, name: &str) -> Value {
        self.client.get(Kind::CLAIM, &Key::namespaced("default", name)).await.expect("the claim is there")
    }

    pub(crate) async fn volume(&self, name: &str) -> Value {
        self.client.get(Kind::VOLUME, &Key::cluster(name)).await.expect("the volume is there")
    }

    pub(crate) async fn find_volume(&self, name: &str) -> Option<Value> {
        self.client.get(Kind::VOLUME, &Key::cluster(name)).await.ok()
    }

    pub(crate) async fn change_volume(&self, name: &str, patch: Value) -> Value {
        let patched = self.client.patch(Kind::VOLUME, &Key::cluster(name), &Patch::Merge(patch)).await;
        patched.expect("the patch is good")
    }

    /// Deletes a claim and what protects it: no pod uses it.
    pub(crate) async fn drop_claim(&self, name: &str) {
        let key = Key::namespaced("default", name);
        self.client.delete::<api::Claim>(&key, &Preconditions::default()).await.expect("it can be deleted");
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        drop(self.client.patch::<Value>(Kind::CLAIM, &key, &patch).await);
    }

    pub(crate) async fn drop_pod(&self, name: &str) {
        let key = Key::namespaced("default", name);
        self.client.delete::<api::Pod>(&key, &Preconditions::default()).await.expect("it can be deleted");
    }

    /// Asks for a claim's end; what holds it stays.
    pub(crate) async fn drop_claim_gently(&self, name: &str) {
        let key = Key::namespaced("default", name);
        self.client.delete::<api::Claim>(&key, &Preconditions::default()).await.expect("it can be deleted");
    }

    pub(crate) async fn drop_volume(&self, name: &str) {
        let key = Key::cluster(name);
        self.client.delete::<api::Volume>(&key, &Preconditions::default()).await.expect("it can be deleted");
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        drop(self.client.patch::<Value>(Kind::VOLUME, &key, &patch).await);
    }

    /// Takes off what protects a volume that was deleted: no protection controller runs here.
    pub(crate) async fn drop_volume_finalizers(&self, name: &str) {
        if let Some(held) = self.find_volume(name).await {
            assert!(!held["metadata"]["deletionTimestamp"].is_null(), "nobody deleted it: {held:#}");
            let only = json!([api::keys::finalizer::PV_PROTECTION.0]);
            assert_eq!(held["metadata"]["finalizers"], only, "the binder took its own finalizer off");
            self.change_volume(name, json!({"metadata": {"finalizers": null}})).await;
        }
    }

    /// Lets the binder do all it wants.
    pub(crate) async fn wait(&self) {
        tokio::time::sleep(SETTLED).await;
    }

    /// Events about an object, as `reason: message`.
    pub(crate) async fn events(&self, name: &str) -> Vec<String> {
        let page = self.client.list::<Value>(Kind::EVENT, &Selection::default(), 0, None).await;
        let items = page.expect("events can be listed").items.into_iter();
        let about = items.filter(|event| event["involvedObject"]["name"] == name);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        about
            .map(|event| format!("{} {}: {}", text(&event["type"]), text(&event["reason"]), text(&event["message"])))
            .collect()
    }

    /// What the binder has written so far, events apart.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.writes.lock().expect("nobody panicked").clone()
    }

    /// Asserts that a claim and a volume are bound to each other in every field.
    pub(crate) async fn assert_bound(&self, claim: &str, volume: &str, chosen: bool) {
        let (held, given) = (self.claim(claim).await, self.volume(volume).await);
        assert_eq!(held["spec"]["volumeName"], volume, "{held:#}");
        assert_eq!(held["status"]["phase"], "Bound", "{held:#}");
        assert_eq!(held["status"]["capacity"], given["spec"]["capacity"]);
        assert_eq!(held["status"]["accessModes"], given["spec"]["accessModes"]);
        let marks = &held["metadata"]["annotations"];
        assert_eq!(marks[api::keys::annotation::BIND_COMPLETED.0], "yes", "{held:#}");
        assert_eq!(given["status"]["phase"], "Bound", "{given:#}");
        let reference = &given["spec"]["claimRef"];
        assert_eq!(reference["uid"], held["metadata"]["uid"]);
        assert_eq!((&reference["name"], &reference["namespace"]), (&json!(claim), &json!("default")));
        let chosen_by_us = given["metadata"]["annotations"][api::keys::annotation::BOUND_BY_CONTROLLER.0] == "yes";
        assert_eq!(chosen_by_us, chosen, "{given:#}");
    }
}
