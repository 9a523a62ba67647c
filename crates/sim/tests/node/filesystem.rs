//! From the claim to the mount and back: NODE-9 to NODE-13, NODE-20, NODE-32.6 to NODE-32.9.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::{Key, Kind};
use serde_json::json;
use sim::machine::{Event, HostFate};
use tonic::Code;

use crate::driver::Reply;
use crate::stage::{NODE, Play, ROOT, key, play, target};

/// Rules: NODE-32.6, NODE-9, NODE-10, NODE-10.1.4, NODE-11.6
#[test]
fn two_pods_share_one_stage_and_both_leave_nothing() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        let first = rig.pod("a", &["v"]).await;
        rig.until_said("a", "NotAttached").await;
        assert_eq!(rig.doorman.calls(), [] as [&str; 0], "NODE-9: nothing before it is attached");
        rig.attach("v").await;
        rig.until_ready("a").await;
        let second = rig.pod("b", &["v"]).await;
        rig.until_ready("b").await;
        assert_eq!(rig.doorman.calls(), ["stage", "publish", "publish"], "NODE-10: one stage for both");
        assert!(rig.is_mounted(&first, "v") && rig.is_mounted(&second, "v"));
        let (stage, publish) = (rig.doorman.stage(), rig.doorman.publish());
        assert!(!stage.publish_context.is_empty(), "NODE-10.1.4");
        assert_eq!(stage.publish_context, publish.publish_context, "NODE-11.6");
        rig.delete_pod("a").await;
        rig.until_gone("a").await;
        assert!(!rig.is_mounted(&first, "v") && rig.is_mounted(&second, "v"), "the other pod keeps it");
        rig.delete_pod("b").await;
        rig.until_gone("b").await;
        rig.until_clean().await;
        assert_eq!(rig.doorman.calls()[3..], ["unpublish", "unpublish", "unstage"]);
    });
}

/// Rules: NODE-32.7, NODE-2.1
#[test]
fn a_driver_that_does_not_attach_needs_no_attachment() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({"mountOptions": ["noatime"]})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        let node = rig.get(Kind::NODE, &Key::cluster(NODE)).await.unwrap();
        assert_eq!(node["status"]["volumesInUse"].as_array().map_or(0, Vec::len), 0);
        let (stage, publish) = (rig.doorman.stage(), rig.doorman.publish());
        assert!(stage.publish_context.is_empty() && publish.publish_context.is_empty());
        assert_eq!(publish.target_path, target(&uid, "v").to_string_lossy());
        assert_eq!(publish.staging_target_path, stage.staging_target_path);
        assert!(stage.staging_target_path.starts_with(&format!("{ROOT}/plugins/{}/", api::keys::plugin::CSI)));
        assert_eq!(publish.volume_context, [("flavour".to_owned(), "plain".to_owned())].into());
        let Some(::csi::v1::volume_capability::AccessType::Mount(mount)) = stage.volume_capability.unwrap().access_type
        else {
            panic!("it is mounted")
        };
        assert_eq!((mount.fs_type.as_str(), &mount.mount_flags[..]), ("ext4", &["noatime".to_owned()][..]));
        let kept = format!("{ROOT}/pods/{uid}/volumes/kubernetes.io~csi/v/vol_data.json");
        assert!(rig.exists(&kept), "NODE-2.1");
    });
}

/// Rules: NODE-32.8, NODE-6.3, NODE-30.10, NODE-26
#[test]
fn a_stage_that_may_have_happened_is_undone() {
    play(Play::default(), async |rig| {
        rig.doorman.always("stage", Reply::Refused(Code::DeadlineExceeded));
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_said("p", "Failed").await;
        let said = rig.said("p").await.2;
        assert!(said.contains("MountVolume.MountDevice failed for volume \"v\""), "{said}");
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
        assert_eq!(rig.doorman.count("unstage"), 1, "NODE-6.3, NODE-30.10");
        assert!(!rig.events("FailedMount").await.is_empty(), "NODE-26");
    });
}

/// Rule: NODE-32.8
#[test]
fn a_stage_that_surely_failed_leaves_nothing_to_undo() {
    play(Play::default(), async |rig| {
        rig.doorman.always("stage", Reply::Refused(Code::InvalidArgument));
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_said("p", "Failed").await;
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
        assert_eq!(rig.doorman.count("unstage"), 0);
    });
}

