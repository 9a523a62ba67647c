//! `orlop registrar`: makes a CSI driver known to the kubelet, or to `orlop node`, as node-driver-registrar does.
//!
//! It stays when the driver or the kubelet restarts, and when somebody removes its socket. It ends when it is told to, when
//! another driver answers, and when the driver is refused; in each case the socket is gone before it is.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use http::StatusCode;
use node::registrar::startup::{self, Remover};
use node::registrar::{self, OnRefusal, Registrar};
use node::registry;
use runtime::args::{DriverArgs, KubeArgs, parse_duration, parse_listen};
use runtime::csi::{self, Driver};
use runtime::health::{Answer, Health, Server};
use runtime::time::SystemClock;
use runtime::{Metrics, Stop, Stopper, stop};

use crate::process::inert::{self, Flag, Value};
use crate::process::{self, Inert, KlogArgs, Lead, LogArgs, Process, WITHOUT_EFFECT};

/// Register a CSI driver with the kubelet of its node, or with `orlop node`.
#[derive(Debug, clap::Args)]
#[command(version, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    driver: DriverArgs,
    #[command(flatten)]
    offer: OfferArgs,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    taints: TaintArgs,
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    klog: KlogArgs,
    #[command(flatten)]
    inert: Inert<Originals>,
}

/// What node-driver-registrar takes and nothing here needs.
#[derive(Debug, Clone)]
struct Originals;

impl inert::Table for Originals {
    const FLAGS: &'static [&'static [Flag]] = &[
        &[
            Flag { name: "connection-timeout", value: Value::Duration, why: "the driver is waited for, however long" },
            Flag { name: "enable-pprof", value: Value::Bool, why: "there is no profiler of Go" },
        ],
        WITHOUT_EFFECT,
    ];
}

const EXAMPLES: &str = "\
Examples:
  orlop registrar --csi-address /csi/csi.sock --kubelet-registration-path /var/lib/kubelet/plugins/d/csi.sock
  orlop registrar --csi-address /run/csi.sock --kubelet-registration-path /run/csi.sock \\
    --plugin-registration-path /var/lib/orlop/plugins_registry --http-endpoint 127.0.0.1:9809
  NODE_NAME=node-1 orlop registrar --kubelet-registration-path /var/lib/kubelet/plugins/d/csi.sock \\
    --startup-taint d/agent-not-ready";

/// Where the driver is offered; `orlop sidecar` has the same flags.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OfferArgs {
    /// The driver's socket as the kubelet sees it, on the host.
    #[arg(long, value_name = "PATH", default_value = "", help_heading = "Registration")]
    pub(crate) kubelet_registration_path: String,
    /// Where the registration socket is made: the kubelet's plugins_registry, as seen from here.
    #[arg(long, value_name = "DIR", default_value = "/registration", help_heading = "Registration")]
    plugin_registration_path: PathBuf,
}

/// Taints that keep pods away until the driver is there; `orlop sidecar` has the same flag.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TaintArgs {
    /// Take this taint off the node $NODE_NAME once its CSINode lists the driver. May be given several times. Needs the API
    /// server: get, list, watch and patch nodes, and get, list, watch csinodes.
    #[arg(long, value_name = "KEY", help_heading = "Registration")]
    pub(crate) startup_taint: Vec<String>,
}

#[derive(Debug, Clone, clap::Args)]
struct WorkArgs {
    /// How long one question to the driver may take, and one to ourselves.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    timeout: Duration,
    /// Address of /healthz and /metrics, such as 127.0.0.1:9809; empty for none.
    #[arg(long, value_name = "ADDRESS", default_value = "", help_heading = "Metrics and health")]
    http_endpoint: String,
    /// Deprecated: like --http-endpoint :PORT.
    #[arg(long, value_name = "PORT", default_value_t = 0, help_heading = "Metrics and health")]
    health_port: u16,
    /// Deprecated: kubelet-registration-probe ends at once with success.
    #[arg(long, value_name = "MODE", default_value = "", hide = true)]
    mode: String,
}

impl OfferArgs {
    /// The kubelet is another process, with a working directory of its own.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let path = &self.kubelet_registration_path;
        if !path.is_empty() && !path.starts_with('/') {
            bail!(
                "--kubelet-registration-path {path:?} must be a full path, such as /var/lib/kubelet/plugins/d/csi.sock"
            );
        }
        Ok(())
    }

    /// How the driver is offered.
    pub(crate) fn options(&self, timeout: Duration, on_refusal: OnRefusal) -> registrar::Options {
        registrar::Options {
            directory: self.plugin_registration_path.clone(),
            endpoint: self.kubelet_registration_path.clone(),
            timeout,
            on_refusal,
        }
    }
}

impl TaintArgs {
    /// The node whose taints are taken off, if there are any.
    pub(crate) fn node(&self, from_environment: Option<String>) -> anyhow::Result<Option<String>> {
        if self.startup_taint.is_empty() {
            return Ok(None);
        }
        if self.startup_taint.iter().any(|key| key.is_empty() || key.contains([':', '='])) {
            bail!("--startup-taint takes the key of a taint only, such as d/agent-not-ready");
        }
        let node = from_environment.filter(|node| !node.is_empty());
        node.map(Some).context("--startup-taint needs the node's name in $NODE_NAME")
    }
}

