//! The world changes while a pod waits for its volumes.

use std::time::Duration;

use api::keys::{annotation, provisioner};
use control::schedule::Options;
use serde_json::{Value, json};

use crate::rig::{Rig, claim, class, in_faulty_rig, in_rig, pod, volume};

const SELECTED: &str = annotation::SELECTED_NODE.0;

fn selected(claim: &Value) -> Option<&str> {
    claim["metadata"]["annotations"][SELECTED].as_str()
}

async fn meant_for(rig: &Rig, name: &str, node: &str) {
    rig.until("persistentvolumeclaims", name, "meant for the node", |claim| selected(claim) == Some(node)).await;
}

/// Rule: SCHED-K8
#[test]
fn where_nothing_can_be_made_another_node_is_tried() {
    in_rig(|rig| async move {
        rig.nodes(&["a", "b", "c"]).await;
        rig.create(class("late")).await;
        rig.fill("a");
        rig.fill("b");
        rig.create(claim("c", "1Gi")).await;
        rig.create(pod("p", &["c"])).await;
        let pod = rig.scheduled("p").await;
        assert_eq!(pod["spec"]["nodeName"], "c");
        rig.told("p", "FailedScheduling", "binding volumes: provisioning failed for PVC \"c\"").await;
    });
}

/// Rule: CTRL-14.23
#[test]
fn siblings_of_a_claim_that_cannot_be_made_are_freed() {
    in_rig(|rig| async move {
        rig.nodes(&["a", "b"]).await;
        rig.create(class("late")).await;
        // As an earlier scheduler left it: one claim is meant for a node where the other can have nothing.
        rig.sleep(true);
        let mut first = claim("c", "1Gi");
        first["metadata"]["annotations"] = json!({SELECTED: "a"});
        rig.create(first).await;
        let mut bare = class("bare");
        bare["provisioner"] = json!(provisioner::NONE);
        rig.create(bare).await;
        let mut second = claim("d", "1Gi");
        second["spec"]["storageClassName"] = json!("bare");
        rig.create(second).await;
        let mut only = volume("v", "2Gi", Some("b"));
        only["spec"]["storageClassName"] = json!("bare");
        rig.create(only).await;
        rig.create(pod("p", &["c", "d"])).await;
        meant_for(&rig, "c", "b").await;
        rig.sleep(false);
        assert_eq!(rig.scheduled("p").await["spec"]["nodeName"], "b");
    });
}

/// Rules: SCHED-K1, CTRL-14.29
#[test]
fn a_node_that_goes_away_frees_its_claims() {
    in_rig(|rig| async move {
        rig.nodes(&["a"]).await;
        rig.create(class("late")).await;
        rig.sleep(true);
        rig.create(claim("c", "1Gi")).await;
        rig.create(pod("p", &["c"])).await;
        meant_for(&rig, "c", "a").await;
        rig.nodes(&["b"]).await;
        rig.delete_node("a").await;
        meant_for(&rig, "c", "b").await;
        rig.sleep(false);
        assert_eq!(rig.scheduled("p").await["spec"]["nodeName"], "b");
    });
}

/// Rule: SCHED-K1
#[test]
fn a_pod_that_goes_leaves_its_promises_to_others() {
    in_rig(|rig| async move {
        rig.nodes(&["a"]).await;
        rig.create(class("late")).await;
        rig.create(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "a"},
            "spec": {"drivers": [{"name": "d.example.com", "nodeID": "a", "allocatable": {"count": 1}}]}}))
            .await;
        rig.sleep(true);
        for (claimed, name) in [("c", "p"), ("d", "q")] {
            rig.create(claim(claimed, "1Gi")).await;
            rig.create(pod(name, &[claimed])).await;
        }
        meant_for(&rig, "c", "a").await;
        rig.unscheduled("q", "0/1 nodes are available: 1 node(s) exceed max volume count.").await;
        rig.delete_pod("p").await;
        meant_for(&rig, "d", "a").await;
        rig.sleep(false);
        rig.scheduled("q").await;
    });
}

