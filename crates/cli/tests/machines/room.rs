//! Two machines, their driver, and everybody who works for them.
//!
//! Each room has a driver name, classes, nodes and a namespace of its own, so that rooms on one cluster do not meet.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::CSINode;
use kube::Api;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{Condition, await_condition};
use serde_json::{Value, json};

use super::cast::{Cast, Who, driver_name, orlop};
use super::machine::Machine;
use super::namespace::{self, Namespace};
use super::objects::{self, Wanted};
use super::program::Program;
use crate::api_rig::{Server, ask};
use crate::rig::Scratch;

/// Long enough for a busy machine; nothing is asserted about it.
const PATIENCE: Duration = Duration::from_secs(180);
const ASK_AGAIN: Duration = Duration::from_millis(100);
const MACHINES: usize = 2;

pub(super) struct Room {
    pub(super) client: kube::Client,
    // Dropped in this order: first who works, then what they mounted, then the files.
    programs: Vec<(String, Program)>,
    pub(super) machines: Vec<Machine>,
    pub(super) floor: Namespace,
    _server: Option<Server>,
    kubeconfig: PathBuf,
    pub(super) cast: Cast,
    id: String,
    pub(super) scratch: Scratch,
}

/// Why there are no rooms here.
pub(super) fn missing() -> Option<&'static str> {
    namespace::missing()
}

impl Room {
    /// Everybody works, and the driver is known on both machines.
    pub(super) async fn open() -> Self {
        let scratch = Scratch::new();
        let id = scratch.path("").file_name().unwrap().to_string_lossy().to_lowercase();
        let id: String = id.trim_start_matches("orlop-test-").chars().filter(char::is_ascii_alphanumeric).collect();
        let cast = Cast::given();
        let (server, kubeconfig) = match &cast.kubeconfig {
            Some(file) => (None, file.clone()),
            None => {
                let data = scratch.path("api");
                let mut server = Server::spawn(&data);
                server.address().await;
                (Some(server), data.with_extension("kubeconfig"))
            }
        };
        let client = connect(&kubeconfig).await;
        let floor = Namespace::new();
        let named = (0..MACHINES).map(|number| (format!("m{number}-{id}"), scratch.dir(&format!("m{number}"))));
        let machines = Machine::all(&floor, named.collect());
        scratch.dir("disk");
        let mut room =
            Self { client, programs: Vec::new(), machines, floor, _server: server, kubeconfig, cast, id, scratch };
        room.furnish().await;
        room.start_all();
        room.until_registered().await;
        room
    }

    async fn furnish(&self) {
        self.create("/api/v1/namespaces", &json!({"metadata": {"name": self.namespace()}})).await;
        // The account that pods run under, which a controller makes on a cluster.
        let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", self.namespace());
        let (code, answer) =
            ask(&self.client, ("POST", &accounts), Some(&json!({"metadata": {"name": "default"}}))).await.unwrap();
        assert!(code == 201 || code == 409, "{answer}");
        self.create("/apis/storage.k8s.io/v1/csidrivers", &objects::driver(&self.driver_name())).await;
        for (name, binding) in [(self.class(), "Immediate"), (self.late_class(), "WaitForFirstConsumer")] {
            let class = objects::class(&name, &self.driver_name(), binding);
            self.create("/apis/storage.k8s.io/v1/storageclasses", &class).await;
        }
    }

    fn start_all(&mut self) {
        let (socket, kubeconfig) = (self.scratch.path("csi.sock"), self.kubeconfig.clone());
        let words = self.cast.driver(&self.id, &socket, &self.disk());
        let mut driver = self.floor.command(&words[0]);
        driver.args(&words[1..]);
        self.start("driver", driver);
        for number in 0..MACHINES {
            let machine = &self.machines[number];
            let mut registrar = machine.command(&self.cast.registrar());
            registrar.arg("--csi-address").arg(&socket).arg("--kubelet-registration-path").arg(&socket);
            let registry = machine.root.join("plugins_registry");
            std::fs::create_dir_all(machine.namespace.see(&registry)).unwrap();
            registrar.arg("--plugin-registration-path").arg(&registry);
            let mut agent = machine.command(&[env!("CARGO_BIN_EXE_orlop"), "node", "--log-level", "debug"]);
            agent.args(["--node-name", &machine.name, "--root-dir"]).arg(&machine.root);
            agent.arg("--kubeconfig").arg(&kubeconfig);
            self.start(&format!("registrar{number}"), registrar);
            self.start(&format!("agent{number}"), agent);
        }
        for (name, command) in self.cast.sidecars(&kubeconfig, &socket) {
            self.start(name, command);
        }
        self.start("controllers", self.cast.controllers(&kubeconfig));
        if self.cast.scheduler == Who::Ours {
            self.start("scheduler", orlop("scheduler", &kubeconfig));
        }
    }

