//! A machine with everything on it: API server, driver, controllers and node agent, each a process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::process::Command;

use crate::bench::calls::{Client, Made};
use crate::bench::load::Load;
use crate::conformance::{Driver, Launch};
use crate::disk::Scratch;
use crate::kubernetes::{Beside, Embedded};
use crate::leftovers::{self, Leftover};

/// What the driver calls itself.
const DRIVER: &str = "local.csi.orlop.dev";
/// The machine's name.
const NODE: &str = "bench";
/// Bytes of a volume, and the same as pods ask for it.
const BYTES: i64 = 32 << 20;
const SIZE: &str = "32Mi";
/// How many volumes the agent works on at once by default.
const AT_ONCE: usize = 32;
/// How often a refused step is repeated.
const ATTEMPTS: usize = 20;

/// All that runs. Dropping it kills the processes; mounts and devices go with the folders.
#[derive(Debug)]
pub(super) struct Site {
    orlop: PathBuf,
    /// Absent only while it is restarted.
    agent: Option<Beside>,
    registrar: Beside,
    controllers: Beside,
    driver: Driver,
    server: Embedded,
    /// Sockets and mounts.
    scratch: Scratch,
    /// Volumes and objects.
    disk: Scratch,
}

impl Site {
    pub(super) async fn start(orlop: &Path) -> anyhow::Result<Self> {
        let (scratch, disk) = (Scratch::make()?, Scratch::make_in(&crate::target().join("bench"))?);
        let folder = scratch.path();
        let server = Embedded::start(orlop, disk.path()).await?;
        let driver = Driver::start(driver(orlop, folder, disk.path())).await?;
        let controllers = Beside::together(orlop, &server.kubeconfig, &driver.socket, folder)?;
        fs::create_dir_all(registry(folder))?;
        let agent = agent(orlop, &server.kubeconfig, folder)?;
        let registrar = registrar(orlop, &driver.socket, folder)?;
        let agent = Some(agent);
        Ok(Self { orlop: orlop.to_path_buf(), agent, registrar, controllers, driver, server, scratch, disk })
    }

    fn root(&self) -> PathBuf {
        root(self.scratch.path())
    }

    /// The agent's process.
    pub(super) fn agent(&self) -> anyhow::Result<u32> {
        self.agent.as_ref().context("the agent was not started again")?.pid()
    }

    /// A run of pods on the machine.
    pub(super) fn load(&self, count: usize) -> Load {
        let args = ["--provisioner", DRIVER, "--node", NODE, "--size", SIZE].map(str::to_owned).to_vec();
        let (orlop, kubeconfig) = (self.orlop.clone(), self.server.kubeconfig.clone());
        Load { orlop, kubeconfig, what: "pods", count, args }
    }

    /// Ends the agent and starts another one. Gives the time of the start.
    pub(super) async fn restart(&mut self) -> anyhow::Result<Instant> {
        if let Some(agent) = self.agent.take() {
            agent.stop().await?;
        }
        let started = Instant::now();
        self.agent = Some(agent(&self.orlop, &self.server.kubeconfig, self.scratch.path())?);
        Ok(started)
    }

    /// Everything that is mounted below the agent's folder: paths by the kernel's number of the mount.
    pub(super) fn mounts(&self) -> anyhow::Result<BTreeMap<u64, String>> {
        let (root, table) = (self.root(), fs::read_to_string("/proc/self/mountinfo")?);
        let parse = |line: &str| {
            let mut fields = line.split(' ');
            let (number, point) = (fields.next()?.parse().ok()?, fields.nth(3)?);
            Path::new(point).starts_with(&root).then(|| (number, point.to_owned()))
        };
        Ok(table.lines().filter_map(parse).collect())
    }

