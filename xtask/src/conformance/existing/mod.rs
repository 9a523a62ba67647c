//! `orlop up --kubeconfig` as the operator of a cluster uses it: on kube-apiserver with etcd, kube-controller-manager and
//! kube-scheduler, with an account that has the roles of `examples/rbac` and no others, and with kubectl in hand.
//!
//! Once with the local driver: a claim to a mounted pod, a restart that touches no mount, and back, with nothing left. Once
//! with the Go host-path driver and two instances: what runs once goes over to the second when the first stops.

mod operator;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use super::golang::Go;
use super::{Driver, Launch, Profile, build, peers};
use crate::disk::Scratch;
use crate::kubernetes::{Beside, ControlPlane, Durability, Options, Program, Programs};
use crate::leftovers;
use crate::report::{Ending, Report};
use operator::{Operator, Up};

const WANTED: [Program; 5] =
    [Program::Etcd, Program::ApiServer, Program::ControllerManager, Program::Scheduler, Program::Kubectl];

/// What the host-path driver calls itself, and the leases that stand for it.
const HOST_PATH: &str = "hostpath.csi.k8s.io";
const LEASES: [&str; 2] = ["hostpath-csi-k8s-io", "external-attacher-leader-hostpath-csi-k8s-io"];

/// What `cargo xtask conformance existing` takes.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// A host-path driver that somebody built; its Go module cannot be had everywhere.
    #[arg(long, value_name = "PROGRAM")]
    hostpath: Option<PathBuf>,
    /// A folder with etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl, already built.
    #[arg(long, value_name = "FOLDER")]
    peer: Option<PathBuf>,
    /// Use this program instead of building it.
    #[arg(long, value_name = "PROGRAM")]
    orlop: Option<PathBuf>,
}

pub(super) async fn run(go: &Go, args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let programs = match &args.peer {
        Some(folder) => Programs::found_in(folder, &WANTED)?,
        None => Programs::build(go, &WANTED)?,
    };
    crate::tools::provide()?;
    let orlop = match &args.orlop {
        Some(program) => program.clone(),
        None => build(Profile::Checked).await?,
    };
    let suite = Suite { programs, orlop };
    let section = Report::begin("up on a cluster: local driver");
    let ending = suite.play(&Cast::Local).await;
    report.end(section, ending);
    let section = Report::begin("up on a cluster: host-path driver, two instances");
    let ending = match peers::HOST_PATH.find(go, args.hostpath.as_deref()) {
        Ok(program) => suite.play(&Cast::HostPath(program)).await,
        Err(why) => Ending::Skipped(format!("{why:#}")),
    };
    report.end(section, ending);
    Ok(())
}

/// Whose driver is used.
enum Cast {
    Local,
    HostPath(PathBuf),
}

struct Suite {
    programs: Programs,
    orlop: PathBuf,
}

impl Suite {
    async fn play(&self, cast: &Cast) -> Ending {
        if !rustix::process::geteuid().is_root() {
            return Ending::Skipped("mounting needs root".to_owned());
        }
        Ending::from(self.on_cluster(cast).await)
    }

    async fn on_cluster(&self, cast: &Cast) -> anyhow::Result<()> {
        let scratch = Scratch::make()?;
        let folder = scratch.path();
        let options = Options { durability: Durability::InMemoryOnly, client_ca: None };
        let mut plane = ControlPlane::start(&self.programs, folder, &options).await?;
        let admin = folder.join("admin.kubeconfig");
        plane.endpoint.write_kubeconfig(&admin)?;
        let mut beside = vec![
            Beside::scheduler(&self.programs, &admin, folder)?,
            Beside::controller_manager(&self.programs, &admin, folder)?,
        ];
        // Of its own, so that everything that is made there is recognised.
        let room = Scratch::make()?;
        let folders = [room.path().to_path_buf()];
        let before = leftovers::under(&folders);
        let endpoint = plane.endpoint.clone();
        let kubectl = self.programs.path(Program::Kubectl)?;
        let mut operator = Operator::new(kubectl, &admin, &self.orlop, room.path());
        let session = async {
            operator.prepare(&endpoint).await?;
            match cast {
                Cast::Local => local(&operator).await,
                Cast::HostPath(program) => host_path(&operator, program).await,
            }
        };
        let done = tokio::select! {
            done = session => done,
            died = plane.died() => Err(died),
            died = super::any_died(&mut beside) => Err(died),
        };
        let left = leftovers::under(&folders);
        for program in beside {
            program.stop().await?;
        }
        plane.stop().await?;
        done?;
        let left: Vec<String> = left.difference(&before).map(ToString::to_string).collect();
        ensure!(left.is_empty(), "it left behind:\n{}", left.join("\n"));
        Ok(())
    }
}

