//! One registry with the names that dashboards know.
//!
//! Families that several controllers share are declared here with upstream's names, labels and buckets; a controller
//! adds its own with [`Metrics::register`]. There is no global registry: a test has its own.
//!
//! The text is OpenMetrics, in which a counter's name ends in `_total`: a family registered as `x` is shown as `x_total`.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use std::sync::atomic::AtomicU64;

use crate::time::Clock;

/// The `Content-Type` of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Seconds of a storage operation, upstream's buckets.
pub const OPERATION_BUCKETS: [f64; 13] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];
/// What Prometheus' Go client uses if nothing is said.
pub const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const QUEUE_BUCKETS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

/// The last line of the text.
const END: &str = "# EOF";

/// A gauge of seconds.
pub type Seconds = Gauge<f64, AtomicU64>;
/// Histograms by label.
pub type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// `name`: a queue or a lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Name {
    /// The label's value.
    pub name: String,
}

/// A request to the API server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Request {
    /// What was asked, such as `patch`.
    pub verb: &'static str,
    /// Of which kind, by plural; a part of an object follows a slash.
    pub resource: String,
    /// The HTTP status, or `<error>` if there was no answer.
    pub code: String,
}

/// A resource by plural name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Resource {
    /// The plural name.
    pub resource: &'static str,
}

/// A volume operation as kube-controller-manager counts it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct VolumeOperation {
    /// The plugin, such as `kubernetes.io/csi:driver`.
    pub plugin_name: String,
    /// `provision` or `delete`.
    pub operation_name: &'static str,
}

/// A step of a volume's way to a pod, as kube-controller-manager and kubelets count it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StorageOperation {
    /// The plugin, such as `kubernetes.io/csi:driver`.
    pub volume_plugin: String,
    /// Such as `volume_attach`.
    pub operation_name: &'static str,
    /// `success` or `fail-unknown`.
    pub status: &'static str,
    /// Whether the driver took over from an in-tree plugin: `true` or `false`.
    pub migrated: &'static str,
}

/// A provisioning attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Provision {
    /// The storage class.
    pub class: String,
    /// The kind of the data source; empty without one.
    pub source: String,
}

/// A storage class.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Class {
    /// The storage class.
    pub class: String,
}

/// An attempt to find a node for a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Attempt {
    /// `scheduled`, `unschedulable` or `error`.
    pub result: &'static str,
    /// The scheduler's name.
    pub profile: String,
}

/// A step of scheduling volumes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Stage {
    /// `predicate`, `assume` or `bind`.
    pub operation: &'static str,
}

/// A plugin of a node, by its registration socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Plugin {
    /// Where it registers.
    pub socket_path: String,
    /// `desired_state_of_world` while the socket is there, `actual_state_of_world` while it is registered.
    pub state: &'static str,
}

/// `scheduler_*`.
#[derive(Debug, Clone)]
pub struct SchedulerMetrics {
    /// `scheduler_schedule_attempts_total`.
    pub attempts: Family<Attempt, Counter>,
    /// `scheduler_volume_scheduling_stage_error_total`.
    pub stage_errors: Family<Stage, Counter>,
}

/// Who calls a driver: sidecars and kubelets count their calls under different names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Caller {
    /// `csi_sidecar_operations_seconds`, with `migrated` only for drivers that replaced an in-tree plugin.
    #[default]
    Sidecar,
    /// `csi_operations_seconds`, always with `migrated` (NODE-26).
    Node,
}

