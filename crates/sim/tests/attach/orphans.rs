//! What a restart finds, and attachments that nobody speaks for (ATTACH-6.3, CTRL-13.35 to CTRL-13.38, CTRL-14.36 and
//! CTRL-14.42).

use api::keys::annotation;
use api::{Claim, Key, Kind, Volume};
use lifecycle::attach::restored::report_text;
use lifecycle::attach::{attachment_name, unique_name};
use serde_json::{Value, json};

use crate::played::{DRIVER, unique};
use crate::rig::{Rig, at_every_request, calm, key};

/// A pod with a mounted volume on node a, and the controller away.
async fn left_alone(rig: &Rig) {
    rig.node("a").await;
    rig.node("b").await;
    rig.volume("one", "ReadWriteOnce").await;
    rig.pod("p", "a", &["one"]).await;
    rig.until_mounted("a", "one").await;
    rig.end().await;
}

/// The volume of handle "one" under another name.
async fn named_again(rig: &Rig) {
    rig.claim("again", "ReadWriteOnce").await;
    let claim = rig.get(Kind::CLAIM, &key("again")).await.expect("it is there");
    let spec = json!({
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": DRIVER, "volumeHandle": "one"},
        "claimRef": {"namespace": "default", "name": "again", "uid": claim["metadata"]["uid"]},
    });
    rig.create(Kind::VOLUME, json!({"metadata": {"name": "pv-again"}, "spec": spec})).await;
    rig.patch_status(Kind::CLAIM, &key("again"), json!({"phase": "Bound"})).await;
}

async fn forget_claim_and_volume(rig: &Rig, handle: &str) {
    rig.patch(Kind::CLAIM, &key(handle), json!({"metadata": {"finalizers": null}})).await;
    rig.delete::<Claim>(&key(handle)).await;
    let volume = Key::cluster(&format!("pv-{handle}"));
    rig.patch(Kind::VOLUME, &volume, json!({"metadata": {"finalizers": null}})).await;
    rig.delete::<Volume>(&volume).await;
}

/// Rules: ATTACH-6.3, ATTACH-6.3.1
#[test]
fn a_restart_changes_nothing_about_what_is_in_use() {
    calm(async |rig: &Rig| {
        left_alone(rig).await;
        let before = rig.attachment("one", "a").await;
        rig.begin();
        rig.quiet(60).await;
        assert_eq!(rig.attachment("one", "a").await, before);
        assert_eq!(rig.events("SuccessfulAttachVolume").await.len(), 1, "it is no news");
    });
}

/// Rule: CTRL-13.37
#[test]
fn a_pod_that_went_while_nobody_looked_is_noticed() {
    calm(async |rig: &Rig| {
        left_alone(rig).await;
        rig.end_pod("p").await;
        rig.quiet(60).await;
        rig.begin();
        rig.until_detached("one", "a").await;
    });
}

/// Rules: ATTACH-6.3.2, CTRL-14.36
#[test]
fn a_pod_and_its_volume_that_went_while_nobody_looked_are_noticed() {
    calm(async |rig: &Rig| {
        left_alone(rig).await;
        rig.end_pod("p").await;
        forget_claim_and_volume(rig, "one").await;
        rig.begin();
        rig.until_detached("one", "a").await;
    });
}

/// Rule: ATTACH-6.3
#[test]
fn a_node_that_was_told_of_what_is_not_there_is_told_better_and_gets_it_if_a_pod_wants_it() {
    calm(async |rig: &Rig| {
        left_alone(rig).await;
        rig.delete_attachment("one", "a").await;
        rig.played.storage().orders.dead.insert("a".to_owned());
        rig.quiet(5).await;
        rig.played.storage().orders.dead.clear();
        let told = json!({"volumesAttached": [{"name": unique("one"), "devicePath": ""}, {"name": unique("ghost"), "devicePath": ""}]});
        rig.patch_status(Kind::NODE, &Key::cluster("a"), told).await;
        rig.begin();
        rig.until("the volume is back", async || !rig.played.published("one").is_empty()).await;
        let true_again = async || rig.told("a").await == [unique("one")];
        rig.until("the node knows the truth", true_again).await;
    });
}

/// Rules: CTRL-14.36, CTRL-I15
#[test]
fn an_attachment_without_its_volume_blocks_a_namesake_and_goes() {
    calm(async |rig: &Rig| {
        left_alone(rig).await;
        rig.end_pod("p").await;
        rig.played.storage().orders.dead.insert("a".to_owned());
        forget_claim_and_volume(rig, "one").await;
        // The same volume of the driver under a new object, as after an import.
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("q", "b", &["one"]).await;
        rig.begin();
        rig.stays("one", "a", 120).await;
        assert!(rig.attachment("one", "b").await.is_none());
        rig.played.storage().orders.dead.clear();
        rig.until_mounted("b", "one").await;
    });
}

