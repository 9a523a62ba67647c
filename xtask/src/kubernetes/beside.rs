//! Programs that work beside an API server: controllers, a scheduler, provisioners, drivers; theirs and ours.

use std::path::Path;
use std::process::ExitStatus;

use anyhow::Context as _;
use tokio::process::Command;

use super::process::Process;
use super::{Program, Programs};

const ATTACH_DETACH: &str = "persistentvolume-attach-detach-controller";

/// The loops of kube-controller-manager that `orlop controllers` replaces.
const LOOPS: [&str; 6] = [
    "persistentvolume-binder-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "volumeattributesclass-protection-controller",
    "ephemeral-volume-controller",
    ATTACH_DETACH,
];

/// How fast the Go programs may write; their defaults would measure their manners.
const QPS: [&str; 4] = ["--kube-api-qps", "2000", "--kube-api-burst", "4000"];

/// A program that runs until it is dropped or stopped.
#[derive(Debug)]
pub(crate) struct Beside {
    process: Process,
}

impl Beside {
    /// Starts a program whose log goes to `<name>.log` in `folder`.
    pub(crate) fn start(name: &'static str, mut command: Command, folder: &Path) -> anyhow::Result<Self> {
        Ok(Self { process: Process::start(name, &mut command, folder)? })
    }

    /// A command of `orlop` that follows the cluster of a kubeconfig.
    pub(crate) fn orlop(name: &'static str, program: &Path, kubeconfig: &Path, folder: &Path) -> anyhow::Result<Self> {
        Self::start(name, orlop(program, name, kubeconfig), folder)
    }

    /// `orlop sidecar` beside the driver on `socket`.
    pub(crate) fn sidecar(program: &Path, kubeconfig: &Path, socket: &Path, folder: &Path) -> anyhow::Result<Self> {
        let mut command = orlop(program, "sidecar", kubeconfig);
        command.arg("--csi-address").arg(socket);
        Self::start("sidecar", command, folder)
    }

    /// The same with the controllers in it: all of ours in one process.
    pub(crate) fn together(program: &Path, kubeconfig: &Path, socket: &Path, folder: &Path) -> anyhow::Result<Self> {
        let mut command = orlop(program, "sidecar", kubeconfig);
        command.arg("--with-controllers").arg("--csi-address").arg(socket);
        Self::start("together", command, folder)
    }

    /// kube-controller-manager with nothing but the loops for volumes.
    pub(crate) fn controller_manager(programs: &Programs, kubeconfig: &Path, folder: &Path) -> anyhow::Result<Self> {
        Self::loops(&LOOPS, programs, kubeconfig, folder)
    }

    /// The same with nothing but attaching and detaching.
    pub(crate) fn attach_detach(programs: &Programs, kubeconfig: &Path, folder: &Path) -> anyhow::Result<Self> {
        Self::loops(&[ATTACH_DETACH], programs, kubeconfig, folder)
    }

    fn loops(loops: &[&str], programs: &Programs, kubeconfig: &Path, folder: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(programs.path(Program::ControllerManager)?);
        command.arg("--kubeconfig").arg(kubeconfig).args(["--controllers", &loops.join(",")]);
        command.args(["--leader-elect=false", "--secure-port=0", "--profiling=false"]).args(QPS);
        Self::start(Program::ControllerManager.name(), command, folder)
    }

    /// kube-scheduler as it comes.
    pub(crate) fn scheduler(programs: &Programs, kubeconfig: &Path, folder: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(programs.path(Program::Scheduler)?);
        command.arg("--kubeconfig").arg(kubeconfig).args(["--leader-elect=false", "--secure-port=0"]);
        Self::start(Program::Scheduler.name(), command, folder)
    }

    /// The Go provisioner beside the driver on `socket`.
    pub(crate) fn provisioner(program: &Path, kubeconfig: &Path, socket: &Path, folder: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.arg("--kubeconfig").arg(kubeconfig).arg(format!("--csi-address={}", socket.display())).args(QPS);
        Self::start("csi-provisioner", command, folder)
    }

    /// The Go attacher beside the driver on `socket`.
    pub(crate) fn attacher(program: &Path, kubeconfig: &Path, socket: &Path, folder: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.arg("--kubeconfig").arg(kubeconfig).arg(format!("--csi-address={}", socket.display())).args(QPS);
        Self::start("csi-attacher", command, folder)
    }

    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        self.process.pid().with_context(|| format!("a program ended:\n{}", self.process.last_words()))
    }

    /// Ends only if the program does.
    pub(crate) async fn died(&mut self) -> anyhow::Error {
        self.process.died().await
    }

    /// SIGTERM, and how it ends.
    pub(crate) async fn end(self) -> anyhow::Result<ExitStatus> {
        self.process.stop().await
    }

    /// SIGTERM, and waits for the end, however it ends.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.process.stop().await.map(drop)
    }
}

fn orlop(program: &Path, command: &str, kubeconfig: &Path) -> Command {
    let mut orlop = Command::new(program);
    orlop.arg(command).arg("--kubeconfig").arg(kubeconfig).args(["--log-level", "warn"]);
    orlop
}
