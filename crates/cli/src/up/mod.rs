//! `orlop up`: the whole of storage as one long-running process, on the embedded API or on a cluster that exists.

mod rights;
mod service;
mod settle;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{ArgAction, ArgMatches};
use driver_sdk::csi::Endpoint;
use runtime::client::Error;
use runtime::{Stopper, stop};
use serde_json::{Value, json};

use crate::cluster::output;
use crate::config::{self, Effective};
use crate::controllers::parse_grace;
use crate::join::{self, Company};
use crate::page;
use crate::process::{self, LogArgs};
use crate::stack::{self, Cluster, Parts, Place, Plan, Role, Running};
use crate::usage;
pub(crate) use settle::Wrong;

/// Run everything in one process: API, controllers, drivers, node agent, live page.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory of everything: objects, keys, volumes, kubeconfig; made if it does not exist.
    #[arg(long, value_name = "DIR", required_unless_present = "config")]
    data: Option<PathBuf>,
    /// Loopback address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443", value_parser = usage::parse_address)]
    listen: SocketAddr,
    /// Address of this machine on which others may join it, such as 10.0.0.1:6444; off unless given. `orlop token create`
    /// then makes the tokens that they need.
    #[arg(long, value_name = "ADDRESS")]
    serve_machines: Option<join::Listen>,
    /// How long a machine may not renew its lease until it is called lost (NotReady) and its pods are evicted, each when it no
    /// longer tolerates that; at least 15s.
    #[arg(long, value_name = "DURATION", default_value = "50s", value_parser = parse_grace)]
    node_monitor_grace_period: Duration,
    /// Name of the local driver's class, which is made if it does not exist; empty makes none. On the embedded API it is the
    /// default class; on an existing cluster it is not, and volumes are made where a pod needs them.
    #[arg(long, value_name = "NAME", default_value = "local")]
    class: String,
    /// Loopback address of the live page, or off. Its address with the token is in DIR/page-url.
    #[arg(long, value_name = "ADDRESS|off", default_value = "127.0.0.1:0")]
    page: page::Where,
    /// Address for /metrics and /healthz over plain HTTP, such as 127.0.0.1:9810; off unless given. The embedded API also
    /// shows the metrics at its own address.
    #[arg(long, value_name = "ADDRESS", value_parser = usage::parse_address)]
    http_endpoint: Option<SocketAddr>,
    /// Socket of a CSI driver that somebody else runs, such as unix:///run/other/csi.sock: claims of its classes are served
    /// as well. May be given more than once. A driver that is away is waited for.
    #[arg(long, value_name = "ENDPOINT", value_parser = settle::socket, help_heading = "Drivers")]
    driver: Vec<Endpoint>,
    /// Run the local driver in this process.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", value_name = "BOOL", help_heading = "Drivers")]
    local_driver: bool,
    /// Use the cluster of this kubeconfig, and run no API server.
    #[arg(long, value_name = "FILE", help_heading = "Existing cluster")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Without it: its current one.
    #[arg(long, value_name = "NAME", help_heading = "Existing cluster")]
    context: Option<String>,
    /// What runs, of `controllers`, `scheduler`, `sidecars` (provisioner and attacher of each driver), `node` (the agent of
    /// this machine, which needs root) and `page`. [default: all; with --kubeconfig sidecars, node and page, since a cluster
    /// has controllers and a scheduler]
    #[arg(
        long,
        value_enum,
        value_name = "PART,...",
        value_delimiter = ',',
        hide_possible_values = true,
        allow_hyphen_values = true
    )]
    parts: Vec<Role>,
    /// YAML file with the same settings: each flag without its dashes is a key. A flag overrides it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print a systemd unit that runs `orlop up` with these flags, and do nothing else.
    #[arg(long)]
    print_systemd: bool,
    #[command(flatten)]
    log: LogArgs,
}

