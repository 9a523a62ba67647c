use api::keys::provisioner;

use super::super::place::Why;
use super::*;
use crate::decision::Reason as _;

#[test]
fn a_pod_without_claims_goes_to_the_emptiest_node_and_of_equals_to_the_first() {
    let mut world = World::new();
    assert_eq!(world.placed(&pod("p", &[], json!({}))), Ok(("a".into(), vec![])));
    put!(world, pods, pod("other", &[], json!({"spec": {"nodeName": "a"}})));
    assert_eq!(world.placed(&pod("p", &[], json!({}))).map(|(node, _)| node), Ok("b".into()));
}

/// Rule: SCHED-5.1
#[test]
fn claims_are_looked_at_before_nodes() {
    let mut world = World::new();
    let uses = |claims: &[&str]| pod("p", claims, json!({}));
    let told = |world: &World| world.refusal(&uses(&["c"]));
    assert_eq!(told(&world), r#"0/2 nodes are available: persistentvolumeclaim "c" not found."#);
    put!(world, claims, claim("c", json!({"spec": {"volumeName": "v"}, "status": {"phase": "Lost"}})));
    let lost = r#"0/2 nodes are available: persistentvolumeclaim "c" bound to non-existent persistentvolume "v"."#;
    assert_eq!(told(&world), lost);
    put!(world, claims, claim("c", json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}})));
    assert_eq!(told(&world), r#"0/2 nodes are available: persistentvolumeclaim "c" is being deleted."#);
}

/// Rule: SCHED-5.1
#[test]
fn a_claim_made_for_a_pod_is_waited_for_and_a_strangers_is_refused() {
    let mut world = World::new();
    let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]);
    let pod = pod("p", &[], json!({"spec": {"volumes": volumes}}));
    let waiting = r#"waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch""#;
    assert_eq!(world.refusal(&pod), format!("0/2 nodes are available: {waiting}."));
    put!(world, claims, claim("p-scratch", json!({})));
    let strange = "PVC n/p-scratch was not created for pod n/p (pod is not owner)";
    assert_eq!(world.refusal(&pod), format!("0/2 nodes are available: {strange}."));
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p-uid", "controller": true}]);
    put!(world, claims, claim("p-scratch", json!({"metadata": {"ownerReferences": owner}})));
    assert_eq!(world.placed(&pod), Ok(("a".into(), vec![Means::Make])));
}

/// Rule: SCHED-5.1
#[test]
fn a_claim_that_does_not_wait_for_a_pod_has_to_be_bound_first() {
    let immediate = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    let mut world = World::new();
    put!(world, classes, class("now", json!({"volumeBindingMode": "Immediate"})));
    let rows = [
        json!({"spec": {"storageClassName": "now"}}),
        json!({"spec": {"storageClassName": "missing"}}),
        json!({"spec": {"storageClassName": ""}}),
        // Pre-bound by its user, though of a class that waits.
        json!({"spec": {"volumeName": "v"}}),
    ];
    for patch in rows {
        put!(world, claims, claim("c", patch.clone()));
        assert_eq!(world.refusal(&pod("p", &["c"], json!({}))), immediate, "{patch}");
    }
}

/// Rule: SCHED-F1
#[test]
fn a_bound_volume_decides_where() {
    let mut world = World::new();
    put!(world, claims, claim("c", bound_to("v")));
    let pod = pod("p", &["c"], json!({}));
    let gone = "0/2 nodes are available: 2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s).";
    assert_eq!(world.refusal(&pod), gone);
    put!(world, volumes, volume("v", over(reference("c"), only_in("b"))));
    assert_eq!(world.placed(&pod), Ok(("b".into(), vec![Means::Bound])));
    put!(world, volumes, volume("v", over(reference("c"), only_in("c"))));
    let elsewhere = "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity.";
    assert_eq!(world.refusal(&pod), elsewhere);
}

/// Rule: SCHED-F2
#[test]
fn a_claim_meant_for_a_node_goes_nowhere_else() {
    let mut world = World::new();
    put!(world, claims, claim("c", meant_for("b")));
    assert_eq!(world.placed(&pod("p", &["c"], json!({}))), Ok(("b".into(), vec![Means::Make])));
    put!(world, nodes, node("b", json!({"spec": {"unschedulable": true}})));
    let refused = "0/2 nodes are available: 1 node(s) didn't find available persistent volumes to bind, \
                   1 node(s) were unschedulable.";
    assert_eq!(world.refusal(&pod("p", &["c"], json!({}))), refused);
}

