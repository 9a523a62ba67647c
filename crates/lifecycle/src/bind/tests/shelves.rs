use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Pairs, Volume, Word};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{claim, over, reservation, shelf, volume};
use crate::bind::compatible::{self, Mismatch};
use crate::bind::shelf::{Offer, On};

fn size(name: &str, size: &str) -> Volume {
    volume(name, json!({"spec": {"capacity": {"storage": size}}}))
}

fn free(offer: Offer) -> Option<String> {
    match offer {
        Offer::Free(volume) => Some(volume.name().to_owned()),
        Offer::Designated(_) | Offer::Unsuitable(..) | Offer::Nothing => None,
    }
}

/// Rules: BIND-4.7.15, CTRL-14.19
#[test]
fn the_smallest_volume_that_fits_is_offered_and_ties_go_to_the_name() {
    let shelf = shelf([size("ten", "10Gi"), size("two-b", "2Gi"), size("two-a", "2Gi"), size("one", "1Gi")]);
    assert_eq!(free(shelf.offer(&claim(json!({})))), Some("two-a".into()), "BIND-4.7.15, CTRL-14.19");
}

#[test]
fn sizes_beyond_64_bits_are_told_apart() {
    let shelf = shelf([size("small", "200E")]);
    let huge = claim(json!({"spec": {"resources": {"requests": {"storage": "950E"}}}}));
    assert!(matches!(shelf.offer(&huge), Offer::Nothing));
    let exact = claim(json!({"spec": {"resources": {"requests": {"storage": "200E"}}}}));
    assert_eq!(free(shelf.offer(&exact)), Some("small".into()));
}

/// Rules: BIND-4.7.2, BIND-4.7.3, BIND-4.7.4, BIND-4.7.5, BIND-4.7.6, BIND-4.7.10, BIND-4.7.12, CTRL-13.6
#[test]
fn what_does_not_suit_is_not_offered() {
    let cases = [
        ("too small", json!({"spec": {"capacity": {"storage": "1Gi"}}})),
        ("another class", json!({"spec": {"storageClassName": "slow"}})),
        ("another mode", json!({"spec": {"volumeMode": "Block"}})),
        ("another access mode", json!({"spec": {"accessModes": ["ReadOnlyMany"]}})),
        ("another attributes class", json!({"spec": {"volumeAttributesClassName": "gold"}})),
        ("going", json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}})),
        ("not yet available", json!({"status": {"phase": "Pending"}})),
        ("released", json!({"status": {"phase": "Released"}})),
        ("failed", json!({"status": {"phase": "Failed"}})),
        ("another's", json!({"spec": {"claimRef": {"namespace": "n", "name": "other"}}})),
    ];
    for (why, patch) in cases {
        let shelf = shelf([volume("v", patch)]);
        assert!(matches!(shelf.offer(&claim(json!({}))), Offer::Nothing), "{why}");
    }
}

/// Rule: BIND-4.7
#[test]
fn fewer_access_modes_come_first_even_when_they_are_larger() {
    let many = volume("many", json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}}));
    let shelf = shelf([many, size("one-mode", "9Gi")]);
    assert_eq!(free(shelf.offer(&claim(json!({})))), Some("one-mode".into()));
}

/// Rule: CTRL-14.2
#[test]
fn a_volume_that_names_the_claim_wins_over_all_others_in_any_access_modes() {
    let wide = json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadWriteMany"], "capacity": {"storage": "50Gi"}}});
    let shelf = shelf([size("free", "2Gi"), volume("reserved", over(reservation(), wide))]);
    let offer = shelf.offer(&claim(json!({})));
    assert!(matches!(&offer, Offer::Designated(volume) if volume.name() == "reserved"), "CTRL-14.2: {offer:?}");
}

/// Rule: CTRL-14.3
#[test]
fn a_volume_that_names_the_claim_and_does_not_suit_it_is_said_and_nothing_else_is_given() {
    let small = json!({"spec": {"capacity": {"storage": "1Gi"}}});
    let shelf = shelf([size("free", "2Gi"), volume("reserved", over(reservation(), small))]);
    let offer = shelf.offer(&claim(json!({})));
    assert!(matches!(&offer, Offer::Unsuitable(_, Mismatch::TooSmall)), "CTRL-14.3: {offer:?}");
}

/// Rules: BIND-4.7.8, BIND-4.7.11
#[test]
fn a_selector_chooses_among_free_volumes_and_not_among_reserved_ones() {
    let wants = claim(json!({"spec": {"selector": {"matchLabels": {"tier": "gold"}}}}));
    let gold =
        volume("gold", json!({"metadata": {"labels": {"tier": "gold"}}, "spec": {"capacity": {"storage": "9Gi"}}}));
    assert_eq!(free(shelf([size("plain", "2Gi"), gold]).offer(&wants)), Some("gold".into()));
    let offer = shelf([volume("reserved", reservation())]).offer(&wants);
    assert!(matches!(offer, Offer::Designated(_)), "BIND-4.7.8");
}

