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
            Self::Ours => "orlop sidecar --with-controllers",
            Self::Theirs => "kube-controller-manager and csi-provisioner",
        }
    }
}

/// Whoever takes claims to volumes and back: a binder and a provisioner, in one process or in two.
#[derive(Debug)]
pub(super) struct Stack {
    processes: Vec<Beside>,
}

impl Stack {
    pub(super) fn ours(orlop: &Path, kubeconfig: &Path, socket: &Path, folder: &Path) -> anyhow::Result<Self> {
        Ok(Self { processes: vec![Beside::together(orlop, kubeconfig, socket, folder)?] })
    }

    pub(super) fn theirs(
        programs: &Programs,
        provisioner: &Path,
        kubeconfig: &Path,
        socket: &Path,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let binder = Beside::controller_manager(programs, kubeconfig, folder)?;
        Ok(Self { processes: vec![binder, Beside::provisioner(provisioner, kubeconfig, socket, folder)?] })
    }

    /// Resident memory of all of it in megabytes.
    pub(super) async fn rss(&self) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for process in &self.processes {
            sum += settled_rss(process.pid()?).await?;
        }
        Ok(sum)
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        for process in self.processes {
            process.stop().await?;
        }
        Ok(())
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
