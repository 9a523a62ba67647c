//! Custom resources in process: a definition, its objects, and the end of both (API-6.9).

use crate::support::{MERGE, Server};
use apiserver::store::CommitError;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOOS: &str = "/apis/conf.io/v1/namespaces/default/foos";

fn definition() -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}, "b": {"type": "integer"}}},
            "status": {"type": "object", "properties": {"ok": {"type": "boolean"}}},
        },
    });
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema},
        })
    };
    json!({
        "metadata": {"name": "foos.conf.io"},
        "spec": {
            "group": "conf.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [version("v1", true), version("v1beta1", false)],
        },
    })
}

/// A server on which the definition is established.
async fn established() -> (Server, tokio::task::JoinHandle<Result<(), CommitError>>) {
    let server = Server::start().await;
    let api = server.api.clone();
    let background = tokio::spawn(async move { api.run().await });
    let before = server.call("GET", DEFINITIONS, None).await;
    let mut events = server.watch(&format!("{DEFINITIONS}?watch=1&resourceVersion={}", before.version())).await;
    assert_eq!(server.call("POST", DEFINITIONS, Some(&definition())).await.code, 201);
    assert_eq!(server.call("GET", FOOS, None).await.code, 404, "names are not accepted yet");
    assert_eq!(events.brief().await.as_deref(), Some("ADDED foos.conf.io"));
    assert_eq!(events.brief().await.as_deref(), Some("MODIFIED foos.conf.io"));
    (server, background)
}

fn foo(version: &str) -> Value {
    json!({"apiVersion": format!("conf.io/{version}"), "kind": "Foo", "metadata": {"name": "f"}, "spec": {"b": 1}})
}

/// Two hundred such patterns once took 840 MB for each write of an object.
#[tokio::test(start_paused = true)]
async fn a_definition_whose_patterns_are_too_large_together_is_refused() {
    let server = Server::start().await;
    let patterns = |count: usize| {
        let fields = (0..count).map(|number| {
            let pattern = format!("^\\w{{60}}{number}$");
            (format!("f{number}"), json!({"type": "string", "pattern": pattern}))
        });
        let mut wanted = definition();
        for version in wanted["spec"]["versions"].as_array_mut().expect("a list") {
            let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"];
            spec["properties"] = fields.clone().collect::<serde_json::Map<String, Value>>().into();
        }
        wanted
    };
    let refused = server.call("POST", DEFINITIONS, Some(&patterns(200))).await;
    let causes = refused.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    assert_eq!((refused.code, causes.len()), (422, 1), "the rest is not even compiled: {}", refused.body);
    let said = causes[0]["message"].as_str().unwrap_or_default();
    assert!(said.contains("regular expressions of a definition may have at most"), "{said}");
    let accepted = server.call("POST", DEFINITIONS, Some(&patterns(1))).await;
    assert_eq!(accepted.code, 201, "one of them is no harm: {}", accepted.body);
}

