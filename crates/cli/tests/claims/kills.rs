//! SIGKILL at random moments: every claim is served in the end, and nothing is left that nobody knows.
//!
//! A moment is a number of changes that were seen. `ORLOP_CLAIMS_SEED` repeats a run's choices, as far as processes can be
//! made to.

use std::collections::BTreeSet;
use std::pin::Pin;

use futures_util::stream::{self, Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use kube::runtime::watcher;

use super::objects::{PATIENCE, claim};
use super::program::Program;
use super::stage::{Controllers, Stage, controllers};
use crate::api_rig::{Random, seed};
use crate::needs;
use crate::rig::skip;

const CLAIMS: usize = 50;
/// Claims that are deleted while they are being served.
const REGRETTED: usize = 8;
const KILLS: usize = 12;
/// Changes between two kills, at most.
const APART: u64 = 15;

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Sidecar,
    Controllers,
    /// Sidecar and controllers in one process.
    Both,
    Driver,
}

/// What was seen of the cluster.
#[derive(Debug)]
enum Seen {
    Bound(String),
    ClaimGone(String),
    /// Everything that was there before was seen.
    Ready,
    Other,
}

type Changes = Pin<Box<dyn Stream<Item = Seen> + Send>>;

/// Changes of claims and volumes, as they come.
fn changes(stage: &Stage) -> Changes {
    let claims = watcher(stage.claims(), watcher::Config::default()).map(|event| match event.unwrap() {
        watcher::Event::Apply(claim) | watcher::Event::InitApply(claim) => match is_bound(&claim) {
            true => Seen::Bound(claim.name_any()),
            false => Seen::Other,
        },
        watcher::Event::Delete(claim) => Seen::ClaimGone(claim.name_any()),
        watcher::Event::InitDone => Seen::Ready,
        watcher::Event::Init => Seen::Other,
    });
    let volumes = watcher(stage.volumes(), watcher::Config::default());
    let volumes = volumes.map(|event: Result<watcher::Event<PersistentVolume>, _>| match event.unwrap() {
        watcher::Event::InitDone => Seen::Ready,
        _ => Seen::Other,
    });
    Box::pin(stream::select(claims, volumes))
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

struct Drill {
    stage: Stage,
    victim: Victim,
    random: Random,
    changes: Changes,
    bound: BTreeSet<String>,
    gone: BTreeSet<String>,
    killed: usize,
}

impl Drill {
    async fn begin(victim: Victim) -> Self {
        let mut stage = Stage::bare().await;
        match victim {
            Victim::Both => stage.start_together(),
            Victim::Sidecar | Victim::Controllers | Victim::Driver => {
                stage.start_controllers();
                stage.start_sidecar();
            }
        }
        let (random, mut changes) = (Random::new(seed("ORLOP_CLAIMS_SEED")), changes(&stage));
        let mut ready = 0;
        while ready < 2 {
            ready += usize::from(matches!(changes.next().await.unwrap(), Seen::Ready));
        }
        Self { stage, victim, random, changes, bound: BTreeSet::new(), gone: BTreeSet::new(), killed: 0 }
    }

    fn kill(&mut self) {
        self.killed += 1;
        match self.victim {
            Victim::Sidecar => {
                drop(self.stage.sidecar.take());
                self.stage.start_sidecar();
            }
            Victim::Controllers => {
                drop(self.stage.controllers.take());
                self.stage.start_controllers();
            }
            Victim::Both => {
                drop(self.stage.sidecar.take());
                self.stage.start_together();
            }
            Victim::Driver => self.stage.restart_driver(),
        }
    }

    /// Kills again and again, until enough was seen.
    async fn kill_until(&mut self, what: &str, enough: impl Fn(&Self) -> bool) {
        let (before, mut left) = (self.killed, self.random.below(APART));
        let run = async {
            while !enough(self) {
                match self.changes.next().await.unwrap() {
                    Seen::Bound(name) => drop(self.bound.insert(name)),
                    Seen::ClaimGone(name) => drop(self.gone.insert(name)),
                    Seen::Ready | Seen::Other => {}
                }
                if left == 0 && self.killed - before < KILLS {
                    self.kill();
                    left = 1 + self.random.below(APART);
                }
                left = left.saturating_sub(1);
            }
        };
        if tokio::time::timeout(PATIENCE, run).await.is_err() {
            let (bound, gone) = (&self.bound, &self.gone);
            let programs = [&mut self.stage.sidecar, &mut self.stage.controllers].into_iter().flatten();
            let ended: Vec<_> = programs.map(Program::ended).collect();
            panic!(
                "not all are {what} after {PATIENCE:?}; bound: {bound:?}; gone: {gone:?}; programs ended: {ended:?}"
            );
        }
        println!("{what} after {} kills", self.killed - before);
    }

    async fn run(mut self) {
        let names: Vec<String> = (0..CLAIMS).map(|number| format!("claim-{number:02}")).collect();
        for name in &names {
            self.stage.create_claim(&claim(&self.stage, name)).await;
        }
        let regretted: BTreeSet<String> =
            (0..REGRETTED).map(|_| names[usize::try_from(self.random.below(CLAIMS as u64)).unwrap()].clone()).collect();
        for name in &regretted {
            drop(self.stage.claims().delete(name, &DeleteParams::default()).await.unwrap());
        }
        let kept: BTreeSet<String> = names.into_iter().filter(|name| !regretted.contains(name)).collect();
        self.kill_until("bound", |drill| kept.is_subset(&drill.bound) && regretted.is_subset(&drill.gone)).await;
        self.stage.settled(kept.len()).await;
        for name in &kept {
            drop(self.stage.claims().delete(name, &DeleteParams::default()).await.unwrap());
        }
        self.kill_until("gone", |drill| kept.is_subset(&drill.gone)).await;
        self.stage.settled(0).await;
        assert!(self.killed > 0, "nobody was killed");
        self.stage.end().await;
    }
}

#[tokio::test]
async fn a_sidecar_killed_at_random_moments_serves_every_claim_and_leaks_nothing() {
    needs!(Ext4);
    Drill::begin(Victim::Sidecar).await.run().await;
}

/// Rule: SIDECAR-14.5.25
#[tokio::test]
async fn a_driver_killed_at_random_moments_serves_every_claim_and_leaks_nothing() {
    needs!(Ext4);
    Drill::begin(Victim::Driver).await.run().await;
}

#[tokio::test]
async fn one_process_of_all_killed_at_random_moments_serves_every_claim_and_leaks_nothing() {
    needs!(Ext4);
    if controllers() == Controllers::Theirs {
        return skip("claims::kills", "the controllers of this server are not ours");
    }
    Drill::begin(Victim::Both).await.run().await;
}

#[tokio::test]
async fn controllers_killed_at_random_moments_bind_every_claim_and_forget_none() {
    needs!(Ext4);
    if controllers() == Controllers::Theirs {
        return skip("claims::kills", "the controllers of this server are not ours to kill");
    }
    Drill::begin(Victim::Controllers).await.run().await;
}