/// A call to a driver. A sidecar's `migrated` appears only for drivers that replaced an in-tree plugin, so this is a list.
pub type CallLabels = Vec<(&'static str, String)>;

/// `workqueue_*`, labelled by queue.
#[derive(Debug, Clone)]
pub struct QueueMetrics {
    pub(crate) depth: Family<Name, Gauge>,
    pub(crate) adds: Family<Name, Counter>,
    pub(crate) retries: Family<Name, Counter>,
    pub(crate) queue_duration: Histograms<Name>,
    pub(crate) work_duration: Histograms<Name>,
    pub(crate) unfinished: Family<Name, Seconds>,
    pub(crate) longest: Family<Name, Seconds>,
}

/// `controller_persistentvolumeclaim_provision_*` and `controller_persistentvolume_delete_*`.
#[derive(Debug, Clone)]
pub struct ProvisionMetrics {
    /// Successes by class and source.
    pub provisioned: Family<Provision, Counter>,
    /// Failures by class and source.
    pub provision_failed: Family<Provision, Counter>,
    /// Seconds of successes.
    pub provision_duration: Histograms<Provision>,
    /// Volumes deleted by class.
    pub deleted: Family<Class, Counter>,
    /// Failed deletions by class.
    pub delete_failed: Family<Class, Counter>,
    /// Seconds of successful deletions.
    pub delete_duration: Histograms<Class>,
}

/// `csistoragecapacities_*`.
#[derive(Debug, Clone)]
pub struct CapacityMetrics {
    /// How many objects there should be.
    pub goal: Gauge,
    /// How many of those there are.
    pub current: Gauge,
    /// How many there are that should not be.
    pub obsolete: Gauge,
}

/// `ephemeral_volume_controller_*`.
#[derive(Debug, Clone)]
pub struct EphemeralMetrics {
    /// Claims that were to be made for pods.
    pub created: Counter,
    /// Of those, the ones the server did not take.
    pub create_failed: Counter,
}

/// Everything that is measured. Clones share one registry.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Mutex<Registry>,
    listed: Mutex<Vec<Listed>>,
    refreshers: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
    families: Families,
}

/// The shared families.
#[derive(Debug, Clone)]
pub struct Families {
    /// `csi_sidecar_operations_seconds`.
    pub calls: Histograms<CallLabels>,
    /// `csi_operations_seconds`.
    pub node_calls: Histograms<CallLabels>,
    /// `workqueue_*`.
    pub queues: QueueMetrics,
    /// `leader_election_master_status`.
    pub leading: Family<Name, Gauge>,
    /// `leader_election_slowpath_total`.
    pub slow_renewals: Family<Name, Counter>,
    /// `volume_operation_total_seconds`.
    pub volume_operations: Histograms<VolumeOperation>,
    /// `volume_operation_errors_total`.
    pub volume_operation_errors: Family<VolumeOperation, Counter>,
    /// `storage_operation_duration_seconds`.
    pub storage_operations: Histograms<StorageOperation>,
    /// `controller_persistentvolume*`.
    pub provision: ProvisionMetrics,
    /// `scheduler_*`.
    pub scheduler: SchedulerMetrics,
    /// `csistoragecapacities_*`.
    pub capacities: CapacityMetrics,
    /// `ephemeral_volume_controller_*`.
    pub ephemeral: EphemeralMetrics,
    /// `plugin_manager_total_plugins`.
    pub plugins: Family<Plugin, Gauge>,
    /// `orlop_api_requests_total`.
    pub requests: Family<Request, Counter>,
    /// `orlop_watch_restarts_total`: watches that had to list again.
    pub relists: Family<Resource, Counter>,
    /// `orlop_cache_unreadable_total`: objects that could not be read into what a cache holds.
    pub unreadable: Family<Resource, Counter>,
    /// `orlop_events_dropped_total`.
    pub events_dropped: Family<Name, Counter>,
    /// `process_start_time_seconds`.
    pub started: Seconds,
}

fn operation_histogram() -> Histogram {
    Histogram::new(OPERATION_BUCKETS)
}

fn default_histogram() -> Histogram {
    Histogram::new(DEFAULT_BUCKETS)
}

fn queue_histogram() -> Histogram {
    Histogram::new(QUEUE_BUCKETS)
}

fn histograms<L: Clone + Eq + std::hash::Hash>(constructor: fn() -> Histogram) -> Histograms<L> {
    Family::new_with_constructor(constructor)
}

/// A family that is registered: its name is shown also while it has no series.
#[derive(Debug)]
struct Listed {
    name: String,
    help: String,
    metric: Box<dyn Metric>,
}

impl Listed {
    /// What stands above the numbers, as the library writes it.
    fn head(&self) -> String {
        let Self { name, help, metric } = self;
        format!("# HELP {name} {help}.\n# TYPE {name} {}\n", metric.metric_type().as_str())
    }
}

/// Registers metrics and hands them back.
#[derive(Default)]
struct Registrar {
    registry: Registry,
    listed: Vec<Listed>,
}

