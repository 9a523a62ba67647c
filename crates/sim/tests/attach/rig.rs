//! A world with one process of ours, which comes back after a crash, and everybody else played.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::keys::annotation;
use api::{Attachment, Key, Kind, Pod};
use control::attach::{Attachments, Options};
use lifecycle::attach::attachment_name;
use runtime::client::Selection;
use runtime::{Client, Metrics, Patch, Stop, Stopper};
use serde_json::{Value, json};
use sim::faults::{Action, Ask, EVERY_FATE, Fair, Fate, Fates, Flow, Once, Verdict};
use sim::{Ended, Process, Seed, Setup, World, simulate};
use tokio::time::{Instant, sleep, timeout};

use crate::played::{DRIVER, Played, unique};

/// Lets the process hear of one kind late.
pub(crate) struct Late {
    path: &'static str,
    by: Duration,
    watches: Vec<u64>,
}

impl Late {
    pub(crate) fn new(path: &'static str, by: Duration) -> Self {
        Self { path, by, watches: Vec::new() }
    }
}

impl Fates for Late {
    fn request(&mut self, ask: &Ask<'_>) -> Verdict {
        if ask.action == Action::Watch && ask.path == self.path {
            self.watches.push(ask.number);
        }
        Fate::Answered.into()
    }

    fn event(&mut self, watch: u64) -> Flow {
        match self.watches.contains(&watch) {
            true => Flow::Held(self.by),
            false => Flow::Passes,
        }
    }
}

/// Plays a scenario once without faults, and then once for every request and every fate.
pub(crate) fn at_every_request(scenario: impl AsyncFn(&Rig) + Send + Sync) {
    Once::at_every_request(&EVERY_FATE, |once| play(Options::default(), once, &scenario));
}

/// Plays a scenario in which nothing fails.
pub(crate) fn calm(scenario: impl AsyncFnOnce(&Rig) + Send) {
    play(Options::default(), Fair, scenario);
}

/// Plays a scenario with these fates in the process' first life, and none in the next ones.
pub(crate) fn play(options: Options, fates: impl Fates + 'static, scenario: impl AsyncFnOnce(&Rig) + Send) {
    let played = simulate(Seed(1), Setup::default(), async |world: World| {
        let desk = world.component("user", Fair);
        let client = Process::new(&world, &desk, 0).context.client;
        let rig = Rig {
            played: Played::new(client.clone(), world.api().store().clone()),
            client,
            metrics: Arc::default(),
            life: Arc::new(Mutex::new(Some(Stopper::new()))),
            journal: world.journal().clone(),
            began: Instant::now(),
        };
        let process = rig.lives(&world, options, fates);
        tokio::select! {
            biased;
            () = process => unreachable!("a process that ended starts again"),
            () = rig.played.run() => unreachable!("nobody stops the others"),
            () = scenario(&rig) => {}
        }
        rig.played.check();
    });
    played.expect("a world can be made");
}

pub(crate) struct Rig {
    pub(crate) client: Client,
    pub(crate) played: Played,
    metrics: Arc<Mutex<Option<Metrics>>>,
    /// How the running process is ended; none means that it stays away.
    life: Arc<Mutex<Option<(Stopper, Stop)>>>,
    journal: sim::Journal,
    began: Instant,
}

impl Rig {
    async fn lives(&self, world: &World, options: Options, fates: impl Fates + 'static) {
        let mut component = world.component("orlop", fates);
        for life in 1.. {
            while self.life.lock().expect("nobody panicked with it").is_none() {
                sleep(Duration::from_millis(50)).await;
            }
            let process = Process::new(world, &component, life);
            *self.metrics.lock().expect("nobody panicked with it") = Some(process.context.metrics.clone());
            let attachments = Attachments::new(&process.context, options);
            let stop = self
                .life
                .lock()
                .expect("nobody panicked with it")
                .as_ref()
                .map_or_else(Stop::never, |(_, stop)| stop.clone());
            let work = async { attachments.run(&stop).await };
            let ended = component.run(process.run(&Stop::never(), work)).await;
            if ended == Ended::Crashed {
                component = world.component("orlop", Fair);
            }
        }
    }

    /// Ends the process; it comes back with [`Rig::begin`].
    pub(crate) async fn end(&self) {
        if let Some((stopper, _)) = self.life.lock().expect("nobody panicked with it").take() {
            stopper.stop();
        }
        sleep(Duration::from_secs(1)).await;
    }

    pub(crate) fn begin(&self) {
        *self.life.lock().expect("nobody panicked with it") = Some(Stopper::new());
    }

    /// What a scraper would read.
    pub(crate) fn metrics(&self) -> String {
        self.metrics.lock().expect("nobody panicked with it").as_ref().expect("it runs").encode()
    }

