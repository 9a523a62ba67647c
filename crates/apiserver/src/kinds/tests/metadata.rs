//! Metadata: what the server fills in, what it refuses to change.

use super::*;
use crate::kinds::{Birth, Scope, before_create, deletion, meta};
use crate::status::Resource;
use serde_json::{Value, json};

fn config(metadata: Value) -> Value {
    let mut config = json!({"metadata": {"name": "x", "namespace": "conf"}});
    merge(&mut config["metadata"], metadata);
    config
}

/// Rule: API-C025
#[test]
fn a_client_cannot_choose_what_the_server_sets_except_generation() {
    let given = config(json!({
        "uid": "u", "generation": 7, "selfLink": "/x", "creationTimestamp": "2020-01-01T00:00:00Z",
        "deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3,
    }));
    let (created, _) = create("ConfigMap", given).expect("API-C025");
    let expected = json!({
        "name": "x", "namespace": "conf", "uid": "uid-1", "generation": 7, "resourceVersion": "5",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    assert_eq!(created["metadata"], expected);
}

/// Rule: API-C024
#[test]
fn a_generated_name_is_the_prefix_and_five_characters() {
    let mut next = 0;
    let mut pick = |limit: usize| {
        next += 7;
        next % limit
    };
    let name = meta::generate_name("g-", &mut pick);
    assert_eq!(name.len(), 7, "API-C024");
    assert!(name[2..].bytes().all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte)), "{name}");
    assert_eq!(meta::generate_name(&"a".repeat(80), &mut pick).len(), 63);
    let umlauts = meta::generate_name(&"ä".repeat(40), &mut pick);
    assert!(umlauts.len() <= 63, "a prefix is never cut inside a character");
}

/// Rules: API-C027, API-C052
#[test]
fn the_namespace_comes_from_the_url() {
    let mut object = config(json!({"namespace": "other"}));
    let refused = meta::settle_namespace(&mut object, Scope::Namespaced, "conf");
    let text = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!(message(refused), text, "API-C027");
    assert_eq!(meta::settle_namespace(&mut object, Scope::Cluster, ""), Ok(()));
    assert_eq!(object["metadata"].get("namespace"), None);
    let named = config(json!({"name": "zz"}));
    let text = "the name of the object (zz) does not match the name on the URL (c1)";
    assert_eq!(message(meta::check_name(&named, "c1")), text, "API-C052");
}

