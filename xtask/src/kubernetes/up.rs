//! `orlop up` as a process: the API server, the driver and the controllers in one.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use futures_util::future::try_join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::{Client, Credential, Endpoint, Question};

/// What it says when a claim can be made, and where.
const READY: &str = "ready address=";
const PATIENCE: Duration = Duration::from_secs(60);

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
/// Requests under way at once.
const CLIENTS: usize = 16;
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// For as many claims as anybody asks for here.
const LONG_PATIENCE: Duration = Duration::from_secs(600);

/// A running stack. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Up {
    child: Child,
    client: Client,
    endpoint: Endpoint,
}

impl Up {
    /// The command for a program on this machine.
    pub(crate) fn command(orlop: &Path, data: &Path) -> Command {
        let mut command = Command::new(orlop);
        command.args(["up", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        command
    }

    /// Runs a command that ends in `orlop up`, whose data is seen at `data` from here. The time is from before the process
    /// exists until its word that it is ready is read.
    pub(crate) async fn start(mut command: Command, data: &Path) -> anyhow::Result<(Self, Duration)> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let started = Instant::now();
        let mut child = command.spawn().context("starting orlop up")?;
        let address = timeout(PATIENCE, ready(&mut child)).await.context("orlop up does not become ready")??;
        let took = started.elapsed();
        let endpoint = endpoint(&address, data)?;
        let client = Client::new(&endpoint)?;
        Ok((Self { child, client, endpoint }, took))
    }

    /// Where its API is, as its administrator.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("orlop up ended")
    }

    /// SIGTERM; it must end with 0.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let pid =
            i32::try_from(self.pid()?).ok().and_then(rustix::process::Pid::from_raw).context("it has a number")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = timeout(PATIENCE, self.child.wait()).await.context("orlop up does not end")??;
        if status.success() { Ok(()) } else { bail!("orlop up ended with {status} after SIGTERM") }
    }

    /// Makes claims of the default class, and waits until all are bound.
    pub(crate) async fn make_claims(&self, count: usize) -> anyhow::Result<()> {
        let work = (0..CLIENTS).map(|first| async move {
            for number in (first..count).step_by(CLIENTS) {
                let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "metadata": {"name": format!("claim-{number:05}")},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "32Mi"}}}});
                let question = Question::new(Method::POST, CLAIMS).body("application/json", claim.to_string());
                let answer = self.client.ask(&question).await?;
                ensure!(answer.status == 201, "{}: {}", answer.status, String::from_utf8_lossy(&answer.body));
            }
            anyhow::Ok(())
        });
        try_join_all(work).await?;
        let is_bound = |claim: &&Value| claim["status"]["phase"] == "Bound";
        self.until(CLAIMS, |claims| claims.iter().filter(is_bound).count() == count).await
    }

    /// Deletes all claims, and waits until no volume is left.
    pub(crate) async fn delete_claims(&self) -> anyhow::Result<()> {
        let answer = self.client.ask(&Question::new(Method::DELETE, CLAIMS)).await?;
        ensure!(answer.status == 200, "{}: {}", answer.status, String::from_utf8_lossy(&answer.body));
        self.until(VOLUMES, <[Value]>::is_empty).await
    }

    async fn until(&self, path: &str, so: impl Fn(&[Value]) -> bool) -> anyhow::Result<()> {
        let asked = async {
            loop {
                let answer = self.client.ask(&Question::get(path)).await?;
                let list: Value = serde_json::from_slice(&answer.body)?;
                if so(list["items"].as_array().context("a list has items")?) {
                    return anyhow::Ok(());
                }
                sleep(ASK_AGAIN).await;
            }
        };
        timeout(LONG_PATIENCE, asked).await.with_context(|| format!("waiting for {path}"))?
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
