//! Plugins of the binder itself (BIND-4.9 internal path, BIND-4.10).

use std::path::Path;

use api::keys::{annotation, finalizer, provisioner};
use control::bind::Options;
use control::bind::plugins::{self, Provisioning};
use serde_json::{Value, json};
use sim::faults::{Fate, Refusal};

use crate::rig::{Mishap, User, claim, class, play_with, volume};

fn host_path(root: &Path) -> Options {
    let host_path = Provisioning::On { root: root.to_owned() };
    Options { plugins: plugins::Options { host_path, ..plugins::Options::default() }, ..Options::default() }
}

fn entries(root: &Path) -> Vec<String> {
    let names = std::fs::read_dir(root).into_iter().flatten().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A claim of a hostPath class; gives the name that its volume gets.
async fn ask(user: &User) -> String {
    user.make(&class("dirs", provisioner::HOST_PATH)).await;
    let mut wish = claim("c", "1Gi");
    wish["spec"]["storageClassName"] = json!("dirs");
    let made = user.make(&wish).await;
    format!("pvc-{}", made["metadata"]["uid"].as_str().expect("it has a uid"))
}

/// A pod `p` that uses claim `c`.
fn pod_of_claim() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": "p"},
        "spec": {"containers": [{"name": "main", "image": "example/main"}],
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}})
}

/// Rule: BIND-P3
#[test]
fn a_directory_is_made_for_a_claim_and_goes_with_it() {
    let root = tempfile::tempdir().expect("a directory can be made");
    play_with(host_path(root.path()), None, async |user| {
        let name = ask(&user).await;
        user.wait().await;
        user.assert_bound("c", &name, true).await;
        let made = user.volume(&name).await;
        assert_eq!(made["metadata"]["annotations"][annotation::PROVISIONED_BY.0], provisioner::HOST_PATH);
        assert!(made["metadata"]["finalizers"].to_string().contains(finalizer::PV_CONTROLLER.0));
        let marks = &user.claim("c").await["metadata"]["annotations"];
        assert_eq!(marks[annotation::STORAGE_PROVISIONER.0], provisioner::HOST_PATH);
        assert_eq!(entries(root.path()).len(), 1);
        let events = user.events("c").await;
        assert!(events.iter().any(|event| event.contains("ProvisioningSucceeded")), "{events:?}");
        user.drop_claim("c").await;
        user.wait().await;
        user.drop_volume_finalizers(&name).await;
        assert!(user.find_volume(&name).await.is_none());
        assert!(entries(root.path()).is_empty());
    });
}

/// Rules: BIND-4.9, BIND-4.10, CTRL-13.16, CTRL-13.18, CTRL-13.19
#[test]
fn making_and_deleting_survive_every_mishap() {
    let fates =
        [Fate::CrashBefore, Fate::CrashAfter, Fate::AnswerLost, Fate::RequestLost, Fate::Refused(Refusal::Conflict)];
    // Create, BIND-W2, BIND-W3, BIND-W4; then Released, the finalizer, the deletion.
    for write in 1..=7 {
        for fate in fates.clone() {
            println!("{write} {fate:?}");
            let root = tempfile::tempdir().expect("a directory can be made");
            play_with(host_path(root.path()), Some(Mishap { write, fate }), async |user| {
                let name = ask(&user).await;
                user.wait().await;
                user.assert_bound("c", &name, true).await;
                user.drop_claim("c").await;
                user.wait().await;
                user.drop_volume_finalizers(&name).await;
                assert!(user.find_volume(&name).await.is_none());
                assert!(entries(root.path()).is_empty());
            });
        }
    }
}

/// Rule: BIND-4.10
#[test]
fn a_directory_outside_the_root_is_never_deleted_and_the_volume_says_why() {
    let root = tempfile::tempdir().expect("a directory can be made");
    let precious = tempfile::tempdir().expect("a directory can be made");
    play_with(host_path(root.path()), None, async |user| {
        let mut foreign = volume("v", "1Gi");
        foreign["spec"].as_object_mut().expect("it is a map").remove("csi");
        foreign["spec"]["hostPath"] = json!({"path": precious.path().to_string_lossy()});
        foreign["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
        user.make(&foreign).await;
        user.make(&claim("c", "1Gi")).await;
        user.wait().await;
        user.drop_claim("c").await;
        user.wait().await;
        let held = user.volume("v").await;
        assert_eq!(held["status"]["phase"], "Failed", "{held:#}");
        assert!(held["status"]["message"].as_str().is_some_and(|why| !why.is_empty()));
        assert!(precious.path().exists());
    });
}

/// Rule: BIND-4.10
#[test]
fn a_recycled_directory_is_emptied_and_given_back() {
    let root = tempfile::tempdir().expect("a directory can be made");
    let data = root.path().join("data");
    std::fs::create_dir(&data).expect("a directory can be made");
    std::fs::write(data.join("old"), "secret").expect("a file can be made");
    play_with(host_path(root.path()), None, async |user| {
        let mut recycled = volume("v", "1Gi");
        recycled["spec"].as_object_mut().expect("it is a map").remove("csi");
        recycled["spec"]["hostPath"] = json!({"path": data.to_string_lossy()});
        recycled["spec"]["persistentVolumeReclaimPolicy"] = json!("Recycle");
        user.make(&recycled).await;
        user.make(&claim("first", "1Gi")).await;
        user.wait().await;
        user.make(&claim("second", "1Gi")).await;
        user.drop_claim("first").await;
        user.wait().await;
        user.assert_bound("second", "v", true).await;
        assert!(entries(&data).is_empty(), "nobody sees what the one before wrote");
        let events = user.events("v").await;
        assert!(events.iter().any(|event| event.contains("VolumeRecycled")), "{events:?}");
    });
}

/// Rules: CTRL-I6, CTRL-13.5
#[test]
fn a_policy_changed_at_the_last_moment_saves_the_data_although_the_cache_lags() {
    let root = tempfile::tempdir().expect("a directory can be made");
    play_with(host_path(root.path()), None, async |user| {
        let name = ask(&user).await;
        user.wait().await;
        user.assert_bound("c", &name, true).await;
        user.lag.begin();
        user.drop_claim("c").await;
        // Twenty seconds for the answer after which the volume is released, and as many for the one before it is deleted.
        tokio::time::sleep(std::time::Duration::from_secs(30)).await;
        assert_eq!(user.volume(&name).await["status"]["phase"], "Released");
        user.change_volume(&name, json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})).await;
        user.wait().await;
        assert_eq!(entries(root.path()).len(), 1, "the server was asked before anything was deleted");
        assert!(user.find_volume(&name).await.is_some());
    });
}

