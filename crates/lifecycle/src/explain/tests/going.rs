//! What was deleted and is still there.

use api::keys::{annotation, finalizer};
use api::{Claim, Volume};
use serde_json::json;

use super::{EARLIER, LATELY, Picture, check, empty, event, lease, pod, row, seen};
use crate::bind::tests::{COMPLETED, annotated, bond, claim, over, read, volume};
use crate::decision::Standing::{Moving, Stuck, Waiting};
use crate::explain;

fn going(finalizers: &[&str]) -> Claim {
    let meta = json!({"creationTimestamp": EARLIER, "deletionTimestamp": LATELY, "finalizers": finalizers});
    claim(json!({"metadata": meta, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}}))
}

const GUARD: &str = finalizer::PVC_PROTECTION.0;

#[test]
fn a_claim_that_does_not_go_names_who_holds_it() {
    let runs = pod("web-0", json!({"spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}}));
    let ended = pod("job-1", json!({"spec": {"nodeName": "node-1"}, "status": {"phase": "Succeeded"}}));
    let kept = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}, "status": {"phase": "Bound"}});
    let used = Picture { pods: seen([runs, ended]), volumes: seen([volume("v", over(bond(), kept))]), ..empty() };
    let host = json!({"metadata": {"annotations": {annotation::HOST_MOUNT_PATH.text(): "/srv/data"}}, "spec": {"nodeName": "node-1"}});
    let shown = Picture { pods: seen([pod("orlop-mount-1", host)]), ..empty() };
    let guarded = going(&[GUARD]);
    let source = finalizer::CLAIM_AS_SOURCE_PROTECTION.text();
    let broken: api::Snapshot = read(json!({
        "metadata": {"name": "nightly", "namespace": "n"},
        "spec": {"source": {"persistentVolumeClaimName": "c"}},
        "status": {"readyToUse": false, "error": {"message": "quota exceeded"}},
    }));
    let taking = Picture { snapshots: seen([broken]), ..empty() };
    let dead = Picture { leases: seen([lease("orlop-controllers", "host", EARLIER)]), ..empty() };
    check(
        "going.txt",
        &[
            row("5: pods hold it", explain::claim(&used, &guarded), Waiting, "around/pod_holds"),
            row("a machine holds it", explain::claim(&shown, &guarded), Waiting, "around/host_holds"),
            row("nobody holds it", explain::claim(&empty(), &guarded), Moving, "protect/unused"),
            row("and nobody lets it go", explain::claim(&dead, &guarded), Stuck, "around/binder_silent"),
            row("14: a snapshot", explain::claim(&taking, &going(&[source])), Waiting, "around/finalizers_left"),
            row(
                "a stranger",
                explain::claim(&empty(), &going(&["example.org/backup"])),
                Waiting,
                "around/finalizers_left",
            ),
        ],
    );
}

fn going_volume(phase: &str, finalizers: &[&str]) -> Volume {
    let meta = json!({"deletionTimestamp": LATELY, "finalizers": finalizers});
    let patch =
        json!({"metadata": meta, "spec": {"persistentVolumeReclaimPolicy": "Delete"}, "status": {"phase": phase}});
    volume("v", over(bond(), patch))
}

#[test]
fn a_volume_that_does_not_go_names_who_holds_it() {
    let guard = finalizer::PV_PROTECTION.text();
    let maker = finalizer::EXTERNAL_PROVISIONER.text();
    let attacher = format!("{}d", finalizer::EXTERNAL_ATTACHER_PREFIX);
    let status = json!({"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"]});
    let pointing = over(annotated(&[COMPLETED]), json!({"spec": {"volumeName": "v"}, "status": status}));
    let itself = going_volume("Bound", &[guard, maker]);
    let held = Picture { claims: seen([claim(pointing)]), volumes: seen([itself]), ..empty() };
    let gone = Picture { leases: seen([lease("d", "host_1", EARLIER)]), ..empty() };
    let mut refused =
        event("PersistentVolume", ("v", "v-uid"), "VolumeFailedDelete", "rpc error: code = Internal desc = busy");
    refused.about.namespace = "".into();
    let failing = Picture { leases: seen([lease("d", "host_1", LATELY)]), events: seen([refused]), ..empty() };
    let attachment: api::Attachment = read(json!({
        "metadata": {"name": "csi-1"}, "spec": {"attacher": "d", "nodeName": "node-9", "source": {"persistentVolumeName": "v"}},
        "status": {"attached": true},
    }));
    let attached = Picture { attachments: seen([attachment]), leases: seen([lease("d", "host_1", LATELY)]), ..empty() };
    let told = |picture: &Picture, phase: &str, finalizers: &[&str]| {
        explain::volume(picture, &going_volume(phase, finalizers))
    };
    check(
        "going_volumes.txt",
        &[
            row("13: a claim has it", told(&held, "Bound", &[guard, maker]), Waiting, "protect/bound"),
            row("13: its provisioner is gone", told(&gone, "Released", &[maker]), Stuck, "around/provisioner_silent"),
            row("13: its driver refuses", told(&failing, "Released", &[maker]), Waiting, "around/call_failed"),
            row(
                "12: it is attached",
                told(&attached, "Released", &[maker, &attacher]),
                Waiting,
                "around/provisioner_runs",
            ),
        ],
    );
}
