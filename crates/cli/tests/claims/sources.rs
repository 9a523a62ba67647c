//! Volumes that start with the content of another: clones and restored snapshots.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use serde_json::{Value, json};

use super::objects::{claim, handle, name};
use super::stage::Stage;
use crate::api_rig::ask;
use crate::needs;
use crate::rig::skip;

const CONTENT: &[u8] = b"what the first volume holds";
const AT: u64 = 4096;

/// A bound block claim with [`CONTENT`] in it. Gives the names of its volume and of what the driver has.
async fn filled(stage: &Stage, claim_name: &str) -> (String, String) {
    stage.create_claim(&raw(stage, claim_name)).await;
    let volume = stage.bound(claim_name).await;
    let image = File::options().write(true).open(stage.image(handle(&volume))).unwrap();
    image.write_all_at(CONTENT, AT).unwrap();
    image.sync_all().unwrap();
    (name(&volume).to_owned(), handle(&volume).to_owned())
}

fn raw(stage: &Stage, name: &str) -> Value {
    let mut claim = claim(stage, name);
    claim["spec"]["volumeMode"] = "Block".into();
    claim
}

fn content(stage: &Stage, handle: &str) -> Vec<u8> {
    let mut found = vec![0; CONTENT.len()];
    File::open(stage.image(handle)).unwrap().read_exact_at(&mut found, AT).unwrap();
    found
}

#[tokio::test]
async fn a_clone_starts_with_the_content_of_its_source() {
    needs!();
    let stage = Stage::set().await;
    let (source, _) = filled(&stage, "source").await;
    let mut wanted = raw(&stage, "copy");
    wanted["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": "source"});
    stage.create_claim(&wanted).await;
    let copy = stage.bound("copy").await;
    assert_eq!(content(&stage, handle(&copy)), CONTENT);

    // The source is free again once the copy is made.
    stage.delete_claim("source").await;
    stage.volume_gone(&source).await;
    assert_eq!(content(&stage, handle(&copy)), CONTENT);
    stage.delete_claim("copy").await;
    stage.volume_gone(name(&copy)).await;
    stage.end().await;
}

#[tokio::test]
async fn a_restored_snapshot_starts_with_what_was_frozen() {
    needs!();
    let stage = Stage::set().await;
    let snapshots = "/apis/snapshot.storage.k8s.io/v1";
    let (code, _) = ask(&stage.client, ("GET", snapshots), None).await.unwrap();
    if code != 200 {
        stage.end().await;
        return skip("claims::sources", "the server has no definition of snapshots");
    }
    let (source, source_handle) = filled(&stage, "source").await;
    let cut = cut(&stage, &source_handle);
    snapshot_objects(&stage, snapshots, &cut).await;
    let image = File::options().write(true).open(stage.image(&source_handle)).unwrap();
    image.write_all_at(b"later", AT).unwrap();
    image.sync_all().unwrap();

    let mut wanted = raw(&stage, "restored");
    wanted["spec"]["dataSource"] =
        json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "frozen"});
    stage.create_claim(&wanted).await;
    let restored = stage.bound("restored").await;
    assert_eq!(content(&stage, handle(&restored)), CONTENT);

    for (claim, volume) in [("restored", name(&restored)), ("source", source.as_str())] {
        stage.delete_claim(claim).await;
        stage.volume_gone(volume).await;
    }
    let output = csi(&stage, &["snapshot", "delete", &cut]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let objects = [
        format!("{snapshots}/namespaces/{}/volumesnapshots/frozen", stage.namespace),
        format!("{snapshots}/volumesnapshotcontents/{}", stage.namespace),
    ];
    for path in objects {
        stage.change("DELETE", &path, &json!({})).await;
    }
    stage.end().await;
}

fn csi(stage: &Stage, args: &[&str]) -> std::process::Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["csi", "-o", "json", "--endpoint"]).arg(stage.socket()).args(args).output().unwrap()
}

/// Cuts a snapshot with the driver itself. Gives its id.
fn cut(stage: &Stage, volume: &str) -> String {
    let output = csi(stage, &["snapshot", "create", "frozen", "--volume", volume]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let id = said["snapshot"]["snapshotId"].as_str().or_else(|| said["snapshotId"].as_str());
    id.unwrap_or_else(|| panic!("no id in {said}")).to_owned()
}

/// The snapshot as a snapshot controller would have left it: ready, and bound to its content.
async fn snapshot_objects(stage: &Stage, group: &str, handle: &str) {
    let content = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": {"name": stage.namespace},
        "spec": {
            "deletionPolicy": "Retain", "driver": stage.driver_name(), "source": {"snapshotHandle": handle},
            "sourceVolumeMode": "Block", "volumeSnapshotRef": {"namespace": stage.namespace, "name": "frozen"},
        },
    });
    let collection = format!("{group}/volumesnapshotcontents");
    stage.create(&collection, &content).await;
    let status = json!({"status": {"snapshotHandle": handle, "readyToUse": true, "restoreSize": 64 << 20}});
    stage.change("PATCH", &format!("{collection}/{}/status", stage.namespace), &status).await;
    let snapshot = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": "frozen"},
        "spec": {"source": {"volumeSnapshotContentName": stage.namespace}},
    });
    let collection = format!("{group}/namespaces/{}/volumesnapshots", stage.namespace);
    let made = stage.create(&collection, &snapshot).await;
    let owner = json!({"spec": {"volumeSnapshotRef": {"uid": made["metadata"]["uid"]}}});
    stage.change("PATCH", &format!("{group}/volumesnapshotcontents/{}", stage.namespace), &owner).await;
    let status = json!({"status": {
        "boundVolumeSnapshotContentName": stage.namespace, "readyToUse": true, "restoreSize": "64Mi",
    }});
    stage.change("PATCH", &format!("{collection}/frozen/status"), &status).await;
}
