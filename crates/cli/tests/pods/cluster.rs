//! The programs of a small cluster, each of which can be killed and started again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::namespace::{Namespace, mortal};
use super::objects;
use super::program::Program;
use crate::api_rig::{Server, ask, client};
use crate::rig::Scratch;

/// Long enough for a busy machine; nothing is asserted about it.
pub(super) const PATIENCE: Duration = Duration::from_secs(240);
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A program of the cluster; the number is that of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Api,
    Controllers,
    Driver(usize),
    Sidecar(usize),
    Registrar(usize),
    Agent(usize),
}

impl Role {
    pub(super) fn all(nodes: usize) -> Vec<Role> {
        let of_node = |node| [Role::Driver(node), Role::Sidecar(node), Role::Registrar(node), Role::Agent(node)];
        [Role::Api, Role::Controllers].into_iter().chain((0..nodes).flat_map(of_node)).collect()
    }
}

/// A machine: what it mounts is its own.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) namespace: Namespace,
    pub(super) root: PathBuf,
    pub(super) pool: PathBuf,
    pub(super) socket: PathBuf,
}

impl Node {
    fn new(scratch: &Scratch, number: usize) -> Self {
        let name = format!("n{number}");
        let (root, pool) = (scratch.dir(&format!("{name}/root")), scratch.dir(&format!("{name}/pool")));
        scratch.dir(&format!("{name}/root/plugins_registry"));
        Self { namespace: Namespace::new(), root, pool, socket: scratch.path(&name).join("csi.sock"), name }
    }

    pub(super) fn driver_name(&self) -> String {
        format!("{}.csi.orlop.dev", self.name)
    }

    /// Releases loop devices of a pool that only this machine sees.
    fn detach_loops(&self) {
        let script = "losetup -nl -O NAME,BACK-FILE | while read -r name file; do \
                          case $file in \"$0\"/*) losetup -d \"$name\" ;; esac; \
                      done";
        drop(self.namespace.command("sh").args(["-c", script]).arg(&self.pool).output());
    }

    /// Where the agent mounts a pod's volume.
    pub(super) fn target(&self, pod_uid: &str, volume: &str) -> PathBuf {
        self.root.join("pods").join(pod_uid).join("volumes/kubernetes.io~csi").join(volume).join("mount")
    }
}

pub(super) struct Cluster {
    pub(super) client: kube::Client,
    // Fields are dropped in this order: first the programs, then what they mounted, then the files.
    programs: BTreeMap<Role, Program>,
    pub(super) nodes: Vec<Node>,
    address: String,
    pub(super) scratch: Scratch,
}

impl Cluster {
    /// All programs run.
    pub(super) async fn start(nodes: usize) -> Self {
        Self::start_on(nodes, |_, _| {}).await
    }

    /// The same on machines that were prepared first.
    pub(super) async fn start_on(nodes: usize, prepare: impl Fn(&Scratch, &Node)) -> Self {
        let scratch = Scratch::new();
        let data = scratch.path("api");
        // The first server finds a free port, which all later ones keep.
        let mut server = Server::spawn(&data);
        let address = server.address().await;
        server.stop();
        let client = client(&data.with_extension("kubeconfig"), &address).await;
        let machines: Vec<Node> = (0..nodes).map(|number| Node::new(&scratch, number)).collect();
        machines.iter().for_each(|machine| prepare(&scratch, machine));
        let mut cluster = Self { client, programs: BTreeMap::new(), nodes: machines, address, scratch };
        for role in Role::all(nodes) {
            cluster.launch(role);
        }
        for node in &cluster.nodes {
            let class = objects::class(node);
            cluster.say(("POST", "/apis/storage.k8s.io/v1/storageclasses"), Some(&class)).await;
        }
        cluster
    }

    /// SIGKILL.
    pub(super) fn stop(&mut self, role: Role) {
        drop(self.programs.remove(&role));
    }

    pub(super) fn launch(&mut self, role: Role) {
        let name = format!("{role:?}").to_lowercase();
        let command = self.command(role);
        self.programs.insert(role, Program::launch(&self.scratch.path(""), &name, command));
    }

    /// Starts a program again with more flags.
    pub(super) fn launch_with(&mut self, role: Role, words: &[&str]) {
        self.stop(role);
        let name = format!("{role:?}").to_lowercase();
        let mut command = self.command(role);
        command.args(words);
        self.programs.insert(role, Program::launch(&self.scratch.path(""), &name, command));
    }

    fn command(&self, role: Role) -> Command {
        let kubeconfig = self.kubeconfig();
        let orlop = |words: &[&str]| {
            let mut command = mortal(env!("CARGO_BIN_EXE_orlop"));
            command.args(words);
            command
        };
        match role {
            Role::Api => {
                let mut command = orlop(&["api", "--listen", &self.address, "--data"]);
                command.arg(self.scratch.path("api")).arg("--write-kubeconfig").arg(kubeconfig);
                command
            }
            Role::Controllers => {
                let mut command = orlop(&["controllers", "--log-level", "debug", "--kubeconfig"]);
                command.arg(kubeconfig);
                command
            }
            Role::Sidecar(node) => {
                let mut command = orlop(&["sidecar", "--log-level", "debug", "--retry-interval-start", "100ms"]);
                command.args(["--retry-interval-max", "2s", "--kubeconfig"]).arg(kubeconfig);
                command.arg("--csi-address").arg(&self.nodes[node].socket);
                command
            }
            Role::Driver(node) | Role::Registrar(node) | Role::Agent(node) => self.inside(role, &self.nodes[node]),
        }
    }

