//! Nodes that are lost, gone, fenced, or come back: a detach is forced on evidence only (ATTACH-6.4, CTRL-14.39 to
//! CTRL-14.42).

use std::time::Duration;

use api::keys::{annotation, provisioner, taint};
use api::{Key, Kind, Node};
use control::attach::Options;
use serde_json::json;
use sim::faults::Fair;

use crate::played::unique;
use crate::rig::{Late, Rig, at_every_request, calm, play};

/// A pod with a volume on node a, which then stops working; a pod on node b wants the volume.
async fn lost(rig: &Rig) {
    rig.node("a").await;
    rig.node("b").await;
    rig.volume("one", "ReadWriteOnce").await;
    rig.pod("p", "a", &["one"]).await;
    rig.until_mounted("a", "one").await;
    rig.played.storage().orders.dead.insert("a".to_owned());
    rig.ready("a", "Unknown").await;
    rig.end_pod("p").await;
    rig.pod("q", "b", &["one"]).await;
}

async fn taint(rig: &Rig, node: &str) {
    let taints = json!([{"key": taint::OUT_OF_SERVICE.text(), "value": "nodeshutdown", "effect": "NoExecute"}]);
    rig.patch(Kind::NODE, &Key::cluster(node), json!({"spec": {"taints": taints}})).await;
}

#[test]
fn a_lost_node_keeps_its_volume_for_ever_and_who_waits_is_told_what_would_help() {
    calm(async |rig: &Rig| {
        lost(rig).await;
        rig.stays("one", "a", 1800).await;
        let events = rig.events("FailedAttachVolume").await;
        let helps = |text: &String| {
            ["node \"a\" has it", "not ready", taint::OUT_OF_SERVICE.text(), "Node object is deleted"]
                .iter()
                .all(|part| text.contains(part))
        };
        assert!(events.iter().any(helps), "{events:?}");
        assert_eq!(rig.events("ForcedDetachVolume").await, Vec::<String>::new());
        // The node comes back and finishes its work.
        rig.played.storage().orders.dead.clear();
        rig.ready("a", "True").await;
        rig.until_mounted("b", "one").await;
    });
}

/// Rules: ATTACH-D6, ATTACH-D9
#[test]
fn a_node_out_of_service_loses_its_volumes_at_every_fault() {
    at_every_request(async |rig: &Rig| {
        lost(rig).await;
        rig.quiet(10).await;
        taint(rig, "a").await;
        rig.until_mounted("b", "one").await;
        assert_eq!(rig.told("a").await, Vec::<String>::new());
    });
}

/// Rules: ATTACH-D11, CTRL-14.49
#[test]
fn a_forced_detach_is_an_event_and_counted_with_its_evidence() {
    calm(async |rig: &Rig| {
        lost(rig).await;
        taint(rig, "a").await;
        rig.until_mounted("b", "one").await;
        let events = rig.events("ForcedDetachVolume").await;
        let named = ["\"pv-one\"", "node \"a\"", taint::OUT_OF_SERVICE.text()];
        assert!(events.len() == 1 && named.iter().all(|part| events[0].contains(part)), "{events:?}");
        let metrics = rig.metrics();
        let plugin = format!("{}:{}", provisioner::CSI, crate::played::DRIVER);
        let took = |operation: &str, count: u64| {
            format!(
                "storage_operation_duration_seconds_count{{volume_plugin=\"{plugin}\",operation_name=\"{operation}\",\
                 status=\"success\",migrated=\"false\"}} {count}"
            )
        };
        let total = format!("attachdetach_controller_total_volumes{{plugin_name=\"{plugin}\",state=");
        for line in [
            "attach_detach_controller_attachdetach_controller_forced_detaches{reason=\"out-of-service\"} 1".to_owned(),
            format!("storage_count_attachable_volumes_in_use{{node=\"b\",volume_plugin=\"{plugin}\"}} 1"),
            format!("{total}\"actual_state_of_world\"}} 1"),
            format!("{total}\"desired_state_of_world\"}} 1"),
            took("volume_attach", 2),
            took("volume_detach", 1),
        ] {
            assert!(metrics.lines().any(|shown| shown == line), "{line}\n{metrics}");
        }
    });
}

/// Rule: CTRL-14.41
#[test]
fn the_taint_on_a_node_that_works_forces_nothing() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.until_mounted("a", "one").await;
        rig.played.storage().orders.stuck.insert("a".to_owned());
        taint(rig, "a").await;
        rig.end_pod("p").await;
        rig.stays("one", "a", 1800).await;
        rig.played.storage().orders.stuck.clear();
        rig.until_detached("one", "a").await;
    });
}

/// Rule: CTRL-13.44
#[test]
fn a_busy_mount_on_a_node_that_works_is_waited_for() {
    play(Options { force_after: Some(Duration::from_secs(60)), ..Options::default() }, Fair, async |rig: &Rig| {
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.until_mounted("a", "one").await;
        rig.played.storage().orders.stuck.insert("a".to_owned());
        rig.end_pod("p").await;
        rig.stays("one", "a", 1800).await;
    });
}

