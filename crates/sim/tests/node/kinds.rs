//! Kinds of volumes: inline, block, in-tree, generic ephemeral (NODE-12, NODE-17, NODE-24, NODE-5.4).

use api::Kind;
use api::keys::context;
use serde_json::json;

use crate::stage::{Play, ROOT, key, play};

/// Rules: NODE-12, NODE-2.2, NODE-32.14
#[test]
fn an_inline_volume_is_published_for_its_pod_and_never_staged() {
    let driver =
        json!({"volumeLifecycleModes": ["Persistent", "Ephemeral"], "podInfoOnMount": true, "attachRequired": true});
    let mut setup = Play::with_driver(driver);
    setup.habits.attach = sim::driver::Attach::Required;
    play(setup, async |rig| {
        let inline = json!([{"name": "scratch", "csi": {"driver": rig.model.name(), "fsType": "ext4",
                                                         "volumeAttributes": {"size": "1Gi"}}}]);
        let uid = rig.pod_with("p", inline, json!({})).await;
        rig.until("it is published", async || rig.doorman.count("publish") > 0).await;
        assert_eq!(rig.doorman.count("stage"), 0);
        let request = rig.doorman.publish();
        assert!(request.volume_id.starts_with("csi-") && request.volume_id.len() == 68, "NODE-2.2");
        assert!(request.staging_target_path.is_empty() && request.publish_context.is_empty());
        let told = |name: &str| request.volume_context.get(name).cloned().unwrap_or_default();
        assert_eq!(told(context::EPHEMERAL), "true", "NODE-32.14");
        assert_eq!(told(context::POD_UID), uid);
        assert_eq!(told("size"), "1Gi");
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
    });
}

/// Rule: NODE-12
#[test]
fn an_inline_volume_needs_a_driver_that_says_so() {
    play(Play::default(), async |rig| {
        let inline = json!([{"name": "scratch", "csi": {"driver": rig.model.name()}}]);
        rig.pod_with("p", inline, json!({})).await;
        rig.until_said("p", "Failed").await;
        assert!(rig.said("p").await.2.contains("Ephemeral"));
        assert_eq!(rig.doorman.count("publish"), 0);
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
    });
}

fn device_pod() -> serde_json::Value {
    json!({"containers": [{"name": "main", "image": "example/main",
        "volumeDevices": [{"name": "v", "devicePath": "/dev/xvda"}]}]})
}

/// Rules: NODE-32.16, NODE-26
#[test]
fn a_device_is_bound_linked_and_held_and_leaves_nothing() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({"volumeMode": "Block"})).await;
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]);
        let uid = rig.pod_with("p", volumes, device_pod()).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        let blocks = format!("{ROOT}/plugins/{}/volumeDevices", api::keys::plugin::CSI);
        assert!(rig.exists(&format!("{ROOT}/pods/{uid}/volumeDevices/kubernetes.io~csi/v")), "the link");
        assert!(rig.exists(&format!("{blocks}/v/data/vol_data.json")));
        assert!(rig.mounts().contains(&format!("{blocks}/v/dev/{uid}").into()), "the bind mount");
        assert_eq!(rig.machine.with_kernel(|kernel| kernel.loops().count()), 1, "the loop device");
        let request = rig.doorman.publish();
        assert_eq!(request.target_path, format!("{blocks}/publish/v/{uid}"));
        assert_eq!(request.staging_target_path, format!("{blocks}/staging/v"));
        assert_eq!(rig.events("SuccessfulMountVolume").await.len(), 2, "NODE-26");
        rig.kill().await;
        rig.start();
        rig.until_ready("p").await;
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
        assert_eq!(rig.machine.with_kernel(|kernel| kernel.loops().count()), 0);
        assert!(!rig.exists(&format!("{blocks}/v")) && !rig.exists(&format!("{blocks}/staging/v")));
    });
}

/// Rule: NODE-30.9
#[test]
fn a_device_that_was_published_when_the_agent_died_is_taken_back() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({"volumeMode": "Block"})).await;
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]);
        let uid = rig.pod_with("p", volumes, device_pod()).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.kill().await;
        let link = format!("{ROOT}/pods/{uid}/volumeDevices/kubernetes.io~csi/v");
        rig.machine.with_kernel(|kernel| kernel.remove_file(link.as_ref())).unwrap();
        rig.end_pod("p").await;
        rig.start();
        rig.until_clean().await;
        assert_eq!(rig.machine.with_kernel(|kernel| kernel.loops().count()), 0);
    });
}

/// A local volume in block mode whose device, or whatever else is there, is at this path.
async fn local_device(rig: &crate::stage::Rig, path: &str) {
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "example.com/rack", "operator": "NotIn", "values": ["elsewhere"]}]}]}});
    let spec = json!({"volumeMode": "Block", "csi": null, "local": {"path": path}, "nodeAffinity": affinity});
    rig.volume("v", spec).await;
}

