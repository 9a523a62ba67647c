//! Protection: PROTECT-8, CTRL-18.5, CTRL-13.49 to CTRL-13.54, CTRL-14.51 to CTRL-14.55.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::keys::finalizer;
use api::{AttributesClass, Claim, Key, Kind, Pod, Volume};
use control::Context;
use control::protect::{Options, Protector};
use futures_util::future::BoxFuture;
use runtime::Stop;
use serde_json::{Value, json};
use sim::faults::{Action, Ask, Fair, Fate};

use crate::stage::{Curtain, User, at_every_request, claim, key, play, pod};

fn protector(context: Context) -> BoxFuture<'static, ()> {
    Box::pin(async move { Protector::new(&context, Options::default()).run(&Stop::never()).await })
}

fn uses(claim: &str) -> Value {
    json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])
}

/// Rules: PROTECT-PC2, PROTECT-PC3, BIND-4.13.1
#[test]
fn a_claim_stays_until_the_last_scheduled_pod_that_names_it_is_gone_at_every_fault() {
    at_every_request(protector, async |user: &User| {
        user.create(Kind::CLAIM, claim("c")).await;
        user.create(Kind::POD, pod("p", Some("node"), uses("c"))).await;
        user.delete::<Claim>(&key("c")).await;
        user.stays(Kind::CLAIM, &key("c")).await;
        user.delete::<Pod>(&key("p")).await;
        user.until_gone(Kind::CLAIM, &key("c")).await;
    });
}

/// Rule: CTRL-14.51
#[test]
fn a_pod_that_has_ended_keeps_its_claim() {
    play(protector, Fair, async |user: &User| {
        user.create(Kind::CLAIM, claim("c")).await;
        user.create(Kind::POD, pod("p", Some("node"), uses("c"))).await;
        user.patch_status(Kind::POD, &key("p"), json!({"status": {"phase": "Succeeded"}})).await;
        user.delete::<Claim>(&key("c")).await;
        user.stays(Kind::CLAIM, &key("c")).await;
    });
}

/// Rule: PROTECT-8.1
#[test]
fn an_unscheduled_pod_keeps_nothing_at_every_fault() {
    at_every_request(protector, async |user: &User| {
        user.create(Kind::CLAIM, claim("c")).await;
        user.create(Kind::POD, pod("p", None, uses("c"))).await;
        user.delete::<Claim>(&key("c")).await;
        user.until_gone(Kind::CLAIM, &key("c")).await;
    });
}

/// A pod that the process has not heard of, because its watch of pods is cut off.
async fn unheard_pod(user: &User, drawn: &std::sync::atomic::AtomicBool) {
    user.create(Kind::CLAIM, claim("c")).await;
    user.create(Kind::POD, pod("before", None, json!([]))).await;
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    drawn.store(true, Ordering::Relaxed);
    user.create(Kind::POD, pod("p", Some("node"), uses("c"))).await;
    user.delete::<Claim>(&key("c")).await;
    user.stays(Kind::CLAIM, &key("c")).await;
}

/// Rules: CTRL-13.49, CTRL-I20
#[test]
fn a_pod_that_the_cache_does_not_know_keeps_its_claim() {
    let curtain = Curtain::of("/api/v1/pods");
    let (drawn, lists) = (curtain.string(), curtain.lists());
    play(protector, curtain, async |user: &User| {
        unheard_pod(user, &drawn).await;
        assert_eq!(lists.load(Ordering::Relaxed), 1, "what a list showed is remembered");
        drawn.store(false, Ordering::Relaxed);
        user.stays(Kind::CLAIM, &key("c")).await;
        user.delete::<Pod>(&key("p")).await;
        user.until_gone(Kind::CLAIM, &key("c")).await;
    });
}

