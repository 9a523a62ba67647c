use super::*;

/// The driver tells, and zone `b` has 5Gi.
fn world() -> World {
    let mut world = World::new();
    put!(world, drivers, telling());
    world.capacities.push(Arc::new(capacity("of-b", "b", json!({}))));
    put!(world, claims, claim("c", json!({})));
    world
}

fn user() -> Pod {
    pod("p", &["c"], json!({}))
}

const NO_ROOM: &str = "0/2 nodes are available: 2 node(s) did not have enough free storage.";

/// Rule: SCHED-5.3
#[test]
fn a_volume_is_made_where_there_is_room() {
    assert_eq!(world().placed(&user()), Ok(("b".into(), vec![Means::Make])));
}

/// Rule: CTRL-18.3
#[test]
fn capacity_that_is_missing_too_small_of_another_class_or_unreachable_is_no_room() {
    let rows = [
        json!({"capacity": "1Gi"}),
        json!({"storageClassName": "other"}),
        json!({"nodeTopology": null}),
        json!({"capacity": null}),
        // The largest volume counts before the sum.
        json!({"maximumVolumeSize": "1Gi"}),
    ];
    for patch in rows {
        let mut world = world();
        world.capacities = vec![Arc::new(capacity("of-b", "b", patch.clone()))];
        assert_eq!(world.refusal(&user()), NO_ROOM, "{patch}");
    }
    let mut world = world();
    world.capacities.clear();
    assert_eq!(world.refusal(&user()), NO_ROOM);
}

/// Rule: SCHED-5.3
#[test]
fn a_topology_without_conditions_reaches_every_node() {
    let mut world = world();
    let everywhere: Capacity = read(json!({
        "metadata": {"name": "all", "namespace": "driver"}, "storageClassName": "late", "nodeTopology": {},
        "maximumVolumeSize": "3Gi",
    }));
    world.capacities = vec![Arc::new(everywhere)];
    assert_eq!(world.placed(&user()).map(|(node, _)| node), Ok("a".into()));
}

/// Rule: SCHED-5.3
#[test]
fn a_driver_that_does_not_tell_has_room_everywhere() {
    let mut world = world();
    world.capacities.clear();
    put!(
        world,
        drivers,
        read::<CsiDriver>(json!({"metadata": {"name": "d.example.com"}, "spec": {"storageCapacity": false}}))
    );
    assert!(world.placed(&user()).is_ok());
    world.drivers.clear();
    assert!(world.placed(&user()).is_ok());
}

/// Rule: SCHED-5.3
#[test]
fn a_claim_that_asks_for_no_size_needs_no_room() {
    let mut world = world();
    world.capacities.clear();
    put!(world, claims, claim("c", json!({"spec": {"resources": {"requests": {"storage": "0"}}}})));
    assert!(world.placed(&user()).is_ok());
}

/// Rule: CTRL-14.22
#[test]
fn claims_of_one_pod_share_the_room() {
    let mut world = world();
    put!(world, claims, claim("d", json!({})));
    let two = pod("p", &["c", "d"], json!({}));
    assert!(world.placed(&two).is_ok());
    put!(world, claims, claim("e", json!({})));
    let three = pod("p", &["c", "d", "e"], json!({}));
    assert_eq!(world.refusal(&three), NO_ROOM);
}

/// Rule: CTRL-14.22
#[test]
fn pods_in_flight_share_the_room() {
    let mut world = world();
    put!(world, claims, claim("d", json!({"spec": {"resources": {"requests": {"storage": "4Gi"}}}})));
    let other = pod("q", &["d"], json!({}));
    let mut book = world.book();
    book.assume(assignment(&other, "b", &[("d", Means::Make)]), &world);
    assert_eq!(outcome(place(&user(), &world, &book, NOW)), Err(NO_ROOM.into()));
    assert_eq!(book.release(&other.meta.key, &world, NOW), [Word::new("late")], "those who wait for room are woken");
    assert!(outcome(place(&user(), &world, &book, NOW)).is_ok());
}

#[test]
fn a_claim_that_was_asked_for_before_a_restart_keeps_its_room() {
    let mut world = world();
    put!(
        world,
        claims,
        claim("d", over(meant_for("b"), json!({"spec": {"resources": {"requests": {"storage": "4Gi"}}}})))
    );
    assert_eq!(world.refusal(&user()), NO_ROOM);
    // The pod that the claim belongs to is not refused for its own room.
    assert_eq!(world.placed(&pod("q", &["d"], json!({}))), Ok(("b".into(), vec![Means::Make])));
}

