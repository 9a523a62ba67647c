//! Races and crash points, each made to happen: NODE-30, and the weaknesses of NODE-31 that go with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use api::{Key, Kind};
use node::host::{Access, Force};
use serde_json::json;
use sim::faults::{Action, Ask, Fate, Refusal, Verdict};
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::driver::Reply;
use crate::stage::{NODE, Play, ROOT, Rig, key, play, target};

/// Rule: NODE-30.2
#[test]
fn nothing_is_unmounted_after_a_restart_before_the_node_was_read() {
    let dark = Arc::new(AtomicBool::new(false));
    let setup = || {
        let dark = dark.clone();
        let script = move |ask: &Ask<'_>| -> Verdict {
            let node = ask.action == Action::Read && ask.path.ends_with("/nodes/n1");
            match node && dark.load(Ordering::Relaxed) {
                true => Fate::Refused(Refusal::Unavailable { seconds: 1 }).into(),
                false => Fate::Answered.into(),
            }
        };
        Play { again: Box::new(move || Box::new(script.clone())), ..Play::attached() }
    };
    play(setup(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.kill().await;
        rig.end_pod("p").await;
        dark.store(true, Ordering::Relaxed);
        rig.start();
        sleep(Duration::from_secs(300)).await;
        assert!(rig.is_mounted(&uid, "v") && rig.doorman.count("unpublish") == 0, "what is attached is not known");
        dark.store(false, Ordering::Relaxed);
        rig.until_clean().await;
    });
}

/// Rule: NODE-30.6
#[test]
fn a_crash_between_the_metadata_and_the_call_costs_one_call_that_changes_nothing() {
    for (method, undone) in [("stage", ["unstage"].as_slice()), ("publish", &["unpublish", "unstage"])] {
        play(Play::attached(), async |rig| {
            rig.doorman.always(method, Reply::Late(Duration::from_secs(3600)));
            rig.volume("v", json!({})).await;
            let uid = rig.pod("p", &["v"]).await;
            rig.attach("v").await;
            rig.until("the call is on its way", async || rig.doorman.count(method) == 1).await;
            // The driver never sees it: the agent dies with the call.
            rig.kill().await;
            let metadata = match method {
                "stage" => rig.staged_directory("v").join("vol_data.json").display().to_string(),
                _ => format!("{ROOT}/pods/{uid}/volumes/kubernetes.io~csi/v/vol_data.json"),
            };
            assert!(rig.exists(&metadata), "the file comes first");
            assert!(!rig.is_mounted(&uid, "v"));
            rig.end_pod("p").await;
            rig.doorman.open();
            rig.start();
            rig.until_clean().await;
            assert_eq!(&rig.doorman.calls()[rig.doorman.calls().len() - undone.len()..], undone);
        });
    }
}

/// Rules: NODE-30.11, NODE-31.7
#[test]
fn a_refusal_right_after_a_restart_takes_nothing_from_a_volume_that_may_live() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        rig.kill().await;
        // What says that it was finished is lost, so that everything is asked for again.
        let marker = format!("{ROOT}/pods/{uid}/plugins/kubernetes.io~csi/v/ready");
        rig.machine.with_kernel(|kernel| kernel.remove_file(marker.as_ref())).unwrap();
        for method in ["stage", "publish"] {
            rig.doorman.always(method, Reply::Refused(Code::InvalidArgument));
        }
        rig.start();
        rig.until_said("p", "Failed").await;
        sleep(Duration::from_secs(300)).await;
        assert!(rig.is_mounted(&uid, "v"), "a running pod's mount never disappears");
        let kept = [
            rig.staged_directory("v").join("vol_data.json").display().to_string(),
            format!("{ROOT}/pods/{uid}/volumes/kubernetes.io~csi/v/vol_data.json"),
        ];
        assert!(kept.iter().all(|path| rig.exists(path)), "metadata stays");
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
        assert_eq!((rig.doorman.count("unpublish"), rig.doorman.count("unstage")), (1, 1));
    });
}

/// Rules: NODE-30.13, NODE-31.23, NODE-5.6
#[test]
fn a_pod_that_goes_while_its_volume_is_staged_gets_nothing_more() {
    play(Play::default(), async |rig| {
        rig.doorman.next("stage", Reply::Late(Duration::from_secs(60)));
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until("the call is on its way", async || rig.doorman.count("stage") == 1).await;
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
        assert_eq!(rig.doorman.calls(), ["stage", "unstage"], "NODE-5.6: no mount is begun for a pod that is gone");
    });
}

