use std::time::Duration;

use super::super::pursue::{Action, Because, Patience, Verdict, pursue};
use super::*;

const PATIENCE: Patience = Patience { now: NOW, limit: Duration::from_secs(600) };

fn user() -> Pod {
    pod("p", &["c"], json!({}))
}

fn planned(means: Means) -> Assignment {
    assignment(&user(), "a", &[("c", means)])
}

fn next(world: &World, plan: &mut Assignment) -> Verdict {
    pursue(plan, &user(), world, PATIENCE)
}

fn given_up(verdict: &Verdict) -> &Because {
    assert_eq!(verdict.actions, [Action::GiveUp]);
    &verdict.because
}

/// Class `late`, claim `c` and volume `v`.
fn world(claim_patch: Value, volume_patch: Value) -> World {
    let mut world = World::new();
    put!(world, claims, claim("c", claim_patch));
    put!(world, volumes, volume("v", volume_patch));
    world
}

/// Rule: SCHED-5.6
#[test]
fn a_free_volume_is_made_to_name_the_claim() {
    let world = world(json!({}), json!({}));
    let verdict = next(&world, &mut planned(volume_means("v")));
    let [Action::Bond { volume, claim, uid }] = verdict.actions.as_slice() else { panic!("{verdict:?}") };
    assert_eq!((&*volume.name, volume.revision.get()), ("v", 7));
    assert_eq!((claim.name(), uid.as_str()), ("c", "c-uid"));
}

/// Rule: CTRL-13.23
#[test]
fn a_volume_that_is_no_longer_free_is_not_taken() {
    for patch in [json!({"status": {"phase": "Released"}}), json!({"spec": {"capacity": {"storage": "1Gi"}}})] {
        let world = world(json!({}), patch);
        let verdict = next(&world, &mut planned(volume_means("v")));
        assert_eq!(given_up(&verdict), &Because::Taken { volume: Word::new("v") });
    }
    let world = world(json!({}), reference("other"));
    let verdict = next(&world, &mut planned(volume_means("v")));
    assert_eq!(given_up(&verdict), &Because::Taken { volume: Word::new("v") });
}

/// Rule: SCHED-K5
#[test]
fn the_binder_is_waited_for() {
    let world = world(json!({}), reference("c"));
    for means in [volume_means("v"), Means::Designated { volume: Word::new("v") }] {
        let verdict = next(&world, &mut planned(means));
        assert!(verdict.is_rest());
        assert!(matches!(verdict.because, Because::AwaitingBinder { .. }));
    }
}

/// Rules: SCHED-K4, CTRL-13.26
#[test]
fn a_bond_that_somebody_took_away_ends_the_plan() {
    let mut world = world(json!({}), reference("c"));
    let mut plan = planned(volume_means("v"));
    assert!(next(&world, &mut plan).is_rest());
    put!(world, volumes, volume("v", json!({})));
    assert_eq!(given_up(&next(&world, &mut plan)), &Because::BondReset { volume: Word::new("v") });
    put!(world, volumes, volume("v", json!({"spec": {"claimRef": {"namespace": "n", "name": "c"}}})));
    assert_eq!(given_up(&next(&world, &mut plan)), &Because::BondReset { volume: Word::new("v") });
}

/// Rules: SCHED-K3, CTRL-13.26
#[test]
fn a_volume_that_has_moved_or_gone_ends_the_plan() {
    let mut world = world(json!({}), over(reference("c"), only_in("b")));
    let verdict = next(&world, &mut planned(volume_means("v")));
    assert_eq!(given_up(&verdict), &Because::Elsewhere { volume: "v".into(), node: Word::new("a") });
    world.volumes.clear();
    let verdict = next(&world, &mut planned(volume_means("v")));
    assert_eq!(given_up(&verdict), &Because::VolumeGone { volume: Word::new("v") });
}