const EXAMPLES: &str = "\
Examples:
  orlop up --data ./orlop
  KUBECONFIG=./orlop/kubeconfig kubectl get storageclass,pvc,pv
  orlop up --data ./orlop --driver unix:///run/other/csi.sock --local-driver=false
  orlop up --data /var/lib/orlop --kubeconfig ~/.kube/config --context production
  orlop up --config /etc/orlop.yaml
  orlop up --data /var/lib/orlop --print-systemd > /etc/systemd/system/orlop.service";

/// The command line as it was given, before the file that it may name is read.
#[derive(Debug, Clone)]
pub(crate) struct Call(ArgMatches);

impl clap::FromArgMatches for Call {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = matches.clone();
        Ok(())
    }
}

impl clap::Args for Call {
    fn augment_args(command: clap::Command) -> clap::Command {
        Args::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Args::augment_args_for_update(command)
    }
}

pub(crate) fn run(call: &Call) -> ExitCode {
    process::ended("up", begin(call))
}

fn begin(Call(given): &Call) -> anyhow::Result<()> {
    let Effective { args, .. } = Effective::of_call(given).context("nothing is started")?;
    if args.print_systemd {
        let unit = service::unit(args.data()?, &config::given_words(given))?;
        return output::write(&unit);
    }
    args.log.start()?;
    process::block_on(start(&args))
}

async fn start(args: &Args) -> anyhow::Result<()> {
    let plan = args.plan()?;
    let (stopper, stopped) = Stopper::new();
    let mut signals = pin!(stop::on_signals(stopper));
    let starting = bring_up(args, &plan);
    // Signals are listened for from the first moment. One that comes during the start ends it where it is, as a crash would,
    // from which the next start recovers.
    let (running, mut parts) = tokio::select! {
        biased;
        signals = &mut signals => return signals.context("listening for signals"),
        () = stopped.stopped() => return Ok(()),
        started = starting => started?,
    };
    tell_ready(&plan, &running);
    let failed = tokio::select! {
        biased;
        () = stopped.stopped() => None,
        error = parts.failed() => Some(error),
        signals = &mut signals => return signals.context("listening for signals"),
    };
    service::notify(service::State::Stopping);
    let ended = tokio::select! {
        biased;
        ended = parts.end() => ended,
        // The second signal: whoever sends it does not want to wait.
        signals = &mut signals => signals.context("listening for signals").and_then(|()| bail!("stopped before all was done")),
    };
    let ended = ended.and_then(|()| release(&plan));
    match (failed, ended) {
        (None, ended) => ended?,
        (Some(error), Ok(())) => return Err(error),
        (Some(error), Err(also)) => {
            tracing::error!(error = format!("{also:#}"), "ending the rest");
            return Err(error);
        }
    }
    tracing::info!("stopped");
    Ok(())
}

/// Everything that is there before the stack is called ready.
async fn bring_up(args: &Args, plan: &Plan) -> anyhow::Result<(Running, Parts)> {
    let (running, mut parts) = plan.start().await?;
    match complete(args, plan, &running, &mut parts).await {
        Ok(()) => Ok((running, parts)),
        Err(error) => {
            // The agent runs already: it ends as it would later, and takes its own mount along.
            if let Err(also) = parts.end().await.and_then(|()| release(plan)) {
                tracing::error!(error = format!("{also:#}"), "ending what was started");
            }
            Err(error)
        }
    }
}

/// What is made for users once everything runs.
async fn complete(args: &Args, plan: &Plan, running: &Running, parts: &mut Parts) -> anyhow::Result<()> {
    if let Cluster::Existing { .. } = plan.cluster {
        rights::tell_missing(&running.context.client, plan).await;
    }
    make_class(running, plan, &args.class).await?;
    if let (page::Where::At(listen), true) = (args.page, plan.has(Role::Page)) {
        start_page(&plan.place, running, parts, listen).await?;
    }
    if let Some(machines) = running.machines {
        tracing::info!(%machines, "other machines may join");
    }
    if plan.has(Role::Node) && !plan.mounts() {
        tracing::warn!(
            "only root may mount: no agent runs on this machine, and pods get no volumes; claims are served"
        );
    }
    Ok(())
}

/// Takes away the mount that the agent's directory is.
fn release(plan: &Plan) -> anyhow::Result<()> {
    if plan.mounts() { stack::release(&plan.place) } else { Ok(()) }
}

