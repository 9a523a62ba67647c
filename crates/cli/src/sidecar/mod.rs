//! `orlop sidecar`: the provisioner beside any CSI driver.
//!
//! The driver may be away when this starts and at any time later; upstream's sidecar ends then, this one waits. It ends
//! only when another driver answers on the socket.

mod args;
mod beside;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use anyhow::anyhow;
use api::{AttributesClass, Kind};
use control::Context;
use control::provision::csi::{Sidecar, SidecarOptions};
use lifecycle::provision::csi::outline::AttributesGate;
use runtime::client::{Error, Selection};
use runtime::csi::{self, Driver, Facts};
use runtime::{Stop, Stopper, stop};

pub(crate) use args::Args;
use args::{ATTRIBUTES, Surroundings};
use beside::Beside;

use crate::controllers::{self, Controllers};
use crate::process::{self, Lead, Process};

pub(crate) fn run(args: Args) -> ExitCode {
    let around = Surroundings::read();
    let ended = args.check(&around).and_then(|()| args.log.start());
    match ended.and_then(|()| process::block_on(start(&args, &around))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("orlop sidecar: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn start(args: &Args, around: &Surroundings) -> anyhow::Result<()> {
    let process = Process::connect(&args.kube, "orlop-sidecar").await?;
    let options = csi::Options { timeout: args.work.timeout, ..csi::Options::default() };
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
    let attributes = attributes(args, &process.context).await;
    let options = args.options(&component(&process.context, &facts), attributes, around)?;
    let sidecar = Sidecar::new(&process.context, driver, &facts, options);
    let controllers = match args.work.with_controllers {
        true => Some(Controllers::new(&process.context, &process::flags(&[])?)?),
        false => None,
    };
    let lock = match controllers {
        Some(_) => controllers::LOCK.to_owned(),
        // The lock has upstream's name, so that its replicas and ours never lead together (1.4).
        None => facts.name.replace('/', "-"),
    };
    let lead = Lead::by(&args.leader, &lock);
    let (sidecar, controllers) = (&sidecar, &controllers);
    let both = |stop: Stop| async move {
        let controlling = async {
            if let Some(controllers) = controllers {
                controllers.run(stop.clone()).await;
            }
        };
        tokio::join!(sidecar.run(&stop), controlling);
    };
    process.run_until(&args.serve, lead, stop, both).await
}

/// The options of a sidecar that is a part of a larger process, which has no pod and no node.
pub(crate) fn options(args: &Args, context: &Context, facts: &Facts) -> anyhow::Result<SidecarOptions> {
    let nowhere = Surroundings { node: None, namespace: None, pod: None };
    args.options(&component(context, facts), AttributesGate::On, &nowhere)
}

/// Who events come from: the driver, this host, and this run.
fn component(context: &Context, facts: &Facts) -> String {
    format!("{}_{}_{:016x}{:016x}", facts.name, process::identity(), context.entropy.number(), context.entropy.number())
}

/// Attributes classes are used if the API has them, unless somebody said so or otherwise (2.1).
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
