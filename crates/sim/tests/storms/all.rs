//! A world with one process that has all controllers, a user, and an hour of bad answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::Kind;
use api::keys::annotation;
use control::attach::{self, Attachments};
use control::bind::{self, Binder};
use control::ephemeral::{self, Ephemeral};
use control::protect::{self, Protector};
use control::provision::{self, Engine};
use control::schedule::{self, Scheduler};
use futures_util::future::join_all;
use runtime::client::Selection;
use runtime::{Client, Stop};
use serde_json::{Value, json};
use sim::faults::{Ask, Fair, Fate, Refusal, Verdict};
use sim::{Process, Seed, Setup, World, simulate};
use tokio::time::sleep;

use crate::storage::{DRIVER, Storage};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const CALM: Duration = Duration::from_secs(120);

/// Which requests meet the bad answer, while the storm lasts.
pub(crate) type Hit = fn(&Ask<'_>) -> bool;

/// How often a request was made during the storm, by method and path without its query.
pub(crate) type Asked = BTreeMap<String, u64>;

pub(crate) struct User {
    client: Client,
}

/// Plays two minutes of calm, an hour in which `hit` requests get this answer, and ten minutes of calm. Gives what the process
/// asked for in the storm, and the events at its end as `name reason: message`.
pub(crate) fn storm(refusal: Refusal, hit: Hit) -> (Asked, Vec<String>) {
    let seed = Seed(11);
    println!("seed {seed}, {refusal}");
    let play = async |world: World| {
        let desk = world.component("user", Fair);
        let user = User { client: Process::new(&world, &desk, 0).context.client };
        let (raging, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Asked::new())));
        let (rages, counts) = (raging.clone(), asked.clone());
        let script = move |ask: &Ask<'_>| -> Verdict {
            if !rages.load(Ordering::Relaxed) {
                return Fate::Answered.into();
            }
            *counts.lock().expect("nobody panicked").entry(format!("{} {}", ask.method, ask.path)).or_default() += 1;
            if hit(ask) { Fate::Refused(refusal).into() } else { Fate::Answered.into() }
        };
        let component = world.component("orlop", script);
        let process = Process::new(&world, &component, 1);
        let context = process.context.clone();
        let stop = Stop::never();
        let work = async {
            let binder = Binder::new(&context, bind::Options::default());
            let protector = Protector::new(&context, protect::Options::default());
            let ephemeral = Ephemeral::new(&context, ephemeral::Options::default());
            let attachments = Attachments::new(&context, attach::Options::default());
            let scheduler = Scheduler::new(&context, schedule::Options::default());
            let storage = Arc::new(Storage::new(world.journal()));
            let engine = Engine::new(&context, storage, provision::Options::new("fake_host_1", "default"));
            let parts: [std::pin::Pin<Box<dyn Future<Output = ()> + '_>>; 6] = [
                Box::pin(binder.run(&stop)),
                Box::pin(protector.run(&stop)),
                Box::pin(ephemeral.run(&stop)),
                Box::pin(attachments.run(&stop)),
                Box::pin(scheduler.run(&stop)),
                Box::pin(engine.run(&stop)),
            ];
            join_all(parts).await;
        };
        let days = async {
            user.before().await;
            sleep(CALM).await;
            raging.store(true, Ordering::Relaxed);
            user.meanwhile().await;
            sleep(HOUR).await;
            raging.store(false, Ordering::Relaxed);
            let events = user.events().await;
            sleep(Duration::from_secs(600)).await;
            user.everything_is_well().await;
            events
        };
        let events = tokio::select! {
            biased;
            _ = component.run(Box::pin(process.run(&stop, work))) => unreachable!("nobody stops the process"),
            events = days => events,
        };
        let asked = asked.lock().expect("nobody panicked").clone();
        (asked, events)
    };
    simulate(seed, Setup::default(), play).expect("a world can be made")
}

impl User {
    async fn make(&self, kind: Kind, namespace: Option<&str>, mut body: Value) {
        body["apiVersion"] = kind.api_version().into();
        body["kind"] = kind.kind.into();
        self.client.create::<Value>(kind, namespace, &body).await.unwrap_or_else(|error| panic!("{error}: {body}"));
    }

