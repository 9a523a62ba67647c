//! The agent's registry on real sockets, with registrars of any make: NODE-3, NODE-4, NODE-31.14, NODE-32.1 to
//! NODE-32.3.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use lifecycle::registration::lease::AgentIdentity;
use node::drivers::Drivers;
use node::registry::machine::{self, Machine};
use node::registry::{self, DIRECTORY, Registry};
use runtime::time::SystemClock;
use runtime::{Caches, Client, Clock, Context, Entropy, Metrics, Stop, client, events};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::program::{Program, get};
use crate::api_rig::{Server, ask, client as connect};
use crate::rig::{Driver, Options, Scratch, skip};

const NAME: &str = "local.csi.orlop.dev";
const NODE: &str = "node-1";
const CSI_NODE: &str = "/apis/storage.k8s.io/v1/csinodes/node-1";

/// A machine without kubelet: an API server, and the part of an agent that registers drivers.
struct Agent {
    scratch: Scratch,
    _server: Server,
    kubeconfig: PathBuf,
    client: kube::Client,
    drivers: Drivers,
    metrics: Metrics,
    task: JoinHandle<()>,
}

impl Agent {
    async fn start() -> Self {
        let scratch = Scratch::new();
        scratch.plain_pool();
        let mut server = Server::spawn(&scratch.path("api"));
        let address = server.address().await;
        let kubeconfig = scratch.path("api.kubeconfig");
        let client = connect(&kubeconfig, &address).await;
        let (drivers, context) = (Drivers::default(), context(&client));
        let task = tokio::spawn(live(context.clone(), drivers.clone(), scratch.path("root")));
        let metrics = context.metrics;
        Self { scratch, _server: server, kubeconfig, client, drivers, metrics, task }
    }

    /// Another life of the agent on the same machine; the one before it was killed.
    async fn restart(&mut self) {
        self.task.abort();
        // It renews no lease after this.
        let _ = (&mut self.task).await;
        let context = context(&self.client);
        self.drivers = Drivers::default();
        self.metrics = context.metrics.clone();
        self.task = tokio::spawn(live(context, self.drivers.clone(), self.scratch.path("root")));
    }

    fn directory(&self) -> PathBuf {
        self.scratch.path("root").join(DIRECTORY)
    }

    async fn get(&self, path: &str) -> Value {
        ask(&self.client, ("GET", path), None).await.expect("the server answers").1
    }

    /// Waits until the drivers that operations can use are these.
    async fn has(&self, wanted: &[&str]) {
        let mut changes = self.drivers.changes();
        while self.drivers.names() != wanted {
            changes.changed().await.expect("the table lives");
        }
    }

