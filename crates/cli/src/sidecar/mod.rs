//! `orlop sidecar`: the provisioner and the attacher beside any CSI driver.
//!
//! The driver may be away when this starts and at any time later; upstream's sidecar ends then, this one waits. It ends
//! only when another driver answers on the socket.

mod args;
mod attach;
mod beside;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use anyhow::anyhow;
use api::{AttributesClass, Kind};
use control::Context;
use control::attacher::{self, Attacher};
use control::provision::csi::{Sidecar, SidecarOptions};
use lifecycle::provision::csi::outline::AttributesGate;
use runtime::client::{Error, Selection};
use runtime::csi::{self, Driver, Facts};
use runtime::{Stop, Stopper, stop};

pub(crate) use args::Args;
use args::{ATTRIBUTES, Surroundings};
use attach::Role;
use beside::Beside;

use crate::controllers::{self, Controllers};
use crate::process::{self, Lead, Process};

pub(crate) fn run(args: Args) -> ExitCode {
    let around = Surroundings::read();
    let ended = args.check(&around).and_then(|()| args.klog.apply(&args.log)?.start());
    if ended.is_ok() {
        args.tell_what_does_nothing();
    }
    process::ended("sidecar", ended.and_then(|()| process::block_on(start(&args, &around))))
}

async fn start(args: &Args, around: &Surroundings) -> anyhow::Result<()> {
    let process = Process::connect(&args.kube, "orlop-sidecar").await?;
    let options = csi::Options { timeout: args.timeout(), ..csi::Options::default() };
    let driver = Driver::new(args.driver.csi_address.clone(), options, &process.context.metrics);
    let (stopper, stop) = Stopper::new();
    let (done, ended) = Stopper::new();
    let beside = Beside::new(args, around, &process, &driver).await?;
    let (enough, until) = Stopper::new();
    let working = async {
        let until = stop.or(&until);
        let main = async {
            let worked = work(args, around, process, &driver, &until).await;
            enough.stop();
            worked
        };
        let more = async {
            // An error here ends the rest in good order, too.
            let ran = beside.run(&until).await;
            ran.inspect_err(|_| enough.stop())
        };
        let (worked, ran) = tokio::join!(main, more);
        done.stop();
        worked.and(ran)
    };
    // The connection outlives the work, which may still need it to end well.
    tokio::select! {
        biased;
        worked = working => worked,
        lost = driver.run(&ended) => match lost {
            Ok(()) => Ok(()),
            Err(error) => Err(anyhow!(error)),
        },
        // The second signal: whoever sends it does not want to wait.
        signals = stop::on_signals(stopper) => signals.map_err(|error| anyhow!(error)),
    }
}

/// Waits for the driver, and then works until `stop`.
async fn work(
    args: &Args,
    around: &Surroundings,
    process: Process,
    driver: &Driver,
    stop: &Stop,
) -> anyhow::Result<()> {
    tracing::info!(address = %args.driver.csi_address, "waiting for the driver");
    let facts = tokio::select! {
        biased;
        () = stop.stopped() => return Ok(()),
        facts = driver.ready() => facts,
    };
    let context = process.context.clone();
    let parts = Parts::new(args, around, (&context, driver, &facts)).await?;
    let lead = Lead::by(&args.leader, &parts.lock(&facts));
    let parts = &parts;
    let work = |stop: Stop| async move { parts.run(&stop).await };
    let beside = async {
        if let Some(attacher) = parts.beside() {
            let lead = Lead::by(&args.leader, &attacher::lock(&facts.name));
            process::lead(&context, &lead, stop, |stop: Stop| async move { attacher.run(&stop).await }).await;
        }
    };
    process.run_beside(&args.serve, lead, stop, (work, Box::pin(beside))).await
}

/// What this process does, by its roles.
struct Parts {
    provisioner: Option<Sidecar>,
    attacher: Option<Attacher>,
    controllers: Option<Controllers>,
}

