//! Claims that the binder judges by itself.

use serde_json::json;

use super::{EARLIER, Picture, check, empty, event, lease, row, seen};
use crate::bind::tests::{BY_CONTROLLER, COMPLETED, annotated, bond, claim, class, over, reservation, volume};
use crate::decision::Standing::{Moving, Settled, Stuck};
use crate::explain;

fn made(patch: serde_json::Value) -> api::Claim {
    claim(over(json!({"metadata": {"creationTimestamp": EARLIER}}), patch))
}

fn with_volumes<const N: usize>(volumes: [api::Volume; N]) -> Picture {
    Picture { volumes: seen(volumes), classes: seen([by_hand()]), ..empty() }
}

/// A class whose volumes are made by hand.
fn by_hand() -> api::Class {
    class("fast", json!({"provisioner": api::keys::provisioner::NONE}))
}

#[test]
fn a_claim_without_a_class_says_why_none_was_filled_in() {
    let unset = made(json!({"spec": {"storageClassName": null}}));
    let none = made(json!({"spec": {"storageClassName": ""}}));
    let default = json!({"metadata": {"annotations": {api::keys::annotation::DEFAULT_CLASS.text(): "true"}}});
    let chosen = Picture { classes: seen([class("standard", default)]), ..empty() };
    let silent = lease("kube-controller-manager", "host", EARLIER);
    let stopped = Picture { classes: seen([class("standard", chosen_default())]), leases: seen([silent]), ..empty() };
    check(
        "classes.txt",
        &[
            row("30: no class, no volume", explain::claim(&empty(), &unset), Stuck, "bind/no_class"),
            row("30: expressly no class", explain::claim(&chosen, &none), Stuck, "bind/no_class"),
            row("the default is on its way", explain::claim(&chosen, &unset), Moving, "bind/default_class"),
            row("27: and the binder is gone", explain::claim(&stopped, &unset), Stuck, "around/binder_silent"),
            row(
                "30: the class is missing",
                explain::claim(&Picture { classes: seen([class("slow", json!({}))]), ..empty() }, &made(json!({}))),
                Stuck,
                "bind/class_missing",
            ),
        ],
    );
}

fn chosen_default() -> serde_json::Value {
    json!({"metadata": {"annotations": {api::keys::annotation::DEFAULT_CLASS.text(): "true"}}})
}

#[test]
fn a_claim_that_no_volume_fits_says_which_came_near_and_what_spoke_against_them() {
    let claim = made(json!({}));
    let other = json!({"spec": {"claimRef": {"namespace": "n", "name": "other", "uid": "o"}}});
    let near = with_volumes([
        volume("small", json!({"spec": {"capacity": {"storage": "1Gi"}}})),
        volume("raw", json!({"spec": {"volumeMode": "Block"}})),
        volume("shared", json!({"spec": {"accessModes": ["ReadOnlyMany"]}})),
        volume(
            "far",
            json!({"spec": {"capacity": {"storage": "1Gi"}, "storageClassName": "slow", "volumeMode": "Block"}}),
        ),
        volume("held", over(other.clone(), json!({"status": {"phase": "Bound"}}))),
        volume("used", over(other, json!({"status": {"phase": "Released"}}))),
    ]);
    let selecting = made(json!({"spec": {"selector": {"matchLabels": {"tier": "gold"}}}}));
    let fits = with_volumes([volume("v", json!({}))]);
    let none = with_volumes([]);
    check(
        "fits.txt",
        &[
            row("30: six volumes, none fits", explain::claim(&near, &claim), Stuck, "bind/no_provisioner"),
            row("the selector excludes it", explain::claim(&fits, &selecting), Stuck, "bind/no_provisioner"),
            row("there are no volumes", explain::claim(&none, &claim), Stuck, "bind/no_provisioner"),
            row("one fits", explain::claim(&fits, &claim), Moving, "bind/fits"),
        ],
    );
}

