//! The two stacks that are compared, and the driver that both have.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::sleep;

use crate::bench::memory::settled_rss;
use crate::kubernetes::{Beside, Programs};

/// What the driver calls itself.
pub(super) const DRIVER: &str = "bench.orlop.dev";
/// How often a starting driver's socket is tried.
const POLL: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Ours,
    Theirs,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours => "orlop controllers and orlop sidecar",
            Self::Theirs => "kube-controller-manager and csi-provisioner",
        }
    }
}

/// Whoever takes claims to volumes and back: a binder and a provisioner.
#[derive(Debug)]
pub(super) struct Stack {
    binder: Beside,
    provisioner: Beside,
}

impl Stack {
    pub(super) fn ours(orlop: &Path, kubeconfig: &Path, socket: &Path, folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            binder: Beside::orlop("controllers", orlop, kubeconfig, folder)?,
            provisioner: Beside::sidecar(orlop, kubeconfig, socket, folder)?,
        })
    }

    pub(super) fn theirs(
        programs: &Programs,
        provisioner: &Path,
        kubeconfig: &Path,
        socket: &Path,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            binder: Beside::controller_manager(programs, kubeconfig, folder)?,
            provisioner: Beside::provisioner(provisioner, kubeconfig, socket, folder)?,
        })
    }

    /// Resident memory of both processes in megabytes.
    pub(super) async fn rss(&self) -> anyhow::Result<f64> {
        Ok(settled_rss(self.binder.pid()?).await? + settled_rss(self.provisioner.pid()?).await?)
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.provisioner.stop().await?;
        self.binder.stop().await
    }
}

/// `orlop bench driver`, which keeps its volumes in memory.
#[derive(Debug)]
pub(super) struct MemoryDriver {
    process: Beside,
    pub(super) socket: PathBuf,
}

impl MemoryDriver {
    /// Starts it and waits until its socket takes connections.
    pub(super) async fn start(orlop: &Path, folder: &Path) -> anyhow::Result<Self> {
        let socket = folder.join("csi.sock");
        let mut command = Command::new(orlop);
        command.args(["bench", "driver", "--driver-name", DRIVER]);
        command.arg("--endpoint").arg(format!("unix://{}", socket.display()));
        let mut process = Beside::start("driver", command, folder)?;
        let connects = async {
            while UnixStream::connect(&socket).await.is_err() {
                sleep(POLL).await;
            }
        };
        tokio::select! {
            () = connects => {}
            died = process.died() => return Err(died),
        }
        Ok(Self { process, socket })
    }

    /// Ends only if the driver does.
    pub(super) async fn died(&mut self) -> anyhow::Error {
        self.process.died().await
    }
}
