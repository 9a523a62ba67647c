//! Machines that die, are cut off, come back or stay away: what the node lifecycle controller makes of their leases, and what
//! an operator's word releases. Agents are played; time is the world's.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::keys::{annotation, condition, finalizer, taint};
use api::{Key, Kind, Node};
use control::attach::{self, Attachments};
use control::node_lifecycle::{MachineDriver, NodeLifecycle, Options};
use futures_util::future::join;
use lifecycle::attach::{attachment_name, unique_name};
use runtime::{Client, Patch, Stop};
use serde_json::{Value, json};
use sim::faults::{Action, Ask, Fair, Fate, Fates, Verdict};
use sim::{Ended, Process, Seed, Setup, World, simulate};
use tokio::time::{Instant, sleep, timeout};

const DRIVER: &str = "d.example.com";
const TOPOLOGY: &str = "topology.d.example.com/node";
const SERVER: &str = "server";
const RENEW: Duration = Duration::from_secs(10);

/// A cluster of machines whose agents renew their leases while they live.
struct Site {
    client: Client,
    alive: Arc<Mutex<BTreeSet<String>>>,
    journal: sim::Journal,
}

fn play(fates: impl Fates + 'static, scenario: impl AsyncFnOnce(&Site) + Send) {
    let played = simulate(Seed(1), Setup::default(), async |world: World| {
        let desk = world.component("user", Fair);
        let client = Process::new(&world, &desk, 0).context.client;
        let site = Site { client, alive: Arc::default(), journal: world.journal().clone() };
        for name in [SERVER, "a", "b"] {
            site.machine(name).await;
        }
        tokio::select! {
            biased;
            () = lives(&world, fates) => unreachable!("a process that crashed starts again"),
            () = site.agents() => unreachable!("agents have no end"),
            () = scenario(&site) => {}
        }
    });
    played.expect("a world can be made");
}

/// The process under test: it meets these fates in its first life, and none in the next ones.
async fn lives(world: &World, fates: impl Fates + 'static) {
    let mut component = world.component("orlop", fates);
    for life in 1.. {
        let process = Process::new(world, &component, life);
        let driver =
            MachineDriver { name: DRIVER.to_owned(), topology_key: TOPOLOGY.to_owned(), server: SERVER.to_owned() };
        let options = Options { driver: Some(driver), ..Options::default() };
        let nodes = NodeLifecycle::new(&process.context, &options);
        let attachments = Attachments::new(&process.context, attach::Options::default());
        let stop = Stop::never();
        let work = async { join(nodes.run(&stop), attachments.run(&stop)).await };
        if let Ended::Crashed = component.run(process.run(&Stop::never(), work)).await {
            component = world.component("orlop", Fair);
        }
    }
}

fn lease(node: &str) -> Key {
    Key::namespaced("kube-node-lease", node)
}

fn local(name: &str) -> Key {
    Key::namespaced("default", name)
}

