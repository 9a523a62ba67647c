//! Requests that cost much for their size, and the objects that some of them are about. Those that write are dry runs.

use anyhow::ensure;
use http::Method;
use serde_json::{Value, json};

use crate::kubernetes::{Client, Question};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";
/// Small objects that selectors are held against.
const SMALL_MAPS: usize = 1_500;

/// Makes a large object and many small ones.
pub(super) async fn prepare(client: &Client) -> anyhow::Result<()> {
    let large = json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(1_000_000)}});
    let small = (0..SMALL_MAPS).map(|number| json!({"metadata": {"name": format!("m{number}"), "labels": {"a": "b"}}}));
    for map in std::iter::once(large).chain(small) {
        let answer = client.ask(&Question::new(Method::POST, MAPS).body(JSON, map.to_string())).await?;
        ensure!(answer.status == 201, "making an object of the bench: {}", answer.status);
    }
    Ok(())
}

/// Lists that are all wrong, many values, large texts, and small requests about much.
pub(super) fn worst_requests() -> Vec<Question> {
    let owner = |number: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("n{number}"), "uid": format!("u{number}"), "controller": true});
    let owners: Vec<Value> = (0..3_000).map(owner).collect();
    let many: serde_json::Map<String, Value> = (0..20_000).map(|number| (format!("k{number}"), "v".into())).collect();
    let mounts: Vec<Value> =
        (0..5_000).map(|number| json!({"name": format!("v{number}"), "mountPath": "/same"})).collect();
    let pod = json!({"metadata": {"name": "worst"}, "spec": {"containers": [
        {"name": "c", "image": "i", "volumeMounts": mounts}]}});
    let scopes: Vec<Value> = (0..8_000).map(|number| format!("s{number}").into()).collect();
    let quota = json!({"metadata": {"name": "worst"}, "spec": {"scopes": scopes}});
    let dry = |collection: &str, object: Value| {
        Question::new(Method::POST, &format!("{collection}?dryRun=All")).body(JSON, object.to_string())
    };
    let same = vec!["!c"; 12_000].join(",");
    let different: Vec<String> = (0..1_000).map(|number| format!("!c{number}")).collect();
    let selected = |selector: &str| Question::get(&format!("{MAPS}?labelSelector={selector}"));
    let list = |accept: &str| Question::get(MAPS).header("accept", accept);
    let labels = json!({"metadata": {"labels": {"a": "c"}}}).to_string();
    vec![
        dry(MAPS, json!({"metadata": {"name": "worst", "ownerReferences": owners}})),
        dry(MAPS, json!({"metadata": {"name": "worst"}, "data": many})),
        dry(MAPS, json!({"metadata": {"name": "worst"}, "data": {"a": "x".repeat(1_000_000)}})),
        dry("/api/v1/namespaces/default/pods", pod),
        dry("/api/v1/namespaces/default/resourcequotas", quota),
        selected(&same),
        selected(&different.join(",")),
        list("application/yaml"),
        list("application/vnd.kubernetes.protobuf"),
        list("application/json;as=Table;v=v1;g=meta.k8s.io"),
        Question::get(&format!("{MAPS}?pretty=1")),
        Question::new(Method::PATCH, &format!("{MAPS}/large?dryRun=All")).body("application/merge-patch+json", labels),
    ]
}
