//! A world with one machine, an agent on it that may be killed, a driver, and a user who also plays the controllers.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{Key, Kind};
use lifecycle::attach::{attachment_name, unique_name};
use lifecycle::node::selinux::Gate;
use node::drivers::{Drivers, Registered};
use node::layout::Layout;
use node::{Agent, Options};
use runtime::client::Selection;
use runtime::csi::{self, Driver};
use runtime::{Caches, Client, Metrics, Patch, Stop};
use serde_json::{Value, json};
use sim::driver::{Habits, Model, State};
use sim::faults::{Fair, Fates};
use sim::machine::{HostFates, Machine, ModelHost};

use runtime::watch;
use sim::{Ended, Journal, Process, Seed, Setup, World, simulate};
use tokio::time::{sleep, timeout};

use crate::driver::{Door, Doorman};

pub(crate) const NODE: &str = "n1";
pub(crate) const ROOT: &str = "/var/lib/kubelet";
/// What files in containers have where SELinux is on.
pub(crate) const FILES: &str = "system_u:object_r:container_file_t:s0";
const GI: i64 = 1 << 30;

/// How a world begins.
pub(crate) struct Play {
    pub(crate) habits: Habits,
    /// The driver's object, or none.
    pub(crate) csi_driver: Option<Value>,
    pub(crate) api: Box<dyn Fates>,
    pub(crate) host: Box<dyn HostFates>,
    /// What becomes of requests in each later life.
    pub(crate) again: Box<dyn Fn() -> Box<dyn Fates> + Send + Sync>,
    /// If SELinux is on.
    pub(crate) selinux: Option<Gate>,
    /// How long a driver may be away before its volumes are unmounted without it.
    pub(crate) alone_after: Option<Duration>,
}

impl Default for Play {
    fn default() -> Self {
        let csi_driver = json!({"attachRequired": false, "fsGroupPolicy": "ReadWriteOnceWithFSType"});
        let (api, host) = (Box::new(Fair), Box::new(Fair));
        let again = Box::new(|| Box::new(Fair) as Box<dyn Fates>);
        let (selinux, alone_after) = (None, None);
        Self { habits: Habits::fair(), csi_driver: Some(csi_driver), api, host, again, selinux, alone_after }
    }
}

impl Play {
    /// With these members of the driver's object besides.
    pub(crate) fn with_driver(members: Value) -> Self {
        let mut play = Self::default();
        let spec = play.csi_driver.get_or_insert_with(|| json!({}));
        for (key, value) in members.as_object().expect("an object") {
            spec[key] = value.clone();
        }
        play
    }

    /// With a driver whose volumes have to be attached.
    pub(crate) fn attached() -> Self {
        let mut play = Self::with_driver(json!({"attachRequired": true}));
        play.habits.attach = sim::driver::Attach::Required;
        play
    }
}

/// Whether the agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Runs,
    Dead,
}

/// What a scenario has at hand.
pub(crate) struct Rig {
    client: Client,
    pub(crate) machine: Machine,
    pub(crate) model: Model,
    pub(crate) doorman: Doorman,
    pub(crate) drivers: Drivers,
    registered: Arc<Mutex<Option<Registered>>>,
    metrics: Arc<Mutex<Option<Metrics>>>,
    gate: Gate,
    /// What the agent that runs keeps of the cluster.
    caches: Mutex<Option<Caches>>,
    life: watch::Sender<Life>,
    alone_after: Option<Duration>,
    journal: Journal,
}

struct BoxedHost(Box<dyn HostFates>);

impl HostFates for BoxedHost {
    fn call(&mut self, event: &sim::machine::Event<'_>) -> sim::machine::HostFate {
        self.0.call(event)
    }

    fn takes(&mut self) -> Duration {
        self.0.takes()
    }
}

struct BoxedApi(Box<dyn Fates>);

impl Fates for BoxedApi {
    fn request(&mut self, ask: &sim::faults::Ask<'_>) -> sim::faults::Verdict {
        self.0.request(ask)
    }

    fn event(&mut self, watch: u64) -> sim::faults::Flow {
        self.0.event(watch)
    }
}