/// Rule: CTRL-I15
#[test]
fn the_same_volume_under_another_name_is_the_same_volume() {
    calm(async |rig: &Rig| {
        left_alone(rig).await;
        rig.played.storage().orders.stuck.insert("a".to_owned());
        rig.end_pod("p").await;
        forget_claim_and_volume(rig, "one").await;
        named_again(rig).await;
        rig.pod("q", "b", &["again"]).await;
        rig.begin();
        rig.stays("one", "a", 120).await;
        assert!(rig.attachment("one", "b").await.is_none(), "only its name says what the old attachment is for");
        rig.played.storage().orders.stuck.clear();
        let there = async || rig.attachment("one", "b").await.is_some();
        rig.until("it goes to the other node", there).await;
    });
}

/// The attacher's note makes the attachment known, and its volume's object is gone: it counts by the handle.
#[test]
fn an_attachment_whose_volume_is_gone_blocks_by_the_handle_that_was_published() {
    calm(async |rig: &Rig| {
        left_alone(rig).await;
        let held = Key::cluster(&attachment_name(DRIVER, "one", "a"));
        let note = json!({"metadata": {"annotations": {annotation::PUBLISHED_HANDLE.text(): "one"}}});
        rig.patch(Kind::ATTACHMENT, &held, note).await;
        rig.played.storage().orders.stuck.insert("a".to_owned());
        rig.end_pod("p").await;
        forget_claim_and_volume(rig, "one").await;
        named_again(rig).await;
        rig.pod("q", "b", &["again"]).await;
        rig.begin();
        rig.stays("one", "a", 120).await;
        assert!(rig.attachment("one", "b").await.is_none(), "the volume is still at node a");
        rig.played.storage().orders.stuck.clear();
        let there = async || rig.attachment("one", "b").await.is_some();
        rig.until("it goes to the other node", there).await;
    });
}

/// A name of its own, an object that is gone, and no note: it may be any volume of the driver.
#[test]
fn an_attachment_that_tells_nothing_of_its_volume_blocks_a_volume_for_one_node() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.node("b").await;
        let spec = json!({"attacher": DRIVER, "nodeName": "a", "source": {"persistentVolumeName": "gone"}});
        rig.create(Kind::ATTACHMENT, json!({"metadata": {"name": "by-hand"}, "spec": spec})).await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("q", "b", &["one"]).await;
        rig.quiet(120).await;
        assert!(rig.attachment("one", "b").await.is_none());
        let said = rig.events("FailedAttachVolume").await;
        assert!(said.iter().any(|event| event.contains("may be of this volume")), "{said:?}");
        rig.delete::<api::Attachment>(&Key::cluster("by-hand")).await;
        rig.until_mounted("b", "one").await;
    });
}

/// The object that it named was seen before it went.
#[test]
fn an_attachment_with_a_name_of_its_own_is_remembered_by_what_it_named() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.node("b").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.volume("two", "ReadWriteOnce").await;
        let spec = json!({"attacher": DRIVER, "nodeName": "a", "source": {"persistentVolumeName": "pv-one"}});
        rig.create(Kind::ATTACHMENT, json!({"metadata": {"name": "by-hand"}, "spec": spec})).await;
        rig.quiet(10).await;
        forget_claim_and_volume(rig, "one").await;
        named_again(rig).await;
        rig.pod("q", "b", &["again"]).await;
        rig.pod("r", "b", &["two"]).await;
        rig.until_mounted("b", "two").await;
        rig.quiet(120).await;
        assert!(rig.attachment("one", "b").await.is_none(), "and no other volume of the driver is held up");
    });
}

/// Rule: CTRL-14.36
#[test]
fn an_attachment_that_carries_its_volume_goes_when_nobody_wants_it() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        let inline = json!({"accessModes": ["ReadWriteOnce"], "csi": {"driver": DRIVER, "volumeHandle": "inside"}});
        let name = attachment_name(DRIVER, "inside", "a");
        let spec = json!({"attacher": DRIVER, "nodeName": "a", "source": {"inlineVolumeSpec": inline}});
        rig.end().await;
        rig.create(Kind::ATTACHMENT, json!({"metadata": {"name": name}, "spec": spec})).await;
        rig.until("it is attached", async || !rig.played.published("inside").is_empty()).await;
        rig.begin();
        rig.until_detached("inside", "a").await;
        assert!(rig.played.published("inside").is_empty());
    });
}

/// Rule: MIGRATE-10.2
#[test]
fn an_in_tree_volume_inside_a_pod_is_attached_as_its_driver_sees_it_and_taken_back() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        let volumes = json!([{"name": "v", "awsElasticBlockStore": {"volumeID": "vol-1"}}]);
        let containers = json!([{"name": "main", "image": "example/main"}]);
        let spec = json!({"nodeName": "a", "containers": containers, "volumes": volumes,
                          "terminationGracePeriodSeconds": 0});
        rig.create(Kind::POD, json!({"metadata": {"namespace": "default", "name": "p"}, "spec": spec})).await;
        let (driver, unique) = ("ebs.csi.aws.com", unique_name("ebs.csi.aws.com", "vol-1"));
        rig.until("the node is told", async || rig.told("a").await == [unique.clone()]).await;
        let held = rig.get(Kind::ATTACHMENT, &Key::cluster(&attachment_name(driver, "vol-1", "a"))).await;
        assert_eq!(held.expect("it is there")["spec"]["source"]["inlineVolumeSpec"]["csi"]["volumeHandle"], "vol-1");
        rig.end_pod("p").await;
        rig.until("the node is told", async || rig.told("a").await.is_empty()).await;
        rig.until("it is taken back", async || rig.played.published("vol-1").is_empty()).await;
    });
}

