//! An older backup of the API is restored, as far as attachments go: the server and the controllers beside it are stopped, the
//! Nodes and VolumeAttachments of then are stored as `orlop restore` stores them, and the controllers start again. Machines,
//! their agents and the backend know nothing of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use apiserver::store::{Expect, Key, Store, Stored, Write, in_doubt};
use tokio::time::sleep;

use super::witness::Eyes;
use crate::outage::Outage;
use crate::{Component, World};

const SECOND: Duration = Duration::from_secs(1);
const RESTORED: [&str; 2] = ["nodes", "volumeattachments"];

/// How the objects of a backup are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restored {
    /// As `orlop restore` stores them.
    InDoubt,
    /// As they were, which is wrong.
    AsItWas,
}

/// Takes a backup and restores it some time later, again and again until the world is calm. The controllers are down during
/// the `restoring`.
pub(super) async fn live(world: &World, eyes: &Eyes, restoring: &Outage, restored: Restored) {
    let mut random = world.random("backups");
    let (weather, component) = (world.weather(), world.component("backup", crate::faults::Fair));
    let store = world.api().store();
    while !weather.is_calm() {
        sleep(random.between(&(5 * SECOND..=30 * SECOND))).await;
        let backup = objects(store);
        sleep(random.between(&(5 * SECOND..=30 * SECOND))).await;
        if !weather.is_calm() {
            restoring.begin();
            sleep(random.between(&(SECOND..=10 * SECOND))).await;
            if weather.is_calm() {
                // Machines that the backup does not know are registered no more.
                restoring.end();
                break;
            }
            restore(store, &component, (&backup, restored), random.number()).await;
            eyes.restored();
            eyes.judge();
            restoring.end();
        }
    }
    std::future::pending().await
}

fn objects(store: &Store) -> Vec<Arc<Stored>> {
    let all = store.snapshot().objects;
    all.into_iter().filter(|stored| RESTORED.contains(&stored.key.resource())).collect()
}

async fn restore(store: &Store, component: &Component, (backup, restored): (&[Arc<Stored>], Restored), mark: u64) {
    component.note("restores a backup");
    let mark = mark.to_string();
    let kept: BTreeSet<&Key> = backup.iter().map(|stored| &stored.key).collect();
    let mut writes = Vec::new();
    for stored in objects(store) {
        if !kept.contains(&stored.key) {
            writes.push(Write::delete(stored.key.clone(), Expect::Anything));
        }
    }
    for stored in backup {
        let value = match restored {
            Restored::InDoubt => in_doubt(stored, &mark),
            Restored::AsItWas => Some(stored.value.clone()),
        };
        if let Some(value) = value {
            writes.push(Write::put(stored.key.clone(), Expect::Anything, value));
        }
    }
    if let Err(error) = store.commit_all(writes).await {
        component.note(format_args!("the backup is not restored: {error}"));
    }
}
