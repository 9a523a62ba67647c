//! A world with a driver, one process with an attacher, and a user who writes volumes, nodes and attachments.

use std::cell::Cell;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::keys::annotation;
use api::object::{Key, Kind};
use control::attach::{self, Attachments};
use control::attacher::{Attacher, Options};
use control::protect::{self, Protector};
use csi::v1::controller_service_capability::rpc::Type as Rpc;
use runtime::client::{self, Client, Patch, Preconditions, Selection};
use runtime::{Entropy, Metrics, Stop};
use serde_json::{Value, json};
use sim::faults::{self, Action, Ask, Fair, Verdict};
use sim::{Process, Seed, Setup, World, simulate};

use crate::driver::{self, Driver, NAME};

/// Long enough for a good many retries, and no time at all on the wall.
pub(crate) const SETTLED: Duration = Duration::from_secs(600);
pub(crate) const FINALIZER: &str = "external-attacher/disk-example-com";
pub(crate) const VOLUME: &str = "pv-1";
pub(crate) const HANDLE: &str = "handle-1";
pub(crate) const NODE: &str = "node-1";
pub(crate) const NODE_ID: &str = "id-of-node-1";
pub(crate) const ATTACHMENT: &str = "csi-1";
pub(crate) const PUBLISHES: &[Rpc] = &[Rpc::PublishUnpublishVolume, Rpc::PublishReadonly];
pub(crate) const LISTS: &[Rpc] =
    &[Rpc::PublishUnpublishVolume, Rpc::ListVolumes, Rpc::ListVolumesPublishedNodes, Rpc::SingleNodeMultiWriter];

/// Something bad that happens once: to a write of the process' first life, or to a call of the driver.
#[derive(Debug, Clone)]
pub(crate) enum Mishap {
    /// Which of its writes, counted from 1.
    Write(usize, faults::Fate),
    /// Which of the calls, counted from 1.
    Call(usize, driver::Fate),
}

/// Who is in the process beside the attacher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    Nobody,
    /// The attach/detach controller.
    Controller,
}

/// What a test can touch.
pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) driver: Driver,
    /// Of the process that lives.
    pub(crate) metrics: Arc<Mutex<Option<Metrics>>>,
}

/// A process that begins with nothing but a driver that can do this.
pub(crate) fn play<T, S, F>(rpcs: &[Rpc], options: &Options, mishap: Option<Mishap>, scenario: S) -> T
where
    T: Send,
    S: FnOnce(Stage) -> F + Send,
    F: Future<Output = T>,
{
    play_beside(Company::Nobody, (rpcs, options), mishap, scenario)
}

/// The same in company.
pub(crate) fn play_beside<T, S, F>(
    company: Company,
    (rpcs, options): (&[Rpc], &Options),
    mishap: Option<Mishap>,
    scenario: S,
) -> T
where
    T: Send,
    S: FnOnce(Stage) -> F + Send,
    F: Future<Output = T>,
{
    let run = async |world: World| {
        let driver = Driver::new(rpcs);
        if let Some(Mishap::Call(number, fate)) = &mishap {
            let calls = std::iter::repeat_n(None, number - 1).chain([Some(*fate)]);
            driver.with().script.extend(calls);
        }
        let component = world.component("user", Fair);
        let (metrics, entropy) = (Metrics::new(&runtime::time::SystemClock), Entropy::seeded(7));
        let client = Client::new(component.client(), client::Options::default(), &metrics, &entropy);
        let shown = Arc::new(Mutex::new(None));
        let stage = Stage { client, driver: driver.clone(), metrics: shown.clone() };
        let life = Cell::new(0);
        let lives = async {
            loop {
                let mishap = mishap.as_ref().filter(|_| life.get() == 0);
                one_life(&world, life.get(), mishap, (&driver, options, &shown, company)).await;
                life.set(life.get() + 1);
            }
        };
        tokio::select! {
            biased;
            () = lives => unreachable!("the process is always started again"),
            () = protecting(&world) => unreachable!("protection never ends"),
            output = scenario(stage) => output,
        }
    };
    simulate(Seed(1), Setup::default(), run).expect("a world can be made")
}

