//! The four kinds of patch, and who owns what.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::server::{Server, claim, map};

fn json_patch(operations: Value) -> Patch<()> {
    Patch::Json(serde_json::from_value(operations).expect("the patch is well formed"))
}

#[tokio::test(start_paused = true)]
async fn merge_strategic_and_json_patches_each_do_their_own() {
    let server = Server::start().await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(server.client());
    let mut first = claim("c");
    first.metadata.finalizers = Some(vec!["a.example/x".to_owned()]);
    claims.create(&PostParams::default(), &first).await.expect("a claim is made");
    let plain = PatchParams::default();

    let merge = Patch::Merge(json!({"metadata": {"labels": {"a": "1", "b": "2"}}}));
    let merged = claims.patch("c", &plain, &merge).await.expect("merged");
    assert_eq!(merged.labels().len(), 2);
    let strategic = Patch::Strategic(json!({"metadata": {"finalizers": ["b.example/y"]}}));
    let merged = claims.patch("c", &plain, &strategic).await.expect("merged by keys");
    assert!(merged.finalizers().len() >= 2, "finalizers are a set: {:?}", merged.finalizers());
    let exact = json_patch(json!([
        {"op": "test", "path": "/metadata/labels/a", "value": "1"},
        {"op": "remove", "path": "/metadata/labels/b"},
    ]));
    let patched = claims.patch("c", &plain, &exact).await.expect("patched");
    assert_eq!(patched.labels().len(), 1);
    let wrong = json_patch(json!([{"op": "test", "path": "/metadata/labels/a", "value": "2"}]));
    let refused = claims.patch("c", &plain, &wrong).await.expect_err("the test fails");
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 422));
}

#[tokio::test(start_paused = true)]
async fn applies_make_change_conflict_and_force() {
    let server = Server::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let apply = async |manager: &str, data: Value, force: bool| {
        let mut parameters = PatchParams::apply(manager);
        parameters.force = force;
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
        maps.patch("m", &parameters, &Patch::Apply(body)).await
    };
    apply("one", json!({"a": "1", "b": "1"}), false).await.expect("the first apply creates");
    apply("two", json!({"b": "1", "c": "1"}), false).await.expect("equal values are shared");
    let refused = apply("two", json!({"a": "2", "b": "1", "c": "1"}), false).await.expect_err("one owns a");
    match refused {
        kube::Error::Api(status) => {
            assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
            let causes = status.details.map(|details| details.causes).unwrap_or_default();
            assert_eq!(causes.iter().map(|cause| cause.field.as_str()).collect::<Vec<_>>(), [".data.a"]);
        }
        other => panic!("{other}"),
    }
    apply("two", json!({"a": "2", "b": "1", "c": "1"}), true).await.expect("force takes it");
    let left = apply("one", json!({"b": "1"}), false).await.expect("one no longer wants a");
    let data = left.data.unwrap_or_default();
    assert_eq!(data.get("a").map(String::as_str), Some("2"), "what another owns stays");
    let left = apply("two", json!({}), false).await.expect("two wants nothing");
    let data = left.data.clone().unwrap_or_default();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["b"], "what nobody wants any more goes");
    let managers: Vec<_> = left.managed_fields().iter().filter_map(|entry| entry.manager.clone()).collect();
    assert!(managers.contains(&"one".to_owned()), "{managers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_changes_nothing_writes_nothing() {
    let server = Server::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let created = maps.create(&PostParams::default(), &map("m")).await.expect("a map is made");
    let patch = Patch::Merge(json!({"metadata": {"labels": {"x": null}}}));
    let patched = maps.patch("m", &PatchParams::default(), &patch).await.expect("patched");
    assert_eq!(patched.resource_version(), created.resource_version());
}
