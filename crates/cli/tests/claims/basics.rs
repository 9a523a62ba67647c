//! A claim's whole life, one property at a time.

use std::fs;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::DeleteParams;
use serde_json::json;

use super::objects::{claim, handle, name, phase};
use super::stage::Stage;
use crate::needs;
use crate::rig::MIB;

#[tokio::test]
async fn a_claim_becomes_a_bound_volume_with_an_image_of_its_size_and_goes_without_a_trace() {
    needs!(Ext4);
    let stage = Stage::set().await;
    stage.create_claim(&claim(&stage, "data")).await;
    let volume = stage.bound("data").await;

    let spec = volume.spec.as_ref().unwrap();
    let owner = spec.claim_ref.as_ref().unwrap();
    assert_eq!((owner.namespace.as_deref(), owner.name.as_deref()), (Some(&*stage.namespace), Some("data")));
    assert_eq!(spec.storage_class_name.as_deref(), Some(&*stage.class()));
    assert_eq!(spec.capacity.as_ref().unwrap()["storage"].0, "64Mi");
    let csi = spec.csi.as_ref().unwrap();
    assert_eq!(csi.driver, stage.driver_name());
    let places = serde_json::to_string(&spec.node_affinity).unwrap();
    assert!(
        places.contains(&driver_local::keys::topology_key(&stage.driver_name())),
        "it is where the driver is: {places}"
    );
    let image = stage.image(&csi.volume_handle);
    assert_eq!(fs::metadata(&image).unwrap().len(), 64 * MIB);

    let bound = stage.claims().get("data").await.unwrap();
    let status = bound.status.unwrap();
    assert_eq!(status.capacity.unwrap()["storage"].0, "64Mi");
    assert_eq!(status.access_modes.unwrap(), ["ReadWriteOnce"]);

    stage.delete_claim("data").await;
    stage.volume_gone(name(&volume)).await;
    assert!(!image.exists());
    stage.end().await;
}

#[tokio::test]
async fn a_retained_volume_outlives_its_claim_and_even_its_own_object() {
    needs!(Ext4);
    let stage = Stage::set().await;
    let class = format!("{}-retain", stage.class());
    stage.create_class(&class, &json!({"reclaimPolicy": "Retain"})).await;
    let mut wanted = claim(&stage, "data");
    wanted["spec"]["storageClassName"] = class.into();
    stage.create_claim(&wanted).await;
    let volume = stage.bound("data").await;
    let image = stage.image(handle(&volume));

    stage.delete_claim("data").await;
    let released = |volume: Option<&PersistentVolume>| phase(volume) == Some("Released");
    stage.until(stage.volumes(), name(&volume), "released", released).await;
    assert!(image.exists(), "its data is the user's");
    drop(stage.volumes().delete(name(&volume), &DeleteParams::default()).await.unwrap());
    stage.volume_gone(name(&volume)).await;
    assert!(image.exists(), "deleting the object is not deleting the data");

    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["csi", "delete", handle(&volume), "--endpoint"]).arg(stage.socket());
    assert!(command.status().unwrap().success());
    stage.end().await;
}

/// Rule: PROVISION-2.4.b
#[tokio::test]
async fn a_block_claim_gets_a_block_volume() {
    needs!();
    let stage = Stage::set().await;
    let mut wanted = claim(&stage, "raw");
    wanted["spec"]["volumeMode"] = "Block".into();
    stage.create_claim(&wanted).await;
    let volume = stage.bound("raw").await;
    let spec = volume.spec.as_ref().unwrap();
    assert_eq!(spec.volume_mode.as_deref(), Some("Block"));
    assert_eq!(spec.csi.as_ref().unwrap().fs_type, None, "a device has no filesystem yet");
    assert_eq!(fs::metadata(stage.image(handle(&volume))).unwrap().len(), 64 * MIB);
    stage.delete_claim("raw").await;
    stage.volume_gone(name(&volume)).await;
    stage.end().await;
}

#[tokio::test]
async fn a_claim_that_no_pool_can_hold_waits_and_says_why() {
    needs!(Ext4);
    let stage = Stage::set().await;
    let mut wanted = claim(&stage, "huge");
    wanted["spec"]["resources"]["requests"]["storage"] = "9Ti".into();
    stage.create_claim(&wanted).await;
    let why = stage.event("huge", "ProvisioningFailed").await;
    assert!(why.contains("ResourceExhausted") || why.contains("OutOfRange"), "{why}");
    let waiting = stage.claims().get("huge").await.unwrap();
    assert_eq!(waiting.status.unwrap().phase.as_deref(), Some("Pending"));
    stage.delete_claim("huge").await;
    stage.end().await;
}

#[tokio::test]
async fn a_volume_made_by_hand_is_found_by_the_claim_it_is_meant_for() {
    needs!(Ext4);
    let stage = Stage::set().await;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["csi", "-o", "json", "create", "by-hand", "--size", "64Mi", "--fs", "ext4", "--endpoint"]);
    assert!(command.arg(stage.socket()).output().unwrap().status.success());
    let made: Vec<String> = stage.listed_by_driver().into_iter().collect();
    let name = format!("by-hand-{}", stage.namespace);
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "64Mi"}, "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": stage.driver_name(), "volumeHandle": made[0]},
            "claimRef": {"namespace": stage.namespace, "name": "data"},
        },
    });
    stage.create("/api/v1/persistentvolumes", &volume).await;
    let mut wanted = claim(&stage, "data");
    wanted["spec"]["storageClassName"] = "".into();
    stage.create_claim(&wanted).await;
    let bound = stage.bound("data").await;
    assert_eq!(bound.metadata.name, Some(name.clone()));
    stage.delete_claim("data").await;
    let released = |volume: Option<&PersistentVolume>| phase(volume) == Some("Released");
    stage.until(stage.volumes(), &name, "released", released).await;
    drop(stage.volumes().delete(&name, &DeleteParams::default()).await.unwrap());
    stage.volume_gone(&name).await;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["csi", "delete", &made[0], "--endpoint"]).arg(stage.socket());
    assert!(command.status().unwrap().success());
    stage.end().await;
}

#[tokio::test]
async fn a_claim_in_use_stays_until_its_pod_is_gone() {
    needs!(Ext4);
    let stage = Stage::set().await;
    stage.create_claim(&claim(&stage, "data")).await;
    let volume = stage.bound("data").await;
    let mut pod = super::objects::pod("user", "data");
    // Nobody has to choose a node for it.
    pod["spec"]["nodeName"] = stage.node().into();
    stage.create_pod(&pod).await;
    drop(stage.claims().delete("data", &DeleteParams::default()).await.unwrap());
    let ending = |claim: Option<&PersistentVolumeClaim>| {
        claim.is_some_and(|claim| claim.metadata.deletion_timestamp.is_some() && claim.metadata.finalizers.is_some())
    };
    stage.until(stage.claims(), "data", "ending", ending).await;
    assert!(stage.image(handle(&volume)).exists());

    let path = format!("/api/v1/namespaces/{}/pods/user", stage.namespace);
    // At once: no kubelet is there to end it.
    stage.change("DELETE", &path, &json!({"gracePeriodSeconds": 0})).await;
    let gone = |claim: Option<&PersistentVolumeClaim>| claim.is_none();
    stage.until(stage.claims(), "data", "gone", gone).await;
    stage.volume_gone(name(&volume)).await;
    stage.end().await;
}