/// Rule: SCHED-F3
#[test]
fn sizes_that_cross_are_matched_smallest_first_and_no_volume_twice() {
    let mut world = World::new();
    put!(world, volumes, volume("big", over(only_in("b"), json!({"spec": {"capacity": {"storage": "9Gi"}}}))));
    put!(world, volumes, volume("small", only_in("b")));
    put!(world, classes, class("late", json!({"provisioner": provisioner::NONE})));
    put!(world, claims, claim("large", json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}})));
    put!(world, claims, claim("little", json!({})));
    let means = vec![volume_means("big"), volume_means("small")];
    assert_eq!(world.placed(&pod("p", &["large", "little"], json!({}))), Ok(("b".into(), means)));
}

/// Rule: SCHED-F4
#[test]
fn a_class_without_a_provisioner_needs_a_volume() {
    let mut world = World::new();
    put!(world, claims, claim("c", json!({})));
    put!(world, classes, class("late", json!({"provisioner": provisioner::NONE})));
    let refused = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.";
    assert_eq!(world.refusal(&pod("p", &["c"], json!({}))), refused);
}

/// Rule: SCHED-F4
#[test]
fn a_class_says_in_which_topologies_volumes_are_made() {
    let mut world = World::new();
    put!(world, claims, claim("c", json!({})));
    let only =
        |zone: &str| json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": [zone]}]}]});
    put!(world, classes, class("late", only("b")));
    assert_eq!(world.placed(&pod("p", &["c"], json!({}))), Ok(("b".into(), vec![Means::Make])));
    put!(world, classes, class("late", only("z")));
    assert!(world.refusal(&pod("p", &["c"], json!({}))).contains("2 node(s) didn't find available"));
    // A term without expressions matches nothing.
    put!(world, classes, class("late", json!({"allowedTopologies": [{}]})));
    assert!(world.placed(&pod("p", &["c"], json!({}))).is_err());
}

/// Rules: CTRL-14.30, CTRL-14.3
#[test]
fn a_volume_that_names_the_claim_is_waited_for_and_nothing_is_made_instead() {
    let mut world = World::new();
    put!(world, claims, claim("c", json!({})));
    // CTRL-14.30: of another class, which the binder accepts all the same.
    let reserved = over(over(reference("c"), only_in("b")), json!({"spec": {"storageClassName": "other"}}));
    put!(world, volumes, volume("v", reserved));
    let means = vec![Means::Designated { volume: Word::new("v") }];
    assert_eq!(world.placed(&pod("p", &["c"], json!({}))), Ok(("b".into(), means)));
    put!(world, volumes, volume("v", over(reference("c"), json!({"spec": {"capacity": {"storage": "1Gi"}}}))));
    let told = world.refusal(&pod("p", &["c"], json!({})));
    let want = r#"persistentvolume "v" is reserved for persistentvolumeclaim "c" and does not suit it: requested PV is too small"#;
    assert_eq!(told, format!("0/2 nodes are available: {want}."));
}

/// Rules: SCHED-5.5.1, CTRL-I12, CTRL-13.29
#[test]
fn two_pods_in_flight_never_share_a_volume() {
    let mut world = World::new();
    put!(world, classes, class("late", json!({"provisioner": provisioner::NONE})));
    put!(world, volumes, volume("v", json!({})));
    put!(world, claims, claim("c", json!({})));
    put!(world, claims, claim("d", json!({})));
    let (first, second) = (pod("p", &["c"], json!({})), pod("q", &["d"], json!({})));
    let mut book = world.book();
    book.assume(assignment(&first, "a", &[("c", volume_means("v"))]), &world);
    assert!(outcome(place(&second, &world, &book, NOW)).is_err());
    assert!(book.release(&first.meta.key, &world, NOW).is_empty());
    assert!(outcome(place(&second, &world, &book, NOW)).is_ok());
}