/// The server puts protection on every volume, and somebody has to take it off.
async fn protecting(world: &World) {
    let component = world.component("protection", Fair);
    let process = Process::new(world, &component, 0);
    let (context, stop) = (process.context.clone(), Stop::never());
    let protector = Protector::new(&context, protect::Options::default());
    component.run(process.run(&stop, protector.run(&stop))).await;
}

async fn one_life(
    world: &World,
    life: u64,
    mishap: Option<&Mishap>,
    (driver, options, shown, company): (&Driver, &Options, &Mutex<Option<Metrics>>, Company),
) {
    let (mishap, journal) = (mishap.cloned(), driver.clone());
    let mut seen = 0;
    let script = move |ask: &Ask<'_>| -> Verdict {
        let writes = matches!(ask.action, Action::Create | Action::Update | Action::Delete);
        if !writes || ask.path.contains("/events") {
            return faults::Fate::Answered.into();
        }
        seen += 1;
        let path = ask.path.rsplit("/v1/").next().unwrap_or_default();
        journal.with().journal.push(format!("{} {path}", ask.method));
        match &mishap {
            Some(Mishap::Write(number, fate)) if *number == seen => fate.clone().into(),
            _ => faults::Fate::Answered.into(),
        }
    };
    let component = world.component("orlop", script);
    let process = Process::new(world, &component, life);
    let context = process.context.clone();
    *shown.lock().expect("nobody panicked") = Some(context.metrics.clone());
    let stop = Stop::never();
    let socket = runtime::csi::Driver::new(driver.clone(), runtime::csi::Options::default(), &context.metrics);
    let work = async {
        let facts = socket.ready().await;
        let attacher = Attacher::new(&context, &socket, &facts, options.clone());
        let controller = async {
            if company == Company::Controller {
                Attachments::new(&context, attach::Options::default()).run(&stop).await;
            }
        };
        tokio::join!(attacher.run(&stop), controller);
    };
    let both = async { tokio::join!(work, socket.run(&stop)) };
    tokio::select! {
        biased;
        () = driver.crash.notified() => {}
        _ = component.run(process.run(&stop, both)) => {}
    }
}

/// Merges the members of `more` into `base`.
fn merged(mut base: Value, more: &Value) -> Value {
    match (base.as_object_mut(), more.as_object()) {
        (Some(members), Some(more)) => {
            for (key, value) in more {
                let held = members.remove(key).unwrap_or(Value::Null);
                members.insert(key.clone(), merged(held, value));
            }
            base
        }
        _ => more.clone(),
    }
}

pub(crate) fn volume(more: Value) -> Value {
    let base = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": VOLUME},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": NAME, "volumeHandle": HANDLE}}});
    merged(base, &more)
}

pub(crate) fn node(drivers: &[(&str, &str)]) -> Value {
    let drivers: Vec<Value> =
        drivers.iter().map(|(name, id)| json!({"name": name, "nodeID": id, "topologyKeys": null})).collect();
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": NODE}, "spec": {"drivers": drivers}})
}

pub(crate) fn attachment(more: Value) -> Value {
    let base = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": ATTACHMENT},
        "spec": {"attacher": NAME, "nodeName": NODE, "source": {"persistentVolumeName": VOLUME}}});
    merged(base, &more)
}

pub(crate) fn secret(values: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "keys"}, "stringData": values})
}

/// The volume's reference to [`secret`].
pub(crate) fn with_secret() -> Value {
    json!({"spec": {"csi": {"controllerPublishSecretRef": {"name": "keys", "namespace": "default"}}}})
}

fn kind_of(body: &Value) -> Kind {
    let known = [Kind::VOLUME, Kind::SECRET, Kind::CSI_NODE, Kind::ATTACHMENT, Kind::NODE, Kind::CLAIM, Kind::POD];
    let name = body["kind"].as_str().expect("it has a kind");
    known.into_iter().find(|kind| kind.kind == name).unwrap_or_else(|| panic!("the test makes no {name}"))
}

