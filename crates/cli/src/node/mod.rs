//! `orlop node`: the agent of a machine without a kubelet.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, bail};
use control::Context;
use lifecycle::node::selinux::Gate;
use node::drivers::Drivers;
use node::host::{self, LinuxHost};
use node::layout::Layout;
use node::registry::machine::{self, ApiPlace, DirectoryMemory, HeldEnd, Machine, MachineError, Untainting};
use node::registry::{self, Registry};
use node::{Agent, Options};
use runtime::Stop;
use runtime::args::{KubeArgs, ServeArgs, parse_duration};
use runtime::health::Health;

use crate::join;
use crate::process::{self, Lead, LogArgs, Process};

/// Mount the volumes of this machine's pods, where no kubelet runs.
///
/// With --server and --token, the machine joins an `orlop up` on another machine first.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    join: join::JoinArgs,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// What the agent does.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WorkArgs {
    /// Name of this machine's Node; the host's name unless given.
    #[arg(long, visible_alias = "hostname-override", value_name = "NAME")]
    node_name: Option<String>,
    /// Directory that everything of the agent is in: pods, plugins and plugins_registry, laid out as a kubelet does.
    /// [default: /var/lib/kubelet, or with --server the directory node below --data]
    #[arg(long, value_name = "DIRECTORY")]
    root_dir: Option<PathBuf>,
    /// Keep this machine's Node object: its labels, its condition Ready and its lease. Off where somebody else does.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", value_name = "BOOL")]
    register_node: bool,
    /// End a deleted pod once nothing of it is left here. Off where something else ends pods.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", value_name = "BOOL")]
    finish_pods: bool,
    /// How often a volume is published again whose driver wants that; up to half of it is added by chance.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    sync_frequency: Duration,
    /// How often drivers are asked how full volumes are; 0s turns it off.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    volume_stats_agg_period: Duration,
    /// Volumes that are worked on at once.
    #[arg(long, value_name = "N", default_value_t = 32)]
    concurrent_volumes: usize,
    /// How long one call to a driver may take.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_duration)]
    csi_timeout: Duration,
    /// Mount all volumes with their pods' SELinux contexts, where SELinux is on and the driver can; off: only those for
    /// one pod (ReadWriteOncePod).
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_name = "BOOL")]
    selinux_mount: bool,
    /// How long a driver whose registration socket is gone stays usable and announced; registrars restart.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    driver_grace: Duration,
    /// Unmount volumes that no pod wants without their driver when it has been away this long. What only the driver
    /// knows of, such as a device that it attached, stays as it is; leave it out to wait for the driver for ever.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    unmount_without_driver_after: Option<Duration>,
}

impl WorkArgs {
    /// A Node's name has no capital letters.
    pub(crate) fn name(&self) -> String {
        self.node_name.clone().unwrap_or_else(|| process::identity().to_lowercase())
    }

    pub(crate) fn is_named(&self) -> bool {
        self.node_name.is_some()
    }

    /// The directory that was asked for.
    pub(crate) fn root(&self) -> Option<&Path> {
        self.root_dir.as_deref()
    }
}

const ROOT: &str = "/var/lib/kubelet";

const EXAMPLES: &str = "\
Examples:
  orlop node --kubeconfig ./kubeconfig --node-name worker-1
  orlop node --kubeconfig ./kubeconfig --root-dir /srv/agent --http-endpoint 127.0.0.1:8081
  orlop node --server https://10.0.0.1:6444 --token TOKEN --data /var/lib/orlop

Drivers register themselves: run a registrar beside each, such as
  orlop registrar --csi-address /run/my.sock --kubelet-registration-path /run/my.sock \\
      --plugin-registration-path /var/lib/kubelet/plugins_registry

No containers are started. A pod of this node gets its volumes below the root directory, and its condition
orlop.dev/VolumesReady says so.";

pub(crate) fn run(args: Args) -> ExitCode {
    process::ended("node", args.log.start().and_then(|()| process::block_on(start(args))))
}

