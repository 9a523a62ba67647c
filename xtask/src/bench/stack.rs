//! The two stacks that are compared, and the driver that both have.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::sleep;

use super::memory::settled_rss;
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

/// What stands beside the driver in their stack; ours has all in one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sidecar<'a> {
    Provisioner(&'a Path),
    Attacher(&'a Path),
}

impl Sidecar<'_> {
    /// How their stack with it is called.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Provisioner(_) => "kube-controller-manager and csi-provisioner",
            Self::Attacher(_) => "kube-controller-manager and csi-attacher",
        }
    }
}

/// Whoever takes claims to volumes, and volumes to nodes, and back: controllers and a sidecar, in one process or in two.
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
        sidecar: Sidecar<'_>,
        kubeconfig: &Path,
        socket: &Path,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let controllers = Beside::controller_manager(programs, kubeconfig, folder)?;
        let sidecar = match sidecar {
            Sidecar::Provisioner(program) => Beside::provisioner(program, kubeconfig, socket, folder)?,
            Sidecar::Attacher(program) => Beside::attacher(program, kubeconfig, socket, folder)?,
        };
        Ok(Self { processes: vec![controllers, sidecar] })
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
    /// Starts it with more arguments, and waits until its socket takes connections.
    pub(super) async fn start(orlop: &Path, args: &[&str], folder: &Path) -> anyhow::Result<Self> {
        let socket = folder.join("csi.sock");
        let mut command = Command::new(orlop);
        command.args(["bench", "driver", "--driver-name", DRIVER]).args(args);
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
