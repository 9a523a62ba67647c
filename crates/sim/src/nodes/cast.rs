//! The processes under test, each kept alive: one that died is started again a little later, an agent once its machine runs.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use control::provision::csi::{self, GuardOptions, Sidecar, SidecarOptions, Sweep};
use control::{Context, attach, attacher, bind, protect, provision};
use futures_util::future::{join, join3};
use lifecycle::registration::lease::{AgentHistory, AgentIdentity, OwnRenewals, Predecessor};
use node::Agent;
use node::drivers::{Drivers, Registered};
use node::layout::Layout as Directories;
use node::registry::Readiness;
use node::registry::machine::{Facts, LeaseMemory, Machine as NodeKeeper, Options as KeeperOptions, Untainting};
use runtime::Stop;
use runtime::csi::Driver;
use runtime::queue::Backoff;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::days::{Cabled, Place};
use super::witness::{Eyes, ROOT};
use super::{Also, Company, FORCE_AFTER, Layout, Mutation, RESYNC};
use crate::clock::Clocks;
use crate::driver::Model;
use crate::faults::Seeded;
use crate::machine::{ModelHost, Power, Rough};
use crate::outage::Outage;
use crate::{Ended, Process, World, keys};

/// Where the journal of intents is.
const NAMESPACE: &str = "default";

/// More is never at work at once in so small a world.
const WORKERS: usize = 8;

/// All processes under test.
pub(super) struct Cast {
    pub(super) world: Arc<World>,
    pub(super) layout: Layout,
    pub(super) model: Model,
    pub(super) places: Arc<Vec<Place>>,
    pub(super) clones: Arc<Vec<Place>>,
    /// Keeps the process of the provisioner down.
    pub(super) outage: Outage,
    /// Keeps the whole control plane down: it is stopped while a backup is restored.
    pub(super) restoring: Outage,
    pub(super) eyes: Eyes,
    pub(super) clocks: Arc<Clocks>,
    pub(super) mutation: Mutation,
    pub(super) crashes: AtomicU64,
}

/// What a process of the control plane does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Controllers,
    Sidecar,
    Both,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Controllers => "controllers",
            Self::Sidecar => "sidecar",
            Self::Both => "orlop",
        }
    }
}

impl Cast {
    /// Starts the processes, each as a task of its own: what one does costs the others nothing. They end with what is given.
    pub(super) fn start(self: &Arc<Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let roles: &[Role] = match self.layout.company {
            Company::Together => &[Role::Both],
            Company::Apart => &[Role::Controllers, Role::Sidecar],
        };
        for role in roles {
            let cast = self.clone();
            tasks.spawn(async move { cast.keep_alive(*role).await });
        }
        for at in 0..self.places.len() {
            let cast = self.clone();
            tasks.spawn(async move { cast.keep_agent(&cast.places[at]).await });
        }
        for at in 0..self.clones.len() {
            let cast = self.clone();
            tasks.spawn(async move { cast.keep_agent(&cast.clones[at]).await });
        }
        tasks
    }

    async fn keep_alive(&self, role: Role) {
        let mut random = self.world.random(&format!("restarts of {}", role.name()));
        for life in 1.. {
            if role != Role::Controllers {
                self.outage.ended().await;
            }
            self.restoring.ended().await;
            let fates = Seeded::new(&self.world, &format!("{} life {life}", role.name()), self.layout.api.clone());
            let component = self.world.component(role.name(), fates);
            let clock = self.clocks.of(&self.world, role.name());
            let process = Process::with_clock(&self.world, &component, life, clock);
            let context = process.context.clone();
            let work = pin!(self.work(role, &context));
            let down = async {
                let provisioner = async {
                    match role {
                        Role::Controllers => std::future::pending().await,
                        Role::Sidecar | Role::Both => self.outage.begun().await,
                    }
                };
                tokio::select! {
                    biased;
                    () = provisioner => {}
                    () = self.restoring.begun() => {}
                }
            };
            let never = Stop::never();
            let ended = tokio::select! {
                biased;
                () = down => {
                    component.kill();
                    Ended::Crashed
                }
                ended = component.run(process.run(&never, work)) => ended,
            };
            if ended == Ended::Crashed {
                self.crashes.fetch_add(1, Ordering::Relaxed);
            }
            sleep(random.between(&(Duration::from_millis(100)..=Duration::from_secs(20)))).await;
        }
    }

    async fn work(&self, role: Role, context: &Context) {
        match role {
            Role::Controllers => self.controllers(context).await,
            Role::Sidecar => self.sidecar(context).await,
            Role::Both => drop(join(Box::pin(self.sidecar(context)), Box::pin(self.controllers(context))).await),
        }
    }

    async fn sidecar(&self, context: &Context) {
        let stop = Stop::never();
        let driver = Driver::new(self.model.clone(), runtime::csi::Options::default(), &context.metrics);
        let serving = async {
            let facts = driver.ready().await;
            let options = SidecarOptions {
                provisioner: csi::Options::default(),
                engine: provision::Options::new(&facts.name, NAMESPACE),
                guards: GuardOptions { sweep: Sweep::Off, workers: 1, backoff: Backoff::default() },
                capacity: None,
            };
            let provisioner = Sidecar::new(context, &driver, &facts, options);
            let attacher = async {
                if self.mutation != Mutation::NoAttacher {
                    let mut options = attacher::Options::default();
                    if self.mutation == Mutation::NoListing {
                        options.reconcile = Duration::from_secs(365 * 24 * 3600);
                    }
                    let attacher = attacher::Attacher::new(context, &driver, &facts, options);
                    attacher.run(&stop).await;
                }
            };
            join(Box::pin(provisioner.run(&stop)), Box::pin(attacher)).await;
        };
        let _ = join(driver.run(&stop), Box::pin(serving)).await;
    }

