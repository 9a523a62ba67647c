//! `orlop driver`: runs the local driver on one or more sockets.

mod accept;
mod args;
mod file;

pub(crate) use args::{Args, Flags};

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use driver_local::LocalDriver;
use driver_local::pool::Forgotten;
use driver_sdk::csi::Listener;
use driver_sdk::metrics::Metrics;
use driver_sdk::{Identity, ServeError};
use runtime::stop;

use args::Settings;

/// Thaws filesystems if the driver dies while they are frozen. Started by the driver itself.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct GuardArgs {
    #[arg(long)]
    budget_ms: u64,
    mounts: Vec<PathBuf>,
}

pub(crate) fn guard(args: &GuardArgs) -> ExitCode {
    linux::freeze::guard_main(&args.mounts, Duration::from_millis(args.budget_ms))
}

pub(crate) fn run(args: Args) -> ExitCode {
    match args.command {
        Some(args::Command::AcceptLoss(wanted)) => crate::process::ended("driver accept-loss", accept::accept(&wanted)),
        None => crate::process::ended("driver", start(args)),
    }
}

fn start(args: Args) -> anyhow::Result<()> {
    if let Some((state, pool)) = args.forgetting() {
        return forget(&state, &pool);
    }
    let settings = args.settle()?;
    settings.log.start()?;
    if settings.config.state_dir.is_none() {
        tracing::warn!("no pool is remembered: a disk that is not mounted looks like an empty pool; give --state-dir");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    crate::process::to_its_end(&runtime, serve(settings))
}

/// Forgets a pool that is gone for good. A driver that runs notices it at the next call that misses the pool.
fn forget(state: &Path, pool: &Path) -> anyhow::Result<()> {
    match driver_local::pool::forget_pool(state, pool)? {
        Forgotten::Forgotten => {
            let told = writeln!(io::stdout(), "{} is forgotten; its volumes count as deleted", pool.display());
            told.context("telling it")
        }
        Forgotten::WasNotKnown => bail!("{} remembers no pool at {}", state.display(), pool.display()),
    }
}

async fn serve(settings: Settings) -> anyhow::Result<()> {
    let stop = stop::first_signal()?;
    Server::open(settings).await?.serve(stop).await
}

/// The driver: it holds its pools and its sockets, and answers nobody yet.
pub(crate) struct Server {
    local: Arc<LocalDriver>,
    driver: driver_sdk::Driver,
    listeners: Vec<Listener>,
    mode: driver_sdk::Mode,
    metrics: Option<tokio::net::TcpListener>,
    grace: Duration,
}

impl Server {
    /// Takes the pools, recovers what an earlier run left, and takes the sockets.
    pub(crate) async fn open(settings: Settings) -> anyhow::Result<Self> {
        let Settings { config, endpoints, socket_mode, mode, metrics_address, grace, .. } = settings;
        let identity = Identity::new(&config.driver_name, env!("CARGO_PKG_VERSION"))
            .with_context(|| format!("--driver-name {:?}", config.driver_name))?;
        // The pools come first: only who holds them may answer on the sockets (LOCAL-R6).
        let local = tokio::task::spawn_blocking(move || LocalDriver::start(config)).await.context("starting")??;
        let driver = local.definition(identity).context("defining the driver")?;
        let mut listeners = Vec::new();
        for endpoint in &endpoints {
            if !endpoint.has_conventional_name() {
                tracing::warn!(%endpoint, "the specification wants socket names to end in .sock");
            }
            listeners.push(Listener::bind(endpoint, socket_mode).with_context(|| format!("listening on {endpoint}"))?);
            tracing::info!(%endpoint, ?mode, "serving");
        }
        let metrics = match metrics_address {
            None => None,
            Some(address) => {
                let listener =
                    tokio::net::TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))?;
                let address = listener.local_addr().unwrap_or(address);
                tracing::info!(%address, "answering /metrics and /healthz");
                Some(listener)
            }
        };
        Ok(Self { local, driver, listeners, mode, metrics, grace })
    }

    /// What it measures.
    pub(crate) fn metrics(&self) -> Metrics {
        self.driver.metrics()
    }

    /// Answers until `stop`.
    pub(crate) async fn serve(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let Self { local, driver, listeners, mode, metrics, grace } = self;
        let watcher = Arc::clone(&local);
        let watching = tokio::spawn(async move { watcher.watch_space().await });
        let (stop_metrics, metrics_stopped) = tokio::sync::oneshot::channel::<()>();
        let metrics = metrics.map(|listener| {
            let stopped = async move { drop(metrics_stopped.await) };
            tokio::spawn(driver_sdk::metrics::serve(listener, driver.metrics(), stopped))
        });
        let done = driver.serve(listeners, mode, stop, grace).await;
        watching.abort();
        tokio::task::spawn_blocking(move || local.core().thaw_all()).await.context("thawing volumes")?;
        drop(stop_metrics);
        if let Some(task) = metrics {
            task.await.context("the metrics server")?.context("serving metrics")?;
        }
        match done {
            Ok(()) => Ok(()),
            // What still runs is not lost: it is as if the driver had crashed, and it recovers from that.
            Err(ServeError::Unfinished(running)) => {
                tracing::warn!(?running, "stopping with calls still running; the next start finishes them");
                std::process::exit(0)
            }
            Err(error) => Err(anyhow!(error)),
        }
    }
}
