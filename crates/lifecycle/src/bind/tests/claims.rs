use api::keys::annotation;
use api::{Claim, ClaimPhase, Class, Volume};
use serde_json::{Value, json};

use super::{BY_CONTROLLER, COMPLETED, annotated, bond, claim, class, over, reservation, shelf, volume};
use crate::bind::claim::{Action, Because, ClassSeen, Seen, Supply, Verdict, VolumeSeen, decide, default_class};
use crate::bind::compatible::Mismatch;
use crate::bind::shelf::Offer;
use crate::decision::{Lookup, Reason, Severity, Standing};

fn open(claim: &Claim, volumes: Vec<Volume>, class: ClassSeen<'_>) -> Verdict {
    let offer = shelf(volumes).offer(claim);
    decide(&Seen { claim, volume: VolumeSeen::Open(offer), class, pods: &[] })
}

fn immediate(class: &Class) -> ClassSeen<'_> {
    ClassSeen::Found { class, supply: Supply::External }
}

fn named(claim: &Claim, volume: Lookup<'_, Volume>) -> Verdict {
    decide(&Seen { claim, volume: VolumeSeen::Named(volume), class: ClassSeen::None, pods: &[] })
}

fn names(volume: &str) -> Value {
    json!({"spec": {"volumeName": volume}})
}

fn event(verdict: &Verdict) -> Option<(Severity, &'static str)> {
    verdict.because.notice().map(|notice| (notice.severity, notice.reason))
}

/// Rule: BIND-U1
#[test]
fn a_class_without_a_binding_mode_stops_the_claim() {
    let odd: Class = super::read(json!({"metadata": {"name": "fast"}, "provisioner": "d"}));
    let verdict = open(&claim(json!({})), vec![], immediate(&odd));
    assert_eq!(verdict.because, Because::NoBindingMode { class: "fast".into() });
}

/// Rule: BIND-U2
#[test]
fn a_claim_takes_the_volume_that_fits() {
    let fast = class("fast", json!({}));
    let verdict = open(&claim(json!({})), vec![volume("v", json!({}))], immediate(&fast));
    assert!(matches!(&verdict.actions[..], [Action::Reserve { volume, chosen: true }] if &*volume.name == "v"));
}

/// Rule: BIND-U3
#[test]
fn a_claim_without_a_class_takes_a_classless_volume_before_it_gets_the_default() {
    let plain: Claim = super::read(json!({
        "metadata": {"name": "c", "namespace": "n", "uid": "claim-uid"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}},
    }));
    let fast = class("fast", json!({}));
    let unset = ClassSeen::Unset { default: Some(&fast) };
    let classless = volume("v", json!({"spec": {"storageClassName": ""}}));
    assert!(matches!(open(&plain, vec![classless], unset).actions[..], [Action::Reserve { .. }]));
    let verdict = open(&plain, vec![], unset);
    assert_eq!(verdict.actions, [Action::Classify { class: "fast".into() }]);
}

/// Rule: BIND-U4
#[test]
fn delayed_binding_waits_for_a_pod_and_leaves_free_volumes_to_the_scheduler() {
    let late = class("fast", json!({"volumeBindingMode": "WaitForFirstConsumer"}));
    let asks = claim(json!({}));
    let verdict = open(&asks, vec![volume("v", json!({}))], immediate(&late));
    assert_eq!(verdict.because, Because::NoPod);
    assert_eq!(event(&verdict), Some((Severity::Normal, "WaitForFirstConsumer")));
    let pods = ["a".into(), "b".into()];
    let offer = Offer::Nothing;
    let seen = Seen { claim: &asks, volume: VolumeSeen::Open(offer), class: immediate(&late), pods: &pods };
    let verdict = decide(&seen);
    assert_eq!(verdict.because.to_string(), "waiting for pods a,b to be scheduled");
    assert_eq!(event(&verdict), Some((Severity::Normal, "WaitForPodScheduled")));
}

/// Rule: BIND-4.7.8
#[test]
fn delayed_binding_still_takes_a_volume_that_names_the_claim() {
    let late = class("fast", json!({"volumeBindingMode": "WaitForFirstConsumer"}));
    let verdict = open(&claim(json!({})), vec![volume("v", reservation())], immediate(&late));
    assert!(matches!(verdict.actions[..], [Action::Reserve { chosen: false, .. }]), "{verdict:?}");
}