/// Rules: NODE-17, NODE-24, NODE-26, NODE-21, NODE-30.9
#[test]
fn a_local_device_is_bound_linked_and_held_without_a_driver_and_leaves_nothing() {
    play(Play::default(), async |rig| {
        let device = sim::machine::Node::Device(sim::machine::Owner { mode: 0o660, group: 0 });
        rig.machine.with_kernel(|kernel| kernel.make_directory("/dev".as_ref(), 0o755)).unwrap();
        rig.machine.with_kernel(|kernel| kernel.make("/dev/disk1".as_ref(), device)).unwrap();
        local_device(rig, "/dev/disk1").await;
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]);
        let uid = rig.pod_with("p", volumes.clone(), device_pod()).await;
        let other = rig.pod_with("q", volumes, device_pod()).await;
        rig.until_ready("p").await;
        rig.until_ready("q").await;
        let map = format!("{ROOT}/plugins/kubernetes.io~local-volume/volumeDevices/v");
        assert!(rig.exists(&format!("{ROOT}/pods/{uid}/volumeDevices/kubernetes.io~local-volume/v")), "the link");
        assert!(rig.mounts().contains(&format!("{map}/{uid}").into()), "the bind mount");
        assert!(rig.mounts().contains(&format!("{map}/{other}").into()), "each pod has its own");
        assert_eq!(rig.machine.with_kernel(|kernel| kernel.loops().count()), 2, "the loop devices");
        assert_eq!(rig.events("SuccessfulMountVolume").await.len(), 4, "NODE-26");
        assert_eq!(rig.doorman.calls(), [] as [&str; 0]);
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        assert!(rig.mounts().contains(&format!("{map}/{other}").into()), "a living pod keeps its device");
        // What the agent left when it died is found by its files alone, with or without its pod (NODE-21, NODE-30.9).
        rig.kill().await;
        rig.machine.reboot();
        rig.start();
        rig.until_ready("q").await;
        rig.kill().await;
        rig.end_pod("q").await;
        rig.start();
        rig.until_clean().await;
        assert_eq!(rig.machine.with_kernel(|kernel| kernel.loops().count()), 0);
        rig.until("the map directory goes", async || !rig.exists(&map)).await;
    });
}

/// Rule: NODE-24
#[test]
fn a_local_volume_that_is_no_device_is_refused_in_block_mode() {
    play(Play::default(), async |rig| {
        rig.machine.with_kernel(|kernel| kernel.make_directory("/srv/data".as_ref(), 0o755)).unwrap();
        local_device(rig, "/srv/data").await;
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]);
        rig.pod_with("p", volumes, device_pod()).await;
        rig.until_said("p", "Failed").await;
        assert!(rig.said("p").await.2.contains("no block device"), "{:?}", rig.said("p").await);
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
    });
}

/// Rule: NODE-5.4
#[test]
fn a_filesystem_is_no_device_and_the_other_way_round() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]);
        rig.pod_with("p", volumes, device_pod()).await;
        rig.until_said("p", "ModeMismatch").await;
        rig.volume("d", json!({"volumeMode": "Block"})).await;
        rig.pod("q", &["d"]).await;
        rig.until_said("q", "ModeMismatch").await;
        assert_eq!(rig.doorman.calls(), [] as [&str; 0]);
    });
}

/// Rule: NODE-24
#[test]
fn volumes_without_a_driver_come_and_go() {
    play(Play::default(), async |rig| {
        let volumes = json!([
            {"name": "scratch", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "host", "hostPath": {"path": "/srv/data", "type": "DirectoryOrCreate"}},
            {"name": "secret", "secret": {"secretName": "s"}},
        ]);
        let uid = rig.pod_with("p", volumes, json!({})).await;
        rig.until_ready("p").await;
        let directory = format!("{ROOT}/pods/{uid}/volumes/kubernetes.io~empty-dir");
        assert!(rig.exists(&format!("{directory}/scratch")) && rig.exists("/srv/data"));
        assert!(rig.mounts().contains(&format!("{directory}/memory").into()));
        rig.kill().await;
        rig.start();
        rig.until_ready("p").await;
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
        assert!(rig.exists("/srv/data"), "a path of the host is not the pod's");
    });
}

/// Rule: NODE-32.21
#[test]
fn claims_are_checked_before_anything_is_mounted() {
    play(Play::default(), async |rig| {
        rig.pod("p", &["missing"]).await;
        rig.until_said("p", "ClaimMissing").await;
        rig.volume("missing", json!({})).await;
        rig.until_ready("p").await;
        // A claim for a pod of that name that somebody else made.
        rig.volume("q-scratch", json!({})).await;
        let template =
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]);
        rig.pod_with("q", volumes, json!({})).await;
        rig.until_said("q", "ClaimNotOurs").await;
        // A volume that belongs to another claim of the same name.
        rig.volume("r", json!({})).await;
        rig.patch(Kind::VOLUME, &api::Key::cluster("r"), json!({"spec": {"claimRef": {"uid": "somebody-else"}}})).await;
        rig.pod("r", &["r"]).await;
        rig.until_said("r", "VolumeOfAnother").await;
        assert!(rig.get(Kind::POD, &key("r")).await.is_some());
    });
}
