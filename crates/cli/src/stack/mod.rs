//! The whole of storage in one process: the API, the local driver, the controllers, what stands beside the driver, the
//! scheduler's volume half and the agent of this machine.
//!
//! The controllers reach the API in process, past the network; everybody else finds it on a loopback address, with the
//! kubeconfig. Binder and provisioner share caches and tell each other directly what annotations would say.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::node::registrar::{self, Registrar};
use anyhow::{Context as _, anyhow};
use apiserver::auth::User;
use control::Context;
use control::attacher::Attacher;
use control::provision::csi::Sidecar;
use control::schedule::Scheduler;
use driver_sdk::csi::Endpoint;
use linux::mountinfo::MountTable;
use linux::mounts;
use runtime::csi::{self, Driver};
use runtime::{Stop, Stopper};
use tokio::task::JoinHandle;

use crate::controllers::{self, Controllers};
use crate::node::{self, NodeAgent};
use crate::process::{self, Lead, Process};
use crate::{api, driver, scheduler, sidecar};

/// Where things are.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Holds everything: objects, keys, volumes, the socket.
    pub(crate) data: PathBuf,
    pub(crate) listen: SocketAddr,
}

impl Place {
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data.join("kubeconfig")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.data.join("csi.sock")
    }

    pub(crate) fn pool(&self) -> PathBuf {
        self.data.join("pool")
    }

    /// The agent's directory: what a kubelet has in /var/lib/kubelet.
    pub(crate) fn root(&self) -> PathBuf {
        self.data.join("node")
    }
}

/// Takes away the mount that the agent's directory is, unless volumes are mounted below it: those stay for the next run.
pub(crate) fn release(place: &Place) -> anyhow::Result<()> {
    let Ok(root) = place.root().canonicalize() else { return Ok(()) };
    let table = MountTable::read().context("reading the mount table")?;
    match table.below(&root).next() {
        Some(_) => Ok(()),
        None => mounts::unmount_all(&root).map(drop).with_context(|| format!("unmounting {}", root.display())),
    }
}

/// Whether this process may mount; an agent that may not is of no use.
pub(crate) fn may_mount() -> bool {
    mounts::Rights::ask() > mounts::Rights::Nothing
}

/// What a stack that runs is known by.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) context: Context,
    pub(crate) address: SocketAddr,
    /// What the driver calls itself.
    pub(crate) driver: String,
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

impl Stack {
    /// Starts all parts; when this returns, a claim can be made.
    pub(crate) async fn start(place: &Place) -> anyhow::Result<(Self, Parts)> {
        let server = api::Server::open(&place.data, place.listen, Some(&place.kubeconfig())).await?;
        let (api, address) = (server.api.clone(), server.address);
        let serving = Part::start("the API server", |stop| async move {
            server.serve(None, async move { stop.stopped().await }).await
        });
        let driving = start_driver(place).await?;

        let inner = kube::Client::new(api.service().as_user(User::loopback()), "default");
        let process = Process::new(inner, runtime::client::Options::default(), "orlop");
        let context = process.context.clone();
        let metrics = context.metrics.clone();
        api.measure_beside(move || metrics.encode());
        let (driver, working) = work(process, place).await?;
        Ok((Self { context, address, driver }, Parts { parts: vec![working, driving, serving] }))
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

/// The local driver on a socket of its own.
async fn start_driver(place: &Place) -> anyhow::Result<Part> {
    let flags = driver::Flags {
        endpoint: format!("unix://{}", place.socket().display()),
        node_id: node_name(),
        pool: place.pool(),
    };
    let server = driver::Server::open(flags.settle()?).await?;
    Ok(Part::start("the driver", |stop| async move { server.serve(async move { stop.stopped().await }).await }))
}

/// The agent of this machine, and what offers it the driver.
struct Machine {
    registrar: Registrar,
    agent: NodeAgent,
}

impl Machine {
    fn new(context: &Context, driver: &Driver, place: &Place) -> anyhow::Result<Self> {
        let root = place.root();
        let flags = [format!("--root-dir={}", root.display()), format!("--node-name={}", node_name())];
        let args: node::WorkArgs = process::flags(&flags.each_ref().map(String::as_str))?;
        let agent = NodeAgent::beside_controllers(context, &args)?;
        let options = registrar::Options {
            directory: agent.sockets().to_owned(),
            endpoint: place.socket().display().to_string(),
            timeout: Duration::from_secs(1),
            on_refusal: registrar::OnRefusal::Stay,
        };
        Ok(Self { registrar: Registrar::new(driver, options), agent })
    }

    async fn run(&self, stop: &Stop) {
        let (offered, ()) = tokio::join!(self.registrar.run(stop), Box::pin(self.agent.run(stop.clone())));
        if let Err(error) = offered {
            tracing::error!(%error, "the driver is not registered");
        }
    }
}

/// What this machine's Node is called.
pub(crate) fn node_name() -> String {
    process::identity().to_lowercase()
}

/// The controllers, what stands beside the driver, and the agent; gives the driver's name.
async fn work(process: Process, place: &Place) -> anyhow::Result<(String, Part)> {
    let socket = place.socket();
    // Without nodes there is nothing to gather places from: the driver says where a volume is.
    let flags = ["--immediate-topology=false", "--leader-election-namespace=kube-system"];
    let args: sidecar::Args = process::flags(&flags)?;
    let controllers: controllers::WorkArgs = process::flags(&[])?;
    let endpoint: Endpoint = format!("unix://{}", socket.display()).parse().context("the driver's socket")?;
    let driver = Driver::new(endpoint, csi::Options::default(), &process.context.metrics);
    let (lost, connection) = Stopper::new();
    let connected = tokio::spawn({
        let driver = driver.clone();
        async move { driver.run(&connection).await }
    });
    let facts = driver.ready().await;
    let sidecar = Sidecar::new(&process.context, &driver, &facts, sidecar::options(&args, &process.context, &facts)?);
    let attacher = Attacher::new(&process.context, &driver, &facts, args.attaching());
    let controllers = Controllers::new(&process.context, &controllers)?;
    let scheduler = Scheduler::new(&process.context, process::flags::<scheduler::WorkArgs>(&[])?.options()?);
    let machine = if may_mount() { Some(Machine::new(&process.context, &driver, place)?) } else { None };
    let name = facts.name.clone();
    let working = Part::start("the controllers", |stop| async move {
        let serve = process::no_endpoint();
        let all = |stop: Stop| {
            let (sidecar, attacher, controllers) = (&sidecar, &attacher, &controllers);
            let (scheduler, machine) = (&scheduler, &machine);
            async move {
                let machine = async {
                    if let Some(machine) = machine {
                        machine.run(&stop).await;
                    }
                };
                tokio::join!(
                    Box::pin(sidecar.run(&stop)),
                    Box::pin(attacher.run(&stop)),
                    Box::pin(controllers.run(stop.clone())),
                    Box::pin(scheduler.run(&stop)),
                    Box::pin(machine),
                );
            }
        };
        process.run_until(&serve, Lead::Always, &stop, all).await?;
        lost.stop();
        connected.await.context("the connection to the driver")?.map_err(|error| anyhow!(error))
    });
    Ok((name, working))
}