/// Plays a scenario.
pub(crate) fn play(play: Play, scenario: impl AsyncFnOnce(&Rig) + Send) {
    let Play { habits, csi_driver, api, host, again, selinux, alone_after } = play;
    let played = simulate(Seed(1), Setup::default(), async |world: World| {
        let desk = world.component("user", Fair);
        let machine = Machine::new(&world, NODE);
        if selinux.is_some() {
            machine.with_selinux(FILES);
        }
        let model = Model::new(&world, habits, State::new(&[""], 1000 * GI));
        let side = model.on(&machine, None);
        let doorman = Doorman::default();
        let rig = Rig {
            client: Process::new(&world, &desk, 0).context.client,
            machine: machine.clone(),
            model: model.clone(),
            doorman: doorman.clone(),
            drivers: Drivers::default(),
            registered: Arc::default(),
            metrics: Arc::default(),
            gate: selinux.unwrap_or_default(),
            caches: Mutex::default(),
            life: watch::Sender::new(Life::Runs),
            alone_after,
            journal: world.journal().clone(),
        };
        rig.create(Kind::NODE, json!({"metadata": {"name": NODE}})).await;
        if let Some(spec) = csi_driver {
            rig.create(Kind::CSI_DRIVER, json!({"metadata": {"name": model.name()}, "spec": spec})).await;
        }
        let door = Door { model, side, doorman };
        let agent = lives(&world, &rig, door, (BoxedApi(api), BoxedHost(host), &again));
        tokio::select! {
            biased;
            () = agent => unreachable!("an agent that crashed starts again"),
            () = scenario(&rig) => {}
        }
    });
    played.expect("a world can be made");
}

/// One life of the agent after the other, each with its own faults; those of the machine only in the first one.
async fn lives(
    world: &World,
    rig: &Rig,
    door: Door,
    (api, host, again): (BoxedApi, BoxedHost, &(dyn Fn() -> Box<dyn Fates> + Send + Sync)),
) {
    let mut component = world.component("agent", api);
    let mut model_host = ModelHost::new(&rig.machine, &component, host);
    for number in 1.. {
        let process = Process::new(world, &component, number);
        let context = process.context.clone();
        let options = csi::Options::on_node();
        let driver = Driver::new(door.clone(), options, &context.metrics);
        let registered =
            Registered { name: rig.model.name().to_owned(), driver: driver.clone(), node_id: NODE.to_owned() };
        rig.drivers.insert(registered.clone());
        *rig.registered.lock().expect("nobody panics with it") = Some(registered);
        let layout = Layout::new(ROOT).expect("a good path");
        *rig.metrics.lock().expect("nobody panics with it") = Some(context.metrics.clone());
        let options = Options { selinux: rig.gate, alone_after: rig.alone_after, ..Options::new(NODE, layout) };
        node::agent::narrow(&context.caches, NODE);
        *rig.caches.lock().expect("nobody panics with it") = Some(context.caches.clone());
        let agent = Agent::new(&context, Arc::new(model_host), rig.drivers.clone(), options);
        let never = Stop::never();
        let work = async {
            tokio::select! {
                biased;
                _ = driver.run(&never) => {}
                () = agent.run(&never) => {}
            }
        };
        let mut life = rig.life.subscribe();
        let ended = tokio::select! {
            biased;
            _ = life.wait_for(|life| *life == Life::Dead) => None,
            ended = component.run(process.run(&never, work)) => Some(ended),
        };
        assert!(!matches!(ended, Some(Ended::Finished(()))), "an agent does not end by itself");
        let _ = life.wait_for(|life| *life == Life::Runs).await;
        component = world.component("agent", BoxedApi(again()));
        model_host = ModelHost::new(&rig.machine, &component, Fair);
    }
}

impl Rig {
    /// How many objects of a kind the agent keeps.
    pub(crate) fn kept<T: api::Object>(&self) -> usize {
        let caches = self.caches.lock().expect("nobody panics with it");
        caches.as_ref().map_or(0, |caches| caches.of::<T>().len())
    }

    /// Kills the agent, as a crash does.
    pub(crate) async fn kill(&self) {
        self.life.send_replace(Life::Dead);
        sleep(Duration::from_millis(1)).await;
    }

    /// Starts it again.
    pub(crate) fn start(&self) {
        self.life.send_replace(Life::Runs);
    }

    /// What a scraper reads of the agent.
    pub(crate) fn metrics(&self) -> String {
        let metrics = self.metrics.lock().expect("nobody panics with it").clone();
        metrics.expect("the agent has lived").encode()
    }