/// Rule: BIND-U5
#[test]
fn an_external_provisioner_is_asked_once_and_then_waited_for() {
    let fast = class("fast", json!({}));
    let verdict = open(&claim(json!({})), vec![], immediate(&fast));
    let ask = Action::Ask { provisioner: "d.example.com".into() };
    assert_eq!(verdict.actions, [ask]);
    let key = annotation::STORAGE_PROVISIONER.text();
    let asked = claim(json!({"metadata": {"annotations": {key: "d.example.com"}}}));
    let verdict = open(&asked, vec![], immediate(&fast));
    assert!(verdict.is_rest());
    assert_eq!(event(&verdict), Some((Severity::Normal, "ExternalProvisioning")));
    assert_eq!(verdict.because.standing(), Standing::Waiting);
}

/// Rule: BIND-P2
#[test]
fn a_migrated_plugin_is_asked_under_its_drivers_name() {
    let plugin = crate::migration::plugin_of("ebs.csi.aws.com").expect("it is in the table");
    let old = class("fast", json!({"provisioner": plugin}));
    let verdict = open(&claim(json!({})), vec![], immediate(&old));
    let ask = Action::Ask { provisioner: "ebs.csi.aws.com".into() };
    assert_eq!(verdict.actions, [ask]);
}

/// Rules: BIND-P1, BIND-P5
#[test]
fn nobody_to_ask_is_said() {
    let fast = class("fast", json!({}));
    let asks = claim(json!({}));
    let verdict = open(&asks, vec![], ClassSeen::Missing { name: "fast" });
    assert_eq!(verdict.because.to_string(), "storageclass.storage.k8s.io \"fast\" not found");
    assert_eq!(event(&verdict), Some((Severity::Warning, "ProvisioningFailed")));
    let verdict = open(&asks, vec![], ClassSeen::Found { class: &fast, supply: Supply::Nobody });
    assert_eq!(event(&verdict), Some((Severity::Warning, "ProvisioningFailed")));
    assert_eq!(verdict.because.standing(), Standing::Stuck);
}

/// Rule: BIND-U6
#[test]
fn a_claim_without_class_and_volume_says_so() {
    let verdict = open(&claim(json!({"spec": {"storageClassName": ""}})), vec![], ClassSeen::None);
    assert_eq!(verdict.because, Because::NoClass);
    assert_eq!(event(&verdict), Some((Severity::Normal, "FailedBinding")));
}

/// Rule: BIND-U7
#[test]
fn a_claim_that_names_a_missing_volume_waits_quietly() {
    let verdict = named(&claim(names("v")), Lookup::Absent);
    assert_eq!(verdict.because, Because::NamedMissing { volume: "v".into() });
    assert_eq!(event(&verdict), None);
    let verdict = named(&claim(names("v")), Lookup::NotCached);
    assert_eq!(verdict.actions, [Action::ReadVolume { name: "v".into() }]);
}

/// Rules: BIND-U8, BIND-U8x, CTRL-13.7
#[test]
fn a_claim_gets_the_volume_it_names_if_it_suits() {
    let verdict = named(&claim(names("v")), Lookup::Found(&volume("v", json!({}))));
    assert!(matches!(verdict.actions[..], [Action::Reserve { chosen: true, .. }]));
    let cases = [
        (json!({"spec": {"capacity": {"storage": "1Gi"}}}), Mismatch::TooSmall),
        (json!({"spec": {"storageClassName": "slow"}}), Mismatch::Class),
        (json!({"spec": {"volumeAttributesClassName": "gold"}}), Mismatch::AttributesClass),
        (json!({"spec": {"volumeMode": "Block"}}), Mismatch::Mode),
        (json!({"spec": {"accessModes": ["ReadOnlyMany"]}}), Mismatch::Access),
        (json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}), Mismatch::Deleting),
    ];
    for (patch, mismatch) in cases {
        let verdict = named(&claim(names("v")), Lookup::Found(&volume("v", patch)));
        assert_eq!(verdict.because, Because::NamedUnsuitable { volume: "v".into(), mismatch });
        assert_eq!(event(&verdict), Some((Severity::Warning, "VolumeMismatch")));
    }
}

/// Rules: BIND-U9, CTRL-14.4
#[test]
fn a_volume_and_a_claim_that_name_each_other_are_joined_if_they_can_be() {
    let verdict = named(&claim(names("v")), Lookup::Found(&volume("v", reservation())));
    assert!(matches!(verdict.actions[..], [Action::Reserve { chosen: false, .. }]));
    let small = over(reservation(), json!({"spec": {"capacity": {"storage": "1Gi"}}}));
    let verdict = named(&claim(names("v")), Lookup::Found(&volume("v", small)));
    assert!(matches!(verdict.because, Because::NamedUnsuitable { .. }), "CTRL-14.4");
}

