//! `cargo xtask bench pods`: what it costs to bring volumes to pods.
//!
//! First a machine: `orlop api`, `orlop driver`, the controllers and `orlop node`, each a process, with pods that have one ext4
//! volume each. What the driver takes for the same volumes is measured through its socket in the same run and taken off, and
//! the agent is restarted in the midst of it all. Then a cluster without machines: pairs of attaching and detaching per second
//! on kube-apiserver with etcd, ours and the Go programs in turns. The load comes from `orlop bench`.

mod machine;
mod pairs;
mod site;

use std::path::{Path, PathBuf};

use super::comparison::{Comparison, Row};
use super::machine as surroundings;
use super::numbers::{Goal, Unit};
use super::turns;
use crate::conformance::{Profile, build};

/// What `cargo xtask bench pods` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure this program instead of building it.
    #[arg(long, value_name = "PROGRAM")]
    orlop: Option<PathBuf>,
    /// A folder with etcd, kube-apiserver and kube-controller-manager, already built. Default: build them with Go.
    #[arg(long, value_name = "FOLDER")]
    peer: Option<PathBuf>,
    /// csi-attacher, which cannot be had as a Go module. Without it ours is measured alone.
    #[arg(long, value_name = "PROGRAM")]
    attacher: Option<PathBuf>,
    /// Pods that are put on a machine at once.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pods: usize,
    /// Pods whose volumes are mounted while the agent is restarted.
    #[arg(long, value_name = "N", default_value_t = 500)]
    restart: usize,
    /// Seconds that an idle agent is watched.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    idle: u64,
    /// Measure only one of the two parts.
    #[arg(long, value_enum, value_name = "PART")]
    only: Option<Part>,
    /// Volumes that are attached and detached in a round.
    #[arg(long, value_name = "N", default_value_t = 500)]
    pairs: usize,
    /// Rounds that both stacks take in turns; the median counts.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Fail when a goal is missed.
    #[arg(long)]
    enforce: bool,
}

/// A part of the bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Pods on this machine; needs root.
    Machine,
    /// Attaching and detaching on kube-apiserver.
    Pairs,
}

/// What was measured. `None`: not measured.
#[derive(Debug, Default)]
struct Numbers {
    ready_p50: Option<f64>,
    ready_p99: Option<f64>,
    driver_alone: Option<f64>,
    over_driver: Option<f64>,
    gone_p99: Option<f64>,
    ready_writes: Option<f64>,
    idle_rss: Option<f64>,
    used_rss: Option<f64>,
    idle_percent: Option<f64>,
    restart: Option<f64>,
    touched: Option<f64>,
    many_rss: Option<f64>,
    pairs: Option<f64>,
    attached: Option<f64>,
    attached_p99: Option<f64>,
    detached: Option<f64>,
    detached_p99: Option<f64>,
    attach_writes: Option<f64>,
    detach_writes: Option<f64>,
    controllers_rss: Option<f64>,
}

/// Who is compared with.
const PEER: &str = "kube-controller-manager and csi-attacher (Go)";

const fn row(what: &'static str, unit: Unit, goal: Goal, value: fn(&Numbers) -> Option<f64>) -> Row<Numbers> {
    Row { what, unit, goal, value }
}

const MACHINE: [Row<Numbers>; 12] = [
    row("a pod from bound to published, all at once, p50", Unit::Milliseconds, Goal::Open, |numbers| numbers.ready_p50),
    row("the same, p99", Unit::Milliseconds, Goal::Open, |numbers| numbers.ready_p99),
    row("the driver alone, all at once", Unit::Milliseconds, Goal::Open, |numbers| numbers.driver_alone),
    row("p99 less the driver alone", Unit::Milliseconds, Goal::AtMost(2000.0), |numbers| numbers.over_driver),
    row("a pod's end until it is gone, p99", Unit::Milliseconds, Goal::Open, |numbers| numbers.gone_p99),
    row("API writes per pod until published, without events", Unit::Each, Goal::Open, |numbers| numbers.ready_writes),
    row("memory (RSS) of an idle agent without pods", Unit::Megabytes, Goal::AtMost(12.0), |numbers| numbers.idle_rss),
    row("the same with those pods", Unit::Megabytes, Goal::Open, |numbers| numbers.used_rss),
    row("its processor time, idle with those pods", Unit::Percent, Goal::AtMost(0.05), |numbers| numbers.idle_percent),
    row("restart of the agent until it is idle", Unit::Milliseconds, Goal::AtMost(2000.0), |numbers| numbers.restart),
    row("mounts that changed meanwhile", Unit::Each, Goal::AtMost(0.0), |numbers| numbers.touched),
    row("memory (RSS) after the restart", Unit::Megabytes, Goal::Open, |numbers| numbers.many_rss),
];

const PAIRS: [Row<Numbers>; 8] = [
    row("pairs of attaching and detaching", Unit::PerSecond, Goal::TimesPeer(5.0), |numbers| numbers.pairs),
    row("attached, all at once", Unit::PerSecond, Goal::Open, |numbers| numbers.attached),
    row("a pod until its node is told, p99", Unit::Milliseconds, Goal::Open, |numbers| numbers.attached_p99),
    row("detached, all at once", Unit::PerSecond, Goal::Open, |numbers| numbers.detached),
    row("a pod's end until detached, p99", Unit::Milliseconds, Goal::Open, |numbers| numbers.detached_p99),
    row("API writes per volume to attach, without events", Unit::Each, Goal::Open, |numbers| numbers.attach_writes),
    row("API writes per volume to detach", Unit::Each, Goal::Open, |numbers| numbers.detach_writes),
    row("memory (RSS) of the controllers", Unit::Megabytes, Goal::Open, |numbers| numbers.controllers_rss),
];

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let orlop = match &args.orlop {
        Some(program) => program.clone(),
        None => build(Profile::Dist).await?,
    };
    let machine = match args.only {
        Some(Part::Pairs) => Ok(()),
        _ => on_machine(&orlop, &args).await?,
    };
    let pairs = match args.only {
        Some(Part::Machine) => Ok(()),
        _ => on_cluster(&orlop, &args).await?,
    };
    machine.and(pairs)
}

/// An error inside of the answer: goals were missed.
async fn on_machine(orlop: &Path, args: &Args) -> anyhow::Result<anyhow::Result<()>> {
    let mut ours = Numbers::default();
    machine::measure(orlop, args, &mut ours).await?;
    let comparison = Comparison { rows: &MACHINE, ours: &ours, theirs: None, peer: PEER };
    Ok(comparison.close(&surroundings::describe(orlop, &[]), args.enforce))
}

/// The same.
async fn on_cluster(orlop: &Path, args: &Args) -> anyhow::Result<anyhow::Result<()>> {
    let programs = turns::programs(args.peer.as_deref())?;
    let mut paths: Vec<(&'static str, &Path)> = Vec::new();
    for program in turns::WANTED {
        paths.push((program.name(), programs.path(program)?));
    }
    paths.extend(args.attacher.as_deref().map(|attacher| ("csi-attacher", attacher)));
    let mut ours = Numbers::default();
    let theirs = pairs::Pairs { orlop, programs: &programs, args }.measure(&mut ours).await?;
    let comparison = Comparison { rows: &PAIRS, ours: &ours, theirs: theirs.as_ref(), peer: PEER };
    Ok(comparison.close(&surroundings::describe(orlop, &surroundings::versions(paths)), args.enforce))
}
