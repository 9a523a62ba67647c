//! How much memory a process takes.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::sleep;

/// Resident memory in megabytes once it stands still.
pub(super) async fn settled_rss(pid: u32) -> anyhow::Result<f64> {
    const PAUSE: Duration = Duration::from_millis(250);
    const STILL: usize = 8;
    let mut seen: Vec<u64> = Vec::new();
    for _ in 0..60 {
        seen.push(rss_kib(pid)?);
        let latest = &seen[seen.len().saturating_sub(STILL)..];
        if latest.len() == STILL && latest.iter().all(|kib| *kib == latest[0]) {
            break;
        }
        sleep(PAUSE).await;
    }
    megabytes(seen.last().copied().unwrap_or_default())
}

/// Resident memory in megabytes at this moment.
pub(super) fn rss(pid: u32) -> anyhow::Result<f64> {
    megabytes(rss_kib(pid)?)
}

fn megabytes(kib: u64) -> anyhow::Result<f64> {
    Ok(f64::from(u32::try_from(kib)?) * 1024.0 / 1e6)
}

/// Its share of memory that several have (PSS), and what only it has, in megabytes.
pub(super) fn shares(pid: u32) -> anyhow::Result<(f64, f64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("reading the process's memory")?;
    let kib = |name: &str| -> anyhow::Result<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
        Ok(line.trim().trim_end_matches("kB").trim().parse()?)
    };
    let megabytes = |kib: f64| kib * 1024.0 / 1e6;
    Ok((megabytes(kib("Pss:")?), megabytes(kib("Private_Clean:")? + kib("Private_Dirty:")?)))
}

fn rss_kib(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in /proc")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
