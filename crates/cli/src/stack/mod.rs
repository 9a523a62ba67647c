//! The whole of storage in one process: the API, the local driver, the controllers, what stands beside the drivers, the
//! scheduler's volume half and the agent of this machine; or a part of that, on a cluster that exists ([`Plan`]).
//!
//! On the embedded API the controllers reach it in process, past the network; everybody else finds it on a loopback address,
//! with the kubeconfig. Binder and provisioner share caches and tell each other directly what annotations would say.

mod beside;
mod driver;
mod machine;
mod place;
mod plan;
mod work;

use std::fs::File;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, anyhow};
use apiserver::auth::User;
use control::Context;
use driver_sdk::metrics::Metrics;
use runtime::csi::Driver;
use runtime::{Stop, Stopper, client};
use tokio::task::JoinHandle;

pub(crate) use place::{Place, may_mount, node_name, release, release_root};
pub(crate) use plan::{Cluster, Local, Plan, Role};

use work::Known;

use crate::api;
use crate::join::{self, Company};
use crate::process::{Process, connect};

/// What the API server sees as our name.
const MANAGER: &str = "orlop";

/// What a stack that runs is known by.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) context: Context,
    /// Of the embedded API.
    pub(crate) address: Option<SocketAddr>,
    /// What the local driver calls itself.
    pub(crate) local: Option<String>,
    /// All drivers, those that are not there yet as well.
    pub(crate) drivers: Vec<Driver>,
    pub(crate) company: Company,
    /// Where other machines find it.
    pub(crate) machines: Option<SocketAddr>,
    /// Keeps others out of the directory.
    _held: File,
}

/// The parts of a stack that runs. Dropping this does not end them.
#[derive(Debug)]
pub(crate) struct Parts {
    /// In the order in which they end: who uses another ends before it.
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    name: &'static str,
    stop: Stopper,
    running: JoinHandle<anyhow::Result<()>>,
}

impl Part {
    fn start<W, F>(name: &'static str, work: W) -> Self
    where
        W: FnOnce(Stop) -> F,
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let (stop, stopped) = Stopper::new();
        Self { name, stop, running: tokio::spawn(work(stopped)) }
    }
}

/// The embedded API, and a client of it.
struct Served {
    process: Process,
    address: SocketAddr,
    machines: Option<SocketAddr>,
    serving: Part,
}

impl Plan {
    /// Starts all parts of it; when this returns, claims of the local driver can be made.
    pub(crate) async fn start(&self) -> anyhow::Result<(Running, Parts)> {
        let held = self.place.hold()?;
        let mut parts = Vec::new();
        let mut plan = self.clone();
        let measured = Arc::<OnceLock<Metrics>>::default();
        let (process, address, machines) = match &self.cluster {
            Cluster::Embedded => {
                let Served { process, address, machines, serving } = self.serve(&measured).await?;
                parts.push(serving);
                plan.company = Company::find(&process.context.client, self.machines).await?;
                (process, Some(address), machines)
            }
            Cluster::Existing { kubeconfig, context } => {
                let connection = connect::connect(Some(kubeconfig), context.as_deref()).await?;
                // Nothing is touched for a cluster that nobody answers for; whoever supervises this starts it again.
                connection.reach().await?;
                (Process::new(connection.client, client::Options::default(), MANAGER), None, None)
            }
        };
        if plan.company == Company::Several {
            join::prepare(&process.context.client).await?;
        }
        if self.local == Local::Run {
            let (driver, metrics) = driver::start(self).await?;
            parts.insert(0, driver);
            // What it counts is shown with the rest, unless nobody serves it.
            drop(measured.set(metrics));
        }
        let context = process.context.clone();
        let (known, working) = work::start(process, &plan).await?;
        parts.insert(0, working);
        let Known { local, drivers } = known;
        let running = Running { context, address, local, drivers, company: plan.company, machines, _held: held };
        Ok((running, Parts { parts }))
    }

    /// The embedded API, which also shows what the local driver counts, once it is there.
    async fn serve(&self, driver: &Arc<OnceLock<Metrics>>) -> anyhow::Result<Served> {
        let place = &self.place;
        let others = self.machines.map(join::Listen::address);
        let server = api::Server::open_for(&place.data, place.listen, Some(&place.kubeconfig()), others).await?;
        let machines = server.machines();
        join::note_address(&place.data, machines)?;
        let (api, address) = (server.api.clone(), server.address);
        let serving = Part::start("the API server", |stop| async move {
            server.serve(None, async move { stop.stopped().await }).await
        });
        let inner = kube::Client::new(api.service().as_user(User::loopback()), "default");
        let process = Process::new(inner, client::Options::default(), MANAGER);
        let (metrics, driver) = (process.context.metrics.clone(), driver.clone());
        api.measure_beside(move || driver.get().map(Metrics::text).into_iter().chain([metrics.encode()]).collect());
        Ok(Served { process, address, machines, serving })
    }
}

impl Parts {
    /// Starts another part, which ends before the others.
    pub(crate) fn add_first<W, F>(&mut self, name: &'static str, work: W)
    where
        W: FnOnce(Stop) -> F,
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        self.parts.insert(0, Part::start(name, work));
    }

    /// Ends when any part does, which none does by itself.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        let waits = self.parts.iter_mut().map(|part| Box::pin(async move { (part.name, (&mut part.running).await) }));
        let ((name, ended), index, _) = futures_util::future::select_all(waits).await;
        drop(self.parts.remove(index));
        match ended {
            Ok(Ok(())) => anyhow!("{name} ended by itself"),
            Ok(Err(error)) => error.context(name),
            Err(error) => anyhow!(error).context(name),
        }
    }

    /// Ends all parts in an orderly way, those after one that fails as well. The first failure is the answer.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        let mut all = Ok(());
        for Part { name, stop, running } in self.parts {
            stop.stop();
            let ended = running.await.context(name).and_then(|ended| ended.context(name));
            match (&all, ended) {
                (Ok(()), ended) => all = ended,
                (Err(_), Err(error)) => {
                    tracing::error!(error = format!("{error:#}"), "a part did not end well, either")
                }
                (Err(_), Ok(())) => {}
            }
        }
        all
    }
}
