//! Pods on machines: a control plane that attaches, agents that mount, drivers that fail, machines that die, and a user who
//! deletes at the worst moment; and what must be true all the time and at the end.
//!
//! | Invariant | Where |
//! |---|---|
//! | never two nodes for a single-node volume without proof of fencing | [`witness`], at every effect |
//! | staged implies attached: nothing staged is detached | [`witness`], at every effect |
//! | published implies staged | [`witness`], at every effect |
//! | a running pod's mount never disappears | [`witness`], at every effect |
//! | no mount, loop device, directory, attachment or entry in a node's status without a pod | `settled`, at the end |
//! | every pod has its volumes, or is told why not | `settled`, at the end |
//! | no write storm | here: the world falls silent, and no object was written too often |
//! | no DeleteVolume for a handle that any machine has | [`witness`], at every call |
//! | what a machine let go of is on the volume's disk, or the volume is marked | [`witness`], at every effect |
//! | nothing in the driver's `.tmp` and `.trash` that is in no list | at the end |
//! | all of `storage`'s | its witness and its judge, too |
//!
//! Each is shown to be able to fail by a [`Mutation`].

mod also;
mod backup;
mod cast;
mod days;
mod mutation;
mod seen;
mod settled;
mod user;
pub mod witness;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{LocalBoxFuture, join_all};
use tokio::time::{Instant, sleep};

pub use also::{Also, USUAL};
pub use mutation::Mutation;

use crate::administrator::{Administrator, Heir};
use crate::clock::Clocks;
use crate::driver::{Attach, Backend, Habits, Model, Onlooker as _, Places, Staging, State};
use crate::faults::Faults;
use crate::machine::Machine;
use crate::outage::Outage;
use crate::storage::witness::Witness;
use crate::storage::{self, Company};
use crate::{Number, Odds, Random, Seed, Setup, World, WorldError, simulate};
use days::{Days, Hardness, Place};
use witness::Eyes;

const SECOND: Duration = Duration::from_secs(1);
/// Nothing was written for so long: the world is silent. Longer than any backoff, and than an agent's [`RESYNC`].
const SILENCE: Duration = Duration::from_secs(8 * 60);
/// How often agents look at everything again. Only directories that are already empty may have to wait for it.
const RESYNC: Duration = Duration::from_secs(5 * 60);
/// A calm world falls silent within this time, or never.
const PATIENCE: Duration = Duration::from_secs(60 * 60);
/// More writes to one pod, node or attachment than this are a storm. A node is written twice for each volume that comes or
/// goes, and whenever its machine has a bad day.
const MOST_WRITES: u64 = 150;
/// How long a node is not ready before it is detached from by force, where worlds do that.
const FORCE_AFTER: Duration = Duration::from_secs(60);
const NODES: [(&str, &str); 3] = [("node-a", "a"), ("node-b", "b"), ("node-c", "c")];

/// What a run is like: all of it follows from the seed.
#[derive(Debug, Clone)]
struct Layout {
    company: Company,
    nodes: usize,
    life: Duration,
    api: Faults,
    habits: Habits,
    /// How often an agent dies at a call to its machine.
    host_crash: Odds,
    /// Whether machines do what they are asked.
    kind_host: bool,
    hardness: Hardness,
    /// Whether all pods go at the end.
    leaves: bool,
    /// What happens besides.
    also: BTreeSet<Also>,
}