#[test]
fn a_volume_that_was_made_counts_until_its_capacity_is_written_anew() {
    let mut world = world();
    let large = json!({"spec": {"resources": {"requests": {"storage": "4Gi"}}}});
    let wanted = claim("d", over(meant_for("b"), large.clone()));
    let mut book = world.book();
    assert_eq!(book.saw(&wanted, NOW), None);
    let made = claim("d", over(bound_to("v"), over(json!({"metadata": {"resourceVersion": "60"}}), large)));
    assert_eq!(book.saw(&made, NOW), None);
    let later = NOW + Moment::from_secs(59);
    assert_eq!(outcome(place(&user(), &world, &book, later)), Err(NO_ROOM.into()), "the capacity is of revision 20");
    assert_eq!(book.ledger().next_settled(&words(&["late"]), later), Some(NOW + Moment::from_secs(60)));
    world.capacities = vec![Arc::new(capacity("of-b", "b", json!({"metadata": {"resourceVersion": "61"}})))];
    assert!(outcome(place(&user(), &world, &book, later)).is_ok(), "written after the volume, so it knows of it");
}

#[test]
fn a_capacity_that_never_changes_forgets_volumes_after_a_minute() {
    let world = world();
    let mut book = world.book();
    let large = json!({"spec": {"resources": {"requests": {"storage": "4Gi"}}}});
    let _ = book.saw(&claim("d", over(meant_for("b"), large.clone())), NOW);
    let _ = book.saw(&claim("d", over(bound_to("v"), large)), NOW);
    let end = NOW + Moment::from_secs(60);
    assert!(outcome(place(&user(), &world, &book, end)).is_ok());
    assert_eq!(book.ledger().next_settled(&words(&["late"]), end), None);
}

#[test]
fn room_comes_back_when_a_claim_is_freed_or_gone() {
    let world = world();
    let mut book = world.book();
    let late = Some(super::super::book::Freed(Word::new("late")));
    let _ = book.saw(&claim("d", meant_for("b")), NOW);
    assert_eq!(book.saw(&claim("d", json!({})), NOW), late);
    let _ = book.saw(&claim("d", meant_for("b")), NOW);
    assert_eq!(book.gone(&claim("d", json!({}))), late);
}

/// Rule: SCHED-5.4
#[test]
fn the_emptier_place_is_better() {
    let mut world = world();
    world.capacities.push(Arc::new(capacity("of-a", "a", json!({"capacity": "4Gi"}))));
    assert_eq!(world.placed(&user()).map(|(node, _)| node), Ok("b".into()), "2 of 5 is better than 2 of 4");
    world.capacities.push(Arc::new(capacity("more-of-a", "a", json!({"capacity": "50Gi"}))));
    world.capacities.remove(1);
    assert_eq!(world.placed(&user()).map(|(node, _)| node), Ok("a".into()));
}

/// Rule: CTRL-14.27
#[test]
fn only_a_largest_size_and_a_class_by_annotation_are_no_hazard() {
    let mut world = world();
    world.capacities = vec![Arc::new(capacity("of-b", "b", json!({"capacity": null, "maximumVolumeSize": "9Gi"})))];
    let old = json!({"metadata": {"annotations": {annotation::BETA_STORAGE_CLASS.0: "late"}},
                     "spec": {"storageClassName": null}});
    put!(world, claims, claim("c", old));
    assert_eq!(world.placed(&user()), Ok(("b".into(), vec![Means::Make])));
}

#[test]
fn a_node_where_a_volume_could_not_be_made_is_tried_last() {
    let mut world = World::new();
    put!(world, claims, claim("c", json!({})));
    let mut book = world.book();
    let mut tried = Vec::new();
    for _ in 0..4 {
        let (node, _) = outcome(place(&user(), &world, &book, NOW)).expect("both nodes would do");
        book.assume(assignment(&user(), &node, &[("c", Means::Make)]), &world);
        book.failed(&user().meta.key);
        let _ = book.release(&user().meta.key, &world, NOW);
        tried.push(node);
    }
    assert_eq!(tried, ["a", "b", "a", "b"]);
    let _ = book.gone(&claim("c", json!({})));
    assert_eq!(outcome(place(&user(), &world, &book, NOW)).map(|(node, _)| node), Ok("a".into()));
}