/// Rule: CTRL-14.39
#[test]
fn time_forces_only_if_the_operator_said_so_and_a_restart_measures_it_again() {
    play(Options { force_after: Some(Duration::from_secs(360)), ..Options::default() }, Fair, async |rig: &Rig| {
        lost(rig).await;
        rig.stays("one", "a", 200).await;
        rig.end().await;
        rig.begin();
        // The new process has not seen those 200 s, and the time that the node's condition tells is not compared.
        rig.stays("one", "a", 340).await;
        rig.quiet(30).await;
        assert!(rig.played.mounted("b", "one"), "six minutes are over, and nothing else happened");
        let events = rig.events("ForcedDetachVolume").await;
        assert!(events[0].contains("--force-detach-after"), "{events:?}");
    });
}

#[test]
fn the_clock_of_the_machine_that_wrote_a_nodes_condition_forces_nothing() {
    play(Options { force_after: Some(Duration::from_secs(360)), ..Options::default() }, Fair, async |rig: &Rig| {
        lost(rig).await;
        // Whoever wrote this has a clock that is years behind.
        let condition = json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": "2001-01-01T00:00:00Z"});
        rig.patch_status(Kind::NODE, &Key::cluster("a"), json!({"conditions": [condition]})).await;
        rig.stays("one", "a", 340).await;
        rig.quiet(40).await;
        assert!(rig.played.mounted("b", "one"), "this controller has seen it for six minutes");
    });
}

#[test]
fn a_node_object_that_is_gone_frees_its_volumes_once_its_pods_are_gone_at_every_fault() {
    at_every_request(async |rig: &Rig| {
        rig.node("a").await;
        rig.node("b").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.until_mounted("a", "one").await;
        rig.played.storage().orders.dead.insert("a".to_owned());
        rig.delete::<Node>(&Key::cluster("a")).await;
        rig.stays("one", "a", 60).await;
        rig.end_pod("p").await;
        rig.pod("q", "b", &["one"]).await;
        rig.until_mounted("b", "one").await;
    });
}

/// Rule: CTRL-14.34
#[test]
fn a_node_that_is_gone_when_its_status_is_written_is_recognised() {
    // The controller still sees the node, and only the answer to its write says otherwise.
    play(Options::default(), Late::new("/api/v1/nodes", Duration::from_secs(60)), async |rig: &Rig| {
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.until_mounted("a", "one").await;
        rig.quiet(120).await;
        rig.played.storage().orders.dead.insert("a".to_owned());
        // The agent let go of it before its machine was taken away.
        rig.patch_status(Kind::NODE, &Key::cluster("a"), json!({"volumesInUse": []})).await;
        rig.quiet(120).await;
        rig.delete::<Node>(&Key::cluster("a")).await;
        rig.end_pod("p").await;
        rig.quiet(5).await;
        assert!(rig.attachment("one", "a").await.is_none());
    });
}

#[test]
fn what_the_driver_took_away_is_free_although_the_node_is_lost() {
    calm(async |rig: &Rig| {
        lost(rig).await;
        rig.stays("one", "a", 60).await;
        rig.played.fence("a", "one").await;
        rig.quiet(5).await;
        rig.played.storage().orders.asleep = false;
        rig.until_mounted("b", "one").await;
        let events = rig.events("ForcedDetachVolume").await;
        assert!(events.len() == 1 && events[0].contains("not published to the node"), "{events:?}");
    });
}

/// Rule: CTRL-13.42
#[test]
fn a_node_that_was_made_anew_is_told_again_at_every_fault() {
    at_every_request(async |rig: &Rig| {
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.until_mounted("a", "one").await;
        rig.delete::<Node>(&Key::cluster("a")).await;
        rig.node("a").await;
        let told = async || rig.told("a").await == [unique("one")];
        rig.until("the new node is told", told).await;
        rig.stays("one", "a", 5).await;
        rig.end_pod("p").await;
        rig.until_detached("one", "a").await;
    });
}

/// Rule: CTRL-13.42
#[test]
fn a_new_node_object_frees_nothing_before_its_agent_speaks() {
    calm(async |rig: &Rig| {
        rig.node("a").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.until_mounted("a", "one").await;
        rig.played.storage().orders.dead.insert("a".to_owned());
        rig.delete::<Node>(&Key::cluster("a")).await;
        let annotations = json!({annotation::MANAGED_ATTACH.text(): "true"});
        rig.quiet(2).await;
        rig.create(Kind::NODE, json!({"metadata": {"name": "a", "annotations": annotations}})).await;
        rig.end_pod("p").await;
        rig.stays("one", "a", 600).await;
        rig.played.storage().orders.dead.clear();
        rig.stays("one", "a", 1).await;
        rig.ready("a", "True").await;
        rig.until_detached("one", "a").await;
    });
}

/// Rules: ATTACH-6.1, CTRL-14.44
#[test]
fn a_node_that_attaches_by_itself_is_left_alone_and_can_change_its_mind() {
    calm(async |rig: &Rig| {
        let key = Key::cluster("a");
        rig.create(Kind::NODE, json!({"metadata": {"name": "a"}})).await;
        rig.ready("a", "True").await;
        rig.volume("one", "ReadWriteOnce").await;
        rig.pod("p", "a", &["one"]).await;
        rig.quiet(60).await;
        assert!(rig.attachment("one", "a").await.is_none());
        let managed = json!({annotation::MANAGED_ATTACH.text(): "true"});
        rig.patch(Kind::NODE, &key, json!({"metadata": {"annotations": managed}})).await;
        rig.until_mounted("a", "one").await;
        let own = json!({annotation::MANAGED_ATTACH.text(): null});
        rig.patch(Kind::NODE, &key, json!({"metadata": {"annotations": own}})).await;
        rig.end_pod("p").await;
        rig.stays("one", "a", 60).await;
    });
}
