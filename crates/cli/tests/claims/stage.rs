//! Everything a scenario needs: an API server, our programs beside it, and a driver on a pool of its own.
//!
//! Each stage has a driver name, a class, a node and a namespace of its own, so that stages on one server do not meet.

use std::path::{Path, PathBuf};

use api::keys::taint;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::objects;
use super::program::Program;
use crate::api_rig::{Server, ask};
use crate::rig::{Driver, NODE, Options, Scratch};

/// Who binds and protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Controllers {
    Ours,
    Theirs,
}

/// Who gives pods their nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheduling {
    Ours,
    Theirs,
    Nobody,
}

pub(super) fn controllers() -> Controllers {
    match std::env::var("ORLOP_TEST_CONTROLLERS").as_deref() {
        Ok("theirs") => Controllers::Theirs,
        _ => Controllers::Ours,
    }
}

pub(super) fn scheduling() -> Scheduling {
    match std::env::var("ORLOP_TEST_SCHEDULER").as_deref() {
        Ok("theirs") => Scheduling::Theirs,
        Ok("none") => Scheduling::Nobody,
        _ => Scheduling::Ours,
    }
}

pub(super) struct Stage {
    pub(super) client: kube::Client,
    pub(super) namespace: String,
    // Fields are dropped in this order: first who writes, then who serves, then the pool.
    pub(super) controllers: Option<Program>,
    pub(super) sidecar: Option<Program>,
    pub(super) driver: Driver,
    kubeconfig: PathBuf,
    options: fn(&str) -> Options,
    id: String,
    _server: Option<Server>,
    pub(super) scratch: Scratch,
}

impl Stage {
    /// All programs run, with one sidecar and one set of controllers.
    pub(super) async fn set() -> Self {
        let mut stage = Self::bare().await;
        stage.start_controllers();
        stage.start_sidecar();
        stage
    }

    /// An API server, a driver, a class and a node; nobody works yet.
    pub(super) async fn bare() -> Self {
        Self::with_driver(|id| Options::args(["--no-attach", "--driver-name", &driver_name(id)])).await
    }

    /// The same with a driver whose volumes have to be attached.
    pub(super) async fn attaching() -> Self {
        Self::with_driver(|id| Options::args(["--driver-name", &driver_name(id)])).await
    }

    async fn with_driver(options: fn(&str) -> Options) -> Self {
        let scratch = Scratch::new();
        scratch.plain_pool();
        let id = scratch.path("").file_name().unwrap().to_string_lossy().to_lowercase();
        let id: String = id.trim_start_matches("orlop-test-").chars().filter(char::is_ascii_alphanumeric).collect();
        let (server, kubeconfig) = match std::env::var_os("ORLOP_TEST_KUBECONFIG") {
            Some(file) => (None, PathBuf::from(file)),
            None => {
                let data = scratch.path("api");
                let mut server = Server::spawn(&data);
                server.address().await;
                (Some(server), data.with_extension("kubeconfig"))
            }
        };
        let client = connect(&kubeconfig).await;
        let driver = Driver::start(&scratch, &options(&id));
        let namespace = format!("claims-{id}");
        let stage = Self {
            client,
            namespace,
            controllers: None,
            sidecar: None,
            driver,
            kubeconfig,
            options,
            id,
            _server: server,
            scratch,
        };
        stage.furnish().await;
        stage
    }

    async fn furnish(&self) {
        let (name, driver) = (self.node(), self.driver_name());
        let key = driver_local::keys::topology_key(&driver);
        self.create("/api/v1/namespaces", &json!({"metadata": {"name": self.namespace}})).await;
        self.create("/api/v1/nodes", &objects::node(&name, (&key, NODE))).await;
        // A node starts with taints that its kubelet and a controller take away, and neither runs here.
        let path = format!("/api/v1/nodes/{name}");
        self.change("PATCH", &path, &json!({"spec": {"taints": null}})).await;
        let node = self.change("PATCH", &format!("{path}/status"), &objects::node_status()).await;
        assert!(!node.to_string().contains(taint::NOT_READY.text()), "{node}");
        self.create("/apis/storage.k8s.io/v1/csinodes", &objects::csi_node(&name, &driver, (&key, NODE))).await;
        self.create_class(&self.class(), &json!({})).await;
    }

    pub(super) async fn create_class(&self, name: &str, more: &Value) {
        self.create("/apis/storage.k8s.io/v1/storageclasses", &objects::class(self, name, more)).await;
    }