async fn local(operator: &Operator) -> anyhow::Result<()> {
    let up = operator.up("first", &["--http-endpoint=127.0.0.1:0"]).await?;
    operator.make("data", "local").await?;
    let mount = operator.mounted("data", &up.data).await?;
    std::fs::write(mount.join("file"), "kept")?;
    let told = operator.kubectl(&["get", "events", "--field-selector", "reason=ProvisioningSucceeded"], "").await?;
    ensure!(told.contains("persistentvolumeclaim/data"), "no event tells that the volume was made:\n{told}");
    let metrics = up.read("/metrics").await?;
    ensure!(
        metrics.contains("controller_persistentvolumeclaim_provision_total{"),
        "the metrics are others:\n{metrics}"
    );
    let seen = mount_line(&mount)?;
    up.stop().await?;

    ensure!(std::fs::read_to_string(mount.join("file"))? == "kept", "a pod's mount outlives the process");
    let up = operator.up("first", &[]).await?;
    ensure!(mount_line(&mount)? == seen, "a restart mounts nothing anew");
    operator.remove("data").await?;
    operator.nothing_left().await?;
    up.stop().await
}

async fn host_path(operator: &Operator, program: &Path) -> anyhow::Result<()> {
    let (socket, state) = (operator.folder.join("hp.sock"), operator.folder.join("hp"));
    std::fs::create_dir_all(&state)?;
    let mut command = Command::new(program);
    command.arg(format!("--endpoint=unix://{}", socket.display())).arg(format!("--statedir={}", state.display()));
    command.arg(format!("--nodeid={}", operator.node()?)).arg(format!("--drivername={HOST_PATH}"));
    let launch = Launch { command, socket: socket.clone(), log: operator.folder.join("hp.log") };
    let driver = Driver::start(launch).await?;
    for (class, mode) in [("waits", "WaitForFirstConsumer"), ("at-once", "Immediate")] {
        operator.class(class, HOST_PATH, mode).await?;
    }
    let socket = format!("--driver=unix://{}", socket.display());
    let words = [socket.as_str(), "--local-driver=false"];
    let first = operator.up("first", &words).await?;
    first.leads(&LEASES).await?;
    let second = operator.up("second", &[&words[..], &["--parts=sidecars"]].concat()).await?;
    operator.make("data", "waits").await?;
    let mount = operator.mounted("data", &first.data).await?;
    std::fs::write(mount.join("file"), "kept")?;
    ensure!(!second.said().contains("leading"), "two lead at once:\n{}", second.said());

    first.stop().await?;
    second.leads(&LEASES).await?;
    operator.claim("late", "at-once").await?;
    operator.bound("late").await?;
    let first = operator.up("first", &words).await?;
    ensure!(std::fs::read_to_string(mount.join("file"))? == "kept", "a pod's mount outlives the process");
    operator.kubectl(&["delete", "pvc", "late"], "").await?;
    operator.remove("data").await?;
    operator.nothing_left().await?;
    for up in [first, second] {
        Up::stop(up).await?;
    }
    driver.stop().await.context("the host-path driver")
}

/// What the kernel says of a mount, with its number.
fn mount_line(point: &Path) -> anyhow::Result<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").context("reading the mount table")?;
    let point = point.to_str().context("a path of ours is text")?;
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some(point));
    Ok(line.with_context(|| format!("nothing is mounted at {point}"))?.to_owned())
}