#[tokio::test(start_paused = true)]
async fn every_served_version_shows_the_same_object() {
    let (server, background) = established().await;
    let mut sent = foo("v1");
    sent["spec"]["c"] = json!(1);
    let created = server.call("POST", FOOS, Some(&sent)).await;
    assert_eq!((created.code, created.warnings), (201, vec![r#"299 - "unknown field \"spec.c\"""#.to_owned()]));
    let other = server.call("GET", "/apis/conf.io/v1beta1/namespaces/default/foos/f", None).await;
    assert_eq!(other.body["apiVersion"], "conf.io/v1beta1");
    assert_eq!(other.body["spec"], json!({"a": "x", "b": 1}), "defaults are filled");
    let group = server.call("GET", "/apis/conf.io", None).await;
    assert_eq!(group.body["preferredVersion"]["version"], "v1");
    server.api.service().stop();
    background.await.expect("the controllers end").expect("the store works");
}

#[tokio::test(start_paused = true)]
async fn the_generation_follows_the_spec_and_not_the_status() {
    let (server, background) = established().await;
    server.call("POST", FOOS, Some(&foo("v1"))).await;
    let patch = json!({"status": {"ok": true}});
    let status = server.send("PATCH", &format!("{FOOS}/f/status"), Some(&patch), MERGE).await;
    assert_eq!((&status.body["status"]["ok"], &status.body["metadata"]["generation"]), (&json!(true), &json!(1)));
    let spec = server.send("PATCH", &format!("{FOOS}/f"), Some(&json!({"spec": {"b": 2}})), MERGE).await;
    assert_eq!((&spec.body["status"]["ok"], &spec.body["metadata"]["generation"]), (&json!(true), &json!(2)));
    server.api.service().stop();
    background.await.expect("the controllers end").expect("the store works");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_definition_takes_its_objects_along() {
    let (server, background) = established().await;
    server.call("POST", FOOS, Some(&foo("v1"))).await;
    let mut objects = server.watch(&format!("{FOOS}?watch=1")).await;
    assert_eq!(objects.brief().await.as_deref(), Some("ADDED f"));
    let mut definitions = server.watch(&format!("{DEFINITIONS}?watch=1")).await;
    let deleted = server.call("DELETE", &format!("{DEFINITIONS}/foos.conf.io"), None).await;
    assert_eq!(deleted.body["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(objects.brief().await.as_deref(), Some("DELETED f"));
    while definitions.brief().await.expect("the watch goes on") != "DELETED foos.conf.io" {}
    let gone = server.call("GET", "/apis/conf.io/v1", None).await;
    assert_eq!((gone.code, gone.body), (404, json!("404 page not found\n")));
    server.api.service().stop();
    background.await.expect("the controllers end").expect("the store works");
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_is_not_understood_is_refused_with_the_definition() {
    let server = Server::start().await;
    let mut refused = definition();
    refused["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] =
        json!([{"rule": "self.items.all(x, x > 1)"}]);
    let answer = server.call("POST", DEFINITIONS, Some(&refused)).await;
    assert_eq!(answer.code, 422);
    let message = answer.body["message"].as_str().unwrap_or_default();
    assert!(message.contains("does not understand the rule"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn owners_of_custom_kinds_are_followed() {
    let (server, background) = established().await;
    let owner = server.call("POST", FOOS, Some(&foo("v1"))).await;
    let reference =
        json!({"apiVersion": "conf.io/v1", "kind": "Foo", "name": "f", "uid": owner.body["metadata"]["uid"]});
    let dependent = json!({"metadata": {"name": "d", "ownerReferences": [reference]}});
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(server.call("POST", maps, Some(&dependent)).await.code, 201);
    let mut events = server.watch(&format!("{maps}?watch=1")).await;
    assert_eq!(events.brief().await.as_deref(), Some("ADDED d"));
    server.call("DELETE", &format!("{FOOS}/f"), None).await;
    assert_eq!(events.brief().await.as_deref(), Some("DELETED d"));
    server.api.service().stop();
    background.await.expect("the controllers end").expect("the store works");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_given_twice_is_warned_about_or_refused() {
    let (server, background) = established().await;
    let text = r#"{"apiVersion": "conf.io/v1", "kind": "Foo", "metadata": {"name": "f"}, "spec": {"b": 1, "b": 2}}"#;
    let strict = server.text("POST", &format!("{FOOS}?fieldValidation=Strict"), text).await;
    let message = strict.body["message"].as_str().unwrap_or_default();
    assert_eq!(strict.code, 400);
    assert!(message.ends_with("strict decoding error: duplicate field \"spec.b\""), "{message}");
    let warned = server.text("POST", FOOS, text).await;
    assert_eq!((warned.code, warned.warnings), (201, vec![r#"299 - "duplicate field \"spec.b\"""#.to_owned()]));
    assert_eq!(warned.body["spec"]["b"], 2);
    server.api.service().stop();
    background.await.expect("the controllers end").expect("the store works");
}

#[tokio::test(start_paused = true)]
async fn a_body_of_very_many_values_is_refused_before_it_is_read() {
    let server = Server::start().await;
    let many = format!("{{\"metadata\": {{\"name\": \"x\"}}, \"binaryData\": [{}{{}}]}}", "{},".repeat(150_000));
    let refused = server.text("POST", "/api/v1/namespaces/default/configmaps", &many).await;
    assert_eq!(refused.code, 413);
    assert_eq!(refused.body["message"], "Request entity too large: more than 100000 values in one body");
    let commas = json!({"metadata": {"name": "x"}, "data": {"a": "[{,".repeat(150_000)}});
    assert_eq!(server.call("POST", "/api/v1/namespaces/default/configmaps", Some(&commas)).await.code, 201);
}
