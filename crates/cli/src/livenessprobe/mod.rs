//! `orlop livenessprobe`: turns a CSI driver's Probe into an answer over HTTP, for a kubelet's liveness probe.
//!
//! The port is open from the start, and the answer is that the driver is not there until it is.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use http::StatusCode;
use node::liveness::Prober;
use runtime::args::{DriverArgs, parse_duration, parse_listen};
use runtime::health::{Answer, Health, Server};
use runtime::time::SystemClock;
use runtime::{Metrics, Stopper, stop};

use crate::process::inert::{self, Flag};
use crate::process::{self, Inert, KlogArgs, LogArgs, WITHOUT_EFFECT};

/// Answer over HTTP whether a CSI driver is healthy.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    driver: DriverArgs,
    #[command(flatten)]
    probe: ProbeArgs,
    /// Address of /healthz and /metrics, such as 127.0.0.1:9808. Without it /healthz is at --health-port.
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    http_endpoint: String,
    /// Deprecated: port of /healthz, on all addresses, as a kubelet asks at the pod's.
    #[arg(long, value_name = "PORT", default_value_t = HEALTH_PORT)]
    health_port: u16,
    /// Deprecated: an address for metrics alone.
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    metrics_address: String,
    /// Path of the metrics.
    #[arg(long, value_name = "PATH", default_value = "/metrics")]
    metrics_path: String,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    klog: KlogArgs,
    #[command(flatten)]
    inert: Inert<Originals>,
}

/// What the original takes and nothing here needs.
#[derive(Debug, Clone)]
struct Originals;

impl inert::Table for Originals {
    const FLAGS: &'static [&'static [Flag]] = &[WITHOUT_EFFECT];
}

const HEALTH_PORT: u16 = 9808;

const EXAMPLES: &str = "\
Examples:
  orlop livenessprobe --csi-address /csi/csi.sock
  orlop livenessprobe --csi-address /csi/csi.sock --http-endpoint 127.0.0.1:9808 --probe-timeout 3s";

/// How the driver is asked; `orlop sidecar` has the same flag.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ProbeArgs {
    /// How long connecting to the driver and its answer to Probe may take together.
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = parse_duration)]
    pub(crate) probe_timeout: Duration,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let started = args.check().and_then(|()| args.klog.apply(&args.log)?.start());
    if started.is_ok() {
        args.inert.tell();
    }
    process::ended("livenessprobe", started.and_then(|()| process::block_on(start(args))))
}

impl Args {
    fn check(&self) -> anyhow::Result<()> {
        if !self.http_endpoint.is_empty() && (self.health_port != HEALTH_PORT || !self.metrics_address.is_empty()) {
            bail!("--http-endpoint says it all; drop --health-port and --metrics-address");
        }
        parse_listen(&self.http_endpoint).context("--http-endpoint")?;
        parse_listen(&self.metrics_address).context("--metrics-address")?;
        if self.probe.probe_timeout.is_zero() {
            bail!("--probe-timeout must be more than nothing");
        }
        if !self.metrics_path.starts_with('/') {
            bail!("--metrics-path must begin with a slash");
        }
        Ok(())
    }
}

async fn start(args: &Args) -> anyhow::Result<()> {
    let metrics = Metrics::new(&SystemClock);
    let health = Health::default();
    let prober = Arc::new(Prober::new(&args.driver.csi_address, args.probe.probe_timeout, &metrics));
    answer(&health, "/healthz", &prober);
    let (address, path) = match args.http_endpoint.as_str() {
        "" => (format!(":{}", args.health_port), ""),
        address => (address.to_owned(), args.metrics_path.as_str()),
    };
    let server = bind(&address, path, &metrics, &health).await?;
    let extra = match args.metrics_address.as_str() {
        "" => None,
        address => Some(bind(address, &args.metrics_path, &metrics, &Health::default()).await?),
    };
    let (stopper, stop) = Stopper::new();
    let serving = async {
        let extra = async {
            if let Some(extra) = &extra {
                extra.run(&stop).await;
            }
        };
        tokio::join!(server.run(&stop), extra);
    };
    tokio::select! {
        biased;
        () = serving => Ok(()),
        signals = stop::on_signals(stopper) => signals.map_err(|error| anyhow!(error)),
    }
}

async fn bind(address: &str, path: &str, metrics: &Metrics, health: &Health) -> anyhow::Result<Server> {
    let server = Server::bind(address, path, metrics, health).await.map_err(|error| anyhow!(error))?;
    if let Ok(address) = server.address() {
        tracing::info!(%address, "answering");
    }
    Ok(server)
}

/// Lets a path tell whether the driver is well (28.2).
pub(crate) fn answer(health: &Health, path: &str, prober: &Arc<Prober>) {
    let prober = prober.clone();
    health.probe(path, move || {
        let prober = prober.clone();
        Box::pin(async move {
            match prober.probe().await {
                Ok(()) => Answer::ok(),
                Err(unwell) => Answer { code: StatusCode::INTERNAL_SERVER_ERROR, text: unwell.to_string() },
            }
        })
    });
}
