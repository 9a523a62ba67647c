//! Drivers that never come back (NODE-31.25).

use std::time::Duration;

use api::Kind;
use serde_json::json;
use tokio::time::sleep;

use crate::stage::{Play, ROOT, key, play};

fn patient() -> Play {
    Play { alone_after: Some(Duration::from_secs(300)), ..Play::default() }
}

/// Rules: NODE-31.25, NODE-23, NODE-32.19
#[test]
fn a_driver_that_stays_away_holds_its_pods_only_for_as_long_as_the_operator_says() {
    play(patient(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.volume("w", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        let lives = rig.pod("q", &["w"]).await;
        rig.until_ready("p").await;
        rig.until_ready("q").await;
        rig.unregister();
        rig.delete_pod("p").await;
        sleep(Duration::from_secs(250)).await;
        assert!(rig.get(Kind::POD, &key("p")).await.is_some() && rig.is_mounted(&uid, "v"), "NODE-23, NODE-32.19");
        rig.until_gone("p").await;
        assert!(!rig.is_mounted(&uid, "v"));
        let staged = rig.staged_directory("v").display().to_string();
        assert!(rig.is_mounted(&lives, "w"), "a running pod's mount never disappears");
        rig.until("nothing of v is staged", async || !rig.exists(&staged)).await;
        let told = async || rig.events("VolumeUnmountedWithoutDriver").await.len() == 2;
        rig.until("the pod and the volume are told", told).await;
        assert_eq!((rig.doorman.count("unpublish"), rig.doorman.count("unstage")), (0, 0));
        // The driver comes back all the same: what it is asked for now is its own.
        rig.register();
        rig.delete_pod("q").await;
        rig.until_gone("q").await;
        rig.until_clean().await;
        assert_eq!((rig.doorman.count("unpublish"), rig.doorman.count("unstage")), (1, 1));
    });
}

/// Rule: NODE-31.25
#[test]
fn a_driver_that_comes_back_in_time_does_it_itself() {
    play(patient(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        rig.unregister();
        sleep(Duration::from_secs(200)).await;
        rig.register();
        sleep(Duration::from_secs(5)).await;
        rig.unregister();
        rig.delete_pod("p").await;
        sleep(Duration::from_secs(200)).await;
        assert!(rig.get(Kind::POD, &key("p")).await.is_some(), "its time began anew");
        rig.register();
        rig.until_gone("p").await;
        rig.until_clean().await;
        assert_eq!((rig.doorman.count("unpublish"), rig.doorman.count("unstage")), (1, 1));
        assert!(rig.events("VolumeUnmountedWithoutDriver").await.is_empty());
    });
}

/// Rule: NODE-31.25
#[test]
fn a_device_of_a_driver_that_stays_away_is_let_go_of() {
    play(patient(), async |rig| {
        rig.volume("v", json!({"volumeMode": "Block"})).await;
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]);
        let devices = json!({"containers": [{"name": "main", "image": "example/main",
            "volumeDevices": [{"name": "v", "devicePath": "/dev/xvda"}]}]});
        rig.pod_with("p", volumes, devices).await;
        rig.until_ready("p").await;
        rig.unregister();
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
        assert_eq!(rig.machine.with_kernel(|kernel| kernel.loops().count()), 0);
        let block = format!("{ROOT}/plugins/{}/volumeDevices/v", api::keys::plugin::CSI);
        rig.until("its directory goes", async || !rig.exists(&block)).await;
    });
}
