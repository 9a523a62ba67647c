//! Pods whose volumes find no slot on their node (NODE-4.4, NODE-32.20).

use std::time::Duration;

use api::{Key, Kind};
use lifecycle::attach::attachment_name;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{NODE, Play, Rig, key, play};

/// A driver whose volumes have to be attached, and whose limit is followed or not.
fn driver(period: Option<i64>) -> Play {
    let mut play = Play::with_driver(json!({"attachRequired": true, "nodeAllocatableUpdatePeriodSeconds": period}));
    play.habits.attach = sim::driver::Attach::Required;
    play
}

/// The attacher says that a volume cannot be attached.
async fn refuse(rig: &Rig, volume: &str, code: Option<i32>) {
    let name = attachment_name(rig.model.name(), volume, NODE);
    let spec = json!({"attacher": rig.model.name(), "nodeName": NODE, "source": {"persistentVolumeName": volume}});
    rig.create(Kind::ATTACHMENT, json!({"metadata": {"name": name}, "spec": spec})).await;
    let error = json!({"message": "no slot left", "errorCode": code, "time": "2026-01-01T00:00:00Z"});
    rig.patch_status(Kind::ATTACHMENT, &Key::cluster(&name), json!({"attached": false, "attachError": error})).await;
}

async fn status(rig: &Rig, pod: &str) -> Value {
    rig.get(Kind::POD, &key(pod)).await.expect("the pod is there")["status"].clone()
}

/// Rule: NODE-32.20
#[test]
fn a_pod_without_a_slot_is_rejected_where_the_limit_is_followed() {
    play(driver(Some(60)), async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        refuse(rig, "v", Some(8)).await;
        let begun = Instant::now();
        rig.until_said("p", "NoSlot").await;
        let asked = timeout(Duration::from_secs(5), rig.drivers.without_slot()).await.expect("at once");
        assert!(asked.contains(rig.model.name()), "how many volumes fit is read again");
        rig.until("it is rejected", async || status(rig, "p").await["phase"] == "Failed").await;
        let waited = begun.elapsed();
        assert!(waited > Duration::from_secs(110) && waited < Duration::from_secs(130), "{waited:?}");
        let said = status(rig, "p").await;
        assert_eq!(said["reason"], "VolumeAttachmentLimitExceeded");
        let message = said["message"].as_str().expect("a message");
        assert!(message.starts_with("Pod was rejected: ") && message.contains("no slot left"), "{message}");
        let told = async || rig.events("VolumeAttachmentLimitExceeded").await.len() == 1;
        rig.until("the event is there", told).await;
        // The node does not use the volume any more, so that the controller takes the attachment back.
        rig.until_clean().await;
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
    });
}

/// Rule: NODE-4.4
#[test]
fn without_a_period_and_for_other_errors_the_pod_keeps_waiting() {
    for (period, code) in [(None, Some(8)), (Some(60), Some(13)), (Some(60), None)] {
        play(driver(period), async |rig| {
            rig.volume("v", json!({})).await;
            let uid = rig.pod("p", &["v"]).await;
            refuse(rig, "v", code).await;
            sleep(Duration::from_secs(600)).await;
            assert_eq!(status(rig, "p").await["phase"], "Pending", "{period:?} {code:?}");
            let name = attachment_name(rig.model.name(), "v", NODE);
            rig.delete_attachment(&name).await;
            rig.attach("v").await;
            rig.until_ready("p").await;
            assert!(rig.is_mounted(&uid, "v"));
        });
    }
}
