//! Devices on their way back: NODE-17.2 to NODE-17.4, NODE-18.3, NODE-31.10.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::Kind;
use csi::v1::volume_capability::AccessType;
use node::host::Access;
use serde_json::json;
use sim::machine::{Event, HostFate};
use tonic::Code;

use crate::driver::{Reply, Story};
use crate::stage::{Play, ROOT, Rig, key, play};

pub(crate) fn blocks() -> String {
    format!("{ROOT}/plugins/{}/volumeDevices", api::keys::plugin::CSI)
}

/// A pod with a device. Gives its uid.
pub(crate) async fn device_pod(rig: &Rig, name: &str) -> String {
    let devices = json!({"containers": [{"name": "main", "image": "example/main",
        "volumeDevices": [{"name": "v", "devicePath": "/dev/xvda"}]}]});
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]);
    rig.pod_with(name, volumes, devices).await
}

pub(crate) async fn until_no_device(rig: &Rig) {
    rig.until_clean().await;
    let blocks = blocks();
    rig.until("metadata and all are gone", async || !rig.exists(&format!("{blocks}/v"))).await;
    assert_eq!(rig.children(&format!("{blocks}/staging")), 0);
    assert_eq!(rig.children(&format!("{blocks}/publish")), 0);
    assert_eq!(rig.machine.with_kernel(|kernel| kernel.loops().count()), 0);
}

/// Rules: NODE-17.2, NODE-17.4
#[test]
fn a_device_is_let_go_unlinked_unbound_and_then_unpublished() {
    let story = Story::default();
    let told = story.clone();
    let script = move |event: &Event<'_>| {
        if event.changes {
            told.tell(format!("{} {}", event.doing, event.path.display()));
        }
        HostFate::Done
    };
    play(Play { host: Box::new(script), ..Play::default() }, async |rig| {
        rig.doorman.tell(&story);
        rig.volume("v", json!({"volumeMode": "Block"})).await;
        let uid = device_pod(rig, "p").await;
        rig.until_ready("p").await;
        story.take();
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        until_no_device(rig).await;
        let told = story.take();
        let at = |line: &str| told.iter().position(|told| told == line).unwrap_or_else(|| panic!("{line}: {told:?}"));
        let (blocks, bound) = (blocks(), format!("{}/v/dev/{uid}", blocks()));
        let order = [
            at(&format!("let go {bound}")),
            at(&format!("remove {ROOT}/pods/{uid}/volumeDevices/kubernetes.io~csi/v")),
            at(&format!("unmount {bound}")),
            at("unpublish"),
            at(&format!("remove {bound}")),
            at("unstage"),
            // NODE-17.4: the places that all volumes share come before the volume's own, and its metadata is last.
            at(&format!("remove the tree {blocks}/staging/v")),
            at(&format!("remove the directory {blocks}/publish/v")),
            at(&format!("remove the tree {blocks}/v")),
        ];
        assert!(order.is_sorted(), "{told:?}");
        let unpublish = rig.doorman.unpublish();
        assert_eq!((&*unpublish.volume_id, unpublish.target_path), ("v", format!("{blocks}/publish/v/{uid}")));
        assert_eq!(rig.doorman.unstage().staging_target_path, format!("{blocks}/staging/v"));
    });
}

/// Rules: NODE-17.2, NODE-26
#[test]
fn a_device_that_may_have_been_published_is_unpublished_even_if_nothing_of_it_is_there() {
    play(Play::default(), async |rig| {
        rig.doorman.always("publish", Reply::Refused(Code::DeadlineExceeded));
        rig.volume("v", json!({"volumeMode": "Block"})).await;
        let uid = device_pod(rig, "p").await;
        rig.until_said("p", "Failed").await;
        assert!(rig.said("p").await.2.contains("MapVolume.MapPodDevice failed for volume \"v\""), "NODE-26");
        assert!(!rig.events("FailedMapVolume").await.is_empty());
        assert!(!rig.exists(&format!("{}/publish/v/{uid}", blocks())));
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        assert_eq!(rig.doorman.count("unpublish"), 1);
        until_no_device(rig).await;
    });
}

