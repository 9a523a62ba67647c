//! What operators see: NODE-26.

use serde_json::json;
use tonic::Code;

use crate::driver::Reply;
use crate::stage::{Play, play};

/// Whether a line of this family has all of these labels, and its value.
#[track_caller]
pub(crate) fn value(text: &str, family: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let has = |line: &str, (name, value): &(&str, &str)| line.contains(&format!("{name}=\"{value}\""));
    let named = |line: &&str| line.starts_with(&format!("{family}{{")) || line.starts_with(&format!("{family} "));
    let line = text.lines().filter(named).find(|line| labels.iter().all(|label| has(line, label)))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Rule: NODE-26
#[test]
fn calls_and_operations_have_a_kubelets_names() {
    play(Play::default(), async |rig| {
        rig.doorman.next("stage", Reply::Refused(Code::Internal));
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        let (text, driver) = (rig.metrics(), rig.model.name());
        let calls = |method: &str, code: &str| {
            let labels =
                [("driver_name", driver), ("method_name", method), ("grpc_status_code", code), ("migrated", "false")];
            value(&text, "csi_operations_seconds_count", &labels)
        };
        assert_eq!(calls("/csi.v1.Node/NodeStageVolume", "Internal"), Some(1.0), "{text}");
        assert_eq!(calls("/csi.v1.Node/NodeStageVolume", "OK"), Some(1.0));
        assert_eq!(calls("/csi.v1.Node/NodePublishVolume", "OK"), Some(1.0));
        assert!(!text.contains("csi_sidecar_operations_seconds_count"), "that is what sidecars have");
        for bound in
            ["0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "15.0", "25.0", "50.0", "120.0", "300.0", "600.0"]
        {
            let le = [("le", bound), ("method_name", "/csi.v1.Node/NodePublishVolume")];
            assert!(value(&text, "csi_operations_seconds_bucket", &le).is_some(), "{bound}");
        }
        let plugin = format!("{}:{driver}", api::keys::plugin::CSI);
        for (status, count) in [("success", 2.0), ("fail-unknown", 1.0)] {
            let labels = [
                ("volume_plugin", &*plugin),
                ("operation_name", "volume_mount"),
                ("status", status),
                ("migrated", "false"),
            ];
            assert_eq!(value(&text, "storage_operation_duration_seconds_count", &labels), Some(count), "{status}");
        }
        let overall = [("plugin_name", &*plugin), ("operation_name", "overall_volume_mount")];
        assert_eq!(value(&text, "volume_operation_total_seconds_count", &overall), Some(1.0));
        for state in ["desired_state_of_world", "actual_state_of_world"] {
            let labels = [("plugin_name", &*plugin), ("state", state)];
            assert_eq!(value(&text, "volume_manager_total_volumes", &labels), Some(1.0), "{state}");
        }
        let families = text.lines().filter(|line| line.starts_with("# TYPE ")).collect::<Vec<_>>();
        let mut once = families.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(families.len(), once.len(), "each family is there once: {families:?}");
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
        let text = rig.metrics();
        let labels = [("plugin_name", &*plugin)];
        assert_eq!(value(&text, "volume_manager_total_volumes", &labels), None, "what is gone is not counted");
    });
}

/// Rules: NODE-21, NODE-26
#[test]
fn what_is_found_on_disk_is_counted_and_so_is_what_nobody_can_read() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        rig.kill().await;
        // A volume that no object knows, with metadata that was cut off.
        let lost = rig.staged_directory("lost");
        rig.machine.with_kernel(|kernel| {
            kernel.make_directory(&lost, 0o750).expect("it can be made");
            kernel.write(&lost.join("vol_data.json"), b"{\"driverName\":", 0o600).expect("it can be written");
        });
        rig.start();
        let counted = |name: &str| value(&rig.metrics(), name, &[]).unwrap_or_default();
        rig.until("the disk was read", async || counted("force_cleaned_failed_volume_operations_total") >= 1.0).await;
        assert_eq!(counted("reconstruct_volume_operations_total"), 3.0, "two staged, one published");
        assert_eq!(counted("reconstruct_volume_operations_errors_total"), 1.0);
        let tried = counted("force_cleaned_failed_volume_operations_total");
        assert_eq!(counted("force_cleaned_failed_volume_operation_errors_total"), tried, "nobody knows it");
    });
}
