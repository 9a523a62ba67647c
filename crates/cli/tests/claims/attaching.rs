//! VolumeAttachments are carried out by `orlop sidecar` and a driver whose volumes have to be attached (ATTACHER-3).
//!
//! Where the test writes attachments, no controllers run: they would delete one that no pod wants.

use api::keys::annotation;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::leaders::{REPLICAS, electing, leader};
use super::objects::{claim, handle, pod};
use super::program::Program;
use super::stage::{Controllers, Stage, controllers};
use crate::api_rig::ask;
use crate::needs;
use crate::rig::{NODE, skip};

const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
const VOLUMES: &str = "/api/v1/persistentvolumes";

/// A volume that a person made, and its object.
async fn volume(stage: &Stage) -> PersistentVolume {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["csi", "-o", "json", "create", "by-hand", "--size", "64Mi", "--fs", "ext4", "--endpoint"]);
    assert!(command.arg(stage.socket()).output().unwrap().status.success());
    let made: Vec<String> = stage.listed_by_driver().into_iter().collect();
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": object_name(stage)},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "64Mi"}, "storageClassName": "by-hand",
            "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": stage.driver_name(), "volumeHandle": made[0]},
        },
    });
    serde_json::from_value(stage.create(VOLUMES, &volume).await).unwrap()
}

/// The name of the volume and of the attachment.
fn object_name(stage: &Stage) -> String {
    format!("attached-{}", stage.namespace)
}

async fn wish(stage: &Stage) {
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": object_name(stage)},
        "spec": {"attacher": stage.driver_name(), "nodeName": stage.node(),
            "source": {"persistentVolumeName": object_name(stage)}},
    });
    stage.create(ATTACHMENTS, &attachment).await;
}

fn attachments(stage: &Stage) -> Api<VolumeAttachment> {
    Api::all(stage.client.clone())
}

async fn attached(stage: &Stage) -> VolumeAttachment {
    let is = |found: Option<&VolumeAttachment>| found.and_then(|a| a.status.as_ref()).is_some_and(|s| s.attached);
    stage.until(attachments(stage), &object_name(stage), "attached", is).await.unwrap()
}

async fn detached(stage: &Stage) {
    drop(attachments(stage).delete(&object_name(stage), &DeleteParams::default()).await.unwrap());
    gone(stage).await;
}

async fn gone(stage: &Stage) {
    let is = |found: Option<&VolumeAttachment>| found.is_none();
    stage.until(attachments(stage), &object_name(stage), "gone", is).await;
}

/// Where the driver says that the volume is published.
fn published(stage: &Stage, handle: &str) -> Vec<Value> {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["csi", "-o", "json", "--endpoint"]).arg(stage.socket()).arg("list");
    let listed: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let entries = listed["entries"].as_array().unwrap_or_else(|| panic!("no entries in {listed}"));
    let entry = entries.iter().find(|entry| entry["volume"]["volumeId"] == handle).unwrap();
    entry["status"]["publishedNodeIds"].as_array().cloned().unwrap_or_default()
}

/// Takes the volume away as a person would who also takes protection off.
async fn end(stage: Stage, volume: &PersistentVolume) {
    let path = format!("{VOLUMES}/{}", object_name(&stage));
    let is = |found: Option<&PersistentVolume>| {
        let held = found.and_then(|volume| volume.metadata.finalizers.as_ref());
        !held.is_some_and(|held| held.iter().any(|held| held.starts_with("external-attacher/")))
    };
    let (code, answer) = ask(&stage.client, ("DELETE", &path), Some(&json!({}))).await.unwrap();
    assert!(code == 200 || code == 404, "{answer}");
    stage.until(stage.volumes(), &object_name(&stage), "let go by the attacher", is).await;
    // Whoever takes protection off may have been faster.
    let free = json!({"metadata": {"finalizers": null}});
    let (code, answer) = ask(&stage.client, ("PATCH", &path), Some(&free)).await.unwrap();
    assert!(code == 200 || code == 404, "{answer}");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["csi", "delete", handle(volume), "--endpoint"]).arg(stage.socket());
    assert!(command.status().unwrap().success());
    stage.end().await;
}

/// Rules: ATTACHER-3.6, ATTACHER-3.7
#[tokio::test]
async fn a_volume_is_attached_and_detached_as_its_attachment_comes_and_goes() {
    needs!(Ext4);
    let mut stage = Stage::attaching().await;
    stage.start_sidecar();
    let volume = volume(&stage).await;
    assert!(published(&stage, handle(&volume)).is_empty());
    wish(&stage).await;
    let attachment = attached(&stage).await;
    assert_eq!(published(&stage, handle(&volume)), [NODE]);
    let notes = attachment.metadata.annotations.unwrap();
    assert_eq!(notes[annotation::NODE_ID.text()], NODE);
    let finalizers = attachment.metadata.finalizers.unwrap();
    assert_eq!(finalizers, [format!("external-attacher/{}", stage.driver_name().replace('.', "-"))]);
    let held = stage.volumes().get(&object_name(&stage)).await.unwrap();
    assert!(held.metadata.finalizers.unwrap().contains(&finalizers[0]));

    detached(&stage).await;
    assert!(published(&stage, handle(&volume)).is_empty());
    end(stage, &volume).await;
}

