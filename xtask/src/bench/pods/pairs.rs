//! Attaching and detaching without machines, on kube-apiserver.

use std::fmt;
use std::path::Path;

use super::{Args, Numbers};
use crate::bench::load::{Load, Span};
use crate::bench::numbers::middle;
use crate::bench::stack::{DRIVER, Sidecar};
use crate::bench::turns::{Turn, Turns};
use crate::kubernetes::Programs;

/// Volumes that warm up a stack before it is measured.
const WARM_UP: usize = 20;
/// Nodes that volumes go to.
const NODES: usize = 10;

/// Both stacks.
#[derive(Debug)]
pub(super) struct Pairs<'a> {
    pub(super) orlop: &'a Path,
    pub(super) programs: &'a Programs,
    pub(super) args: &'a Args,
}

/// What one turn of a stack gave.
#[derive(Debug)]
struct Round {
    pairs: f64,
    attached: Span,
    detached: Span,
    attach_writes: Option<f64>,
    detach_writes: Option<f64>,
    rss: f64,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pairs, attached, detached, rss, .. } = self;
        write!(f, "{pairs:.0} pairs/s; attached {attached}; detached {detached}; {rss:.1} MB")
    }
}

impl Pairs<'_> {
    /// Our numbers into `ours`, and theirs if csi-attacher is there.
    pub(super) async fn measure(&self, ours: &mut Numbers) -> anyhow::Result<Option<Numbers>> {
        let sidecar = self.args.attacher.as_deref().map(Sidecar::Attacher);
        if sidecar.is_none() {
            println!("no comparison with the Go stack: no --attacher was given");
        }
        let rounds = self.args.rounds;
        let turns = Turns { orlop: self.orlop, programs: self.programs, sidecar, rounds, driver: &["--attach"] };
        let (mine, others) = turns.on_cluster(async |turn| self.round(turn).await).await?;
        median(&mine, ours);
        Ok(others.map(|rounds| {
            let mut theirs = Numbers::default();
            median(&rounds, &mut theirs);
            theirs
        }))
    }

    async fn round(&self, turn: Turn<'_>) -> anyhow::Result<Round> {
        let load = |count| {
            let args = ["--driver", DRIVER, "--nodes", &NODES.to_string()].map(str::to_owned).to_vec();
            let (orlop, kubeconfig) = (self.orlop.to_path_buf(), turn.kubeconfig.to_path_buf());
            Load { orlop, kubeconfig, what: "attach", count, args }
        };
        load(WARM_UP).run().await?;
        let (said, rss) = load(self.args.pairs).run_and(|| turn.stack.rss()).await?;
        Ok(Round {
            pairs: said.number("pairs_per_second")?,
            attached: said.span("attached")?,
            detached: said.span("detached")?,
            attach_writes: said.writes("attach_writes"),
            detach_writes: said.writes("detach_writes"),
            rss,
        })
    }
}

/// The median of each number by itself.
fn median(rounds: &[Round], numbers: &mut Numbers) {
    let median = |value: &dyn Fn(&Round) -> Option<f64>| middle(rounds.iter().map(value));
    numbers.pairs = median(&|round| Some(round.pairs));
    numbers.attached = median(&|round| Some(round.attached.per_second));
    numbers.attached_p99 = median(&|round| Some(round.attached.p99_ms));
    numbers.detached = median(&|round| Some(round.detached.per_second));
    numbers.detached_p99 = median(&|round| Some(round.detached.p99_ms));
    numbers.attach_writes = median(&|round| round.attach_writes);
    numbers.detach_writes = median(&|round| round.detach_writes);
    numbers.controllers_rss = median(&|round| Some(round.rss));
}
