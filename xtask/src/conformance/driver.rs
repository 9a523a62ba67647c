//! A driver as a process: started, awaited, asked to stop, and never left running.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

const START_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// How often a starting driver's socket is tried.
const POLL: Duration = Duration::from_millis(10);

/// Which half of the driver a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    All,
    Controller,
    Node,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Controller => "controller",
            Self::Node => "node",
        }
    }
}

/// How to start a driver. `command` already holds everything but the process's own folders.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) command: Command,
    pub(crate) socket: PathBuf,
    pub(crate) log: PathBuf,
}

impl Launch {
    /// Our own driver, as an operator would start it.
    pub(crate) fn orlop(program: &Path, mode: Mode, socket: PathBuf, pool: &Path, log: PathBuf) -> Self {
        let mut command = Command::new(program);
        command.arg("driver").arg("--endpoint").arg(format!("unix://{}", socket.display()));
        command.args(["--node-id", "conformance", "--attach-limit", "3", "--mode", mode.name()]);
        command.arg("--pool").arg(pool);
        Self { command, socket, log }
    }

    /// Writes down everything it can, which is where a secret would show.
    pub(crate) fn with_debug_log(mut self) -> Self {
        self.command.args(["--log-level", "debug"]);
        self
    }
}

/// A running driver. Dropping it kills the process; [`Driver::stop`] is the polite way.
#[derive(Debug)]
pub(crate) struct Driver {
    child: Child,
    pub(crate) socket: PathBuf,
    pub(crate) log: PathBuf,
}

impl Driver {
    /// Starts the process and waits until its socket takes connections.
    pub(crate) async fn start(launch: Launch) -> anyhow::Result<Self> {
        let Launch { mut command, socket, log } = launch;
        let output = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("starting {:?}", command.as_std().get_program()))?;
        let mut driver = Self { child, socket, log };
        let connects = async {
            while UnixStream::connect(&driver.socket).await.is_err() {
                sleep(POLL).await;
            }
        };
        tokio::select! {
            () = connects => Ok(driver),
            status = driver.child.wait() => bail!("the driver ended with {} at its start:\n{}", status?, tail(&driver.log)),
            () = sleep(START_LIMIT) => bail!("the driver does not answer after {START_LIMIT:?}:\n{}", tail(&driver.log)),
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Ends only if the driver does, which is a failure as long as a suite talks to it.
    pub(crate) async fn died(&mut self) -> anyhow::Error {
        match self.child.wait().await {
            Ok(status) => anyhow::anyhow!("the driver ended with {status} during the run:\n{}", tail(&self.log)),
            Err(error) => anyhow::anyhow!("watching the driver: {error}"),
        }
    }

    /// SIGTERM, as an orchestrator stops a driver: it must exit with 0 and take its socket away.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
        let pid = pid.context("the driver is not running any more")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = match timeout(STOP_LIMIT, self.child.wait()).await {
            Ok(status) => status?,
            Err(_) => bail!("the driver still runs {STOP_LIMIT:?} after SIGTERM:\n{}", tail(&self.log)),
        };
        if !status.success() {
            bail!("the driver ended with {status} after SIGTERM:\n{}", tail(&self.log));
        }
        if self.socket.exists() {
            bail!("the driver left its socket {} behind", self.socket.display());
        }
        Ok(())
    }
}

/// The last lines of a log, for an error message.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