fn key_of(kind: Kind, name: &str) -> Key {
    match kind.scope {
        api::Scope::Namespaced => Key::namespaced("default", name),
        api::Scope::Cluster => Key::cluster(name),
    }
}

impl Stage {
    /// The usual volume, node and attachment.
    pub(crate) async fn set(&self) {
        self.make(&volume(json!({}))).await;
        self.make(&node(&[(NAME, NODE_ID)])).await;
        self.make(&attachment(json!({}))).await;
    }

    pub(crate) async fn make(&self, body: &Value) -> Value {
        let kind = kind_of(body);
        let namespace = (kind.scope == api::Scope::Namespaced).then_some("default");
        self.client.create(kind, namespace, body).await.unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    pub(crate) async fn get(&self, kind: Kind, name: &str) -> Option<Value> {
        match self.client.get(kind, &key_of(kind, name)).await {
            Ok(object) => Some(object),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The attachment, which must be there.
    pub(crate) async fn attachment(&self) -> Value {
        self.get(Kind::ATTACHMENT, ATTACHMENT).await.expect("the attachment is there")
    }

    pub(crate) async fn change(&self, kind: Kind, name: &str, patch: Value) {
        let key = key_of(kind, name);
        let patched: Result<Value, _> = match patch.get("status") {
            Some(_) => self.client.patch_status(kind, &key, &Patch::Merge(patch)).await,
            None => self.client.patch(kind, &key, &Patch::Merge(patch)).await,
        };
        patched.unwrap_or_else(|error| panic!("{error}"));
    }

    /// The driver registers on the node anew, with this id.
    pub(crate) async fn rename_node(&self, id: &str) {
        // An entry cannot be changed, only taken out and put in.
        self.change(Kind::CSI_NODE, NODE, json!({"spec": {"drivers": []}})).await;
        self.change(Kind::CSI_NODE, NODE, json!({"spec": node(&[(NAME, id)])["spec"]})).await;
    }

    /// Asks for an object's end; finalizers may hold it.
    pub(crate) async fn drop<T: api::Object>(&self, name: &str) {
        let key = key_of(T::KIND, name);
        self.client.delete::<T>(&key, &Preconditions::default()).await.expect("it can be deleted");
    }

    /// Asks for the usual attachment's end.
    pub(crate) async fn detach(&self) {
        self.drop::<api::Attachment>(ATTACHMENT).await;
    }

    /// Lets everybody do all they want.
    pub(crate) async fn wait(&self) {
        tokio::time::sleep(SETTLED).await;
    }

    /// Lets things happen that need no retry.
    pub(crate) async fn moment(&self) {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    pub(crate) async fn is_attached(&self) -> bool {
        self.get(Kind::ATTACHMENT, ATTACHMENT).await.is_some_and(|attachment| attachment["status"]["attached"] == true)
    }

    pub(crate) async fn exists(&self, kind: Kind, name: &str) -> bool {
        self.get(kind, name).await.is_some()
    }

    /// What the attachment says is wrong with attaching.
    pub(crate) async fn attach_error(&self) -> String {
        self.attachment().await["status"]["attachError"]["message"].as_str().unwrap_or_default().to_owned()
    }

    /// The values of the events that are there, to show that there are none.
    pub(crate) async fn events(&self) -> usize {
        let page = self.client.list::<Value>(Kind::EVENT, &Selection::default(), 0, None).await;
        page.expect("it can be listed").items.len()
    }

    /// What changed the world, in order.
    pub(crate) fn journal(&self) -> Vec<String> {
        self.driver.with().journal.clone()
    }
}

/// Whether an object carries a finalizer.
pub(crate) fn holds(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|held| held == finalizer))
}

/// What an attachment says of the node.
pub(crate) fn recorded_node(attachment: &Value) -> Option<&str> {
    attachment["metadata"]["annotations"][annotation::NODE_ID.text()].as_str()
}