#[test]
fn an_attachment_of_another_maker_is_left_alone_and_blocks() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.node("b").await;
        rig.volume("one", "ReadWriteOnce").await;
        let spec = json!({"attacher": DRIVER, "nodeName": "a", "source": {"persistentVolumeName": "pv-one"}});
        rig.create(Kind::ATTACHMENT, json!({"metadata": {"name": "by-hand"}, "spec": spec})).await;
        rig.pod("q", "b", &["one"]).await;
        rig.quiet(120).await;
        assert!(rig.get(Kind::ATTACHMENT, &Key::cluster("by-hand")).await.is_some());
        assert!(rig.attachment("one", "b").await.is_none());
        rig.delete::<api::Attachment>(&Key::cluster("by-hand")).await;
        rig.until_mounted("b", "one").await;
    });
}

#[test]
fn an_attachment_that_somebody_deletes_is_made_again_and_the_node_is_not_misled_at_every_fault() {
    at_every_request(async |rig: &Rig| {
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.played.storage().orders.dead.insert("a".to_owned());
        rig.pod("p", "a", &["one"]).await;
        let told = async || rig.told("a").await == [unique("one")];
        rig.until("the node is told", told).await;
        rig.played.storage().orders.asleep = true;
        rig.delete_attachment("one", "a").await;
        rig.until("the node is told that it is going", async || rig.told("a").await.is_empty()).await;
        {
            let mut storage = rig.played.storage();
            storage.orders.asleep = false;
            storage.orders.dead.clear();
        }
        rig.until_mounted("a", "one").await;
    });
}

/// Rule: CTRL-14.50
#[test]
fn a_handle_with_a_caret_comes_and_goes() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.claim("odd", "ReadWriteOnce").await;
        let claim = rig.get(Kind::CLAIM, &key("odd")).await.expect("it is there");
        let spec = json!({
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": DRIVER, "volumeHandle": "x^y"},
            "claimRef": {"namespace": "default", "name": "odd", "uid": claim["metadata"]["uid"]},
        });
        rig.create(Kind::VOLUME, json!({"metadata": {"name": "pv-odd"}, "spec": spec})).await;
        rig.patch_status(Kind::CLAIM, &key("odd"), json!({"phase": "Bound"})).await;
        rig.pod("p", "a", &["odd"]).await;
        rig.until("the node is told", async || rig.told("a").await == [unique("x^y")]).await;
        rig.end_pod("p").await;
        rig.end().await;
        rig.begin();
        rig.until_detached("x^y", "a").await;
    });
}

fn restored(mark: Option<&str>, volumes: Option<&str>) -> Value {
    let annotations = json!({annotation::RESTORED.text(): mark, annotation::RESTORED_VOLUMES.text(): volumes});
    json!({"metadata": {"annotations": annotations}})
}

/// A backup does not know which volumes nodes got after it was made.
#[test]
fn after_a_restore_a_volume_for_one_node_goes_nowhere_until_the_other_nodes_have_reported() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.node("b").await;
        rig.volume("one", "ReadWriteOnce").await;
        let node = Key::cluster("a");
        rig.patch(Kind::NODE, &node, restored(Some("7"), None)).await;
        rig.pod("p", "b", &["one"]).await;
        rig.quiet(120).await;
        assert!(rig.attachment("one", "b").await.is_none());
        let events = rig.events("FailedAttachVolume").await;
        assert!(
            events.iter().any(|event| event.contains("restored from a backup") && event.ends_with(": a")),
            "{events:?}"
        );
        rig.patch(Kind::NODE, &node, restored(None, None)).await;
        rig.until_mounted("b", "one").await;
    });
}

/// The node has the volume, and the attachment that said so is lost: it is made again, and ends as every other does.
#[test]
fn after_a_restore_a_volume_that_a_node_reports_is_attached_there_and_then_detached() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.node("b").await;
        rig.volume("one", "ReadWriteOnce").await;
        let node = Key::cluster("a");
        let report = report_text("7", [unique("one").into()]);
        rig.patch(Kind::NODE, &node, restored(Some("7"), Some(&report))).await;
        rig.pod("p", "b", &["one"]).await;
        rig.until("it has its attachment", async || rig.attachment("one", "a").await.is_some()).await;
        rig.quiet(60).await;
        assert!(rig.attachment("one", "b").await.is_none());
        assert_eq!(rig.played.published("one").len(), 1, "the driver is asked to publish it where it is");
        rig.patch(Kind::NODE, &node, restored(None, None)).await;
        rig.until_mounted("b", "one").await;
        assert!(rig.attachment("one", "a").await.is_none());
    });
}
