//! Attachers that fail or say nothing (ATTACH-6.4, ATTACH-6.8, CTRL-18.4, CTRL-14.45).

use control::attach::Options;
use sim::faults::Fair;

use crate::played::unique;
use crate::rig::{Rig, at_every_request, calm, play};

/// Rule: CTRL-13.32
#[test]
fn an_attach_error_is_told_and_the_attachment_stays_until_it_works() {
    calm(async |rig: &Rig| {
        rig.played.storage().orders.attach_error = Some("no slot".to_owned());
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        let failed = async || !rig.events("FailedAttachVolume").await.is_empty();
        rig.until("the pod is told", failed).await;
        rig.stays("one", "a", 300).await;
        let told = rig.events("FailedAttachVolume").await;
        assert_eq!(told, ["AttachVolume.Attach failed for volume \"pv-one\" : no slot"], "once");
        rig.played.storage().orders.attach_error = None;
        rig.until_mounted("a", "one").await;
        rig.quiet(10).await;
        assert_eq!(rig.events("SuccessfulAttachVolume").await.len(), 1);
    });
}

/// Rules: CTRL-13.32, CTRL-I17
#[test]
fn what_may_be_attached_although_it_failed_is_detached_when_nobody_wants_it_at_every_fault() {
    at_every_request(async |rig: &Rig| {
        rig.played.storage().orders.attach_error = Some("lost the answer".to_owned());
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        let failed =
            async || rig.attachment("one", "a").await.is_some_and(|held| held["status"]["attachError"].is_object());
        rig.until("it fails", failed).await;
        rig.end_pod("p").await;
        rig.until_detached("one", "a").await;
    });
}

/// Rule: ATTACH-6.8
#[test]
fn a_silent_attacher_is_named_after_two_minutes() {
    calm(async |rig: &Rig| {
        rig.played.storage().orders.asleep = true;
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.quiet(110).await;
        assert!(rig.events("FailedAttachVolume").await.is_empty());
        rig.quiet(20).await;
        let told = rig.events("FailedAttachVolume").await;
        let end = "timed out waiting for external-attacher of d.example.com CSI driver to attach volume one";
        assert!(told.len() == 1 && told[0].ends_with(end), "{told:?}");
        rig.played.storage().orders.asleep = false;
        rig.until_mounted("a", "one").await;
    });
}

/// Rules: CTRL-13.33, CTRL-14.31, CTRL-14.45
#[test]
fn a_detach_that_fails_blocks_other_nodes_and_ends_when_it_works() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.node("b").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.until_mounted("a", "one").await;
        rig.played.storage().orders.detach_error = Some("array is busy".to_owned());
        rig.end_pod("p").await;
        rig.pod("q", "b", &["one"]).await;
        rig.quiet(300).await;
        assert!(rig.attachment("one", "b").await.is_none(), "the volume may still be there");
        assert_eq!(rig.told("a").await, Vec::<String>::new(), "it is not told again");
        let told = rig.events("FailedAttachVolume").await;
        assert!(told.iter().any(|text| text.contains("array is busy")), "{told:?}");
        // The error of the earlier attempt still stands there when the next one succeeds.
        rig.played.storage().orders.detach_error = None;
        rig.quiet(2).await;
        assert!(rig.played.mounted("b", "one"), "at once, by the watch");
    });
}

/// Rule: CTRL-13.38
#[test]
fn a_pod_that_goes_right_after_its_volume_came_does_not_wait_for_a_report() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.played.storage().orders.dead.insert("a".to_owned());
        rig.pod("p", "a", &["one"]).await;
        rig.until("the node is told", async || rig.told("a").await == [unique("one")]).await;
        rig.end_pod("p").await;
        // The agent never said that it uses it, and it would have had to before it mounts.
        rig.until_detached("one", "a").await;
    });
}

/// Rule: CTRL-14.46
#[test]
fn a_place_that_a_pod_has_no_use_for_any_more_goes_to_the_next() {
    let options = Options { per_driver: 1, ..Options::default() };
    play(options, Fair, async |rig: &Rig| {
        rig.played.storage().orders.asleep = true;
        rig.node("a").await;
        for (pod, handle) in [("p", "one"), ("q", "two"), ("r", "three")] {
            rig.volume(handle, "ReadWriteOnce").await;
            rig.pod(pod, "a", &[handle]).await;
            rig.quiet(1).await;
        }
        // The second waits for the first, and the third for the second.
        rig.end_pod("q").await;
        rig.quiet(1).await;
        rig.played.storage().orders.asleep = false;
        rig.quiet(10).await;
        assert!(rig.played.mounted("a", "one") && rig.played.mounted("a", "three"), "not after two minutes");
        assert!(rig.attachment("two", "a").await.is_none());
    });
}
