//! `orlop up` killed with SIGKILL under load, again and again, on one data directory.
//!
//! Users make and delete claims and pods and write through their mounts; tenants stay, each with an open file. A run of the
//! stack is killed after so many acknowledged things and synced records as the seed says, never after a time. `ORLOP_UP_KILLS`
//! says how often, `ORLOP_UP_KILL_SEED` repeats a run's choices (not its interleaving).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says why by panicking")]

mod api_rig;
#[path = "up_kill/ledger.rs"]
mod ledger;
#[path = "up_kill/objects.rs"]
mod objects;
#[path = "registration/program.rs"]
#[allow(dead_code, reason = "the tests of registration use the rest")]
mod program;
mod rig;
#[path = "up_kill/site.rs"]
mod site;
#[path = "up_kill/stale.rs"]
mod stale;
#[path = "up_kill/tenant.rs"]
mod tenant;
#[path = "up_kill/user.rs"]
mod user;

use std::sync::Arc;

use api_rig::{Random, number, seed};
use ledger::Ledger;
use program::Program;
use rustix::process::Signal;
use site::{PATIENCE, Site, mounts_below};
use tenant::Tenant;
use tokio::sync::watch;
use tokio::task::JoinSet;
use user::{User, World};

const KILLS: u64 = 50;
const USERS: u64 = 4;
const TENANTS: usize = 5;
/// Things that users are told between two kills, at most, and turns of the tenants after the last of them.
const LOAD: u64 = 16;
const TURNS: u64 = 4;
/// One in so many kills hits a stack that may still be starting, after at most so many turns of the tenants.
const EARLY: u64 = 8;
const EARLY_TURNS: u64 = 60;

struct Drill {
    world: World,
    random: Random,
    /// Users and tenants; the latter give the number of their records.
    people: JoinSet<u64>,
    runs: watch::Sender<u64>,
    stop: watch::Sender<bool>,
}

impl Drill {
    async fn begin(seed: u64) -> (Self, Program) {
        let world = World { site: Arc::new(Site::new()), ledger: Arc::new(Ledger::default()) };
        let mut up = world.site.launch("127.0.0.1:0");
        world.site.enter(&mut up).await;
        let (runs, stop) = (watch::Sender::new(0), watch::Sender::new(false));
        let mut people = JoinSet::new();
        let mut tenants = Vec::new();
        for number in 0..TENANTS {
            tenants.push(Tenant::settle(&world, number).await);
        }
        people.spawn(tenant::live(world.clone(), tenants, runs.subscribe(), stop.subscribe()));
        for number in 0..USERS {
            let user = User { world: world.clone(), name: format!("u{number}"), random: Random::new(seed ^ number) };
            people.spawn(user.run(stop.subscribe()));
        }
        (Self { world, random: Random::new(seed), people, runs, stop }, up)
    }

    /// Waits for so many more of what is counted; whoever of the people fails meanwhile fails the test.
    async fn after(&mut self, counter: &watch::Sender<u64>, more: u64) {
        let mut counter = counter.subscribe();
        let enough = *counter.borrow() + more;
        let counted = tokio::time::timeout(PATIENCE, counter.wait_for(|count| *count >= enough));
        tokio::select! {
            counted = counted => drop(counted.expect("the load goes on").unwrap()),
            Some(ended) = self.people.join_next() => panic!("somebody ended: {ended:?}"),
        }
    }

    /// The next run of the stack: everything is there that was ever told.
    async fn enter(&mut self, up: &mut Program) {
        let site = Arc::clone(&self.world.site);
        tokio::select! {
            entered = tokio::time::timeout(PATIENCE, site.enter(up)) => drop(entered.expect("it becomes ready")),
            Some(ended) = self.people.join_next() => panic!("somebody ended: {ended:?}"),
        }
        self.runs.send_modify(|runs| *runs += 1);
        let checked = self.world.ledger.check(&site).await;
        assert!(checked.claims >= TENANTS && checked.pods >= TENANTS, "the tenants are always there: {checked:?}");
    }

    /// A run that is killed in the midst of its work.
    async fn round(&mut self, mut up: Program) -> Program {
        self.enter(&mut up).await;
        let (load, turns) = (self.random.below(LOAD), self.random.below(TURNS));
        let site = Arc::clone(&self.world.site);
        self.after(&site.acknowledged, load).await;
        self.after(&site.written, turns).await;
        self.replace(up)
    }

    /// A run that is killed before, or just after, it was ready.
    async fn early(&mut self, up: Program) -> Program {
        let site = Arc::clone(&self.world.site);
        let turns = self.random.below(EARLY_TURNS);
        self.after(&site.written, turns).await;
        self.replace(up)
    }

    fn replace(&self, up: Program) -> Program {
        up.kill();
        let told = self.world.ledger.open().clone();
        self.world.ledger.check_machine(&told);
        self.world.site.launch("127.0.0.1:0")
    }

    /// The last run, which is not killed: everybody leaves, and nothing stays.
    async fn end(mut self, mut up: Program) -> u64 {
        self.enter(&mut up).await;
        // Who finds nothing in the end must find something now.
        let found = self.world.site.left().await;
        for what in ["mount: ", "file: ", "/dev/loop", objects::ATTACHMENTS, objects::VOLUMES] {
            assert!(found.iter().any(|line| line.starts_with(what)), "no {what} in {found:?}");
        }
        self.stop.send_replace(true);
        let records = self.people.join_all().await.into_iter().sum();
        self.world.site.until_empty().await;
        up.signal(Signal::TERM);
        let (code, log) = up.ended().await;
        assert_eq!(code, Some(0), "{log}");
        assert_eq!(mounts_below(&self.world.site.data), Vec::<std::path::PathBuf>::new(), "a stack that ends unmounts");
        records
    }
}

#[tokio::test]
async fn killed_under_load_the_stack_keeps_every_claim_mount_and_byte() {
    needs!(Ext4);
    let kills = number("ORLOP_UP_KILLS").unwrap_or(KILLS);
    let (mut drill, mut up) = Drill::begin(seed("ORLOP_UP_KILL_SEED")).await;
    for kill in 1..=kills {
        up = match kill % EARLY {
            0 => drill.early(up).await,
            _ => drill.round(up).await,
        };
    }
    let told = *drill.world.site.acknowledged.borrow();
    let records = drill.end(up).await;
    println!("{kills} kills; {told} things were acknowledged, {records} records written to files that stayed open");
}
