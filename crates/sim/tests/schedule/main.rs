//! The scheduler on the API server, beside the binder and a provisioner that does as it is told (SCHED-5).
//!
//! `crashes` breaks off between any two writes, `races` lets pods compete, `turns` changes the world while a pod waits.

mod crashes;
mod races;
mod rig;
mod turns;

use api::keys::{annotation, provisioner};
use rig::{claim, claimed, class, in_rig, node, pod, volume};
use serde_json::json;

/// Rules: SCHED-5.6.1, SCHED-5.6.2, SCHED-5.7
#[test]
fn a_pod_waits_for_its_volumes_and_then_goes() {
    in_rig(|rig| async move {
        rig.nodes(&["a", "b"]).await;
        rig.create(class("late")).await;
        rig.create(volume("v", "2Gi", Some("b"))).await;
        rig.create(claim("little", "1Gi")).await;
        rig.create(claim("large", "9Gi")).await;
        rig.create(pod("p", &["little", "large"])).await;
        let pod = rig.scheduled("p").await;
        assert_eq!(pod["spec"]["nodeName"], "b", "the volume that exists can be reached only from there");
        let held = rig.get("persistentvolumes", "v").await;
        assert_eq!(held["spec"]["claimRef"]["name"], "little");
        assert_eq!(held["metadata"]["annotations"][annotation::BOUND_BY_CONTROLLER.0], "yes");
        let made = rig.get("persistentvolumeclaims", "large").await;
        assert_eq!(made["metadata"]["annotations"][annotation::SELECTED_NODE.0], "b");
        let condition = pod["status"]["conditions"].as_array().into_iter().flatten();
        assert!(condition.clone().any(|one| one["type"] == "PodScheduled" && one["status"] == "True"), "{pod}");
        rig.told("p", "Scheduled", "Successfully assigned default/p to b").await;
        assert_eq!(rig.writes_of("scheduler"), 3, "one per claim and one for the pod: {:#?}", rig.journal());
    });
}

/// Rules: SCHED-5.1, SCHED-5.8
#[test]
fn a_pod_says_why_no_node_will_have_it_and_goes_when_that_changes() {
    in_rig(|rig| async move {
        rig.nodes(&["a"]).await;
        rig.create(pod("p", &["c"])).await;
        rig.unscheduled("p", r#"0/1 nodes are available: persistentvolumeclaim "c" not found."#).await;
        rig.create(claim("c", "1Gi")).await;
        rig.unscheduled("p", "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.").await;
        let mut bare = class("late");
        bare["provisioner"] = json!(provisioner::NONE);
        rig.create(bare).await;
        let nothing = "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind.";
        rig.unscheduled("p", nothing).await;
        rig.told("p", "FailedScheduling", nothing).await;
        rig.create(volume("v", "2Gi", None)).await;
        rig.scheduled("p").await;
        assert_eq!(claimed(&rig.get("persistentvolumes", "v").await), Some("c"));
    });
}

/// Rule: SCHED-5.8
#[test]
fn a_node_that_comes_or_is_opened_wakes_those_who_wait() {
    in_rig(|rig| async move {
        rig.create(pod("p", &[])).await;
        rig.unscheduled("p", "no nodes available to schedule pods").await;
        let mut shut = node("a");
        shut["spec"] = json!({"unschedulable": true});
        rig.create(shut).await;
        rig.unscheduled("p", "0/1 nodes are available: 1 node(s) were unschedulable.").await;
        rig.open("a").await;
        rig.scheduled("p").await;
    });
}

#[test]
fn pods_of_others_and_gated_ones_are_left_alone() {
    in_rig(|rig| async move {
        rig.nodes(&["a"]).await;
        let mut others = pod("others", &[]);
        others["spec"]["schedulerName"] = json!("somebody");
        rig.create(others).await;
        let mut gated = pod("gated", &[]);
        gated["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
        rig.create(gated).await;
        rig.create(pod("ours", &[])).await;
        rig.scheduled("ours").await;
        rig.settle().await;
        assert_eq!(rig.get("pods", "others").await["spec"]["nodeName"], json!(null));
        assert_eq!(rig.get("pods", "gated").await["spec"]["nodeName"], json!(null));
        rig.patch("pods", "gated", json!({"spec": {"schedulingGates": null}})).await;
        rig.scheduled("gated").await;
    });
}