/// The deprecated probe: everything it could find out, the health server knows.
const PROBE_MODE: &str = "kubelet-registration-probe";

pub(crate) fn run(args: &Args) -> ExitCode {
    process::ended("registrar", checked(args))
}

fn checked(args: &Args) -> anyhow::Result<()> {
    let WorkArgs { http_endpoint, health_port, timeout, mode, .. } = &args.work;
    if args.offer.kubelet_registration_path.is_empty() {
        bail!("--kubelet-registration-path is missing; name the driver's socket as the kubelet sees it");
    }
    args.offer.check()?;
    parse_listen(http_endpoint).context("--http-endpoint")?;
    if !http_endpoint.is_empty() && *health_port > 0 {
        bail!("--http-endpoint and --health-port are two ways to say the same; give one of them");
    }
    if timeout.is_zero() {
        bail!("--timeout must be more than nothing");
    }
    match mode.as_str() {
        "" => {}
        PROBE_MODE => return Ok(()),
        other => bail!("--mode: {other:?} is not known; leave it out"),
    }
    let node = args.taints.node(std::env::var("NODE_NAME").ok())?;
    args.klog.apply(&args.log)?.start()?;
    args.inert.tell();
    process::block_on(start(args, node))
}

async fn start(args: &Args, node: Option<String>) -> anyhow::Result<()> {
    let metrics = Metrics::new(&SystemClock);
    let options = csi::Options { timeout: args.work.timeout, ..csi::Options::default() };
    let driver = Driver::new(args.driver.csi_address.clone(), options, &metrics);
    let registrar = Arc::new(Registrar::new(&driver, args.offer.options(args.work.timeout, OnRefusal::End)));
    let server = serve(args, &metrics, &registrar).await?;
    tracing::info!(address = %args.driver.csi_address, "waiting for the driver");
    let (stopper, stop) = Stopper::new();
    let (done, ended) = Stopper::new();
    let never = Stop::never();
    let working = async {
        let work = async {
            match node {
                Some(node) => untaint(args, node, &driver, &stop).await,
                None => std::future::pending().await,
            }
        };
        let registered = tokio::select! {
            biased;
            registered = registrar.run(&stop) => registered.map_err(|error| anyhow!(error)),
            untainted = work => untainted,
        };
        done.stop();
        registered
    };
    let serving = async {
        match &server {
            Some(server) => server.run(&ended).await,
            None => ended.stopped().await,
        }
    };
    tokio::select! {
        biased;
        (worked, ()) = async { tokio::join!(working, serving) } => worked,
        // The connection has no end of its own: the work's outcome is what counts.
        lost = driver.run(&never) => lost.map_err(|error| anyhow!(error)),
        // The second signal: whoever sends it does not want to wait.
        signals = stop::on_signals(stopper) => signals.map_err(|error| anyhow!(error)),
    }
}

/// Takes startup taints off, as long as this runs.
async fn untaint(args: &Args, node: String, driver: &Driver, stop: &Stop) -> anyhow::Result<()> {
    let process = Process::connect(&args.kube, "orlop-registrar").await?;
    registry::narrow(&process.context.caches, &node);
    let facts = driver.ready().await;
    let taints = args.taints.startup_taint.clone();
    let options = startup::Options { node, driver: facts.name.clone(), taints };
    let remover = Remover::new(&process.context, options);
    let remover = &remover;
    process
        .run_until(&process::no_endpoint(), Lead::Always, stop, |stop| async move { remover.run(&stop).await })
        .await?;
    // The registrar has the last word.
    std::future::pending().await
}

/// Answers health and metrics, if an address was given.
async fn serve(args: &Args, metrics: &Metrics, registrar: &Arc<Registrar>) -> anyhow::Result<Option<Server>> {
    let address = match (args.work.http_endpoint.as_str(), args.work.health_port) {
        ("", 0) => return Ok(None),
        ("", port) => format!(":{port}"),
        (address, _) => address.to_owned(),
    };
    let health = Health::default();
    answer(&health, "/healthz", registrar);
    let server = Server::bind(&address, "/metrics", metrics, &health).await.map_err(|error| anyhow!(error))?;
    if let Ok(address) = server.address() {
        tracing::info!(%address, "answering health and metrics");
    }
    Ok(Some(server))
}

/// Lets a path tell how a registration stands (27.3).
pub(crate) fn answer(health: &Health, path: &str, registrar: &Arc<Registrar>) {
    let registrar = registrar.clone();
    health.probe(path, move || {
        let registrar = registrar.clone();
        Box::pin(async move {
            match registrar.health().await {
                registrar::Health::Well => Answer::ok(),
                registrar::Health::Missing(text) => Answer { code: StatusCode::NOT_FOUND, text },
                registrar::Health::Unwell(text) => Answer { code: StatusCode::INTERNAL_SERVER_ERROR, text },
            }
        })
    });
}