/// Rules: BIND-U10, BIND-U11
#[test]
fn a_volume_of_another_claim_is_never_taken() {
    let other = volume("v", json!({"spec": {"claimRef": {"namespace": "n", "name": "other", "uid": "x"}}}));
    let verdict = named(&claim(names("v")), Lookup::Found(&other));
    assert_eq!(verdict.because.to_string(), "volume \"v\" already bound to a different claim.");
    assert_eq!(event(&verdict), Some((Severity::Warning, "FailedBinding")));
    let chosen = claim(over(names("v"), annotated(&[BY_CONTROLLER])));
    let verdict = named(&chosen, Lookup::Found(&other));
    assert_eq!(verdict.because, Because::TakenFromUs { volume: "v".into() });
}

/// Rules: BIND-B1, BIND-B2
#[test]
fn a_bound_claim_is_lost_only_on_the_servers_word() {
    let bound = |patch: Value| claim(over(over(annotated(&[COMPLETED]), json!({"status": {"phase": "Bound"}})), patch));
    let pointerless = bound(json!({}));
    let verdict = decide(&Seen {
        claim: &pointerless,
        volume: VolumeSeen::Open(Offer::Nothing),
        class: ClassSeen::None,
        pods: &[],
    });
    assert_eq!(verdict.because, Because::LostPointer);
    assert_eq!(event(&verdict), Some((Severity::Warning, "ClaimLost")));
    let claim = bound(names("v"));
    assert!(matches!(named(&claim, Lookup::NotCached).actions[..], [Action::ReadVolume { .. }]));
    let verdict = named(&claim, Lookup::Absent);
    assert!(matches!(&verdict.actions[..], [Action::SetStatus(status)] if status.phase == ClaimPhase::Lost));
}

/// Rule: BIND-B2
#[test]
fn a_lost_claim_says_so_once() {
    let lost = claim(over(over(annotated(&[COMPLETED]), names("v")), json!({"status": {"phase": "Lost"}})));
    assert!(named(&lost, Lookup::Absent).is_rest());
}

/// Rules: BIND-B3, BIND-B4, BIND-B5
#[test]
fn a_lost_claim_comes_back_with_its_volume_and_not_with_a_reserved_one() {
    let lost = claim(over(over(annotated(&[COMPLETED]), names("v")), json!({"status": {"phase": "Lost"}})));
    assert!(matches!(named(&lost, Lookup::Found(&volume("v", json!({})))).actions[..], [Action::Reserve { .. }]));
    let bound = volume("v", over(bond(), json!({"status": {"phase": "Bound"}})));
    assert!(matches!(named(&lost, Lookup::Found(&bound)).actions[..], [Action::SetStatus(_)]));
    let verdict = named(&lost, Lookup::Found(&volume("v", reservation())));
    assert_eq!(verdict.because, Because::Misbound { volume: "v".into() });
    assert_eq!(event(&verdict), Some((Severity::Warning, "ClaimMisbound")));
}

/// Rule: CTRL-14.5
#[test]
fn a_claim_that_goes_gets_nothing_new_and_finishes_what_had_begun() {
    let fast = class("fast", json!({}));
    let going = claim(json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}));
    for volumes in [vec![], vec![volume("v", json!({}))], vec![volume("v", reservation())]] {
        assert_eq!(open(&going, volumes, immediate(&fast)).because, Because::ClaimGoing, "CTRL-14.5");
    }
    let verdict = open(&going, vec![volume("v", bond())], immediate(&fast));
    assert!(matches!(verdict.actions[..], [Action::MarkBound { .. }]));
}

/// Rule: BIND-4.8
#[test]
fn the_newest_default_wins_and_names_break_ties() {
    let key = annotation::DEFAULT_CLASS.text();
    let made = |name: &str, day: u8| {
        let meta = json!({"annotations": {key: "true"}, "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z")});
        class(name, json!({"metadata": meta}))
    };
    let classes = [made("old", 1), made("new-b", 2), made("new-a", 2), class("none", json!({}))];
    assert_eq!(default_class(&classes).map(Class::name), Some("new-a"));
    assert!(default_class(&[class("none", json!({}))]).is_none());
}

/// Rule: BIND-C0
#[test]
fn a_provisioner_that_moved_to_csi_is_marked_first() {
    let key = annotation::STORAGE_PROVISIONER.text();
    let plugin = crate::migration::plugin_of("ebs.csi.aws.com").expect("it is in the table");
    let old = claim(json!({"metadata": {"annotations": {key: plugin}}}));
    assert_eq!(open(&old, vec![], ClassSeen::None).because, Because::Migration);
}