/// Rule: CTRL-13.50
#[test]
fn the_end_of_a_pod_that_fell_into_a_gap_of_the_watch_is_noticed() {
    let curtain = Curtain::of("/api/v1/pods");
    let drawn = curtain.string();
    play(protector, curtain, async |user: &User| {
        unheard_pod(user, &drawn).await;
        user.delete::<Pod>(&key("p")).await;
        user.stays(Kind::CLAIM, &key("c")).await;
        drawn.store(false, Ordering::Relaxed);
        user.until_gone(Kind::CLAIM, &key("c")).await;
    });
}

/// Rule: PROTECT-PC4
#[test]
fn a_living_claim_gets_its_finalizer_back_at_every_fault() {
    at_every_request(protector, async |user: &User| {
        user.create(Kind::CLAIM, claim("c")).await;
        user.patch(Kind::CLAIM, &key("c"), json!({"metadata": {"finalizers": ["example.com/other"]}})).await;
        let guarded = async || {
            let claim = user.get(Kind::CLAIM, &key("c")).await.expect("it is there");
            claim["metadata"]["finalizers"] == json!(["example.com/other", finalizer::PVC_PROTECTION.text()])
        };
        user.until("the claim is guarded again", guarded).await;
    });
}

/// Rule: CTRL-13.54
#[test]
fn a_claim_that_is_deleted_before_its_finalizer_is_back_is_not_kept_by_it_at_every_fault() {
    at_every_request(protector, async |user: &User| {
        user.create(Kind::CLAIM, claim("c")).await;
        user.patch(Kind::CLAIM, &key("c"), json!({"metadata": {"finalizers": null}})).await;
        user.delete::<Claim>(&key("c")).await;
        user.until_gone(Kind::CLAIM, &key("c")).await;
        // A new one of that name is protected, and goes as well.
        user.create(Kind::CLAIM, claim("c")).await;
        user.delete::<Claim>(&key("c")).await;
        user.until_gone(Kind::CLAIM, &key("c")).await;
    });
}

/// Rule: PROTECT-8.1
#[test]
fn a_claim_that_was_made_for_a_pod_goes_once_the_pod_is_shut_down_although_it_is_still_there() {
    play(protector, Fair, async |user: &User| {
        let volumes =
            json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": crate::stage::claim_spec()}}}]);
        let mut held = pod("p", Some("node"), volumes);
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        user.create(Kind::POD, held).await;
        let uid = user.get(Kind::POD, &key("p")).await.expect("it is there")["metadata"]["uid"].clone();
        let mut made = claim("p-v");
        made["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true}]);
        user.create(Kind::CLAIM, made).await;
        user.delete::<Claim>(&key("p-v")).await;
        user.stays(Kind::CLAIM, &key("p-v")).await;
        user.delete::<Pod>(&key("p")).await;
        user.until_gone(Kind::CLAIM, &key("p-v")).await;
        assert!(user.get(Kind::POD, &key("p")).await.is_some(), "its own finalizer holds the pod");
    });
}

/// Rule: CTRL-14.52
#[test]
fn many_claims_that_go_together_share_lists() {
    let lists = Arc::new(AtomicU64::new(0));
    let counted = lists.clone();
    let count = move |ask: &Ask<'_>| {
        if ask.action == Action::Read && ask.path == "/api/v1/namespaces/default/pods" {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        Fate::Answered.into()
    };
    play(protector, count, async |user: &User| {
        let names: Vec<String> = (0..100).map(|number| format!("c{number}")).collect();
        for name in &names {
            user.create(Kind::CLAIM, claim(name)).await;
        }
        let deletions = names.iter().map(|name| key(name));
        futures_util::future::join_all(deletions.map(async |key| user.delete::<Claim>(&key).await)).await;
        for name in &names {
            user.until_gone(Kind::CLAIM, &key(name)).await;
        }
    });
    let lists = lists.load(Ordering::Relaxed);
    assert!((1..=20).contains(&lists), "{lists} lists for 100 claims");
}

fn volume(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/guards"},
        "persistentVolumeReclaimPolicy": "Retain",
    }})
}