    /// Waits until CSINode lists these drivers.
    async fn lists(&self, wanted: &[&str]) {
        loop {
            let csi_node = self.get(CSI_NODE).await;
            let drivers = csi_node["spec"]["drivers"].as_array().cloned().unwrap_or_default();
            let names = drivers.iter().map(|driver| driver["name"].as_str().unwrap_or_default());
            if csi_node["kind"] == "CSINode" && names.eq(wanted.iter().copied()) {
                return;
            }
            // The server is asked again when it has answered others.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn context(client: &kube::Client) -> Context {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (metrics, entropy) = (Metrics::new(&*clock), Entropy::from_system());
    let client = Client::new(client.clone(), client::Options::default(), &metrics, &entropy);
    let caches = Caches::new(&client, &entropy);
    let (recorder, _) = events::channel("agent", NODE, clock.clone(), &metrics, &entropy);
    Context { client, caches, recorder, metrics, entropy, clock, handoff: Default::default() }
}

/// What `orlop node` does for registration.
async fn live(context: Context, drivers: Drivers, root: PathBuf) {
    registry::narrow(&context.caches, NODE);
    let options = registry::Options { grace: Duration::from_secs(2), ..registry::Options::new(NODE, &root) };
    let registry = Registry::new(&context, drivers, options);
    let place = "this-host".to_owned();
    let identity = AgentIdentity { place, machine: "machine".to_owned(), boot: "boot".to_owned() };
    let machine = Machine::new(&context, machine::Options::new(NODE, identity), registry.readiness());
    let stop = Stop::never();
    tokio::select! {
        () = context.caches.run(&stop) => {}
        () = registry.run(&stop) => {}
        kept = machine.run(&stop) => kept.expect("nobody else keeps the node"),
    }
}

fn offer(driver: &Path, directory: &Path) -> Vec<String> {
    let socket = driver.to_str().unwrap();
    [
        "--csi-address",
        socket,
        "--kubelet-registration-path",
        socket,
        "--plugin-registration-path",
        directory.to_str().unwrap(),
    ]
    .map(str::to_owned)
    .to_vec()
}

fn registrar(agent: &Agent, driver: &Driver, more: &[&str]) -> Program {
    let args = offer(&driver.socket, &agent.directory());
    let args: Vec<&str> = ["registrar"].into_iter().chain(args.iter().map(String::as_str)).collect();
    Program::orlop(&[&args[..], more].concat())
}

const REGISTERED: &str = "the driver is registered";

/// Rules: NODE-32.1, NODE-32.3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_is_registered_survives_everything_and_leaves() {
    let mut agent = Agent::start().await;
    let driver = Driver::start(&agent.scratch, &Options::default());
    let mut registrar = registrar(&agent, &driver, &[]);
    registrar.says(REGISTERED, 1).await;
    agent.has(&[NAME]).await;
    let csi_node = agent.get(CSI_NODE).await;
    assert_eq!(csi_node["spec"]["drivers"][0]["name"], NAME);
    let node = agent.get("/api/v1/nodes/node-1").await;
    let ids =
        node["metadata"]["annotations"][api::keys::annotation::NODE_IDS.text()].as_str().unwrap_or_default().to_owned();
    assert_eq!(ids, format!(r#"{{"{NAME}":"{}"}}"#, crate::rig::NODE));
    let shown = agent.metrics.encode();
    assert!(shown.contains("plugin_manager_total_plugins{socket_path="), "{shown}");
    // The socket is removed under it.
    std::fs::remove_file(agent.directory().join(format!("{NAME}-reg.sock"))).unwrap();
    registrar.says(REGISTERED, 2).await;
    // The registrar is killed and comes back.
    registrar.kill();
    let mut registrar = self::registrar(&agent, &driver, &[]);
    registrar.says(REGISTERED, 1).await;
    // The agent is killed and comes back.
    agent.restart().await;
    registrar.says(REGISTERED, 2).await;
    agent.has(&[NAME]).await;
    // All three leave.
    registrar.signal(Signal::TERM);
    assert_eq!(registrar.ended().await.0, Some(0));
    agent.has(&[]).await;
    agent.lists(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registrar_takes_the_startup_taint_off_once_the_driver_is_listed() {
    let agent = Agent::start().await;
    agent.lists(&[]).await;
    let taints = json!({"spec": {"taints": [{"key": "local/starting", "effect": "NoExecute"}]}});
    let (code, node) = ask(&agent.client, ("PATCH", "/api/v1/nodes/node-1"), Some(&taints)).await.unwrap();
    assert_eq!(code, 200, "{node}");
    let driver = Driver::start(&agent.scratch, &Options::default());
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.arg("registrar").args(offer(&driver.socket, &agent.directory())).arg("--kubeconfig").arg(&agent.kubeconfig);
    command.args(["--startup-taint", "local/starting"]).env("NODE_NAME", NODE);
    let mut registrar = Program::start(command);
    registrar.says("startup taints are off", 1).await;
    let node = agent.get("/api/v1/nodes/node-1").await;
    assert!(!node["spec"]["taints"].to_string().contains("local/starting"), "{}", node["spec"]);
    registrar.signal(Signal::TERM);
    assert_eq!(registrar.ended().await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sidecar_registers_and_probes_the_driver_in_the_same_process() {
    let agent = Agent::start().await;
    let driver = Driver::start(&agent.scratch, &Options::default());
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.arg("sidecar").args(offer(&driver.socket, &agent.directory())).arg("--kubeconfig").arg(&agent.kubeconfig);
    command.args(["--http-endpoint", "127.0.0.1:0", "--liveness-endpoint", "127.0.0.1:0"]);
    let mut sidecar = Program::start(command);
    sidecar.says(REGISTERED, 1).await;
    sidecar.says("answering metrics and health", 1).await;
    let log = sidecar.log();
    let addresses: Vec<String> = log
        .split("=127.0.0.1:")
        .skip(1)
        .map(|rest| format!("127.0.0.1:{}", rest.chars().take_while(char::is_ascii_digit).collect::<String>()))
        .collect();
    assert_eq!(addresses.len(), 2, "{log}");
    assert_eq!(get(&addresses[0], "/healthz").await, (200, "ok".to_owned()));
    assert_eq!(get(&addresses[1], "/healthz/registration").await, (200, "ok".to_owned()));
    sidecar.signal(Signal::TERM);
    assert_eq!(sidecar.ended().await.0, Some(0));
    assert!(!agent.directory().join(format!("{NAME}-reg.sock")).exists());
}

/// With node-driver-registrar itself, which `cargo xtask conformance registration` names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gos_registrar_registers_a_driver_with_our_agent() {
    let Some(program) = std::env::var_os("ORLOP_GO_REGISTRAR") else {
        return skip("gos_registrar", "$ORLOP_GO_REGISTRAR names no csi-node-driver-registrar");
    };
    let agent = Agent::start().await;
    agent.lists(&[]).await;
    let driver = Driver::start(&agent.scratch, &Options::default());
    let start = || {
        let mut command = Command::new(&program);
        command.args(offer(&driver.socket, &agent.directory())).arg("--v=5");
        Program::start(command)
    };
    let mut registrar = start();
    registrar.says("NotifyRegistrationStatus", 1).await;
    agent.has(&[NAME]).await;
    agent.lists(&[NAME]).await;
    registrar.kill();
    let mut registrar = start();
    registrar.says("NotifyRegistrationStatus", 1).await;
    agent.lists(&[NAME]).await;
    registrar.signal(Signal::TERM);
    assert_eq!(registrar.ended().await.0, Some(0));
    agent.has(&[]).await;
    agent.lists(&[]).await;
}