fn ready(node: &Value) -> &Value {
    let conditions = node["status"]["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|one| one["type"] == "Ready")).unwrap_or(&Value::Null)
}

impl Site {
    async fn machine(&self, name: &str) {
        let annotations = json!({annotation::MANAGED_ATTACH.text(): "true"});
        self.create(Kind::NODE, json!({"metadata": {"name": name, "annotations": annotations}})).await;
        let spec =
            json!({"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": "2001-01-01T00:00:00.000000Z"});
        self.create(Kind::LEASE, json!({"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": spec}))
            .await;
        self.alive.lock().expect("nobody panicked with it").insert(name.to_owned());
        self.speak(name, 0).await;
    }

    fn kill(&self, name: &str) {
        self.alive.lock().expect("nobody panicked with it").remove(name);
    }

    fn revive(&self, name: &str) {
        self.alive.lock().expect("nobody panicked with it").insert(name.to_owned());
    }

    /// Every agent renews its lease, and says Ready if its node says something else. Their clocks are decades behind.
    async fn agents(&self) {
        for round in 1_u64.. {
            let alive: Vec<String> = self.alive.lock().expect("nobody panicked with it").iter().cloned().collect();
            for name in alive {
                let renewed =
                    format!("2001-01-01T{:02}:{:02}:{:02}.000000Z", round / 3600, round / 60 % 60, round % 60);
                self.patch(Kind::LEASE, &lease(&name), json!({"spec": {"renewTime": renewed}})).await;
                let node = self.get(Kind::NODE, &Key::cluster(&name)).await;
                if node.is_some_and(|node| ready(&node)["status"] != "True") {
                    self.speak(&name, round).await;
                }
            }
            sleep(RENEW).await;
        }
    }

    async fn speak(&self, name: &str, round: u64) {
        let at = format!("2001-01-01T{:02}:{:02}:{:02}Z", round / 3600, round / 60 % 60, round % 60);
        let condition = json!({"type": "Ready", "status": "True", "reason": "Told", "lastTransitionTime": at});
        self.patch_status(Kind::NODE, &Key::cluster(name), json!({"conditions": [condition]})).await;
    }

    async fn create(&self, kind: Kind, mut body: Value) -> Value {
        body["apiVersion"] = kind.api_version().into();
        body["kind"] = kind.kind.into();
        let namespace = body["metadata"]["namespace"].as_str().map(str::to_owned);
        self.client.create::<Value>(kind, namespace.as_deref(), &body).await.expect("the server takes it")
    }

    async fn patch(&self, kind: Kind, key: &Key, patch: Value) {
        match self.client.patch::<Value>(kind, key, &Patch::Merge(patch)).await {
            Err(error) if !error.is_not_found() => panic!("{error}"),
            Ok(_) | Err(_) => {}
        }
    }

    async fn patch_status(&self, kind: Kind, key: &Key, status: Value) {
        let patch = Patch::Strategic(json!({"status": status}));
        self.client.patch_status::<Value>(kind, key, &patch).await.expect("the server takes it");
    }

    async fn get(&self, kind: Kind, key: &Key) -> Option<Value> {
        match self.client.get::<Value>(kind, key).await {
            Ok(object) => Some(object),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn node(&self, name: &str) -> Value {
        self.get(Kind::NODE, &Key::cluster(name)).await.expect("it is there")
    }

    /// Keys and effects of a node's taints, in order.
    async fn taints(&self, name: &str) -> Vec<String> {
        let taints = self.node(name).await["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let text = |taint: &Value| {
            format!("{}:{}", taint["key"].as_str().unwrap_or_default(), taint["effect"].as_str().unwrap_or_default())
        };
        let mut taints: Vec<String> = taints.iter().map(text).collect();
        taints.sort();
        taints
    }

    /// A pod on a node with a claim whose volume is on the node's own disk.
    async fn pod(&self, node: &str) {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                          "storageClassName": "", "volumeName": "pv-one"});
        let claim =
            self.create(Kind::CLAIM, json!({"metadata": {"namespace": "default", "name": "one"}, "spec": spec}));
        let uid = claim.await["metadata"]["uid"].clone();
        let term = json!({"matchExpressions": [{"key": TOPOLOGY, "operator": "In", "values": [node]}]});
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": DRIVER, "volumeHandle": "one"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "claimRef": {"namespace": "default", "name": "one", "uid": uid}});
        let metadata = json!({"name": "pv-one", "finalizers": [finalizer::EXTERNAL_PROVISIONER.text()],
            "annotations": {annotation::PROVISIONED_BY.text(): DRIVER}});
        self.create(Kind::VOLUME, json!({"metadata": metadata, "spec": spec})).await;
        self.patch_status(Kind::VOLUME, &Key::cluster("pv-one"), json!({"phase": "Bound"})).await;
        self.patch_status(Kind::CLAIM, &local("one"), json!({"phase": "Bound"})).await;
        let spec = json!({"nodeName": node, "containers": [{"name": "main", "image": "example/main"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "one"}}]});
        self.create(Kind::POD, json!({"metadata": {"namespace": "default", "name": "p"}, "spec": spec})).await;
        let conditions = json!([{"type": "Ready", "status": "True"},
            {"type": condition::VOLUMES_READY, "status": "True", "reason": "Mounted"}]);
        self.patch_status(Kind::POD, &local("p"), json!({"phase": "Running", "conditions": conditions})).await;
        let attachment = Key::cluster(&attachment_name(DRIVER, "one", node));
        self.until("it is to be attached", async || self.get(Kind::ATTACHMENT, &attachment).await.is_some()).await;
        self.patch_status(Kind::ATTACHMENT, &attachment, json!({"attached": true})).await;
        let in_use = json!({"volumesInUse": [unique_name(DRIVER, "one")]});
        self.patch_status(Kind::NODE, &Key::cluster(node), in_use).await;
    }

    async fn is_going(&self) -> bool {
        let pod = self.get(Kind::POD, &local("p")).await.expect("it is there");
        pod["metadata"]["deletionTimestamp"].is_string()
    }

    async fn until(&self, what: &str, done: impl AsyncFn() -> bool) {
        let wait = async {
            while !done().await {
                sleep(Duration::from_millis(200)).await;
            }
        };
        assert!(timeout(Duration::from_secs(900), wait).await.is_ok(), "never happened: {what}");
    }

    async fn until_lost(&self, name: &str, taints: &[String]) {
        self.until(&format!("{name} is lost"), async || self.taints(name).await == taints).await;
        let node = self.node(name).await;
        let said = ready(&node);
        assert_eq!((&said["status"], &said["reason"]), (&json!("Unknown"), &json!("NodeStatusUnknown")), "{said}");
        assert!(said["message"].as_str().is_some_and(|text| text.contains("orlop node")), "{said}");
    }

    /// Writes of the process that have this in their line of the journal.
    fn writes(&self, what: &str) -> usize {
        let lines = self.journal.lines();
        lines.iter().filter(|line| line.contains(" orlop ") && line.contains(what)).count()
    }
}

