//! What holds for every picture: there is an answer, and whoever is not well off is told what to do.

use api::{Claim, Volume};
use proptest::prelude::*;
use serde_json::json;

use super::{LATELY, Picture, empty, event, lease, node, pod, seen};
use crate::bind::tests::{COMPLETED, annotated, bond, claim, class, over, reservation, volume};
use crate::decision::Standing;
use crate::explain::{self, Explanation, Listing};

fn claims() -> Vec<Claim> {
    let going = json!({"metadata": {"deletionTimestamp": LATELY, "finalizers": ["a/b", api::keys::finalizer::PVC_PROTECTION.text()]}});
    let named = json!({"spec": {"volumeName": "v"}});
    let bound = over(over(annotated(&[COMPLETED]), named.clone()), json!({"status": {"phase": "Bound"}}));
    let chosen = json!({"metadata": {"annotations": {api::keys::annotation::SELECTED_NODE.text(): "node-1"}}});
    let source = json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "c"}}});
    let patches = [
        json!({}),
        json!({"spec": {"storageClassName": null}}),
        json!({"spec": {"storageClassName": ""}}),
        going.clone(),
        named,
        bound.clone(),
        over(bound, going),
        annotated(&[COMPLETED]),
        chosen,
        source,
    ];
    patches.into_iter().map(claim).collect()
}

fn volumes() -> Vec<Volume> {
    let phase = |phase: &str| json!({"status": {"phase": phase}});
    let going = json!({"metadata": {"deletionTimestamp": LATELY, "finalizers": ["a/b", api::keys::finalizer::PV_PROTECTION.text()]}});
    let delete = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
    let patches = [
        json!({}),
        reservation(),
        bond(),
        over(bond(), phase("Bound")),
        over(bond(), phase("Released")),
        over(over(bond(), phase("Released")), delete.clone()),
        over(over(bond(), phase("Bound")), going.clone()),
        over(over(over(bond(), phase("Released")), delete), going),
    ];
    patches.into_iter().map(|patch| volume("v", patch)).collect()
}

/// One of everything, each there, absent or out of sight.
fn picture(sight: [u8; 7], claim: &Claim, volume: &Volume) -> Picture {
    fn shown<T>(sight: u8, item: T) -> Listing<T> {
        match sight % 4 {
            0 => seen([item]),
            1 => seen([]),
            2 => Listing::NotAllowed,
            _ => Listing::Failed("no answer".to_owned()),
        }
    }
    let delayed = json!({"volumeBindingMode": if sight[0] > 7 { "Immediate" } else { "WaitForFirstConsumer" }});
    let placed = json!({"spec": {"nodeName": if sight[1] > 7 { "node-1" } else { "" }}});
    Picture {
        claims: shown(sight[2], claim.clone()),
        volumes: shown(sight[3], volume.clone()),
        classes: shown(sight[0], class("fast", delayed)),
        pods: shown(sight[1], pod("p", placed)),
        nodes: shown(sight[4], node("node-1", json!({}))),
        leases: shown(sight[5], lease("d-example-com", "h", LATELY)),
        events: shown(
            sight[6],
            event("PersistentVolumeClaim", ("c", "claim-uid"), "ProvisioningFailed", "code = Internal desc = x"),
        ),
        ..empty()
    }
}

fn is_whole(explanation: &Explanation) {
    assert!(!explanation.chain.is_empty());
    assert!(explanation.sentence.ends_with(['.', '!']), "{}", explanation.sentence);
    assert_eq!(Some(explanation.standing), explanation.chain.iter().map(|link| link.standing).max());
    assert!(explanation.standing == Standing::Settled || !explanation.fix.is_empty(), "no advice:\n{explanation}");
}

proptest! {
    #[test]
    fn every_picture_has_an_answer_with_advice_where_it_is_needed(
        claim in prop::sample::select(claims()),
        volume in prop::sample::select(volumes()),
        sight in prop::array::uniform7(0_u8..16),
    ) {
        let picture = picture(sight, &claim, &volume);
        is_whole(&explain::claim(&picture, &claim));
        is_whole(&explain::volume(&picture, &volume));
        explain::missing(&picture, claim.key());
    }
}
