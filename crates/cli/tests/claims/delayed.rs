//! Delayed binding: a volume comes where the pod that wants it can run.

use api::keys::annotation;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use serde_json::json;

use super::objects::{claim, name, pod};
use super::program::Program;
use super::stage::{Scheduling, Stage, scheduling};
use crate::needs;
use crate::rig::skip;

#[tokio::test]
async fn a_delayed_claim_waits_for_a_pod_and_gets_its_volume_where_the_pod_runs() {
    needs!(Ext4);
    if scheduling() == Scheduling::Nobody {
        return skip("claims::delayed", "no scheduler runs beside this server");
    }
    let stage = Stage::set().await;
    let scheduler = (scheduling() == Scheduling::Ours)
        .then(|| Program::start(&stage.scratch.path(""), "scheduler", &stage.flags("scheduler")));
    let class = format!("{}-late", stage.class());
    stage.create_class(&class, &json!({"volumeBindingMode": "WaitForFirstConsumer"})).await;
    let mut wanted = claim(&stage, "late");
    wanted["spec"]["storageClassName"] = class.into();
    stage.create_claim(&wanted).await;
    // Another claim is bound meanwhile, so whoever binds has seen this one.
    stage.create_claim(&claim(&stage, "early")).await;
    let early = stage.bound("early").await;
    let waiting = stage.claims().get("late").await.unwrap();
    assert_eq!(waiting.status.unwrap().phase.as_deref(), Some("Pending"));

    stage.create_pod(&pod("user", "late")).await;
    let volume = stage.bound("late").await;
    let bound: PersistentVolumeClaim = stage.claims().get("late").await.unwrap();
    let annotations = bound.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations.get(annotation::SELECTED_NODE.text()), Some(&stage.node()));
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let placed = |pod: Option<&Pod>| pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_ref()).is_some();
    let user = stage.until(pods, "user", "scheduled", placed).await.unwrap();
    assert_eq!(user.spec.unwrap().node_name, Some(stage.node()));

    let path = format!("/api/v1/namespaces/{}/pods/user", stage.namespace);
    stage.change("DELETE", &path, &json!({"gracePeriodSeconds": 0})).await;
    for (claim, volume) in [("late", &volume), ("early", &early)] {
        stage.delete_claim(claim).await;
        stage.volume_gone(name(volume)).await;
    }
    if let Some(scheduler) = scheduler {
        scheduler.stop();
    }
    stage.end().await;
}
