//! A grpc-go client that sends a socket path as `:authority`, as old sidecars and tools do.

use std::path::Path;
use std::process::Stdio;

use anyhow::bail;
use tokio::process::Command;

use super::{Driver, Launch, Mode, Profile, build};
use crate::disk::Scratch;
use crate::report::Ending;

/// The client's program, a Go module of its own.
const FOLDER: &str = "tests/go/authority";

pub(super) async fn run() -> Ending {
    let folder = crate::root().join(FOLDER);
    if folder.join("go.mod").is_file() {
        Ending::from(call(&folder).await)
    } else {
        Ending::Skipped(format!("there is no module in {FOLDER}"))
    }
}

async fn call(folder: &Path) -> anyhow::Result<()> {
    let program = build(Profile::Checked).await?;
    let scratch = Scratch::make()?;
    let pool = scratch.path().join("pool");
    std::fs::create_dir(&pool)?;
    let socket = scratch.path().join("csi.sock");
    let launch = Launch::orlop(&program, Mode::All, socket.clone(), &pool, scratch.path().join("driver.log"));
    let mut driver = Driver::start(launch).await?;
    let mut client = Command::new("go");
    client.args(["run", "."]).arg(&socket).current_dir(folder).env("GOFLAGS", "-mod=mod").env("GOWORK", "off");
    client.stdin(Stdio::null()).kill_on_drop(true);
    let status = tokio::select! {
        status = client.status() => status?,
        died = driver.died() => return Err(died),
    };
    driver.stop().await?;
    if status.success() { Ok(()) } else { bail!("{FOLDER} ended with {status}") }
}
