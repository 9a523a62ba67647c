//! What operators see of attaching and detaching (CTRL-17).

use std::time::Duration;

use api::keys::provisioner;
use lifecycle::attach::Evidence;
use lifecycle::migration;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use runtime::Metrics;
use runtime::metrics::StorageOperation;

use super::view::View;
use crate::Context;

type Labels = Vec<(&'static str, String)>;

/// Upstream's name for it, prefix doubled (CTRL-14.49): dashboards know it so.
const FORCED: &str = "attach_detach_controller_attachdetach_controller_forced_detaches";

#[derive(Debug)]
pub(super) struct AttachMetrics {
    metrics: Metrics,
    /// A gauge that only grows: the library would add an ending to a counter's name.
    forced: Family<Labels, Gauge>,
}

/// What an attacher was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Attach,
    Detach,
}

impl AttachMetrics {
    pub(super) fn new(context: &Context, view: &View) -> Self {
        let metrics = context.metrics.clone();
        let forced =
            metrics.register(FORCED, "Detaches that did not wait for the node, by evidence", Family::default());
        collect(&metrics, view.clone());
        Self { metrics, forced }
    }

    pub(super) fn forced(&self, evidence: Evidence) {
        self.forced.get_or_create(&vec![("reason", evidence.label().to_owned())]).inc();
    }

    pub(super) fn succeeded(&self, driver: &str, operation: Operation, took: Duration) {
        self.observe(driver, operation, "success", took);
    }

    pub(super) fn failed(&self, driver: &str, operation: Operation, took: Duration) {
        self.observe(driver, operation, "fail-unknown", took);
    }

    fn observe(&self, driver: &str, operation: Operation, status: &'static str, took: Duration) {
        let operation_name = match operation {
            Operation::Attach => "volume_attach",
            Operation::Detach => "volume_detach",
        };
        let migrated = if migration::plugin_of(driver).is_some() { "true" } else { "false" };
        let labels = StorageOperation { volume_plugin: plugin(driver), operation_name, status, migrated };
        self.metrics.storage_operations.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

fn plugin(driver: &str) -> String {
    format!("{}:{driver}", provisioner::CSI)
}

/// What is counted when somebody looks.
fn collect(metrics: &Metrics, view: View) {
    let register = |name: &str, help: &str| metrics.register(name, help, Family::<Labels, Gauge>::default());
    let in_use = register("storage_count_attachable_volumes_in_use", "Volumes of pods that are attached, by node");
    let total = register("attachdetach_controller_total_volumes", "Volumes that are wanted, and attachments there are");
    metrics.before_encoding(move || {
        in_use.clear();
        total.clear();
        for pod in view.pods.walk().filter(|pod| pod.wants_volumes()) {
            for target in view.targets(&pod) {
                let plugin = plugin(&target.driver);
                in_use.get_or_create(&vec![("node", pod.node.to_string()), ("volume_plugin", plugin)]).inc();
            }
        }
        let count = |plugin: String, state: &str| {
            total.get_or_create(&vec![("plugin_name", plugin), ("state", state.to_owned())]).inc();
        };
        for node in view.nodes.walk() {
            for target in view.wanted_on(node.name()).values() {
                count(plugin(&target.driver), "desired_state_of_world");
            }
        }
        for attachment in view.attachments.walk() {
            count(plugin(&attachment.attacher), "actual_state_of_world");
        }
    });
}
