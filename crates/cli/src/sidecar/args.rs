//! The flags of `orlop sidecar`: those that csi-provisioner has, with its names and defaults (SIDECAR-1.1,
//! PROVISION-2.1).

use std::time::Duration;

use anyhow::{Context as _, bail};
use api::Key;
use clap::ArgAction;
use control::capacity::{self, Owner, OwnerLevel};
use control::provision::csi::{GuardOptions, NodeMode, Options, SidecarOptions, Sweep};
use control::provision::{self, Naming};
use lifecycle::capacity::Immediate as CapacityImmediate;
use lifecycle::provision::csi::outline::{AttributesGate, Metadata, ReadOnly, TopologyGate};
use lifecycle::provision::csi::source::{Crossing, ModeChange};
use lifecycle::provision::csi::topology::{Immediate, Strictness};
use runtime::args::{DriverArgs, GateArgs, KubeArgs, LeaderArgs, ServeArgs, parse_duration};
use runtime::queue::Backoff;

use super::attach::{AttachArgs, ERROR_CODES};
use super::beside::BesideArgs;
use crate::process::inert::{self, Flag, Value};
use crate::process::{Inert, KlogArgs, LogArgs, WITHOUT_EFFECT};
use crate::usage;

/// Provision and attach beside any CSI driver, as csi-provisioner and csi-attacher do.
#[derive(Debug, clap::Args)]
#[command(version, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) driver: DriverArgs,
    #[command(flatten)]
    pub(super) kube: KubeArgs,
    #[command(flatten)]
    pub(super) volumes: VolumeArgs,
    #[command(flatten)]
    pub(super) places: PlaceArgs,
    #[command(flatten)]
    pub(super) attach: AttachArgs,
    #[command(flatten)]
    pub(super) capacity: CapacityArgs,
    #[command(flatten)]
    pub(super) work: WorkArgs,
    #[command(flatten)]
    pub(super) beside: BesideArgs,
    #[command(flatten)]
    pub(super) gates: GateArgs,
    #[command(flatten)]
    pub(super) leader: LeaderArgs,
    #[command(flatten)]
    pub(super) serve: ServeArgs,
    #[command(flatten)]
    pub(super) log: LogArgs,
    #[command(flatten)]
    pub(super) klog: KlogArgs,
    #[command(flatten)]
    pub(super) inert: Inert<Originals>,
}

/// What csi-provisioner and csi-attacher take and nothing here needs.
#[derive(Debug, Clone)]
pub(crate) struct Originals;

impl inert::Table for Originals {
    const FLAGS: &'static [&'static [Flag]] = &[
        &[
            Flag { name: "kube-api-capacity-qps", value: Value::Number, why: ONLY_CHANGES },
            Flag { name: "kube-api-capacity-burst", value: Value::Number, why: ONLY_CHANGES },
            Flag {
                name: "resync",
                value: Value::Duration,
                why: "everything is watched, and changes wake whom they concern",
            },
            Flag { name: "max-grpc-log-length", value: Value::Number, why: "answers of the driver are not logged" },
            Flag { name: "enable-pprof", value: Value::Bool, why: "there is no profiler of Go" },
        ],
        WITHOUT_EFFECT,
    ];
}

const ONLY_CHANGES: &str = "a CSIStorageCapacity is written only when it changes";

const EXAMPLES: &str = "\
Examples:
  orlop sidecar --csi-address /run/csi/csi.sock --kubeconfig ./kubeconfig
  orlop sidecar --leader-election --http-endpoint 127.0.0.1:8080 --feature-gates Topology=true
  NAMESPACE=kube-system POD_NAME=driver-0 orlop sidecar --enable-capacity
  NODE_NAME=node-1 orlop sidecar --node-deployment
  orlop sidecar --roles attacher --leader-election
  orlop sidecar --with-controllers --leader-election
  orlop sidecar --kubelet-registration-path /var/lib/kubelet/plugins/d/csi.sock --liveness-endpoint :9808";

