//! The checklist of a Kubernetes API server, run against `orlop api`: HTTP requests, then the real kubectl.
//!
//! The checks are a Python program, the same that was run against kube-apiserver; docs/behaviour/api.md lists them under
//! API-12. They need `python3` on the path.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use super::{Profile, build};
use crate::disk::Scratch;
use crate::kubernetes::Embedded;
use crate::report::Ending;

/// Where the checks are, seen from the workspace.
const CHECKS: &str = "tests/apiserver_checks.py";

pub(super) async fn run() -> Ending {
    Ending::from(check(&crate::root().join(CHECKS)).await)
}

async fn check(checks: &Path) -> anyhow::Result<()> {
    let program = build(Profile::Checked).await?;
    let scratch = Scratch::make()?;
    let mut server = Embedded::start(&program, scratch.path()).await?;
    judge(&mut server, checks, "run").await?;
    // The second half expects the objects that the first one made.
    match kubectl() {
        Some(found) => {
            println!("with {}", found.display());
            judge(&mut server, checks, "kubectl").await?;
        }
        None => println!("skipped: the kubectl checks: there is no `kubectl` on the path"),
    }
    server.stop().await
}

fn kubectl() -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join("kubectl")).find(|file| file.is_file())
}

/// Runs one half of the checks.
async fn judge(server: &mut Embedded, checks: &Path, half: &str) -> anyhow::Result<()> {
    let pki = &server.pki;
    let mut python = Command::new("python3");
    python.arg(checks).arg(half).env("BASE", &server.endpoint.address).env("KUBECONFIG", &server.kubeconfig);
    python.env("CA", pki.join("ca.crt")).env("CERT", pki.join("admin.crt")).env("KEY", pki.join("admin.key"));
    python.stdin(Stdio::null()).kill_on_drop(true);
    let status = tokio::select! {
        status = python.status() => status.context("running python3")?,
        died = server.died() => return Err(died),
    };
    if status.success() { Ok(()) } else { bail!("the checks `{half}` ended with {status}; see the lines above") }
}
