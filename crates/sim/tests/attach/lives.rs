//! Volumes that come and go: CTRL-18.4, and every fault at every request on the way (CTRL-13.30 to CTRL-13.36,
//! CTRL-13.39, CTRL-I13 to CTRL-I17).

use std::time::Duration;

use api::{Claim, Key, Kind, Volume};
use control::attach::Options;
use serde_json::json;
use sim::faults::{Ask, Fate, Verdict};

use crate::played::unique;
use crate::rig::{Late, Rig, at_every_request, calm, key, play};

/// Rules: CTRL-13.35, CTRL-13.36, CTRL-13.39
#[test]
fn a_volume_is_attached_told_mounted_and_taken_back_at_every_fault() {
    at_every_request(async |rig: &Rig| {
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.until_mounted("a", "one").await;
        assert_eq!(rig.told("a").await, [unique("one")]);
        rig.end_pod("p").await;
        rig.until_detached("one", "a").await;
        assert!(rig.played.published("one").is_empty());
    });
}

/// Rules: ATTACH-A3, CTRL-I15
#[test]
fn a_volume_for_one_node_moves_and_is_never_on_two_at_every_fault() {
    at_every_request(async |rig: &Rig| {
        rig.node("a").await;
        rig.node("b").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.until_mounted("a", "one").await;
        rig.pod("q", "b", &["one"]).await;
        rig.quiet(5).await;
        assert!(rig.attachment("one", "b").await.is_none());
        rig.end_pod("p").await;
        rig.until_mounted("b", "one").await;
        assert_eq!(rig.told("a").await, Vec::<String>::new());
    });
}

/// Rules: ATTACH-6.4, CTRL-14.48
#[test]
fn what_is_attached_and_not_attached_is_an_event_for_its_pod() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.node("b").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.until_mounted("a", "one").await;
        rig.pod("q", "b", &["one"]).await;
        rig.quiet(600).await;
        assert_eq!(
            rig.events("SuccessfulAttachVolume").await,
            ["AttachVolume.Attach succeeded for volume \"pv-one\" "]
        );
        let waiting = rig.events("FailedAttachVolume").await;
        let start = "Waiting for detach for volume \"pv-one\" Volume is already used by pod(s) p; node \"a\" has it: ";
        assert!(waiting.len() == 1 && waiting[0].starts_with(start), "once, not at every look: {waiting:?}");
        // Another reason for the same wait is news (CTRL-14.48).
        rig.played.storage().orders.stuck.insert("a".to_owned());
        rig.end_pod("p").await;
        let twice = async || rig.events("FailedAttachVolume").await.len() == 2;
        rig.until("the reason changes", twice).await;
        let waiting = rig.events("FailedAttachVolume").await;
        let told =
            waiting.iter().any(|text| text.contains("exclusively attached to one node") && text.contains("mounted"));
        assert!(told, "{waiting:?}");
    });
}

/// Rule: ATTACH-6.5
#[test]
fn a_volume_for_many_nodes_is_on_both_at_once() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.node("b").await;
        rig.volume("many", "ReadWriteMany").await;
        rig.pod("p", "a", &["many"]).await;
        rig.pod("q", "b", &["many"]).await;
        rig.until_mounted("a", "many").await;
        rig.until_mounted("b", "many").await;
        rig.end_pod("p").await;
        rig.until_detached("many", "a").await;
        assert_eq!(rig.told("b").await, [unique("many")]);
    });
}

#[test]
fn two_pods_on_a_node_share_an_attachment() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.pod("q", "a", &["one"]).await;
        rig.until_mounted("a", "one").await;
        rig.end_pod("p").await;
        rig.stays("one", "a", 60).await;
        rig.end_pod("q").await;
        rig.until_detached("one", "a").await;
    });
}

/// Rule: CTRL-13.45
#[test]
fn a_claim_that_is_bound_late_is_attached_at_once() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.claim("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.quiet(30).await;
        assert!(rig.attachment("one", "a").await.is_none());
        rig.bind("one", "ReadWriteOnce").await;
        rig.until_mounted("a", "one").await;
    });
}

/// Rule: CTRL-14.43
#[test]
fn many_pods_on_a_node_cost_few_writes_of_its_status() {
    // On a server that takes its time, as all do.
    let slow = |_: &Ask<'_>| {
        let half = Duration::from_millis(10);
        Verdict { there: half, back: half, ..Fate::Answered.into() }
    };
    play(Options::default(), slow, async |rig: &Rig| {
        rig.node("a").await;
        let names: Vec<String> = (0..40).map(|number| format!("one{number}")).collect();
        for name in &names {
            rig.volume(name, "ReadWriteOnce").await;
        }
        for name in &names {
            rig.pod(name, "a", &[name]).await;
        }
        for name in &names {
            rig.until_mounted("a", name).await;
        }
        let writes = rig.writes("PATCH /api/v1/nodes/a/status");
        assert!((1..=10).contains(&writes), "{writes} writes for 40 volumes");
    });
}

/// Rule: CTRL-14.46
#[test]
fn no_driver_gets_more_to_do_than_it_may_have() {
    play(Options { per_driver: 2, ..Options::default() }, sim::faults::Fair, async |rig: &Rig| {
        rig.played.storage().orders.asleep = true;
        rig.node("a").await;
        for name in ["one1", "one2", "one3", "one4"] {
            rig.volume(name, "ReadWriteOnce").await;
            rig.pod(name, "a", &[name]).await;
        }
        rig.quiet(60).await;
        let all = rig.client.list::<serde_json::Value>(Kind::ATTACHMENT, &Default::default(), 0, None).await;
        assert_eq!(all.unwrap().items.len(), 2);
        rig.played.storage().orders.asleep = false;
        for name in ["one1", "one2", "one3", "one4"] {
            rig.until_mounted("a", name).await;
        }
    });
}

