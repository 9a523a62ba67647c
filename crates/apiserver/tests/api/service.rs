//! The service in process, over a store in memory: list and watch semantics, deletion, owners and namespaces
//! (API-2, API-3, API-4 and API-6.1). What single requests answer is the conformance checklist's business.

use crate::support::{MERGE, Server};
use apiserver::store::{History, UnixMillis};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_list_misses_nothing_and_repeats_nothing() {
    let server = Server::start().await;
    server.create_config_map("before", json!({})).await;
    let list = server.call("GET", MAPS, None).await;
    let mut events = server.watch(&format!("{MAPS}?watch=1&resourceVersion={}", list.version())).await;
    server.create_config_map("after", json!({})).await;
    server.send("PATCH", &format!("{MAPS}/after"), Some(&json!({"data": {"a": "1"}})), MERGE).await;
    server.call("DELETE", &format!("{MAPS}/before"), None).await;
    assert_eq!(events.brief().await.as_deref(), Some("ADDED after"));
    assert_eq!(events.brief().await.as_deref(), Some("MODIFIED after"));
    assert_eq!(events.brief().await.as_deref(), Some("DELETED before"));
}

/// Rule: API-0.8
#[tokio::test(start_paused = true)]
async fn an_object_that_leaves_a_selector_is_shown_as_it_was_with_the_new_version() {
    let server = Server::start().await;
    let mut events = server.watch(&format!("{MAPS}?watch=1&labelSelector=a%3D1")).await;
    server.create_config_map("x", json!({"a": "1"})).await;
    assert_eq!(events.brief().await.as_deref(), Some("ADDED x"));
    let patch = json!({"metadata": {"labels": {"a": "2"}}});
    let patched = server.send("PATCH", &format!("{MAPS}/x"), Some(&patch), MERGE).await;
    let event = events.next().await.expect("the watch goes on");
    assert_eq!(event["type"], "DELETED", "API-0.8");
    assert_eq!(event["object"]["metadata"]["labels"]["a"], "1");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], patched.version());
}

