//! `orlop controllers`: the volume controllers of kube-controller-manager, alone.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use control::Context;
use control::attach::{self, Attachments};
use control::bind::{self, Binder, plugins};
use control::ephemeral::{self, Ephemeral};
use control::node_lifecycle::{self, MachineDriver, NodeLifecycle};
use control::protect::{self, Protector};
use runtime::Stop;
use runtime::args::{KubeArgs, LeaderArgs, ServeArgs, parse_duration};

use crate::process::{self, Lead, LogArgs, Process};
use crate::usage;

/// The lease that replicas compete for.
pub(crate) const LOCK: &str = "orlop-controllers";

/// Bind, protect and attach volumes, as kube-controller-manager does.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    leader: LeaderArgs,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// What the controllers do.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WorkArgs {
    /// Controllers to run: `*` is all, NAME adds one, -NAME leaves one out. Names are kube-controller-manager's:
    /// persistentvolume-binder-controller, persistentvolumeclaim-protection-controller (which also protects volumes and
    /// attributes classes), ephemeral-volume-controller and persistentvolume-attach-detach-controller. Not part of `*` is
    /// node-lifecycle-controller, which finds lost nodes and evicts their pods: name it only where no
    /// kube-controller-manager does that, such as beside `orlop api`.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Ask provisioners for volumes when none fits.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", value_name = "BOOL")]
    enable_dynamic_provisioning: bool,
    /// How often every claim and volume is looked at again, in case something was missed.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = parse_duration)]
    pvclaimbinder_sync_period: Duration,
    /// Make directories of this machine for classes of the in-tree hostPath plugin; for development on one node.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_name = "BOOL", help_heading = "Plugins")]
    enable_hostpath_provisioner: bool,
    /// File with the pod that empties hostPath volumes.
    #[arg(long, value_name = "FILE", help_heading = "Plugins")]
    pv_recycler_pod_template_filepath_hostpath: Option<PathBuf>,
    /// File with the pod that empties NFS volumes.
    #[arg(long, value_name = "FILE", help_heading = "Plugins")]
    pv_recycler_pod_template_filepath_nfs: Option<PathBuf>,
    /// Least time to empty a hostPath volume, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, help_heading = "Plugins")]
    pv_recycler_minimum_timeout_hostpath: u64,
    /// Time to empty a hostPath volume per GiB, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, help_heading = "Plugins")]
    pv_recycler_timeout_increment_hostpath: u64,
    /// Least time to empty an NFS volume, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, help_heading = "Plugins")]
    pv_recycler_minimum_timeout_nfs: u64,
    /// Time to empty an NFS volume per GiB, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, help_heading = "Plugins")]
    pv_recycler_increment_timeout_nfs: u64,
    /// Claims and volumes that are worked on at once.
    #[arg(long, value_name = "N", default_value_t = 64)]
    concurrent_binder_syncs: usize,
    /// Pods whose claims are made at once.
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_ephemeralvolume_syncs: usize,
    /// How long a node's lease may stay unchanged until node-lifecycle-controller calls the node lost; at least 15s, since
    /// agents renew it every 10 s.
    #[arg(long, value_name = "DURATION", default_value = "50s", value_parser = parse_grace)]
    node_monitor_grace_period: Duration,
    #[command(flatten)]
    attach: AttachArgs,
}

/// A time after which a node may be called lost: an agent that works renews its lease well within it.
pub(crate) fn parse_grace(text: &str) -> Result<Duration, String> {
    let grace = parse_duration(text).map_err(|error| error.to_string())?;
    match grace >= Duration::from_secs(15) {
        true => Ok(grace),
        false => Err("at least 15s: agents renew their leases every 10 s".to_owned()),
    }
}