    /// The driver goes from the machine, and comes back.
    pub(crate) fn unregister(&self) {
        self.drivers.remove(self.model.name());
    }

    pub(crate) fn register(&self) {
        let registered = self.registered.lock().expect("nobody panics with it").clone().expect("it was registered");
        self.drivers.insert(registered);
    }

    /// Lets the driver stand for one of another name, too.
    pub(crate) fn register_as(&self, name: &str) {
        let registered = self.registered.lock().expect("nobody panics with it").clone().expect("it was registered");
        self.drivers.insert(Registered { name: name.to_owned(), ..registered });
    }

    /// A file of the machine.
    pub(crate) fn read(&self, path: &str) -> String {
        let read = self.machine.with_kernel(|kernel| kernel.read(path.as_ref()));
        String::from_utf8(read.expect("it answers").expect("it is there")).expect("text")
    }

    pub(crate) async fn create(&self, kind: Kind, mut body: Value) -> Value {
        body["apiVersion"] = kind.api_version().into();
        body["kind"] = kind.kind.into();
        let namespace = body["metadata"]["namespace"].as_str().map(str::to_owned);
        self.client.create::<Value>(kind, namespace.as_deref(), &body).await.expect("the server takes it")
    }

    pub(crate) async fn patch(&self, kind: Kind, key: &Key, patch: Value) {
        self.client.patch::<Value>(kind, key, &Patch::Merge(patch)).await.expect("the server takes it");
    }

    pub(crate) async fn patch_status(&self, kind: Kind, key: &Key, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.client.patch_status::<Value>(kind, key, &patch).await.expect("the server takes it");
    }