impl Registrar {
    fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.registry.register(name, help, metric.clone());
        self.listed.push(Listed { name: name.to_owned(), help: help.to_owned(), metric: Box::new(metric.clone()) });
        metric
    }

    fn queues(&mut self) -> QueueMetrics {
        QueueMetrics {
            depth: self.add("workqueue_depth", "Keys that are ready to be worked on", Family::default()),
            adds: self.add("workqueue_adds", "Keys added", Family::default()),
            retries: self.add("workqueue_retries", "Keys added again after a failure", Family::default()),
            queue_duration: self.add(
                "workqueue_queue_duration_seconds",
                "How long a key was ready before work began",
                histograms(queue_histogram),
            ),
            work_duration: self.add(
                "workqueue_work_duration_seconds",
                "How long work on a key took",
                histograms(queue_histogram),
            ),
            unfinished: self.add(
                "workqueue_unfinished_work_seconds",
                "Sum of the time that running work has taken so far",
                Family::default(),
            ),
            longest: self.add(
                "workqueue_longest_running_processor_seconds",
                "How long the oldest running work has taken so far",
                Family::default(),
            ),
        }
    }

    fn provision(&mut self) -> ProvisionMetrics {
        let claim = "controller_persistentvolumeclaim_provision";
        let volume = "controller_persistentvolume_delete";
        ProvisionMetrics {
            provisioned: self.add(claim, "Volumes provisioned", Family::default()),
            provision_failed: self.add(&format!("{claim}_failed"), "Failed attempts", Family::default()),
            provision_duration: self.add(
                &format!("{claim}_duration_seconds"),
                "Seconds of successful attempts",
                histograms(default_histogram),
            ),
            deleted: self.add(volume, "Volumes deleted", Family::default()),
            delete_failed: self.add(&format!("{volume}_failed"), "Failed deletions", Family::default()),
            delete_duration: self.add(
                &format!("{volume}_duration_seconds"),
                "Seconds of successful deletions",
                histograms(default_histogram),
            ),
        }
    }

    fn scheduler(&mut self) -> SchedulerMetrics {
        SchedulerMetrics {
            attempts: self.add(
                "scheduler_schedule_attempts",
                "Attempts to find a node for a pod, by what came of them",
                Family::default(),
            ),
            stage_errors: self.add(
                "scheduler_volume_scheduling_stage_error",
                "Pods whose volumes could not be brought to a node, by step",
                Family::default(),
            ),
        }
    }

    fn capacities(&mut self) -> CapacityMetrics {
        let name = "csistoragecapacities";
        CapacityMetrics {
            goal: self.add(&format!("{name}_desired_goal"), "Capacity objects that there should be", Gauge::default()),
            current: self.add(&format!("{name}_desired_current"), "Of those, how many there are", Gauge::default()),
            obsolete: self.add(&format!("{name}_obsolete"), "Capacity objects to be removed", Gauge::default()),
        }
    }

    fn ephemeral(&mut self) -> EphemeralMetrics {
        let create = "ephemeral_volume_controller_create";
        EphemeralMetrics {
            created: self.add(create, "Attempts to create a claim for a pod", Counter::default()),
            create_failed: self.add(&format!("{create}_failures"), "Failed attempts", Counter::default()),
        }
    }

    fn families(&mut self) -> Families {
        Families {
            calls: self.add(
                "csi_sidecar_operations_seconds",
                "Seconds of calls to the driver, by gRPC status",
                histograms(operation_histogram),
            ),
            node_calls: self.add(
                "csi_operations_seconds",
                "Seconds of the node agent's calls to drivers, by gRPC status",
                histograms(operation_histogram),
            ),
            queues: self.queues(),
            leading: self.add("leader_election_master_status", "1 while this process leads", Family::default()),
            slow_renewals: self.add("leader_election_slowpath", "Renewals that had to read first", Family::default()),
            volume_operations: self.add(
                "volume_operation_total_seconds",
                "Seconds from the first attempt to the end",
                histograms(operation_histogram),
            ),
            volume_operation_errors: self.add("volume_operation_errors", "Failed operations", Family::default()),
            storage_operations: self.add(
                "storage_operation_duration_seconds",
                "Seconds of steps on a volume's way to a pod and back",
                histograms(operation_histogram),
            ),
            provision: self.provision(),
            scheduler: self.scheduler(),
            capacities: self.capacities(),
            ephemeral: self.ephemeral(),
            plugins: self.add("plugin_manager_total_plugins", "Plugins of this node, by state", Family::default()),
            requests: self.add("orlop_api_requests", "Requests to the API server", Family::default()),
            relists: self.add("orlop_watch_restarts", "Watches that had to list again", Family::default()),
            unreadable: self.add("orlop_cache_unreadable", "Objects a cache could not read", Family::default()),
            events_dropped: self.add("orlop_events_dropped", "Events that were not written", Family::default()),
            started: self.add("process_start_time_seconds", "When this process started", Seconds::default()),
        }
    }
}