/// How volumes are made.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct VolumeArgs {
    /// Start of the names of volumes.
    #[arg(long, value_name = "PREFIX", default_value = "pvc", help_heading = "Volumes")]
    volume_name_prefix: String,
    /// Letters of a claim's uid in the name of its volume, without dashes; -1 keeps the uid as it is.
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true, help_heading = "Volumes")]
    volume_name_uuid_length: i64,
    /// Filesystem of volumes whose class names none; empty leaves it to the driver.
    #[arg(long, value_name = "TYPE", default_value = "", help_heading = "Volumes")]
    pub(super) default_fstype: String,
    /// Tell the driver the names of claim and volume as parameters.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_name = "BOOL", help_heading = "Volumes")]
    extra_create_metadata: bool,
    /// Attach volumes that are asked for with ReadOnlyMany alone for reading only.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_name = "BOOL", help_heading = "Volumes")]
    controller_publish_readonly: bool,
    /// Refuse to restore a snapshot with another volume mode than it was taken with.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", value_name = "BOOL", help_heading = "Volumes")]
    prevent_volume_mode_conversion: bool,
    /// How often guards of snapshots are looked at beside the events that take them off; 0 does not watch snapshots.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration, help_heading = "Volumes")]
    snapshot_orphan_sweep_interval: Duration,
    /// How often the driver is asked how its volumes are, if it can say; claims tell what is wrong; 0 does not ask.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration, help_heading = "Volumes")]
    monitor_interval: Duration,
}

/// Where volumes are made.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PlaceArgs {
    /// With delayed binding, tell the driver the selected node's place only.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_name = "BOOL", help_heading = "Topology")]
    strict_topology: bool,
    /// With immediate binding, tell the driver all places where it runs.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", value_name = "BOOL", help_heading = "Topology")]
    immediate_topology: bool,
    /// Run one instance per node, each for its own node only; needs $NODE_NAME.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_name = "BOOL", help_heading = "Topology")]
    pub(super) node_deployment: bool,
    /// Let instances compete for claims with immediate binding.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", value_name = "BOOL", help_heading = "Topology")]
    node_deployment_immediate_binding: bool,
    /// How long an instance waits at first before it takes a claim.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_duration, help_heading = "Topology")]
    node_deployment_base_delay: Duration,
    /// How long an instance waits at most.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration, help_heading = "Topology")]
    node_deployment_max_delay: Duration,
}

/// Whether room is told to the scheduler, and how.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CapacityArgs {
    /// Keep CSIStorageCapacity objects, in the namespace $NAMESPACE.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_name = "BOOL", help_heading = "Capacity")]
    enable_capacity: bool,
    /// Objects that are worked on at once.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Capacity")]
    capacity_threads: usize,
    /// How often the driver is asked again.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration, help_heading = "Capacity")]
    capacity_poll_interval: Duration,
    /// Tell the room of classes with immediate binding, too.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_name = "BOOL", help_heading = "Capacity")]
    capacity_for_immediate_binding: bool,
    /// Whom the objects belong to: -1 nobody, 0 the pod $POD_NAME, 1 its controller, 2 the controller of that.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, help_heading = "Capacity")]
    capacity_ownerref_level: i32,
}

/// How much at once, and how often again.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WorkArgs {
    /// How long one call to the driver may take [default: 10s, for attaching 15s].
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = "Work")]
    pub(super) timeout: Option<Duration>,
    /// How long after the first failure something is tried again; doubled with each further one.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration, help_heading = "Work")]
    retry_interval_start: Duration,
    /// How long something waits at most before it is tried again.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration, help_heading = "Work")]
    retry_interval_max: Duration,
    /// So many claims and volumes are worked on at once, and so many calls are made that attach [default: 100 and 10].
    #[arg(long, value_name = "N", help_heading = "Work")]
    pub(super) worker_threads: Option<usize>,
    /// Also run what `orlop controllers` does, in this process: caches are shared, what the two tell each other is not
    /// written, and the lease is that of `orlop controllers`. Starts when the driver is there.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_name = "BOOL", help_heading = "Work")]
    pub(super) with_controllers: bool,
    /// So many sources of clones and restores are looked at at once.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Work")]
    cloning_protection_threads: usize,
}

/// csi-provisioner's own defaults.
const TIMEOUT: Duration = Duration::from_secs(10);
const WORKERS: usize = 100;

