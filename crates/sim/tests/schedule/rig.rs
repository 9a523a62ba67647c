//! A world with a scheduler that comes back after a crash, a binder, and a provisioner that does as it is told.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::keys::annotation;
use control::bind::{self, Binder};
use control::schedule::{Options, Scheduler};
use runtime::client::Selection;
use runtime::{Client, Key, Kind, Patch, Stop};
use serde_json::{Value, json};
use sim::faults::{Action, Ask, Fair, Fate, Fates, Verdict};
use sim::{Ended, Process, Seed, Setup, World, simulate};
use tokio::time::{Instant, sleep};

/// What the n-th write of the scheduler's first life meets; later lives meet nothing.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) write: usize,
    pub(crate) fate: Fate,
}

/// What the provisioner does.
#[derive(Debug, Default)]
struct Orders {
    /// Nodes for which nothing can be made.
    full: BTreeSet<String>,
    /// Whether it does nothing at all.
    asleep: bool,
}

#[derive(Clone)]
pub(crate) struct Rig {
    client: Client,
    journal: sim::Journal,
    orders: Arc<Mutex<Orders>>,
}

/// Runs a play in a world of its own, in which nothing fails.
pub(crate) fn in_rig<F: Future<Output = ()>>(play: impl FnOnce(Rig) -> F + Send) {
    in_faulty_rig(None, Options::default(), play);
}

/// Runs a play whose scheduler meets a script.
pub(crate) fn in_faulty_rig<F: Future<Output = ()>>(
    script: Option<Script>,
    options: Options,
    play: impl FnOnce(Rig) -> F + Send,
) {
    let seed = Seed(7);
    println!("seed {seed}");
    let scenario = async |world: World| {
        let user = world.component("user", Fair);
        let client = Process::new(&world, &user, 1).context.client;
        let orders = Arc::new(Mutex::new(Orders::default()));
        let rig = Rig { client, journal: world.journal().clone(), orders };
        tokio::select! {
            biased;
            () = schedule(&world, script, &options) => unreachable!("nobody stops the scheduler"),
            () = bind(&world) => unreachable!("nobody stops the binder"),
            () = rig.provision() => unreachable!("nobody stops the provisioner"),
            () = play(rig.clone()) => {}
        }
    };
    simulate(seed, Setup::default(), scenario).expect("a world can be made");
}

/// The scheduler, life after life.
async fn schedule(world: &World, script: Option<Script>, options: &Options) {
    let mut script = script;
    for life in 1.. {
        let component = match script.take() {
            Some(script) => world.component("scheduler", scripted(script)),
            None => world.component("scheduler", Fair),
        };
        let process = Process::new(world, &component, life);
        let scheduler = Scheduler::new(&process.context, options.clone());
        let (stop, work) = (Stop::never(), scheduler.clone());
        match component.run(process.run(&stop, work.run(&stop))).await {
            Ended::Crashed => sleep(Duration::from_secs(5)).await,
            Ended::Finished(()) => return,
        }
    }
}

fn scripted(script: Script) -> impl Fates {
    let mut writes = 0;
    move |ask: &Ask<'_>| -> Verdict {
        if !is_write(ask.action, ask.path) {
            return Fate::Answered.into();
        }
        writes += 1;
        if writes == script.write { script.fate.clone().into() } else { Fate::Answered.into() }
    }
}

/// Events are news, not state.
fn is_write(action: Action, path: &str) -> bool {
    matches!(action, Action::Create | Action::Update | Action::Delete) && !path.contains("/events")
}

async fn bind(world: &World) {
    let component = world.component("binder", Fair);
    let process = Process::new(world, &component, 1);
    let (binder, stop) = (Binder::new(&process.context, bind::Options::default()), Stop::never());
    let work = binder.clone();
    component.run(process.run(&stop, work.run(&stop))).await;
}

fn kind_of(plural: &str) -> Kind {
    let kinds = [
        Kind::CLAIM,
        Kind::VOLUME,
        Kind::POD,
        Kind::NODE,
        Kind::STORAGE_CLASS,
        Kind::CSI_NODE,
        Kind::CSI_DRIVER,
        Kind::CAPACITY,
        Kind::EVENT,
    ];
    let named = |kind: &Kind| kind.plural == plural || kind.kind == plural;
    kinds.into_iter().find(named).expect("the test names a kind it knows")
}

fn key_of(kind: Kind, name: &str) -> Key {
    runtime::client::key_of(kind, "default", name)
}