/// Rules: PROTECT-8.2, BIND-4.13.3, CTRL-I21, CTRL-13.51
#[test]
fn a_volume_stays_while_it_is_bound_and_goes_in_every_other_phase_at_every_fault() {
    at_every_request(protector, async |user: &User| {
        for phase in ["Available", "Released", "Failed"] {
            let key = Key::cluster("v");
            user.create(Kind::VOLUME, volume("v")).await;
            user.patch_status(Kind::VOLUME, &key, json!({"status": {"phase": "Bound"}})).await;
            user.delete::<Volume>(&key).await;
            user.stays(Kind::VOLUME, &key).await;
            user.patch_status(Kind::VOLUME, &key, json!({"status": {"phase": phase}})).await;
            user.until_gone(Kind::VOLUME, &key).await;
        }
    });
}

/// Rule: PROTECT-8.2
#[test]
fn a_volume_gets_its_finalizer_back() {
    play(protector, Fair, async |user: &User| {
        user.create(Kind::VOLUME, volume("v")).await;
        user.patch(Kind::VOLUME, &Key::cluster("v"), json!({"metadata": {"finalizers": null}})).await;
        let guarded = async || {
            let volume = user.get(Kind::VOLUME, &Key::cluster("v")).await.expect("it is there");
            volume["metadata"]["finalizers"] == json!([finalizer::PV_PROTECTION.text()])
        };
        user.until("the volume is guarded again", guarded).await;
    });
}

async fn gold(user: &User) -> Key {
    user.create(
        Kind::ATTRIBUTES_CLASS,
        json!({"metadata": {"name": "gold"}, "driverName": "d", "parameters": {"a": "b"}}),
    )
    .await;
    Key::cluster("gold")
}

fn golden(name: &str) -> Value {
    let mut golden = claim(name);
    golden["spec"]["volumeAttributesClassName"] = "gold".into();
    golden
}

/// Rule: PROTECT-8.3
#[test]
fn an_attributes_class_stays_while_a_claim_asks_for_it_at_every_fault() {
    at_every_request(protector, async |user: &User| {
        let class = gold(user).await;
        user.create(Kind::CLAIM, golden("c")).await;
        let guarded = async || {
            let class = user.get(Kind::ATTRIBUTES_CLASS, &class).await.expect("it is there");
            class["metadata"]["finalizers"] == json!([finalizer::VAC_PROTECTION.text()])
        };
        user.until("the class is guarded", guarded).await;
        user.delete::<AttributesClass>(&class).await;
        user.stays(Kind::ATTRIBUTES_CLASS, &class).await;
        user.delete::<Claim>(&key("c")).await;
        user.until_gone(Kind::ATTRIBUTES_CLASS, &class).await;
    });
}

/// Rule: CTRL-14.55
#[test]
fn an_attributes_class_stays_for_a_claim_that_the_cache_does_not_know() {
    let curtain = Curtain::of("/api/v1/persistentvolumeclaims");
    let drawn = curtain.string();
    play(protector, curtain, async |user: &User| {
        let class = gold(user).await;
        user.create(Kind::CLAIM, claim("before")).await;
        tokio::time::sleep(std::time::Duration::from_secs(10)).await;
        drawn.store(true, Ordering::Relaxed);
        user.create(Kind::CLAIM, golden("c")).await;
        user.delete::<AttributesClass>(&class).await;
        user.stays(Kind::ATTRIBUTES_CLASS, &class).await;
        user.patch(Kind::CLAIM, &key("c"), json!({"metadata": {"finalizers": null}})).await;
        user.delete::<Claim>(&key("c")).await;
        user.stays(Kind::ATTRIBUTES_CLASS, &class).await;
        drawn.store(false, Ordering::Relaxed);
        user.until_gone(Kind::ATTRIBUTES_CLASS, &class).await;
    });
}