    /// Programs that share the node's mounts.
    fn inside(&self, role: Role, node: &Node) -> Command {
        let mut command = node.namespace.command(env!("CARGO_BIN_EXE_orlop"));
        match role {
            Role::Driver(_) => {
                command.args(["driver", "--driver-name", &node.driver_name(), "--node-id", &node.name, "--pool"]);
                command.arg(&node.pool).arg("--endpoint").arg(format!("unix://{}", node.socket.display()));
            }
            Role::Registrar(_) => {
                command.arg("registrar").arg("--csi-address").arg(&node.socket);
                command.arg("--kubelet-registration-path").arg(&node.socket);
                command.arg("--plugin-registration-path").arg(node.root.join("plugins_registry"));
            }
            _ => {
                command.args(["node", "--node-name", &node.name, "--root-dir"]).arg(&node.root);
                command.arg("--kubeconfig").arg(self.kubeconfig());
            }
        }
        command.args(["--log-level", "debug"]);
        command
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.scratch.path("api.kubeconfig")
    }

    /// SIGKILL, and a new one at once.
    pub(super) fn kill(&mut self, role: Role) {
        self.programs.get_mut(&role).expect("it was started").kill();
        self.launch(role);
    }

    /// Starts those again that ended by themselves, as whoever runs them does. Gives how.
    pub(super) fn revive(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        for (role, program) in &mut self.programs {
            if let Some(status) = program.ended() {
                found.push((*role, status));
            }
        }
        for (role, _) in &found {
            self.launch(*role);
        }
        found.iter().map(|(role, status)| format!("{role:?}: {status}")).collect()
    }

    /// A request, again and again while nobody answers.
    pub(super) async fn say(&self, what: (&str, &str), body: Option<&Value>) -> (u16, Value) {
        let answered = async {
            loop {
                match ask(&self.client, what, body).await {
                    Ok((code, answer)) if code < 500 && code != 429 => return (code, answer),
                    _ => tokio::time::sleep(ASK_AGAIN).await,
                }
            }
        };
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(answer) => answer,
            Err(_) => panic!("nobody answers {what:?}"),
        }
    }

    pub(super) async fn list(&self, path: &str) -> Vec<Value> {
        let (code, list) = self.say(("GET", path), None).await;
        assert_eq!(code, 200, "{list}");
        list["items"].as_array().expect("a list has items").clone()
    }

    /// Makes an object. It may be there already, by an answer that was lost.
    pub(super) async fn create(&self, path: &str, body: &Value) {
        let (code, answer) = self.say(("POST", path), Some(body)).await;
        assert!(code == 201 || code == 409, "{answer}");
    }

    /// Deletes an object. It may be gone already.
    pub(super) async fn delete(&self, path: &str) {
        let (code, answer) = self.say(("DELETE", path), None).await;
        assert!(matches!(code, 200 | 202 | 404), "{answer}");
    }

    /// Waits until nothing is missing. What is missing is told by `missing`, and printed with what everybody says of it when
    /// it stays so.
    pub(super) async fn until(&mut self, what: &str, missing: impl AsyncFn(&Cluster) -> Vec<String>) {
        let started = tokio::time::Instant::now();
        loop {
            let left = missing(self).await;
            if left.is_empty() {
                println!("{what} after {:?}", started.elapsed());
                return;
            }
            if started.elapsed() > PATIENCE {
                panic!("not so after {PATIENCE:?}: {what}\n{}\n{}", left.join("\n"), self.account().await);
            }
            for ended in self.revive() {
                println!("ended by itself: {ended}");
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Who waits for what.
    pub(super) async fn account(&self) -> String {
        let mut told = Vec::new();
        for pod in self.list(objects::PODS).await {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            told.push(format!("pod {name}: {}", pod["status"]["conditions"]));
            told.push(self.explain(&format!("pod/{name}")));
        }
        for path in [objects::CLAIMS, objects::VOLUMES, objects::ATTACHMENTS] {
            for object in self.list(path).await {
                told.push(format!("{path}: {} {}", object["metadata"], object["status"]));
            }
        }
        for event in self.list("/api/v1/events").await {
            told.push(format!("event {}: {}", event["reason"], event["message"]));
        }
        told.join("\n")
    }

    /// What `orlop explain` says.
    pub(super) fn explain(&self, what: &str) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        let output = command.args(["explain", what, "--kubeconfig"]).arg(self.kubeconfig()).output().unwrap();
        let (said, warned) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        format!("{said}{warned}")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.programs.clear();
        self.nodes.iter().for_each(Node::detach_loops);
        let pools: Vec<PathBuf> = self.nodes.drain(..).map(|node| node.pool).collect();
        // Mounts went with their namespaces; a device without one stays.
        for pool in pools {
            crate::rig::detach_loops(&pool);
        }
    }
}
