//! Quotas: counted by the controller, charged by admission, and never in disagreement (API-7, CTRL-3.9).

use crate::support::{Events, MERGE, Server};
use apiserver::store::CommitError;
use serde_json::{Value, json};

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn claim(name: &str, size: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "gold",
                 "resources": {"requests": {"storage": size}}},
    })
}

type Run = tokio::task::JoinHandle<Result<(), CommitError>>;

/// A server with a quota, its controllers running, and the quota's changes.
async fn counted(hard: Value) -> (Server, Run, Events) {
    let server = Server::start().await;
    let api = server.api.clone();
    let run = tokio::spawn(async move { api.run().await });
    let created = server.call("POST", QUOTAS, Some(&json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}))).await;
    assert_eq!(created.code, 201, "{}", created.body);
    let events = server.watch(&format!("{QUOTAS}?watch=1&resourceVersion={}", created.version())).await;
    (server, run, events)
}

async fn used(events: &mut Events) -> Value {
    events.next().await.expect("the watch goes on")["object"]["status"]["used"].clone()
}

async fn stop(server: &Server, run: Run) {
    server.api.service().stop();
    run.await.expect("the controllers end").expect("the store works");
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_counted_charged_and_given_back() {
    let class = "gold.storageclass.storage.k8s.io";
    let hard = json!({
        "requests.storage": "4Gi", "persistentvolumeclaims": "3", format!("{class}/requests.storage"): "3Gi",
        format!("{class}/persistentvolumeclaims"): "5", "count/configmaps": "1", "cpu": "1",
    });
    let (server, run, mut events) = counted(hard.clone()).await;
    let expect = |size: &str, claims: &str, maps: &str| {
        json!({
            "requests.storage": size, "persistentvolumeclaims": claims, format!("{class}/requests.storage"): size,
            format!("{class}/persistentvolumeclaims"): claims, "count/configmaps": maps,
        })
    };
    let status = events.next().await.expect("the quota is counted")["object"]["status"].clone();
    assert_eq!(status, json!({"hard": hard, "used": expect("0", "0", "0")}));
    let created = server.call("POST", CLAIMS, Some(&claim("a", "2Gi"))).await;
    assert_eq!(created.code, 201, "{}", created.body);
    assert_eq!(used(&mut events).await, expect("2Gi", "1", "0"));
    let refused = server.call("POST", CLAIMS, Some(&claim("b", "2Gi"))).await;
    let message = format!(
        "persistentvolumeclaims \"b\" is forbidden: exceeded quota: q, requested: {class}/requests.storage=2Gi, \
         used: {class}/requests.storage=2Gi, limited: {class}/requests.storage=3Gi"
    );
    assert_eq!((refused.code, &refused.body["message"]), (403, &json!(message)));
    assert_eq!(server.call("POST", MAPS, Some(&json!({"metadata": {"name": "m"}}))).await.code, 201);
    assert_eq!(used(&mut events).await, expect("2Gi", "1", "1"));
    assert_eq!(server.call("POST", MAPS, Some(&json!({"metadata": {"name": "n"}}))).await.code, 403);
    server.call("DELETE", &format!("{MAPS}/m"), None).await;
    assert_eq!(used(&mut events).await, expect("2Gi", "1", "0"));
    let finalizers = json!({"metadata": {"finalizers": null}});
    server.send("PATCH", &format!("{CLAIMS}/a"), Some(&finalizers), MERGE).await;
    server.call("DELETE", &format!("{CLAIMS}/a"), None).await;
    assert_eq!(used(&mut events).await, expect("0", "0", "0"));
    stop(&server, run).await;
}

#[tokio::test(start_paused = true)]
async fn a_create_that_fails_or_only_pretends_is_not_charged() {
    let (server, run, mut events) = counted(json!({"count/configmaps": "2"})).await;
    assert_eq!(used(&mut events).await, json!({"count/configmaps": "0"}));
    let map = json!({"metadata": {"name": "m"}});
    assert_eq!(server.call("POST", &format!("{MAPS}?dryRun=All"), Some(&map)).await.code, 201);
    assert_eq!(server.call("POST", MAPS, Some(&map)).await.code, 201);
    assert_eq!(server.call("POST", MAPS, Some(&map)).await.code, 409);
    let quota = server.call("GET", &format!("{QUOTAS}/q"), None).await;
    assert_eq!(quota.body["status"]["used"], json!({"count/configmaps": "1"}));
    stop(&server, run).await;
}

#[tokio::test(start_paused = true)]
async fn many_at_once_get_exactly_as_much_as_there_is() {
    let (server, run, mut events) = counted(json!({"count/configmaps": "5"})).await;
    assert_eq!(used(&mut events).await, json!({"count/configmaps": "0"}));
    let server = std::sync::Arc::new(server);
    let creates = (0..20).map(|index| {
        let server = std::sync::Arc::clone(&server);
        let map = json!({"metadata": {"name": format!("m{index}")}});
        tokio::spawn(async move { server.call("POST", MAPS, Some(&map)).await.code })
    });
    let mut codes = Vec::new();
    for create in creates.collect::<Vec<_>>() {
        codes.push(create.await.expect("a request does not panic"));
    }
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 5, "{codes:?}");
    let quota = server.call("GET", &format!("{QUOTAS}/q"), None).await;
    assert_eq!(quota.body["status"]["used"], json!({"count/configmaps": "5"}));
    stop(&server, run).await;
}

#[tokio::test(start_paused = true)]
async fn custom_objects_can_be_counted_too() {
    let key = "count/volumesnapshots.snapshot.storage.k8s.io";
    let (server, run, mut events) = counted(json!({key: "1"})).await;
    assert_eq!(used(&mut events).await, json!({key: "0"}));
    let snapshots = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
    let snapshot = |name: &str| {
        json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": name},
            "spec": {"source": {"persistentVolumeClaimName": "c"}},
        })
    };
    assert_eq!(server.call("POST", snapshots, Some(&snapshot("a"))).await.code, 201);
    assert_eq!(used(&mut events).await, json!({key: "1"}));
    let refused = server.call("POST", snapshots, Some(&snapshot("b"))).await;
    assert_eq!(refused.code, 403, "{}", refused.body);
    stop(&server, run).await;
}