async fn start(args: Args) -> anyhow::Result<()> {
    if args.join.is_given() || (args.join.has_token() && args.kube.kubeconfig.is_none()) {
        return join::run(&args.join, &args.work, &args.serve).await;
    }
    crate::usage::check_name("--node-name", &args.work.name())?;
    let process = Process::connect(&args.kube, "orlop-node").await?;
    let node = NodeAgent::new(&process.context, &args.work)?;
    node.add_to(&process.health);
    process.run(&args.serve, Lead::Always, |stop| node.run(stop)).await?;
    match node.refused.into_inner() {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// Registration, the Node and the agent of one machine.
#[derive(Debug)]
pub(crate) struct NodeAgent {
    registry: Registry,
    machine: Option<Machine>,
    agent: Agent,
    sockets: PathBuf,
    /// Why it ended by itself.
    refused: OnceLock<MachineError>,
}

impl NodeAgent {
    /// For a process of its own: it keeps only what concerns this node.
    pub(crate) fn new(context: &Context, args: &WorkArgs) -> anyhow::Result<Self> {
        node::agent::narrow(&context.caches, &args.name());
        Self::with(context, args, Untainting::Ours, ApiPlace::Elsewhere)
    }

    /// For a machine that joined under this name, which keeps everything below this directory: with the rights of its
    /// node, and no others.
    pub(crate) fn joined(context: &Context, args: &WorkArgs, (name, root): (&str, &Path)) -> anyhow::Result<Self> {
        let mut args = args.clone();
        (args.node_name, args.root_dir) = (Some(name.to_owned()), Some(root.to_owned()));
        node::agent::narrow(&context.caches, name);
        Self::with(context, &args, Untainting::Others, ApiPlace::Elsewhere)
    }

    /// Why it ended by itself.
    pub(crate) fn into_refusal(self) -> Option<MachineError> {
        self.refused.into_inner()
    }

    /// For a process that sees all nodes anyway, and may have the API in it.
    pub(crate) fn beside_controllers(context: &Context, args: &WorkArgs, api: ApiPlace) -> anyhow::Result<Self> {
        Self::with(context, args, Untainting::Ours, api)
    }

    fn with(context: &Context, args: &WorkArgs, untainting: Untainting, api: ApiPlace) -> anyhow::Result<Self> {
        let name = args.name();
        if name.is_empty() {
            bail!("--node-name must not be empty");
        }
        if args.concurrent_volumes == 0 {
            bail!("--concurrent-volumes must be at least 1");
        }
        let root = real_root(args.root().unwrap_or(Path::new(ROOT)))?;
        let drivers = Drivers::default();
        let options = Options {
            workers: args.concurrent_volumes,
            finish_pods: args.finish_pods,
            timeout: args.csi_timeout,
            republish: args.sync_frequency,
            selinux: if args.selinux_mount { Gate::All } else { Gate::OnePod },
            stats: Some(args.volume_stats_agg_period).filter(|period| !period.is_zero()),
            alone_after: args.unmount_without_driver_after,
            ..Options::new(&name, Layout::new(&root)?)
        };
        let sockets = options.layout.registry();
        let host = LinuxHost::new(host::Options::default());
        let registering = registry::Options { grace: args.driver_grace, ..registry::Options::new(&name, &root) };
        let registry = Registry::new(context, drivers.clone(), registering);
        let machine = args.register_node.then(|| {
            let memory = Arc::new(DirectoryMemory::open(&root, api));
            let identity = process::identity::of_agent(&root);
            let keep = machine::Options { untainting, memory, ..machine::Options::new(&name, identity) };
            Machine::new(context, keep, registry.readiness())
        });
        let agent = Agent::new(context, Arc::new(host), drivers, options);
        Ok(Self { registry, machine, agent, sockets, refused: OnceLock::new() })
    }

    /// Lets health checks say why this agent does nothing, if it does not.
    pub(crate) fn add_to(&self, health: &Health) {
        if let Some(machine) = &self.machine {
            let lease = machine.health();
            health.add("node-lease", move || lease.healthy());
        }
    }

    /// Where drivers offer themselves.
    pub(crate) fn sockets(&self) -> &Path {
        &self.sockets
    }

    /// Why it ended by itself, if it did.
    pub(crate) fn refused(&self) -> Option<&MachineError> {
        self.refused.get()
    }

    /// Runs all until `stop`, or until somebody else turns out to look after the node.
    pub(crate) async fn run(&self, stop: Stop) {
        if let Some(machine) = &self.machine
            && let Err(error) = machine.free(&stop).await
        {
            // Nobody else writes it.
            let _ = self.refused.set(error);
            return;
        }
        let refused = async {
            match &self.machine {
                Some(machine) => match machine.run(&stop).await {
                    Err(error) => {
                        // Nobody else writes it.
                        let _ = self.refused.set(error);
                    }
                    Ok(()) => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        };
        let work = async {
            tokio::join!(self.registry.run(&stop), Box::pin(self.agent.run(&stop)));
        };
        tokio::select! {
            biased;
            () = refused => {}
            () = self.while_held(&stop, work) => {}
        }
    }

    /// Lets `work` go on only while this machine holds the lease of its node. Where another program keeps the Node, that
    /// program also sees to it that there is one such machine.
    pub(crate) async fn while_held(&self, stop: &Stop, work: impl Future<Output = ()>) {
        match &self.machine {
            None => work.await,
            Some(machine) => {
                if machine.while_held(stop, work).await == HeldEnd::Dropped {
                    tracing::warn!("stopping without the node's lease; the next start finishes what is under way");
                }
            }
        }
    }
}

/// The root without links in it: the mount table shows none.
fn real_root(root: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(root).with_context(|| format!("making the root directory {}", root.display()))?;
    root.canonicalize().with_context(|| format!("finding the root directory {}", root.display()))
}
