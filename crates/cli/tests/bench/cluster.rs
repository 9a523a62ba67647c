//! A cluster for a bench: an API server and whoever acts on it, as processes.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::api_rig::{Server, ask, client};

/// Long enough for a busy machine; nothing is asserted about it.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// An API server with our controllers. Dropping it ends all.
pub(super) struct Cluster {
    pub(super) client: kube::Client,
    kubeconfig: PathBuf,
    actors: Vec<Child>,
    _server: Server,
    folder: tempfile::TempDir,
}

fn orlop() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.stdout(Stdio::null());
    command
}

impl Cluster {
    pub(super) async fn start() -> Self {
        let mut cluster = Self::bare().await;
        cluster.act(&["controllers"]);
        cluster
    }

    /// The same with a driver that keeps its volumes in memory, and its sidecar.
    pub(super) async fn with_driver() -> Self {
        let mut cluster = Self::bare().await;
        let socket = cluster.folder.path().join("csi.sock");
        let mut driver = orlop();
        driver.args(["bench", "driver", "--attach"]).arg("--endpoint").arg(format!("unix://{}", socket.display()));
        cluster.actors.push(driver.stderr(Stdio::null()).spawn().unwrap());
        cluster.act(&["sidecar", "--with-controllers", "--csi-address", socket.to_str().unwrap()]);
        cluster
    }

    async fn bare() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut server = Server::spawn(&data);
        let address = server.address().await;
        let kubeconfig = data.with_extension("kubeconfig");
        let client = client(&kubeconfig, &address).await;
        Self { client, kubeconfig, actors: Vec::new(), _server: server, folder }
    }

    fn act(&mut self, args: &[&str]) {
        let mut command = orlop();
        command.args(args).args(["--log-level", "error", "--kubeconfig"]).arg(&self.kubeconfig);
        self.actors.push(command.spawn().unwrap());
    }

    pub(super) fn bench(&self, what: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(["bench", what]).args(args).arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    pub(super) async fn create(&self, path: &str, body: Value) {
        let (code, answer) = ask(&self.client, ("POST", path), Some(&body)).await.unwrap();
        assert_eq!(code, 201, "{answer}");
    }

    /// Names of what there is, without what every server has.
    pub(super) async fn names(&self, path: &str) -> Vec<String> {
        let (code, list) = ask(&self.client, ("GET", path), None).await.unwrap();
        assert_eq!(code, 200, "{list}");
        let names = list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap());
        let ours = |name: &&str| ["bench", "claim", "pod-", "csi-"].iter().any(|part| name.contains(part));
        names.filter(ours).map(str::to_owned).collect()
    }

    /// Waits until nothing of a run is left. A namespace takes its time to go.
    pub(super) async fn assert_empty(&self) {
        let paths = [
            "/api/v1/pods",
            "/apis/storage.k8s.io/v1/volumeattachments",
            "/api/v1/persistentvolumeclaims",
            "/api/v1/persistentvolumes",
            "/apis/storage.k8s.io/v1/storageclasses",
            "/apis/storage.k8s.io/v1/csinodes",
            "/api/v1/nodes",
            "/api/v1/namespaces",
        ];
        for path in paths {
            let gone = async {
                while !self.names(path).await.is_empty() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            if tokio::time::timeout(PATIENCE, gone).await.is_err() {
                panic!("left of {path}: {:?}", self.names(path).await);
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for actor in &mut self.actors {
            let _ = actor.kill();
            let _ = actor.wait();
        }
    }
}
