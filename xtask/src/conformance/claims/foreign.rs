//! Drivers that nobody here wrote, both in Go: the mock driver of csi-test, and the host-path driver.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::process::Command;

use crate::conformance::golang::Go;
use crate::conformance::{Driver, Launch};

/// The last release that has the mock driver as a program.
const MOCK: (&str, &str) = ("github.com/kubernetes-csi/csi-test/v4", "v4.0.2");
const HOST_PATH: (&str, &str) = ("github.com/kubernetes-csi/csi-driver-host-path", "v1.17.0");
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
        let (module, package, file) = match (self, hostpath) {
            (Self::HostPath, Some(program)) => return Ok(Foreign { kind: self, program: program.to_owned() }),
            (Self::HostPath, None) => (HOST_PATH, "./cmd/hostpathplugin", "hostpathplugin"),
            (Self::Mock, _) => (MOCK, "./cmd/mock-driver", "mock-driver"),
        };
        let source = go.module(module.0, module.1)?;
        let folder = crate::target().join("conformance/bin");
        std::fs::create_dir_all(&folder)?;
        let program = folder.join(file);
        // The host-path driver does not answer who it is unless it was built with a version.
        let flags = ["-ldflags".to_owned(), format!("-X main.version={}", module.1)];
        go.build_with(&source, &flags, package, &program)?;
        Ok(Foreign { kind: self, program })
    }
}

impl Foreign {
    /// What the driver calls itself.
    fn name(&self) -> &'static str {
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
    let mut list = Command::new(orlop);
    list.args(["csi", "-o", "json", "list", "--endpoint"]).arg(socket);
    let output = list.output().await.context("running orlop csi list")?;
    if !output.status.success() {
        bail!("orlop csi list: {}", String::from_utf8_lossy(&output.stderr));
    }
    let listed: Value = serde_json::from_slice(&output.stdout).context("reading the list of volumes")?;
    Ok(listed["entries"].as_array().context("the list has no entries")?.len())
}
