//! What a restart, a reboot and a crash find and do: NODE-21, NODE-23, NODE-30.8, NODE-30.9, NODE-31.1, NODE-31.2,
//! NODE-32.10, NODE-32.11.

use std::time::Duration;

use api::Kind;
use api::keys::annotation;
use serde_json::json;
use tokio::time::sleep;
use tonic::Code;

use crate::devices::{device_pod, until_no_device};
use crate::driver::Reply;
use crate::stage::{NODE, Play, ROOT, Rig, key, play};

/// Rules: NODE-21, NODE-32.10
#[test]
fn a_restart_does_not_touch_a_healthy_mount() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        let calls = rig.doorman.calls();
        rig.kill().await;
        rig.start();
        sleep(Duration::from_secs(30)).await;
        assert_eq!(rig.doorman.calls(), calls, "nothing is asked for what is known to be there");
        assert!(rig.is_mounted(&uid, "v"));
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
    });
}

/// Rule: NODE-32.11
#[test]
fn a_pod_that_went_while_the_agent_was_down_is_taken_down() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.kill().await;
        rig.end_pod("p").await;
        sleep(Duration::from_secs(5)).await;
        assert!(rig.is_mounted(&uid, "v"));
        rig.start();
        rig.until_clean().await;
        assert_eq!(rig.doorman.calls(), ["stage", "publish", "unpublish", "unstage"]);
    });
}

/// Rule: NODE-23
#[test]
fn a_reboot_mounts_everything_anew() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.kill().await;
        rig.machine.reboot();
        assert!(!rig.is_mounted(&uid, "v"));
        rig.start();
        rig.until("it is mounted again", async || rig.is_mounted(&uid, "v")).await;
        rig.until_ready("p").await;
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
    });
}

/// What a node's status lists as attached.
async fn list_as_attached(rig: &Rig, volumes: serde_json::Value) {
    rig.patch_status(Kind::NODE, &api::Key::cluster(NODE), json!({ "volumesAttached": volumes })).await;
}

async fn listed_as_attached(rig: &Rig) -> serde_json::Value {
    let node = rig.get(Kind::NODE, &api::Key::cluster(NODE)).await.expect("the node is there");
    node["status"]["volumesAttached"].clone()
}

/// The metadata of the earlier boot says that the volume was here. The controller is about to detach it: it has taken it off
/// the node's list.
#[test]
fn after_a_reboot_nothing_is_staged_before_the_whole_handshake() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.kill().await;
        let listed = listed_as_attached(rig).await;
        list_as_attached(rig, json!([])).await;
        rig.machine.reboot();
        rig.start();
        rig.until_said("p", "NotAttached").await;
        sleep(Duration::from_secs(300)).await;
        assert_eq!(rig.doorman.calls(), ["stage", "publish"], "nothing since the reboot");
        list_as_attached(rig, listed).await;
        rig.until("it is mounted again", async || rig.is_mounted(&uid, "v")).await;
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
    });
}

#[test]
fn after_a_reboot_no_device_is_staged_before_the_whole_handshake() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({"volumeMode": "Block"})).await;
        device_pod(rig, "p").await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.kill().await;
        let listed = listed_as_attached(rig).await;
        list_as_attached(rig, json!([])).await;
        rig.machine.reboot();
        rig.start();
        rig.until_said("p", "NotAttached").await;
        sleep(Duration::from_secs(300)).await;
        assert_eq!(rig.doorman.calls(), ["stage", "publish"], "nothing since the reboot");
        list_as_attached(rig, listed).await;
        rig.until_ready("p").await;
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        until_no_device(rig).await;
    });
}

/// A mount at the volume's place that this boot made for another reason is no proof, either.
#[test]
fn a_mount_beside_metadata_of_an_earlier_boot_is_no_proof_of_an_attached_volume() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.kill().await;
        list_as_attached(rig, json!([])).await;
        rig.machine.reboot();
        let staged = rig.staged_directory("v").join("globalmount");
        let other = sim::machine::Superblock { fs_type: "tmpfs", source: "tmpfs" };
        rig.machine.with_kernel(|kernel| kernel.mount(other, &staged, node::host::Access::ReadWrite)).unwrap();
        rig.start();
        rig.until_said("p", "NotAttached").await;
        sleep(Duration::from_secs(300)).await;
        assert_eq!(rig.doorman.calls(), ["stage", "publish"], "nothing since the reboot");
    });
}

/// A kubelet writes no boot into its files: there the mount decides.
#[test]
fn a_mount_with_metadata_of_a_kubelet_is_taken_over_as_it_is() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.kill().await;
        let published = format!("{ROOT}/pods/{uid}/volumes/kubernetes.io~csi/v/vol_data.json");
        let staged = rig.staged_directory("v").join("vol_data.json");
        let kept = json!({"driverName": rig.model.name(), "volumeHandle": "v"}).to_string();
        let of_pod = json!({"driverName": rig.model.name(), "volumeHandle": "v", "specVolID": "v",
            "volumeLifecycleMode": "Persistent"})
        .to_string();
        rig.machine.with_kernel(|kernel| {
            kernel.write(published.as_ref(), of_pod.as_bytes(), 0o600).unwrap();
            kernel.write(&staged, kept.as_bytes(), 0o600).unwrap();
        });
        list_as_attached(rig, json!([])).await;
        rig.start();
        sleep(Duration::from_secs(30)).await;
        assert_eq!(rig.doorman.calls(), ["stage", "publish"], "it is healthy and finished");
        rig.until_ready("p").await;
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
    });
}

