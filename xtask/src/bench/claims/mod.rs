//! `cargo xtask bench claims`: what claims cost with our controllers and provisioner, and with the Go ones.
//!
//! Both stacks take turns on one kube-apiserver with etcd and on one driver, which keeps its volumes in memory. Then ours
//! alone, on the embedded API: how fast claims are provisioned there, and how binding to volumes made by hand grows. The
//! load comes from `orlop bench claims`, a process of its own.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::comparison::{Comparison, Row};
use super::load::{Load, Said, Span};
use super::machine;
use super::memory::settled_rss;
use super::numbers::{self, Goal, Unit};
use super::stack::{self, Kind, Sidecar};
use super::turns::{self, Turn, Turns};
use crate::conformance::{Profile, build};
use crate::disk::Scratch;
use crate::kubernetes::{Beside, Embedded, Programs};

/// What `cargo xtask bench claims` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure this program instead of building it.
    #[arg(long, value_name = "PROGRAM")]
    orlop: Option<PathBuf>,
    /// A folder with etcd, kube-apiserver and kube-controller-manager, already built. Default: build them with Go.
    #[arg(long, value_name = "FOLDER")]
    peer: Option<PathBuf>,
    /// csi-provisioner, which cannot be had as a Go module. Without it ours is measured alone.
    #[arg(long, value_name = "PROGRAM")]
    provisioner: Option<PathBuf>,
    /// Claims of a round.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    claims: usize,
    /// Rounds that both stacks take in turns; the median counts.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Claims that are bound to volumes made by hand, and a tenth of the volumes they must be found among at last.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    by_hand: usize,
    /// Leave the embedded API out.
    #[arg(long)]
    cluster_only: bool,
    /// Fail when a goal is missed.
    #[arg(long)]
    enforce: bool,
}

/// What was measured. `None`: not measured.
#[derive(Debug, Default)]
struct Numbers {
    bound: Option<f64>,
    bound_p50: Option<f64>,
    bound_p99: Option<f64>,
    deleted: Option<f64>,
    deleted_p50: Option<f64>,
    deleted_p99: Option<f64>,
    rss: Option<f64>,
    bind_writes: Option<f64>,
    bind_events: Option<f64>,
    delete_writes: Option<f64>,
    embedded: Option<f64>,
    embedded_deleted: Option<f64>,
    by_hand: Option<f64>,
    flatness: Option<f64>,
    rss_many: Option<f64>,
}

const fn row(what: &'static str, unit: Unit, goal: Goal, value: fn(&Numbers) -> Option<f64>) -> Row<Numbers> {
    Row { what, unit, goal, value }
}

const ROWS: [Row<Numbers>; 15] = [
    row("claims to Bound", Unit::PerSecond, Goal::TimesPeer(5.0), |numbers| numbers.bound),
    row("a claim to Bound, p50", Unit::Milliseconds, Goal::Open, |numbers| numbers.bound_p50),
    row("a claim to Bound, p99", Unit::Milliseconds, Goal::Open, |numbers| numbers.bound_p99),
    row("deletions, until the volume is gone", Unit::PerSecond, Goal::TimesPeer(5.0), |numbers| numbers.deleted),
    row("a deletion, p50", Unit::Milliseconds, Goal::Open, |numbers| numbers.deleted_p50),
    row("a deletion, p99", Unit::Milliseconds, Goal::Open, |numbers| numbers.deleted_p99),
    row("memory (RSS) while all are bound", Unit::Megabytes, Goal::TimesPeer(10.0), |numbers| numbers.rss),
    row("API writes per claim to bind, without events", Unit::Each, Goal::AtMost(4.0), |numbers| numbers.bind_writes),
    row("events per claim to bind", Unit::Each, Goal::Open, |numbers| numbers.bind_events),
    row("API writes per claim to delete", Unit::Each, Goal::Open, |numbers| numbers.delete_writes),
    row("embedded API: claims to Bound", Unit::PerSecond, Goal::AtLeast(1000.0), |numbers| numbers.embedded),
    row("embedded API: deletions", Unit::PerSecond, Goal::Open, |numbers| numbers.embedded_deleted),
    row("embedded API: claims bound to volumes by hand", Unit::PerSecond, Goal::AtLeast(1000.0), |numbers| {
        numbers.by_hand
    }),
    row("cost of such a claim with ten times the volumes, times", Unit::Each, Goal::AtMost(1.25), |numbers| {
        numbers.flatness
    }),
    row("memory (RSS) of the controllers with ten times of both", Unit::Megabytes, Goal::AtMost(150.0), |numbers| {
        numbers.rss_many
    }),
];