#[test]
fn a_claim_and_the_volume_it_names_or_that_names_it() {
    let named = made(json!({"spec": {"volumeName": "v"}}));
    let small = json!({"spec": {"capacity": {"storage": "1Gi"}}});
    let other = json!({"spec": {"claimRef": {"namespace": "n", "name": "other", "uid": "o"}}});
    let by_us = made(over(annotated(&[BY_CONTROLLER]), json!({"spec": {"volumeName": "v"}})));
    let of = |patch: serde_json::Value| with_volumes([volume("v", patch)]);
    check(
        "named.txt",
        &[
            row("the volume is missing", explain::claim(&with_volumes([]), &named), Stuck, "bind/named_missing"),
            row("it is too small", explain::claim(&of(small.clone()), &named), Stuck, "bind/named_unsuitable"),
            row("it is another's", explain::claim(&of(other.clone()), &named), Stuck, "bind/taken"),
            row("it was given away twice", explain::claim(&of(other), &by_us), Stuck, "bind/taken_from_us"),
            row(
                "a volume kept for the claim is too small",
                explain::claim(&of(over(reservation(), small)), &made(json!({}))),
                Stuck,
                "bind/reserved_unsuitable",
            ),
        ],
    );
}

#[test]
fn a_bound_claim_is_healthy_or_lost() {
    let pointing = json!({"spec": {"volumeName": "v"}});
    let status =
        json!({"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"]}});
    let bound = made(over(over(annotated(&[COMPLETED]), pointing.clone()), status));
    let pointless = made(over(annotated(&[COMPLETED]), json!({"status": {"phase": "Lost"}})));
    let lost = made(over(over(annotated(&[COMPLETED]), pointing), json!({"status": {"phase": "Lost"}})));
    let held = |patch| with_volumes([volume("v", over(patch, json!({"status": {"phase": "Bound"}})))]);
    let another = json!({"spec": {"claimRef": {"namespace": "n", "name": "c", "uid": "an-older-one"}}});
    let healthy = explain::claim(&held(bond()), &bound);
    assert!(healthy.healthy() && healthy.fix.is_empty());
    let rows = [
        row("all is well", healthy, Settled, "bind/bound"),
        row("3: the volume is gone", explain::claim(&with_volumes([]), &lost), Stuck, "bind/lost_volume"),
        row("the claim forgot its volume", explain::claim(&with_volumes([]), &pointless), Stuck, "bind/lost_pointer"),
        row("the volume is an older claim's", explain::claim(&held(another), &lost), Stuck, "bind/misbound"),
    ];
    assert!(rows.iter().skip(1).all(|row| !row.explanation.healthy()));
    check("bound.txt", &rows);
}

#[test]
fn a_claim_that_cannot_be_written_to_says_so_for_as_long_as_that_lasts() {
    let claim = made(json!({}));
    let message = "Writing it fails and is repeated with growing pauses: conflict: no";
    let told = event("PersistentVolumeClaim", ("c", "claim-uid"), crate::WRITE_FAILED, message);
    let failing = Picture { events: seen([told.clone()]), ..with_volumes([volume("v", json!({}))]) };
    let explanation = explain::claim(&failing, &claim);
    assert_eq!(explanation.root().map(|link| link.code), Some("write_failed"), "{explanation}");
    assert!(explanation.sentence.contains("conflict: no") && !explanation.fix.is_empty(), "{explanation}");
    let later = Picture { now: api::object::UnixSeconds(failing.now.0 + 3600), ..failing };
    assert_eq!(explain::claim(&later, &claim).root().map(|link| link.code), Some("fits"), "old news are none");
    let pointing = json!({"spec": {"volumeName": "v"}});
    let status =
        json!({"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"]}});
    let bound = made(over(over(annotated(&[COMPLETED]), pointing), status));
    let held = volume("v", over(bond(), json!({"status": {"phase": "Bound"}})));
    let well = Picture { events: seen([told]), ..with_volumes([held]) };
    assert!(explain::claim(&well, &bound).healthy());
}