impl Rig {
    pub(crate) async fn create(&self, object: Value) -> Value {
        let kind = kind_of(object["kind"].as_str().unwrap_or_default());
        self.client.create(kind, Some("default"), &object).await.unwrap_or_else(|error| panic!("{object}: {error}"))
    }

    pub(crate) async fn nodes(&self, names: &[&str]) {
        for name in names {
            self.create(node(name)).await;
            self.open(name).await;
        }
    }

    /// A new node is tainted until somebody says that it is ready.
    pub(crate) async fn open(&self, name: &str) {
        self.patch("nodes", name, json!({"spec": {"taints": null, "unschedulable": null}})).await;
    }

    pub(crate) async fn get(&self, plural: &str, name: &str) -> Value {
        let kind = kind_of(plural);
        self.client.get(kind, &key_of(kind, name)).await.unwrap_or_else(|error| panic!("{plural} {name}: {error}"))
    }

    pub(crate) async fn list(&self, plural: &str) -> Vec<Value> {
        let page = self.client.list(kind_of(plural), &Selection::default(), 0, None).await;
        page.expect("the server answers the test").items
    }

    pub(crate) async fn patch(&self, plural: &str, name: &str, patch: Value) {
        let kind = kind_of(plural);
        let patched = self.client.patch::<Value>(kind, &key_of(kind, name), &Patch::Merge(patch)).await;
        patched.unwrap_or_else(|error| panic!("{plural} {name}: {error}"));
    }

    /// Deletes at once, as if nobody had to end anything first.
    pub(crate) async fn delete_pod(&self, name: &str) {
        let key = key_of(Kind::POD, name);
        let gone = self.client.delete::<api::Pod>(&key, &runtime::client::Preconditions::default()).await;
        gone.unwrap_or_else(|error| panic!("pod {name}: {error}"));
    }

    pub(crate) async fn delete_node(&self, name: &str) {
        let key = key_of(Kind::NODE, name);
        let gone = self.client.delete::<api::Node>(&key, &runtime::client::Preconditions::default()).await;
        gone.unwrap_or_else(|error| panic!("node {name}: {error}"));
    }

