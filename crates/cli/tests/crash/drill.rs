//! One scenario, run once undisturbed and then once more for each crash: the driver is killed at a failpoint of the
//! call and started again, and either the call is repeated (LOCAL-I2) or the opposite is called (LOCAL-I3).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;

use driver_sdk::testing::Clients;
use linux::fs::FsType;

use crate::picture::{Picture, Without, assert_no_loops, assert_nothing_frozen};
use crate::rig::world::World;
use crate::rig::{Driver, GIB, Options, run};
use crate::step::{Answer, Step, Vol};

/// What the pool is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    /// ext4: copies are full copies.
    Ext4,
    /// XFS: files share extents.
    Xfs,
    /// btrfs: directories are subvolumes.
    Btrfs,
}

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) disk: Disk,
    /// What is so before the call.
    pub(crate) before: Vec<Step>,
    pub(crate) call: Step,
    /// Calls that take back the call, whether it came to an end or not.
    pub(crate) undo: Vec<Step>,
    /// What must be true after the call, besides the same picture.
    pub(crate) proof: Vec<Step>,
    /// What must be true after the undoing.
    pub(crate) undone: Vec<Step>,
    /// Failpoints to die at besides the first hit of each, such as `copy.progress:2`.
    pub(crate) later_hits: &'static [&'static str],
}

/// How a crash is followed up.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Repeat,
    Undo,
}

/// The undisturbed run.
#[derive(Debug)]
struct Undisturbed {
    answer: Answer,
    after_call: Picture,
    after_undo: Picture,
    hits: BTreeSet<String>,
}

thread_local! {
    /// What this thread is doing, for the report when it fails.
    pub(crate) static NOW: RefCell<String> = const { RefCell::new(String::new()) };
}

fn doing(scenario: &Scenario, what: String) {
    NOW.with_borrow_mut(|now| *now = format!("{}: {what}", scenario.name));
}

/// Runs a scenario with all its crashes, and gives the failpoints it passed.
pub(crate) fn drill(scenario: &Scenario) -> BTreeSet<String> {
    let mut world = match scenario.disk {
        Disk::Ext4 => World::on(FsType::Ext4, 2 * GIB, &Options::default()),
        Disk::Xfs => World::on(FsType::Xfs, 2 * GIB, &Options::default()),
        Disk::Btrfs => World::on(FsType::Btrfs, 2 * GIB, &Options::default()),
    };
    run(async {
        let undisturbed = undisturbed(scenario, &mut world).await;
        assert!(!undisturbed.hits.is_empty(), "the call passes no failpoint");
        let points = undisturbed.hits.iter().map(String::as_str).chain(scenario.later_hits.iter().copied());
        for point in points {
            for ending in [Ending::Repeat, Ending::Undo] {
                doing(scenario, format!("killed at {point}, then {ending:?}"));
                crash(scenario, &mut world, point).await;
                follow_up(scenario, &world, (&undisturbed, ending)).await;
                clear(scenario, &world).await;
            }
        }
        undisturbed.hits
    })
}

async fn steps(world: &World, clients: &Clients, steps: &[Step]) {
    for step in steps {
        if let Err(status) = step.run(world, clients).await {
            panic!("{step:?}: {status:?}\n{}", world.driver.log());
        }
    }
}

async fn undisturbed(scenario: &Scenario, world: &mut World) -> Undisturbed {
    doing(scenario, "undisturbed".to_owned());
    steps(world, &world.clients().await, &scenario.before).await;
    let log = world.scratch.path("hits");
    start(world, &Options::default().env("ORLOP_FAILPOINT_LOG", log.to_str().unwrap()));
    let clients = world.clients().await;
    let answer = match scenario.call.run(world, &clients).await {
        Ok(answer) => answer,
        Err(status) => panic!("{status:?}\n{}", world.driver.log()),
    };
    let hits = fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect();
    let after_call = Picture::take(&world.scratch, Without::Times);
    steps(world, &clients, &scenario.proof).await;
    clear(scenario, world).await;

    doing(scenario, "undisturbed, then undone".to_owned());
    steps(world, &clients, &scenario.before).await;
    steps(world, &clients, std::slice::from_ref(&scenario.call)).await;
    steps(world, &clients, &scenario.undo).await;
    let after_undo = Picture::take(&world.scratch, Without::TimesAndFormat);
    steps(world, &clients, &scenario.undone).await;
    clear(scenario, world).await;
    Undisturbed { answer, after_call, after_undo, hits }
}