/// Rules: SCHED-K11, SCHED-K7, CTRL-I11
#[test]
fn a_volume_to_be_made_is_asked_for_once() {
    let mut world = world(json!({}), json!({}));
    let mut plan = planned(Means::Make);
    let verdict = next(&world, &mut plan);
    let [Action::Pin { claim, revision, node, .. }] = verdict.actions.as_slice() else { panic!("{verdict:?}") };
    assert_eq!((claim.name(), revision.get(), &**node), ("c", 50, "a"));
    put!(world, claims, claim_of(meant_for("a")));
    assert!(next(&world, &mut plan).is_rest(), "SCHED-K11");
    // SCHED-K7: the provisioner says "not there" by taking it away.
    put!(world, claims, claim_of(json!({})));
    assert_eq!(given_up(&next(&world, &mut plan)), &Because::NotMade { claim: "c".into() });
}

fn claim_of(patch: Value) -> Claim {
    claim("c", patch)
}

/// Rule: SCHED-K8
#[test]
fn a_claim_that_another_scheduler_meant_for_another_node_is_left_to_it() {
    let world = world(meant_for("b"), json!({}));
    assert_eq!(given_up(&next(&world, &mut planned(Means::Make))), &Because::NotMade { claim: "c".into() });
}

/// Rules: SCHED-K9, SCHED-K10, CTRL-13.27
#[test]
fn a_volume_that_the_cache_does_not_know_yet_is_waited_for() {
    let mut world = world(bound_to("new"), json!({}));
    let verdict = next(&world, &mut planned(Means::Make));
    assert!(verdict.is_rest() && matches!(verdict.because, Because::AwaitingVolume { .. }), "{verdict:?}");
    put!(world, volumes, volume("new", over(reference("c"), only_in("b"))));
    let verdict = next(&world, &mut planned(Means::Make));
    assert_eq!(given_up(&verdict), &Because::Elsewhere { volume: "new".into(), node: Word::new("a") }, "SCHED-K10");
}

/// Rules: SCHED-K12, CTRL-I10
#[test]
fn with_all_claims_bound_the_pod_goes() {
    let world = world(bound_to("v"), over(reference("c"), only_in("a")));
    for means in [Means::Bound, Means::Make, volume_means("v")] {
        let verdict = next(&world, &mut planned(means));
        assert_eq!(verdict.actions, [Action::Assign { node: Word::new("a") }]);
    }
}

/// Rules: SCHED-K1, CTRL-13.26
#[test]
fn a_node_or_a_claim_that_is_gone_ends_the_plan() {
    let mut world = world(json!({}), json!({}));
    let another = json!({"metadata": {"uid": "another"}});
    for patch in [another, json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}})] {
        put!(world, claims, claim("c", patch));
        assert_eq!(given_up(&next(&world, &mut planned(Means::Make))), &Because::ClaimGone { claim: "c".into() });
    }
    world.nodes.clear();
    assert_eq!(given_up(&next(&world, &mut planned(Means::Make))), &Because::NodeGone { node: Word::new("a") });
}

/// Rule: SCHED-5.6.3
#[test]
fn patience_ends_after_the_bind_timeout() {
    let world = world(meant_for("a"), json!({}));
    let at = |seconds: u64| Patience { now: NOW + Duration::from_secs(seconds), ..PATIENCE };
    assert!(pursue(&mut planned(Means::Make), &user(), &world, at(599)).is_rest());
    let verdict = pursue(&mut planned(Means::Make), &user(), &world, at(600));
    assert_eq!(given_up(&verdict), &Because::TimedOut { claim: "c".into() });
}

/// Rule: SCHED-5.6
#[test]
fn volumes_that_exist_are_written_before_others_are_asked_for() {
    let mut world = world(json!({}), json!({}));
    put!(world, claims, claim("d", json!({"spec": {"resources": {"requests": {"storage": "9Gi"}}}})));
    let both = pod("p", &["d", "c"], json!({}));
    let verdict = world.place(&both);
    let Some(place::Action::Assume(plan)) = verdict.actions.first() else { panic!("{verdict:?}") };
    let mut plan = plan.clone();
    let first = pursue(&mut plan, &both, &world, PATIENCE);
    assert!(matches!(first.actions.as_slice(), [Action::Bond { .. }]), "{first:?}");
    put!(world, volumes, volume("v", reference("c")));
    let second = pursue(&mut plan, &both, &world, PATIENCE);
    assert!(matches!(second.actions.as_slice(), [Action::Pin { .. }]), "{second:?}");
}
