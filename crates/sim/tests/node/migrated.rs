//! Volumes of in-tree plugins that a CSI driver took over: NODE-5.4.7, NODE-26.

use api::{Key, Kind};
use csi::v1::volume_capability::AccessType;
use lifecycle::attach::unique_name;
use serde_json::{Value, json};

use crate::metrics::value;
use crate::stage::{NODE, Play, ROOT, Rig, play, target};

const EBS: &str = "ebs.csi.aws.com";

async fn drives(rig: &Rig, attach: bool) {
    let spec = json!({"attachRequired": attach, "fsGroupPolicy": "ReadWriteOnceWithFSType"});
    rig.create(Kind::CSI_DRIVER, json!({"metadata": {"name": EBS}, "spec": spec})).await;
    rig.register_as(EBS);
    rig.model.tamper(|state| state.put("vol-17", 1 << 30));
}

fn ebs(read_only: bool) -> Value {
    json!({"volumeID": "aws://eu-central-1a/vol-17", "fsType": "xfs", "partition": 3, "readOnly": read_only})
}

/// Rules: NODE-5.4.7, NODE-26
#[test]
fn an_in_tree_volume_is_staged_through_the_driver_that_took_it_over() {
    play(Play::default(), async |rig| {
        drives(rig, false).await;
        let zone = json!({"key": api::keys::label::ZONE.text(), "operator": "In", "values": ["eu-central-1a"]});
        let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}});
        // The driver's own key is what a node has, once the driver was registered there.
        let labels = json!({"metadata": {"labels": {"topology.ebs.csi.aws.com/zone": "eu-central-1a"}}});
        rig.patch(Kind::NODE, &Key::cluster(NODE), labels).await;
        let members = json!({
            "csi": null, "awsElasticBlockStore": ebs(false), "mountOptions": ["noatime"], "nodeAffinity": affinity,
        });
        rig.volume("old", members).await;
        let uid = rig.pod("p", &["old"]).await;
        rig.until_ready("p").await;
        let (stage, publish) = (rig.doorman.stage(), rig.doorman.publish());
        assert_eq!((&*stage.volume_id, &*publish.volume_id), ("vol-17", "vol-17"));
        assert_eq!(stage.volume_context, [("partition".to_owned(), "3".to_owned())].into());
        assert_eq!(publish.volume_context, stage.volume_context);
        assert!(stage.publish_context.is_empty() && stage.secrets.is_empty() && !publish.readonly);
        let capability = stage.volume_capability.expect("a capability");
        assert_eq!(capability, publish.volume_capability.expect("a capability"));
        let Some(AccessType::Mount(mount)) = capability.access_type else { panic!("it is mounted") };
        assert_eq!((&*mount.fs_type, &mount.mount_flags[..]), ("xfs", &["noatime".to_owned()][..]));
        let directory = format!("{ROOT}/plugins/{}/{EBS}/", api::keys::plugin::CSI);
        assert!(stage.staging_target_path.starts_with(&directory), "{}", stage.staging_target_path);
        assert_eq!(publish.staging_target_path, stage.staging_target_path);
        assert_eq!(publish.target_path, target(&uid, "old").to_string_lossy(), "the volume's own name is in its path");
        let kept: Value =
            serde_json::from_str(&rig.read(&format!("{ROOT}/pods/{uid}/volumes/kubernetes.io~csi/old/vol_data.json")))
                .expect("json");
        assert_eq!((&kept["driverName"], &kept["volumeHandle"]), (&json!(EBS), &json!("vol-17")));
        let text = rig.metrics();
        let called = [("method_name", "/csi.v1.Node/NodeStageVolume"), ("migrated", "true")];
        assert_eq!(value(&text, "csi_operations_seconds_count", &called), Some(1.0), "NODE-26");
        let plugin = format!("{}:{EBS}", api::keys::plugin::CSI);
        let done = [("volume_plugin", &*plugin), ("status", "success"), ("migrated", "true")];
        assert_eq!(value(&text, "storage_operation_duration_seconds_count", &done), Some(2.0), "NODE-26");
        // A restart knows it from disk, and it leaves as it came.
        rig.kill().await;
        rig.start();
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
        assert_eq!(rig.doorman.calls(), ["stage", "publish", "unpublish", "unstage"]);
    });
}

/// Rules: NODE-5.4, NODE-20
#[test]
fn an_in_tree_volume_inside_a_pod_is_attached_and_staged_as_any_other() {
    play(Play::attached(), async |rig| {
        drives(rig, true).await;
        let volumes = json!([{"name": "disk", "awsElasticBlockStore": ebs(true)}]);
        let uid = rig.pod_with("p", volumes, json!({})).await;
        rig.until_said("p", "NotAttached").await;
        let unique = unique_name(EBS, "vol-17");
        let node = rig.get(Kind::NODE, &Key::cluster(NODE)).await.expect("the node is there");
        assert_eq!(node["status"]["volumesInUse"], json!([unique]), "NODE-20");
        rig.attach_as(EBS, "vol-17").await;
        rig.until_ready("p").await;
        let (stage, publish) = (rig.doorman.stage(), rig.doorman.publish());
        assert_eq!((&*stage.volume_id, &*publish.volume_id), ("vol-17", "vol-17"));
        assert!(!stage.publish_context.is_empty() && publish.readonly);
        assert_eq!(publish.target_path, target(&uid, &format!("{EBS}-vol-17")).to_string_lossy());
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until("nothing is mounted", async || rig.mounts().is_empty()).await;
    });
}

/// Rule: NODE-5.4.7
#[test]
fn an_in_tree_volume_that_cannot_be_translated_is_said() {
    play(Play::default(), async |rig| {
        let members = json!({"csi": null, "awsElasticBlockStore": {"volumeID": "aws://nothing"}});
        rig.volume("bad", members).await;
        rig.pod("p", &["bad"]).await;
        rig.until_said("p", "Unsupported").await;
        let said = rig.said("p").await.2;
        assert!(said.contains("aws://nothing"), "{said}");
    });
}
