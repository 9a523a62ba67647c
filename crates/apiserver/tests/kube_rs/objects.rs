//! Create, read, list, replace and delete, with the types of k8s-openapi.

use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass, VolumeAttachment};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::server::{Server, claim, map, object, pod, volume};

#[tokio::test(start_paused = true)]
async fn typed_objects_of_storage_go_in_and_come_out() {
    let server = Server::start().await;
    let client = server.client();
    let post = PostParams::default();
    let class: StorageClass = object(json!({"metadata": {"name": "fast"}, "provisioner": "csi.example"}));
    let class = Api::all(client.clone()).create(&post, &class).await.expect("a class is made");
    assert_eq!(class.reclaim_policy.as_deref(), Some("Delete"), "defaults are filled in");
    let driver: CSIDriver = object(json!({"metadata": {"name": "csi.example"}, "spec": {}}));
    Api::all(client.clone()).create(&post, &driver).await.expect("a driver is made");
    let attachment: VolumeAttachment = object(json!({
        "metadata": {"name": "va"},
        "spec": {"attacher": "csi.example", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
    }));
    Api::all(client.clone()).create(&post, &attachment).await.expect("an attachment is made");

    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let created = volumes.create(&post, &volume("v")).await.expect("a volume is made");
    assert_eq!(created.status.and_then(|status| status.phase).as_deref(), Some("Pending"));
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client);
    let mut created = claims.create(&post, &claim("c")).await.expect("a claim is made");
    created.labels_mut().insert("a".to_owned(), "1".to_owned());
    let replaced = claims.replace("c", &post, &created).await.expect("a claim can be replaced");
    assert_eq!(replaced.labels()["a"], "1");
    assert_ne!(replaced.resource_version(), created.resource_version());
    assert_eq!(claims.get("c").await.expect("it is there"), replaced);
    assert_eq!(claims.get_metadata("c").await.expect("it is there").name_any(), "c");
    assert!(claims.get_opt("d").await.expect("absence is no failure").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_apart_from_the_rest() {
    let server = Server::start().await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(server.client());
    let mut created = claims.create(&PostParams::default(), &claim("c")).await.expect("a claim is made");
    created.spec.get_or_insert_default().volume_name = Some("v".to_owned());
    created.status.get_or_insert_default().phase = Some("Bound".to_owned());
    let replaced = claims.replace_status("c", &PostParams::default(), &created).await.expect("its status can be set");
    assert_eq!(replaced.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Bound"));
    assert_eq!(replaced.spec.and_then(|spec| spec.volume_name), None, "the spec is no part of the status");
    let lost = json!({"status": {"phase": "Lost"}});
    let patched = claims.patch_status("c", &PatchParams::default(), &Patch::Merge(lost)).await.expect("patched");
    assert_eq!(patched.status.and_then(|status| status.phase).as_deref(), Some("Lost"));
    let read = claims.get_status("c").await.expect("the status can be read");
    assert_eq!(read.resource_version(), patched.metadata.resource_version);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_to_a_node_by_its_subresource() {
    let server = Server::start().await;
    let client = server.client();
    // The namespace's service account is made by a controller, and pods need it.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let node: Node = object(json!({"metadata": {"name": "n"}}));
    Api::all(client.clone()).create(&PostParams::default(), &node).await.expect("a node is made");
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.create(&PostParams::default(), &pod("p")).await.expect("a pod is made");
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"},
    });
    let _: serde_json::Value =
        pods.create_subresource("binding", "p", &PostParams::default(), &binding).await.expect("the pod is bound");
    let bound = pods.get("p").await.expect("it is there");
    assert_eq!(bound.spec.and_then(|spec| spec.node_name).as_deref(), Some("n"));
}

#[tokio::test(start_paused = true)]
async fn a_list_comes_in_pages_of_one_state() {
    let server = Server::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    for number in 0..7 {
        let mut map = map(&format!("m{number}"));
        map.labels_mut().insert("odd".to_owned(), (number % 2).to_string());
        maps.create(&PostParams::default(), &map).await.expect("a map is made");
    }
    let (mut names, mut parameters) = (Vec::new(), ListParams::default().limit(3));
    loop {
        let page = maps.list(&parameters).await.expect("a page can be read");
        names.extend(page.items.iter().map(|map| map.name_any()));
        // What comes later is no part of the pages.
        maps.create(&PostParams::default(), &map(&format!("z{}", names.len()))).await.expect("a map is made");
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = ListParams::default().limit(3).continue_token(&token),
            None => break,
        }
    }
    assert_eq!(names, ["m0", "m1", "m2", "m3", "m4", "m5", "m6"]);
    let odd = maps.list(&ListParams::default().labels("odd=1")).await.expect("labels select");
    assert_eq!(odd.items.len(), 3);
    let one = maps.list_metadata(&ListParams::default().fields("metadata.name=m3")).await.expect("fields select");
    assert_eq!(one.items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_changes_nothing_and_a_collection_can_be_deleted() {
    let server = Server::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    maps.create(&dry, &map("ghost")).await.expect("a dry run succeeds");
    assert!(maps.get_opt("ghost").await.expect("it answers").is_none());
    for name in ["a", "b"] {
        maps.create(&PostParams::default(), &map(name)).await.expect("a map is made");
    }
    let deleted = maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("deleted");
    assert_eq!(deleted.left().map(|list| list.items.len()), Some(2));
    assert!(maps.list(&ListParams::default()).await.expect("it answers").items.is_empty());
}
