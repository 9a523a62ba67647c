//! A whole life of storage in a world: controllers, a sidecar with its driver, a user and a scheduler, with faults
//! everywhere, and what must be true all the time and at the end.
//!
//! | Invariant | Where |
//! |---|---|
//! | one owner per volume | [`witness`], at every write |
//! | a volume is not handed on without reclaim | [`witness`], at every write |
//! | no DeleteVolume for a volume whose claim lives | [`witness`], at every call and effect |
//! | no DeleteVolume for a handle that a claim has, that is to be retained or that is attached, by any object's name | `handles`, at every call |
//! | no intent that nothing will end | `settled`, at the end |
//! | no volume of the driver without a PersistentVolume or an intent | `settled`, at the end |
//! | nothing in the driver's `.tmp` and `.trash` that is in no list | at the end |
//! | every claim is bound or explained, every volume is where it should be | `settled`, at the end |
//! | no write storm | here: the world falls silent, and no object was written too often |
//!
//! Each is shown to be able to fail by a [`Mutation`].

mod handles;
mod mutation;
mod parts;
mod settled;
pub mod witness;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

pub use mutation::Mutation;
pub(crate) use settled::judge;

use crate::administrator::{Administrator, Heir};
use crate::clock::Clocks;
use crate::driver::{Habits, Model, Places, State};
use crate::faults::{Fair, Faults, Seeded};
use crate::outage::Outage;
use crate::user::{Scheduler, User};
use crate::{Number, Odds, Random, Seed, Setup, World, WorldError, simulate};
use witness::Witness;

const SECOND: Duration = Duration::from_secs(1);
const GIB: i64 = 1 << 30;
/// Nothing was written for so long: the world is silent. Longer than any backoff.
const SILENCE: Duration = Duration::from_secs(10 * 60);
/// A calm world falls silent within this time, or never.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// Who runs in one process with whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    /// Controllers and sidecar in one process, with one set of caches.
    Together,
    /// A process each.
    Apart,
}

/// What a run is like: all of it follows from the seed.
#[derive(Debug, Clone)]
struct Layout {
    company: Company,
    life: Duration,
    api: Faults,
    habits: Habits,
    room: i64,
}