    async fn claim(&self, name: &str, class: &str, annotations: Value) {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}}});
        let metadata = json!({"name": name, "namespace": "default", "annotations": annotations});
        self.make(Kind::CLAIM, Some("default"), json!({"metadata": metadata, "spec": spec})).await;
    }

    async fn volume(&self, name: &str) {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "disk.example.com", "volumeHandle": name}});
        self.make(Kind::VOLUME, None, json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    async fn pod(&self, name: &str, node: Option<&str>, volume: Value) {
        let spec = json!({"nodeName": node, "containers": [{"name": "main", "image": "example/main"}],
            "volumes": [volume], "terminationGracePeriodSeconds": 0});
        let metadata = json!({"name": name, "namespace": "default"});
        self.make(Kind::POD, Some("default"), json!({"metadata": metadata, "spec": spec})).await;
    }

    /// A node, a claim with its volume, and classes.
    async fn before(&self) {
        let managed = json!({annotation::MANAGED_ATTACH.text(): "true"});
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let node = json!({"metadata": {"name": "node", "annotations": managed}, "status": ready});
        self.make(Kind::NODE, None, node).await;
        let drivers = json!([{"name": "disk.example.com", "nodeID": "node"}]);
        self.make(Kind::CSI_NODE, None, json!({"metadata": {"name": "node"}, "spec": {"drivers": drivers}})).await;
        for (name, mode) in [("fast", "Immediate"), ("late", "WaitForFirstConsumer")] {
            let class = json!({"metadata": {"name": name}, "provisioner": DRIVER, "volumeBindingMode": mode});
            self.make(Kind::STORAGE_CLASS, None, class).await;
        }
        self.volume("bound").await;
        self.claim("bound", "", json!({})).await;
    }

    /// Work for every controller.
    async fn meanwhile(&self) {
        self.volume("static").await;
        self.claim("static", "", json!({})).await;
        self.claim("dynamic", "fast", json!({annotation::STORAGE_PROVISIONER.text(): DRIVER})).await;
        self.claim("late", "late", json!({})).await;
        let claim = |name: &str| json!({"name": "data", "persistentVolumeClaim": {"claimName": name}});
        self.pod("attached", Some("node"), claim("bound")).await;
        self.pod("placed", None, claim("late")).await;
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let scratch = json!({"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}});
        self.pod("scratch", Some("node"), scratch).await;
        self.make(
            Kind::CLAIM,
            Some("default"),
            json!({"metadata": {"name": "going", "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
                "resources": {"requests": {"storage": "9Ti"}}}}),
        )
        .await;
        let key = api::Key::namespaced("default", "going");
        self.client.delete::<api::Claim>(&key, &Default::default()).await.expect("it can be deleted");
    }

    async fn events(&self) -> Vec<String> {
        let events = self.client.list::<Value>(Kind::EVENT, &Selection::default(), 0, None).await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let line = |event: &Value| {
            let name = text(&event["involvedObject"]["name"]);
            format!("{name} {}: {}", text(&event["reason"]), text(&event["message"]))
        };
        events.expect("events can be listed").items.iter().map(line).collect()
    }

    /// After the storm everything goes on by itself.
    async fn everything_is_well(&self) {
        for name in ["static", "dynamic", "late"] {
            let claim = self.client.get::<Value>(Kind::CLAIM, &api::Key::namespaced("default", name)).await;
            let claim = claim.expect("the claim is there");
            assert_eq!(claim["status"]["phase"], "Bound", "{claim:#}");
        }
        let made = self.client.get::<Value>(Kind::CLAIM, &api::Key::namespaced("default", "scratch-data")).await;
        made.expect("the ephemeral claim is there");
        let attachments = self.client.list::<Value>(Kind::ATTACHMENT, &Selection::default(), 0, None).await;
        assert_eq!(attachments.expect("attachments can be listed").items.len(), 1);
    }
}