/// Rules: NODE-32.9, NODE-11.14
#[test]
fn a_publish_that_may_have_happened_is_undone_and_one_that_did_not_is_not() {
    for (code, undone) in [(Code::Unavailable, 1), (Code::InvalidArgument, 0)] {
        play(Play::default(), async |rig| {
            rig.doorman.always("publish", Reply::Refused(code));
            rig.volume("v", json!({})).await;
            let uid = rig.pod("p", &["v"]).await;
            rig.until_said("p", "Failed").await;
            let directory = format!("{ROOT}/pods/{uid}/volumes/kubernetes.io~csi/v");
            assert_eq!(rig.exists(&directory), undone == 1, "{code:?}: NODE-11.14");
            rig.delete_pod("p").await;
            rig.until_gone("p").await;
            rig.until_clean().await;
            assert_eq!((rig.doorman.count("unpublish"), rig.doorman.count("unstage")), (undone, 1), "{code:?}");
        });
    }
}

/// Rules: NODE-31.5, NODE-31.22
#[test]
fn an_ok_is_not_believed() {
    play(Play::default(), async |rig| {
        rig.doorman.next("publish", Reply::Lie);
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        assert!(rig.is_mounted(&uid, "v"));
        assert_eq!(rig.doorman.count("publish"), 2, "nothing was mounted after the first");
        rig.doorman.next("unpublish", Reply::Lie);
        rig.doorman.next("unstage", Reply::Lie);
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
        assert_eq!((rig.doorman.count("unpublish"), rig.doorman.count("unstage")), (2, 2));
        let events = rig.events("FailedUnmount").await;
        assert!(events.iter().any(|message| message.contains("still mounted")), "NODE-31.22: {events:?}");
    });
}

/// Rules: NODE-32.19, NODE-23, NODE-31.11
#[test]
fn a_pod_stays_until_its_driver_is_back() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        rig.unregister();
        rig.delete_pod("p").await;
        tokio::time::sleep(std::time::Duration::from_secs(600)).await;
        assert!(rig.get(Kind::POD, &key("p")).await.is_some() && rig.is_mounted(&uid, "v"), "NODE-23");
        rig.register();
        let began = tokio::time::Instant::now();
        rig.until_gone("p").await;
        assert!(began.elapsed().as_secs() < 5, "NODE-31.11: registration wakes it");
        rig.until_clean().await;
    });
}

/// Rule: NODE-23
#[test]
fn a_pod_that_comes_before_its_driver_waits_and_is_told() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.unregister();
        rig.pod("p", &["v"]).await;
        rig.until_said("p", "DriverMissing").await;
        rig.register();
        rig.until_ready("p").await;
    });
}

/// Rule: NODE-31.9
#[test]
fn a_dead_mount_is_noticed_and_made_anew() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        assert!(rig.machine.corrupt(&target(&uid, "v"), rustix::io::Errno::NOTCONN));
        rig.until("it is published again", async || rig.doorman.count("publish") == 2).await;
        rig.until_ready("p").await;
        assert!(rig.is_mounted(&uid, "v"));
    });
}

/// Rule: NODE-32.15
#[test]
fn the_second_pod_on_a_volume_for_one_pod_is_refused() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({"accessModes": ["ReadWriteOncePod"]})).await;
        rig.pod("a", &["v"]).await;
        rig.until_ready("a").await;
        rig.pod("b", &["v"]).await;
        rig.until_said("b", "UsedByPod").await;
        assert_eq!(rig.doorman.count("publish"), 1);
        rig.delete_pod("a").await;
        rig.until_ready("b").await;
    });
}

/// Rule: NODE-31.9
#[test]
fn a_mount_that_does_not_answer_is_named_and_holds_up_nobody() {
    let silent = Arc::new(AtomicBool::new(false));
    let script = {
        let silent = silent.clone();
        move |event: &Event<'_>| match silent.load(Ordering::Relaxed) && event.path.ends_with("v/mount") {
            true => HostFate::Hung,
            false => HostFate::Done,
        }
    };
    play(Play { host: Box::new(script), ..Play::default() }, async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        silent.store(true, Ordering::Relaxed);
        rig.until_said("p", "Hung").await;
        assert!(rig.said("p").await.2.contains("does not answer"));
        rig.volume("w", json!({})).await;
        rig.pod("q", &["w"]).await;
        rig.until_ready("q").await;
        silent.store(false, Ordering::Relaxed);
        rig.until_ready("p").await;
        assert!(rig.is_mounted(&uid, "v") && rig.doorman.count("unpublish") == 0);
    });
}