/// Rule: NODE-23
#[test]
fn a_pod_that_went_during_a_reboot_leaves_nothing() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.kill().await;
        rig.machine.reboot();
        rig.end_pod("p").await;
        rig.start();
        rig.until_clean().await;
    });
}

/// Rules: NODE-30.8, NODE-30.3, NODE-31.2
#[test]
fn what_was_staged_and_had_no_pod_is_found_again() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.doorman.always("publish", Reply::Refused(Code::InvalidArgument));
        rig.attach("v").await;
        rig.until_said("p", "Failed").await;
        assert_eq!(rig.doorman.count("stage"), 1);
        rig.kill().await;
        rig.end_pod("p").await;
        let node = rig.get(Kind::NODE, &api::Key::cluster(NODE)).await.unwrap();
        assert_eq!(node["status"]["volumesInUse"].as_array().map_or(0, Vec::len), 1, "NODE-30.3");
        rig.start();
        rig.until_clean().await;
        assert_eq!(rig.doorman.count("unstage"), 1, "NODE-31.2");
    });
}

/// Rule: NODE-31.1
#[test]
fn damaged_metadata_is_recovered_from_what_the_server_knows() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.kill().await;
        let published = format!("{ROOT}/pods/{uid}/volumes/kubernetes.io~csi/v/vol_data.json");
        let staged = rig.staged_directory("v").join("vol_data.json");
        rig.machine.with_kernel(|kernel| {
            kernel.write(published.as_ref(), b"{\"driver", 0o600).unwrap();
            kernel.write(&staged, b"", 0o600).unwrap();
        });
        rig.end_pod("p").await;
        rig.start();
        rig.until_clean().await;
        assert_eq!((rig.doorman.count("unpublish"), rig.doorman.count("unstage")), (1, 1));
    });
}

#[test]
fn nothing_is_taken_away_while_a_pods_claims_cannot_be_looked_up() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.kill().await;
        rig.patch_status(Kind::CLAIM, &key("v"), json!({"phase": "Lost"})).await;
        rig.start();
        rig.until_said("p", "ClaimNotBound").await;
        sleep(Duration::from_secs(300)).await;
        assert!(rig.is_mounted(&uid, "v"), "the pod lives, and this may be its volume");
        assert_eq!(rig.doorman.count("unpublish"), 0);
    });
}

/// Rules: NODE-20, NODE-21
#[test]
fn what_was_found_is_in_use_also_of_a_node_that_was_made_anew() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.kill().await;
        rig.end_pod("p").await;
        // The new object has lost what the old one said about attached volumes and those in use.
        rig.delete_node().await;
        rig.create(Kind::NODE, json!({"metadata": {"name": NODE}})).await;
        rig.doorman.always("unpublish", Reply::Refused(Code::Unavailable));
        rig.start();
        rig.until("the node says what it has", async || {
            let node = rig.get(Kind::NODE, &api::Key::cluster(NODE)).await.expect("the node is there");
            node["status"]["volumesInUse"].as_array().is_some_and(|used| used.len() == 1)
        })
        .await;
        assert!(rig.is_mounted(&uid, "v"), "nobody may detach it");
        rig.doorman.open();
        rig.until_clean().await;
    });
}

/// The objects are those of a backup, in which another machine has the volume: this one still has it mounted.
#[test]
fn after_a_restore_a_node_reports_only_when_it_has_let_go_of_what_no_attachment_tells_of() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        let marked = async || {
            let node = rig.get(Kind::NODE, &api::Key::cluster(NODE)).await.expect("the node is there");
            node["metadata"]["annotations"][annotation::RESTORED.text()].is_string()
        };
        let mark = json!({"metadata": {"annotations": {annotation::RESTORED.text(): "7"}}});
        rig.patch(Kind::NODE, &api::Key::cluster(NODE), mark.clone()).await;
        rig.until("a node with an attachment for all that it has has spoken", async || !marked().await).await;
        let attachment = lifecycle::attach::attachment_name(rig.model.name(), "v", NODE);
        rig.delete_attachment(&attachment).await;
        rig.patch(Kind::NODE, &api::Key::cluster(NODE), mark).await;
        rig.doorman.always("unpublish", Reply::Refused(Code::Unavailable));
        rig.end_pod("p").await;
        sleep(Duration::from_secs(60)).await;
        assert!(rig.is_mounted(&uid, "v") && marked().await, "nobody else may have it yet");
        rig.doorman.open();
        rig.until_clean().await;
        rig.until("it has spoken", async || !marked().await).await;
    });
}
