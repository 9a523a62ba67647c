//! From volume to pod on a real kube-apiserver with etcd, pods scheduled by the real kube-scheduler.
//!
//! The scenarios are those of `crates/cli/tests/machines`, which `cargo xtask test` runs on the embedded API: two agents with
//! real mounts. Once everything is ours; then, one at a time, somebody else's program takes a place: kube-controller-manager's
//! attach/detach controller, and the Go csi-attacher, node-driver-registrar and host-path driver; in the end all of them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tokio::process::Command;

use super::golang::Go;
use super::peers;
use crate::disk::Scratch;
use crate::kubernetes::{Beside, ControlPlane, Durability, Options, Program, Programs};
use crate::leftovers;
use crate::report::{Ending, Report};

const WANTED: [Program; 4] = [Program::Etcd, Program::ApiServer, Program::ControllerManager, Program::Scheduler];
/// The test program with the scenarios.
const SCENARIOS: &str = "machines";

/// What `cargo xtask conformance pods` takes.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Only the runs whose name contains this: ours, kube-controller-manager, csi-attacher, node-driver-registrar,
    /// host-path, all.
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// Only the scenarios whose name contains this.
    #[arg(long, value_name = "PART")]
    scenario: Option<String>,
    /// A csi-attacher that somebody built; its Go module cannot be had everywhere.
    #[arg(long, value_name = "PROGRAM")]
    attacher: Option<PathBuf>,
    /// A csi-node-driver-registrar that somebody built; its Go module cannot be had everywhere.
    #[arg(long, value_name = "PROGRAM")]
    registrar: Option<PathBuf>,
    /// A host-path driver that somebody built; its Go module cannot be had everywhere.
    #[arg(long, value_name = "PROGRAM")]
    hostpath: Option<PathBuf>,
    /// A folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler, already built.
    #[arg(long, value_name = "FOLDER")]
    peer: Option<PathBuf>,
}

/// Whose program takes the place of one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guest {
    Nobody,
    AttachDetach,
    Attacher,
    Registrar,
    HostPath,
    All,
}

const GUESTS: [Guest; 6] =
    [Guest::Nobody, Guest::AttachDetach, Guest::Attacher, Guest::Registrar, Guest::HostPath, Guest::All];

impl Guest {
    fn title(self) -> &'static str {
        match self {
            Self::Nobody => "pods: ours, kube-scheduler",
            Self::AttachDetach => "pods: kube-controller-manager attaches and detaches",
            Self::Attacher => "pods: csi-attacher",
            Self::Registrar => "pods: node-driver-registrar",
            Self::HostPath => "pods: host-path driver",
            Self::All => "pods: all of them beside our agent",
        }
    }

    /// What tells the scenarios about him. An error says why he cannot come.
    fn invitation(self, go: &Go, args: &Args) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
        let program = |name, peer: peers::Peer, given: &Option<PathBuf>| {
            peer.find(go, given.as_deref()).map(|program| vec![(name, program)])
        };
        match self {
            Self::Nobody => Ok(Vec::new()),
            Self::AttachDetach => Ok(vec![("ORLOP_TEST_ATTACH", "theirs".into())]),
            Self::Attacher => program("ORLOP_GO_ATTACHER", peers::ATTACHER, &args.attacher),
            Self::Registrar => program("ORLOP_GO_REGISTRAR", peers::REGISTRAR, &args.registrar),
            Self::HostPath => program("ORLOP_GO_HOST_PATH", peers::HOST_PATH, &args.hostpath),
            Self::All => {
                let others = GUESTS.into_iter().filter(|guest| *guest != Self::All);
                let invited = others.map(|guest| guest.invitation(go, args)).collect::<anyhow::Result<Vec<_>>>()?;
                Ok(invited.concat())
            }
        }
    }
}

pub(super) async fn run(go: &Go, args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let programs = match &args.peer {
        Some(folder) => Programs::found_in(folder, &WANTED)?,
        None => Programs::build(go, &WANTED)?,
    };
    crate::tools::provide()?;
    let scenarios = build().await?;
    if let Some(part) = &args.scenario {
        let listed = Command::new(&scenarios).args(["--list", part]).output().await.context("listing the scenarios")?;
        let any = String::from_utf8_lossy(&listed.stdout).contains(": test");
        ensure!(any, "no scenario has {part:?} in its name; see crates/cli/tests/{SCENARIOS}");
    }
    let suite = Suite { programs, scenarios, part: args.scenario.clone() };
    let wanted = |guest: &Guest| args.only.as_ref().is_none_or(|part| guest.title().contains(part));
    for guest in GUESTS.into_iter().filter(wanted) {
        let section = Report::begin(guest.title());
        let ending = match guest.invitation(go, args) {
            Ok(invitation) => suite.play(guest, &invitation).await,
            Err(why) => Ending::Skipped(format!("{why:#}")),
        };
        report.end(section, ending);
    }
    Ok(())
}