/// Rules: CTRL-13.31, CTRL-13.43
#[test]
fn news_that_come_late_do_no_harm() {
    for path in
        ["/api/v1/pods", "/api/v1/nodes", "/apis/storage.k8s.io/v1/volumeattachments", "/api/v1/persistentvolumes"]
    {
        println!("{path} is heard of seven seconds late");
        play(Options::default(), Late::new(path, Duration::from_secs(7)), async |rig: &Rig| {
            rig.node("a").await;
            rig.node("b").await;
            rig.volume("one", "ReadWriteOnce").await;
            for turn in 0..3 {
                let (here, name) = (if turn % 2 == 0 { "a" } else { "b" }, format!("p{turn}"));
                rig.pod(&name, here, &["one"]).await;
                rig.until_mounted(here, "one").await;
                rig.end_pod(&name).await;
                // A pod of the same name is another pod.
                rig.pod(&name, here, &["one"]).await;
                rig.until_mounted(here, "one").await;
                rig.end_pod(&name).await;
            }
            rig.until_detached("one", "a").await;
        });
    }
}

/// Rule: CTRL-13.40
#[test]
fn a_pod_that_comes_back_while_its_volume_leaves_gets_it_again_at_every_fault() {
    at_every_request(async |rig: &Rig| {
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.until_mounted("a", "one").await;
        rig.played.storage().orders.asleep = true;
        rig.end_pod("p").await;
        let leaving = async || {
            rig.attachment("one", "a").await.is_none_or(|held| held["metadata"]["deletionTimestamp"].is_string())
        };
        rig.until("its end is asked for", leaving).await;
        rig.pod("p", "a", &["one"]).await;
        rig.quiet(5).await;
        rig.played.storage().orders.asleep = false;
        rig.until_mounted("a", "one").await;
    });
}

/// Rule: CTRL-13.41
#[test]
fn a_driver_that_stops_asking_for_attachments_loses_them() {
    calm(async |rig: &Rig| {
        let driver = json!({"metadata": {"name": crate::played::DRIVER}, "spec": {"attachRequired": true}});
        rig.create(Kind::CSI_DRIVER, driver).await;
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.until_mounted("a", "one").await;
        let key = Key::cluster(crate::played::DRIVER);
        rig.delete::<api::CsiDriver>(&key).await;
        let driver = json!({"metadata": {"name": crate::played::DRIVER}, "spec": {"attachRequired": false}});
        rig.create(Kind::CSI_DRIVER, driver).await;
        rig.stays("one", "a", 30).await;
        rig.end_pod("p").await;
        rig.until_detached("one", "a").await;
        rig.pod("q", "a", &["one"]).await;
        rig.quiet(30).await;
        assert!(rig.attachment("one", "a").await.is_none());
    });
}

/// The volume is attached, and the node has not said yet that it uses it.
/// Rule: CTRL-13.41
#[test]
fn a_driver_that_stops_asking_for_attachments_keeps_what_a_pod_is_about_to_mount() {
    calm(async |rig: &Rig| {
        let driver = json!({"metadata": {"name": crate::played::DRIVER}, "spec": {"attachRequired": true}});
        rig.create(Kind::CSI_DRIVER, driver).await;
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.played.storage().orders.dead.insert("a".to_owned());
        rig.pod("p", "a", &["one"]).await;
        let attached = async || rig.attachment("one", "a").await.is_some_and(|held| held["status"]["attached"] == true);
        rig.until("it is attached", attached).await;
        rig.delete::<api::CsiDriver>(&Key::cluster(crate::played::DRIVER)).await;
        let driver = json!({"metadata": {"name": crate::played::DRIVER}, "spec": {"attachRequired": false}});
        rig.create(Kind::CSI_DRIVER, driver).await;
        rig.stays("one", "a", 30).await;
        rig.end_pod("p").await;
        rig.until_detached("one", "a").await;
    });
}

/// Rule: CTRL-14.47
#[test]
fn access_modes_that_change_count_at_once() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.node("b").await;
        rig.volume("many", "ReadWriteOnce").await;
        rig.pod("p", "a", &["many"]).await;
        rig.until_mounted("a", "many").await;
        rig.pod("q", "b", &["many"]).await;
        rig.quiet(10).await;
        assert!(rig.attachment("many", "b").await.is_none(), "it is for one node");
        rig.patch(Kind::VOLUME, &Key::cluster("pv-many"), json!({"spec": {"accessModes": ["ReadWriteMany"]}})).await;
        rig.quiet(5).await;
        assert!(rig.played.mounted("b", "many") && rig.played.mounted("a", "many"));
    });
}

/// Rule: CTRL-14.38
#[test]
fn a_pod_whose_claim_and_volume_vanish_is_detached_all_the_same() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.volume("one2", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one", "one2"]).await;
        rig.until_mounted("a", "one").await;
        rig.until_mounted("a", "one2").await;
        for name in ["one", "one2"] {
            rig.patch(Kind::CLAIM, &key(name), json!({"metadata": {"finalizers": null}})).await;
            rig.delete::<Claim>(&key(name)).await;
            let volume = Key::cluster(&format!("pv-{name}"));
            rig.patch(Kind::VOLUME, &volume, json!({"metadata": {"finalizers": null}})).await;
            rig.delete::<Volume>(&volume).await;
        }
        rig.stays("one", "a", 120).await;
        assert_eq!(rig.told("a").await.len(), 2, "what is in use stays told");
        rig.end_pod("p").await;
        rig.until_detached("one", "a").await;
        rig.until_detached("one2", "a").await;
    });
}
