//! The journal itself: writes whose outcome is unknown, entries that nobody understands, names that are taken.

use std::sync::{Arc, Mutex};

use api::keys::finalizer;
use api::{ConfigMap, Key, Kind, Volume};
use control::provision::{Engine, Options, Provisioner as _};
use runtime::Stop;
use runtime::client::Preconditions;
use serde_json::{Value, json};
use sim::Process;
use sim::faults::{Fair, Fate, Refusal};
use tokio::time::sleep;

use crate::rig::{Deaf, End, MINUTE, NAMESPACE, on_path, play, requests};
use crate::storage::{Called, DRIVER, Turn};

fn page() -> Key {
    Key::namespaced(NAMESPACE, &format!("orlop-intents-{DRIVER}-0"))
}

/// Rule: SIDECAR-13.1
#[test]
fn nothing_is_made_before_the_journal_is_sure() {
    for fate in [Fate::RequestLost, Fate::AnswerLost, Fate::Refused(Refusal::Conflict), Fate::Refused(Refusal::Gone)] {
        for times in [1, 2] {
            play(async |rig| {
                println!("{fate:?}, {times} times");
                rig.claim("c").await;
                rig.live(on_path("/configmaps", times, fate.clone()), 10 * MINUTE).await;
                assert_eq!((rig.storage.creates(), rig.volumes().await.len()), (1, 1));
                let lines = rig.world.journal().lines();
                let created = lines.iter().position(|line| line.ends_with("storage create")).expect("it was made");
                let last = lines[..created].iter().rfind(|line| line.contains("/configmaps")).expect("it was written");
                let told = last.contains("POST") && last.ends_with("201");
                let shown = last.contains("GET") && last.ends_with("200");
                assert!(told || shown, "the server's last word before the creation: {last}");
                rig.at_rest().await;
            });
        }
    }
}

#[test]
fn an_entry_that_cannot_be_read_is_kept_and_said_and_nothing_is_made_beside_it() {
    play(async |rig| {
        let uid = rig.claim("c").await;
        rig.live(Fair, MINUTE).await;
        rig.claim("other").await;
        let strange = "{\"form\":99}";
        let young = rig.claim("young").await;
        rig.patch(Kind::CONFIG_MAP, &page(), json!({"data": {young.as_str(): strange}})).await;
        rig.live(Fair, 10 * MINUTE).await;
        assert_eq!(rig.volumes().await.len(), 2, "others are served");
        assert_eq!(rig.intents().await, [(young.to_string(), strange.to_owned())], "kept as it was");
        assert_eq!(rig.events("young").await, ["ProvisioningFailed"]);
        assert_eq!(rig.events(page().name()).await, ["IntentUnreadable"]);
        let repaired = async {
            sleep(10 * MINUTE).await;
            rig.patch(Kind::CONFIG_MAP, &page(), json!({"data": {young.as_str(): null}})).await;
            sleep(10 * MINUTE).await;
        };
        rig.live_beside(Fair, repaired).await;
        assert!(rig.volume(&young).await.is_some() && rig.volume(&uid).await.is_some());
        rig.at_rest().await;
    });
}

#[test]
fn a_page_that_somebody_deletes_is_written_again() {
    play(async |rig| {
        rig.storage.will_create([Turn::RequestLost, Turn::RequestLost, Turn::RequestLost, Turn::RequestLost]);
        rig.claim("c").await;
        let script = async {
            sleep(MINUTE / 60).await;
            rig.user.delete::<ConfigMap>(&page(), &Preconditions::default()).await.unwrap();
            assert_eq!(rig.intents().await.len(), 0);
            rig.claim("d").await;
            sleep(MINUTE / 60).await;
            assert!(rig.intents().await.iter().any(|(_, text)| text.contains("\"claim\":\"c\"")), "still open");
            sleep(MINUTE).await;
        };
        rig.live_beside(Fair, script).await;
        assert_eq!(rig.volumes().await.len(), 2);
        rig.at_rest().await;
    });
}

fn stranger(name: &str, handle: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": "another.driver", "volumeHandle": handle}}})
}