/// Rule: NODE-30.13
#[test]
fn a_pod_that_goes_while_its_volume_is_published_leaves_when_that_is_over() {
    play(Play::default(), async |rig| {
        rig.doorman.next("publish", Reply::Late(Duration::from_secs(60)));
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until("the call is on its way", async || rig.doorman.count("publish") == 1).await;
        rig.delete_pod("p").await;
        sleep(Duration::from_secs(30)).await;
        assert_eq!(rig.doorman.calls(), ["stage", "publish"], "one thing after the other");
        rig.until_gone("p").await;
        rig.until_clean().await;
        assert!(!rig.is_mounted(&uid, "v"));
        assert_eq!(rig.doorman.calls(), ["stage", "publish", "unpublish", "unstage"]);
    });
}

/// Rule: NODE-30.14
#[test]
fn a_pod_that_comes_while_the_volume_is_unstaged_gets_it_anew() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("a", &["v"]).await;
        rig.until_ready("a").await;
        rig.doorman.next("unstage", Reply::Late(Duration::from_secs(60)));
        rig.delete_pod("a").await;
        rig.until("it is being unstaged", async || rig.doorman.count("unstage") == 1).await;
        let uid = rig.pod("b", &["v"]).await;
        rig.until_ready("b").await;
        assert!(rig.is_mounted(&uid, "v"));
        let calls = ["stage", "publish", "unpublish", "unstage", "stage", "publish"];
        assert_eq!(rig.doorman.calls(), calls, "it is not published on a stage that goes");
    });
}

/// Rules: NODE-30.16, NODE-13.2
#[test]
fn a_mount_that_leaked_keeps_the_volume_staged_and_is_named() {
    play(Play::attached(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        let leak = "/mnt/leak";
        rig.machine.with_kernel(|kernel| {
            kernel.make_directory(leak.as_ref(), 0o755).unwrap();
            kernel.bind(&target(&uid, "v"), leak.as_ref(), Access::ReadWrite).unwrap();
        });
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until("it is told", async || !rig.events("FailedUnmount").await.is_empty()).await;
        let events = rig.events("FailedUnmount").await;
        assert!(events.iter().all(|message| message.contains(leak)), "{events:?}");
        sleep(Duration::from_secs(300)).await;
        assert_eq!(rig.doorman.count("unstage"), 0, "the driver is not asked while somebody may write");
        let node = rig.get(Kind::NODE, &Key::cluster(NODE)).await.expect("the node is there");
        assert_eq!(node["status"]["volumesInUse"].as_array().map_or(0, Vec::len), 1, "nobody may detach it");
        rig.machine.with_kernel(|kernel| kernel.unmount(leak.as_ref(), Force::No)).unwrap();
        rig.until_clean().await;
        assert_eq!(rig.doorman.count("unstage"), 1);
    });
}

/// Rule: NODE-13.2
#[test]
fn a_copy_of_the_agents_own_root_is_no_leak() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        let staged = rig.staged_directory("v").join("globalmount");
        let copy = format!("/host{}", staged.display());
        rig.machine.with_kernel(|kernel| {
            kernel.make_directory(copy.as_ref(), 0o755).unwrap();
            kernel.bind(&staged, copy.as_ref(), Access::ReadWrite).unwrap();
        });
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until("it is unstaged", async || rig.doorman.count("unstage") == 1).await;
    });
}

/// Rule: NODE-30.24
#[test]
fn a_size_that_could_not_be_written_down_is_asked_for_again() {
    // The second write to the claim says that it has grown.
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    let script = move |ask: &Ask<'_>| -> Verdict {
        let claim = ask.action == Action::Update && ask.path.ends_with("persistentvolumeclaims/v/status");
        match claim && counted.fetch_add(1, Ordering::Relaxed) == 1 {
            true => Fate::Refused(Refusal::Conflict).into(),
            false => Fate::Answered.into(),
        }
    };
    play(Play { api: Box::new(script), ..Play::default() }, async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        rig.patch(Kind::VOLUME, &Key::cluster("v"), json!({"spec": {"capacity": {"storage": "3Gi"}}})).await;
        let status = json!({"allocatedResources": {"storage": "3Gi"},
            "allocatedResourceStatuses": {"storage": "NodeResizePending"}});
        rig.patch_status(Kind::CLAIM, &key("v"), status).await;
        rig.until("the claim is larger", async || {
            let claim = rig.get(Kind::CLAIM, &key("v")).await.expect("the claim is there");
            claim["status"]["capacity"]["storage"] == "3Gi" && claim["status"]["allocatedResourceStatuses"].is_null()
        })
        .await;
        assert_eq!(rig.doorman.count("expand"), 2, "a driver is asked twice for the same");
        assert_eq!(seen.load(Ordering::Relaxed), 3);
    });
}