    pub(super) fn driver_name(&self) -> String {
        driver_name(&self.id)
    }

    pub(super) fn class(&self) -> String {
        format!("class-{}", self.id)
    }

    pub(super) fn node(&self) -> String {
        format!("node-{}", self.id)
    }

    pub(super) fn socket(&self) -> &Path {
        &self.driver.socket
    }

    /// Flags that every program of this stage takes.
    pub(super) fn flags(&self, command: &str) -> Vec<String> {
        let kubeconfig = self.kubeconfig.display().to_string();
        [command, "--kubeconfig", &kubeconfig, "--log-level", "debug"].map(str::to_owned).to_vec()
    }

    pub(super) fn sidecar_flags(&self) -> Vec<String> {
        let mut flags = self.flags("sidecar");
        flags.extend(["--csi-address".to_owned(), self.socket().display().to_string()]);
        // Failures are part of these scenarios, and their number is not.
        flags.extend(["--retry-interval-start", "100ms", "--retry-interval-max", "2s"].map(str::to_owned));
        flags
    }

    /// Starts `orlop controllers`, unless the server has its own.
    pub(super) fn start_controllers(&mut self) {
        if controllers() == Controllers::Ours {
            self.controllers = Some(Program::start(&self.scratch.path(""), "controllers", &self.flags("controllers")));
        }
    }

    /// Everything of ours in one process, as one that knows what the other part of it does.
    pub(super) fn start_together(&mut self) {
        let mut flags = self.sidecar_flags();
        flags.push("--with-controllers".to_owned());
        self.sidecar = Some(Program::start(&self.scratch.path(""), "together", &flags));
    }

    pub(super) fn start_sidecar(&mut self) {
        self.sidecar = Some(Program::start(&self.scratch.path(""), "sidecar", &self.sidecar_flags()));
    }

    /// SIGKILL to the driver, and a new one on its pool.
    pub(super) fn restart_driver(&mut self) {
        self.driver.kill();
        self.driver = Driver::start(&self.scratch, &(self.options)(&self.id));
    }

    /// What the driver keeps of a volume.
    pub(super) fn image(&self, handle: &str) -> PathBuf {
        self.scratch.path("pool").join("volumes").join(handle).join("image")
    }

    /// A pod, and the account that pods run under, which a controller makes on a cluster.
    pub(super) async fn create_pod(&self, body: &Value) {
        let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", self.namespace);
        let account = json!({"metadata": {"name": "default"}});
        // It may be there already.
        let (code, answer) = ask(&self.client, ("POST", &accounts), Some(&account)).await.unwrap();
        assert!(code == 201 || code == 409, "{answer}");
        self.create(&format!("/api/v1/namespaces/{}/pods", self.namespace), body).await;
    }

    pub(super) async fn create(&self, path: &str, body: &Value) -> Value {
        self.change("POST", path, body).await
    }

    /// A request that must succeed.
    pub(super) async fn change(&self, method: &str, path: &str, body: &Value) -> Value {
        let (code, answer) = ask(&self.client, (method, path), Some(body)).await.unwrap();
        assert!((200..300).contains(&code), "{method} {path}: {code} {answer}");
        answer
    }

    /// Ends the programs as an orchestrator would, and takes away what a shared server would keep. The pool must be
    /// empty: whoever made a volume has deleted it.
    pub(super) async fn end(mut self) {
        self.assert_no_leak().await;
        for program in [self.sidecar.take(), self.controllers.take()].into_iter().flatten() {
            program.stop();
        }
        let (node, class) = (self.node(), self.class());
        for path in [
            format!("/apis/storage.k8s.io/v1/csinodes/{node}"),
            format!("/api/v1/nodes/{node}"),
            format!("/apis/storage.k8s.io/v1/storageclasses/{class}"),
            format!("/api/v1/namespaces/{}", self.namespace),
        ] {
            self.change("DELETE", &path, &json!({})).await;
        }
        assert!(self.driver.stop(), "{}", self.driver.log());
        self.scratch.assert_clean();
    }
}

fn driver_name(id: &str) -> String {
    // Names begin with a letter.
    format!("d{id}.csi.orlop.dev")
}

/// A client of whatever the kubeconfig names.
async fn connect(kubeconfig: &Path) -> kube::Client {
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    (config.proxy_url, config.read_timeout) = (None, None);
    kube::Client::try_from(config).unwrap()
}