/// The feature gates that are known, with their defaults.
pub(super) const TOPOLOGY: (&str, bool) = ("Topology", true);
pub(super) const CROSSING: (&str, bool) = ("CrossNamespaceVolumeDataSource", false);
pub(super) const ATTRIBUTES: (&str, bool) = ("VolumeAttributesClass", true);
/// The lease is given back at exit, always; the gate is known so that it may be set.
const RELEASE: (&str, bool) = ("ReleaseLeaderElectionOnExit", true);

/// What comes from the environment.
#[derive(Debug, Clone, Default)]
pub(super) struct Surroundings {
    pub(super) node: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) pod: Option<String>,
}

impl Surroundings {
    pub(super) fn read() -> Self {
        let of = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self { node: of("NODE_NAME"), namespace: of("NAMESPACE"), pod: of("POD_NAME") }
    }
}

impl Args {
    /// Everything that can be wrong with the flags is said before anything is connected.
    pub(super) fn check(&self, around: &Surroundings) -> anyhow::Result<()> {
        let known = [TOPOLOGY.0, CROSSING.0, ATTRIBUTES.0, RELEASE.0, ERROR_CODES.0];
        if let Some(gate) = self.gates.feature_gates.unknown(&known).next() {
            let meant = usage::nearest(gate, &known).map_or_else(String::new, |it| format!("; did you mean {it}?"));
            bail!("--feature-gates: {gate:?} is not known; known are {}{meant}", known.join(", "));
        }
        for (flag, number) in [
            ("--worker-threads", self.work.worker_threads.unwrap_or(WORKERS)),
            ("--cloning-protection-threads", self.work.cloning_protection_threads),
            ("--capacity-threads", self.capacity.capacity_threads),
        ] {
            if number == 0 {
                bail!("{flag} 0 would do nothing: it must be at least 1");
            }
        }
        if self.work.retry_interval_start.is_zero() || self.work.retry_interval_max < self.work.retry_interval_start {
            let WorkArgs { retry_interval_start, retry_interval_max, .. } = &self.work;
            bail!(
                "--retry-interval-start ({retry_interval_start:?}) must be more than nothing and at most \
                 --retry-interval-max ({retry_interval_max:?})"
            );
        }
        if self.timeout().is_zero() || self.capacity.capacity_poll_interval.is_zero() {
            bail!("--timeout and --capacity-poll-interval must be more than nothing");
        }
        if self.places.node_deployment && self.leader.leader_election {
            bail!(
                "--node-deployment runs one instance per node, of which --leader-election would stop all but one; drop it"
            );
        }
        if self.places.node_deployment && self.work.with_controllers {
            bail!(
                "--node-deployment runs one instance per node, and --with-controllers must run once; drop one of them"
            );
        }
        crate::process::check_leading(&self.leader)?;
        self.check_attaching()?;
        self.naming()?;
        self.node(around)?;
        self.room(around)?;
        self.beside.check(around)
    }

    /// What was given and changes nothing is said once, so that nobody waits for its effect.
    pub(super) fn tell_what_does_nothing(&self) {
        self.inert.tell();
        for (gate, why) in [
            (RELEASE.0, "a lease is always given back at the end"),
            (ERROR_CODES.0, "an error always has the driver's code"),
        ] {
            if !self.gates.feature_gates.enabled(gate, true) {
                tracing::info!(gate, why, "a feature gate is known and has no effect");
            }
        }
    }

    fn naming(&self) -> anyhow::Result<Naming> {
        let VolumeArgs { volume_name_prefix, volume_name_uuid_length, .. } = &self.volumes;
        Naming::new(volume_name_prefix, *volume_name_uuid_length)
            .context("--volume-name-prefix and --volume-name-uuid-length")
    }

    /// How long calls may take that are not about attaching.
    pub(super) fn timeout(&self) -> Duration {
        self.work.timeout.unwrap_or(TIMEOUT)
    }

    pub(super) fn backoff(&self) -> Backoff {
        Backoff { start: self.work.retry_interval_start, max: self.work.retry_interval_max }
    }