/// Rule: API-0.7
#[tokio::test(start_paused = true)]
async fn the_last_event_of_a_finalized_object_still_shows_its_finalizers() {
    let server = Server::start().await;
    let object = json!({"metadata": {"name": "f", "finalizers": ["x.io/y"]}});
    server.call("POST", MAPS, Some(&object)).await;
    let marked = server.call("DELETE", &format!("{MAPS}/f"), None).await;
    assert_eq!(marked.body["kind"], "ConfigMap");
    let mut events = server.watch(&format!("{MAPS}?watch=1&resourceVersion={}", marked.version())).await;
    let patch = json!({"metadata": {"finalizers": null}});
    let released = server.send("PATCH", &format!("{MAPS}/f"), Some(&patch), MERGE).await;
    assert_eq!((released.code, released.version()), (200, marked.version()));
    let event = events.next().await.expect("the watch goes on");
    assert_eq!(event["type"], "DELETED", "API-0.7");
    assert_eq!(event["object"]["metadata"]["finalizers"], json!(["x.io/y"]));
    assert_ne!(event["object"]["metadata"]["resourceVersion"], marked.version());
    assert_eq!(server.call("GET", &format!("{MAPS}/f"), None).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_watch_list_ends_its_state_with_an_annotated_bookmark_and_goes_on() {
    let server = Server::start().await;
    server.create_config_map("a", json!({})).await;
    let parameters = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = server.watch(&format!("{MAPS}?{parameters}")).await;
    assert_eq!(events.brief().await.as_deref(), Some("ADDED a"));
    let bookmark = events.next().await.expect("the state has an end");
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    server.create_config_map("b", json!({})).await;
    assert_eq!(events.brief().await.as_deref(), Some("ADDED b"));
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_and_shortly_before_the_end() {
    let server = Server::start().await;
    let list = server.call("GET", MAPS, None).await;
    let path = format!("{MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=90&resourceVersion={}", list.version());
    let started = tokio::time::Instant::now();
    let mut events = server.watch(&path).await;
    let mut seconds = Vec::new();
    while let Some(event) = events.next().await {
        assert_eq!(event["type"], "BOOKMARK");
        seconds.push(started.elapsed().as_secs());
    }
    assert_eq!(seconds, [60, 88, 89]);
    assert_eq!(started.elapsed().as_secs(), 90, "the stream ends when its time is over");
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_forgotten_version_gets_one_error_in_the_stream() {
    let history = History { min_age_millis: 0, min_events: 1, max_events: 2, max_bytes: 1 << 20 };
    let server = Server::with_history(history).await;
    for name in ["a", "b", "c", "d"] {
        server.create_config_map(name, json!({})).await;
    }
    server.api.store().tick(UnixMillis(1_900_000_000_000)).await.expect("upkeep works");
    let mut events = server.watch(&format!("{MAPS}?watch=1&resourceVersion=1")).await;
    let event = events.next().await.expect("the stream says why it ends");
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(events.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_state_and_an_expired_token_offers_to_go_on() {
    let history = History { min_age_millis: 0, min_events: 1, max_events: 1, max_bytes: 1 << 20 };
    let server = Server::with_history(history).await;
    for name in ["a", "b", "c"] {
        server.create_config_map(name, json!({})).await;
    }
    let first = server.call("GET", &format!("{MAPS}?limit=1"), None).await;
    assert_eq!(first.body["metadata"]["remainingItemCount"], 2);
    let token = first.body["metadata"]["continue"].as_str().expect("there is more").to_owned();
    server.create_config_map("aa", json!({})).await;
    let second = server.call("GET", &format!("{MAPS}?limit=1&continue={token}"), None).await;
    assert_eq!(second.version(), first.version());
    assert_eq!(second.body["items"][0]["metadata"]["name"], "b");
    server.create_config_map("d", json!({})).await;
    server.api.store().tick(UnixMillis(1_900_000_000_000)).await.expect("upkeep works");
    let expired = server.call("GET", &format!("{MAPS}?limit=1&continue={token}"), None).await;
    assert_eq!((expired.code, &expired.body["reason"]), (410, &json!("Expired")));
    let fresh = expired.body["metadata"]["continue"].as_str().expect("a way on is offered").to_owned();
    let rest = server.call("GET", &format!("{MAPS}?continue={fresh}"), None).await;
    let names: Vec<&Value> =
        rest.body["items"].as_array().into_iter().flatten().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!(names, ["aa", "b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_not_reached_is_waited_for_and_then_refused() {
    let server = Server::start().await;
    let started = tokio::time::Instant::now();
    let answer = server.call("GET", &format!("{MAPS}?resourceVersion=99999999"), None).await;
    assert_eq!(answer.code, 504);
    assert_eq!(answer.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(started.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_is_no_write() {
    let server = Server::start().await;
    let created = server.create_config_map("x", json!({"a": "1"})).await;
    let patch = json!({"metadata": {"labels": {"a": "1"}}});
    let again = server.send("PATCH", &format!("{MAPS}/x"), Some(&patch), MERGE).await;
    assert_eq!(again.version(), created.version());
}

#[tokio::test(start_paused = true)]
async fn events_expire_after_an_hour_and_watchers_see_it() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/events";
    let event =
        json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}});
    assert_eq!(server.call("POST", path, Some(&event)).await.code, 201);
    let mut events = server.watch(&format!("{path}?watch=1")).await;
    assert_eq!(events.brief().await.as_deref(), Some("ADDED e"));
    server.api.store().tick(UnixMillis(1_800_000_000_000 + 3_600_001)).await.expect("upkeep works");
    assert_eq!(events.brief().await.as_deref(), Some("DELETED e"));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_refuses_writes_loses_its_content_and_goes() {
    let server = Server::start().await;
    let api = server.api.clone();
    let background = tokio::spawn(async move { api.run().await });
    server.call("POST", "/api/v1/namespaces", Some(&json!({"metadata": {"name": "n"}}))).await;
    server.call("POST", "/api/v1/namespaces/n/configmaps", Some(&json!({"metadata": {"name": "c"}}))).await;
    let deleted = server.call("DELETE", "/api/v1/namespaces/n", None).await;
    assert_eq!(deleted.body["status"]["phase"], "Terminating");
    let refused =
        server.call("POST", "/api/v1/namespaces/n/configmaps", Some(&json!({"metadata": {"name": "d"}}))).await;
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let mut events = server.watch("/api/v1/namespaces?watch=1&fieldSelector=metadata.name%3Dn").await;
    while events.brief().await.expect("the watch goes on") != "DELETED n" {}
    assert_eq!(server.call("GET", "/api/v1/namespaces/n/configmaps", None).await.body["items"], json!([]));
    server.api.service().stop();
    background.await.expect("the controllers end").expect("the store works");
}

/// An owner, and a map that it owns.
async fn owner_and_dependent(server: &Server) {
    let owner = server.create_config_map("owner", json!({})).await;
    let reference = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.body["metadata"]["uid"],
        "blockOwnerDeletion": true,
    });
    let dependent = json!({"metadata": {"name": "dependent", "ownerReferences": [reference]}});
    assert_eq!(server.call("POST", MAPS, Some(&dependent)).await.code, 201);
}

/// The names of the events until the last of `wanted` was seen.
async fn deletions(server: &Server, policy: &str, wanted: usize) -> Vec<String> {
    let api = server.api.clone();
    let background = tokio::spawn(async move { api.run().await });
    let list = server.call("GET", MAPS, None).await;
    let mut events = server.watch(&format!("{MAPS}?watch=1&resourceVersion={}", list.version())).await;
    server.call("DELETE", &format!("{MAPS}/owner?propagationPolicy={policy}"), None).await;
    let mut gone = Vec::new();
    while gone.len() < wanted {
        let event = events.brief().await.expect("the watch goes on");
        gone.extend(event.strip_prefix("DELETED ").map(str::to_owned));
    }
    server.api.service().stop();
    background.await.expect("the controllers end").expect("the store works");
    gone
}

#[tokio::test(start_paused = true)]
async fn what_an_owner_leaves_behind_is_deleted_in_the_background() {
    let server = Server::start().await;
    owner_and_dependent(&server).await;
    assert_eq!(deletions(&server, "Background", 2).await, ["owner", "dependent"]);
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_waits_for_the_dependents() {
    let server = Server::start().await;
    owner_and_dependent(&server).await;
    assert_eq!(deletions(&server, "Foreground", 2).await, ["dependent", "owner"]);
}

#[tokio::test(start_paused = true)]
async fn an_orphaning_deletion_lets_the_dependents_live() {
    let server = Server::start().await;
    owner_and_dependent(&server).await;
    assert_eq!(deletions(&server, "Orphan", 1).await, ["owner"]);
    let orphan = server.call("GET", &format!("{MAPS}/dependent"), None).await;
    assert_eq!(orphan.code, 200);
    assert!(orphan.body["metadata"].get("ownerReferences").is_none());
}

#[tokio::test(start_paused = true)]
async fn concurrent_patches_all_land() {
    let server = Server::start().await;
    server.create_config_map("x", json!({})).await;
    let path = format!("{MAPS}/x");
    let patches = (0..20).map(|number| {
        let (server, path) = (&server, &path);
        async move {
            let patch = json!({"data": {format!("k{number}"): "v"}});
            server.send("PATCH", path, Some(&patch), MERGE).await.code
        }
    });
    assert!(futures_util::future::join_all(patches).await.into_iter().all(|code| code == 200));
    let object = server.call("GET", &path, None).await;
    assert_eq!(object.body["data"].as_object().map(serde_json::Map::len), Some(20));
}

#[tokio::test(start_paused = true)]
async fn a_new_binding_counts_from_the_next_request_on() {
    use apiserver::auth::{AUTHENTICATED, User};
    let server = Server::start().await;
    let bob = User { name: "bob".into(), groups: vec![AUTHENTICATED.into()], ..User::default() };
    let service = server.api.service().as_user(bob);
    assert_eq!(server.call_as(&service, "GET", MAPS).await.code, 403);
    let base = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({
        "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
    });
    assert_eq!(server.call("POST", &format!("{base}/roles"), Some(&role)).await.code, 201);
    let binding = json!({
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    assert_eq!(server.call("POST", &format!("{base}/rolebindings"), Some(&binding)).await.code, 201);
    assert_eq!(server.call_as(&service, "GET", MAPS).await.code, 200);
    server.call("DELETE", &format!("{base}/rolebindings/b"), None).await;
    assert_eq!(server.call_as(&service, "GET", MAPS).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn without_credentials_only_health_and_version_answer() {
    let server = Server::start().await;
    let service = server.api.service();
    for path in ["/readyz", "/livez", "/healthz", "/version"] {
        assert_eq!(server.call_as(&service, "GET", path).await.code, 200, "{path}");
    }
    for path in ["/api", "/apis", "/openapi/v3", "/orlop/backup", MAPS] {
        assert_eq!(server.call_as(&service, "GET", path).await.code, 403, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopping_server_is_not_ready_and_ends_its_watches() {
    let server = Server::start().await;
    let mut events = server.watch(&format!("{MAPS}?watch=1")).await;
    server.api.service().stop();
    assert_eq!(events.next().await, None);
    assert_eq!(server.call("GET", "/readyz", None).await.code, 500);
    assert_eq!(server.call("GET", "/livez", None).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn a_body_beyond_the_limit_is_refused() {
    let server = Server::start().await;
    let object = json!({"metadata": {"name": "big"}, "data": {"a": "x".repeat(3 * 1024 * 1024)}});
    assert_eq!(server.call("POST", MAPS, Some(&object)).await.code, 413);
}

/// Found by the fuzzer: the deadline was computed past the end of the clock, which panicked.
#[tokio::test(start_paused = true)]
async fn a_watch_may_ask_for_more_time_than_there_is() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=9223372036854775807";
    let mut events = server.watch(path).await;
    server.create_config_map("c", serde_json::json!({})).await;
    assert_eq!(events.brief().await.as_deref(), Some("ADDED c"));
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_a_container_is_told_that_none_runs_here() {
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let server = Server::start().await;
    let account = json!({"metadata": {"name": "default"}});
    server.call("POST", "/api/v1/namespaces/default/serviceaccounts", Some(&account)).await;
    let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(server.call("POST", PODS, Some(&pod)).await.code, 201);
    let rows = [
        ("GET", "log", "no log"),
        ("POST", "exec?command=ls", "nothing to run a command in"),
        ("GET", "exec?command=ls", "nothing to run a command in"),
        ("POST", "attach", "nothing to attach to"),
        ("GET", "portforward", "no port to forward to"),
    ];
    for (method, path, lack) in rows {
        let refused = server.call(method, &format!("{PODS}/web/{path}"), None).await;
        assert_eq!((refused.code, &refused.body["reason"]), (400, &json!("BadRequest")), "{path}");
        let message = refused.body["message"].as_str().expect("a message");
        assert!(message.starts_with(&format!("pod \"web\" has {lack}: no container runs here")), "{message}");
        let missing = server.call(method, &format!("{PODS}/none/{path}"), None).await;
        assert_eq!(missing.body["message"], "pods \"none\" not found", "{path}");
    }
    assert_eq!(server.call("GET", &format!("{PODS}/web/nothing"), None).await.code, 404);
}
