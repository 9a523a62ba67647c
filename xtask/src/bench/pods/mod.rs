//! `cargo xtask bench pods`: what it costs to bring volumes to pods.
//!
//! First a machine: `orlop api`, `orlop driver`, the controllers and `orlop node`, each a process, with pods that have one ext4
//! volume each. What the driver takes for the same volumes is measured through its socket in the same run and taken off, and
//! the agent is restarted in the midst of it all. Then a cluster without machines: pairs of attaching and detaching per second
//! on kube-apiserver with etcd, ours and the Go programs in turns. The load comes from `orlop bench`.

mod pairs;

use std::path::PathBuf;

use super::comparison::{Comparison, Row};
use super::machine;
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

/// What was measured. `None`: not measured.
#[derive(Debug, Default)]
struct Numbers {
    pairs: Option<f64>,
    attached: Option<f64>,
    attached_p99: Option<f64>,
    detached: Option<f64>,
    detached_p99: Option<f64>,
    attach_writes: Option<f64>,
    detach_writes: Option<f64>,
    controllers_rss: Option<f64>,
}

const fn row(what: &'static str, unit: Unit, goal: Goal, value: fn(&Numbers) -> Option<f64>) -> Row<Numbers> {
    Row { what, unit, goal, value }
}

const ROWS: [Row<Numbers>; 8] = [
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
    let programs = turns::programs(args.peer.as_deref())?;
    let mut ours = Numbers::default();
    let mut versions = Vec::new();
    for program in turns::WANTED {
        versions.push((program.name(), programs.path(program)?));
    }
    versions.extend(args.attacher.as_deref().map(|attacher| ("csi-attacher", attacher)));
    let pairs = pairs::Pairs { orlop: &orlop, programs: &programs, args: &args };
    let theirs = pairs.measure(&mut ours).await?;
    let peer = "kube-controller-manager and csi-attacher (Go)";
    let comparison = Comparison { rows: &ROWS, ours: &ours, theirs: theirs.as_ref(), peer };
    comparison.close(&machine::describe(&orlop, &machine::versions(versions)), args.enforce)
}