    /// Writes of the process that have this in their line of the journal.
    pub(crate) fn writes(&self, what: &str) -> usize {
        let lines = self.journal.lines();
        lines.iter().filter(|line| line.contains(" orlop ") && line.contains(what)).count()
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

    /// Asks for the end of whatever has the name.
    pub(crate) async fn delete<T: api::Object>(&self, key: &Key) {
        self.client.delete::<T>(key, &Default::default()).await.expect("the server takes it");
    }

    /// A node that works and leaves attaching to the controller.
    pub(crate) async fn node(&self, name: &str) {
        let annotations = json!({annotation::MANAGED_ATTACH.text(): "true"});
        self.create(Kind::NODE, json!({"metadata": {"name": name, "annotations": annotations}})).await;
        self.ready(name, "True").await;
    }

    pub(crate) async fn ready(&self, name: &str, status: &str) {
        let now = self.now();
        let condition = json!({"type": "Ready", "status": status, "lastTransitionTime": now, "reason": "Told"});
        self.patch_status(Kind::NODE, &Key::cluster(name), json!({"conditions": [condition]})).await;
    }

    /// The world's time.
    fn now(&self) -> String {
        let passed = self.began.elapsed().as_secs();
        format!("2027-01-01T{:02}:{:02}:{:02}Z", passed / 3600, passed / 60 % 60, passed % 60)
    }

    /// A claim that is bound to a volume; both are named after the driver's handle.
    pub(crate) async fn volume(&self, handle: &str, mode: &str) {
        self.claim(handle, mode).await;
        self.bind(handle, mode).await;
    }

    pub(crate) async fn claim(&self, handle: &str, mode: &str) {
        let spec = json!({"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}},
                          "storageClassName": "", "volumeName": format!("pv-{handle}")});
        self.create(Kind::CLAIM, json!({"metadata": {"namespace": "default", "name": handle}, "spec": spec})).await;
    }

    pub(crate) async fn bind(&self, handle: &str, mode: &str) {
        let claim = self.get(Kind::CLAIM, &key(handle)).await.expect("it is there");
        let spec = json!({
            "capacity": {"storage": "1Gi"}, "accessModes": [mode], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": DRIVER, "volumeHandle": handle},
            "claimRef": {"namespace": "default", "name": handle, "uid": claim["metadata"]["uid"]},
        });
        self.create(Kind::VOLUME, json!({"metadata": {"name": format!("pv-{handle}")}, "spec": spec})).await;
        self.patch_status(Kind::CLAIM, &key(handle), json!({"phase": "Bound"})).await;
    }

    /// A pod on a node that uses volumes.
    pub(crate) async fn pod(&self, name: &str, node: &str, handles: &[&str]) {
        let volume = |handle: &&str| json!({"name": handle, "persistentVolumeClaim": {"claimName": handle}});
        let volumes: Vec<Value> = handles.iter().map(volume).collect();
        let containers = json!([{"name": "main", "image": "example/main"}]);
        let spec = json!({"nodeName": node, "containers": containers, "volumes": volumes,
                          "terminationGracePeriodSeconds": 0});
        self.create(Kind::POD, json!({"metadata": {"namespace": "default", "name": name}, "spec": spec})).await;
    }

    pub(crate) async fn end_pod(&self, name: &str) {
        self.delete::<Pod>(&key(name)).await;
    }

    pub(crate) async fn attachment(&self, handle: &str, node: &str) -> Option<Value> {
        self.get(Kind::ATTACHMENT, &attachment(handle, node)).await
    }

    pub(crate) async fn told(&self, node: &str) -> Vec<String> {
        let node = self.get(Kind::NODE, &Key::cluster(node)).await.expect("it is there");
        let list = node["status"]["volumesAttached"].as_array().cloned().unwrap_or_default();
        list.iter().map(|held| held["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The messages of events with this reason, in order of their text.
    pub(crate) async fn events(&self, reason: &str) -> Vec<String> {
        let page = self.client.list::<Value>(Kind::EVENT, &Selection::default(), 0, None).await;
        let events = page.expect("the server lists").items;
        let of_reason = events.iter().filter(|event| event["reason"] == reason);
        let ours = of_reason.filter(|event| event["source"]["component"] == "attachdetach-controller");
        let mut messages: Vec<String> =
            ours.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect();
        messages.sort();
        messages
    }

    pub(crate) async fn until(&self, what: &str, done: impl AsyncFn() -> bool) {
        let wait = async {
            while !done().await {
                sleep(Duration::from_millis(100)).await;
            }
        };
        assert!(timeout(Duration::from_secs(900), wait).await.is_ok(), "never happened: {what}");
    }

    pub(crate) async fn until_mounted(&self, node: &str, handle: &str) {
        self.until(&format!("{handle} is mounted on {node}"), async || self.played.mounted(node, handle)).await;
    }

    pub(crate) async fn until_detached(&self, handle: &str, node: &str) {
        let gone =
            async || self.attachment(handle, node).await.is_none() && !self.told(node).await.contains(&unique(handle));
        self.until(&format!("{handle} leaves {node}"), gone).await;
    }

    /// Gives everybody time.
    pub(crate) async fn quiet(&self, seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
    }

    /// Gives everybody time, and sees that the volume is still attached.
    pub(crate) async fn stays(&self, handle: &str, node: &str, seconds: u64) {
        self.quiet(seconds).await;
        let attachment = self.attachment(handle, node).await.expect("it has to stay");
        assert!(attachment["metadata"]["deletionTimestamp"].is_null(), "{attachment}");
    }

    pub(crate) async fn delete_attachment(&self, handle: &str, node: &str) {
        self.delete::<Attachment>(&attachment(handle, node)).await;
    }
}

pub(crate) fn attachment(handle: &str, node: &str) -> Key {
    Key::cluster(&attachment_name(DRIVER, handle, node))
}

pub(crate) fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}