    /// Binds a pod by hand, if it has this uid.
    pub(crate) async fn bind_pod(&self, name: &str, uid: &str, node: &str) -> Result<(), runtime::client::Error> {
        let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": uid},
                          "target": {"kind": "Node", "name": node}});
        self.client.create_part(Kind::POD, &key_of(Kind::POD, name), "binding", &body).await
    }

    /// From now on nothing can be made for this node.
    pub(crate) fn fill(&self, node: &str) {
        self.orders.lock().expect("nobody panics with it").full.insert(node.to_owned());
    }

    pub(crate) fn sleep(&self, asleep: bool) {
        self.orders.lock().expect("nobody panics with it").asleep = asleep;
    }

    /// Waits until an object is as it should be.
    pub(crate) async fn until(&self, plural: &str, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + Duration::from_secs(1800);
        let mut wait = Duration::from_millis(20);
        loop {
            let object = self.get(plural, name).await;
            if holds(&object) {
                return object;
            }
            assert!(Instant::now() < end, "never {what}: {object:#}\n{:#?}", self.journal());
            sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(2));
        }
    }

    /// Waits until a pod has a node, and checks that it could have gone there (CTRL-I10).
    pub(crate) async fn scheduled(&self, name: &str) -> Value {
        let pod = self.until("pods", name, "scheduled", |pod| pod["spec"]["nodeName"].is_string()).await;
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
            let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() else { continue };
            let claim = self.get("persistentvolumeclaims", claim).await;
            assert!(claim["metadata"]["annotations"][annotation::BIND_COMPLETED.0].is_string(), "{claim:#}");
            let held = self.get("persistentvolumes", claim["spec"]["volumeName"].as_str().unwrap_or_default()).await;
            assert_eq!(held["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
            let terms = &held["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
            let zone = &terms[0]["matchExpressions"][0]["values"][0];
            assert!(zone.is_null() || zone == node, "{name} went to {node}, its volume is in {zone}");
        }
        pod
    }

    pub(crate) async fn unscheduled(&self, name: &str, why: &str) {
        let says = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions.clone().any(|one| {
                one["type"] == "PodScheduled" && one["status"] == "False" && one["message"].as_str() == Some(why)
            })
        };
        self.until("pods", name, why, says).await;
    }

    /// Waits until users were told something about a pod.
    pub(crate) async fn told(&self, pod: &str, reason: &str, message: &str) {
        for _ in 0..1000 {
            let told = |event: &Value| {
                event["involvedObject"]["name"] == pod && event["reason"] == reason && event["message"] == message
            };
            if self.list("events").await.iter().any(told) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("never told: {reason} {message}: {:#?}", self.list("events").await);
    }

    /// Gives everybody time to do what they still want to do.
    pub(crate) async fn settle(&self) {
        sleep(Duration::from_secs(30)).await;
    }

    pub(crate) fn journal(&self) -> Vec<String> {
        self.journal.lines().into_iter().filter(|line| is_news(line)).collect()
    }

    /// How often a component has written, events apart.
    pub(crate) fn writes_of(&self, component: &str) -> usize {
        let wrote = |line: &&String| {
            let by = line.split(' ').nth(1) == Some(component);
            by && ["POST ", "PATCH ", "PUT ", "DELETE "].iter().any(|verb| line.contains(verb))
        };
        self.journal().iter().filter(wrote).count()
    }

    /// The provisioner: makes what is asked of it, and says "not there" by taking the mark away.
    async fn provision(&self) {
        loop {
            for claim in self.list("persistentvolumeclaims").await {
                self.make(&claim).await;
            }
            sleep(Duration::from_millis(250)).await;
        }
    }

    async fn make(&self, claim: &Value) {
        let annotations = &claim["metadata"]["annotations"];
        let Some(node) = annotations[annotation::SELECTED_NODE.0].as_str() else { return };
        if !annotations[annotation::STORAGE_PROVISIONER.0].is_string() || claim["spec"]["volumeName"].is_string() {
            return;
        }
        let (asleep, full) = {
            let orders = self.orders.lock().expect("nobody panics with it");
            (orders.asleep, orders.full.contains(node))
        };
        let name = claim["metadata"]["name"].as_str().unwrap_or_default();
        if asleep {
            return;
        }
        if full {
            let revision = &claim["metadata"]["resourceVersion"];
            let patch =
                json!({"metadata": {"resourceVersion": revision, "annotations": {annotation::SELECTED_NODE.0: null}}});
            let key = key_of(Kind::CLAIM, name);
            // A conflict means that somebody was faster; the next round looks again.
            let _ = self.client.patch::<Value>(Kind::CLAIM, &key, &Patch::Merge(patch)).await;
            return;
        }
        let size = claim["spec"]["resources"]["requests"]["storage"].as_str().unwrap_or_default();
        let made = format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap_or_default());
        let mut object = volume(&made, size, Some(node));
        object["spec"]["accessModes"] = claim["spec"]["accessModes"].clone();
        object["metadata"]["annotations"] = json!({annotation::PROVISIONED_BY.0: "d.example.com"});
        object["spec"]["claimRef"] = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default",
                                            "name": name, "uid": claim["metadata"]["uid"]});
        // It may exist from an earlier round.
        let _ = self.client.create::<Value>(Kind::VOLUME, None, &object).await;
    }
}

/// The claim that a volume names.
pub(crate) fn claimed(volume: &Value) -> Option<&str> {
    volume["spec"]["claimRef"]["name"].as_str()
}

pub(crate) fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": name}}})
}

pub(crate) fn class(name: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
           "provisioner": "d.example.com", "volumeBindingMode": "WaitForFirstConsumer"})
}

pub(crate) fn claim(name: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
           "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "late",
                    "resources": {"requests": {"storage": size}}}})
}

/// A volume, in one zone only if one is given.
pub(crate) fn volume(name: &str, size: &str, zone: Option<&str>) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "late", "capacity": {"storage": size},
                 "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": "d.example.com", "volumeHandle": name}},
    });
    if let Some(zone) = zone {
        let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
        object["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [term]}});
    }
    object
}

pub(crate) fn pod(name: &str, claims: &[&str]) -> Value {
    let volumes: Vec<Value> =
        claims.iter().map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0, "volumes": volumes,
                 "containers": [{"name": "c", "image": "i"}]},
    })
}

/// Reads, watches and events are not what a test is about.
fn is_news(line: &str) -> bool {
    !["GET ", "/events", "BOOKMARK", "ADDED", "MODIFIED", "DELETED", "ended by the server"]
        .iter()
        .any(|word| line.contains(word))
}