/// Builds the scenarios. They are run without cargo, so that whoever ends us ends them, too.
async fn build() -> anyhow::Result<PathBuf> {
    let mut cargo = Command::from(crate::tools::cargo());
    cargo.args(["test", "--workspace", "--test", SCENARIOS, "--no-run", "--message-format=json"]);
    cargo.current_dir(crate::root()).stderr(std::process::Stdio::inherit()).kill_on_drop(true);
    let output = cargo.output().await.context("running cargo test --no-run")?;
    ensure!(output.status.success(), "building the scenarios ended with {}; see the lines above", output.status);
    let said = String::from_utf8_lossy(&output.stdout);
    let built = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find_map(|message| {
        let ours = message["target"]["name"] == SCENARIOS && message["profile"]["test"] == true;
        ours.then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    built.context("cargo does not say where it built the scenarios")
}

struct Suite {
    programs: Programs,
    scenarios: PathBuf,
    part: Option<String>,
}

impl Suite {
    /// All scenarios on one server, one after the other.
    async fn play(&self, guest: Guest, invitation: &[(&str, PathBuf)]) -> Ending {
        let skips = match Scratch::make() {
            Ok(folder) => folder,
            Err(error) => return Ending::from(Err(error)),
        };
        let log = skips.path().join("skips.log");
        match self.on_cluster(guest, invitation, &log).await {
            Ok(()) => match std::fs::read_to_string(&log).unwrap_or_default().lines().next() {
                Some(first) => Ending::Skipped(first.to_owned()),
                None => Ending::Passed,
            },
            failed => Ending::from(failed),
        }
    }

    async fn on_cluster(&self, guest: Guest, invitation: &[(&str, PathBuf)], skips: &Path) -> anyhow::Result<()> {
        let scratch = Scratch::make()?;
        let folder = scratch.path();
        let options = Options { durability: Durability::InMemoryOnly, client_ca: None };
        let mut plane = ControlPlane::start(&self.programs, folder, &options).await?;
        let kubeconfig = folder.join("cluster.kubeconfig");
        plane.endpoint.write_kubeconfig(&kubeconfig)?;
        let mut beside = vec![Beside::scheduler(&self.programs, &kubeconfig, folder)?];
        if matches!(guest, Guest::AttachDetach | Guest::All) {
            beside.push(Beside::attach_detach(&self.programs, &kubeconfig, folder)?);
        }
        // Of their own, so that everything the scenarios make is recognised.
        let room = Scratch::make()?;
        let folders = [room.path().to_path_buf()];
        let before = leftovers::under(&folders);
        let mut scenarios = self.command(&kubeconfig, room.path());
        scenarios.envs(invitation.iter().map(|(name, value)| (name, value))).env("ORLOP_SKIP_LOG", skips);
        let done = tokio::select! {
            done = scenarios.status() => done.context("running the scenarios"),
            died = plane.died() => Err(died),
            died = super::any_died(&mut beside) => Err(died),
        };
        let left = leftovers::under(&folders);
        for program in beside {
            program.stop().await?;
        }
        plane.stop().await?;
        let status = done?;
        if !status.success() {
            bail!("the scenarios ended with {status}; see the lines above");
        }
        let left: Vec<String> = left.difference(&before).map(ToString::to_string).collect();
        ensure!(left.is_empty(), "the scenarios left behind:\n{}", left.join("\n"));
        Ok(())
    }

    fn command(&self, kubeconfig: &Path, folder: &Path) -> Command {
        let mut command = Command::new(&self.scenarios);
        // One after the other: two sets of controllers without a lease would work on one server.
        command.args(&self.part).args(["--test-threads=1", "--nocapture"]);
        command.env("TMPDIR", folder).env("ORLOP_TEST_KUBECONFIG", kubeconfig).env("ORLOP_TEST_SCHEDULER", "theirs");
        command.current_dir(crate::root()).kill_on_drop(true);
        command
    }
}
