//! `cargo xtask bench up`: the whole stack in one process, as it is shipped: how soon it is ready, what it takes while nothing
//! happens, how large it is, and how long the demonstration takes.
//!
//! When the live page is first painted is measured where a browser is: by the test `page`, which prints it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::process::Command;

use super::comparison::{Comparison, Row};
use super::memory::{self, settled_rss};
use super::numbers::{Goal, Series, Unit, milliseconds};
use super::{machine, processor};
use crate::conformance::{Profile, build};
use crate::disk::Scratch;
use crate::kubernetes::Up;

/// What `cargo xtask bench up` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure this program instead of building it.
    #[arg(long, value_name = "PROGRAM")]
    orlop: Option<PathBuf>,
    /// Starts on an empty directory, and as many on a full one.
    #[arg(long, value_name = "N", default_value_t = 50)]
    starts: usize,
    /// Claims in a full directory, all bound.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    claims: usize,
    /// Seconds that an idle stack is watched.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    idle: u64,
    /// Fail when a goal is missed.
    #[arg(long)]
    enforce: bool,
}

/// What was measured. `None`: not measured.
#[derive(Debug, Default)]
struct Numbers {
    first: Option<f64>,
    first_p99: Option<f64>,
    again: Option<f64>,
    again_p99: Option<f64>,
    full: Option<f64>,
    full_p99: Option<f64>,
    idle: Option<Idle>,
    idle_full: Option<Idle>,
    megabytes: Option<f64>,
    demo: Option<f64>,
}

/// A stack that has nothing to do.
#[derive(Debug, Clone, Copy)]
struct Idle {
    rss: f64,
    pss: f64,
    private: f64,
    percent: f64,
}

const fn row(what: &'static str, unit: Unit, goal: Goal, value: fn(&Numbers) -> Option<f64>) -> Row<Numbers> {
    Row { what, unit, goal, value }
}

const ROWS: [Row<Numbers>; 16] = [
    row("start to ready, a new directory (median)", Unit::Milliseconds, Goal::AtMost(300.0), |all| all.first),
    row("the same, p99", Unit::Milliseconds, Goal::Open, |all| all.first_p99),
    row("start to ready, again on an empty directory (median)", Unit::Milliseconds, Goal::AtMost(300.0), |all| {
        all.again
    }),
    row("the same, p99", Unit::Milliseconds, Goal::Open, |all| all.again_p99),
    row("start to ready, a directory full of bound claims (median)", Unit::Milliseconds, Goal::AtMost(300.0), |all| {
        all.full
    }),
    row("the same, p99", Unit::Milliseconds, Goal::Open, |all| all.full_p99),
    row("memory (RSS), idle", Unit::Megabytes, Goal::AtMost(30.0), |all| all.idle.map(|idle| idle.rss)),
    row("its share of it (PSS)", Unit::Megabytes, Goal::Open, |all| all.idle.map(|idle| idle.pss)),
    row("of it private", Unit::Megabytes, Goal::Open, |all| all.idle.map(|idle| idle.private)),
    row("processor time, idle", Unit::Percent, Goal::AtMost(0.05), |all| all.idle.map(|idle| idle.percent)),
    row("memory (RSS), idle with the claims", Unit::Megabytes, Goal::Open, |all| all.idle_full.map(|idle| idle.rss)),
    row("its share of it (PSS)", Unit::Megabytes, Goal::Open, |all| all.idle_full.map(|idle| idle.pss)),
    row("of it private", Unit::Megabytes, Goal::Open, |all| all.idle_full.map(|idle| idle.private)),
    row("processor time, idle with the claims", Unit::Percent, Goal::Open, |all| {
        all.idle_full.map(|idle| idle.percent)
    }),
    row("the program", Unit::Megabytes, Goal::AtMost(25.0), |all| all.megabytes),
    row("orlop demo", Unit::Milliseconds, Goal::AtMost(40_000.0), |all| all.demo),
];

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let orlop = match &args.orlop {
        Some(program) => program.clone(),
        None => build(Profile::Dist).await?,
    };
    let bench = Bench { orlop, args };
    let mut numbers = Numbers::default();
    bench.starts(&mut numbers).await.context("starting on new directories")?;
    bench.stay(&mut numbers).await.context("staying on one directory")?;
    numbers.demo = Some(bench.demo().await?);
    let bytes = std::fs::metadata(&bench.orlop)?.len();
    numbers.megabytes = Some(f64::from(u32::try_from(bytes)?) / 1e6);
    let comparison = Comparison { rows: &ROWS, ours: &numbers, theirs: None, peer: "nobody else has it in one" };
    let closed = comparison.close(&machine::describe(&bench.orlop, &[]), bench.args.enforce);
    println!("the page's first paint is measured in a browser: cargo test -p orlop --test page -- --nocapture");
    closed
}