/// How volumes are attached and detached.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Attaching")]
struct AttachArgs {
    /// Take volumes away from a node that this controller has seen not ready for this long, although it may still be writing
    /// to them. A restart measures again. Off unless given: a node's volumes are freed by its own word, by deleting its Node object, or by the taint
    /// node.kubernetes.io/out-of-service while it is not ready.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    force_detach_after: Option<Duration>,
    /// Accepted for kube-controller-manager's sake: nothing is forced on time unless --force-detach-after says so; with both,
    /// nothing is.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_name = "BOOL")]
    disable_force_detach_on_timeout: bool,
    /// Do not look at all attachments again from time to time; changes are followed all the same.
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_name = "BOOL")]
    disable_attach_detach_reconcile_sync: bool,
    /// How often all attachments are looked at again, in case something was missed; at least 1s.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = parse_duration)]
    attach_detach_reconcile_sync_period: Duration,
    /// Volumes of one driver that are on their way to nodes and back at once.
    #[arg(long, value_name = "N", default_value_t = 256)]
    concurrent_attachments_per_driver: usize,
    /// How long a node is not told of an attached volume while more are on their way to it, so that one write tells of all;
    /// longer on a server that is slow. 0s tells of each at once. What is detached never waits for it.
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = parse_duration)]
    node_status_window: Duration,
}

impl AttachArgs {
    fn tell_what_does_nothing(&self) {
        if self.disable_force_detach_on_timeout && self.force_detach_after.is_none() {
            let why = "no time forces a detach unless --force-detach-after is given";
            tracing::info!(flag = "--disable-force-detach-on-timeout", why, "a flag is taken and has no effect");
        }
    }

    fn options(&self) -> anyhow::Result<attach::Options> {
        if self.attach_detach_reconcile_sync_period < Duration::from_secs(1) {
            bail!("--attach-detach-reconcile-sync-period must be at least 1s");
        }
        if self.concurrent_attachments_per_driver == 0 {
            bail!("--concurrent-attachments-per-driver must be at least 1");
        }
        let resync = Some(self.attach_detach_reconcile_sync_period);
        Ok(attach::Options {
            per_driver: self.concurrent_attachments_per_driver,
            force_after: self.force_detach_after.filter(|_| !self.disable_force_detach_on_timeout),
            resync: resync.filter(|_| !self.disable_attach_detach_reconcile_sync),
            node_status_window: self.node_status_window,
            ..attach::Options::default()
        })
    }
}

const EXAMPLES: &str = "\
Examples:
  orlop controllers --kubeconfig ./kubeconfig
  orlop controllers --leader-election --http-endpoint 127.0.0.1:8080
  orlop controllers --controllers '*,-ephemeral-volume-controller'

On a cluster, switch the same controllers of kube-controller-manager off:
  kube-controller-manager --controllers '*,-persistentvolume-binder-controller,-persistentvolumeclaim-protection-controller,\
-persistentvolume-protection-controller,-volumeattributesclass-protection-controller,-ephemeral-volume-controller,\
-persistentvolume-attach-detach-controller'";

pub(crate) fn run(args: Args) -> ExitCode {
    let begun = args.work.check().and_then(|()| process::check_leading(&args.leader)).and_then(|()| args.log.start());
    process::ended("controllers", begun.and_then(|()| process::block_on(start(args))))
}

async fn start(args: Args) -> anyhow::Result<()> {
    args.work.attach.tell_what_does_nothing();
    let process = Process::connect(&args.kube, "orlop-controllers").await?;
    let controllers = Controllers::new(&process.context, &args.work, None)?;
    let lead = Lead::by(&args.leader, LOCK);
    process.run(&args.serve, lead, |stop| controllers.run(stop)).await
}

/// The controllers of one process.
#[derive(Debug)]
pub(crate) struct Controllers {
    binder: Option<Binder>,
    protector: Option<Protector>,
    ephemeral: Option<Ephemeral>,
    attachments: Option<Attachments>,
    node_lifecycle: Option<NodeLifecycle>,
}