/// Rule: CTRL-13.28
#[test]
fn two_pods_with_one_claim_go_where_the_first_one_goes() {
    let mut world = World::new();
    put!(world, claims, claim("c", json!({})));
    put!(world, volumes, volume("v", only_in("b")));
    let (first, second) = (pod("p", &["c"], json!({})), pod("q", &["c"], json!({})));
    let mut book = world.book();
    book.assume(assignment(&first, "b", &[("c", Means::Make)]), &world);
    assert_eq!(outcome(place(&second, &world, &book, NOW)), Ok(("b".into(), vec![Means::Make])));
    let _ = book.release(&first.meta.key, &world, NOW);
    book.assume(assignment(&first, "b", &[("c", volume_means("v"))]), &world);
    assert_eq!(outcome(place(&second, &world, &book, NOW)), Ok(("b".into(), vec![volume_means("v")])));
}

/// Rule: SCHED-5.9
#[test]
fn a_claim_for_one_pod_only_is_not_shared() {
    let mut world = World::new();
    put!(world, claims, claim("c", json!({"spec": {"accessModes": ["ReadWriteOncePod"]}})));
    let waiting = pod("p", &["c"], json!({}));
    put!(world, pods, pod("user", &["c"], json!({"spec": {"nodeName": "a"}})));
    let told = world.refusal(&waiting);
    assert!(told.contains("2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod"), "{told}");
    put!(world, pods, pod("user", &["c"], json!({"spec": {"nodeName": "a"}, "status": {"phase": "Succeeded"}})));
    assert!(world.placed(&waiting).is_ok());
    // A pod that is only meant for a node counts as well.
    let mut book = world.book();
    book.assume(assignment(&pod("q", &["c"], json!({})), "a", &[("c", Means::Make)]), &world);
    assert!(outcome(place(&waiting, &world, &book, NOW)).is_err());
}

#[test]
fn selectors_affinity_taints_and_cordons_are_obeyed() {
    let mut world = World::new();
    let wants = |spec: Value| pod("p", &[], json!({"spec": spec}));
    let node_of = |world: &World, spec: Value| world.placed(&wants(spec)).map(|(node, _)| node);
    assert_eq!(node_of(&world, json!({"nodeSelector": {"zone": "b"}})), Ok("b".into()));
    let term = json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]});
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
    assert_eq!(node_of(&world, json!({"affinity": affinity})), Ok("b".into()));
    let nowhere = node_of(&world, json!({"nodeSelector": {"zone": "z"}}));
    assert_eq!(nowhere, Err("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.".into()));

    let tainted = json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}});
    put!(world, nodes, node("a", tainted));
    put!(world, nodes, node("b", json!({"spec": {"unschedulable": true}})));
    let refused = "0/2 nodes are available: 1 node(s) had untolerated taint {k: v}, 1 node(s) were unschedulable.";
    assert_eq!(node_of(&world, json!({})), Err(refused.into()));
    for toleration in [
        json!({"key": "k", "value": "v"}),
        json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}),
        json!({"key": "k", "operator": "Equal", "value": "v"}),
    ] {
        assert_eq!(node_of(&world, json!({"tolerations": [toleration]})), Ok("a".into()), "{toleration}");
    }
    for toleration in [
        json!({"key": "k", "value": "w"}),
        json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}),
        json!({"key": "k", "operator": "Near", "value": "v"}),
        json!({"operator": "Equal"}),
    ] {
        assert!(node_of(&world, json!({"tolerations": [toleration]})).is_err(), "{toleration}");
    }
    assert!(node_of(&world, json!({"tolerations": [{"operator": "Exists"}]})).is_ok());
}

#[test]
fn a_taint_that_only_discourages_refuses_nobody() {
    let mut world = World::new();
    for name in ["a", "b"] {
        put!(world, nodes, node(name, json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}})));
    }
    assert!(world.placed(&pod("p", &[], json!({}))).is_ok());
}

