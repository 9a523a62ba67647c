//! What operators see of the agent, with upstream's names (NODE-26).

mod selinux;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lifecycle::node::{Held, Step};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use runtime::Context;
use runtime::metrics::{Histograms, Metrics, OPERATION_BUCKETS, Seconds, StorageOperation, VolumeOperation};

pub(crate) use selinux::{Of, SelinuxMetrics};

use crate::actual::What;
use crate::agent::World;

type Labels = Vec<(&'static str, String)>;

/// What the agent counts.
#[derive(Debug, Clone)]
pub(crate) struct NodeMetrics {
    metrics: Metrics,
    collection: Histograms<Labels>,
    rejections: Family<Labels, Counter>,
    alone: Family<Labels, Counter>,
    /// Volumes that were found on disk at the start.
    pub(crate) reconstructed: Counter,
    /// Of those, the ones whose metadata nobody could read.
    pub(crate) unreadable: Counter,
    /// Attempts to find out what those are.
    pub(crate) recovered: Counter,
    /// Attempts that found nothing.
    pub(crate) unrecovered: Counter,
    pub(crate) selinux: SelinuxMetrics,
    pub(crate) swept: Gauge,
    pub(crate) unswept: Gauge,
    pub(crate) stats: StatsMetrics,
}

/// `kubelet_volume_stats_*` by claim.
#[derive(Debug, Clone)]
pub(crate) struct StatsMetrics {
    families: [Family<Labels, Seconds>; 7],
    shown: Arc<Mutex<Vec<Labels>>>,
}

const STATS: [(&str, &str); 7] = [
    ("kubelet_volume_stats_capacity_bytes", "Capacity in bytes of the volume"),
    ("kubelet_volume_stats_available_bytes", "Number of available bytes in the volume"),
    ("kubelet_volume_stats_used_bytes", "Number of used bytes in the volume"),
    ("kubelet_volume_stats_inodes", "Maximum number of inodes in the volume"),
    ("kubelet_volume_stats_inodes_free", "Number of free inodes in the volume"),
    ("kubelet_volume_stats_inodes_used", "Number of used inodes in the volume"),
    ("kubelet_volume_stats_health_status_abnormal", "Whether the volume is unhealthy: 1 is unhealthy, 0 is healthy"),
];

fn seconds() -> Histogram {
    Histogram::new(OPERATION_BUCKETS)
}

impl NodeMetrics {
    pub(crate) fn new(context: &Context) -> Self {
        let metrics = context.metrics.clone();
        let collection = metrics.register(
            "kubelet_volume_metric_collection_duration_seconds",
            "Duration in seconds to calculate volume stats",
            Family::<Labels, Histogram, fn() -> Histogram>::new_with_constructor(seconds as fn() -> Histogram),
        );
        let rejections = metrics.register(
            "kubelet_admission_rejections",
            "Pods that were not admitted, by reason",
            Family::<Labels, Counter>::default(),
        );
        let alone = metrics.register(
            "force_cleaned_without_driver_operations",
            "Volumes that were unmounted without their driver, for pods and for the machine",
            Family::<Labels, Counter>::default(),
        );
        let counter = |name: &str, help: &str| metrics.register(name, help, Counter::default());
        let gauge = |name: &str, help: &str| metrics.register(name, help, Gauge::default());
        Self {
            reconstructed: counter("reconstruct_volume_operations", "Volumes that were found on disk at the start"),
            unreadable: counter("reconstruct_volume_operations_errors", "Volumes found on disk that nobody knows"),
            recovered: counter(
                "force_cleaned_failed_volume_operations",
                "Attempts to find out what volumes on disk are that nobody knows",
            ),
            unrecovered: counter("force_cleaned_failed_volume_operation_errors", "Of those attempts, failed ones"),
            swept: gauge("kubelet_orphan_pod_cleaned_volumes", "Directories of orphaned pods that the last look found"),
            unswept: gauge(
                "kubelet_orphan_pod_cleaned_volumes_errors",
                "Directories of orphaned pods that the last look could not remove",
            ),
            stats: StatsMetrics {
                families: STATS.map(|(name, help)| metrics.register(name, help, Family::default())),
                shown: Arc::default(),
            },
            selinux: SelinuxMetrics::new(&metrics),
            rejections,
            alone,
            collection,
            metrics,
        }
    }

    /// `volume_manager_total_volumes`, counted when somebody looks: one for each pod and volume.
    pub(crate) fn show_volumes(&self, world: &Arc<Mutex<World>>) {
        let family = self.metrics.register(
            "volume_manager_total_volumes",
            "Number of volumes in the volume manager",
            Family::<Labels, Gauge>::default(),
        );
        let world = Arc::downgrade(world);
        self.metrics.before_encoding(move || {
            let Some(world) = world.upgrade() else { return };
            family.clear();
            let counts = volumes(&world.lock().unwrap_or_else(PoisonError::into_inner));
            for ((plugin, state), count) in counts {
                let labels = vec![("plugin_name", plugin), ("state", state.to_owned())];
                family.get_or_create(&labels).set(count);
            }
        });
    }

    /// An operation has ended.
    pub(crate) fn operated(&self, (what, migrated): (&What, bool), step: &Step, worked: bool, took: Duration) {
        if *step == Step::Forget {
            return;
        }
        let operation_name = match (what.is_block(), step) {
            (true, Step::Stage(_) | Step::Publish(_) | Step::Republish(_)) => "map_volume",
            (true, Step::Unpublish(_)) => "unmap_volume",
            (true, Step::Unstage) => "unmap_device",
            _ => step.operation(),
        };
        let labels = StorageOperation {
            volume_plugin: what.plugin_label(),
            operation_name,
            status: if worked { "success" } else { "fail-unknown" },
            migrated: if migrated { "true" } else { "false" },
        };
        self.metrics.storage_operations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A volume was unmounted without its driver.
    pub(crate) fn unmounted_alone(&self, driver: &str) {
        self.alone.get_or_create(&vec![("driver_name", driver.to_owned())]).inc();
    }

    /// A pod was given back.
    pub(crate) fn rejected(&self, reason: &str) {
        self.rejections.get_or_create(&vec![("reason", reason.to_owned())]).inc();
    }

    /// A pod has its volume, this long after it asked.
    pub(crate) fn mounted(&self, what: &What, took: Duration) {
        let labels = VolumeOperation { plugin_name: what.plugin_label(), operation_name: "overall_volume_mount" };
        self.metrics.volume_operations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn collected(&self, source: &str, took: Duration) {
        let labels = vec![("metric_source", source.to_owned())];
        self.collection.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

/// How many volumes of pods are wanted and mounted, by plugin.
fn volumes(world: &World) -> BTreeMap<(String, &'static str), i64> {
    let mut counts = BTreeMap::new();
    let wanted = world.desired.pods().flat_map(|pod| pod.volumes.values().flatten());
    for wish in wanted {
        *counts.entry((wish.what.plugin_label(), "desired_state_of_world")).or_default() += 1;
    }
    for entry in world.actual.values() {
        for _ in entry.pods.values().filter(|pod| pod.held == Held::Yes) {
            *counts.entry((entry.what.plugin_label(), "actual_state_of_world")).or_default() += 1;
        }
    }
    counts
}

impl StatsMetrics {
    /// Shows the numbers of these claims, and of no others.
    pub(crate) fn show(&self, all: &[(String, String, [Option<f64>; 7])]) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let labels = |namespace: &str, claim: &str| {
            vec![("namespace", namespace.to_owned()), ("persistentvolumeclaim", claim.to_owned())]
        };
        let now: Vec<Labels> = all.iter().map(|(namespace, claim, _)| labels(namespace, claim)).collect();
        for gone in shown.iter().filter(|labels| !now.contains(labels)) {
            for family in &self.families {
                family.remove(gone);
            }
        }
        for ((_, _, numbers), labels) in all.iter().zip(&now) {
            for (family, number) in self.families.iter().zip(numbers) {
                match number {
                    Some(number) => {
                        family.get_or_create(labels).set(*number);
                    }
                    None => {
                        family.remove(labels);
                    }
                }
            }
        }
        *shown = now;
    }
}