/// Another driver process on the same pool. The one before gets no chance to tidy up.
fn start(world: &mut World, options: &Options) {
    world.driver.kill();
    world.driver = Driver::start(&world.scratch, options);
}

/// Brings the scenario up to its call and kills the driver within it.
async fn crash(scenario: &Scenario, world: &mut World, point: &str) {
    steps(world, &world.clients().await, &scenario.before).await;
    start(world, &Options::default().env("ORLOP_FAILPOINT", point));
    let clients = world.clients().await;
    match scenario.call.run(world, &clients).await {
        Ok(answer) => panic!("the driver survived and answered {answer:?}"),
        // Only a broken connection has a cause on this side; a refusal comes over a sound one.
        Err(status) if std::error::Error::source(&status).is_none() => panic!("the driver survived: {status:?}"),
        Err(_) => assert_eq!(world.driver.wait().signal(), Some(9), "{}", world.driver.log()),
    }
    // The guard thaws what was frozen, before any driver is there again (LOCAL-I7).
    assert_nothing_frozen(&world.scratch);
    start(world, &Options::default());
    assert!(!world.driver.log().contains("left alone"), "orphans: {}", world.driver.log());
    assert_nothing_frozen(&world.scratch);
}

async fn follow_up(scenario: &Scenario, world: &World, (undisturbed, ending): (&Undisturbed, Ending)) {
    let clients = world.clients().await;
    match ending {
        Ending::Repeat => {
            let committed = scenario.call.committed(&clients).await;
            let answer = match scenario.call.run(world, &clients).await {
                Ok(answer) => answer,
                Err(status) => panic!("the repeat is refused: {status:?}\n{}", world.driver.log()),
            };
            assert_eq!(answer.text, undisturbed.answer.text, "another answer than without the kill");
            if !committed.is_empty() {
                assert_eq!(answer.created, committed, "what was cut before the kill is not cut again");
            }
            Picture::take(&world.scratch, Without::Times).assert_same(&undisturbed.after_call);
            steps(world, &clients, &scenario.proof).await;
        }
        Ending::Undo => {
            steps(world, &clients, &scenario.undo).await;
            Picture::take(&world.scratch, Without::TimesAndFormat).assert_same(&undisturbed.after_undo);
            steps(world, &clients, &scenario.undone).await;
        }
    }
}

/// Removes everything the scenario may have made, by calls that must all succeed, and finds nothing left.
async fn clear(scenario: &Scenario, world: &World) {
    let all: Vec<&Step> = [&scenario.before, &scenario.undo, &scenario.proof, &scenario.undone]
        .into_iter()
        .flatten()
        .chain([&scenario.call])
        .collect();
    let vols: BTreeSet<Vol> = all.iter().flat_map(|step| step.vols()).collect();
    let mut down: Vec<Step> = Vec::new();
    for vol in vols {
        down.push(Step::Unpublish(vol));
        if !vol.is_inline() {
            down.extend([Step::Unstage(vol), Step::Detach(vol), Step::Delete(vol)]);
        }
    }
    down.extend(all.iter().filter_map(|step| step.removal()));
    steps(world, &world.clients().await, &down).await;
    world.scratch.assert_clean();
    assert_no_loops(&world.scratch);
    let targets = fs::read_dir(world.scratch.dir("targets")).unwrap().count();
    assert_eq!(targets, 0, "targets are left");
}
