//! `orlop up` as a process on a directory.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::kubernetes::{Client, Credential, Endpoint};

/// What it says when a claim can be made, and where.
const READY: &str = "ready address=";
const PATIENCE: Duration = Duration::from_secs(60);

/// A running stack. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Stack {
    child: Child,
    pub(super) client: Client,
}

impl Stack {
    /// Starts it on a free port. The time is from before the process exists until its word that it is ready is read.
    pub(super) async fn start(orlop: &Path, data: &Path) -> anyhow::Result<(Self, Duration)> {
        let mut command = Command::new(orlop);
        command.args(["up", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let started = Instant::now();
        let mut child = command.spawn().context("starting orlop up")?;
        let address = timeout(PATIENCE, ready(&mut child)).await.context("orlop up does not become ready")??;
        let took = started.elapsed();
        let client = Client::new(&endpoint(&address, data)?)?;
        Ok((Self { child, client }, took))
    }

    pub(super) fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("orlop up ended")
    }

    /// SIGTERM; it must end with 0.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        let pid =
            i32::try_from(self.pid()?).ok().and_then(rustix::process::Pid::from_raw).context("it has a number")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = timeout(PATIENCE, self.child.wait()).await.context("orlop up does not end")??;
        if status.success() { Ok(()) } else { bail!("orlop up ended with {status} after SIGTERM") }
    }
}

/// Reads the log until it says so. What is said later goes on being read, so that nobody waits for us.
async fn ready(child: &mut Child) -> anyhow::Result<String> {
    let mut lines = BufReader::new(child.stderr.take().context("it is piped")?).lines();
    let mut said = Vec::new();
    while let Some(line) = lines.next_line().await? {
        if let Some(address) = line.split(READY).nth(1).and_then(|rest| rest.split(' ').next()) {
            let address = address.to_owned();
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(address);
        }
        said.push(line);
    }
    bail!("orlop up ended at its start:\n{}", said.join("\n"))
}

fn endpoint(address: &str, data: &Path) -> anyhow::Result<Endpoint> {
    let read = |name: &str| {
        let file = data.join("pki").join(name);
        fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))
    };
    let credential = Credential::Certificate { certificate: read("admin.crt")?, key: read("admin.key")? };
    Ok(Endpoint { address: format!("https://{address}"), ca: read("ca.crt")?, credential })
}