/// Rule: NODE-17.3
#[test]
fn a_device_that_a_pod_has_is_not_unstaged() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({"volumeMode": "Block", "accessModes": ["ReadWriteMany"]})).await;
        device_pod(rig, "a").await;
        let other = device_pod(rig, "b").await;
        rig.until_ready("a").await;
        rig.until_ready("b").await;
        rig.delete_pod("a").await;
        rig.until_gone("a").await;
        assert_eq!(rig.doorman.count("unstage"), 0);
        assert!(rig.exists(&format!("{ROOT}/pods/{other}/volumeDevices/kubernetes.io~csi/v")));
        rig.delete_pod("b").await;
        rig.until_gone("b").await;
        until_no_device(rig).await;
        assert_eq!(rig.doorman.calls()[..3], ["stage", "publish", "publish"]);
        assert_eq!(rig.doorman.calls()[3..], ["unpublish", "unpublish", "unstage"]);
    });
}

/// Rule: NODE-17.3
#[test]
fn what_is_not_staged_any_more_is_not_unstaged_again() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({"volumeMode": "Block"})).await;
        device_pod(rig, "p").await;
        rig.until_ready("p").await;
        rig.kill().await;
        let staging = format!("{}/staging/v", blocks());
        rig.machine.with_kernel(|kernel| kernel.remove_directory(staging.as_ref())).unwrap();
        rig.end_pod("p").await;
        rig.start();
        until_no_device(rig).await;
        assert_eq!((rig.doorman.count("unpublish"), rig.doorman.count("unstage")), (1, 0));
    });
}

/// Rule: NODE-31.10
#[test]
fn what_a_driver_left_mounted_in_its_stage_is_never_deleted() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({"volumeMode": "Block"})).await;
        device_pod(rig, "p").await;
        rig.until_ready("p").await;
        let inside = format!("{}/staging/v/inside", blocks());
        let data = "/srv/precious";
        rig.machine.with_kernel(|kernel| {
            kernel.make_directory(data.as_ref(), 0o755).unwrap();
            kernel.write(format!("{data}/file").as_ref(), b"data", 0o600).unwrap();
            kernel.make_directory(inside.as_ref(), 0o755).unwrap();
            kernel.bind(data.as_ref(), inside.as_ref(), Access::ReadWrite).unwrap();
        });
        rig.delete_pod("p").await;
        rig.until("it is told", async || !rig.events("FailedUnmount").await.is_empty()).await;
        assert!(rig.exists(&format!("{data}/file")) && rig.exists(&format!("{}/v/data/vol_data.json", blocks())));
        rig.machine.with_kernel(|kernel| kernel.unmount(inside.as_ref(), node::host::Force::No)).unwrap();
        until_no_device(rig).await;
        assert!(rig.exists(&format!("{data}/file")));
    });
}

/// Rules: NODE-17.4, NODE-26
#[test]
fn a_stage_that_surely_failed_leaves_no_directories() {
    play(Play::default(), async |rig| {
        rig.doorman.always("stage", Reply::Refused(Code::InvalidArgument));
        rig.volume("v", json!({"volumeMode": "Block"})).await;
        device_pod(rig, "p").await;
        rig.until_said("p", "Failed").await;
        assert!(rig.said("p").await.2.contains("MapVolume.SetUpDevice failed for volume \"v\""), "NODE-26");
        assert!(!rig.exists(&format!("{}/v", blocks())) && !rig.exists(&format!("{}/staging/v", blocks())));
        rig.delete_pod("p").await;
        rig.until_gone("p").await;
        until_no_device(rig).await;
        assert_eq!(rig.doorman.count("unstage"), 0);
    });
}