    async fn controllers(&self, context: &Context) {
        let stop = Stop::never();
        let binder = bind::Binder::new(context, bind::Options::default());
        let protector = protect::Protector::new(context, protect::Options::default());
        let attaching = async {
            if self.mutation != Mutation::NoController {
                let force_after = self.layout.has(Also::ForceDetach).then_some(FORCE_AFTER);
                let options = attach::Options { workers: WORKERS, force_after, ..attach::Options::default() };
                attach::Attachments::new(context, options).run(&stop).await;
            }
        };
        join3(Box::pin(binder.run(&stop)), Box::pin(protector.run(&stop)), Box::pin(attaching)).await;
    }

    /// An agent lives as long as nobody kills it and its machine runs.
    async fn keep_agent(&self, place: &Place) {
        let name = place.agent.clone();
        let mut random = self.world.random(&format!("restarts of {name}"));
        let mut power = place.machine.powers();
        let mut kills = place.kills.subscribe();
        for life in 1.. {
            // The sender lives as long as the machine.
            let _ = power.wait_for(|power| *power != Power::Off).await;
            power.mark_unchanged();
            kills.mark_unchanged();
            let fates = Seeded::new(&self.world, &format!("{name} life {life}"), self.layout.api.clone());
            let component = self.world.component(&name, Cabled { fates, cable: place.cable.clone() });
            let work = component.run(self.agent(place, &component, life));
            tokio::select! {
                biased;
                _ = power.changed() => component.kill(),
                _ = kills.changed() => component.kill(),
                _ = place.suspended.suspend(Box::pin(work)) => {}
            }
            self.crashes.fetch_add(1, Ordering::Relaxed);
            self.eyes.agent_ended(&place.machine.body());
            if self.mutation == Mutation::DeadAgents {
                return;
            }
            sleep(random.between(&(Duration::from_millis(100)..=Duration::from_secs(10)))).await;
        }
    }

    async fn agent(&self, place: &Place, component: &crate::Component, life: u64) {
        let stop = Stop::never();
        let clock = self.clocks.of(&self.world, place.machine.name());
        let process = Process::with_clock(&self.world, component, life, clock);
        let context = process.context.clone();
        let rough = Rough::new(&self.world, &format!("{} life {life}", component.name()), self.layout.host_crash);
        let rough = if self.layout.kind_host { rough.kind() } else { rough };
        let host = Arc::new(ModelHost::new(&place.machine, component, rough));
        let options = runtime::csi::Options::on_node();
        let driver = Driver::new(place.side.clone(), options, &context.metrics);
        let drivers = Drivers::default();
        let registering = async {
            driver.ready().await;
            let (name, node_id) = (keys::DRIVER.to_owned(), place.machine.name().to_owned());
            drivers.insert(Registered { name, driver: driver.clone(), node_id });
            std::future::pending::<()>().await;
        };
        let Ok(directories) = Directories::new(ROOT) else { return };
        let options = node::Options::new(place.machine.name(), directories);
        let options = node::Options { workers: WORKERS, resync: RESYNC, ..options };
        node::agent::narrow(&context.caches, place.machine.name());
        let agent = Agent::new(&context, host, drivers.clone(), options);
        let guarded = async {
            match self.layout.has(Also::Clones) && self.mutation != Mutation::NoLease {
                true => self.look_after(place, &context, agent.run(&stop)).await,
                false => agent.run(&stop).await,
            }
        };
        // An agent that may not look after the node ends, and is started again a little later.
        let work = async {
            tokio::select! {
                biased;
                () = Box::pin(guarded) => {}
                _ = join(driver.run(&stop), registering) => {}
            }
        };
        process.run(&stop, work).await;
    }

    /// Runs an agent as the program does: only while nobody else looks after the node.
    async fn look_after(&self, place: &Place, context: &Context, agent: impl Future<Output = ()>) {
        let stop = Stop::never();
        let Power::On { boot } = place.machine.power() else { return };
        let facts = Facts {
            architecture: "amd64".to_owned(),
            kernel: "sim".to_owned(),
            boot_id: boot.to_string(),
            processors: 1,
            memory_kib: 1 << 20,
        };
        let name = place.machine.name().to_owned();
        // A clone has the name, the directory and the machine id of its original, and another boot.
        let identity = AgentIdentity { place: name.clone(), machine: name.clone(), boot: boot.to_string() };
        let memory = Arc::new(DirectoryHistory(place.history()));
        let options = KeeperOptions { node: name, identity, memory, facts, untainting: Untainting::Ours };
        let (_initialised, ready) = runtime::watch::channel(Readiness::Initialised);
        let keeper = NodeKeeper::new(context, options, ready);
        tokio::select! {
            biased;
            _ = keeper.run(&stop) => place.machine.note("another agent looks after the node"),
            _ = keeper.while_held(&stop, agent) => {}
        }
    }
}

/// The memory of an agent that knows whether an agent has worked in its directory, and nothing else.
#[derive(Debug)]
struct DirectoryHistory(AgentHistory);

impl LeaseMemory for DirectoryHistory {
    fn predecessor(&self) -> Option<Predecessor> {
        None
    }

    fn history(&self) -> AgentHistory {
        self.0
    }

    fn store(&self, _renewals: &OwnRenewals) {}
}
