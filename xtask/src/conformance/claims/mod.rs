//! From claim to volume on a real kube-apiserver with etcd.
//!
//! The scenarios are those of `crates/cli/tests/claims`, which `cargo xtask test` runs on the embedded API: once with
//! `orlop controllers` in the place of kube-controller-manager's loops, once with those loops themselves, both with the
//! real kube-scheduler. Then our sidecar serves drivers that nobody here wrote: claims, and attachments.

mod attachments;
mod foreign;
mod server;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tokio::process::Command;

use super::golang::Go;
use super::{Profile, build, peers};
use crate::disk::Scratch;
use crate::kubernetes::{Beside, Client, Program, Programs};
use crate::report::{Ending, Report};
use attachments::Attachments;
use foreign::Foreign;
use server::Server;

const WANTED: [Program; 4] = [Program::Etcd, Program::ApiServer, Program::ControllerManager, Program::Scheduler];

/// What `cargo xtask conformance claims` takes.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Only the runs whose name contains this: controllers, kube-controller-manager, mock-driver, host-path.
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// Only the scenarios whose name contains this.
    #[arg(long, value_name = "PART")]
    scenario: Option<String>,
    /// A host-path driver that somebody built; its Go module cannot be had everywhere.
    #[arg(long, value_name = "PROGRAM")]
    hostpath: Option<PathBuf>,
    /// A csi-attacher that somebody built, to attach and detach in turn with ours; its Go module cannot be had everywhere.
    #[arg(long, value_name = "PROGRAM")]
    attacher: Option<PathBuf>,
    /// A folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler, already built.
    #[arg(long, value_name = "FOLDER")]
    peer: Option<PathBuf>,
    /// Use this program instead of building it.
    #[arg(long, value_name = "PROGRAM")]
    orlop: Option<PathBuf>,
}

/// Whose loops bind and protect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loops {
    Ours,
    Theirs,
}

impl Loops {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => "claims: orlop controllers, kube-scheduler",
            Self::Theirs => "claims: kube-controller-manager, kube-scheduler",
        }
    }

    /// What the scenarios call it.
    fn word(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Theirs => "theirs",
        }
    }
}

pub(super) async fn run(go: &Go, args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let programs = match &args.peer {
        Some(folder) => Programs::found_in(folder, &WANTED)?,
        None => Programs::build(go, &WANTED)?,
    };
    let orlop = match &args.orlop {
        Some(program) => program.clone(),
        None => build(Profile::Checked).await?,
    };
    let attacher = peers::ATTACHER.find(go, args.attacher.as_deref());
    let suite = Suite { programs, orlop, scenario: args.scenario.clone(), attacher };
    let wanted = |name: &str| args.only.as_ref().is_none_or(|part| name.contains(part));
    for loops in [Loops::Ours, Loops::Theirs].into_iter().filter(|loops| wanted(loops.name())) {
        let section = Report::begin(loops.name());
        let ending = Ending::from(suite.scenarios(loops).await);
        report.end(section, ending);
    }
    for kind in foreign::KINDS.into_iter().filter(|kind| wanted(kind.title())) {
        let section = Report::begin(kind.title());
        let ending = match kind.find(go, args.hostpath.as_deref()) {
            Ok(foreign) => Ending::from(suite.serve(&foreign).await),
            Err(why) => Ending::Skipped(format!("{why:#}")),
        };
        report.end(section, ending);
    }
    Ok(())
}

struct Suite {
    programs: Programs,
    orlop: PathBuf,
    scenario: Option<String>,
    attacher: anyhow::Result<PathBuf>,
}

impl Suite {
    /// All scenarios on one server, one after the other.
    async fn scenarios(&self, loops: Loops) -> anyhow::Result<()> {
        let scratch = Scratch::make()?;
        let mut server = Server::start(&self.programs, &self.orlop, scratch.path()).await?;
        let mut beside = vec![Beside::scheduler(&self.programs, &server.kubeconfig, scratch.path())?];
        if loops == Loops::Theirs {
            beside.push(Beside::controller_manager(&self.programs, &server.kubeconfig, scratch.path())?);
        }
        let done = tokio::select! {
            done = self.cargo_test(loops, &server.kubeconfig) => done,
            died = server.plane.died() => Err(died),
            died = super::any_died(&mut beside) => Err(died),
        };
        for program in beside {
            program.stop().await?;
        }
        server.plane.stop().await?;
        done
    }

    async fn cargo_test(&self, loops: Loops, kubeconfig: &Path) -> anyhow::Result<()> {
        let mut cargo = Command::from(crate::tools::cargo());
        cargo.args(["test", "--workspace", "--test", "claims", "--"]).args(&self.scenario);
        // One after the other: two sets of controllers without a lease would work on one server.
        cargo.args(["--test-threads=1", "--nocapture"]).current_dir(crate::root()).kill_on_drop(true);
        cargo.env("ORLOP_TEST_KUBECONFIG", kubeconfig).env("ORLOP_TEST_CONTROLLERS", loops.word());
        cargo.env("ORLOP_TEST_SCHEDULER", "theirs");
        let status = cargo.status().await.context("running cargo test")?;
        if status.success() { Ok(()) } else { bail!("the scenarios ended with {status}; see the lines above") }
    }

    /// Attachments and claims, and nothing left of them, with a driver that is not ours.
    async fn serve(&self, foreign: &Foreign) -> anyhow::Result<()> {
        let scratch = Scratch::make()?;
        let folder = scratch.path();
        let mut server = Server::start(&self.programs, &self.orlop, folder).await?;
        let mut driver = foreign.start(folder).await?;
        let client = Client::new(&server.plane.endpoint)?;
        foreign.register(&client, &self.orlop, &driver.socket).await.context("registering the driver")?;
        let before = foreign::volumes(&self.orlop, &driver.socket).await?;
        let (socket, kubeconfig) = (driver.socket.clone(), server.kubeconfig.clone());
        let attachments = Attachments {
            foreign,
            client: &client,
            orlop: &self.orlop,
            socket: &socket,
            kubeconfig: &kubeconfig,
            folder,
            attacher: self.attacher.as_ref(),
        };
        // Before the controllers, which delete attachments that no pod wants.
        let attached = tokio::select! {
            done = attachments.run() => done.context("attachments"),
            died = server.plane.died() => Err(died),
            died = driver.died() => Err(died),
        };
        attached?;
        let mut beside = vec![
            Beside::orlop("controllers", &self.orlop, &server.kubeconfig, folder)?,
            Beside::sidecar(&self.orlop, &server.kubeconfig, &driver.socket, folder)?,
        ];
        let done = tokio::select! {
            done = foreign.claims(&self.orlop, &server.kubeconfig) => done,
            died = server.plane.died() => Err(died),
            died = driver.died() => Err(died),
            died = super::any_died(&mut beside) => Err(died),
        };
        done?;
        let after = foreign::volumes(&self.orlop, &driver.socket).await?;
        for program in beside {
            program.stop().await?;
        }
        server.plane.stop().await?;
        if before == after { Ok(()) } else { bail!("the driver had {before} volumes before, and has {after} now") }
    }
}