impl Parts {
    async fn new(
        args: &Args,
        around: &Surroundings,
        (context, driver, facts): (&Context, &Driver, &Facts),
    ) -> anyhow::Result<Self> {
        let roles = args.roles();
        let provisioner = match roles.contains(&Role::Provisioner) {
            true => {
                let attributes = attributes(args, context).await;
                let options = args.options(&component(context, facts), attributes, around)?;
                Some(Sidecar::new(context, driver, facts, options))
            }
            false => None,
        };
        let attacher = roles.contains(&Role::Attacher).then(|| Attacher::new(context, driver, facts, args.attaching()));
        let controllers = match args.work.with_controllers {
            true => Some(Controllers::new(context, &process::flags(&[])?, None)?),
            false => None,
        };
        Ok(Self { provisioner, attacher, controllers })
    }

    /// The lock has upstream's name, so that its replicas and ours never lead together (SIDECAR-1.4).
    fn lock(&self, facts: &Facts) -> String {
        match (&self.controllers, &self.provisioner) {
            (Some(_), _) => controllers::LOCK.to_owned(),
            (None, Some(_)) => facts.name.replace('/', "-"),
            (None, None) => attacher::lock(&facts.name),
        }
    }

    /// The attacher, if it has a lease of its own: beside a provisioner, so that upstream's attacher may still run
    /// somewhere. Each lease is competed for by itself, so that a successor waits for one of them only.
    fn beside(&self) -> Option<&Attacher> {
        match (&self.controllers, &self.provisioner) {
            (None, Some(_)) => self.attacher.as_ref(),
            (None, None) | (Some(_), _) => None,
        }
    }

    /// Everything under the process' own lease.
    async fn run(&self, stop: &Stop) {
        let provisioning = async {
            if let Some(sidecar) = &self.provisioner {
                sidecar.run(stop).await;
            }
        };
        let attaching = async {
            if let (Some(attacher), None) = (&self.attacher, self.beside()) {
                attacher.run(stop).await;
            }
        };
        let controlling = async {
            if let Some(controllers) = &self.controllers {
                controllers.run(stop.clone()).await;
            }
        };
        // Each on the heap: together they would be one large state on the stack of whoever polls.
        tokio::join!(Box::pin(provisioning), Box::pin(attaching), Box::pin(controlling));
    }
}

/// The options of a sidecar that is a part of a larger process, which has no pod: what it keeps in a namespace is where its
/// leases would be. `node` is for `--node-deployment`.
pub(crate) async fn options(
    args: &Args,
    context: &Context,
    facts: &Facts,
    node: Option<&str>,
) -> anyhow::Result<SidecarOptions> {
    let namespace = Some(args.leader.namespace());
    let around = Surroundings { node: node.map(str::to_owned), namespace, pod: None };
    args.options(&component(context, facts), attributes(args, context).await, &around)
}

/// Who events come from: the driver, this host, and this run.
fn component(context: &Context, facts: &Facts) -> String {
    format!("{}_{}_{}", facts.name, process::identity(), context.entropy.token())
}

/// Attributes classes are used if the API has them, unless somebody said so or otherwise (PROVISION-2.1).
async fn attributes(args: &Args, context: &Context) -> AttributesGate {
    let gates = &args.gates.feature_gates;
    let gate = |on| if on { AttributesGate::On } else { AttributesGate::Off };
    let (name, default) = ATTRIBUTES;
    // A gate that was set answers the same whatever its default is.
    if gates.enabled(name, true) == gates.enabled(name, false) {
        return gate(gates.enabled(name, default));
    }
    let listed = context.client.list::<AttributesClass>(Kind::ATTRIBUTES_CLASS, &Selection::default(), 1, None).await;
    match listed {
        Err(Error::NotFound { .. }) => {
            tracing::info!("the API has no VolumeAttributesClass; claims' attributes classes are left alone");
            AttributesGate::Off
        }
        Ok(_) | Err(_) => gate(default),
    }
}
