//! Drivers that nobody here wrote, both in Go: the mock driver of csi-test, and the host-path driver.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::conformance::golang::Go;
use crate::conformance::{Driver, Launch, peers};
use crate::kubernetes::{Client, Question};

/// The node that the drivers run on.
pub(super) const NODE: &str = "claims";
/// Claims that a driver serves.
const CLAIMS: &str = "50";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Mock,
    HostPath,
}

pub(super) const KINDS: [Kind; 2] = [Kind::Mock, Kind::HostPath];

/// A driver's program.
#[derive(Debug)]
pub(super) struct Foreign {
    kind: Kind,
    program: PathBuf,
}

impl Kind {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Mock => "claims: mock-driver of csi-test",
            Self::HostPath => "claims: host-path driver",
        }
    }

    /// Builds the driver from its Go module, or takes the one given. An error says why there is none.
    pub(super) fn find(self, go: &Go, hostpath: Option<&Path>) -> anyhow::Result<Foreign> {
        let program = match self {
            Self::HostPath => peers::HOST_PATH.find(go, hostpath)?,
            Self::Mock => peers::MOCK.find(go, None)?,
        };
        Ok(Foreign { kind: self, program })
    }
}

impl Foreign {
    /// What the driver calls itself.
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Mock => "mock.claims.test",
            Kind::HostPath => "hostpath.claims.test",
        }
    }

    pub(super) async fn start(&self, folder: &Path) -> anyhow::Result<Driver> {
        let socket = folder.join("csi.sock");
        let mut command = Command::new(&self.program);
        match self.kind {
            Kind::Mock => {
                command.arg("-name").arg(self.name()).env("CSI_ENDPOINT", format!("unix://{}", socket.display()));
            }
            Kind::HostPath => {
                let state = folder.join("hostpath");
                std::fs::create_dir_all(&state)?;
                command.arg(format!("--endpoint=unix://{}", socket.display())).arg("--nodeid=claims");
                command.arg(format!("--statedir={}", state.display())).arg(format!("--drivername={}", self.name()));
            }
        }
        Driver::start(Launch { command, socket, log: folder.join("driver.log") }).await
    }

    /// Makes the node known with the driver on it, as its kubelet would.
    pub(super) async fn register(&self, client: &Client, orlop: &Path, socket: &Path) -> anyhow::Result<()> {
        let info = csi(orlop, socket, "node-info").await?;
        let place = info["accessibleTopology"]["segments"].clone();
        let keys: Vec<&String> = place.as_object().into_iter().flat_map(|place| place.keys()).collect();
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": place},
        });
        let driver = json!({"name": self.name(), "nodeID": info["nodeId"], "topologyKeys": keys});
        let csi_node = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": NODE},
            "spec": {"drivers": [driver]},
        });
        for (path, body) in [("/api/v1/nodes", node), ("/apis/storage.k8s.io/v1/csinodes", csi_node)] {
            let question = Question::new(Method::POST, path).body("application/json", body.to_string());
            let answer = client.ask(&question).await?;
            ensure!(answer.status == 201, "{path}: {}", String::from_utf8_lossy(&answer.body));
        }
        Ok(())
    }

    /// Claims come and go.
    pub(super) async fn claims(&self, orlop: &Path, kubeconfig: &Path) -> anyhow::Result<()> {
        let mut bench = Command::new(orlop);
        bench.args(["bench", "claims", "-n", CLAIMS, "--timeout", "3m", "--provisioner", self.name()]);
        bench.arg("--kubeconfig").arg(kubeconfig).kill_on_drop(true);
        let status = bench.status().await.context("running orlop bench claims")?;
        if status.success() { Ok(()) } else { bail!("orlop bench claims ended with {status}; see the lines above") }
    }
}

/// How many volumes the driver says it has.
pub(super) async fn volumes(orlop: &Path, socket: &Path) -> anyhow::Result<usize> {
    let listed = csi(orlop, socket, "list").await?;
    Ok(listed["entries"].as_array().context("the list has no entries")?.len())
}

/// Makes a volume. Gives its handle.
pub(super) async fn create(orlop: &Path, socket: &Path, name: &str) -> anyhow::Result<String> {
    let made = csi_with(orlop, socket, &["create", name, "--size", "64Mi"]).await?;
    let handle = made["volume"]["volumeId"].as_str().or(made["volumeId"].as_str());
    Ok(handle.with_context(|| format!("no volume id in {made}"))?.to_owned())
}

pub(super) async fn delete(orlop: &Path, socket: &Path, handle: &str) -> anyhow::Result<()> {
    let mut deleting = Command::new(orlop);
    deleting.args(["csi", "delete", handle, "--endpoint"]).arg(socket);
    let status = deleting.status().await.context("running orlop csi delete")?;
    ensure!(status.success(), "orlop csi delete ended with {status}");
    Ok(())
}

/// What a driver says, by the word of `orlop csi`.
async fn csi(orlop: &Path, socket: &Path, command: &str) -> anyhow::Result<Value> {
    csi_with(orlop, socket, &[command]).await
}

async fn csi_with(orlop: &Path, socket: &Path, words: &[&str]) -> anyhow::Result<Value> {
    let command = words.join(" ");
    let mut asking = Command::new(orlop);
    asking.args(["csi", "-o", "json"]).args(words).arg("--endpoint").arg(socket);
    let output = asking.output().await.with_context(|| format!("running orlop csi {command}"))?;
    if !output.status.success() {
        bail!("orlop csi {command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("reading what orlop csi {command} said"))
}