/// Claims that warm up a stack before it is measured.
const WARM_UP: usize = 50;

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let orlop = match &args.orlop {
        Some(program) => program.clone(),
        None => build(Profile::Dist).await?,
    };
    let programs = turns::programs(args.peer.as_deref())?;
    let bench = Bench { orlop, programs, args };
    let (mut ours, theirs) = bench.cluster().await?;
    if !bench.args.cluster_only {
        bench.embedded(&mut ours).await?;
        bench.by_hand(&mut ours).await?;
    }
    let peer = "kube-controller-manager and csi-provisioner (Go)";
    let comparison = Comparison { rows: &ROWS, ours: &ours, theirs: theirs.as_ref(), peer };
    comparison.close(&machine::describe(&bench.orlop, &bench.versions()?), bench.args.enforce)
}

struct Bench {
    orlop: PathBuf,
    programs: Programs,
    args: Args,
}

impl Bench {
    fn versions(&self) -> anyhow::Result<Vec<(&'static str, String)>> {
        let mut programs = Vec::new();
        for program in turns::WANTED {
            programs.push((program.name(), self.programs.path(program)?));
        }
        programs.extend(self.args.provisioner.as_deref().map(|provisioner| ("csi-provisioner", provisioner)));
        Ok(machine::versions(programs))
    }

    fn turns(&self) -> Turns<'_> {
        let sidecar = self.args.provisioner.as_deref().map(Sidecar::Provisioner);
        Turns { orlop: &self.orlop, programs: &self.programs, sidecar, rounds: self.args.rounds, driver: &[] }
    }

    /// Both stacks on one kube-apiserver.
    async fn cluster(&self) -> anyhow::Result<(Numbers, Option<Numbers>)> {
        if self.args.provisioner.is_none() {
            println!("no comparison with the Go stack: no --provisioner was given");
        }
        let (ours, theirs) = self.turns().on_cluster(async |turn| self.round(turn).await).await?;
        Ok((median(&ours), theirs.map(|rounds| median(&rounds))))
    }

    /// One stack's turn.
    async fn round(&self, turn: Turn<'_>) -> anyhow::Result<Round> {
        load(&self.orlop, turn.kubeconfig, WARM_UP, 0).run().await?;
        let (said, rss) = load(&self.orlop, turn.kubeconfig, self.args.claims, 0).run_and(|| turn.stack.rss()).await?;
        Ok(Round { result: Result::read(&said)?, rss })
    }

    /// Our stack on the embedded API.
    async fn embedded(&self, numbers: &mut Numbers) -> anyhow::Result<()> {
        let home = Scratch::make_in(&crate::target().join("bench"))?;
        let server = Embedded::start(&self.orlop, home.path()).await?;
        let mut rounds = Vec::new();
        for number in 1..=self.args.rounds {
            let turn =
                self.turns().one(Kind::Ours, &server.kubeconfig, &async |turn: Turn<'_>| self.round(turn).await).await;
            let round = turn.context("on the embedded API")?;
            println!("round {number}, embedded API: {round}");
            rounds.push(round);
        }
        let middle = median(&rounds);
        (numbers.embedded, numbers.embedded_deleted) = (middle.bound, middle.deleted);
        server.stop().await
    }

    /// Claims that find volumes made by hand, few and many, on the embedded API.
    async fn by_hand(&self, numbers: &mut Numbers) -> anyhow::Result<()> {
        let home = Scratch::make_in(&crate::target().join("bench"))?;
        let server = Embedded::start(&self.orlop, home.path()).await?;
        let controllers = Beside::orlop("controllers", &self.orlop, &server.kubeconfig, home.path())?;
        let few = self.args.by_hand;
        let load = |claims, volumes| load(&self.orlop, &server.kubeconfig, claims, volumes);
        let among_few = Result::read(&load(few, few).run().await?)?;
        println!("{few} claims, {few} volumes: {among_few}");
        let among_many = Result::read(&load(few, 10 * few).run().await?)?;
        println!("{few} claims, {} volumes: {among_many}", 10 * few);
        let pid = controllers.pid()?;
        let (all, rss) = load(10 * few, 10 * few).run_and(|| settled_rss(pid)).await?;
        let all = Result::read(&all)?;
        println!("{} claims, {} volumes: {all}; {rss:.1} MB", 10 * few, 10 * few);
        numbers.by_hand = Some(among_few.bound.per_second);
        numbers.flatness = Some(among_few.bound.per_second / among_many.bound.per_second);
        numbers.rss_many = Some(rss);
        controllers.stop().await?;
        server.stop().await
    }
}

