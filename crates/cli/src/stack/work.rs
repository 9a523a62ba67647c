//! What a stack does once there is an API: the controllers, the scheduler, what stands beside the drivers, and the agent.

use ::node::registry::Welcome;
use ::node::registry::machine::ApiPlace;
use anyhow::bail;
use control::Context;
use control::handoff::Handoff;
use control::node_lifecycle::MachineDriver;
use control::schedule::Scheduler;
use driver_local::keys::{DRIVER_NAME, topology_key};
use driver_sdk::csi::Endpoint;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use runtime::Stop;
use runtime::csi::Driver;

use super::Part;
use super::beside::{Beside, Names, Shared, Whose};
use super::machine::Machine;
use super::plan::{Cluster, Local, Plan, Role};
use crate::controllers::{self, Controllers};
use crate::process::{self, Lead, Process};
use crate::scheduler;

/// All that works on the API, wired.
struct Work {
    context: Context,
    controllers: Option<(Controllers, Lead)>,
    scheduler: Option<(Scheduler, Lead)>,
    besides: Vec<Beside>,
    machine: Option<Machine>,
    /// On our own API machines are let in by us.
    welcome: Option<Welcome>,
}

/// What is known of the drivers after the start.
pub(super) struct Known {
    /// What the local driver calls itself.
    pub(super) local: Option<String>,
    pub(super) drivers: Vec<Driver>,
}

/// Starts all of it, as one part.
pub(super) async fn start(process: Process, plan: &Plan) -> anyhow::Result<(Known, Part)> {
    let work = Work::new(&process.context, plan).await?;
    if let Some(machine) = &work.machine {
        machine.add_to(&process.health);
    }
    let known = Known {
        local: match plan.local {
            Local::Run => work.besides.first().and_then(Beside::name),
            Local::LeaveOut => None,
        },
        drivers: work.besides.iter().map(|beside| beside.driver.clone()).collect(),
    };
    let http = plan.http;
    let part = Part::start("the controllers", |stop| async move {
        let serve = process::endpoint(http);
        let all = |stop: Stop| {
            let work = &work;
            async move { work.run(&stop).await }.boxed()
        };
        process.run_until(&serve, Lead::Always, &stop, all).await?;
        // Connections outlive the work, which may need them to end well.
        for beside in work.besides {
            beside.close().await?;
        }
        Ok(())
    });
    Ok((known, part))
}

impl Work {
    async fn new(context: &Context, plan: &Plan) -> anyhow::Result<Self> {
        let api = match &plan.cluster {
            Cluster::Embedded => ApiPlace::Here,
            Cluster::Existing { .. } => ApiPlace::Elsewhere,
        };
        let machine = if plan.mounts() { Some(Machine::new(context, &plan.place, api)?) } else { None };
        let beside = beside_controllers(context, plan);
        let shared = Shared {
            plan,
            context: &beside,
            names: Names::default(),
            sockets: machine.as_ref().map(|machine| machine.sockets().to_owned()),
        };
        let ours: Option<Endpoint> = match plan.local {
            Local::Run => Some(Endpoint::unix(plan.place.socket())?),
            Local::LeaveOut => None,
        };
        // The local driver first: its name is taken before others come, and others are asked all at once.
        let mut besides = Vec::new();
        if let Some(endpoint) = &ours {
            if plan.others.contains(endpoint) {
                bail!("--driver {endpoint} is the socket of the local driver, which is used anyway; drop it");
            }
            besides.push(Beside::open(&shared, Whose::Ours, endpoint).await?);
        }
        let others = plan.others.iter().map(|endpoint| Beside::open(&shared, Whose::Others, endpoint));
        for opened in join_all(others).await {
            besides.push(opened?);
        }
        let controllers = match plan.has(Role::Controllers) {
            true => Some((controllers(context, plan)?, plan.lead(controllers::LOCK))),
            false => None,
        };
        let scheduler = match plan.has(Role::Scheduler) {
            true => {
                let options = process::flags::<scheduler::WorkArgs>(&[])?.options()?;
                Some((Scheduler::new(context, options), plan.lead(scheduler::LOCK)))
            }
            false => None,
        };
        let welcome = match &plan.cluster {
            Cluster::Embedded => Some(Welcome::new(context)),
            Cluster::Existing { .. } => None,
        };
        Ok(Self { context: context.clone(), controllers, scheduler, besides, machine, welcome })
    }

    async fn run(&self, stop: &Stop) {
        let controlling = async {
            if let Some((controllers, lead)) = &self.controllers {
                process::lead(&self.context, lead, stop, |stop| controllers.run(stop)).await;
            }
        };
        let scheduling = async {
            if let Some((scheduler, lead)) = &self.scheduler {
                process::lead(&self.context, lead, stop, |stop: Stop| async move { scheduler.run(&stop).await }).await;
            }
        };
        let mounting = async {
            if let Some(machine) = &self.machine {
                machine.run(stop).await;
            }
        };
        let welcoming = async {
            if let Some(welcome) = &self.welcome {
                welcome.run(stop).await;
            }
        };
        // Each on the heap: together they would be one large state on the stack of whoever polls.
        tokio::join!(
            join_all(self.besides.iter().map(|beside| beside.run(stop).boxed())),
            controlling.boxed(),
            scheduling.boxed(),
            mounting.boxed(),
            welcoming.boxed(),
        );
    }
}

/// On our own API nobody else looks for lost machines. A cluster that exists has kube-controller-manager for that.
fn controllers(context: &Context, plan: &Plan) -> anyhow::Result<Controllers> {
    let names = format!("--controllers=*,{}", controllers::NODE_LIFECYCLE[0]);
    let grace = format!("--node-monitor-grace-period={}ms", plan.node_grace.as_millis());
    match &plan.cluster {
        Cluster::Embedded => {
            let driver = MachineDriver {
                name: DRIVER_NAME.to_owned(),
                topology_key: topology_key(DRIVER_NAME),
                server: super::node_name(),
            };
            Controllers::new(context, &process::flags(&[names.as_str(), &grace])?, Some(driver))
        }
        Cluster::Existing { .. } => Controllers::new(context, &process::flags(&[])?, None),
    }
}

/// On our own API binder and provisioner tell each other directly what annotations would say. On another cluster each has a
/// lease of its own and the other may lead elsewhere, so they must not: what is said in this process would reach nobody.
fn beside_controllers(context: &Context, plan: &Plan) -> Context {
    match &plan.cluster {
        Cluster::Embedded => context.clone(),
        Cluster::Existing { .. } => Context { handoff: Handoff::default(), ..context.clone() },
    }
}
