//! `orlop api` as a process.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::Command;
use tokio::time::sleep;

use super::process::Process;
use super::{Credential, Endpoint};

/// How often the kubeconfig of a starting server is looked for.
const POLL: Duration = Duration::from_millis(5);

/// A running `orlop api`. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Embedded {
    process: Process,
    pub(crate) endpoint: Endpoint,
    pub(crate) kubeconfig: PathBuf,
    /// Holds `ca.crt`, `admin.crt` and `admin.key`.
    pub(crate) pki: PathBuf,
}

impl Embedded {
    /// Starts the server on a free port with its data in `folder`, and waits for the kubeconfig, which it writes once it
    /// listens.
    pub(crate) async fn start(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let (data, kubeconfig) = (folder.join("api"), folder.join("kubeconfig"));
        match fs::remove_file(&kubeconfig) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut command = Command::new(program);
        command.args(["api", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
        command.arg("--write-kubeconfig").arg(&kubeconfig);
        let mut process = Process::start("orlop", &mut command, folder)?;
        let written = async {
            loop {
                if let Some(address) = address(&kubeconfig) {
                    return address;
                }
                sleep(POLL).await;
            }
        };
        let address = process.until(written).await?;
        let pki = data.join("pki");
        let read = |name: &str| fs::read_to_string(pki.join(name)).with_context(|| format!("reading {name}"));
        let credential = Credential::Certificate { certificate: read("admin.crt")?, key: read("admin.key")? };
        let endpoint = Endpoint { address, ca: read("ca.crt")?, credential };
        Ok(Self { process, endpoint, kubeconfig, pki })
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// Ends only if the server does, which is a failure as long as a suite talks to it.
    pub(crate) async fn died(&mut self) -> anyhow::Error {
        self.process.died().await
    }

    /// SIGTERM; the server must exit with 0.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        let words = self.process.last_words();
        let status = self.process.stop().await?;
        if status.success() { Ok(()) } else { bail!("orlop api ended with {status} after SIGTERM:\n{words}") }
    }
}

/// The server's address, from its kubeconfig.
fn address(kubeconfig: &Path) -> Option<String> {
    let text = fs::read_to_string(kubeconfig).ok()?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("server:"))?;
    Some(line.trim().trim_matches('"').to_owned())
}