/// Rule: PROVISION-2.10
#[test]
fn a_name_that_a_stranger_takes_meanwhile_undoes_what_was_made() {
    play(async |rig| {
        rig.storage.will_create([Turn::Takes(MINUTE)]);
        let uid = rig.claim("c").await;
        let name = format!("pvc-{uid}");
        let script = async {
            sleep(MINUTE / 2).await;
            rig.user.create::<Value>(Kind::VOLUME, None, &stranger(&name, "strange")).await.unwrap();
            sleep(MINUTE).await;
            assert!(rig.storage.volumes().is_empty(), "what was made for nobody is gone");
            assert_eq!(rig.events("c").await, ["Provisioning", "ProvisioningFailed"]);
            rig.patch(Kind::VOLUME, &Key::cluster(&name), json!({"metadata": {"finalizers": null}})).await;
            rig.user.delete::<Volume>(&Key::cluster(&name), &Preconditions::default()).await.unwrap();
            sleep(10 * MINUTE).await;
        };
        rig.live_beside(Fair, script).await;
        assert_eq!(rig.storage.volumes().len(), 1, "when the name is free again, the claim is served");
        rig.at_rest().await;
    });
}

/// external-provisioner #1469: the claim and its volume are gone, and the cache still shows the claim as it was before
/// it was bound.
/// Rule: PROVISION-2.4.0
#[test]
fn a_claim_that_only_a_stale_cache_shows_gets_no_second_volume() {
    play(async |rig| {
        let deaf = Arc::new(Mutex::new(false));
        let uid = rig.claim("c").await;
        let script = async {
            sleep(MINUTE).await;
            *deaf.lock().unwrap() = true;
            rig.bind("c", &uid).await;
            rig.delete_claim("c").await;
            rig.release(&format!("pvc-{uid}")).await;
            sleep(20 * MINUTE).await;
            assert_eq!(rig.storage.deletes(), 0, "as far as it knows, the claim lives");
            sleep(100 * MINUTE).await;
        };
        rig.live_beside(Deaf::to("persistentvolumeclaims", &deaf), script).await;
        let calls = rig.storage.calls();
        assert_eq!(rig.storage.creates(), 1, "{calls:?}");
        assert_eq!(calls.last(), Some(&Called::Delete { handle: "handle-1".to_owned() }));
        assert!(rig.storage.volumes().is_empty() && rig.volumes().await.is_empty());
        rig.at_rest().await;
    });
}

/// external-provisioner #1469 with a volume that an administrator removed: nothing but the server can say that the
/// claim is gone, too.
/// Rule: PROVISION-2.4.2
#[test]
fn a_served_claim_is_read_before_it_is_served_again() {
    play(async |rig| {
        let deaf = Arc::new(Mutex::new(false));
        let uid = rig.claim("c").await;
        let key = Key::cluster(&format!("pvc-{uid}"));
        let script = async {
            sleep(MINUTE).await;
            *deaf.lock().unwrap() = true;
            rig.bind("c", &uid).await;
            rig.delete_claim("c").await;
            rig.user.delete::<Volume>(&key, &Preconditions::default()).await.unwrap();
            rig.patch(Kind::VOLUME, &key, json!({"metadata": {"finalizers": null}})).await;
            sleep(5 * MINUTE).await;
        };
        rig.live_beside(Deaf::to("persistentvolumeclaims", &deaf), script).await;
        assert_eq!(rig.storage.creates(), 1);
        assert_eq!(requests(&rig.world, &["GET", "/persistentvolumeclaims/c", "404"]), 1, "it was looked for");
    });
}

