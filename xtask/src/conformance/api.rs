//! The checklist of a Kubernetes API server, run against `orlop api`: HTTP requests, then the real kubectl.
//!
//! The checks are a program beside this repository (`shared/checks`), the same that was run against kube-apiserver. Where
//! it is not there, the suite says so and is skipped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::driver::tail;
use super::{Profile, build};
use crate::disk::Scratch;
use crate::report::Ending;

/// Where the checks are, seen from the workspace.
const CHECKS: &str = "../shared/checks/apiserver_checks.py";
const START_LIMIT: Duration = Duration::from_secs(30);
/// How often the kubeconfig of a starting server is looked for.
const POLL: Duration = Duration::from_millis(10);

pub(super) async fn run() -> Ending {
    let checks = crate::root().join(CHECKS);
    if !checks.is_file() {
        return Ending::Skipped(format!("{CHECKS} is not there"));
    }
    Ending::from(check(&checks).await)
}

async fn check(checks: &Path) -> anyhow::Result<()> {
    let program = build(Profile::Release).await?;
    let scratch = Scratch::make()?;
    let mut server = Server::start(&program, scratch.path()).await?;
    server.judge(checks, "run").await?;
    // The second half expects the objects that the first one made.
    match kubectl() {
        Some(found) => {
            println!("with {}", found.display());
            server.judge(checks, "kubectl").await?;
        }
        None => println!("skipped: the kubectl checks: there is no `kubectl` on the path"),
    }
    server.stop().await
}

fn kubectl() -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join("kubectl")).find(|file| file.is_file())
}

/// A running `orlop api`. Dropping it kills the process.
struct Server {
    child: Child,
    data: PathBuf,
    kubeconfig: PathBuf,
    address: String,
    log: PathBuf,
}

impl Server {
    /// Starts the server on a free port and waits for the kubeconfig, which it writes once it listens.
    async fn start(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let (data, kubeconfig, log) = (folder.join("api"), folder.join("kubeconfig"), folder.join("api.log"));
        let mut command = Command::new(program);
        command.args(["api", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
        command.arg("--write-kubeconfig").arg(&kubeconfig);
        let output = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).kill_on_drop(true);
        let mut child = command.spawn().context("starting orlop api")?;
        let written = async {
            loop {
                if let Some(address) = address(&kubeconfig) {
                    return address;
                }
                sleep(POLL).await;
            }
        };
        let address = tokio::select! {
            address = written => address,
            status = child.wait() => bail!("orlop api ended with {} at its start:\n{}", status?, tail(&log)),
            () = sleep(START_LIMIT) => bail!("orlop api does not serve after {START_LIMIT:?}:\n{}", tail(&log)),
        };
        Ok(Self { child, data, kubeconfig, address, log })
    }

    /// Runs one half of the checks.
    async fn judge(&mut self, checks: &Path, half: &str) -> anyhow::Result<()> {
        let pki = self.data.join("pki");
        let mut python = Command::new("python3");
        python.arg(checks).arg(half).env("BASE", &self.address).env("KUBECONFIG", &self.kubeconfig);
        python.env("CA", pki.join("ca.crt")).env("CERT", pki.join("admin.crt")).env("KEY", pki.join("admin.key"));
        python.stdin(Stdio::null()).kill_on_drop(true);
        let status = tokio::select! {
            status = python.status() => status.context("running python3")?,
            died = self.child.wait() => bail!("orlop api ended with {} during the checks:\n{}", died?, tail(&self.log)),
        };
        if status.success() { Ok(()) } else { bail!("the checks `{half}` ended with {status}; see the lines above") }
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
        rustix::process::kill_process(
            pid.context("orlop api is not running any more")?,
            rustix::process::Signal::TERM,
        )?;
        let status = self.child.wait().await?;
        if status.success() {
            Ok(())
        } else {
            bail!("orlop api ended with {status} after SIGTERM:\n{}", tail(&self.log))
        }
    }
}

/// The server's address, from its kubeconfig.
fn address(kubeconfig: &Path) -> Option<String> {
    let text = fs::read_to_string(kubeconfig).ok()?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("server:"))?;
    Some(line.trim().trim_matches('"').to_owned())
}
