//! What `orlop sidecar` also does on a driver's node: the registrar's and the liveness probe's work, in the same process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use control::Context;
use node::liveness::Prober;
use node::registrar::startup::{self, Remover};
use node::registrar::{OnRefusal, Registrar};
use runtime::Stop;
use runtime::csi::Driver;
use runtime::health::{Health, Server};

use super::Args;
use super::args::Surroundings;
use crate::livenessprobe::{self, ProbeArgs};
use crate::process::Process;
use crate::registrar::{self, OfferArgs, TaintArgs};

/// Questions of the registrar are short, whatever `--timeout` says for making volumes.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The flags for it. Each part is off unless it is asked for.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct BesideArgs {
    #[command(flatten)]
    offer: OfferArgs,
    #[command(flatten)]
    taints: TaintArgs,
    /// Also do what `orlop livenessprobe` does, at this address.
    #[arg(long, value_name = "ADDRESS", default_value = "", value_parser = runtime::args::parse_listen,
          help_heading = "Metrics and health")]
    liveness_endpoint: String,
    #[command(flatten)]
    probe: ProbeArgs,
}

impl BesideArgs {
    pub(super) fn check(&self, around: &Surroundings) -> anyhow::Result<()> {
        if self.probe.probe_timeout.is_zero() {
            bail!("--probe-timeout must be more than nothing");
        }
        self.offer.check()?;
        self.taints.node(around.node.clone()).map(drop)
    }
}

/// The parts that were asked for.
pub(super) struct Beside {
    driver: Driver,
    context: Context,
    registrar: Option<Arc<Registrar>>,
    liveness: Option<Server>,
    node: Option<String>,
    taints: Vec<String>,
}

impl Beside {
    pub(super) async fn new(
        args: &Args,
        around: &Surroundings,
        process: &Process,
        driver: &Driver,
    ) -> anyhow::Result<Self> {
        let BesideArgs { offer, taints, liveness_endpoint, probe } = &args.beside;
        let registrar = match offer.kubelet_registration_path.is_empty() {
            true => None,
            // The agent asks again by itself, and the rest of this process has other work.
            false => Some(Arc::new(Registrar::new(driver, offer.options(TIMEOUT, OnRefusal::Stay)))),
        };
        if let Some(registrar) = &registrar {
            registrar::answer(&process.health, "/healthz/registration", registrar);
        }
        let metrics = &process.context.metrics;
        let liveness = match liveness_endpoint.as_str() {
            "" => None,
            address => {
                let health = Health::default();
                let prober = Arc::new(Prober::new(&args.driver.csi_address, probe.probe_timeout, metrics));
                livenessprobe::answer(&health, "/healthz", &prober);
                let bound = Server::bind(address, "", metrics, &health).await.map_err(|error| anyhow!(error))?;
                if let Ok(address) = bound.address() {
                    tracing::info!(%address, "answering whether the driver is well");
                }
                Some(bound)
            }
        };
        Ok(Self {
            driver: driver.clone(),
            context: process.context.clone(),
            registrar,
            liveness,
            node: taints.node(around.node.clone())?,
            taints: taints.startup_taint.clone(),
        })
    }

    /// Runs all parts until `stop`. An error is the registrar's, and nothing can be registered with it.
    pub(super) async fn run(&self, stop: &Stop) -> anyhow::Result<()> {
        let registering = async {
            match &self.registrar {
                Some(registrar) => registrar.run(stop).await.map_err(|error| anyhow!(error)),
                None => Ok(()),
            }
        };
        let answering = async {
            if let Some(liveness) = &self.liveness {
                liveness.run(stop).await;
            }
        };
        let (registered, (), ()) = tokio::join!(registering, answering, self.untaint(stop));
        registered
    }

    async fn untaint(&self, stop: &Stop) {
        let Some(node) = self.node.clone() else { return };
        let facts = tokio::select! {
            biased;
            () = stop.stopped() => return,
            facts = self.driver.ready() => facts,
        };
        let options = startup::Options { node, driver: facts.name.clone(), taints: self.taints.clone() };
        Remover::new(&self.context, options).run(stop).await;
    }
}