/// external-provisioner #1469, the other half: an object of the same claim stands for an earlier volume.
/// Rule: PROVISION-2.10
#[test]
fn a_volume_made_beside_an_object_of_another_handle_is_deleted() {
    play(async |rig| {
        rig.storage.will_create([Turn::Takes(MINUTE)]);
        let uid = rig.claim("c").await;
        let name = format!("pvc-{uid}");
        let script = async {
            sleep(MINUTE / 2).await;
            let mut body = stranger(&name, "earlier");
            body["spec"]["csi"]["driver"] = json!(DRIVER);
            body["spec"]["claimRef"] = json!({"namespace": NAMESPACE, "name": "c", "uid": uid});
            body["metadata"]["finalizers"] = json!([finalizer::EXTERNAL_PROVISIONER.text()]);
            rig.user.create::<Value>(Kind::VOLUME, None, &body).await.unwrap();
            sleep(10 * MINUTE).await;
        };
        rig.live_beside(Fair, script).await;
        assert!(rig.storage.calls().contains(&Called::Delete { handle: "handle-1".to_owned() }));
        assert!(rig.storage.volumes().is_empty(), "the second one is not lost");
        assert_eq!(rig.volumes().await.len(), 1, "the first one stays");
        assert_eq!(rig.intents().await, []);
        assert_eq!(requests(&rig.world, &["DELETE", "/persistentvolumes"]), 0);
    });
}

/// external-provisioner #1469: an object of the claim is to be deleted while a volume of its name is being made.
#[test]
fn making_and_deleting_one_volume_never_overlap() {
    play(async |rig| {
        rig.storage.will_create([Turn::Takes(MINUTE)]);
        rig.storage.will_delete([Turn::Takes(MINUTE), Turn::Takes(MINUTE)]);
        let uid = rig.claim("c").await;
        let name = format!("pvc-{uid}");
        let script = async {
            sleep(MINUTE / 2).await;
            let mut body = stranger(&name, "earlier");
            body["spec"]["csi"]["driver"] = json!(DRIVER);
            body["spec"]["claimRef"] = json!({"namespace": NAMESPACE, "name": "c", "uid": uid});
            body["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
            rig.user.create::<Value>(Kind::VOLUME, None, &body).await.unwrap();
            rig.delete_claim("c").await;
            rig.release(&name).await;
            sleep(10 * MINUTE).await;
        };
        rig.live_beside(Fair, script).await;
        let handles = ["handle-1", "earlier"].map(|handle| Called::Delete { handle: handle.to_owned() });
        assert!(handles.iter().all(|call| rig.storage.calls().contains(call)), "{:?}", rig.storage.calls());
        rig.at_rest().await;
    });
}

/// A process that waited for its turn with a cache from before: the volume that it still sees is not the one that was begun.
#[test]
fn a_successor_with_an_old_cache_does_not_take_an_earlier_volume_for_the_one_that_was_begun() {
    play(async |rig| {
        let deaf = Arc::new(Mutex::new(false));
        let uid = rig.claim("c").await;
        let key = Key::cluster(&format!("pvc-{uid}"));
        rig.live(Fair, MINUTE).await;
        let component = rig.world.component("successor", Deaf::to("persistentvolumes", &deaf));
        let process = Process::new(&rig.world, &component, 1);
        let caches = process.context.caches.clone();
        let engine = Engine::new(&process.context, rig.storage.clone(), Options::new("fake_host_2", NAMESPACE));
        let stop = Stop::never();
        let work = async {
            caches.synced().await;
            *deaf.lock().unwrap() = true;
            // The volume goes in order and its claim stays, so that the claim gets another one.
            rig.release(key.name()).await;
            rig.storage.delete(&rig.volume(&uid).await.unwrap()).await.unwrap();
            rig.user.delete::<Volume>(&key, &Preconditions::default()).await.unwrap();
            rig.patch(Kind::VOLUME, &key, json!({"metadata": {"finalizers": null}})).await;
            rig.storage.will_create([Turn::Kills]);
            assert_eq!(rig.live(Fair, MINUTE).await, End::Killed);
            assert_eq!(rig.storage.volumes().len(), 1, "the second one is made, and nobody was told");
            tokio::select! {
                () = sleep(5 * MINUTE) => {}
                () = engine.run(&stop) => {}
            }
        };
        Box::pin(process.run(&stop, Box::pin(work))).await;
        assert!(rig.volume(&uid).await.is_some(), "it is stored");
        rig.at_rest().await;
    });
}