/// Rule: BIND-4.10
#[test]
fn the_cause_of_a_directory_that_cannot_be_deleted_is_in_the_status_and_in_the_event() {
    let root = tempfile::tempdir().expect("a directory can be made");
    play_with(host_path(root.path()), None, async |user| {
        let name = ask(&user).await;
        user.wait().await;
        user.assert_bound("c", &name, true).await;
        let made = root.path().join(&entries(root.path())[0]);
        std::fs::remove_dir(&made).expect("it is empty");
        std::os::unix::fs::symlink("/", &made).expect("a link can be made");
        user.drop_claim("c").await;
        user.wait().await;
        let held = user.volume(&name).await;
        let cause = "is a link or no directory; it is not followed";
        assert_eq!(held["status"]["phase"], "Failed", "{held:#}");
        assert!(held["status"]["message"].as_str().is_some_and(|why| why.contains(cause)), "{held:#}");
        let events = user.events(&name).await;
        assert!(events.iter().any(|event| event.contains("VolumeFailedDelete") && event.contains(cause)), "{events:?}");
    });
}

/// The answer is none after which the server is asked whether the volume was stored all the same.
/// Rules: BIND-4.9, CTRL-13.16
#[test]
fn a_volume_that_cannot_be_stored_is_told_on_the_claim() {
    let root = tempfile::tempdir().expect("a directory can be made");
    let mishap = Mishap { write: 1, fate: Fate::Refused(Refusal::Gone) };
    play_with(host_path(root.path()), Some(mishap), async |user| {
        let name = ask(&user).await;
        user.wait().await;
        let told = "Warning ProvisioningFailed: Error creating provisioned PV object for claim default/c";
        let events = user.events("c").await;
        assert!(events.iter().any(|event| event.starts_with(told)), "{events:?}");
        user.assert_bound("c", &name, true).await;
        assert_eq!(entries(root.path()).len(), 1, "the directory of the first attempt");
    });
}

/// Rule: BIND-4.10
#[test]
fn a_volume_that_pods_still_use_is_not_recycled_and_says_so() {
    let root = tempfile::tempdir().expect("a directory can be made");
    let data = root.path().join("data");
    std::fs::create_dir(&data).expect("a directory can be made");
    play_with(host_path(root.path()), None, async |user| {
        let mut recycled = volume("v", "1Gi");
        recycled["spec"].as_object_mut().expect("it is a map").remove("csi");
        recycled["spec"]["hostPath"] = json!({"path": data.to_string_lossy()});
        recycled["spec"]["persistentVolumeReclaimPolicy"] = json!("Recycle");
        user.make(&recycled).await;
        user.make(&claim("c", "1Gi")).await;
        user.wait().await;
        user.make(&pod_of_claim()).await;
        std::fs::write(data.join("file"), "in use").expect("a file can be made");
        user.drop_claim("c").await;
        user.wait().await;
        assert_eq!(user.volume("v").await["status"]["phase"], "Released");
        assert_eq!(entries(&data), ["file"], "the pod still uses it");
        let told = "Normal VolumeFailedRecycle: Volume is used by pods: default/p";
        let events = user.events("v").await;
        assert_eq!(events.iter().filter(|event| *event == told).count(), 1, "{events:?}");
        user.drop_pod("p").await;
        user.wait().await;
        assert_eq!(user.volume("v").await["status"]["phase"], "Available");
        assert_eq!(entries(&data), Vec::<String>::new());
    });
}

/// A difference from upstream, which waits for the pods first; docs/differences.md says why.
#[test]
fn a_volume_that_no_plugin_can_empty_fails_at_once_also_while_pods_use_it() {
    play_with(Options::default(), None, async |user| {
        let mut recycled = volume("v", "1Gi");
        recycled["spec"]["persistentVolumeReclaimPolicy"] = json!("Recycle");
        user.make(&recycled).await;
        user.make(&claim("c", "1Gi")).await;
        user.wait().await;
        user.make(&pod_of_claim()).await;
        user.drop_claim("c").await;
        user.wait().await;
        let held = user.volume("v").await;
        let status = (&held["status"]["phase"], &held["status"]["message"]);
        assert_eq!(status, (&json!("Failed"), &json!("No recycler plugin found for the volume!")));
    });
}
