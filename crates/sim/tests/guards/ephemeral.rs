//! Ephemeral claims: PROTECT-9 and CTRL-18.5, CTRL-13.53, CTRL-14.56.

use std::sync::atomic::Ordering;
use std::time::Duration;

use api::{Claim, Kind, Pod};
use control::Context;
use control::ephemeral::{Ephemeral, Options};
use control::protect::{self, Protector};
use futures_util::future::BoxFuture;
use runtime::Stop;
use serde_json::{Value, json};
use sim::faults::Fair;

use crate::stage::{Curtain, User, at_every_request, both, claim, claim_spec, key, play, pod};

fn ephemeral(context: Context) -> BoxFuture<'static, ()> {
    Box::pin(async move { Ephemeral::new(&context, Options::default()).run(&Stop::never()).await })
}

/// With protection, without which a deleted claim never goes.
fn guarded(context: Context) -> BoxFuture<'static, ()> {
    let protector = Protector::new(&context, protect::Options::default());
    both(ephemeral(context), Box::pin(async move { protector.run(&Stop::never()).await }))
}

fn scratch(names: &[&str]) -> Value {
    let template = json!({"metadata": {"labels": {"for": "scratch"}}, "spec": claim_spec()});
    names.iter().map(|name| json!({"name": name, "ephemeral": {"volumeClaimTemplate": template}})).collect()
}

async fn made_for(user: &User, claim: &str, pod: &str) {
    user.until_there(Kind::CLAIM, &key(claim)).await;
    let pod = user.get(Kind::POD, &key(pod)).await.expect("it is there");
    let claim = user.get(Kind::CLAIM, &key(claim)).await.expect("it is there");
    let owner = &claim["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], pod["metadata"]["uid"]);
    assert_eq!((&owner["controller"], &owner["blockOwnerDeletion"]), (&json!(true), &json!(true)));
    assert_eq!(claim["metadata"]["labels"], json!({"for": "scratch"}));
}

/// Rules: PROTECT-EV1, PROTECT-EV4
#[test]
fn each_ephemeral_volume_gets_one_claim_and_loses_it_with_the_pod_at_every_fault() {
    at_every_request(guarded, async |user: &User| {
        user.create(Kind::POD, pod("p", Some("node"), scratch(&["a", "b"]))).await;
        made_for(user, "p-a", "p").await;
        made_for(user, "p-b", "p").await;
        user.delete::<Pod>(&key("p")).await;
        user.until_gone(Kind::CLAIM, &key("p-a")).await;
        user.until_gone(Kind::CLAIM, &key("p-b")).await;
    });
}

#[test]
fn a_claim_that_was_deleted_by_mistake_is_made_again_while_the_pod_lives_at_every_fault() {
    at_every_request(guarded, async |user: &User| {
        // Not scheduled, so that nothing holds the claim.
        user.create(Kind::POD, pod("p", None, scratch(&["a"]))).await;
        made_for(user, "p-a", "p").await;
        let first = user.get(Kind::CLAIM, &key("p-a")).await.expect("it is there")["metadata"]["uid"].clone();
        user.delete::<Claim>(&key("p-a")).await;
        let again = async || {
            let claim = user.get(Kind::CLAIM, &key("p-a")).await;
            claim.is_some_and(|claim| claim["metadata"]["uid"] != first)
        };
        user.until("the claim is made again", again).await;
    });
}

/// Rule: CTRL-14.56
#[test]
fn a_claim_deleted_in_a_gap_of_the_watch_is_made_again() {
    let curtain = Curtain::of("/api/v1/persistentvolumeclaims");
    let drawn = curtain.string();
    play(ephemeral, curtain, async |user: &User| {
        user.create(Kind::POD, pod("p", None, scratch(&["a"]))).await;
        made_for(user, "p-a", "p").await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        drawn.store(true, Ordering::Relaxed);
        user.patch(Kind::CLAIM, &key("p-a"), json!({"metadata": {"finalizers": null}})).await;
        user.delete::<Claim>(&key("p-a")).await;
        user.until_gone(Kind::CLAIM, &key("p-a")).await;
        drawn.store(false, Ordering::Relaxed);
        made_for(user, "p-a", "p").await;
    });
}

/// Rules: PROTECT-EV3, CTRL-13.53, CTRL-14.56
#[test]
fn a_claim_of_somebody_else_is_never_adopted_and_holds_up_no_sibling() {
    play(ephemeral, Fair, async |user: &User| {
        user.create(Kind::CLAIM, claim("p-a")).await;
        user.create(Kind::POD, pod("p", None, scratch(&["a", "b"]))).await;
        made_for(user, "p-b", "p").await;
        let told = "ephemeral volume a: PVC default/p-a was not created for pod default/p (pod is not owner)";
        user.until("the pod is told", async || user.events("FailedBinding").await == [told]).await;
        let foreign = user.get(Kind::CLAIM, &key("p-a")).await.expect("it is there");
        assert_eq!(foreign["metadata"]["ownerReferences"], Value::Null);
        user.patch(Kind::CLAIM, &key("p-a"), json!({"metadata": {"finalizers": null}})).await;
        user.delete::<Claim>(&key("p-a")).await;
        made_for(user, "p-a", "p").await;
    });
}

/// Rule: PROTECT-EV1
#[test]
fn a_pod_that_is_gone_gets_no_claim_although_the_cache_still_has_it() {
    let curtain = Curtain::of("/api/v1/pods");
    let drawn = curtain.string();
    play(ephemeral, curtain, async |user: &User| {
        user.create(Kind::CLAIM, claim("p-a")).await;
        user.create(Kind::POD, pod("p", None, scratch(&["a"]))).await;
        user.until("the pod is told", async || !user.events("FailedBinding").await.is_empty()).await;
        drawn.store(true, Ordering::Relaxed);
        user.delete::<Pod>(&key("p")).await;
        user.patch(Kind::CLAIM, &key("p-a"), json!({"metadata": {"finalizers": null}})).await;
        user.delete::<Claim>(&key("p-a")).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(user.get(Kind::CLAIM, &key("p-a")).await.is_none(), "nobody wants this claim");
    });
}

/// Rule: PROTECT-EV4
#[test]
fn a_claim_that_the_server_refuses_is_told_and_tried_again() {
    play(ephemeral, Fair, async |user: &User| {
        let quota = Kind::core("resourcequotas", "ResourceQuota", api::Scope::Namespaced);
        let limit = json!({"metadata": {"namespace": "default", "name": "few"}, "spec": {"hard": {"persistentvolumeclaims": "1"}}});
        user.create(quota, limit).await;
        let counted = async || {
            let quota = user.get(quota, &key("few")).await.expect("it is there");
            quota["status"]["hard"]["persistentvolumeclaims"] == "1"
        };
        user.until("the quota is in force", counted).await;
        user.create(Kind::POD, pod("p", None, scratch(&["a", "b"]))).await;
        made_for(user, "p-a", "p").await;
        let told = async || {
            let events = user.events("FailedBinding").await;
            events.iter().any(|message| message.starts_with("ephemeral volume b: create PVC p-b: "))
        };
        user.until("the pod is told", told).await;
        user.patch(quota, &key("few"), json!({"spec": {"hard": {"persistentvolumeclaims": "2"}}})).await;
        made_for(user, "p-b", "p").await;
    });
}