/// Rules: ATTACHER-3.7, SIDECAR-A7
#[tokio::test]
async fn a_volume_is_detached_without_its_object_and_its_node() {
    needs!(Ext4);
    let mut stage = Stage::attaching().await;
    stage.start_sidecar();
    let volume = volume(&stage).await;
    wish(&stage).await;
    attached(&stage).await;
    let path = format!("{VOLUMES}/{}", object_name(&stage));
    stage.change("DELETE", &path, &json!({})).await;
    let (code, answer) =
        ask(&stage.client, ("PATCH", &path), Some(&json!({"metadata": {"finalizers": null}}))).await.unwrap();
    assert!(code == 200, "the attachment holds it: {answer}");
    stage.volume_gone(&object_name(&stage)).await;
    let node = format!("/apis/storage.k8s.io/v1/csinodes/{}", stage.node());
    stage.change("PATCH", &node, &json!({"spec": {"drivers": []}})).await;

    detached(&stage).await;
    assert!(published(&stage, handle(&volume)).is_empty());
    end(stage, &volume).await;
}

/// Rules: SIDECAR-A2, SIDECAR-A3
#[tokio::test]
async fn a_killed_sidecar_finishes_what_it_began() {
    needs!(Ext4);
    let mut stage = Stage::attaching().await;
    let volume = volume(&stage).await;
    for _ in 0..3 {
        wish(&stage).await;
        stage.start_sidecar();
        let begun = |found: Option<&VolumeAttachment>| found.is_some_and(|a| a.metadata.finalizers.is_some());
        stage.until(attachments(&stage), &object_name(&stage), "begun", begun).await;
        // Wherever it is by now.
        drop(stage.sidecar.take());
        stage.start_sidecar();
        attached(&stage).await;
        assert_eq!(published(&stage, handle(&volume)), [NODE]);
        drop(attachments(&stage).delete(&object_name(&stage), &DeleteParams::default()).await.unwrap());
        drop(stage.sidecar.take());
        stage.start_sidecar();
        gone(&stage).await;
        assert!(published(&stage, handle(&volume)).is_empty());
        drop(stage.sidecar.take());
    }
    stage.start_sidecar();
    end(stage, &volume).await;
}

/// Rule: SIDECAR-1.4
#[tokio::test]
async fn a_second_attacher_goes_on_where_the_killed_leader_was() {
    needs!(Ext4);
    let mut stage = Stage::attaching().await;
    let volume = volume(&stage).await;
    let flags = electing(stage.sidecar_flags());
    let mut replicas = REPLICAS.map(|host| Program::start_on(&stage.scratch.path(""), host, &flags));
    wish(&stage).await;
    attached(&stage).await;
    let lease = runtime::lease::sanitise(&format!("external-attacher-leader-{}", stage.driver_name()));
    let first = leader(&stage, &lease).await;
    replicas[first].kill();
    detached(&stage).await;
    assert_ne!(leader(&stage, &lease).await, first, "the dead replica still holds the lease");
    assert!(published(&stage, handle(&volume)).is_empty());
    let [a, b] = replicas;
    if first == 0 {
        b.stop()
    } else {
        a.stop()
    }
    stage.start_sidecar();
    end(stage, &volume).await;
}

/// Rules: ATTACHER-3, ATTACH-6.8
#[tokio::test]
async fn a_pods_volume_is_attached_for_it_and_detached_after_it() {
    needs!(Ext4);
    if controllers() == Controllers::Theirs {
        return skip("claims::attaching", "the controllers of this server attach nothing");
    }
    let mut stage = Stage::attaching().await;
    let managed = json!({"metadata": {"annotations": {annotation::MANAGED_ATTACH.text(): "true"}}});
    stage.change("PATCH", &format!("/api/v1/nodes/{}", stage.node()), &managed).await;
    stage.start_controllers();
    stage.start_sidecar();
    stage.create_claim(&claim(&stage, "data")).await;
    let volume = stage.bound("data").await;
    let mut pod = pod("user", "data");
    // Nobody has to choose a node for it.
    pod["spec"]["nodeName"] = stage.node().into();
    stage.create_pod(&pod).await;
    let name = lifecycle::attach::attachment_name(&stage.driver_name(), handle(&volume), &stage.node());
    let is = |found: Option<&VolumeAttachment>| found.and_then(|a| a.status.as_ref()).is_some_and(|s| s.attached);
    stage.until(attachments(&stage), &name, "attached", is).await;
    assert_eq!(published(&stage, handle(&volume)), [NODE]);

    let path = format!("/api/v1/namespaces/{}/pods/user", stage.namespace);
    // At once: no kubelet is there to end it.
    stage.change("DELETE", &path, &json!({"gracePeriodSeconds": 0})).await;
    let is = |found: Option<&VolumeAttachment>| found.is_none();
    stage.until(attachments(&stage), &name, "gone", is).await;
    assert!(published(&stage, handle(&volume)).is_empty());
    stage.delete_claim("data").await;
    stage.volume_gone(volume.metadata.name.as_deref().unwrap()).await;
    stage.end().await;
}
