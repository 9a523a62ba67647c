//! A server process with its log. Dropping it kills the process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::conformance::tail;

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program whose output goes to `<name>.log` in `folder`.
    pub(super) fn start(name: &'static str, command: &mut Command, folder: &Path) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let output = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Self { name, child, log })
    }

    /// Waits for `ready`, for the process's end, or for too long, whichever comes first.
    pub(super) async fn until<T>(&mut self, ready: impl Future<Output = T>) -> anyhow::Result<T> {
        tokio::select! {
            ready = ready => Ok(ready),
            status = self.child.wait() => bail!("{} ended with {} at its start:\n{}", self.name, status?, tail(&self.log)),
            () = sleep(START_LIMIT) => bail!("{} does not serve after {START_LIMIT:?}:\n{}", self.name, tail(&self.log)),
        }
    }

    /// Ends only if the process does.
    pub(super) async fn died(&mut self) -> anyhow::Error {
        match self.child.wait().await {
            Ok(status) => anyhow::anyhow!("{} ended with {status} during the run:\n{}", self.name, tail(&self.log)),
            Err(error) => anyhow::anyhow!("watching {}: {error}", self.name),
        }
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// SIGTERM, and the status the process ends with.
    pub(super) async fn stop(mut self) -> anyhow::Result<ExitStatus> {
        let pid = self.child.id().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
        let pid = pid.with_context(|| format!("{} is not running any more:\n{}", self.name, tail(&self.log)))?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        match timeout(STOP_LIMIT, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!("{} still runs {STOP_LIMIT:?} after SIGTERM:\n{}", self.name, tail(&self.log)),
        }
    }

    pub(super) fn last_words(&self) -> String {
        tail(&self.log)
    }
}