impl Metrics {
    /// A registry with the shared families.
    pub fn new(clock: &dyn Clock) -> Metrics {
        let mut registrar = Registrar::default();
        let families = registrar.families();
        families.started.set(clock.now().as_second() as f64);
        let (registry, listed) = (Mutex::new(registrar.registry), Mutex::new(registrar.listed));
        Metrics { inner: Arc::new(Inner { registry, listed, refreshers: Mutex::default(), families }) }
    }

    /// Adds a controller's own metric.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        let mut registry = self.inner.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register(name, help, metric.clone());
        let listed = Listed { name: name.to_owned(), help: help.to_owned(), metric: Box::new(metric.clone()) };
        self.inner.listed.lock().unwrap_or_else(PoisonError::into_inner).push(listed);
        metric
    }

    /// Runs `refresh` before each [`Metrics::encode`], for values that are computed when somebody looks.
    pub fn before_encoding(&self, refresh: impl Fn() + Send + Sync + 'static) {
        self.inner.refreshers.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(refresh));
    }

    /// The text a scraper reads. Families without a series are named as well, so that a reader sees what there is.
    pub fn encode(&self) -> String {
        for refresh in self.inner.refreshers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            refresh();
        }
        let mut text = String::new();
        let registry = self.inner.registry.lock().unwrap_or_else(PoisonError::into_inner);
        encode(&mut text, &registry).expect("writing to a String cannot fail");
        drop(registry);
        let listed = self.inner.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let empty: String = listed.iter().filter(|family| family.metric.is_empty()).map(Listed::head).collect();
        text.insert_str(text.rfind(END).unwrap_or(text.len()), &empty);
        text
    }

    /// Counts the seconds of one call to a driver.
    pub fn called(&self, caller: Caller, labels: CallLabels, took: Duration) {
        let family = match caller {
            Caller::Sidecar => &self.calls,
            Caller::Node => &self.node_calls,
        };
        family.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

impl std::ops::Deref for Metrics {
    type Target = Families;
    fn deref(&self) -> &Families {
        &self.inner.families
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SystemClock;

    #[test]
    fn names_and_labels_are_upstreams() {
        let metrics = Metrics::new(&SystemClock);
        let labels =
            vec![("driver_name", "d".to_owned()), ("method_name", "/csi.v1.Controller/CreateVolume".to_owned())];
        metrics.called(Caller::Sidecar, labels, Duration::from_millis(200));
        metrics.queues.adds.get_or_create(&Name { name: "claims".into() }).inc();
        metrics.provision.provisioned.get_or_create(&Provision { class: "c".into(), source: String::new() }).inc();
        metrics.leading.get_or_create(&Name { name: "l".into() }).set(1);
        let text = metrics.encode();
        for line in [
            r#"csi_sidecar_operations_seconds_bucket{le="0.25",driver_name="d",method_name="/csi.v1.Controller/CreateVolume"} 1"#,
            r#"workqueue_adds_total{name="claims"} 1"#,
            r#"controller_persistentvolumeclaim_provision_total{class="c",source=""} 1"#,
            r#"leader_election_master_status{name="l"} 1"#,
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_family_without_a_series_is_named_and_the_text_still_ends_as_it_must() {
        let metrics = Metrics::new(&SystemClock);
        metrics.register("ours", "What we count", Family::<Name, Counter>::default());
        let empty = "# HELP ours What we count.\n# TYPE ours counter\n";
        let text = metrics.encode();
        assert!(text.contains(empty) && text.ends_with("# EOF\n"), "{text}");
        let once = text.matches("# TYPE workqueue_depth gauge\n").count();
        metrics.queues.depth.get_or_create(&Name { name: "claims".into() }).set(1);
        assert_eq!((once, metrics.encode().matches("# TYPE workqueue_depth gauge\n").count()), (1, 1), "{text}");
    }
}
