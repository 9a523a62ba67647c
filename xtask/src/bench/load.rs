//! `orlop bench` as a process, and what it says.

use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

/// What the program says when it waits.
const WAITS: &str = "press Enter";

/// One call of a load generator.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) orlop: PathBuf,
    pub(super) kubeconfig: PathBuf,
    /// Which bench.
    pub(super) what: &'static str,
    /// Of whatever it makes.
    pub(super) count: usize,
    /// More arguments.
    pub(super) args: Vec<String>,
}

/// How long one step took.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) per_second: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

/// What it found.
#[derive(Debug)]
pub(super) struct Said {
    value: Value,
    count: f64,
}

impl Said {
    pub(super) fn number(&self, name: &str) -> anyhow::Result<f64> {
        self.value[name].as_f64().with_context(|| format!("it does not say {name}: {}", self.value))
    }

    pub(super) fn span(&self, name: &str) -> anyhow::Result<Span> {
        let number = |field: &str| self.value[name][field].as_f64();
        let span =
            || Some(Span { per_second: number("per_second")?, p50_ms: number("p50_ms")?, p99_ms: number("p99_ms")? });
        span().with_context(|| format!("it does not say {name}: {}", self.value))
    }

    /// Writes for each; absent if the server does not show its metrics.
    pub(super) fn writes(&self, name: &str) -> Option<f64> {
        let done = self.value[name]["done"].as_object()?;
        Some(done.values().filter_map(Value::as_f64).sum::<f64>() / self.count)
    }

    /// Events for each.
    pub(super) fn events(&self, name: &str) -> Option<f64> {
        self.value[name]["events"].as_f64().map(|events| events / self.count)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}/s, p50 {:.0} ms, p99 {:.0} ms", self.per_second, self.p50_ms, self.p99_ms)
    }
}

impl Load {
    pub(super) async fn run(&self) -> anyhow::Result<Said> {
        let (said, ()) = self.run_and(|| async { Ok(()) }).await?;
        Ok(said)
    }

    /// Runs it, and does something else while everything is there.
    pub(super) async fn run_and<T, F>(&self, meanwhile: impl FnOnce() -> F) -> anyhow::Result<(Said, T)>
    where
        F: Future<Output = anyhow::Result<T>>,
    {
        let mut child = self.command().spawn().with_context(|| format!("starting orlop bench {}", self.what))?;
        until_there(&mut child).await.with_context(|| format!("orlop bench {}", self.what))?;
        let told = meanwhile().await?;
        child.stdin.take().context("its input is piped")?.write_all(b"\n").await?;
        let mut said = String::new();
        child.stdout.take().context("its output is piped")?.read_to_string(&mut said).await?;
        let status = child.wait().await?;
        if !status.success() {
            bail!("orlop bench {} ended with {status}", self.what);
        }
        let value = serde_json::from_str(&said).with_context(|| format!("orlop bench {} said {said}", self.what))?;
        Ok((Said { value, count: f64::from(u32::try_from(self.count)?) }, told))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.orlop);
        command.args(["bench", self.what, "-o", "json", "--pause", "--concurrency", "64", "--timeout", "30m"]);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--count", &self.count.to_string()]).args(&self.args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }
}

/// Reads what the program complains about until it says that it waits. What it says later goes on being read, so that it
/// never has to wait for us.
async fn until_there(child: &mut Child) -> anyhow::Result<()> {
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
    bail!("it ended early:\n{}", said.join("\n"))
}
