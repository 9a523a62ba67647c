//! Users who make claims and pods, write through the pods' mounts, and delete everything again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

use super::ledger::{Claim, Ledger, Mounted, Pod, digest};
use super::objects::{self, CLAIMS, PODS, is_ready, uid, volume_of};
use super::site::Site;
use crate::api_rig::Random;
use crate::rig::world::write_synced;

/// Pods that a claim has one after another, at most.
const PODS_OF_CLAIM: u64 = 3;
/// Files that are written through a pod, at most, and bytes of one.
const FILES: u64 = 4;
const BYTES: u64 = 100_000;

/// What all users share.
#[derive(Clone)]
pub(super) struct World {
    pub(super) site: Arc<Site>,
    pub(super) ledger: Arc<Ledger>,
}

impl World {
    /// A claim, in the ledger once it is acknowledged.
    pub(super) async fn make_claim(&self, name: &str) {
        let made = self.site.create(CLAIMS, &objects::claim(name)).await;
        let claim = Claim { uid: uid(&made).to_owned(), volume: None, files: BTreeMap::new() };
        self.ledger.open().claims.insert(name.to_owned(), claim);
    }

    /// A pod, in the ledger once it is acknowledged, and again with its mount. Gives where that is.
    pub(super) async fn make_pod(&self, name: &str, claim: &str) -> PathBuf {
        let made = self.site.create(PODS, &objects::pod(name, claim)).await;
        let pod = Pod { uid: uid(&made).to_owned(), claim: claim.to_owned(), mount: None };
        self.ledger.open().pods.insert(name.to_owned(), pod);
        let bound = self.site.until(CLAIMS, claim, |claim| volume_of(claim).is_some()).await;
        let volume = volume_of(&bound).expect("it was waited for").to_owned();
        self.ledger.open().claim(claim).volume = Some(volume.clone());
        self.site.count();
        self.site.until(PODS, name, is_ready).await;
        let target = self.site.target(uid(&made), &volume);
        let mount = Mounted::at(&target);
        let mount = mount.unwrap_or_else(|| panic!("{name} says that it is ready, and {} is none", target.display()));
        self.ledger.open().pod(name).mount = Some(mount);
        self.site.count();
        target
    }

    /// Bytes are in the ledger once they are on disk.
    async fn write(&self, claim: &str, target: &Path, file: &str, bytes: Vec<u8>) {
        let path = target.join(file);
        let written = digest(&bytes);
        tokio::task::spawn_blocking(move || write_synced(path, &bytes)).await.expect("it can be written");
        self.ledger.open().claim(claim).files.insert(file.to_owned(), written);
        self.site.count();
    }

    pub(super) async fn delete_pod(&self, name: &str) {
        self.ledger.open().pods.remove(name);
        self.site.delete(PODS, name).await;
    }

    pub(super) async fn delete_claim(&self, name: &str) {
        self.ledger.open().claims.remove(name);
        self.site.delete(CLAIMS, name).await;
    }
}

/// Somebody who never has enough.
pub(super) struct User {
    pub(super) world: World,
    pub(super) name: String,
    pub(super) random: Random,
}

impl User {
    /// Until told to stop; then everything of it is deleted.
    pub(super) async fn run(mut self, stop: watch::Receiver<bool>) -> u64 {
        let mut number = 0;
        while !*stop.borrow() {
            self.live(&format!("{}-{number}", self.name)).await;
            number += 1;
        }
        0
    }

    /// The life of a claim.
    async fn live(&mut self, claim: &str) {
        let world = self.world.clone();
        world.make_claim(claim).await;
        let last = self.random.below(PODS_OF_CLAIM);
        for number in 0..=last {
            let pod = format!("{claim}-{number}");
            let target = world.make_pod(&pod, claim).await;
            for file in 0..=self.random.below(FILES) {
                let bytes = self.bytes();
                world.write(claim, &target, &format!("{number}-{file}"), bytes).await;
            }
            // The last pod may keep its claim from going for a while.
            if number == last && self.random.below(2) == 0 {
                // The pod's entry needs that of its claim.
                world.ledger.open().pods.remove(&pod);
                world.delete_claim(claim).await;
                return world.delete_pod(&pod).await;
            }
            world.delete_pod(&pod).await;
        }
        world.delete_claim(claim).await;
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = self.random.below(BYTES);
        (0..length).map(|_| u8::try_from(self.random.below(256)).expect("it is below 256")).collect()
    }
}
