//! How much time of a processor a process takes, and when it stops to take any.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::time::sleep;

/// Units of time in /proc, per second: fixed on all architectures that anybody would bench on.
const TICKS: f64 = 100.0;
/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How long a process must not run to count as idle. Longer than the second that programs wait before they try again.
const QUIET: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(120);

/// Percent of one processor over a time.
pub(super) async fn percent(pid: u32, time: Duration) -> anyhow::Result<f64> {
    let (started, before) = (Instant::now(), ticks(pid)?);
    sleep(time).await;
    let used = f64::from(u32::try_from(ticks(pid)? - before)?) / TICKS;
    Ok(100.0 * used / started.elapsed().as_secs_f64())
}

/// Waits until a process is idle, and says when it last worked.
pub(super) async fn idle_since(pid: u32) -> anyhow::Result<Instant> {
    let started = Instant::now();
    let (mut seen, mut last) = (ticks(pid)?, started);
    while last.elapsed() < QUIET {
        sleep(LOOK).await;
        let now = ticks(pid)?;
        if now != seen {
            (seen, last) = (now, Instant::now());
        }
        if started.elapsed() > PATIENCE {
            bail!("process {pid} still works after {PATIENCE:?}");
        }
    }
    Ok(last)
}

/// Time in user and in kernel mode so far, of all threads, also of those that ended.
fn ticks(pid: u32) -> anyhow::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("reading of process {pid}"))?;
    // The name of the program is in parentheses and may hold anything; twelve fields follow it before these two.
    let (_, after) = stat.rsplit_once(')').context("no program in /proc")?;
    let mut fields = after.split_whitespace().skip(11);
    let mut next = || anyhow::Ok(fields.next().context("too few fields in /proc")?.parse::<u64>()?);
    Ok(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_this_very_process_grows_with_work() {
        let before = ticks(std::process::id()).unwrap();
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until && ticks(std::process::id()).unwrap() == before {}
        assert!(ticks(std::process::id()).unwrap() >= before);
    }
}
