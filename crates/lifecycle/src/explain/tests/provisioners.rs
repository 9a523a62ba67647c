//! Claims that wait for a provisioner.

use api::keys::annotation::STORAGE_PROVISIONER;
use api::{Claim, CsiDriver, CsiNode, Word};
use serde_json::json;

use super::{EARLIER, LATELY, Picture, check, empty, event, lease, row, seen};
use crate::bind::tests::{claim, class, over, read, volume};
use crate::decision::Standing::{Moving, Stuck, Waiting};
use crate::explain::{self, Begun};

const DRIVER: &str = "d.example.com";

fn asked(patch: serde_json::Value) -> Claim {
    let meta = json!({"metadata": {"creationTimestamp": EARLIER, "annotations": {STORAGE_PROVISIONER.text(): DRIVER}}});
    claim(over(meta, patch))
}

fn served() -> Picture {
    Picture { classes: seen([class("fast", json!({}))]), ..empty() }
}

fn driver() -> CsiDriver {
    read(json!({"metadata": {"name": DRIVER}}))
}

fn registered() -> CsiNode {
    read(json!({"metadata": {"name": "node-1"}, "spec": {"drivers": [{"name": DRIVER, "nodeID": "1"}]}}))
}

fn failing(message: &str) -> Picture {
    Picture {
        leases: seen([lease("d-example-com", "host_1", LATELY)]),
        drivers: seen([driver()]),
        csi_nodes: seen([registered()]),
        events: seen([event("PersistentVolumeClaim", ("c", "claim-uid"), "ProvisioningFailed", message)]),
        ..served()
    }
}

#[test]
fn it_is_said_whether_anybody_serves_the_class() {
    let claim = asked(json!({}));
    let known = Picture { drivers: seen([driver()]), csi_nodes: seen([registered()]), ..served() };
    let attacher = lease("external-attacher-leader-d-example-com", "host", LATELY);
    let others = Picture { leases: seen([attacher]), ..served() };
    let spoke = event("PersistentVolumeClaim", ("c", "claim-uid"), "Provisioning", "provisioning volume for claim");
    let speaking = Picture { events: seen([spoke]), ..served() };
    let stopped = Picture { leases: seen([lease("d-example-com", "host_1", EARLIER)]), ..served() };
    let released = Picture { leases: seen([lease("d-example-com", "", LATELY)]), ..served() };
    let runs = Picture { leases: seen([lease("d-example-com", "host_1", LATELY)]), ..served() };
    check(
        "provisioners.txt",
        &[
            row("30: nobody", explain::claim(&served(), &claim), Stuck, "around/provisioner_absent"),
            row("30: the driver is known", explain::claim(&known, &claim), Waiting, "around/provisioner_unseen"),
            row("30: its attacher runs", explain::claim(&others, &claim), Waiting, "around/provisioner_unseen"),
            row("it spoke lately", explain::claim(&speaking, &claim), Waiting, "around/provisioner_runs"),
            row("28: it stopped", explain::claim(&stopped, &claim), Stuck, "around/provisioner_silent"),
            row("28: it ended in order", explain::claim(&released, &claim), Stuck, "around/provisioner_silent"),
            row("37: it works on it", explain::claim(&runs, &claim), Waiting, "around/provisioner_runs"),
            row(
                "nobody asked it yet",
                explain::claim(&runs, &asked(json!({"metadata": {"annotations": null}}))),
                Waiting,
                "provision/not_asked",
            ),
        ],
    );
}

#[test]
fn the_last_answer_of_the_driver_is_told_with_what_it_means() {
    let claim = asked(json!({}));
    let told = |message: &str| explain::claim(&failing(message), &claim);
    let rpc =
        |code: &str, why: &str| told(&format!("failed to provision volume: rpc error: code = {code} desc = {why}"));
    let mut later = failing("rpc error: code = Unavailable desc = not yet");
    if let explain::Listing::Seen(events) = &mut later.events {
        let mut done = event("PersistentVolumeClaim", ("c", "claim-uid"), "ProvisioningSucceeded", "done");
        done.last.0 += 5;
        events.push(done);
    }
    check(
        "calls.txt",
        &[
            row("30: never", rpc("InvalidArgument", "unknown parameter \"typ\""), Stuck, "around/call_failed"),
            row("44: no room", rpc("ResourceExhausted", "pool is full"), Waiting, "around/call_failed"),
            row("42: too slow", rpc("DeadlineExceeded", "context deadline exceeded"), Waiting, "around/call_failed"),
            row("43: no rights", rpc("PermissionDenied", "token expired"), Waiting, "around/call_failed"),
            row(
                "in our own words",
                told("/csi.v1.Controller/CreateVolume: OutOfRange: at most 16Ti"),
                Waiting,
                "around/call_failed",
            ),
            row("no status", told("error getting secret: not found"), Waiting, "around/call_failed"),
            row(
                "49: a secret is missing",
                told("failed to provision volume with StorageClass \"fast\": the secret n/creds does not exist"),
                Waiting,
                "around/call_failed",
            ),
            row(
                "a selector",
                told("failed to provision volume with StorageClass \"fast\": claim Selector is not supported"),
                Waiting,
                "around/call_failed",
            ),
            row("an old answer", explain::claim(&later, &claim), Waiting, "around/provisioner_runs"),
        ],
    );
}

