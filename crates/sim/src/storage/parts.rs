//! The processes under test, each kept alive: one that crashed is started again a little later.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use control::provision::csi::{self, GuardOptions, Sidecar, SidecarOptions, Sweep};
use control::{Context, bind, ephemeral, protect, provision};
use futures_util::future::{join, join3};
use runtime::Stop;
use runtime::queue::Backoff;
use tokio::time::sleep;

use super::{Company, Layout, Mutation, mutation};
use crate::clock::Clocks;
use crate::driver::Model;
use crate::faults::{Faults, Seeded};
use crate::outage::Outage;
use crate::{Ended, Process, World};

/// Where the journal of intents is.
const NAMESPACE: &str = "default";

/// All processes under test.
pub(super) struct Cast {
    world: Arc<World>,
    company: Company,
    api: Faults,
    model: Model,
    mutation: Mutation,
    crashes: AtomicU64,
    /// Keeps the process of the provisioner down.
    outage: Outage,
    clocks: Arc<Clocks>,
}

/// What a process does.
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
    pub(super) fn new(
        world: &Arc<World>,
        layout: &Layout,
        model: &Model,
        (outage, clocks): (&Outage, &Arc<Clocks>),
        mutation: Mutation,
    ) -> Self {
        let (world, model, outage, clocks) = (Arc::clone(world), model.clone(), outage.clone(), clocks.clone());
        let (company, api) = (layout.company, layout.api.clone());
        Self { world, company, api, model, mutation, crashes: AtomicU64::new(0), outage, clocks }
    }

    pub(super) fn crashes(&self) -> u64 {
        self.crashes.load(Ordering::Relaxed)
    }

    /// Runs the processes for ever.
    pub(super) async fn play(&self) {
        match self.company {
            Company::Together => self.keep_alive(Role::Both).await,
            Company::Apart => drop(join(self.keep_alive(Role::Controllers), self.keep_alive(Role::Sidecar)).await),
        }
    }

    async fn keep_alive(&self, role: Role) {
        let mut random = self.world.random(&format!("restarts of {}", role.name()));
        for life in 1.. {
            if role != Role::Controllers {
                self.outage.ended().await;
            }
            let fates = Seeded::new(&self.world, &format!("{} life {life}", role.name()), self.api.clone());
            let component = self.world.component(role.name(), fates);
            let clock = self.clocks.of(&self.world, role.name());
            let process = Process::with_clock(&self.world, &component, life, clock);
            let context = process.context.clone();
            let work = pin!(self.work(role, &context));
            let down = async {
                match role {
                    Role::Controllers => std::future::pending().await,
                    Role::Sidecar | Role::Both => self.outage.begun().await,
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
            if self.mutation == Mutation::ForgetIntents {
                mutation::forget(&self.world).await;
            }
            sleep(random.between(&(Duration::from_millis(100)..=Duration::from_secs(20)))).await;
        }
    }

    async fn work(&self, role: Role, context: &Context) {
        match role {
            Role::Controllers => self.controllers(context).await,
            Role::Sidecar => self.sidecar(context).await,
            Role::Both => drop(join(self.sidecar(context), self.controllers(context)).await),
        }
    }

    async fn sidecar(&self, context: &Context) {
        let stop = Stop::never();
        let driver = runtime::csi::Driver::new(self.model.clone(), runtime::csi::Options::default(), &context.metrics);
        let serving = async {
            let facts = driver.ready().await;
            let options = SidecarOptions {
                provisioner: csi::Options::default(),
                engine: provision::Options::new(&facts.name, NAMESPACE),
                guards: GuardOptions { sweep: Sweep::Off, workers: 1, backoff: Backoff::default() },
                capacity: None,
            };
            Sidecar::new(context, &driver, &facts, options).run(&stop).await;
        };
        let _ = join(driver.run(&stop), serving).await;
    }

    async fn controllers(&self, context: &Context) {
        let stop = Stop::never();
        let binder = async {
            if self.mutation != Mutation::NoBinder {
                bind::Binder::new(context, bind::Options::default()).run(&stop).await;
            }
        };
        let protector = async {
            if self.mutation != Mutation::NoProtection {
                protect::Protector::new(context, protect::Options::default()).run(&stop).await;
            }
        };
        let ephemeral = ephemeral::Ephemeral::new(context, ephemeral::Options::default());
        join3(binder, protector, ephemeral.run(&stop)).await;
    }
}
