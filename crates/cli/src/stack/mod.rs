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

use anyhow::{Context as _, anyhow};
use apiserver::auth::User;
use control::Context;
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
        let (process, address, machines) = match &self.cluster {
            Cluster::Embedded => {
                let Served { process, address, machines, serving } = self.serve().await?;
                parts.push(serving);
                plan.company = Company::find(&process.context.client, self.machines).await?;
                (process, Some(address), machines)
            }
            Cluster::Existing { kubeconfig, context } => {
                let connection = connect::connect(Some(kubeconfig), context.as_deref()).await?;
                (Process::new(connection.client, client::Options::default(), MANAGER), None, None)
            }
        };
        if plan.company == Company::Several {
            join::prepare(&process.context.client).await?;
        }
        if self.local == Local::Run {
            parts.insert(0, driver::start(self).await?);
        }
        let context = process.context.clone();
        let (known, working) = work::start(process, &plan).await?;
        parts.insert(0, working);
        let Known { local, drivers } = known;
        let running = Running { context, address, local, drivers, company: plan.company, machines, _held: held };
        Ok((running, Parts { parts }))
    }

    /// The embedded API.
    async fn serve(&self) -> anyhow::Result<Served> {
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
        let metrics = process.context.metrics.clone();
        api.measure_beside(move || metrics.encode());
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

    /// Ends all parts in an orderly way.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        for Part { name, stop, running } in self.parts {
            stop.stop();
            running.await.context(name)?.context(name)?;
        }
        Ok(())
    }
}