/// The names that `--controllers` knows, with kube-controller-manager's older ones.
const BINDER: [&str; 2] = ["persistentvolume-binder-controller", "persistentvolume-binder"];
const PROTECTOR: [&str; 2] = ["persistentvolumeclaim-protection-controller", "pvc-protection"];
const EPHEMERAL: [&str; 2] = ["ephemeral-volume-controller", "ephemeral-volume"];
const ATTACHMENTS: [&str; 2] = ["persistentvolume-attach-detach-controller", "attachdetach"];
/// It also does what taint-eviction-controller and pod-garbage-collector-controller do for lost nodes.
pub(crate) const NODE_LIFECYCLE: [&str; 2] = ["node-lifecycle-controller", "nodelifecycle"];

impl Controllers {
    /// `driver` runs on every machine; its volumes are forgotten with machines that are taken out.
    pub(crate) fn new(context: &Context, args: &WorkArgs, driver: Option<MachineDriver>) -> anyhow::Result<Self> {
        args.check()?;
        let binder = bind::Options {
            workers: args.concurrent_binder_syncs,
            dynamic: args.enable_dynamic_provisioning,
            resync: args.pvclaimbinder_sync_period,
            plugins: args.plugins()?,
            ..bind::Options::default()
        };
        let ephemeral = ephemeral::Options { workers: args.concurrent_ephemeralvolume_syncs };
        let attach = args.attach.options()?;
        let nodes = node_lifecycle::Options {
            grace: args.node_monitor_grace_period,
            driver,
            ..node_lifecycle::Options::default()
        };
        Ok(Self {
            binder: args.wants(BINDER).then(|| Binder::new(context, binder)),
            protector: args.wants(PROTECTOR).then(|| Protector::new(context, protect::Options::default())),
            ephemeral: args.wants(EPHEMERAL).then(|| Ephemeral::new(context, ephemeral)),
            attachments: args.wants(ATTACHMENTS).then(|| Attachments::new(context, attach)),
            node_lifecycle: args.names(NODE_LIFECYCLE).then(|| NodeLifecycle::new(context, &nodes)),
        })
    }

    /// Runs all of them until `stop`.
    pub(crate) async fn run(&self, stop: Stop) {
        let binder = async {
            if let Some(binder) = &self.binder {
                binder.run(&stop).await;
            }
        };
        let protector = async {
            if let Some(protector) = &self.protector {
                protector.run(&stop).await;
            }
        };
        let ephemeral = async {
            if let Some(ephemeral) = &self.ephemeral {
                ephemeral.run(&stop).await;
            }
        };
        let attachments = async {
            if let Some(attachments) = &self.attachments {
                attachments.run(&stop).await;
            }
        };
        let node_lifecycle = async {
            if let Some(node_lifecycle) = &self.node_lifecycle {
                node_lifecycle.run(&stop).await;
            }
        };
        tokio::join!(binder, protector, ephemeral, attachments, node_lifecycle);
    }
}

/// A pod from a file, in YAML or JSON.
fn read_template(file: &Path) -> anyhow::Result<plugins::Template> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let pod = serde_saphyr::from_str(&text).with_context(|| format!("{} is not YAML", file.display()))?;
    plugins::Template::new(pod).with_context(|| file.display().to_string())
}

impl WorkArgs {
    /// Everything that can be wrong with these flags, before anything is connected.
    fn check(&self) -> anyhow::Result<()> {
        let known = [BINDER, PROTECTOR, EPHEMERAL, ATTACHMENTS, NODE_LIFECYCLE].concat();
        let wrong = |name: &&String| *name != "*" && !known.contains(&name.trim_start_matches('-'));
        if let Some(name) = self.controllers.iter().find(wrong) {
            let meant = usage::nearest(name.trim_start_matches('-'), &known);
            let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
            bail!("--controllers: {name:?} is not one of ours; known are {}{meant}", known.join(", "));
        }
        if self.concurrent_binder_syncs == 0 || self.concurrent_ephemeralvolume_syncs == 0 {
            bail!("--concurrent-binder-syncs and --concurrent-ephemeralvolume-syncs must be at least 1");
        }
        self.attach.options().map(drop)
    }

