//! One volume of the storage and several objects that stand for it: operators hand handles over, drivers repeat themselves.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{Key, Kind, ReclaimPolicy, Uid, Volume};
use control::provision::{Engine, Options};
use runtime::client::Preconditions;
use runtime::{Stop, Stopper};
use serde_json::{Value, json};
use sim::Process;
use sim::faults::Fair;
use tokio::time::sleep;

use crate::rig::{Deaf, MINUTE, NAMESPACE, Rig, play};
use crate::storage::{DRIVER, Turn};

const MOMENT: Duration = Duration::from_millis(500);

/// A volume that an operator made for a handle.
fn by_hand(name: &str, handle: &str, policy: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": policy, "csi": {"driver": DRIVER, "volumeHandle": handle}}})
}

async fn make(rig: &Rig, body: &Value) {
    rig.user.create::<Value>(Kind::VOLUME, None, body).await.expect("the user's request is answered");
}

/// The operator keeps the data of a claim's volume and takes both objects away.
async fn keep_the_data(rig: &Rig, claim: &str, uid: &Uid) {
    let key = Key::cluster(&format!("pvc-{uid}"));
    rig.patch(Kind::VOLUME, &key, json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})).await;
    rig.delete_claim(claim).await;
    rig.user.delete::<Volume>(&key, &Preconditions::default()).await.expect("the user's request is answered");
    rig.patch(Kind::VOLUME, &key, json!({"metadata": {"finalizers": null}})).await;
}

#[test]
fn an_intent_that_outlived_its_volume_leaves_a_kept_handle_alone() {
    play(async |rig| {
        let uid = rig.claim("c").await;
        rig.live(Fair, MOMENT).await;
        assert_eq!(rig.intents().await.len(), 1, "its end was lingering when the process died");
        keep_the_data(&rig, "c", &uid).await;
        make(&rig, &by_hand("kept", "handle-1", "Retain")).await;
        rig.live(Fair, 20 * MINUTE).await;
        let names: Vec<String> = rig.volumes().await.iter().map(|volume| volume.name().to_owned()).collect();
        assert_eq!(names, ["kept"], "no second object");
        assert_eq!((rig.storage.deletes(), rig.storage.volumes().len()), (0, 1));
        assert_eq!(rig.intents().await, []);
    });
}

#[test]
fn an_intent_that_outlived_its_claim_and_volume_is_stored_as_retain_and_said() {
    play(async |rig| {
        let uid = rig.claim("c").await;
        rig.live(Fair, MOMENT).await;
        keep_the_data(&rig, "c", &uid).await;
        rig.live(Fair, MINUTE).await;
        let volume = rig.volume(&uid).await.expect("the volume is not forgotten");
        assert_eq!(volume.reclaim, ReclaimPolicy::Retain);
        assert_eq!(rig.events(volume.name()).await, ["VolumeRetained"]);
        rig.set_phase(volume.name(), "Released").await;
        rig.live(Fair, 20 * MINUTE).await;
        assert_eq!((rig.storage.deletes(), rig.storage.volumes().len()), (0, 1));
        rig.at_rest().await;
    });
}

#[test]
fn a_provisioner_that_ends_in_order_leaves_no_intent_behind() {
    play(async |rig| {
        let uid = rig.claim("c").await;
        let component = rig.world.component("provisioner", Fair);
        let process = Process::new(&rig.world, &component, 1);
        let engine = Engine::new(&process.context, rig.storage.clone(), Options::new("fake_host_1", NAMESPACE));
        let (stopper, stop) = Stopper::new();
        let work = async {
            let asked = async {
                sleep(MOMENT).await;
                assert_eq!(rig.intents().await.len(), 1, "it lingers");
                stopper.stop();
            };
            tokio::join!(asked, engine.run(&stop));
        };
        process.run(&Stop::never(), Box::pin(work)).await;
        assert!(rig.volume(&uid).await.is_some());
        rig.at_rest().await;
    });
}

/// The cache has seen nothing of the object that stands for what is about to be undone.
#[test]
fn undoing_asks_the_server_for_other_objects_of_the_handle() {
    play(async |rig| {
        let deaf = Arc::new(Mutex::new(false));
        rig.storage.will_create([Turn::Takes(MINUTE)]);
        let uid = rig.claim("c").await;
        let script = async {
            sleep(MINUTE / 2).await;
            *deaf.lock().unwrap() = true;
            make(&rig, &by_hand(&format!("pvc-{uid}"), "another", "Retain")).await;
            make(&rig, &by_hand("kept", "handle-1", "Retain")).await;
            sleep(5 * MINUTE).await;
        };
        rig.live_beside(Deaf::to("persistentvolumes", &deaf), script).await;
        assert_eq!(rig.storage.deletes(), 0, "{:?}", rig.storage.calls());
        assert_eq!(rig.events("c").await, ["Provisioning", "ProvisioningFailed"]);
    });
}

#[test]
fn a_driver_that_answers_one_handle_twice_serves_one_claim() {
    play(async |rig| {
        let first = rig.claim("first").await;
        rig.live(Fair, MINUTE).await;
        rig.storage.will_create([Turn::Gives("handle-1"), Turn::Gives("handle-1")]);
        let second = rig.claim("second").await;
        rig.live(Fair, Duration::from_secs(1)).await;
        assert!(rig.volume(&first).await.is_some() && rig.volume(&second).await.is_none());
        assert_eq!(rig.events("second").await, ["Provisioning", "ProvisioningFailed"]);
        assert_eq!(rig.storage.deletes(), 0, "the first claim's volume stays");
        rig.live(Fair, 10 * MINUTE).await;
        assert!(rig.volume(&second).await.is_some(), "served when the driver makes a volume of its own");
        assert_eq!(rig.storage.deletes(), 0);
        rig.at_rest().await;
    });
}

/// Both answers come before either is stored.
#[test]
fn one_handle_for_two_claims_at_once_becomes_one_volume() {
    play(async |rig| {
        rig.storage.will_create([Turn::Gives("same"), Turn::Gives("same"), Turn::Gives("same")]);
        rig.claim("first").await;
        rig.claim("second").await;
        rig.live(Fair, MINUTE / 4).await;
        let same = |volume: &&Volume| matches!(&volume.source, api::Source::Csi { handle, .. } if **handle == *"same");
        assert_eq!(rig.volumes().await.iter().filter(same).count(), 1);
        assert_eq!(rig.storage.deletes(), 0);
    });
}

#[test]
fn a_handle_that_another_volume_has_is_not_deleted_until_that_one_is_gone() {
    play(async |rig| {
        let uid = rig.claim("c").await;
        rig.live(Fair, MINUTE).await;
        rig.bind("c", &uid).await;
        let mut body = by_hand("thief", "handle-1", "Delete");
        body["spec"]["claimRef"] = json!({"namespace": NAMESPACE, "name": "invented", "uid": "invented"});
        make(&rig, &body).await;
        rig.release("thief").await;
        rig.live(Fair, 20 * MINUTE).await;
        assert_eq!((rig.storage.deletes(), rig.storage.volumes().len()), (0, 1), "claim c has its data there");
        assert_eq!(rig.events("thief").await, ["VolumeFailedDelete"]);
        let script = async {
            sleep(MINUTE).await;
            rig.delete_claim("c").await;
            rig.release(&format!("pvc-{uid}")).await;
            sleep(MINUTE).await;
        };
        rig.live_beside(Fair, script).await;
        assert!(rig.storage.volumes().is_empty() && rig.volumes().await.is_empty(), "both were to be deleted");
    });
}
