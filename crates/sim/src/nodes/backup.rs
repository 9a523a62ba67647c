//! An older backup of the API is restored, as far as attachments go: the VolumeAttachments of then are there again and
//! later ones are gone, and nodes list as attached and in use what they listed then. Machines and the backend know
//! nothing of it.

use std::time::Duration;

use api::{Attachment, Key, Kind};
use runtime::client::{Preconditions, Selection};
use runtime::{Client, Patch};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::witness::Eyes;
use crate::{Component, Process, World};

const SECOND: Duration = Duration::from_secs(1);

/// What a backup holds.
#[derive(Debug, Default)]
struct Backup {
    attachments: Vec<Value>,
    nodes: Vec<Value>,
}

/// Takes a backup and restores it some time later, again and again until the world is calm.
pub(super) async fn live(world: &World, eyes: &Eyes, is_on: bool) {
    let mut random = world.random("backups");
    let (weather, component) = (world.weather(), world.component("backup", crate::faults::Fair));
    let client = Process::new(world, &component, 0).context.client;
    while is_on && !weather.is_calm() {
        sleep(random.between(&(5 * SECOND..=30 * SECOND))).await;
        let Some(backup) = take(&client).await else { continue };
        sleep(random.between(&(5 * SECOND..=30 * SECOND))).await;
        if !weather.is_calm() {
            restore(&client, &component, &backup).await;
            eyes.judge();
        }
    }
    std::future::pending().await
}

async fn take(client: &Client) -> Option<Backup> {
    let all = Selection::default();
    let attachments = client.list::<Value>(Kind::ATTACHMENT, &all, 0, None).await.ok()?.items;
    let nodes = client.list::<Value>(Kind::NODE, &all, 0, None).await.ok()?.items;
    Some(Backup { attachments, nodes })
}

async fn restore(client: &Client, component: &Component, backup: &Backup) {
    component.note("restores a backup");
    let Some(now) = take(client).await else { return };
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    for attachment in &now.attachments {
        let key = Key::cluster(&name(attachment));
        let gone = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        drop(client.delete::<Attachment>(&key, &Preconditions::default()).await);
        drop(client.patch::<Value>(Kind::ATTACHMENT, &key, &gone).await);
    }
    for attachment in &backup.attachments {
        let metadata = &attachment["metadata"];
        let metadata = json!({
            "name": metadata["name"], "annotations": metadata["annotations"], "finalizers": metadata["finalizers"],
        });
        let body = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": metadata, "spec": attachment["spec"],
        });
        let key = Key::cluster(&name(attachment));
        drop(client.create::<Value>(Kind::ATTACHMENT, None, &body).await);
        let status = Patch::Merge(json!({"status": attachment["status"]}));
        drop(client.patch_status::<Value>(Kind::ATTACHMENT, &key, &status).await);
    }
    for node in &backup.nodes {
        let status = &node["status"];
        let lists = json!({"volumesAttached": status["volumesAttached"], "volumesInUse": status["volumesInUse"]});
        let patch = Patch::Merge(json!({"status": lists}));
        drop(client.patch_status::<Value>(Kind::NODE, &Key::cluster(&name(node)), &patch).await);
    }
}