/// Rule: NODE-17.4
#[test]
fn directories_that_are_not_empty_yet_are_tried_again() {
    let refuse = Arc::new(AtomicBool::new(false));
    let held = refuse.clone();
    let script = move |event: &Event<'_>| {
        let shared = event.doing == "remove the directory" && event.path.ends_with("publish/v");
        match shared && held.load(Ordering::Relaxed) {
            true => HostFate::Refused(rustix::io::Errno::NOTEMPTY),
            false => HostFate::Done,
        }
    };
    play(Play { host: Box::new(script), ..Play::default() }, async |rig| {
        rig.volume("v", json!({"volumeMode": "Block"})).await;
        device_pod(rig, "p").await;
        rig.until_ready("p").await;
        refuse.store(true, Ordering::Relaxed);
        rig.delete_pod("p").await;
        rig.until("it is told", async || !rig.events("FailedUnmount").await.is_empty()).await;
        assert!(rig.exists(&format!("{}/v/data/vol_data.json", blocks())), "metadata goes last");
        refuse.store(false, Ordering::Relaxed);
        until_no_device(rig).await;
    });
}

/// Rule: NODE-18.3
#[test]
fn a_device_grows_where_it_was_published() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({"volumeMode": "Block"})).await;
        let uid = device_pod(rig, "p").await;
        rig.until_ready("p").await;
        rig.patch(Kind::VOLUME, &api::Key::cluster("v"), json!({"spec": {"capacity": {"storage": "3Gi"}}})).await;
        let status = json!({"allocatedResources": {"storage": "3Gi"},
            "allocatedResourceStatuses": {"storage": "NodeResizePending"}});
        rig.patch_status(Kind::CLAIM, &key("v"), status).await;
        rig.until("it was asked", async || rig.doorman.count("expand") == 1).await;
        let request = rig.doorman.expand();
        assert_eq!(request.volume_path, format!("{}/publish/v/{uid}", blocks()));
        assert_eq!(request.staging_target_path, format!("{}/staging/v", blocks()));
        let kind = request.volume_capability.and_then(|capability| capability.access_type);
        assert!(matches!(kind, Some(AccessType::Block(_))), "{kind:?}");
    });
}

/// Who restores a cluster from a backup gives a volume another PersistentVolume.
/// Rule: NODE-17.2
#[test]
fn a_device_that_comes_back_under_another_name_goes_from_where_it_was() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({"volumeMode": "Block"})).await;
        let uid = device_pod(rig, "p").await;
        rig.until_ready("p").await;
        rig.doorman.always("unpublish", Reply::Refused(Code::Unavailable));
        rig.delete_pod("p").await;
        rig.until("it was asked", async || rig.doorman.count("unpublish") > 0).await;
        rig.volume("w", json!({"volumeMode": "Block", "csi": {"volumeHandle": "v"}})).await;
        let devices = json!({"containers": [{"name": "main", "image": "example/main",
            "volumeDevices": [{"name": "w", "devicePath": "/dev/xvda"}]}]});
        let volumes = json!([{"name": "w", "persistentVolumeClaim": {"claimName": "w"}}]);
        let other = rig.pod_with("q", volumes, devices).await;
        rig.until_said("q", "Publishing").await;
        rig.doorman.open();
        rig.until_ready("q").await;
        rig.until_gone("p").await;
        let blocks = blocks();
        assert_eq!(rig.doorman.unpublish().target_path, format!("{blocks}/publish/v/{uid}"));
        assert!(!rig.exists(&format!("{blocks}/v")), "nothing of it is left where it was");
        assert!(rig.exists(&format!("{ROOT}/pods/{other}/volumeDevices/kubernetes.io~csi/w")));
        rig.delete_pod("q").await;
        rig.until_gone("q").await;
        rig.until_clean().await;
        assert_eq!(rig.machine.with_kernel(|kernel| kernel.loops().count()), 0);
    });
}

/// Rules: NODE-16, NODE-17.1
#[test]
fn a_device_that_is_published_again_is_told_once() {
    play(Play::with_driver(json!({"requiresRepublish": true})), async |rig| {
        rig.volume("v", json!({"volumeMode": "Block"})).await;
        device_pod(rig, "p").await;
        rig.until_ready("p").await;
        let told = rig.counted("SuccessfulMountVolume").await;
        let asked = rig.doorman.count("publish");
        rig.until("it was published again", async || rig.doorman.count("publish") > asked + 3).await;
        assert_eq!(rig.counted("SuccessfulMountVolume").await, told);
    });
}