/// Rule: SCHED-5.9
#[test]
fn labels_of_a_bound_volume_keep_it_in_its_zones_volume_zone() {
    use api::keys::label;
    let mut world = World::new();
    put!(world, claims, claim("c", bound_to("v")));
    let zones = json!({"metadata": {"labels": {label::BETA_ZONE.0: "x__y"}}});
    put!(world, volumes, volume("v", over(reference("c"), zones)));
    put!(world, nodes, node("a", json!({"metadata": {"labels": {label::ZONE.0: "w"}}})));
    put!(world, nodes, node("b", json!({"metadata": {"labels": {label::ZONE.0: "y"}}})));
    let pod = pod("p", &["c"], json!({}));
    assert_eq!(world.placed(&pod).map(|(node, _)| node), Ok("b".into()), "the newer label answers for the older");
    put!(world, nodes, node("b", json!({"metadata": {"labels": {label::ZONE.0: "w"}}})));
    assert_eq!(world.refusal(&pod), "0/2 nodes are available: 2 node(s) had no available volume zone.");
    put!(world, nodes, node("b", json!({})));
    assert!(world.placed(&pod).is_ok(), "a node without such labels takes every volume");
}

#[test]
fn without_nodes_that_is_said() {
    let world = World::default();
    let verdict = world.place(&pod("p", &[], json!({})));
    assert_eq!(verdict.because.to_string(), "no nodes available to schedule pods");
    let notice = verdict.because.notice().expect("users are told");
    assert_eq!(notice.reason, "FailedScheduling");
}

/// Rule: SCHED-5.2
#[test]
fn reasons_of_affinity_and_of_binding_are_both_counted() {
    let mut world = World::new();
    put!(world, claims, claim("c", bound_to("v")));
    put!(world, volumes, volume("v", over(reference("c"), only_in("z"))));
    put!(world, claims, claim("d", json!({})));
    put!(world, classes, class("late", json!({"provisioner": ""})));
    let refused = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind, \
                   2 node(s) didn't match PersistentVolume's node affinity.";
    assert_eq!(world.refusal(&pod("p", &["c", "d"], json!({}))), refused);
}

fn unpinned(world: &World, pod: &Pod, book: &Book) -> Option<(String, Why)> {
    match place(pod, world, book, NOW).actions.into_iter().next() {
        Some(Action::Unpin { claim, why, .. }) => Some((claim.name().to_owned(), why)),
        Some(Action::Assume(_)) | None => None,
    }
}

/// Rule: CTRL-14.29
#[test]
fn a_claim_meant_for_a_node_that_is_gone_is_freed() {
    let mut world = World::new();
    put!(world, claims, claim("c", meant_for("gone")));
    let (pod, book) = (pod("p", &["c"], json!({})), world.book());
    assert_eq!(unpinned(&world, &pod, &book), Some(("c".into(), Why::NodeGone)));
    // Something was made for it already: the volume decides, not the mark.
    put!(world, volumes, volume("v", reference("c")));
    assert_eq!(unpinned(&world, &pod, &world.book()), None);
}

/// Rule: CTRL-14.23
#[test]
fn siblings_that_cannot_meet_are_freed_unless_others_count_on_them() {
    let mut world = World::new();
    put!(world, drivers, telling());
    world.capacities.push(Arc::new(capacity("of-b", "b", json!({}))));
    put!(world, claims, claim("c", meant_for("a")));
    put!(world, claims, claim("d", json!({})));
    let pod = pod("p", &["c", "d"], json!({}));
    assert_eq!(unpinned(&world, &pod, &world.book()), Some(("c".into(), Why::Apart)));
    // With nowhere to go together nothing is gained by it.
    let mut full = world.book();
    let big = super::pod("big", &["e"], json!({}));
    put!(world, claims, claim("e", json!({"spec": {"resources": {"requests": {"storage": "4Gi"}}}})));
    full.assume(assignment(&big, "b", &[("e", Means::Make)]), &world);
    assert_eq!(unpinned(&world, &pod, &full), None);
    // Another pod uses the claim: its plan is not ours to change.
    put!(world, pods, super::pod("q", &["c"], json!({})));
    assert_eq!(unpinned(&world, &pod, &world.book()), None);
}

#[test]
fn a_node_that_is_shut_does_not_free_a_claim() {
    let mut world = World::new();
    put!(world, claims, claim("c", meant_for("a")));
    put!(world, nodes, node("a", json!({"spec": {"unschedulable": true}})));
    assert_eq!(unpinned(&world, &pod("p", &["c"], json!({})), &world.book()), None);
}

#[test]
fn a_gated_pod_says_so() {
    assert!(pod("p", &[], json!({"spec": {"schedulingGates": [{"name": "wait"}]}})).gated);
    assert!(!pod("p", &[], json!({})).gated);
}