#[test]
fn what_was_begun_and_what_is_in_its_way_is_told() {
    let claim = asked(json!({}));
    let begun = Begun {
        claim: "claim-uid".into(),
        key: None,
        by: Word::new(DRIVER),
        volume: "pvc-claim-uid".into(),
        node: Some("node-1".into()),
    };
    let runs = || Picture { leases: seen([lease("d-example-com", "host_1", LATELY)]), ..served() };
    let open = Picture { intents: seen([begun]), ..runs() };
    let stranger = volume("pvc-claim-uid", json!({"status": {"phase": "Released"}}));
    let taken = Picture { volumes: seen([stranger]), ..runs() };
    let unasked = asked(json!({"metadata": {"annotations": null}}));
    check(
        "begun.txt",
        &[
            row("1: a creation was begun", explain::claim(&open, &claim), Waiting, "around/provisioner_runs"),
            row("1: without an annotation", explain::claim(&open, &unasked), Waiting, "around/provisioner_runs"),
            row("2: the name is taken", explain::claim(&taken, &claim), Stuck, "provision/name_taken"),
        ],
    );
    assert!(Moving < Waiting, "a creation that moves is not worse off than what it waits for");
}

#[test]
fn a_source_that_cannot_be_used_yet_is_named_with_what_is_wrong_with_it() {
    let runs = || Picture { leases: seen([lease("d-example-com", "host_1", LATELY)]), ..served() };
    let snapshot = |status: serde_json::Value| -> api::Snapshot {
        read(json!({"metadata": {"name": "s", "namespace": "n"}, "status": status}))
    };
    let restoring = asked(json!({"spec": {"dataSource": {
        "apiGroup": api::Kind::SNAPSHOT.group, "kind": "VolumeSnapshot", "name": "s"}}}));
    let cloning = asked(json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "source"}}}));
    let crossing = asked(json!({"spec": {"dataSourceRef": {
        "kind": "PersistentVolumeClaim", "name": "source", "namespace": "other"}}}));
    let strange = asked(json!({"spec": {"dataSourceRef": {"apiGroup": "example.org", "kind": "Web", "name": "w"}}}));
    let source = |patch: serde_json::Value| claim(over(json!({"metadata": {"name": "source", "uid": "s"}}), patch));
    let broken = json!({"readyToUse": false, "error": {"message": "backend refused"}});
    let with = |snapshots| Picture { snapshots, ..runs() };
    let from = |patch| Picture { claims: seen([source(patch)]), ..runs() };
    let large = json!({"status": {"phase": "Bound", "capacity": {"storage": "9Gi"}}});
    check(
        "sources.txt",
        &[
            row("15: no snapshot", explain::claim(&with(seen([])), &restoring), Stuck, "around/source"),
            row("15: not ready", explain::claim(&with(seen([snapshot(broken)])), &restoring), Waiting, "around/source"),
            row("no claim", explain::claim(&runs(), &cloning), Stuck, "around/source"),
            row("it is larger", explain::claim(&from(large), &cloning), Stuck, "around/source"),
            row("it has no volume", explain::claim(&from(json!({})), &cloning), Waiting, "around/source"),
            row("no grant", explain::claim(&runs(), &crossing), Stuck, "around/source"),
            row("a populator's", explain::claim(&runs(), &strange), Waiting, "around/source"),
        ],
    );
}

#[test]
fn a_pod_whose_claim_gets_no_volume_says_why_the_claim_gets_none() {
    let chosen = json!({"metadata": {"annotations": {api::keys::annotation::SELECTED_NODE.text(): "node-1"}}});
    let claim = asked(chosen);
    let pod = super::pod("web", json!({}));
    let message = "binding volumes: timed out waiting for persistentvolumeclaim \"c\" to be bound";
    let mut failing = failing("rpc error: code = OutOfRange desc = at most 16Ti");
    failing.classes = seen([class("fast", json!({"volumeBindingMode": "WaitForFirstConsumer"}))]);
    failing.claims = seen([claim]);
    failing.pods = seen([pod.clone()]);
    failing.nodes = seen([super::node("node-1", json!({}))]);
    // The scheduler chose a node and says nothing while it waits; later it says that it waited in vain.
    let quiet = explain::pod(&failing, &pod);
    let mut loud = failing;
    if let explain::Listing::Seen(events) = &mut loud.events {
        events.push(event("Pod", ("web", "web-uid"), "FailedScheduling", message));
    }
    let rows = [
        row("44: the scheduler waits", quiet, Waiting, "around/call_failed"),
        row("44: it has waited in vain", explain::pod(&loud, &pod), Waiting, "around/call_failed"),
    ];
    check("pods-waiting.txt", &rows);
}
