//! Who plays which part: programs of ours, or those that the environment names.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::namespace::mortal;

/// Who does something that a cluster may have somebody for already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Ours,
    Theirs,
}

/// The parts and their players. `None`: ours.
#[derive(Debug)]
pub(super) struct Cast {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) scheduler: Who,
    /// The attach/detach controller.
    pub(super) attach: Who,
    attacher: Option<PathBuf>,
    registrar: Option<PathBuf>,
    pub(super) host_path: Option<PathBuf>,
}

impl Cast {
    /// From the environment.
    pub(super) fn given() -> Self {
        let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let who = |name: &str| match std::env::var(name).as_deref() {
            Ok("theirs") => Who::Theirs,
            _ => Who::Ours,
        };
        Self {
            kubeconfig: path("ORLOP_TEST_KUBECONFIG"),
            scheduler: who("ORLOP_TEST_SCHEDULER"),
            attach: who("ORLOP_TEST_ATTACH"),
            attacher: path("ORLOP_GO_ATTACHER"),
            registrar: path("ORLOP_GO_REGISTRAR"),
            host_path: path("ORLOP_GO_HOST_PATH"),
        }
    }

    /// `orlop controllers`, without what somebody else does.
    pub(super) fn controllers(&self, kubeconfig: &Path) -> Command {
        let mut command = orlop("controllers", kubeconfig);
        if self.attach == Who::Theirs {
            command.args(["--controllers", "*,-persistentvolume-attach-detach-controller"]);
        }
        command
    }

    /// What stands beside the driver: one program, or two.
    pub(super) fn sidecars(&self, kubeconfig: &Path, socket: &Path) -> Vec<(&'static str, Command)> {
        let mut sidecar = orlop("sidecar", kubeconfig);
        sidecar.arg("--csi-address").arg(socket);
        // Failures are part of these scenarios, and how long they last is not.
        sidecar.args(["--retry-interval-start", "100ms", "--retry-interval-max", "2s"]);
        let Some(attacher) = &self.attacher else { return vec![("sidecar", sidecar)] };
        sidecar.args(["--roles", "provisioner"]);
        let mut theirs = mortal(text(attacher));
        theirs.args(["--v=5", "--retry-interval-start=100ms", "--retry-interval-max=2s", "--kubeconfig"]);
        theirs.arg(kubeconfig).arg(format!("--csi-address={}", socket.display()));
        vec![("sidecar", sidecar), ("csi-attacher", theirs)]
    }

    /// The program that offers a driver to an agent. Both take the same words.
    pub(super) fn registrar(&self) -> Vec<&str> {
        match &self.registrar {
            Some(program) => vec![text(program), "--v=5"],
            None => vec![env!("CARGO_BIN_EXE_orlop"), "registrar", "--log-level", "debug"],
        }
    }

    /// The driver's program with its words. `disk` is where it keeps what it has.
    pub(super) fn driver(&self, id: &str, socket: &Path, disk: &Path) -> Vec<String> {
        let (name, endpoint) = (driver_name(id), format!("unix://{}", socket.display()));
        let disk = disk.display().to_string();
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        match &self.host_path {
            Some(program) => words(&[
                text(program),
                "--v=5",
                "--enable-attach=true",
                &format!("--drivername={name}"),
                &format!("--nodeid={id}"),
                &format!("--endpoint={endpoint}"),
                &format!("--statedir={disk}"),
            ]),
            None => words(&[
                env!("CARGO_BIN_EXE_orlop"),
                "driver",
                "--log-level",
                "debug",
                "--overcommit",
                "100",
                "--driver-name",
                &name,
                "--node-id",
                id,
                "--endpoint",
                &endpoint,
                "--pool",
                &disk,
            ]),
        }
    }

    /// Whether a program answers SIGTERM with success, as all of ours do.
    pub(super) fn is_ours(&self, name: &str) -> bool {
        match name {
            "csi-attacher" => false,
            "driver" => self.host_path.is_none(),
            _ => !name.starts_with("registrar") || self.registrar.is_none(),
        }
    }
}

/// What the driver of a room calls itself. Names begin with a letter.
pub(super) fn driver_name(id: &str) -> String {
    format!("d{id}.csi.orlop.dev")
}

/// A command of `orlop` that follows a cluster.
pub(super) fn orlop(command: &str, kubeconfig: &Path) -> Command {
    let mut orlop = mortal(env!("CARGO_BIN_EXE_orlop"));
    orlop.args([command, "--log-level", "debug", "--kubeconfig"]).arg(kubeconfig);
    orlop
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path of a program is text")
}