    fn start(&mut self, name: &str, command: Command) {
        self.programs.push((name.to_owned(), Program::launch(&self.scratch.path(""), name, command)));
    }

    async fn until_registered(&self) {
        let name = self.driver_name();
        for machine in &self.machines {
            let listed = |node: Option<&CSINode>| {
                node.is_some_and(|node| node.spec.drivers.iter().any(|driver| driver.name == name))
            };
            let nodes: Api<CSINode> = Api::all(self.client.clone());
            self.until(nodes, &machine.name, "host of the driver", listed).await;
        }
    }

    pub(super) fn driver_name(&self) -> String {
        driver_name(&self.id)
    }

    pub(super) fn namespace(&self) -> String {
        format!("room-{}", self.id)
    }

    fn class(&self) -> String {
        format!("now-{}", self.id)
    }

    pub(super) fn late_class(&self) -> String {
        format!("late-{}", self.id)
    }

    /// Where the driver keeps what it has.
    pub(super) fn disk(&self) -> PathBuf {
        self.scratch.path("disk")
    }

    pub(super) fn pods_path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace())
    }

    pub(super) fn claims_path(&self) -> String {
        format!("/api/v1/namespaces/{}/persistentvolumeclaims", self.namespace())
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace())
    }

    pub(super) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &self.namespace())
    }

    pub(super) async fn claim(&self, name: &str, wanted: Wanted) {
        self.claim_of(&self.class(), name, wanted).await;
    }

    pub(super) async fn claim_of(&self, class: &str, name: &str, wanted: Wanted) {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": objects::claim_spec(class, wanted)});
        self.create(&self.claims_path(), &claim).await;
    }

    /// The spec of a claim that a pod brings with itself.
    pub(super) fn spec_of_claim(&self, wanted: Wanted) -> Value {
        objects::claim_spec(&self.class(), wanted)
    }

    pub(super) async fn pod(&self, pod: &Value) {
        self.create(&self.pods_path(), pod).await;
    }

    /// Waits until a pod has its volumes. Gives it and the machine it is on.
    pub(super) async fn ready(&self, name: &str) -> (Pod, &Machine) {
        let is = |pod: Option<&Pod>| pod.is_some_and(objects::is_ready);
        let pod = self.until(self.pods(), name, "ready", is).await.unwrap();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let machine = self.machines.iter().find(|machine| Some(machine.name.as_str()) == node);
        (pod, machine.expect("it is on one of the machines"))
    }

    /// The volume that a claim is bound to.
    pub(super) async fn volume_of(&self, claim: &str) -> PersistentVolume {
        let claim = self.claims().get(claim).await.unwrap();
        let volume = claim.spec.unwrap().volume_name.expect("it is bound");
        Api::all(self.client.clone()).get(&volume).await.unwrap()
    }

    /// Whether the agent says that it uses a volume, and whether it is told that the volume is attached.
    pub(super) async fn handshake(&self, machine: &Machine, volume: &PersistentVolume) -> (bool, bool) {
        let csi = volume.spec.as_ref().unwrap().csi.as_ref().unwrap();
        let name = format!("{}/{}^{}", api::keys::plugin::CSI, csi.driver, csi.volume_handle);
        let node: Node = Api::all(self.client.clone()).get(&machine.name).await.unwrap();
        let status = node.status.unwrap_or_default();
        let used = status.volumes_in_use.unwrap_or_default().contains(&name);
        (used, status.volumes_attached.unwrap_or_default().iter().any(|volume| volume.name == name))
    }

    /// Deletes a pod and waits until it is gone.
    pub(super) async fn delete_pod(&self, name: &str) {
        self.change("DELETE", &format!("{}/{name}", self.pods_path()), &json!({})).await;
        self.until(self.pods(), name, "gone", |pod: Option<&Pod>| pod.is_none()).await;
    }

    pub(super) async fn delete_claim(&self, name: &str) {
        self.change("DELETE", &format!("{}/{name}", self.claims_path()), &json!({})).await;
    }

    /// Deletes a claim that its pod leaves behind, as whoever collects garbage on a cluster does.
    pub(super) async fn collect(&self, name: &str, owner: &Pod) {
        if let Some(claim) = self.claims().get_opt(name).await.unwrap() {
            let owners = claim.metadata.owner_references.unwrap_or_default();
            assert!(owners.iter().any(|one| Some(&one.uid) == owner.metadata.uid.as_ref()), "{owners:?}");
            let path = format!("{}/{name}", self.claims_path());
            let (code, answer) = ask(&self.client, ("DELETE", &path), Some(&json!({}))).await.unwrap();
            assert!(matches!(code, 200 | 202 | 404), "{answer}");
        }
    }

    pub(super) async fn list(&self, path: &str) -> Vec<Value> {
        self.change("GET", path, &Value::Null).await["items"].as_array().expect("a list has items").clone()
    }

    async fn create(&self, path: &str, body: &Value) {
        self.change("POST", path, body).await;
    }

    /// A request that must succeed.
    pub(super) async fn change(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = (!body.is_null()).then_some(body);
        let (code, answer) = ask(&self.client, (method, path), body).await.unwrap();
        assert!((200..300).contains(&code), "{method} {path}: {code} {answer}");
        answer
    }

    /// Waits until a condition holds; fails with what is there instead.
    pub(super) async fn until<K>(&self, api: Api<K>, name: &str, what: &str, condition: impl Condition<K>) -> Option<K>
    where
        K: kube::Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + serde::Serialize + 'static,
    {
        match tokio::time::timeout(PATIENCE, await_condition(api.clone(), name, condition)).await {
            Ok(reached) => reached.unwrap(),
            Err(_) => {
                let now = api.get_opt(name).await.unwrap().map(|object| serde_json::to_string_pretty(&object).unwrap());
                let now = now.unwrap_or("it is gone".into());
                panic!("{name} is not {what} after {PATIENCE:?}:\n{now}\n{}", self.events(name).await.join("\n"));
            }
        }
    }

    /// Waits for an event about a pod. Gives its message.
    pub(super) async fn event(&self, name: &str, reason: &str) -> String {
        let waits = async {
            loop {
                let told = self.events(name).await;
                if let Some(found) = told.into_iter().find(|told| told.starts_with(&format!("{reason}: "))) {
                    return found;
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        };
        match tokio::time::timeout(PATIENCE, waits).await {
            Ok(found) => found,
            Err(_) => panic!("no event {reason} about {name}: {:?}", self.events(name).await),
        }
    }

    async fn events(&self, name: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace());
        let listed = events.list(&ListParams::default()).await.unwrap();
        let about = listed.items.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
        about
            .map(|event| format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default()))
            .collect()
    }

    /// What `orlop csi list` says.
    pub(super) fn listed_by_driver(&self) -> Vec<Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(["csi", "-o", "json", "--endpoint"]).arg(self.scratch.path("csi.sock")).arg("list");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        listed["entries"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until nothing is left of pods and claims, ends the programs as an orchestrator would, and takes away what a shared
    /// cluster would keep. Nothing tells when a mount table or a driver's list changes, so they are asked.
    pub(super) async fn close(mut self) {
        let gone = async {
            while !self.left().await.is_empty() {
                tokio::time::sleep(ASK_AGAIN).await;
            }
        };
        if tokio::time::timeout(PATIENCE, gone).await.is_err() {
            panic!("left after {PATIENCE:?}:\n{}", self.left().await.join("\n"));
        }
        for (name, program) in std::mem::take(&mut self.programs).into_iter().rev() {
            if self.cast.is_ours(&name) {
                program.stop();
            }
        }
        let mut paths = vec![
            format!("/apis/storage.k8s.io/v1/storageclasses/{}", self.class()),
            format!("/apis/storage.k8s.io/v1/storageclasses/{}", self.late_class()),
            format!("/apis/storage.k8s.io/v1/csidrivers/{}", self.driver_name()),
            format!("/api/v1/namespaces/{}", self.namespace()),
        ];
        for machine in &self.machines {
            paths.push(format!("/apis/storage.k8s.io/v1/csinodes/{}", machine.name));
            paths.push(format!("/api/v1/nodes/{}", machine.name));
        }
        for path in paths {
            self.change("DELETE", &path, &json!({})).await;
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.programs.clear();
        self.machines.clear();
        // Mounts go with their namespaces, the last of which is the floor; a device without a mount would stay.
        self.floor.end();
        for (device, _) in crate::rig::left::loops_on(&self.scratch.path("")) {
            drop(Command::new("losetup").args(["--detach", &device]).output());
        }
    }
}

/// A client of whatever the kubeconfig names.
async fn connect(kubeconfig: &Path) -> kube::Client {
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    (config.proxy_url, config.read_timeout) = (None, None);
    kube::Client::try_from(config).unwrap()
}