    /// How long the driver alone takes to attach, stage and publish so many new volumes, as many at once as the agent asks for.
    pub(super) async fn driver_alone(&self, count: usize) -> anyhow::Result<Duration> {
        let client = Client::connect(&self.driver.socket).await?;
        let folder = self.scratch.path().join("alone");
        let mut volumes = Vec::new();
        for number in 0..count {
            let stage = folder.join(format!("{number}/stage"));
            fs::create_dir_all(&stage)?;
            let made = client.clone().create(&format!("alone-{number}"), BYTES).await?;
            volumes.push(Alone {
                client: client.clone(),
                made,
                stage,
                target: folder.join(format!("{number}/target")),
            });
        }
        let started = Instant::now();
        let up = stream::iter(&mut volumes).map(|volume| volume.up()).buffer_unordered(AT_ONCE);
        up.try_collect::<Vec<()>>().await?;
        let took = started.elapsed();
        let down = stream::iter(&mut volumes).map(|volume| volume.down()).buffer_unordered(AT_ONCE);
        down.try_collect::<Vec<()>>().await?;
        Ok(took)
    }

    /// Ends everything. An error names what stays on the machine.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let (root, folders) = (self.root(), [self.scratch.path().to_path_buf(), self.disk.path().to_path_buf()]);
        for process in self.agent.into_iter().chain([self.registrar, self.controllers]) {
            process.stop().await?;
        }
        self.driver.stop().await?;
        self.server.stop().await?;
        let mut left = leftovers::under(&folders);
        // The agent makes its folder a mount of its own, as a kubelet's is, and leaves that to its next start.
        left.retain(|left| !matches!(left, Leftover::Mount { point, .. } if Path::new(point) == root));
        match left.first() {
            Some(first) => bail!("{} things are left, such as {first}", left.len()),
            None => Ok(()),
        }
    }
}

/// A volume that is brought to a path without an agent.
#[derive(Debug)]
struct Alone {
    client: Client,
    made: Made,
    stage: PathBuf,
    target: PathBuf,
}

impl Alone {
    /// All calls may be repeated, and a caller repeats what failed.
    async fn up(&mut self) -> anyhow::Result<()> {
        let mut left = ATTEMPTS;
        loop {
            match self.try_up().await {
                Ok(()) => return Ok(()),
                Err(error) if left == 0 => return Err(error),
                Err(_) => left -= 1,
            }
        }
    }

    async fn try_up(&mut self) -> anyhow::Result<()> {
        self.client.attach(&mut self.made).await?;
        self.client.stage(&self.made, &self.stage).await?;
        self.client.publish(&self.made, &self.stage, &self.target).await
    }

    async fn down(&mut self) -> anyhow::Result<()> {
        let mut left = ATTEMPTS;
        loop {
            match self.try_down().await {
                Ok(()) => return Ok(()),
                Err(error) if left == 0 => return Err(error),
                Err(_) => left -= 1,
            }
        }
    }

    async fn try_down(&mut self) -> anyhow::Result<()> {
        self.client.unpublish(&self.made, &self.target).await?;
        self.client.unstage(&self.made, &self.stage).await?;
        self.client.detach(&self.made).await?;
        self.client.delete(&self.made.id).await
    }
}

fn root(folder: &Path) -> PathBuf {
    folder.join("node")
}

/// Where drivers register.
fn registry(folder: &Path) -> PathBuf {
    root(folder).join("plugins_registry")
}

/// The real driver. Its volumes are sparse, and more is promised than the disk of a laptop has.
fn driver(orlop: &Path, folder: &Path, disk: &Path) -> Launch {
    let socket = folder.join("csi.sock");
    let mut command = Command::new(orlop);
    command.arg("driver").arg("--endpoint").arg(format!("unix://{}", socket.display()));
    command.args(["--driver-name", DRIVER, "--node-id", NODE, "--overcommit", "100", "--log-level", "warn"]);
    command.arg("--pool").arg(disk.join("pool"));
    Launch { command, socket, log: folder.join("driver.log") }
}

fn agent(orlop: &Path, kubeconfig: &Path, folder: &Path) -> anyhow::Result<Beside> {
    let mut command = Command::new(orlop);
    command.args(["node", "--node-name", NODE, "--log-level", "warn"]);
    command.arg("--kubeconfig").arg(kubeconfig).arg("--root-dir").arg(root(folder));
    Beside::start("node", command, folder).context("starting orlop node")
}

fn registrar(orlop: &Path, socket: &Path, folder: &Path) -> anyhow::Result<Beside> {
    let mut command = Command::new(orlop);
    command.arg("registrar").arg("--csi-address").arg(socket).arg("--kubelet-registration-path").arg(socket);
    command.arg("--plugin-registration-path").arg(registry(folder));
    Beside::start("registrar", command, folder)
}