impl Layout {
    fn draw(random: &mut Random) -> Self {
        let company = if random.below(2) == 0 { Company::Together } else { Company::Apart };
        let life = random.between(&(60 * SECOND..=240 * SECOND));
        let crash = Odds::of_10_000(*random.pick(&[0, 100, 300]).unwrap_or(&0));
        let api = match random.below(4) {
            0 => Faults { crash, ..Faults::none() },
            // Lives are short here, so that streams have to end more often to end at all.
            _ => {
                let (gone, ended) = (Odds::of_10_000(3_000), Odds::of_10_000(200));
                Faults { crash, gone, ended, broken: ended, ..Faults::rough() }
            }
        };
        let mut habits = if random.below(4) == 0 { Habits::fair() } else { Habits::rough() };
        if random.below(2) == 0 {
            habits.places = Places::Zones;
        }
        let room = GIB * i64::try_from(2 + random.below(12)).unwrap_or(2);
        Self { company, life, api, habits, room }
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
    pub crashes: u64,
    pub creates: u64,
    pub deletes: u64,
    /// Claims that are bound at the end.
    pub bound: u64,
    /// Claims that are not.
    pub waiting: u64,
    /// The most writes to one object.
    pub most_written: u64,
}

impl Tally {
    pub fn numbers(&self) -> Vec<Number> {
        vec![
            Number::sum("crashes", self.crashes),
            Number::sum("CreateVolume", self.creates),
            Number::sum("DeleteVolume", self.deletes),
            Number::sum("claims bound at the end", self.bound),
            Number::sum("claims waiting at the end", self.waiting),
            Number::most("writes to one object", self.most_written),
        ]
    }
}

/// Lives through the run of a seed. The mutation is what should be noticed.
pub fn run(seed: Seed, mutation: Mutation) -> Result<Report, WorldError> {
    let mut setup = Setup::default();
    // Short enough that a watch which is held for a while comes too late.
    setup.store.history.min_events = 20;
    setup.store.history.min_age_millis = 30_000;
    simulate(seed, setup, |world| live(world, mutation))
}

async fn live(world: World, mutation: Mutation) -> Report {
    let layout = Layout::draw(&mut world.random("layout"));
    world.journal().note("world", format_args!("seed {} {layout:?}", world.seed()));
    let witness = Witness::new(&world);
    let zones: &[&str] = if layout.habits.places == Places::Zones { &["a", "b"] } else { &[] };
    let model = Model::new(&world, layout.habits.clone(), State::new(zones, layout.room));
    let onlooker = Arc::new(witness.clone());
    model.watched_by(&onlooker);
    model.set_flaw(mutation.of_driver());
    let world = Arc::new(world);
    let mut user = User::new(&world, world.component("user", Fair), &witness);
    user.set_up().await;
    let scheduler = world.component("scheduler", Seeded::new(&world, "scheduler", Faults::none()));
    let mut scheduler = Scheduler::new(&world, scheduler, &witness);
    let outage = Outage::default();
    let administrator = Administrator::new(&world, &witness, &outage, Heir::Another);
    let clocks = Arc::new(Clocks::new(&world, ["controllers", "sidecar", "orlop"].map(str::to_owned)));
    let cast = parts::Cast::new(&world, &layout, &model, (&outage, &clocks), mutation);

    let story = async {
        user.live_until(Instant::now() + layout.life).await;
        world.calm();
        model.grow(1_000_000 * GIB);
        silence(&witness).await;
    };
    tokio::select! {
        biased;
        () = witness.run() => {}
        () = scheduler.run() => {}
        () = cast.play() => {}
        () = model.live_then_rest() => {}
        () = model.lose_pool(world.random("pool")) => {}
        () = mutation.play(&world, &witness, &model) => {}
        () = Box::pin(administrator.live()) => {}
        () = clocks.live(world.random("clocks")) => {}
        () = story => {}
    }
    let found = judge(&witness.truth(), &model.volumes(), layout.company);
    found.into_iter().chain(model.unlisted()).for_each(|found| witness.accuse(found));
    world.refusals().too_often().into_iter().for_each(|found| witness.accuse(found));
    let most = most_written(&witness);
    let tally = tally(&witness, &model, cast.crashes(), most);
    let (seed, journal) = (world.seed(), world.journal().lines());
    Report { seed, violations: witness.violations(), journal, tally }
}

/// Waits until nobody writes any more. Who never stops is a storm.
async fn silence(witness: &Witness) {
    let since = Instant::now();
    // Everything has a moment to come back first.
    sleep(60 * SECOND).await;
    while witness.quiet() < SILENCE {
        if since.elapsed() > PATIENCE {
            return witness
                .accuse(format!("storm: somebody still writes {} s after the last fault", PATIENCE.as_secs()));
        }
        sleep(30 * SECOND).await;
    }
}

fn most_written(witness: &Witness) -> u64 {
    let written = witness.written();
    for written in written.values().filter(|written| written.times > witness::MOST_WRITES) {
        witness.accuse(format!("storm: {} was written {} times", written.what, written.times));
    }
    written.values().map(|written| written.times).max().unwrap_or(0)
}

fn tally(witness: &Witness, model: &Model, crashes: u64, most_written: u64) -> Tally {
    let calls = model.calls();
    let called = |method: &str| calls.get(method).copied().unwrap_or(0);
    let (bound, waiting) = witness.look_at(|truth| {
        let bound = truth.claims.values().filter(|claim| claim.phase == api::ClaimPhase::Bound).count() as u64;
        (bound, truth.claims.len() as u64 - bound)
    });
    let (creates, deletes) = (called("CreateVolume"), called("DeleteVolume"));
    Tally { crashes, creates, deletes, bound, waiting, most_written }
}