/// Tells the log, and whoever supervises this process.
fn tell_ready(plan: &Plan, running: &Running) {
    let driver = running.local.as_deref();
    match (&plan.cluster, running.address) {
        (Cluster::Existing { kubeconfig, .. }, _) => {
            tracing::info!(cluster = %kubeconfig.display(), driver, parts = ?plan.roles, "ready");
        }
        (Cluster::Embedded, Some(address)) => {
            tracing::info!(%address, kubeconfig = %plan.place.kubeconfig().display(), driver, "ready");
        }
        (Cluster::Embedded, None) => tracing::info!(driver, "ready"),
    }
    service::notify(service::State::Ready);
}

/// The live page, which reads what the controllers' caches hold.
async fn start_page(place: &Place, running: &Running, parts: &mut Parts, listen: page::Loopback) -> anyhow::Result<()> {
    let settings = page::Settings {
        listen,
        cluster: format!("orlop up on {}", stack::node_name()),
        token: page::Kept::In(place.data.join("page-token")),
        drivers: running.drivers.clone(),
    };
    let page = page::Page::open(settings).await?;
    page.write_url(&place.data.join("page-url"))?;
    if let Err(error) = page.announce() {
        // Whoever read the output went away. The address is in the file as well.
        tracing::warn!(error = format!("{error:#}"), "the page's address is told to nobody");
    }
    let context = running.context.clone();
    parts.add_first("the page", |stop| async move { page.run(context, stop).await });
    Ok(())
}

/// The class of the local driver's volumes.
async fn make_class(running: &Running, plan: &Plan, name: &str) -> anyhow::Result<()> {
    let (Some(driver), false) = (&running.local, name.is_empty()) else { return Ok(()) };
    let mut body = class(name, driver, &plan.cluster);
    if running.company == Company::Several {
        body["volumeBindingMode"] = join::binding_mode(running.company).into();
    }
    match running.context.client.create::<api::Class>(api::Kind::STORAGE_CLASS, None, &body).await {
        Err(Error::AlreadyExists { .. }) if running.company == Company::Several => {
            join::warn_of_class(&running.context.client, name).await
        }
        Ok(_) | Err(Error::AlreadyExists { .. }) => Ok(()),
        // Whoever may not make classes is refused before he is told that there is one.
        Err(error @ Error::Forbidden { .. }) => match class_is_there(running, name).await {
            true => Ok(()),
            false => Err(error).with_context(|| {
                format!("the class {name:?} cannot be made: have somebody make it, or leave it out with --class ''")
            }),
        },
        Err(error) => Err(error).with_context(|| format!("making the class {name:?}")),
    }
}

async fn class_is_there(running: &Running, name: &str) -> bool {
    let key = api::Key::cluster(name);
    running.context.client.get::<api::Class>(api::Kind::STORAGE_CLASS, &key).await.is_ok()
}

/// On our own API it is what claims get when they name none. On a cluster that is somebody else's to say; and there may be
/// more machines than this one, so that a volume waits for the pod that says where. Nothing here grows a claim yet, and the
/// class says so: whoever asks for more hears it at once, and does not wait for it.
fn class(name: &str, driver: &str, cluster: &Cluster) -> Value {
    let kind = api::Kind::STORAGE_CLASS;
    let mut body = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "provisioner": driver,
        "metadata": {"name": name}});
    match cluster {
        Cluster::Embedded => {
            body["metadata"]["annotations"] = json!({api::keys::annotation::DEFAULT_CLASS.0: "true"});
        }
        Cluster::Existing { .. } => body["volumeBindingMode"] = json!("WaitForFirstConsumer"),
    }
    body
}

impl Args {
    /// The directory, without a reference to the working directory.
    fn data(&self) -> anyhow::Result<PathBuf> {
        let data = self.data.as_deref().filter(|data| !data.as_os_str().is_empty());
        let data: &Path = data.context("no directory: give --data DIR, or the key data in the configuration file")?;
        std::path::absolute(data).with_context(|| format!("--data {}", data.display()))
    }
}
