//! One simulation: a seed, its time, its API server and its components.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use apiserver::auth::SignerError;
use apiserver::http::Service;
use apiserver::sources::{Clock, RuntimeClock, SeededEntropy};
use apiserver::store::{CommitError, MemoryDisk, Options, Revision, Store, UnixMillis};
use apiserver::{Api, BootstrapError, Settings};
use tokio::task::JoinHandle;

use crate::clock::{Offset, SteppedClock};
use crate::component::Component;
use crate::faults::{Fates, RefusalRates};
use crate::journal::Journal;
use crate::random::{Random, Seed};

/// When every world begins: 1 January 2027, 00:00 UTC.
const BEGINNING: UnixMillis = UnixMillis(1_798_761_600_000);
/// A server, all controllers and a user stand on one stack, whose frames are large in builds for debugging.
const STACK: usize = 16 << 20;

/// What can be different about a world.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// How much of the past the store keeps. A short one makes 410 common.
    pub store: Options,
}

#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    #[error("the thread of the simulation could not be started")]
    Thread(#[source] std::io::Error),
    #[error("the runtime of the simulation could not be made")]
    Runtime(#[source] std::io::Error),
    #[error("no key for the tokens of service accounts could be made")]
    Signer(#[source] SignerError),
    #[error("the API server could not prepare its store")]
    Api(#[source] BootstrapError),
}

/// A running simulation. Everything in it ends when it is dropped.
#[derive(Debug)]
pub struct World {
    seed: Seed,
    api: Api,
    clock: Arc<dyn Clock>,
    journal: Journal,
    disk: MemoryDisk,
    weather: Weather,
    refusals: RefusalRates,
    /// How far the API server's wall clock is off.
    server_offset: Offset,
    background: JoinHandle<Result<(), CommitError>>,
}

/// Whether faults happen at all, for everybody at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Weather(Arc<AtomicBool>);

impl Weather {
    pub(crate) fn is_calm(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs a scenario in a world of its own, on a thread and a runtime of its own with paused time. A panic in it is passed
/// on to the caller.
pub fn simulate<T, S, F>(seed: Seed, setup: Setup, scenario: S) -> Result<T, WorldError>
where
    T: Send,
    S: FnOnce(World) -> F + Send,
    F: Future<Output = T>,
{
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(WorldError::Runtime)?;
        runtime.block_on(async { Ok(scenario(World::start(seed, setup).await?).await) })
    };
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run).map_err(WorldError::Thread)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl World {
    /// Starts the API server and what it does by itself. The runtime must be a current-thread one with paused time.
    pub async fn start(seed: Seed, setup: Setup) -> Result<Self, WorldError> {
        let disk = MemoryDisk::default();
        let server_offset = Offset::default();
        let right = RuntimeClock::starting_at(BEGINNING);
        let clock: Arc<dyn Clock> = Arc::new(SteppedClock { right, offset: server_offset.clone() });
        let entropy = SeededEntropy::new(Random::new(seed, "apiserver").number());
        let settings = Settings::in_memory(Arc::clone(&clock), Arc::new(entropy)).map_err(WorldError::Signer)?;
        let settings = Settings { store: Store::on_memory(&disk, setup.store), ..settings };
        let api = Api::start(settings).await.map_err(WorldError::Api)?;
        let background = tokio::spawn({
            let api = api.clone();
            async move { api.run().await }
        });
        let (journal, weather) = (Journal::start(), Weather::default());
        let refusals = RefusalRates::default();
        Ok(Self { seed, api, clock, journal, disk, weather, refusals, server_offset, background })
    }

    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Numbers for one purpose; equal purposes give equal numbers.
    pub fn random(&self, purpose: &str) -> Random {
        Random::new(self.seed, purpose)
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub fn api(&self) -> &Api {
        &self.api
    }

    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// A part under test, whose requests meet these fates. A name stands for one process: the component that replaces a
    /// crashed one has the same name and fates of its own.
    pub fn component(&self, name: &str, fates: impl Fates + 'static) -> Component {
        Component::new(self, name, Box::new(fates))
    }

    /// From now on no fault happens to anybody, so that everything can settle.
    pub fn calm(&self) {
        self.journal.note("world", "calm");
        self.weather.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn weather(&self) -> Weather {
        self.weather.clone()
    }

    /// How often requests were repeated that were refused.
    pub(crate) fn refusals(&self) -> &RefusalRates {
        &self.refusals
    }

    pub(crate) fn server_offset(&self) -> &Offset {
        &self.server_offset
    }

    pub(crate) fn service(&self) -> Service {
        self.api.service()
    }

    /// What the store's disk holds: every object and what is left of its history, a line per version.
    pub fn record(&self) -> Vec<String> {
        let image = self.disk.image();
        let head = format!("revision {} floors {:?}", image.revision, image.floors);
        let row = |entry: &apiserver::store::Entry| match &entry.stored {
            Some(stored) => format!("{} {} {}", entry.revision, entry.key, String::from_utf8_lossy(&stored.value)),
            None => format!("{} {} deleted", entry.revision, entry.key),
        };
        std::iter::once(head).chain(image.entries.iter().map(row)).collect()
    }

    /// The revision of every live object, by `resource/namespace/name`: what a reader that has seen everything knows.
    pub fn live(&self) -> BTreeMap<String, Revision> {
        let mut live = BTreeMap::new();
        for entry in self.disk.image().entries {
            match entry.stored {
                Some(_) => drop(live.insert(entry.key.to_string(), entry.revision)),
                None => drop(live.remove(&entry.key.to_string())),
            }
        }
        live
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.background.abort();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use kube::Api;
    use kube::api::{DeleteParams, PostParams};
    use serde_json::json;

    use super::*;
    use crate::faults::{Faults, Seeded};

    /// Claims are made and deleted on bad days; what is left in the journal and on the disk.
    fn some_claims(seed: Seed) -> (Vec<String>, Vec<String>) {
        let scenario = async |world: World| {
            let user = world.component("user", Seeded::new(&world, "user", Faults::rough()));
            let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(user.client());
            for number in 0..50 {
                let claim = serde_json::from_value(json!({
                    "metadata": {"generateName": "claim-"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                }));
                let made = claims.create(&PostParams::default(), &claim.expect("the claim is well formed")).await;
                if let (0, Ok(made)) = (number % 3, made) {
                    let name = made.metadata.name.unwrap_or_default();
                    drop(claims.delete(&name, &DeleteParams::default()).await);
                }
            }
            (world.journal().lines(), world.record())
        };
        simulate(seed, Setup::default(), scenario).expect("a world can be made")
    }

    #[test]
    fn one_seed_gives_one_world_and_another_seed_another() {
        assert_eq!(some_claims(Seed(5)), some_claims(Seed(5)));
        assert_ne!(some_claims(Seed(5)), some_claims(Seed(6)));
    }

    #[test]
    fn a_calm_world_has_no_faults_left() {
        let scenario = async |world: World| {
            world.calm();
            let every = Faults { unavailable: crate::Odds::of_10_000(10_000), ..Faults::rough() };
            let user = world.component("user", Seeded::new(&world, "user", every));
            let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(user.client());
            assert!(claims.get_opt("none").await.expect("it is answered").is_none());
            world.live().keys().filter(|key| key.starts_with("namespaces/")).count()
        };
        assert_eq!(simulate(Seed(1), Setup::default(), scenario).expect("a world can be made"), 4);
    }

    #[test]
    fn a_world_runs_on_one_thread_and_a_panic_in_it_is_the_callers() {
        let names = || {
            let tasks = std::fs::read_dir("/proc/self/task").expect("Linux lists threads").flatten();
            let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            tasks.map(name).filter(|name| name.starts_with("tokio") || name.starts_with("store")).collect::<Vec<_>>()
        };
        let scenario = async |world: World| {
            tokio::time::sleep(std::time::Duration::from_secs(60)).await;
            assert_eq!(names(), [""; 0], "neither the server nor the runtime has threads of its own");
            panic!("seed {}", world.seed());
        };
        let run = std::panic::AssertUnwindSafe(|| simulate::<(), _, _>(Seed(9), Setup::default(), scenario));
        let panic = std::panic::catch_unwind(run).expect_err("it panics");
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("seed 9"));
    }
}
