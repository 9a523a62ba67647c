//! Volumes, living.

use serde_json::json;

use super::{LATELY, Picture, check, empty, lease, row, seen};
use crate::bind::tests::{bond, claim, over, reservation, volume};
use crate::decision::Standing::{Moving, Settled, Stuck, Waiting};
use crate::explain;

#[test]
fn a_volume_says_who_has_it_and_what_becomes_of_it() {
    let of = |policy: &str, phase: &str| {
        let patch = json!({"spec": {"persistentVolumeReclaimPolicy": policy}, "status": {"phase": phase}});
        volume("v", over(bond(), patch))
    };
    let held = Picture { claims: seen([claim(json!({"spec": {"volumeName": "v"}}))]), ..empty() };
    let local = json!({"spec": {"csi": null, "local": {"path": "/mnt/disk"}}, "status": {"phase": "Failed"}});
    let local = volume("v", over(over(bond(), json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}})), local));
    let runs = Picture { leases: seen([lease("d", "host_1", LATELY)]), ..empty() };
    let blind = Picture { claims: explain::Listing::NotAllowed, ..empty() };
    let raw = Picture { claims: seen([claim(json!({"spec": {"volumeMode": "Block"}}))]), ..empty() };
    check(
        "volumes.txt",
        &[
            row("free", explain::volume(&empty(), &volume("v", json!({}))), Settled, "release/unclaimed"),
            row("kept", explain::volume(&empty(), &volume("v", reservation())), Settled, "release/reserved"),
            row("bound", explain::volume(&held, &of("Delete", "Bound")), Settled, "release/bound"),
            row(
                "55: released, retained",
                explain::volume(&empty(), &of("Retain", "Released")),
                Settled,
                "release/retained",
            ),
            row("its claim went", explain::volume(&empty(), &of("Retain", "Bound")), Moving, "release/claim_gone"),
            row("8: nobody deletes it", explain::volume(&empty(), &local), Stuck, "release/no_deleter"),
            row("being deleted", explain::volume(&runs, &of("Delete", "Released")), Waiting, "around/provisioner_runs"),
            row("another mode", explain::volume(&raw, &of("Retain", "Bound")), Stuck, "release/mode_mismatch"),
            row(
                "48: its claim is hidden",
                explain::volume(&blind, &of("Retain", "Bound")),
                Waiting,
                "around/not_allowed",
            ),
        ],
    );
}