/// Rules: API-C034, API-C035
#[test]
fn bad_metadata_is_refused_in_the_references_words() {
    let owner = json!({"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "u"});
    let cases = [
        (
            json!({"name": "A_b"}),
            "metadata.name: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain must consist of",
        ),
        (json!({"name": null}), "metadata.name: Required value: name or generateName is required"),
        (
            json!({"finalizers": ["foo"]}),
            "metadata.finalizers[0]: Invalid value: \"foo\": name is neither a standard finalizer name nor is it fully qualified",
        ),
        (
            json!({"finalizers": ["orphan", "foregroundDeletion"]}),
            "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set",
        ),
        (json!({"labels": {"a": "-"}}), "metadata.labels: Invalid value: \"-\": a valid label must be an empty string"),
        (json!({"labels": {"/": "a"}}), "metadata.labels: Invalid value: \"/\": prefix part must be non-empty"),
        (
            json!({"annotations": {"a": "x".repeat(262_144)}}),
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
        (json!({"ownerReferences": [owner]}), "/v1, Kind=Event is disallowed from being an owner"),
        (
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": "u"}]}),
            "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
        ),
        (json!({"generation": -1}), "metadata.generation: Invalid value: -1: must be greater than or equal to 0"),
    ];
    for (metadata, expected) in cases {
        let text = message(create("ConfigMap", config(metadata)));
        assert!(text.contains(expected), "API-C034, API-C035: {text}");
    }
}

#[test]
fn a_write_to_a_url_must_name_its_object() {
    let refused = meta::check_name(&config(json!({"name": ""})), "c1");
    assert_eq!(message(refused), "the name of the object (c1 based on URL) was undeterminable: name must be provided");
    assert_eq!(meta::check_name(&config(json!({"name": "c1"})), "c1"), Ok(()));
}

#[test]
fn owners_with_one_uid_and_two_names_are_both_kept() {
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": "u"});
    let mut object = config(json!({"ownerReferences": [owner("a"), owner("b")]}));
    assert_eq!(meta::deduplicate_owners(&mut object, meta::Moment::Sent), None);
    assert_eq!(object["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(2));
}

#[test]
fn an_update_shows_a_bad_label_as_often_as_the_reference() {
    // Twice by the rules all kinds share, and then as often as the kind itself looks at its metadata.
    let cases = [("ConfigMap", 4), ("StorageClass", 4), ("PersistentVolumeClaim", 4), ("CSINode", 3)];
    for (kind, expected) in cases {
        let (old, _) = create(kind, smallest(kind)).expect("created");
        let refused = patch(kind, &old, json!({"metadata": {"labels": {"a b": "c"}}})).expect_err("a bad label");
        let causes = refused.details.map(|details| details.causes.len());
        assert_eq!(causes, Some(expected), "{kind}");
    }
}

fn smallest(kind: &str) -> Value {
    let mut object = match kind {
        "StorageClass" => json!({"provisioner": "p.io"}),
        "PersistentVolumeClaim" => {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
        }
        "CSINode" => json!({"spec": {"drivers": []}}),
        _ => json!({}),
    };
    object["metadata"] = json!({"name": "x", "namespace": "conf"});
    object
}

/// Rule: API-C036
#[test]
fn an_owner_named_twice_is_kept_once_with_a_warning() {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"});
    let mut object = config(json!({"ownerReferences": [owner, owner]}));
    let warning = meta::deduplicate_owners(&mut object, meta::Moment::Sent).expect("API-C036");
    assert!(warning.contains("duplicate entries") && warning.ends_with("observed: u"), "{warning}");
    assert_eq!(object["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(1));
    assert_eq!(meta::deduplicate_owners(&mut object, meta::Moment::Sent), None);
}

/// Rule: API-C051
#[test]
fn an_update_keeps_identity_and_refuses_another() {
    let (old, _) = create("ConfigMap", config(json!({}))).expect("created");
    let kept =
        patch("ConfigMap", &old, json!({"metadata": {"uid": null, "creationTimestamp": "2000-01-01T00:00:00Z"}}));
    assert_eq!(kept.expect("kept")["metadata"], old["metadata"]);
    let text = message(patch("ConfigMap", &old, json!({"metadata": {"uid": "zz"}})));
    assert!(text.contains("metadata.uid: Invalid value: \"zz\": field is immutable"), "API-C051: {text}");
    let text = message(patch("ConfigMap", &old, json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})));
    assert!(
        text.contains("metadata.deletionTimestamp: Invalid value: \"2026-01-01T00:00:00Z\": field is immutable"),
        "{text}"
    );
}

/// Rules: API-C171, API-2.1
#[test]
fn a_dying_object_gets_no_new_finalizer_and_says_so_twice() {
    let (mut old, _) = create("ConfigMap", config(json!({"finalizers": ["x.io/y"]}))).expect("created");
    old["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    old["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    let refused = patch("ConfigMap", &old, json!({"metadata": {"finalizers": ["x.io/y", "x.io/z"]}}));
    let error = refused.expect_err("API-C171");
    let expected = "ConfigMap \"x\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the \
                    object is being deleted, found new finalizers []string{\"x.io/z\"}";
    assert_eq!(error.message, expected);
    assert_eq!(error.details.map(|details| details.causes.len()), Some(2), "API-2.1");
}

#[test]
fn kinds_that_check_no_metadata_themselves_still_get_the_shared_rules() {
    let mut event = json!({"metadata": {"name": "a/b", "namespace": "conf"}, "involvedObject": {"namespace": "conf"}});
    let rules = rules_for("", "Event").expect("built in");
    let refused = before_create(rules, Resource::new("", "Event"), &mut event, Birth { now: NOW, uid: "u" });
    assert!(message(refused).contains("metadata.name: Invalid value: \"a/b\": may not contain '/'"));
}

/// Rules: API-2.1, API-C170, API-C177, API-C178, API-C173
#[test]
fn deletion_waits_for_finalizers_and_obeys_the_propagation_policy() {
    use deletion::{Departure, Options, Outcome, Propagation, decide};
    let plain = config(json!({"generation": 2}));
    let held = config(json!({"finalizers": ["x.io/y"], "generation": 2, "resourceVersion": "1"}));
    let with = |propagation| Options { propagation: Some(propagation), ..Options::default() };
    assert_eq!(decide(Departure::Plain, &plain, Options::default(), NOW), Outcome::Remove(plain.clone()));
    let Outcome::Mark(marked) = decide(Departure::Plain, &held, Options::default(), NOW) else { panic!("API-C170") };
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(marked["metadata"]["generation"], 3);
    assert_eq!(decide(Departure::Plain, &marked, Options::default(), NOW), Outcome::Unchanged);
    let Outcome::Mark(waiting) = decide(Departure::Plain, &plain, with(Propagation::Foreground), NOW) else {
        panic!("API-C177")
    };
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(
        decide(Departure::Plain, &waiting, with(Propagation::Background), NOW),
        Outcome::Remove(waiting.clone()),
        "API-C178"
    );
    let Outcome::Mark(orphaning) = decide(Departure::Plain, &waiting, with(Propagation::Orphan), NOW) else { panic!() };
    assert_eq!(orphaning["metadata"]["finalizers"], json!(["orphan"]));
    assert_eq!(decide(Departure::Event, &plain, with(Propagation::Foreground), NOW), Outcome::Remove(plain.clone()));
    let released = patch("ConfigMap", &marked, json!({"metadata": {"finalizers": null}})).expect("API-C173");
    assert!(deletion::completed_by("ConfigMap", &released) && !deletion::completed_by("ConfigMap", &marked));
}

/// Rule: API-C176
#[test]
fn a_delete_meant_for_another_object_is_refused() {
    let kind = Resource::new("", "ConfigMap");
    let object = config(json!({"uid": "u", "resourceVersion": "207"}));
    let wrong = deletion::Options { uid: Some("abc"), ..deletion::Options::default() };
    let error = deletion::check_preconditions(kind, &object, wrong).expect_err("API-C176");
    assert!(error.message.contains("the UID in the precondition (abc) does not match the UID in record (u)"));
    assert_eq!(error.details.map(|details| details.kind), Some("ConfigMap".into()));
    let stale = deletion::Options { resource_version: Some("1"), ..deletion::Options::default() };
    let text = message(deletion::check_preconditions(kind, &object, stale));
    assert!(
        text.contains("the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (207)")
    );
}
