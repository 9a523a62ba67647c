//! Custom resources by discovery and dynamic objects.

use std::pin::pin;

use futures_util::TryStreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Discovery, Scope, oneshot};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::server::{Server, object};

fn definition() -> CustomResourceDefinition {
    object(json!({
        "metadata": {"name": "shelves.tests.example"},
        "spec": {
            "group": "tests.example", "scope": "Namespaced",
            "names": {"plural": "shelves", "singular": "shelf", "kind": "Shelf"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {"type": "object", "properties": {"boards": {"type": "integer", "minimum": 1}}},
                        "status": {"type": "object", "properties": {"free": {"type": "integer"}}},
                    },
                }},
            }],
        },
    }))
}

#[tokio::test(start_paused = true)]
async fn a_defined_kind_is_discovered_validated_watched_and_has_a_status() {
    let server = Server::start().await;
    let client = server.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition()).await.expect("a kind is defined");
    await_condition(definitions, "shelves.tests.example", conditions::is_crd_established()).await.expect("established");

    let (resource, capabilities) =
        oneshot::pinned_kind(&client, &GroupVersionKind::gvk("tests.example", "v1", "Shelf"))
            .await
            .expect("discovered");
    assert_eq!((resource.plural.as_str(), capabilities.scope), ("shelves", Scope::Namespaced));
    assert!(capabilities.subresources.iter().any(|(subresource, _)| subresource.plural == "status"));

    let shelves: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    let shelf = DynamicObject::new("s", &resource).data(json!({"spec": {"boards": 3}, "status": {"free": 1}}));
    let made = shelves.create(&PostParams::default(), &shelf).await.expect("a shelf is made");
    assert_eq!(made.data["spec"]["boards"], 3);
    assert!(made.data.get("status").is_none(), "a status is not for those who create");
    let broken = DynamicObject::new("t", &resource).data(json!({"spec": {"boards": 0}}));
    let refused = shelves.create(&PostParams::default(), &broken).await.expect_err("a shelf has boards");
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 422));

    let mut watch = pin!(watcher(shelves.clone(), watcher::Config::default().streaming_lists()));
    let status = Patch::Merge(json!({"status": {"free": 2}}));
    shelves.patch_status("s", &PatchParams::default(), &status).await.expect("its status can be set");
    loop {
        match watch.try_next().await.expect("the watcher goes on") {
            Some(Event::InitApply(shelf) | Event::Apply(shelf)) => {
                break assert_eq!((shelf.name_any().as_str(), &shelf.data["status"]["free"]), ("s", &json!(2)));
            }
            Some(_) => {}
            None => panic!("a watcher does not end"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn discovery_lists_the_kinds_of_storage() {
    let server = Server::start().await;
    for aggregated in [false, true] {
        let discovery = Discovery::new(server.client());
        let discovery = match aggregated {
            true => discovery.run_aggregated().await,
            false => discovery.run().await,
        };
        let discovery = discovery.expect("discovery answers");
        let kinds = |group: &str| -> Vec<String> {
            let group = discovery.get(group).expect("the group is served");
            let mut kinds: Vec<_> = group
                .recommended_resources()
                .into_iter()
                .map(|(resource, _): (ApiResource, _)| resource.kind)
                .collect();
            kinds.sort();
            kinds
        };
        assert!(kinds("").contains(&"PersistentVolumeClaim".to_owned()));
        let storage = kinds("storage.k8s.io");
        for kind in ["CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass", "VolumeAttachment"] {
            assert!(storage.contains(&kind.to_owned()), "{kind} in {storage:?}");
        }
        let nodes = ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&());
        let nodes: Api<DynamicObject> = Api::all_with(server.client(), &nodes);
        assert!(nodes.list(&ListParams::default()).await.expect("nodes can be listed").items.is_empty());
    }
}