/// Rule: NODE-30.26
#[test]
fn a_driver_that_restarts_during_an_unpublish_is_asked_again_as_soon_as_it_is_back() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        rig.doorman.always("unpublish", Reply::Done(Code::Unavailable));
        rig.delete_pod("p").await;
        rig.until("it was asked often", async || rig.doorman.count("unpublish") > 8).await;
        assert!(rig.get(Kind::POD, &key("p")).await.is_some(), "unavailable is not gone");
        rig.unregister();
        rig.doorman.open();
        sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        rig.register();
        rig.until_gone("p").await;
        assert!(began.elapsed() < Duration::from_secs(5), "not after two minutes");
        rig.until_clean().await;
    });
}

async fn attach_required(rig: &Rig, required: bool) {
    // The field cannot be changed: whoever wants it otherwise makes the object anew.
    rig.delete_driver().await;
    let spec = json!({"attachRequired": required, "fsGroupPolicy": "ReadWriteOnceWithFSType"});
    rig.create(Kind::CSI_DRIVER, json!({"metadata": {"name": rig.model.name()}, "spec": spec})).await;
}

/// Rules: NODE-30.28, NODE-5.6.1, NODE-23
#[test]
fn a_driver_that_does_not_attach_any_more_is_waited_for_by_nobody() {
    play(Play::with_driver(json!({"attachRequired": true})), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until_said("p", "NotAttached").await;
        attach_required(rig, false).await;
        rig.until_ready("p").await;
        assert!(rig.is_mounted(&uid, "v"), "NODE-5.6.1");
        // And the other way round: what is mounted stays so.
        attach_required(rig, true).await;
        sleep(Duration::from_secs(60)).await;
        assert!(rig.is_mounted(&uid, "v") && rig.said("p").await.0 == "True", "NODE-23");
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        rig.until_clean().await;
    });
}

/// Rule: NODE-31.4
#[test]
fn a_driver_that_goes_before_it_is_asked_again_is_not_forgotten() {
    play(Play::default(), async |rig| {
        rig.doorman.always("publish", Reply::Done(Code::DeadlineExceeded));
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until("it was asked", async || rig.doorman.count("publish") > 0).await;
        assert!(rig.is_mounted(&uid, "v"), "it happened all the same");
        rig.unregister();
        rig.until_said("p", "DriverMissing").await;
        rig.delete_pod("p").await;
        sleep(Duration::from_secs(300)).await;
        assert!(rig.is_mounted(&uid, "v") && rig.doorman.count("unpublish") == 0);
        rig.doorman.open();
        rig.register();
        rig.until_gone("p").await;
        rig.until_clean().await;
        assert_eq!((rig.doorman.count("unpublish"), rig.doorman.count("unstage")), (1, 1));
    });
}

/// Rules: NODE-9, NODE-20
#[test]
fn a_volume_that_is_wanted_again_while_it_is_taken_off_the_list_waits_to_be_back_on_it() {
    let slow = Arc::new(AtomicBool::new(false));
    let slowly = slow.clone();
    let script = move |ask: &Ask<'_>| -> Verdict {
        let status = ask.action == Action::Update && ask.path.ends_with("/nodes/n1/status");
        let there = match status && slowly.load(Ordering::Relaxed) {
            true => Duration::from_secs(10),
            false => Duration::ZERO,
        };
        Verdict { there, ..Fate::Answered.into() }
    };
    play(Play { api: Box::new(script), ..Play::attached() }, async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.attach("v").await;
        rig.until_ready("p").await;
        slow.store(true, Ordering::Relaxed);
        rig.delete_pod("p").await;
        rig.until("nothing is mounted", async || rig.mounts().is_empty()).await;
        // The write that says so is on its way, and will arrive.
        let uid = rig.pod("q", &["v"]).await;
        while !rig.is_mounted(&uid, "v") || rig.said("q").await.0 != "True" {
            let mounts = rig.mounts();
            let node = rig.get(Kind::NODE, &Key::cluster(NODE)).await.expect("the node is there");
            let in_use = node["status"]["volumesInUse"].as_array().map_or(0, Vec::len);
            assert!(mounts.is_empty() || in_use == 1, "mounted, and anybody may detach it: {mounts:?}");
            sleep(Duration::from_millis(250)).await;
        }
    });
}
