//! `orlop bench claims` as a process, and what it says.

use std::fmt;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

/// What the program says when it waits.
const WAITS: &str = "press Enter";

/// One call of the load generator.
#[derive(Debug)]
pub(super) struct Load<'a> {
    pub(super) orlop: &'a Path,
    pub(super) kubeconfig: &'a Path,
    pub(super) claims: usize,
    /// To be made by hand; 0 if the driver makes them.
    pub(super) volumes: usize,
}

/// How long one step took.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) per_second: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

/// What it found.
#[derive(Debug)]
pub(super) struct Result {
    pub(super) bound: Span,
    pub(super) volumes_gone: Span,
    pub(super) bind_writes: Option<f64>,
    pub(super) bind_events: Option<f64>,
    pub(super) delete_writes: Option<f64>,
}

impl fmt::Display for Result {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} bound/s, {:.0} gone/s", self.bound.per_second, self.volumes_gone.per_second)?;
        if let (Some(bind), Some(delete)) = (self.bind_writes, self.delete_writes) {
            write!(f, ", {bind:.2} and {delete:.2} writes")?;
        }
        Ok(())
    }
}

impl Load<'_> {
    pub(super) async fn run(&self) -> anyhow::Result<Result> {
        let (result, ()) = self.run_and(|| async { Ok(()) }).await?;
        Ok(result)
    }

    /// Runs it, and does something else while all claims are bound.
    pub(super) async fn run_and<T, F>(&self, meanwhile: impl FnOnce() -> F) -> anyhow::Result<(Result, T)>
    where
        F: Future<Output = anyhow::Result<T>>,
    {
        let mut child = self.command().spawn().context("starting orlop bench claims")?;
        until_bound(&mut child).await?;
        let told = meanwhile().await?;
        child.stdin.take().context("its input is piped")?.write_all(b"\n").await?;
        let mut said = String::new();
        child.stdout.take().context("its output is piped")?.read_to_string(&mut said).await?;
        let status = child.wait().await?;
        if !status.success() {
            bail!("orlop bench claims ended with {status}");
        }
        let result = self.read(&serde_json::from_str(&said).context("reading what orlop bench claims said")?);
        Ok((result.with_context(|| format!("orlop bench claims said {said}"))?, told))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.orlop);
        command.args(["bench", "claims", "-o", "json", "--pause", "--concurrency", "64", "--timeout", "30m"]);
        command.arg("--kubeconfig").arg(self.kubeconfig).args(["--count", &self.claims.to_string()]);
        match self.volumes {
            0 => command.args(["--provisioner", super::stack::DRIVER]),
            volumes => command.args(["--static", "--volumes", &volumes.to_string()]),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    fn read(&self, said: &Value) -> Option<Result> {
        let claims = f64::from(u32::try_from(self.claims).ok()?);
        let span = |name: &str| {
            let number = |field: &str| said[name][field].as_f64();
            Some(Span { per_second: number("per_second")?, p50_ms: number("p50_ms")?, p99_ms: number("p99_ms")? })
        };
        let writes = |name: &str| {
            let done = said[name]["done"].as_object()?;
            Some(done.values().filter_map(Value::as_f64).sum::<f64>() / claims)
        };
        Some(Result {
            bound: span("bound")?,
            volumes_gone: span("volumes_gone")?,
            bind_writes: writes("bind_writes"),
            bind_events: said["bind_writes"]["events"].as_f64().map(|events| events / claims),
            delete_writes: writes("delete_writes"),
        })
    }
}

/// Reads what the program complains about until it says that it waits. What it says later goes on being read, so that it
/// never has to wait for us.
async fn until_bound(child: &mut Child) -> anyhow::Result<()> {
    let mut lines = BufReader::new(child.stderr.take().context("its errors are piped")?).lines();
    let mut said = Vec::new();
    while let Some(line) = lines.next_line().await? {
        if line.contains(WAITS) {
            tokio::spawn(async move {
                while let Ok(Some(line)) = lines.next_line().await {
                    eprintln!("{line}");
                }
            });
            return Ok(());
        }
        said.push(line);
    }
    bail!("orlop bench claims ended before its claims were bound:\n{}", said.join("\n"))
}
