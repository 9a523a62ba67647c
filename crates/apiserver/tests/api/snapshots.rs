//! The definitions that every server has from its first start on (API-6.9).

use crate::support::{MERGE, Server};
use apiserver::store::{MemoryDisk, Options, Store};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const GROUPS: &str = "/apis/groupsnapshot.storage.k8s.io";

fn snapshot() -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": "s"},
        "spec": {"source": {"persistentVolumeClaimName": "c"}, "volumeSnapshotClassName": "k"},
    })
}

#[tokio::test(start_paused = true)]
async fn snapshots_can_be_written_before_anybody_defines_them() {
    let server = Server::start().await;
    let created = server.call("POST", SNAPSHOTS, Some(&snapshot())).await;
    assert_eq!(created.code, 201, "{}", created.body);
    let patch = json!({"spec": {"source": {"persistentVolumeClaimName": "d"}}});
    let refused = server.send("PATCH", &format!("{SNAPSHOTS}/s"), Some(&patch), MERGE).await;
    assert_eq!(refused.code, 422);
    let message = "VolumeSnapshot.snapshot.storage.k8s.io \"s\" is invalid: spec.source.persistentVolumeClaimName: \
                   Invalid value: \"d\": persistentVolumeClaimName is immutable";
    assert_eq!(refused.body["message"], message);
    let patch = json!({"status": {"readyToUse": true, "restoreSize": "1Gi", "boundVolumeSnapshotContentName": "v"}});
    let status = server.send("PATCH", &format!("{SNAPSHOTS}/s/status"), Some(&patch), MERGE).await;
    assert_eq!(status.code, 200, "{}", status.body);
    let table = server.accepting("application/json;as=Table;v=v1;g=meta.k8s.io", SNAPSHOTS).await;
    let names: Vec<&str> =
        table.body["columnDefinitions"].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()).collect();
    let expected = [
        "Name",
        "ReadyToUse",
        "SourcePVC",
        "SourceSnapshotContent",
        "RestoreSize",
        "SnapshotClass",
        "SnapshotContent",
        "CreationTime",
        "Age",
    ];
    assert_eq!(names, expected);
    assert_eq!(table.body["rows"][0]["cells"], json!(["s", true, "c", null, "1Gi", "k", "v", null, "0s"]));
}

#[tokio::test(start_paused = true)]
async fn a_group_is_served_in_three_versions_and_the_first_warns() {
    let server = Server::start().await;
    let group = server.call("GET", GROUPS, None).await;
    let versions: Vec<&str> =
        group.body["versions"].as_array().into_iter().flatten().filter_map(|v| v["version"].as_str()).collect();
    assert_eq!(versions, ["v1", "v1beta2", "v1beta1"]);
    let class = json!({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1beta1", "kind": "VolumeGroupSnapshotClass",
        "metadata": {"name": "k"}, "driver": "d", "deletionPolicy": "Delete",
    });
    let created = server.call("POST", &format!("{GROUPS}/v1beta1/volumegroupsnapshotclasses"), Some(&class)).await;
    let warning = "299 - \"groupsnapshot.storage.k8s.io/v1beta1 VolumeGroupSnapshotClass is deprecated\"";
    assert_eq!((created.code, created.warnings), (201, vec![warning.to_owned()]));
    let current = server.call("GET", &format!("{GROUPS}/v1/volumegroupsnapshotclasses/k"), None).await;
    assert_eq!((current.code, &current.body["driver"]), (200, &json!("d")));
    assert!(current.warnings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_second_start_writes_nothing_and_repairs_what_is_missing() {
    let disk = MemoryDisk::default();
    let store = || Store::on_memory(&disk, Options::default());
    let first = Server::over(store()).await;
    let revision = first.api.store().revision();
    drop(first);
    let second = Server::over(store()).await;
    assert_eq!(second.api.store().revision(), revision);
    let path = format!("{DEFINITIONS}/volumesnapshotclasses.snapshot.storage.k8s.io");
    let patch = json!({"spec": {"names": {"shortNames": ["mine"]}}});
    assert_eq!(second.send("PATCH", &path, Some(&patch), MERGE).await.code, 200);
    drop(second);
    let third = Server::over(store()).await;
    let changed = third.call("GET", &path, None).await;
    assert_eq!(changed.body["spec"]["names"]["shortNames"], json!(["mine"]), "what somebody changed is theirs");
    let mut events = third.watch(&format!("{DEFINITIONS}?watch=1&resourceVersion={}", changed.version())).await;
    third.call("DELETE", &path, None).await;
    let run = tokio::spawn({
        let api = third.api.clone();
        async move { api.run().await }
    });
    while events.brief().await.expect("the watch goes on") != "DELETED volumesnapshotclasses.snapshot.storage.k8s.io" {}
    third.api.service().stop();
    run.await.expect("the controllers end").expect("the store works");
    drop((events, third));
    let fourth = Server::over(store()).await;
    let repaired = fourth.call("GET", &path, None).await;
    assert_eq!(repaired.body["spec"]["names"]["shortNames"], json!(["vsclass", "vsclasses"]));
}