/// Rules: BIND-4.7.1, BIND-4.7.13
#[test]
fn on_a_node_only_what_can_be_reached_from_there_and_is_not_taken_is_offered() {
    let there = |zone: &str| {
        let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
        json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}})
    };
    let shelf = shelf([volume("in-a", there("a")), volume("in-b", there("b"))]);
    let labels: Pairs = [("zone", "b")].into_iter().collect();
    let node = On { name: "node", labels: &labels };
    assert_eq!(free(shelf.offer_on(&claim(json!({})), node, &BTreeSet::new())), Some("in-b".into()));
    let taken = BTreeSet::from([Word::new("in-b")]);
    assert!(matches!(shelf.offer_on(&claim(json!({})), node, &taken), Offer::Nothing));
}

#[test]
fn a_volume_leaves_the_shelf_as_it_changes() {
    let mut shelf = shelf([size("v", "2Gi")]);
    shelf.put(Arc::new(volume("v", json!({"status": {"phase": "Bound"}}))));
    assert!(shelf.is_empty());
    shelf.put(Arc::new(size("v", "2Gi")));
    shelf.remove("v");
    assert!(matches!(shelf.offer(&claim(json!({}))), Offer::Nothing));
}

proptest! {
    /// The shelf agrees with looking at every volume.
    /// Rule: BIND-4.7
    #[test]
    fn the_shelf_finds_what_a_scan_finds(sizes in proptest::collection::vec((1_u32..9, 0_u8..3), 0..20), wanted in 1_u32..9) {
        let modes = [json!(["ReadWriteOnce"]), json!(["ReadWriteMany"]), json!(["ReadWriteOnce", "ReadWriteMany"])];
        let volumes: Vec<Volume> = sizes
            .iter()
            .enumerate()
            .map(|(index, (size, mode))| {
                let spec = json!({"capacity": {"storage": format!("{size}Gi")}, "accessModes": modes[usize::from(*mode)]});
                volume(&format!("v{index:02}"), json!({"spec": spec}))
            })
            .collect();
        let asks = claim(json!({"spec": {"resources": {"requests": {"storage": format!("{wanted}Gi")}}}}));
        let fitting = volumes.iter().filter(|volume| compatible::picked(&asks, volume).is_ok());
        let best = fitting.min_by_key(|volume| (volume.access.len(), volume.capacity_bytes(), volume.name().to_owned()));
        let best = best.map(|volume| volume.name().to_owned());
        prop_assert_eq!(free(shelf(volumes).offer(&asks)), best);
    }

    /// The same for one node, whatever the volumes ask of nodes, also after some of them have left and come back.
    /// Rule: BIND-4.7.13
    #[test]
    fn on_a_node_the_shelf_finds_what_a_scan_finds(
        volumes in proptest::collection::vec((1_u32..9, 0_usize..6, any::<bool>()), 0..20),
        wanted in 1_u32..9,
        zone in 0_usize..3,
    ) {
        let label = |values: Value| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": values}]});
        let field = |value: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [value]}]});
        let terms = [json!([label(json!(["a"]))]), json!([label(json!(["b"]))]), json!([label(json!(["a", "b"]))]),
                     json!([label(json!(["a"])), label(json!(["b"]))]), json!([field("node")])];
        let made = volumes.iter().enumerate().map(|(index, (size, affinity, _))| {
            let mut spec = json!({"capacity": {"storage": format!("{size}Gi")}});
            if let Some(terms) = terms.get(*affinity) {
                spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
            }
            volume(&format!("v{index:02}"), json!({"spec": spec}))
        });
        let made: Vec<Volume> = made.collect();
        let mut shelf = shelf(made.clone());
        for (volume, (_, _, leaves)) in made.iter().zip(&volumes) {
            if *leaves {
                shelf.remove(volume.name());
                shelf.put(Arc::new(volume.clone()));
            }
        }
        let labels: Pairs = [("zone", ["a", "b", "c"][zone])].into_iter().collect();
        let asks = claim(json!({"spec": {"resources": {"requests": {"storage": format!("{wanted}Gi")}}}}));
        let fitting = made.iter().filter(|volume| {
            compatible::picked(&asks, volume).is_ok() && volume.reachable_from("node", &labels)
        });
        let best = fitting.min_by_key(|volume| (volume.capacity_bytes(), volume.name().to_owned()));
        let best = best.map(|volume| volume.name().to_owned());
        prop_assert_eq!(free(shelf.offer_on(&asks, On { name: "node", labels: &labels }, &BTreeSet::new())), best);
        made.iter().for_each(|volume| shelf.remove(volume.name()));
        prop_assert!(shelf.is_empty());
    }
}
