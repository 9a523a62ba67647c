//! What operators see of the agent, with upstream's names (node 26).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lifecycle::node::Step;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use runtime::Context;
use runtime::metrics::{Histograms, Metrics, OPERATION_BUCKETS, Seconds, VolumeOperation};

use crate::actual::What;

type Labels = Vec<(&'static str, String)>;

/// What the agent counts.
#[derive(Debug, Clone)]
pub(crate) struct NodeMetrics {
    metrics: Metrics,
    operations: Histograms<Labels>,
    collection: Histograms<Labels>,
    volumes: Family<Labels, Gauge>,
    rejections: Family<Labels, Counter>,
    alone: Family<Labels, Counter>,
    pub(crate) reconstructed: Counter,
    pub(crate) unreadable: Counter,
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
        let histograms =
            || Family::<Labels, Histogram, fn() -> Histogram>::new_with_constructor(seconds as fn() -> Histogram);
        let operations =
            metrics.register("storage_operation_duration_seconds", "Storage operation duration", histograms());
        let collection = metrics.register(
            "kubelet_volume_metric_collection_duration_seconds",
            "Duration in seconds to calculate volume stats",
            histograms(),
        );
        let volumes = metrics.register(
            "volume_manager_total_volumes",
            "Number of volumes in the volume manager",
            Family::<Labels, Gauge>::default(),
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
        Self {
            reconstructed: counter("reconstruct_volume_operations", "Volumes that were found on disk at the start"),
            unreadable: counter("reconstruct_volume_operations_errors", "Volumes found on disk that nobody knows"),
            swept: metrics.register(
                "kubelet_orphan_pod_cleaned_volumes",
                "Directories of pods that were removed",
                Gauge::default(),
            ),
            unswept: metrics.register(
                "kubelet_orphan_pod_cleaned_volumes_errors",
                "Directories of pods that could not be removed",
                Gauge::default(),
            ),
            stats: StatsMetrics {
                families: STATS.map(|(name, help)| metrics.register(name, help, Family::default())),
                shown: Arc::default(),
            },
            rejections,
            alone,
            operations,
            collection,
            volumes,
            metrics,
        }
    }

    /// An operation has ended.
    pub(crate) fn operated(&self, what: &What, step: &Step, worked: bool, took: Duration) {
        if *step == Step::Forget {
            return;
        }
        let operation = match (what.is_block(), step) {
            (true, Step::Stage(_) | Step::Publish(_) | Step::Republish(_)) => "map_volume",
            (true, Step::Unpublish(_)) => "unmap_volume",
            (true, Step::Unstage) => "unmap_device",
            _ => step.operation(),
        };
        let labels = vec![
            ("volume_plugin", what.plugin_label()),
            ("operation_name", operation.to_owned()),
            ("status", if worked { "success" } else { "fail-unknown" }.to_owned()),
            ("migrated", "false".to_owned()),
        ];
        self.operations.get_or_create(&labels).observe(took.as_secs_f64());
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

    /// How many volumes are wanted and there, by plugin.
    pub(crate) fn count(&self, state: &'static str, counts: &std::collections::BTreeMap<String, i64>) {
        for (plugin, count) in counts {
            let labels = vec![("plugin_name", plugin.clone()), ("state", state.to_owned())];
            self.volumes.get_or_create(&labels).set(*count);
        }
    }
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