/// Rule: SCHED-K3
#[test]
fn a_volume_that_moves_out_of_reach_while_a_pod_waits_ends_the_plan() {
    in_rig(|rig| async move {
        rig.nodes(&["a"]).await;
        rig.create(class("late")).await;
        rig.sleep(true);
        rig.create(volume("v", "2Gi", None)).await;
        rig.create(claim("c", "1Gi")).await;
        rig.create(claim("d", "9Gi")).await;
        rig.create(pod("p", &["c", "d"])).await;
        meant_for(&rig, "d", "a").await;
        rig.until("persistentvolumeclaims", "c", "bound", |claim| claim["status"]["phase"] == "Bound").await;
        // Its volume moves out of reach.
        let before = rig.get("persistentvolumes", "v").await;
        let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]});
        rig.patch(
            "persistentvolumes",
            "v",
            json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}}),
        )
        .await;
        let elsewhere = "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity.";
        rig.unscheduled("p", elsewhere).await;
        rig.told("p", "FailedScheduling", "binding volumes: pv \"v\" node affinity doesn't match node \"a\"").await;
        assert!(before["spec"]["nodeAffinity"].is_null());
    });
}

/// Rules: SCHED-5.6.3, CTRL-I11
#[test]
fn a_provisioner_that_never_answers_is_given_up_after_the_bind_timeout() {
    let options = Options { bind_timeout: Duration::from_secs(600), ..Options::default() };
    in_faulty_rig(None, options, |rig| async move {
        rig.nodes(&["a", "b"]).await;
        rig.create(class("late")).await;
        rig.sleep(true);
        rig.create(claim("c", "1Gi")).await;
        rig.create(pod("p", &["c"])).await;
        let late = "binding volumes: timed out waiting for persistentvolumeclaim \"c\" to be bound";
        rig.unscheduled("p", late).await;
        // The mark is the provisioner's to take away: nobody else is asked (CTRL-I11).
        meant_for(&rig, "c", "a").await;
        let writes = rig.writes_of("scheduler");
        assert!(writes <= 3, "{writes} writes in ten minutes: {:#?}", rig.journal());
        rig.sleep(false);
        assert_eq!(rig.scheduled("p").await["spec"]["nodeName"], "a");
    });
}

#[test]
fn a_pod_of_the_same_name_is_another_pod() {
    in_rig(|rig| async move {
        rig.nodes(&["a", "b"]).await;
        rig.create(class("late")).await;
        rig.sleep(true);
        rig.create(claim("c", "1Gi")).await;
        rig.create(pod("p", &["c"])).await;
        meant_for(&rig, "c", "a").await;
        rig.delete_pod("p").await;
        let mut second = pod("p", &[]);
        second["spec"]["nodeSelector"] = json!({"zone": "b"});
        rig.create(second).await;
        assert_eq!(rig.scheduled("p").await["spec"]["nodeName"], "b");
    });
}

#[test]
fn a_binding_is_for_one_uid_and_somebody_elses_binding_is_respected() {
    in_rig(|rig| async move {
        rig.nodes(&["a", "b"]).await;
        rig.create(class("late")).await;
        rig.sleep(true);
        rig.create(claim("c", "1Gi")).await;
        let made = rig.create(pod("p", &["c"])).await;
        meant_for(&rig, "c", "a").await;
        let refused = rig.bind_pod("p", "another", "b").await.expect_err("it is another pod");
        assert!(refused.is_conflict() && refused.to_string().contains("UID in precondition: another"), "{refused}");
        let uid = made["metadata"]["uid"].as_str().unwrap_or_default();
        rig.bind_pod("p", uid, "b").await.expect("the pod has no node yet");
        rig.sleep(false);
        rig.settle().await;
        assert_eq!(rig.get("pods", "p").await["spec"]["nodeName"], "b");
        assert_eq!(rig.writes_of("scheduler"), 1, "only the mark on the claim: {:#?}", rig.journal());
    });
}

/// Rules: SCHED-5.8, CTRL-14.28
#[test]
fn what_a_class_or_a_driver_says_later_wakes_those_who_wait() {
    in_rig(|rig| async move {
        rig.nodes(&["a"]).await;
        let mut elsewhere = class("late");
        let term = |zone: &str| json!([{"matchLabelExpressions": [{"key": "zone", "values": [zone]}]}]);
        elsewhere["allowedTopologies"] = term("z");
        rig.create(elsewhere).await;
        rig.create(claim("c", "1Gi")).await;
        rig.create(pod("p", &["c"])).await;
        let nothing = "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind.";
        rig.unscheduled("p", nothing).await;
        rig.create(
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "d.example.com"},
                          "spec": {"storageCapacity": true}}),
        )
        .await;
        rig.patch("storageclasses", "late", json!({"allowedTopologies": term("a")})).await;
        rig.unscheduled("p", "0/1 nodes are available: 1 node(s) did not have enough free storage.").await;
        rig.patch("csidrivers", "d.example.com", json!({"spec": {"storageCapacity": false}})).await;
        rig.scheduled("p").await;
    });
}