fn unreachable(effects: &[&str]) -> Vec<String> {
    effects.iter().map(|effect| format!("{}:{effect}", taint::UNREACHABLE.text())).collect()
}

/// A machine dies; its pod is evicted and stays, until the two commands of docs/operations.md release what it had.
async fn dies_for_good(site: &Site) {
    site.pod("a").await;
    site.kill("a");
    site.until_lost("a", &unreachable(&["NoExecute", "NoSchedule"])).await;
    let told = async || site.get(Kind::POD, &local("p")).await.is_some_and(|pod| ready(&pod)["status"] == "False");
    site.until("the pod is not ready", told).await;
    site.until("its toleration is over", async || site.is_going().await).await;
    sleep(Duration::from_secs(600)).await;
    let attachment = Key::cluster(&attachment_name(DRIVER, "one", "a"));
    assert!(site.is_going().await, "nobody can confirm its end");
    assert!(site.get(Kind::ATTACHMENT, &attachment).await.is_some(), "silence is no evidence");

    let mut taints = site.node("a").await["spec"]["taints"].as_array().cloned().expect("it has taints");
    taints.push(json!({"key": taint::OUT_OF_SERVICE.text(), "value": "gone", "effect": "NoExecute"}));
    site.patch(Kind::NODE, &Key::cluster("a"), json!({"spec": {"taints": taints}})).await;
    site.until("the pod is gone", async || site.get(Kind::POD, &local("p")).await.is_none()).await;
    site.until("it is detached", async || site.get(Kind::ATTACHMENT, &attachment).await.is_none()).await;
    site.patch_status(Kind::VOLUME, &Key::cluster("pv-one"), json!({"phase": "Released"})).await;
    sleep(Duration::from_secs(600)).await;
    assert!(site.get(Kind::VOLUME, &Key::cluster("pv-one")).await.is_some(), "its machine may delete it yet");

    site.client.delete::<Node>(&Key::cluster("a"), &Default::default()).await.expect("the server takes it");
    // Whoever protects volumes in use does not run here, and keeps its own finalizer on it.
    let forgotten = async || match site.get(Kind::VOLUME, &Key::cluster("pv-one")).await {
        Some(volume) => {
            let ours = finalizer::EXTERNAL_PROVISIONER.text();
            volume["metadata"]["deletionTimestamp"].is_string()
                && !volume["metadata"]["finalizers"].to_string().contains(ours)
        }
        None => true,
    };
    site.until("the volume is forgotten", forgotten).await;
    for name in [SERVER, "b"] {
        assert_eq!(site.taints(name).await, Vec::<String>::new(), "{name} is well");
    }
}

#[test]
fn a_machine_that_dies_is_lost_and_two_commands_release_what_it_had() {
    play(Fair, dies_for_good);
}

#[test]
fn a_machine_that_comes_back_in_time_loses_nothing() {
    play(Fair, async |site: &Site| {
        site.pod("a").await;
        site.kill("a");
        site.until_lost("a", &unreachable(&["NoExecute", "NoSchedule"])).await;
        sleep(Duration::from_secs(200)).await;
        site.revive("a");
        site.until("it is well", async || site.taints("a").await.is_empty()).await;
        assert_eq!(ready(&site.node("a").await)["status"], "True");
        sleep(Duration::from_secs(1000)).await;
        assert!(!site.is_going().await, "the time of its toleration begins again with each loss");
    });
}

#[test]
fn nothing_is_evicted_while_no_machine_at_all_is_heard_of() {
    play(Fair, async |site: &Site| {
        site.pod("a").await;
        for name in [SERVER, "a", "b"] {
            site.kill(name);
        }
        for name in [SERVER, "a", "b"] {
            site.until_lost(name, &unreachable(&["NoSchedule"])).await;
        }
        let written = site.writes("/nodes/");
        assert!(written > 0);
        sleep(Duration::from_secs(4000)).await;
        assert!(!site.is_going().await, "the fault may be on this side");
        assert_eq!(site.writes("/nodes/"), written, "and nothing is written again and again");
        site.revive("b");
        site.until_lost("a", &unreachable(&["NoExecute", "NoSchedule"])).await;
        site.until("its toleration is over", async || site.is_going().await).await;
    });
}

#[test]
fn a_new_process_listens_for_the_whole_time_before_it_calls_a_machine_lost() {
    // The first life ends when it is about to call the machine lost.
    let crash = |ask: &Ask<'_>| match ask.path.ends_with("/nodes/a/status") && ask.action == Action::Update {
        true => Verdict::from(Fate::CrashBefore),
        false => Verdict::from(Fate::Answered),
    };
    play(crash, async |site: &Site| {
        site.kill("a");
        let began = Instant::now();
        site.until_lost("a", &unreachable(&["NoExecute", "NoSchedule"])).await;
        assert!(began.elapsed() >= Duration::from_secs(95), "two lives listened: {:?}", began.elapsed());
    });
}
