//! The whole of storage in one process: the API, the local driver, the controllers and the provisioner.
//!
//! The controllers reach the API in process, past the network; everybody else finds it on a loopback address, with the
//! kubeconfig. Binder and provisioner share caches and tell each other directly what annotations would say.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use apiserver::Api;
use apiserver::auth::User;
use clap::Parser as _;
use control::Context;
use control::provision::csi::Sidecar;
use driver_sdk::csi::Endpoint;
use runtime::csi::{self, Driver};
use runtime::{Stop, Stopper};
use tokio::task::JoinHandle;

use crate::controllers::{self, Controllers};
use crate::process::{self, Lead, Process};
use crate::{api, driver, sidecar};

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
}

/// A stack that runs.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) context: Context,
    pub(crate) api: Api,
    pub(crate) address: SocketAddr,
    /// What the driver calls itself.
    pub(crate) driver: String,
    stop: Stopper,
    /// The parts in the order in which they end.
    parts: Vec<(&'static str, JoinHandle<anyhow::Result<()>>)>,
}

/// The flags of the parts at their defaults, so that a part here behaves as the command of its name does.
#[derive(Debug, clap::Parser)]
struct Defaults {
    #[command(flatten)]
    sidecar: sidecar::Args,
    #[command(flatten)]
    controllers: controllers::WorkArgs,
}

impl Stack {
    /// Starts all parts; when this returns, a claim can be made.
    pub(crate) async fn start(place: &Place) -> anyhow::Result<Self> {
        let (stop, stopped) = Stopper::new();
        let server = api::Server::open(&place.data, place.listen, Some(&place.kubeconfig())).await?;
        let (api, address) = (server.api.clone(), server.address);
        let serving = part(&stopped, |stop| async move { server.serve(None, async move { stop.stopped().await }).await });
        let driving = start_driver(place, &stopped).await?;

        let inner = kube::Client::new(api.service().as_user(User::loopback()), "default");
        let process = Process::new(inner, runtime::client::Options::default(), "orlop");
        let context = process.context.clone();
        let (name, working) = work(process, &place.socket(), &stopped).await?;
        let parts = vec![("the controllers", working), ("the driver", driving), ("the API server", serving)];
        Ok(Self { context, api, address, driver: name, stop, parts })
    }

    /// Ends when any part does, which none does by itself.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        let waits = self.parts.iter_mut().map(|(name, part)| Box::pin(async move { (*name, part.await) }));
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
        self.stop.stop();
        for (name, part) in self.parts {
            part.await.context(name)?.context(name)?;
        }
        Ok(())
    }
}

fn part<W, F>(stop: &Stop, work: W) -> JoinHandle<anyhow::Result<()>>
where
    W: FnOnce(Stop) -> F,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    tokio::spawn(work(stop.clone()))
}

/// The local driver on a socket of its own.
async fn start_driver(place: &Place, stop: &Stop) -> anyhow::Result<JoinHandle<anyhow::Result<()>>> {
    let flags = driver::Flags {
        endpoint: format!("unix://{}", place.socket().display()),
        node_id: process::identity(),
        pool: place.pool(),
    };
    let server = driver::Server::open(flags.settle()?).await?;
    Ok(part(stop, |stop| async move { server.serve(async move { stop.stopped().await }).await }))
}

/// The controllers and the provisioner beside the driver; gives the driver's name.
async fn work(
    process: Process,
    socket: &Path,
    stop: &Stop,
) -> anyhow::Result<(String, JoinHandle<anyhow::Result<()>>)> {
    // Without nodes there is nothing to gather places from: the driver says where a volume is.
    let flags = ["orlop", "--immediate-topology=false"];
    let Defaults { sidecar, controllers } = Defaults::try_parse_from(flags).context("the defaults of the parts")?;
    let endpoint: Endpoint = format!("unix://{}", socket.display()).parse().context("the driver's socket")?;
    let driver = Driver::new(endpoint, csi::Options::default(), &process.context.metrics);
    let (lost, connection) = Stopper::new();
    let connected = tokio::spawn({
        let driver = driver.clone();
        async move { driver.run(&connection).await }
    });
    let facts = driver.ready().await;
    let sidecar = Sidecar::new(&process.context, &driver, &facts, sidecar.for_stack(&process.context, &facts)?);
    let controllers = Controllers::new(&process.context, &controllers)?;
    let name = facts.name.clone();
    let working = part(stop, |stop| async move {
        let serve = process::no_endpoint();
        let both = |stop: Stop| {
            let (sidecar, controllers) = (&sidecar, &controllers);
            async move {
                tokio::join!(sidecar.run(&stop), controllers.run(stop.clone()));
            }
        };
        process.run_until(&serve, Lead::Always, &stop, both).await?;
        lost.stop();
        connected.await.context("the connection to the driver")?.map_err(|error| anyhow!(error))
    });
    Ok((name, working))
}