    pub(crate) async fn get(&self, kind: Kind, key: &Key) -> Option<Value> {
        match self.client.get::<Value>(kind, key).await {
            Ok(object) => Some(object),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn delete_pod(&self, name: &str) {
        let deleted = self.client.delete::<api::Pod>(&key(name), &Default::default()).await;
        deleted.expect("the server takes it");
    }

    /// Takes a PersistentVolume out of the cluster, whoever protects it, as somebody who restores a backup does. Gives what
    /// makes it again.
    pub(crate) async fn take_volume(&self, name: &str) -> Value {
        let key = Key::cluster(name);
        let volume = self.get(Kind::VOLUME, &key).await.expect("the volume is there");
        self.patch(Kind::VOLUME, &key, json!({"metadata": {"finalizers": null}})).await;
        let deleted = self.client.delete_now::<api::Volume>(&key, &Default::default()).await;
        deleted.expect("the server takes it");
        json!({"metadata": {"name": name}, "spec": volume["spec"]})
    }

    pub(crate) async fn delete_node(&self) {
        let deleted = self.client.delete_now::<api::Node>(&Key::cluster(NODE), &Default::default()).await;
        deleted.expect("the server takes it");
    }

    pub(crate) async fn delete_driver(&self) {
        let deleted = self.client.delete::<api::CsiDriver>(&Key::cluster(self.model.name()), &Default::default()).await;
        deleted.expect("the server takes it");
    }

    pub(crate) async fn delete_attachment(&self, name: &str) {
        let deleted = self.client.delete::<api::Attachment>(&Key::cluster(name), &Default::default()).await;
        deleted.expect("the server takes it");
    }

    /// Ends a pod at once, as somebody does who forces it away while no agent runs.
    pub(crate) async fn end_pod(&self, name: &str) {
        let ended = self.client.delete_now::<api::Pod>(&key(name), &Default::default()).await;
        ended.expect("the server takes it");
    }

    /// Where a volume is staged.
    pub(crate) fn staged_directory(&self, volume: &str) -> PathBuf {
        let driver = node::layout::Name::new(self.model.name()).expect("a good name");
        Layout::new(ROOT).expect("a good path").staged(&driver, volume).directory().to_owned()
    }

    /// Whose a path is.
    pub(crate) fn owner(&self, path: &std::path::Path) -> Option<u32> {
        self.machine.with_kernel(|kernel| match kernel.look(path) {
            Ok(Some(sim::machine::Node::Directory(owner))) => Some(owner.group),
            _ => None,
        })
    }

    pub(crate) async fn events(&self, reason: &str) -> Vec<String> {
        let page = self.client.list::<Value>(Kind::EVENT, &Selection::default(), 0, None).await;
        let events = page.expect("the server lists").items;
        let of_reason = events.iter().filter(|event| event["reason"] == reason);
        of_reason.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// How often something of this reason was told.
    pub(crate) async fn counted(&self, reason: &str) -> u64 {
        let page = self.client.list::<Value>(Kind::EVENT, &Selection::default(), 0, None).await;
        let events = page.expect("the server lists").items;
        events.iter().filter(|event| event["reason"] == reason).filter_map(|event| event["count"].as_u64()).sum()
    }

    pub(crate) async fn until(&self, what: &str, done: impl AsyncFn() -> bool) {
        let wait = async {
            while !done().await {
                sleep(Duration::from_millis(250)).await;
            }
        };
        if timeout(Duration::from_secs(900), wait).await.is_err() {
            let mounts: Vec<_> = self.mounts();
            // What the user did is in the test.
            let told = |line: &&String| !line.contains(" user ") && !line.contains("BOOKMARK");
            for line in self.journal.lines().iter().filter(told) {
                eprintln!("{line}");
            }
            let pods = self.client.list::<Value>(Kind::POD, &Selection::default(), 0, None).await;
            for pod in pods.expect("the server lists").items {
                eprintln!("{}: {}", pod["metadata"]["name"], pod["status"]["conditions"]);
            }
            panic!("never happened: {what}; calls {:?}; mounts {mounts:?}", self.doorman.calls());
        }
    }

    /// A volume of the driver with a PersistentVolume and a claim that have each other.
    pub(crate) async fn volume(&self, name: &str, members: Value) {
        self.model.tamper(|state| state.put(name, GI));
        let mode = members.get("volumeMode").cloned().unwrap_or_else(|| json!("Filesystem"));
        let access = members.get("accessModes").cloned().unwrap_or_else(|| json!(["ReadWriteOnce"]));
        let claim = self
            .create(
                Kind::CLAIM,
                json!({"metadata": {"namespace": "default", "name": name}, "spec": {
                    "accessModes": access, "volumeName": name, "storageClassName": "", "volumeMode": mode,
                    "resources": {"requests": {"storage": "1Gi"}}}}),
            )
            .await;
        let mut spec = json!({
            "capacity": {"storage": "1Gi"}, "accessModes": access, "volumeMode": mode, "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": name,
                         "uid": claim["metadata"]["uid"]},
            "csi": {"driver": self.model.name(), "volumeHandle": name, "fsType": "ext4",
                    "volumeAttributes": {"flavour": "plain"}},
        });
        for (key, value) in members.as_object().into_iter().flatten() {
            if value.is_null() {
                spec.as_object_mut().expect("an object").remove(key);
            } else if key == "csi" {
                for (key, value) in value.as_object().into_iter().flatten() {
                    spec["csi"][key] = value.clone();
                }
            } else {
                spec[key] = value.clone();
            }
        }
        self.create(Kind::VOLUME, json!({"metadata": {"name": name}, "spec": spec})).await;
        self.patch_status(Kind::VOLUME, &Key::cluster(name), json!({"phase": "Bound"})).await;
        let bound = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": access});
        self.patch_status(Kind::CLAIM, &key(name), bound).await;
    }

    /// A pod on the machine with these claims mounted. Gives its uid.
    pub(crate) async fn pod(&self, name: &str, claims: &[&str]) -> String {
        let volumes: Vec<Value> =
            claims.iter().map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}})).collect();
        self.pod_with(name, json!(volumes), json!({})).await
    }

    /// A pod that mounts all of these volumes.
    pub(crate) async fn pod_with(&self, name: &str, volumes: Value, members: Value) -> String {
        let names: Vec<&Value> = volumes.as_array().into_iter().flatten().map(|volume| &volume["name"]).collect();
        let mounts: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "mountPath": format!("/{}", name.as_str().unwrap_or_default())}))
            .collect();
        let mut spec = json!({
            "nodeName": NODE, "terminationGracePeriodSeconds": 30, "volumes": volumes,
            "containers": [{"name": "main", "image": "example/main", "volumeMounts": mounts}],
        });
        for (key, value) in members.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let body = json!({"metadata": {"namespace": "default", "name": name}, "spec": spec});
        let pod = self.create(Kind::POD, body).await;
        pod["metadata"]["uid"].as_str().expect("a uid").to_owned()
    }

    /// What the agent says about a pod's volumes: status, reason and message.
    pub(crate) async fn said(&self, name: &str) -> (String, String, String) {
        let pod = self.get(Kind::POD, &key(name)).await.unwrap_or_default();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ours = conditions.iter().find(|condition| condition["type"] == api::keys::condition::VOLUMES_READY);
        let text = |member: &str| ours.map_or("", |ours| ours[member].as_str().unwrap_or_default()).to_owned();
        (text("status"), text("reason"), text("message"))
    }

    pub(crate) async fn until_ready(&self, name: &str) {
        self.until(&format!("pod {name} has its volumes"), async || self.said(name).await.0 == "True").await;
    }

    pub(crate) async fn until_said(&self, name: &str, reason: &str) {
        self.until(&format!("pod {name} is told {reason}"), async || self.said(name).await.1 == reason).await;
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        self.until(&format!("pod {name} goes"), async || self.get(Kind::POD, &key(name)).await.is_none()).await;
    }

    /// The mount points below the agent's root.
    pub(crate) fn mounts(&self) -> Vec<PathBuf> {
        let mounts = self.machine.with_kernel(|kernel| kernel.mounts());
        mounts
            .0
            .iter()
            .map(|mount| mount.point.clone())
            .filter(|point| point.starts_with(ROOT) && *point != *ROOT)
            .collect()
    }

    pub(crate) fn is_mounted(&self, uid: &str, volume: &str) -> bool {
        self.mounts().contains(&target(uid, volume))
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.machine.with_kernel(|kernel| kernel.look(path.as_ref()).is_ok_and(|found| found.is_some()))
    }

    pub(crate) fn children(&self, path: &str) -> usize {
        self.machine.with_kernel(|kernel| kernel.list(path.as_ref())).map_or(0, |entries| entries.len())
    }

    /// Nothing of any volume or pod is left on the machine, and the node says so.
    pub(crate) async fn until_clean(&self) {
        let clean = async || {
            let node = self.get(Kind::NODE, &Key::cluster(NODE)).await.expect("the node is there");
            let in_use = node["status"]["volumesInUse"].as_array().map_or(0, Vec::len);
            let pods = self.children(&format!("{ROOT}/pods"));
            let staged = self.children(&format!("{ROOT}/plugins/{}/{}", api::keys::plugin::CSI, self.model.name()));
            self.mounts().is_empty() && in_use == 0 && pods == 0 && staged == 0
        };
        self.until("everything is gone", clean).await;
    }

    /// Attaches a volume, as the controllers do: only once the node says that it uses it.
    pub(crate) async fn attach(&self, volume: &str) {
        self.attach_as(self.model.name(), volume).await;
    }

    /// The same under another name of the driver.
    pub(crate) async fn attach_as(&self, driver: &str, volume: &str) {
        let unique = unique_name(driver, volume);
        let node = Key::cluster(NODE);
        self.until(&format!("{volume} is reported in use"), async || {
            let node = self.get(Kind::NODE, &node).await.expect("the node is there");
            node["status"]["volumesInUse"].as_array().is_some_and(|used| used.contains(&json!(unique)))
        })
        .await;
        let given = self.model.tamper(|state| {
            let request = ::csi::v1::ControllerPublishVolumeRequest {
                volume_id: volume.to_owned(),
                node_id: NODE.to_owned(),
                volume_capability: Some(Default::default()),
                ..Default::default()
            };
            state.publish(&request, &Habits::fair()).expect("it can be published")
        });
        let name = attachment_name(driver, volume, NODE);
        let spec = json!({"attacher": driver, "nodeName": NODE, "source": {"persistentVolumeName": volume}});
        self.create(Kind::ATTACHMENT, json!({"metadata": {"name": name}, "spec": spec})).await;
        let attached = json!({"attached": true, "attachmentMetadata": given.publish_context});
        self.patch_status(Kind::ATTACHMENT, &Key::cluster(&name), attached).await;
        let listed = json!({"volumesAttached": [{"name": unique, "devicePath": ""}]});
        self.patch_status(Kind::NODE, &node, listed).await;
    }
}

pub(crate) fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}

pub(crate) fn target(uid: &str, volume: &str) -> PathBuf {
    PathBuf::from(format!("{ROOT}/pods/{uid}/volumes/kubernetes.io~csi/{volume}/mount"))
}