/// A run of the load generator, with volumes to be made by hand; 0 if the driver makes them.
fn load(orlop: &Path, kubeconfig: &Path, claims: usize, volumes: usize) -> Load {
    let args = match volumes {
        0 => vec!["--provisioner".to_owned(), stack::DRIVER.to_owned()],
        volumes => vec!["--static".to_owned(), "--volumes".to_owned(), volumes.to_string()],
    };
    let (orlop, kubeconfig) = (orlop.to_path_buf(), kubeconfig.to_path_buf());
    Load { orlop, kubeconfig, what: "claims", count: claims, args }
}

/// What it found.
#[derive(Debug)]
struct Result {
    bound: Span,
    volumes_gone: Span,
    bind_writes: Option<f64>,
    bind_events: Option<f64>,
    delete_writes: Option<f64>,
}

impl Result {
    fn read(said: &Said) -> anyhow::Result<Self> {
        Ok(Self {
            bound: said.span("bound")?,
            volumes_gone: said.span("volumes_gone")?,
            bind_writes: said.writes("bind_writes"),
            bind_events: said.events("bind_writes"),
            delete_writes: said.writes("delete_writes"),
        })
    }
}

impl std::fmt::Display for Result {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.0} bound/s, {:.0} gone/s", self.bound.per_second, self.volumes_gone.per_second)?;
        if let (Some(bind), Some(delete)) = (self.bind_writes, self.delete_writes) {
            write!(f, ", {bind:.2} and {delete:.2} writes")?;
        }
        Ok(())
    }
}

/// What one turn of a stack gave.
#[derive(Debug)]
struct Round {
    result: Result,
    rss: f64,
}

impl std::fmt::Display for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {:.1} MB", self.result, self.rss)
    }
}

/// The median of each number by itself.
fn median(rounds: &[Round]) -> Numbers {
    let middle = |value: &dyn Fn(&Round) -> Option<f64>| numbers::middle(rounds.iter().map(value));
    Numbers {
        bound: middle(&|round| Some(round.result.bound.per_second)),
        bound_p50: middle(&|round| Some(round.result.bound.p50_ms)),
        bound_p99: middle(&|round| Some(round.result.bound.p99_ms)),
        deleted: middle(&|round| Some(round.result.volumes_gone.per_second)),
        deleted_p50: middle(&|round| Some(round.result.volumes_gone.p50_ms)),
        deleted_p99: middle(&|round| Some(round.result.volumes_gone.p99_ms)),
        rss: middle(&|round| Some(round.rss)),
        bind_writes: middle(&|round| round.result.bind_writes),
        bind_events: middle(&|round| round.result.bind_events),
        delete_writes: middle(&|round| round.result.delete_writes),
        ..Numbers::default()
    }
}