impl Layout {
    fn draw(random: &mut Random, also: BTreeSet<Also>) -> Self {
        let company = if random.below(2) == 0 { Company::Together } else { Company::Apart };
        let crash = Odds::of_10_000(*random.pick(&[0, 50, 150]).unwrap_or(&0));
        let api = match random.below(3) {
            0 => Faults { crash, ..Faults::none() },
            _ => Faults { crash, gone: Odds::of_10_000(3_000), ..Faults::rough() },
        };
        let mut habits = if random.below(3) == 0 { Habits::fair() } else { Habits::rough() };
        habits.attach = if random.below(5) == 0 { Attach::Not } else { Attach::Required };
        habits.staging = if random.below(4) == 0 { Staging::Not } else { Staging::Required };
        habits.per_node = u32::try_from(*random.pick(&[0, 0, 2, 3]).unwrap_or(&0)).unwrap_or_default();
        habits.backend = if random.below(3) == 0 { Backend::Lenient } else { Backend::Strict };
        Self {
            company,
            nodes: *random.pick(&[2, 2, 3]).unwrap_or(&2),
            life: random.between(&(45 * SECOND..=120 * SECOND)),
            api,
            habits,
            host_crash: Odds::of_10_000(*random.pick(&[0, 20, 60]).unwrap_or(&0)),
            kind_host: random.below(3) == 0,
            hardness: if random.below(4) == 0 { Hardness::Mild } else { Hardness::Hard },
            leaves: random.below(2) == 0,
            also,
        }
    }

    fn has(&self, also: Also) -> bool {
        self.also.contains(&also)
    }

    fn has_wrong_clocks(&self) -> bool {
        self.has(Also::WrongClocks) || self.has(Also::ForceDetach)
    }