    fn node(&self, around: &Surroundings) -> anyhow::Result<Option<NodeMode>> {
        if !self.places.node_deployment {
            return Ok(None);
        }
        let name = around.node.clone().context(
            "--node-deployment needs the node's name in $NODE_NAME; in a manifest: fieldPath: spec.nodeName",
        )?;
        Ok(Some(NodeMode {
            name,
            immediate: self.places.node_deployment_immediate_binding,
            base_delay: self.places.node_deployment_base_delay,
            max_delay: self.places.node_deployment_max_delay,
        }))
    }

    fn room(&self, around: &Surroundings) -> anyhow::Result<Option<capacity::Options>> {
        if !self.capacity.enable_capacity {
            return Ok(None);
        }
        let level = match u32::try_from(self.capacity.capacity_ownerref_level) {
            Ok(level) => OwnerLevel::Above(level),
            Err(_) if self.capacity.capacity_ownerref_level == -1 => OwnerLevel::None,
            Err(_) => bail!("--capacity-ownerref-level must be -1 or more"),
        };
        let own = around.namespace.clone().context(
            "--enable-capacity needs its namespace in $NAMESPACE; in a manifest: fieldPath: metadata.namespace",
        )?;
        let pod = match (&level, &around.pod) {
            (OwnerLevel::None | OwnerLevel::Node(_), _) => String::new(),
            (OwnerLevel::Above(_), Some(pod)) => pod.clone(),
            (OwnerLevel::Above(_), None) => {
                bail!("--enable-capacity needs its pod's name in $POD_NAME, or --capacity-ownerref-level=-1")
            }
        };
        Ok(Some(capacity::Options {
            owner: Owner { level, pod: Key::namespaced(&own, &pod) },
            namespace: own,
            immediate: match self.capacity.capacity_for_immediate_binding {
                true => CapacityImmediate::Told,
                false => CapacityImmediate::Skipped,
            },
            poll: self.capacity.capacity_poll_interval,
            workers: self.capacity.capacity_threads,
            timeout: self.timeout(),
            backoff: self.backoff(),
            node: self.node(around)?.map(|node| node.name),
        }))
    }

    /// What the flags say, for a driver that has told its name. `attributes` is whether the API has attributes classes.
    pub(super) fn options(
        &self,
        component: &str,
        attributes: AttributesGate,
        around: &Surroundings,
    ) -> anyhow::Result<SidecarOptions> {
        let node = self.node(around)?;
        let namespace = self.leader.namespace();
        let engine = provision::Options {
            workers: self.work.worker_threads.unwrap_or(WORKERS),
            backoff: self.backoff(),
            naming: self.naming()?,
            instance: node.as_ref().map(|node| node.name.clone()),
            ..provision::Options::new(component, &namespace)
        };
        let sweep = match self.volumes.snapshot_orphan_sweep_interval {
            Duration::ZERO => Sweep::Off,
            interval => Sweep::Every(interval),
        };
        let workers = self.work.cloning_protection_threads;
        Ok(SidecarOptions {
            provisioner: Options {
                plans: self.plans(attributes),
                timeout: self.timeout(),
                node,
                backoff: self.backoff(),
                monitor: Some(self.volumes.monitor_interval).filter(|interval| !interval.is_zero()),
            },
            engine,
            guards: GuardOptions { sweep, workers, backoff: self.backoff() },
            capacity: self.room(around)?,
        })
    }

    fn plans(&self, attributes: AttributesGate) -> lifecycle::provision::csi::Options {
        let Args { volumes, places, gates, .. } = self;
        let on = |(name, default): (&str, bool)| gates.feature_gates.enabled(name, default);
        lifecycle::provision::csi::Options {
            strictness: if places.strict_topology { Strictness::Strict } else { Strictness::Preferred },
            immediate: if places.immediate_topology { Immediate::Aggregated } else { Immediate::Unconstrained },
            topology: if on(TOPOLOGY) { TopologyGate::On } else { TopologyGate::Off },
            default_fstype: volumes.default_fstype.clone(),
            metadata: if volumes.extra_create_metadata { Metadata::WithNames } else { Metadata::Plain },
            read_only: if volumes.controller_publish_readonly { ReadOnly::ForReaders } else { ReadOnly::Never },
            modes: if volumes.prevent_volume_mode_conversion { ModeChange::Guarded } else { ModeChange::Free },
            crossing: if on(CROSSING) { Crossing::On } else { Crossing::Off },
            attributes,
        }
    }
}
