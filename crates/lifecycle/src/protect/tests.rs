use api::keys::finalizer;
use api::{AttributesClass, Claim, Pod, Volume};
use serde_json::{Value, json};

use super::{Action, Because, Pods, Users, attributes_class, claim, volume};

fn read<T: api::Object>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

const GONE: &str = "2026-01-02T03:04:05Z";

fn a_claim(deleting: bool, finalizers: &[&str]) -> Claim {
    let mut meta = json!({"name": "c", "namespace": "n", "uid": "u", "finalizers": finalizers});
    if deleting {
        meta["deletionTimestamp"] = json!(GONE);
    }
    read(json!({"metadata": meta}))
}

fn a_pod(node: &str, phase: &str) -> Pod {
    read(json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "pod"},
        "spec": {"nodeName": node, "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        "status": {"phase": phase},
    }))
}

const HELD: &[&str] = &[finalizer::PVC_PROTECTION.0];

/// Rule: PROTECT-PC4
#[test]
fn a_living_claim_gets_its_finalizer_back() {
    assert_eq!(claim(&a_claim(false, &[]), Pods::Cached(&[])).actions, [Action::AddFinalizer]);
    assert!(claim(&a_claim(false, HELD), Pods::Cached(&[])).is_rest());
}

/// Rule: PROTECT-PC2
#[test]
fn a_deleted_claim_is_kept_while_a_scheduled_pod_names_it_in_any_phase() {
    for phase in ["Pending", "Running", "Succeeded", "Failed"] {
        let pod = a_pod("node", phase);
        let verdict = claim(&a_claim(true, HELD), Pods::Live(&[&pod]));
        assert_eq!(verdict.because, Because::UsedByPod { pod: "p".into() }, "{phase}");
        assert!(verdict.is_rest());
    }
}

/// Rule: PROTECT-8.1
#[test]
fn an_unscheduled_pod_does_not_keep_a_claim() {
    let pod = a_pod("", "Pending");
    assert_eq!(claim(&a_claim(true, HELD), Pods::Live(&[&pod])).actions, [Action::RemoveFinalizer]);
}

/// Rule: PROTECT-PC3
#[test]
fn an_empty_cache_is_no_proof_and_a_live_list_is() {
    assert_eq!(claim(&a_claim(true, HELD), Pods::Cached(&[])).actions, [Action::ListPods]);
    assert_eq!(claim(&a_claim(true, HELD), Pods::Live(&[])).actions, [Action::RemoveFinalizer]);
}

/// Rule: PROTECT-8.1
#[test]
fn a_claim_without_the_finalizer_is_left_alone_when_it_goes() {
    assert!(claim(&a_claim(true, &[]), Pods::Live(&[])).is_rest());
}

fn ephemeral_pod(grace: Option<i64>) -> Pod {
    let mut meta = json!({"name": "p", "namespace": "n", "uid": "pod"});
    if let Some(grace) = grace {
        meta["deletionTimestamp"] = json!(GONE);
        meta["deletionGracePeriodSeconds"] = json!(grace);
    }
    read(json!({
        "metadata": meta,
        "spec": {"nodeName": "node", "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]},
    }))
}

/// Rule: PROTECT-8.1
#[test]
fn a_claim_made_for_a_pod_goes_once_the_node_has_finished_with_it() {
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod", "controller": true}]);
    let made: Claim = read(json!({"metadata": {
        "name": "p-v", "namespace": "n", "uid": "u", "deletionTimestamp": GONE, "finalizers": HELD, "ownerReferences": owner,
    }}));
    assert!(claim(&made, Pods::Live(&[&ephemeral_pod(None)])).is_rest());
    assert!(claim(&made, Pods::Live(&[&ephemeral_pod(Some(30))])).is_rest());
    assert_eq!(claim(&made, Pods::Live(&[&ephemeral_pod(Some(0))])).actions, [Action::RemoveFinalizer]);
}

/// Rule: PROTECT-8.2
#[test]
fn a_volume_goes_when_its_phase_is_not_bound() {
    let going = |phase: &str| -> Volume {
        let meta = json!({"name": "v", "deletionTimestamp": GONE, "finalizers": [finalizer::PV_PROTECTION.0]});
        read(json!({"metadata": meta, "status": {"phase": phase}}))
    };
    assert_eq!(volume(&going("Bound")).because, Because::Bound);
    for phase in ["Available", "Released", "Failed", "Pending"] {
        assert_eq!(volume(&going(phase)).actions, [Action::RemoveFinalizer], "{phase}");
    }
}

/// Rules: PROTECT-8.3, CTRL-14.55
#[test]
fn an_attributes_class_is_kept_by_what_is_asked_for_in_force_or_on_the_way() {
    let class: AttributesClass = read(json!({
        "metadata": {"name": "gold", "deletionTimestamp": GONE, "finalizers": [finalizer::VAC_PROTECTION.0]},
        "driverName": "d",
    }));
    let target: Claim = read(json!({
        "metadata": {"name": "c", "namespace": "n"},
        "status": {"modifyVolumeStatus": {"targetVolumeAttributesClassName": "gold"}},
    }));
    assert_eq!(super::classes_of(&target).collect::<Vec<_>>(), ["gold"]);
    assert!(attributes_class(&class, Users::Cached { claim: Some(&target), volume: None }).is_rest());
    let nobody = attributes_class(&class, Users::Cached { claim: None, volume: None });
    assert_eq!(nobody.actions, [Action::ListUsers], "CTRL-14.55: the cache alone does not let it go");
    let nobody = attributes_class(&class, Users::Live { claim: None, volume: None });
    assert_eq!(nobody.actions, [Action::RemoveFinalizer]);
}
