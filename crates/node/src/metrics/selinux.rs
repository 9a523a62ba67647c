//! What became of SELinux contexts, with upstream's names: gauges that only grow (NODE-15).

use lifecycle::node::selinux::{Flaw, Severity};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use runtime::metrics::Metrics;

use super::Labels;

type Counts = Family<Labels, Gauge>;

/// One count for what keeps a volume from its pod, and one for what would.
#[derive(Debug, Clone)]
struct Pair {
    errors: Counts,
    warnings: Counts,
}

impl Pair {
    fn new(metrics: &Metrics, what: &str, help: &str) -> Self {
        let family = |kind: &str, help: &str| {
            metrics.register(&format!("volume_manager_selinux_{what}_{kind}_total"), help, Counts::default())
        };
        Self { errors: family("errors", help), warnings: family("warnings", &format!("{help}, had it mattered")) }
    }

    fn count(&self, severity: Severity, labels: Labels) {
        let family = match severity {
            Severity::Error => &self.errors,
            Severity::Warning => &self.warnings,
        };
        family.get_or_create(&labels).inc();
    }
}

/// `volume_manager_selinux_*`.
#[derive(Debug, Clone)]
pub(crate) struct SelinuxMetrics {
    containers: Pair,
    pods: Pair,
    volumes: Pair,
    admitted: Counts,
}

/// A volume as these metrics name it.
#[derive(Debug, Clone)]
pub(crate) struct Of {
    /// `kubernetes.io/csi/DRIVER`.
    pub(crate) plugin: String,
    /// The widest of its access modes.
    pub(crate) access: &'static str,
}

impl Of {
    fn access(&self) -> Labels {
        vec![("access_mode", self.access.to_owned())]
    }

    fn both(&self) -> Labels {
        vec![("volume_plugin", self.plugin.clone()), ("access_mode", self.access.to_owned())]
    }
}

impl SelinuxMetrics {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self {
            containers: Pair::new(metrics, "container", "Containers whose SELinux context could not be computed"),
            pods: Pair::new(metrics, "pod_context_mismatch", "Pods whose containers differ in the context of a volume"),
            volumes: Pair::new(
                metrics,
                "volume_context_mismatch",
                "Volumes that are used with another context than a pod needs",
            ),
            admitted: metrics.register(
                "volume_manager_selinux_volumes_admitted_total",
                "Volumes that are mounted with a context",
                Counts::default(),
            ),
        }
    }

    /// Something is wrong with the context that a pod wants.
    pub(crate) fn flawed(&self, of: &Of, flaw: &Flaw, severity: Severity) {
        match flaw {
            Flaw::NoLevel | Flaw::NotALabel { .. } => self.containers.count(severity, of.access()),
            Flaw::Several { .. } => self.pods.count(severity, of.access()),
        }
    }

    /// A pod wants another context than others.
    pub(crate) fn mismatched(&self, of: &Of, severity: Severity) {
        self.volumes.count(severity, of.both());
    }

    pub(crate) fn admitted(&self, of: &Of) {
        self.admitted.get_or_create(&of.both()).inc();
    }
}
