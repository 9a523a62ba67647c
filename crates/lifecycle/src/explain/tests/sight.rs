//! What could not be looked at, and claims that are not there.

use api::Key;
use serde_json::json;

use super::{EARLIER, LATELY, Picture, check, empty, event, pod, row, seen};
use crate::bind::tests::{claim, read};
use crate::decision::Standing::{Settled, Stuck, Waiting};
use crate::explain::{self, Listing};

#[test]
fn what_may_not_be_read_is_said_and_never_taken_for_absent() {
    let nothing = || Picture {
        now: super::NOW,
        volumes: Listing::NotAllowed,
        classes: Listing::NotAllowed,
        pods: Listing::NotAllowed,
        leases: Listing::Failed("the server is too busy".to_owned()),
        snapshots: Listing::NotServed,
        ..Picture::default()
    };
    let waiting = claim(json!({"metadata": {"creationTimestamp": EARLIER}}));
    let named = claim(json!({"spec": {"volumeName": "v"}}));
    let bare = claim(json!({"spec": {"storageClassName": ""}}));
    let going = claim(json!({"metadata": {
        "deletionTimestamp": LATELY, "finalizers": [api::keys::finalizer::PVC_PROTECTION.text()]}}));
    let events =
        seen([event("PersistentVolumeClaim", ("c", "claim-uid"), "ProvisioningFailed", "no room\u{1b}[31m\nleft")]);
    let told = Picture { events, ..nothing() };
    let mut binder =
        event("PersistentVolumeClaim", ("c", "claim-uid"), "ProvisioningFailed", "storageclass \"fast\" not found");
    binder.by = "persistentvolume-controller".into();
    let bound_by = Picture { events: seen([binder]), ..nothing() };
    let rows = [
        row("48: no right to see classes", explain::claim(&nothing(), &waiting), Waiting, "around/not_allowed"),
        row("48: and yet an event says it", explain::claim(&told, &waiting), Waiting, "around/call_failed"),
        row("48: or the binder does", explain::claim(&bound_by, &waiting), Waiting, "around/said"),
        row("48: nor volumes", explain::claim(&nothing(), &named), Waiting, "around/not_allowed"),
        row(
            "48: nor what it could have without a class",
            explain::claim(&nothing(), &bare),
            Waiting,
            "around/not_allowed",
        ),
        row("48: nor pods", explain::claim(&nothing(), &going), Waiting, "around/not_allowed"),
    ];
    assert!(rows.iter().all(|row| !row.explanation.healthy()));
    let done = json!({"metadata": {"annotations": {api::keys::annotation::BIND_COMPLETED.text(): "yes"}},
                      "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}});
    let bound = explain::claim(&nothing(), &claim(done));
    assert!(bound.healthy(), "a user who sees only a namespace is not told that all is wrong: {bound}");
    assert_eq!((bound.standing, bound.chain[0].code), (Settled, "said_bound"));
    assert!(!rows[1].explanation.to_string().contains('\u{1b}'), "others' texts do not reach the terminal as they are");
    check("sight.txt", &rows);
}

#[test]
fn a_namespace_that_goes_takes_its_claims_with_it() {
    let namespace: api::Namespace = read(json!({"metadata": {"name": "n", "deletionTimestamp": LATELY}}));
    let picture = Picture { namespaces: seen([namespace]), ..empty() };
    let told = explain::claim(&picture, &claim(json!({"metadata": {"creationTimestamp": EARLIER}})));
    check("namespaces.txt", &[row("its namespace goes", told, Stuck, "bind/class_missing")]);
}

#[test]
fn a_claim_that_does_not_exist_is_told_with_who_wants_it_and_what_refused_it() {
    let quota: api::Quota = read(json!({
        "metadata": {"name": "team", "namespace": "n"},
        "status": {"hard": {"requests.storage": "10Gi", "persistentvolumeclaims": "5", "pods": "3"},
                   "used": {"requests.storage": "10Gi", "persistentvolumeclaims": "2", "pods": "3"}},
    }));
    let refused = "create Claim c for Pod web-0 in StatefulSet web failed: exceeded quota: team";
    let picture = Picture {
        pods: seen([pod("web-0", json!({}))]),
        events: seen([
            event("StatefulSet", ("web", "w"), "FailedCreate", refused),
            event("StatefulSet", ("web", "w"), "FailedCreate", "create Claim c-2 failed"),
        ]),
        quotas: seen([quota]),
        ..empty()
    };
    let lines = explain::missing(&picture, &Key::namespaced("n", "c"));
    let expected = [
        "pod \"web-0\" names it and waits for it".to_owned(),
        format!("StatefulSet \"web\": event FailedCreate from d.example.com_host_1, 10s ago, 7 times: {refused}"),
        "quota \"team\" is used up: requests.storage is 10Gi of 10Gi".to_owned(),
    ];
    assert_eq!(lines, expected);
    // Whoever asks about the pod is told of the quota as well.
    let told = explain::pod(&picture, &pod("web-0", json!({}))).to_string();
    assert!(told.contains(&expected[2]), "{told}");
}