    /// Whether an agent may believe for long what has changed: events are late, or its machine is cut off.
    fn has_stale_caches(&self) -> bool {
        self.api.held != Odds::NEVER || self.hardness == Hardness::Hard || self.has(Also::Suspensions)
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct Report {
    pub seed: Seed,
    /// What must never be, and was.
    pub violations: Vec<String>,
    pub journal: Vec<String>,
    /// What happened, in numbers, so that one can see that a run is not empty.
    pub tally: Tally,
}

/// Numbers of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Processes that died.
    pub crashes: u64,
    pub boots: u64,
    /// Calls of ControllerPublishVolume.
    pub attaches: u64,
    pub stages: u64,
    pub publishes: u64,
    /// Pods that have their volumes at the end.
    pub ready: u64,
    /// Pods that wait for them.
    pub waiting: u64,
    /// The most writes to one object.
    pub most_written: u64,
}

impl Tally {
    pub fn numbers(&self) -> Vec<Number> {
        vec![
            Number::sum("crashes", self.crashes),
            Number::sum("boots", self.boots),
            Number::sum("ControllerPublishVolume", self.attaches),
            Number::sum("NodeStageVolume", self.stages),
            Number::sum("NodePublishVolume", self.publishes),
            Number::sum("pods with their volumes at the end", self.ready),
            Number::sum("pods waiting at the end", self.waiting),
            Number::most("writes to one object", self.most_written),
        ]
    }
}

/// Lives through the run of a seed. The mutation is what should be noticed.
pub fn run(seed: Seed, mutation: Mutation) -> Result<Report, WorldError> {
    run_with(seed, mutation, &[])
}

/// The same in a world in which these kinds happen besides; without any, some of [`USUAL`] do.
pub fn run_with(seed: Seed, mutation: Mutation, also: &[Also]) -> Result<Report, WorldError> {
    let mut setup = Setup::default();
    // Short enough that a watch which is held for a while comes too late.
    setup.store.history.min_events = 40;
    setup.store.history.min_age_millis = 30_000;
    simulate(seed, setup, |world| live(world, mutation, also))
}

async fn live(world: World, mutation: Mutation, also: &[Also]) -> Report {
    let layout = Layout::draw(&mut world.random("layout"), also::draw(&mut world.random("also"), mutation, also));
    world.journal().note("world", format_args!("seed {} {layout:?}", world.seed()));
    let storage = Witness::new(&world);
    let model = Model::new(&world, layout.habits.clone(), State::new(&[], 1 << 50));
    let chosen = &NODES[..layout.nodes];
    let machines: Vec<Machine> = chosen.iter().map(|(name, _)| Machine::new(&world, name)).collect();
    let clones = chosen
        .iter()
        .take(usize::from(layout.has(Also::Clones)))
        .map(|(name, _)| Machine::new(&world, name).into_clone());
    let clones: Vec<Machine> = clones.collect();
    let all: Vec<Machine> = machines.iter().chain(&clones).cloned().collect();
    let force_after = layout.has(Also::ForceDetach).then_some(FORCE_AFTER);
    let eyes = Eyes::new(&world, (&storage, &model), &all, force_after);
    model.set_flaw(mutation.of_driver());
    let onlooker = Arc::new(eyes.clone());
    model.watched_by(&onlooker);
    all.iter().for_each(|machine| machine.watched_by(&onlooker));
    let place =
        |(machine, (_, zone)): (&Machine, &(&str, &'static str))| Place::new(machine, model.on(machine, None), zone);
    let places: Arc<Vec<Place>> = Arc::new(machines.iter().zip(chosen).map(place).collect());
    let clones: Arc<Vec<Place>> = Arc::new(clones.iter().zip(chosen).map(place).collect());
    let world = Arc::new(world);
    let mut tenant = user::Tenant::new(&world, &eyes, chosen.iter().map(|(name, _)| (*name).to_owned()).collect());
    tenant.set_up(&layout.habits).await;
    let days = Days::new(&world, &eyes, (&model, &layout.also), Places::None);
    let lives = places.iter().map(|place| {
        let random = world.random(&format!("days of {}", place.machine.name()));
        Box::pin(days.live(place, random, layout.hardness))
    });
    let (outage, restoring) = (Outage::default(), Outage::default());
    let administrator = Administrator::new(&world, &storage, &outage, Heir::Namesake);
    let names = ["controllers", "sidecar", "orlop"].into_iter().chain(chosen.iter().map(|(name, _)| *name));
    let clocks = Arc::new(Clocks::new(&world, names.map(str::to_owned)));
    let cast = Arc::new(cast::Cast {
        clones: clones.clone(),
        outage,
        restoring: restoring.clone(),
        eyes: eyes.clone(),
        clocks: clocks.clone(),
        world: world.clone(),
        layout: layout.clone(),
        model: model.clone(),
        places: places.clone(),
        mutation,
        crashes: AtomicU64::new(0),
    });
    let _processes = cast.start();
    tokio::select! {
        biased;
        () = storage.run() => {}
        () = eyes.run() => {}
        _ = join_all(lives) => {}
        _ = join_all(misfortunes(&world, &layout, (&days, &eyes), (&places, &clones), (&restoring, mutation))) => {}
        () = Box::pin(administrator.live()), if layout.has(Also::HandOvers) => {}
        () = clocks.live(world.random("clocks")), if layout.has_wrong_clocks() => {}
        () = model.live_then_rest() => {}
        _ = join_all(places.iter().map(|place| Box::pin(place.side.live_then_rest()))) => {}
        () = mutation.play(&world, &eyes, (&model, &places), clocks.of(&world, "controllers")) => {}
        () = run_to_silence(&world, &mut tenant, &layout, &eyes) => {}
    }
    report(&world, &eyes, &cast, &machines)
}

/// What happens besides, as far as it happens to machines, their clocks and the backend.
fn misfortunes<'a>(
    world: &'a World,
    layout: &Layout,
    (days, eyes): (&'a Days, &'a Eyes),
    (places, clones): (&'a [Place], &'a [Place]),
    (restoring, mutation): (&'a Outage, Mutation),
) -> Vec<LocalBoxFuture<'a, ()>> {
    // Nothing of this ends the world, also where nothing happens.
    let mut all: Vec<LocalBoxFuture<'a, ()>> = vec![Box::pin(std::future::pending())];
    for place in places {
        let random = |what: &str| world.random(&format!("{what} of {}", place.machine.name()));
        if layout.has(Also::Suspensions) {
            all.push(Box::pin(days.suspend(place, random("suspensions"), layout.hardness)));
        }
        if layout.has(Also::Overmounts) {
            all.push(Box::pin(days.overmount(place, random("overmounts"))));
        }
    }
    for (clone, place) in clones.iter().zip(places) {
        let random = world.random(&format!("clones of {}", place.machine.name()));
        all.push(Box::pin(days.clone_for_a_while(clone, place, random)));
    }
    if layout.has(Also::ServerClock) {
        all.push(Box::pin(days.step_server_clock(world)));
    }
    if layout.has(Also::Restores) {
        let restored = match mutation {
            Mutation::BelieveBackup => backup::Restored::AsItWas,
            _ => backup::Restored::InDoubt,
        };
        all.push(Box::pin(backup::live(world, eyes, restoring, restored)));
    }
    if layout.has(Also::MissingPools) {
        all.push(Box::pin(days.lose_pool(world.random("pool"))));
    }
    if layout.has(Also::LostWrites) {
        let machines = places.iter().chain(clones).map(|place| place.machine.clone()).collect();
        all.push(Box::pin(days.write_files(machines, world.random("files"))));
    }
    all
}

/// The tenant lives, all faults end, the tenant may leave, and the world falls silent.
async fn run_to_silence(world: &World, tenant: &mut user::Tenant, layout: &Layout, eyes: &Eyes) {
    tenant.live_until(Instant::now() + layout.life).await;
    world.calm();
    if layout.leaves {
        tenant.leave().await;
    }
    silence(eyes).await;
}

/// Waits until nobody writes any more. Who never stops is a storm.
async fn silence(eyes: &Eyes) {
    let since = Instant::now();
    // Everything has a moment to come back first.
    sleep(120 * SECOND).await;
    while eyes.quiet() < SILENCE {
        if since.elapsed() > PATIENCE {
            let text = format!("storm: somebody still writes {} s after the last fault", PATIENCE.as_secs());
            return eyes.storage.accuse(text);
        }
        sleep(30 * SECOND).await;
    }
}

fn report(world: &World, eyes: &Eyes, cast: &cast::Cast, machines: &[Machine]) -> Report {
    eyes.happened();
    let (storage, model) = (&eyes.storage, &cast.model);
    let truth = storage.truth();
    let mut found = storage::judge(&truth, &model.volumes(), cast.layout.company);
    found.extend(model.unlisted());
    found.extend(world.refusals().too_often());
    // A released volume that a living pod still has mounted is deleted when the pod ends. One that the backend has attached, and
    // no object tells of since a backup was restored, is refused by the backend until a person detaches it there.
    let with_pods = eyes.with_living_pods(machines, cast.layout.has_stale_caches());
    let forgotten = eyes.forgotten();
    let is_kept = |volume: &&Arc<api::Volume>| {
        storage::witness::handle_of(volume).is_some_and(|id| {
            with_pods.values().any(|handles| handles.contains(id)) || forgotten.iter().any(|(_, held)| held == id)
        })
    };
    for volume in truth.volumes.values().filter(is_kept) {
        found.retain(|text| !text.starts_with(&format!("unexplained: volume {} is released", volume.name())));
    }
    let (settled, tally) = eyes.look_at(|seen| {
        let scene =
            settled::Scene { truth: &truth, seen, model, machines, with_pods: &with_pods, forgotten: &forgotten };
        let most = seen.written.values().map(|(_, times)| *times).max().unwrap_or(0);
        let many = seen.written.values().filter(|(_, times)| *times > MOST_WRITES);
        let storms = many.map(|(what, times)| format!("storm: {what} was written {times} times"));
        let ready = seen.pods.values().filter(|pod| pod.ready.as_ref().is_some_and(|ready| ready.yes)).count() as u64;
        let waiting = seen.pods.len() as u64 - ready;
        let found: Vec<String> = settled::judge(&scene).into_iter().chain(storms).collect();
        (found, Tally { ready, waiting, most_written: most, ..Tally::default() })
    });
    found.extend(settled);
    found.into_iter().for_each(|found| storage.accuse(found));
    let calls = model.calls();
    let called = |method: &str| calls.get(method).copied().unwrap_or(0);
    let tally = Tally {
        crashes: cast.crashes.load(Ordering::Relaxed),
        boots: cast.places.iter().map(Place::boots).sum(),
        attaches: called("ControllerPublishVolume"),
        stages: called("NodeStageVolume"),
        publishes: called("NodePublishVolume"),
        ..tally
    };
    Report { seed: world.seed(), violations: storage.violations(), journal: world.journal().lines(), tally }
}