struct Bench {
    orlop: PathBuf,
    args: Args,
}

impl Bench {
    /// A directory on a disk.
    fn folder() -> anyhow::Result<Scratch> {
        Scratch::make_in(&crate::target().join("bench"))
    }

    async fn start(&self, data: &Path) -> anyhow::Result<(Up, Duration)> {
        Up::start(Up::command(&self.orlop, data), data).await
    }

    /// Each on a directory of its own, which is made with keys, database and pool.
    async fn starts(&self, numbers: &mut Numbers) -> anyhow::Result<()> {
        let mut times = Series::default();
        for _ in 0..self.args.starts {
            let folder = Self::folder()?;
            let (stack, took) = self.start(&folder.path().join("data")).await?;
            times.push(took);
            stack.stop().await?;
        }
        (numbers.first, numbers.first_p99) = said("new directories", &times);
        Ok(())
    }

    /// One directory: empty, idle, full, idle.
    async fn stay(&self, numbers: &mut Numbers) -> anyhow::Result<()> {
        let folder = Self::folder()?;
        let data = folder.path().join("data");
        let (first, _) = self.start(&data).await?;
        first.stop().await?;
        (numbers.again, numbers.again_p99) = said("an empty directory", &self.again(&data).await?);
        let (stack, _) = self.start(&data).await?;
        numbers.idle = Some(self.idle(stack.pid()?).await?);
        stack.make_claims(self.args.claims).await.context("filling it")?;
        stack.stop().await?;
        (numbers.full, numbers.full_p99) = said("a full directory", &self.again(&data).await?);
        let (stack, _) = self.start(&data).await?;
        numbers.idle_full = Some(self.idle(stack.pid()?).await?);
        stack.delete_claims().await.context("emptying it")?;
        stack.stop().await
    }

    async fn again(&self, data: &Path) -> anyhow::Result<Series> {
        let mut times = Series::default();
        for _ in 0..self.args.starts {
            let (stack, took) = self.start(data).await?;
            times.push(took);
            stack.stop().await?;
        }
        Ok(times)
    }

    async fn idle(&self, pid: u32) -> anyhow::Result<Idle> {
        processor::idle_since(pid).await?;
        let rss = settled_rss(pid).await?;
        let percent = processor::percent(pid, Duration::from_secs(self.args.idle)).await?;
        let (pss, private) = memory::shares(pid)?;
        println!("idle: {rss:.1} MB, {pss:.1} MB its share, {private:.1} MB private, {percent:.3} %");
        Ok(Idle { rss, pss, private, percent })
    }

    async fn demo(&self) -> anyhow::Result<f64> {
        let started = Instant::now();
        let mut demo = Command::new(&self.orlop);
        demo.arg("demo").stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        let status = demo.status().await.context("starting orlop demo")?;
        if !status.success() {
            bail!("orlop demo ended with {status}");
        }
        Ok(milliseconds(started.elapsed()))
    }
}

/// Median and p99, which are printed on the way.
fn said(what: &str, times: &Series) -> (Option<f64>, Option<f64>) {
    let (median, p99) = (times.median().map(milliseconds), times.percentile(99).map(milliseconds));
    println!("{what}: median {median:.0?} ms, p99 {p99:.0?} ms");
    (median, p99)
}
