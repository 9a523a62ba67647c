//! The work of a request is at most proportional to its size: every place near the root of every type, and the places that
//! once were not. `cargo xtask fuzz growth` tries all places of all types, in all ways, and larger.

use fuzz::growth::{Cost, Filling, Plan, Way, all_places, compare, cost, populated, run};

#[global_allocator]
static ALLOCATOR: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

/// Allocations are counted for the whole process, so there is one test.
#[test]
fn no_request_takes_work_that_grows_faster_than_the_request() {
    questions_bytes_and_quantities_are_places();
    known_places_are_proportional();
    let mut found = Vec::new();
    let plan = Plan { count: 300, depth: 4, ways: &[Way::Create, Way::Apply, Way::MergeStatus, Way::Ask], stride: 40 };
    let tried = run(plan, &mut |excess| found.push(excess.to_string()));
    assert!(found.is_empty(), "{} of {tried} cases:\n{}", found.len(), found.join("\n"));
    assert!(tried > 40, "only {tried} cases were tried");
}

/// What was found on a real server: each of these took seconds and hundreds of megabytes.
fn known_places_are_proportional() {
    let session = populated();
    let known = [
        ("ConfigMap.metadata.ownerReferences", Filling::Equal, Way::Create),
        ("ConfigMap.metadata.ownerReferences", Filling::Distinct, Way::Create),
        ("ConfigMap.metadata.ownerReferences", Filling::Distinct, Way::Update),
        ("ResourceQuota.spec.scopes", Filling::Equal, Way::Create),
        ("Pod.spec.containers[0].volumeMounts", Filling::Distinct, Way::Create),
        ("StorageClass.allowedTopologies", Filling::Equal, Way::Create),
        ("StorageClass.allowedTopologies", Filling::Distinct, Way::Create),
        ("Node.spec.taints", Filling::Equal, Way::Create),
    ];
    let places = all_places();
    for (name, filling, way) in known {
        let place = places.iter().find(|place| place.to_string() == name);
        let place = place.unwrap_or_else(|| panic!("no type has {name}"));
        let request = |count: usize| way.request(place, filling, count);
        let excess = compare(&session, name, 1_500, &request);
        assert!(excess.is_none(), "{}", excess.map(|excess| excess.to_string()).unwrap_or_default());
        let Cost { size, bytes, .. } = cost(&session, &request(3_000));
        assert!(bytes < 128 << 20, "{name}: a request of {size} bytes takes {bytes} bytes");
    }
}

fn questions_bytes_and_quantities_are_places() {
    let places = all_places();
    for (name, way) in [
        ("SubjectAccessReview.spec.groups", Way::Create),
        ("TokenReview.spec.audiences", Way::Create),
        ("ServiceAccount/token.spec.audiences", Way::Ask),
        ("Pod/eviction.deleteOptions.dryRun", Way::Ask),
        ("Pod/binding.target.name", Way::Ask),
        ("Secret.data[k]", Way::Merge),
        ("PersistentVolume.spec.capacity[k]", Way::Update),
        ("Node.status.images", Way::MergeStatus),
        ("PersistentVolumeClaim.status.conditions", Way::UpdateStatus),
    ] {
        let place = places.iter().find(|place| place.to_string() == name);
        assert!(place.is_some_and(|place| way.fits(place)), "{name} is not grown by {way:?}");
    }
}