    fn plugins(&self) -> anyhow::Result<plugins::Options> {
        let host_path = match self.enable_hostpath_provisioner {
            true => plugins::Provisioning::on(),
            false => plugins::Provisioning::Off,
        };
        let recycling = |file: &Option<PathBuf>, minimum: u64, per_gib: u64| -> anyhow::Result<plugins::Recycling> {
            let template = file.as_deref().map(read_template).transpose()?.unwrap_or_default();
            let (minimum, per_gib) = (Duration::from_secs(minimum), Duration::from_secs(per_gib));
            Ok(plugins::Recycling { patience: plugins::Patience { minimum, per_gib }, template })
        };
        Ok(plugins::Options {
            host_path,
            host_path_recycling: recycling(
                &self.pv_recycler_pod_template_filepath_hostpath,
                self.pv_recycler_minimum_timeout_hostpath,
                self.pv_recycler_timeout_increment_hostpath,
            )?,
            nfs_recycling: recycling(
                &self.pv_recycler_pod_template_filepath_nfs,
                self.pv_recycler_minimum_timeout_nfs,
                self.pv_recycler_increment_timeout_nfs,
            )?,
        })
    }

    /// As kube-controller-manager reads it: a name wins over the star.
    fn wants(&self, names: [&str; 2]) -> bool {
        let given = |name: &str| self.controllers.iter().any(|given| given == name);
        let left_out = names.iter().any(|name| given(&format!("-{name}")));
        self.names(names) || (given("*") && !left_out)
    }

    /// Whether one of these is named; the star is not enough.
    fn names(&self, names: [&str; 2]) -> bool {
        self.controllers.iter().any(|given| names.contains(&given.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attach(flags: &[&str]) -> anyhow::Result<attach::Options> {
        let args: WorkArgs = process::flags(flags)?;
        args.attach.options()
    }

    #[test]
    fn no_time_forces_a_detach_unless_it_is_given_and_not_taken_back() {
        assert_eq!(attach(&[]).unwrap().force_after, None);
        let six = "--force-detach-after=6m";
        assert_eq!(attach(&[six]).unwrap().force_after, Some(Duration::from_secs(360)));
        assert_eq!(attach(&[six, "--disable-force-detach-on-timeout"]).unwrap().force_after, None);
    }

    #[test]
    fn kube_controller_managers_flags_for_attaching_are_taken_1() {
        assert_eq!(attach(&["--disable-attach-detach-reconcile-sync"]).unwrap().resync, None);
        let minute = attach(&["--attach-detach-reconcile-sync-period=1m"]).unwrap();
        assert_eq!(minute.resync, Some(Duration::from_secs(60)));
        let error = attach(&["--attach-detach-reconcile-sync-period=500ms"]).unwrap_err().to_string();
        assert!(error.contains("at least 1s"), "{error}");
    }

    #[test]
    fn lost_nodes_are_looked_for_only_where_that_is_named() {
        let names = |flags: &[&str]| process::flags::<WorkArgs>(flags).unwrap().names(NODE_LIFECYCLE);
        assert!(!names(&[]) && !names(&["--controllers=*,-node-lifecycle-controller"]));
        assert!(names(&["--controllers=*,node-lifecycle-controller"]) && names(&["--controllers=nodelifecycle"]));
        let args: WorkArgs = process::flags(&["--controllers=*,node-lifecycle-controller"]).unwrap();
        assert!(args.check().is_ok() && args.node_monitor_grace_period == Duration::from_secs(50));
        let short = process::flags::<WorkArgs>(&["--node-monitor-grace-period=9s"]).unwrap_err();
        assert!(format!("{short:#}").contains("renew their leases every 10 s"), "{short:#}");
    }

    #[test]
    fn a_node_may_be_told_of_each_volume_at_once() {
        assert_eq!(attach(&[]).unwrap(), attach::Options::default());
        assert_eq!(attach(&["--node-status-window=0s"]).unwrap().node_status_window, Duration::ZERO);
    }
}
