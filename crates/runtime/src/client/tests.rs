//! What answers, and missing answers, mean.

use super::*;
use crate::fake::{Fake, Fault, Thing, key};
use crate::time::SystemClock;

const PATH: &str = "/api/v1/namespaces/n/persistentvolumeclaims";

fn object(name: &str) -> Value {
    json!({"metadata": {"namespace": "n", "name": name}, "colour": "red"})
}

async fn create(client: &Client, name: &str) -> Result<Thing, Error> {
    client.create(Kind::CLAIM, Some("n"), &object(name)).await
}

#[tokio::test(start_paused = true)]
async fn an_object_is_made_read_changed_and_removed() {
    let fake = Fake::new();
    let client = fake.client();
    let made = create(&client, "a").await.unwrap();
    assert!(matches!(create(&client, "a").await, Err(Error::AlreadyExists { .. })));
    let patched: Thing = client.patch(Kind::CLAIM, &key("a"), &Patch::Merge(json!({"colour": "blue"}))).await.unwrap();
    assert_eq!((&*patched.colour, patched.metadata.revision > made.metadata.revision), ("blue", true));
    let other = Preconditions { uid: Some("other".into()), revision: None };
    assert!(client.delete::<Thing>(&key("a"), &other).await.unwrap_err().is_conflict());
    let gone = client.delete::<Thing>(&key("a"), &Preconditions::same(&made.metadata)).await.unwrap();
    assert!(matches!(gone, Deleted::Gone));
    assert!(client.get::<Thing>(Kind::CLAIM, &key("a")).await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn an_object_with_finalizers_is_pending_after_its_deletion() {
    let fake = Fake::new();
    let client = fake.client();
    let mut body = object("a");
    body["metadata"]["finalizers"] = json!(["x/y"]);
    client.create::<Thing>(Kind::CLAIM, Some("n"), &body).await.unwrap();
    match client.delete::<Thing>(&key("a"), &Preconditions::default()).await.unwrap() {
        Deleted::Pending(thing) => assert!(thing.metadata.is_deleting()),
        Deleted::Gone => panic!("it has a finalizer"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_write_is_unknown_and_to_a_read_is_not() {
    for (fault, stored) in [(Fault::LostBefore, false), (Fault::LostAfter, true), (Fault::Hangs, false)] {
        let fake = Fake::new();
        let client = fake.client();
        fake.fault("POST", fault.clone());
        let error = create(&client, "a").await.unwrap_err();
        assert!(matches!(error, Error::Unknown { .. }) && error.may_have_happened(), "{fault:?}: {error}");
        assert!(error.to_string().contains("create persistentvolumeclaims"), "{error}");
        assert_eq!(fake.at(&format!("{PATH}/a")).is_some(), stored);
        fake.fault("GET", fault);
        let error = client.get::<Thing>(Kind::CLAIM, &key("a")).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_means_what_it_means() {
    let rows = [
        (409, json!({"status": "Failure", "reason": "Conflict", "message": "m"}), "conflict: m"),
        (403, json!({"status": "Failure", "reason": "Forbidden", "message": "m"}), "forbidden: m"),
        (401, json!("who"), "unauthorized: \"who\"; check the kubeconfig's credentials"),
        (410, json!({"status": "Failure", "reason": "Expired", "message": "m"}), "expired: m"),
        (
            500,
            json!({"status": "Failure", "reason": "ServerTimeout", "message": "m"}),
            "create persistentvolumeclaims: the answer was lost, the write may have happened: m",
        ),
        (
            503,
            json!({"status": "Failure", "reason": "ServiceUnavailable", "message": "m"}),
            "create persistentvolumeclaims: the API server is unavailable: m",
        ),
        // A proxy's words: the server behind it may have had the request.
        (
            503,
            json!("busy"),
            "create persistentvolumeclaims: the answer was lost, the write may have happened: \"busy\"",
        ),
        (
            504,
            json!("late"),
            "create persistentvolumeclaims: the answer was lost, the write may have happened: \"late\"",
        ),
        (418, json!("tea"), "refused with 418: \"tea\""),
    ];
    for (code, body, want) in rows {
        let fake = Fake::new();
        fake.fault("POST", Fault::Refused(code, body, None));
        assert_eq!(create(&fake.client(), "a").await.unwrap_err().to_string(), want);
    }
}

#[tokio::test(start_paused = true)]
async fn causes_of_an_invalid_object_are_kept() {
    let fake = Fake::new();
    let causes = json!([{"field": "spec.x", "reason": "FieldValueInvalid", "message": "no"}]);
    let body = json!({"status": "Failure", "reason": "Invalid", "message": "m", "details": {"causes": causes}});
    fake.fault("POST", Fault::Refused(422, body, None));
    match create(&fake.client(), "a").await {
        Err(Error::Invalid { causes, .. }) => assert_eq!(causes[0].field, "spec.x"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_is_waited_for_as_long_as_it_says() {
    let fake = Fake::new();
    let client = fake.client();
    for _ in 0..2 {
        fake.fault("POST", Fault::Refused(429, json!("slow down"), Some(3)));
    }
    let start = Instant::now();
    create(&client, "a").await.unwrap();
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(6) && took <= Duration::from_millis(7300), "{took:?}");
    assert_eq!(client.counts().of(Verb::Create, "persistentvolumeclaims"), 3);
    // A wait that is longer than the request may take is the caller's to decide.
    fake.fault("POST", Fault::Refused(429, json!("slow down"), Some(600)));
    let error = create(&client, "b").await.unwrap_err();
    assert!(matches!(error, Error::TooMany { retry_after: Some(wait), .. } if wait.as_secs() == 600), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_and_only_writes_of_objects_count_as_writes() {
    let fake = Fake::new();
    let metrics = Metrics::new(&SystemClock);
    let client = fake.client_with(Options::default(), &metrics);
    create(&client, "a").await.unwrap();
    let _ = client.patch_status::<Thing>(Kind::CLAIM, &key("a"), &Patch::Merge(json!({}))).await;
    let _ = client.create::<Value>(Kind::EVENT, Some("n"), &object("e")).await;
    let _ = client.get::<Thing>(Kind::CLAIM, &key("a")).await;
    assert_eq!(client.counts().writes(), 2);
    assert_eq!(client.counts().of(Verb::Patch, "persistentvolumeclaims/status"), 1);
    let line = r#"orlop_api_requests_total{verb="create",resource="persistentvolumeclaims",code="201"} 1"#;
    assert!(metrics.encode().contains(line), "{}", metrics.encode());
}

#[test]
fn a_query_is_escaped() {
    let mut query = Query::default();
    query.add("labelSelector", "a in (b,c)&x=1");
    assert_eq!(query.0, "?labelSelector=a%20in%20%28b%2Cc%29%26x%3D1");
}
