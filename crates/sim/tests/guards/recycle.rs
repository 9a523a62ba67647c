//! Plugins of the binder: pods that empty volumes, and directories of this machine (BIND-P3, BIND-4.10).

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use api::{Claim, Class, Key, Kind, Pod, Source, Volume};
use control::Context;
use control::bind::plugins::{Capabilities, Options, PluginError, Plugins, Provisioning, Template};
use control::provision::Wish;
use futures_util::future::{BoxFuture, pending};
use runtime::Patch;
use serde_json::{Value, json};
use sim::faults::Fair;
use sim::{Process, Seed, Setup, World, simulate};

use crate::stage::{User, at_every_request, play};

const SCRUBBED: &str = "example.com/scrubbed";

fn export(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Recycle",
        "nfs": {"server": "files", "path": "/export"},
    }})
}

fn recycler() -> Key {
    Key::namespaced("default", "recycler-for-v")
}

/// Empties volume `v` once it is there, as often as it takes, and notes each outcome on it.
fn recycling(context: Context) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let plugins = Plugins::new(&context, Options::default());
        let volumes = context.cache::<Volume>();
        context.caches.synced().await;
        let key = Key::cluster("v");
        loop {
            let Some(volume) = volumes.get(&key) else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            // As the binder does not recycle a volume that is free already.
            if volume.meta.annotation(SCRUBBED) == Some("yes") {
                break;
            }
            let plugin = plugins.of(&volume).expect("it has a plugin");
            let told = match plugin.recycle(&volume).await {
                Ok(()) => "yes".to_owned(),
                Err(error) => error.to_string(),
            };
            let note = Patch::Merge(json!({"metadata": {"annotations": {SCRUBBED: told}}}));
            // A note that did not arrive is no end: the volume is emptied once more.
            let _ = context.patch::<Volume>(&key, &note).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        pending().await
    })
}

async fn told(user: &User) -> String {
    let volume = user.get(Kind::VOLUME, &Key::cluster("v")).await.expect("it is there");
    volume["metadata"]["annotations"][SCRUBBED].as_str().unwrap_or_default().to_owned()
}

/// A node that runs every recycler to its end at once.
async fn node(user: &User) {
    let done = async || {
        if user.get(Kind::POD, &recycler()).await.is_some_and(|pod| pod["status"]["phase"] == "Pending") {
            user.end_pod(&recycler(), json!({"phase": "Succeeded"})).await;
        }
        told(user).await == "yes"
    };
    user.until("the volume is empty", done).await;
}

/// Rule: BIND-4.10
#[test]
fn an_export_is_emptied_by_a_pod_that_is_always_taken_away_at_every_fault() {
    at_every_request(recycling, async |user: &User| {
        user.create(Kind::VOLUME, export("v")).await;
        node(user).await;
        user.until_gone(Kind::POD, &recycler()).await;
    });
}

/// Rule: BIND-4.10
#[test]
fn the_pod_has_the_export_a_deadline_and_its_events_are_told_on_the_volume() {
    play(recycling, Fair, async |user: &User| {
        user.create(Kind::VOLUME, export("v")).await;
        user.until_there(Kind::POD, &recycler()).await;
        let pod = user.get(Kind::POD, &recycler()).await.expect("it is there");
        assert_eq!(pod["spec"]["volumes"][0]["nfs"], json!({"server": "files", "path": "/export"}));
        assert_eq!(pod["spec"]["activeDeadlineSeconds"], 600, "20 GiB, 30 seconds each, more than 300");
        assert_eq!(pod["spec"]["restartPolicy"], "Never");
        let about =
            json!({"kind": "Pod", "namespace": "default", "name": "recycler-for-v", "uid": pod["metadata"]["uid"]});
        let event = json!({"metadata": {"namespace": "default", "name": "e"}, "involvedObject": about,
            "reason": "Pulling", "message": "Pulling the image", "type": "Normal"});
        user.create(Kind::EVENT, event).await;
        let mirrored = async || user.events("RecyclerPod").await == ["Recycler pod: Pulling the image"];
        user.until("the event is told on the volume", mirrored).await;
        node(user).await;
    });
}

/// Rule: BIND-4.10
#[test]
fn a_pod_that_fails_or_is_deleted_or_never_starts_is_a_failure_and_is_taken_away() {
    play(recycling, Fair, async |user: &User| {
        user.create(Kind::VOLUME, export("v")).await;
        user.until_there(Kind::POD, &recycler()).await;
        user.end_pod(&recycler(), json!({"phase": "Failed", "message": "disk on fire"})).await;
        let failed = "the recycler's pod failed: disk on fire";
        user.until("the failure is told", async || told(user).await == failed).await;
        user.until_there(Kind::POD, &recycler()).await;
        user.delete::<Pod>(&recycler()).await;
        let deleted = "the recycler's pod was deleted by somebody else";
        user.until("the deletion is told", async || told(user).await == deleted).await;
        user.until_there(Kind::POD, &recycler()).await;
        tokio::time::sleep(Duration::from_secs(700)).await;
        user.until("the time-out is told", async || told(user).await.contains("has not ended in 720 seconds")).await;
        node(user).await;
    });
}

/// Rule: BIND-4.10
#[test]
fn a_pod_from_an_earlier_attempt_is_taken_away_and_the_attempt_repeated() {
    play(recycling, Fair, async |user: &User| {
        let mut old = crate::stage::pod("recycler-for-v", Some("node"), json!([]));
        old["metadata"]["labels"] = json!({"age": "old"});
        user.create(Kind::POD, old).await;
        user.create(Kind::VOLUME, export("v")).await;
        let retried = "old recycler pod found, will retry later";
        user.until("it is said", async || told(user).await == retried).await;
        user.until_there(Kind::POD, &recycler()).await;
        let pod = user.get(Kind::POD, &recycler()).await.expect("it is there");
        assert_eq!(pod["metadata"].get("labels"), None, "a new one");
        node(user).await;
    });
}

fn read<T: api::Object>(value: Value) -> T {
    serde_json::from_value(value).expect("the test writes it right")
}

fn wish(claim: Value, class: Value) -> Wish {
    let spec = json!({"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1536Mi"}}, "storageClassName": "dirs"});
    let mut whole =
        json!({"metadata": {"name": "c", "namespace": "n", "uid": "u-1", "resourceVersion": "7"}, "spec": spec});
    whole["spec"].as_object_mut().expect("an object").extend(claim.as_object().expect("an object").clone());
    let mut named = json!({"metadata": {"name": "dirs"}, "provisioner": api::keys::provisioner::HOST_PATH});
    named.as_object_mut().expect("an object").extend(class.as_object().expect("an object").clone());
    let claim: Claim = read(whole);
    let class: Class = read(named);
    Wish { claim: Arc::new(claim), class: Arc::new(class), node: None, volume_name: "pvc-u-1".to_owned() }
}

/// Runs on the plugins of a process in an empty world; `root` is where directories are made.
fn with_plugins<T: Send>(root: &std::path::Path, work: impl AsyncFnOnce(&Plugins) -> T + Send) -> T {
    let options = Options { host_path: Provisioning::On { root: root.to_owned() }, ..Options::default() };
    let run = simulate(Seed(1), Setup::default(), async |world: World| {
        let component = world.component("orlop", Fair);
        let process = Process::new(&world, &component, 0);
        let context = process.context.clone();
        let working = async {
            let plugins = Plugins::new(&context, options);
            context.caches.synced().await;
            work(&plugins).await
        };
        process.run(&runtime::Stop::never(), working).await
    });
    run.expect("a world can be made")
}

/// Rules: BIND-4.10, BIND-P3
#[test]
fn a_directory_is_made_for_a_claim_and_deleted_with_its_volume() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let root = dir.path().join("pvs");
    with_plugins(&root, async |plugins: &Plugins| {
        let plugin = plugins.named(api::keys::provisioner::HOST_PATH).expect("it is there");
        let wish = wish(json!({}), json!({}));
        let body = plugin.provision(&wish).await.expect("it is made");
        assert_eq!(plugin.provision(&wish).await.expect("once more"), body, "a repeated attempt finds it");
        let path = root.join("u-1");
        assert!(path.is_dir());
        assert_eq!(body["spec"]["hostPath"]["path"], path.to_str().expect("plain text"));
        assert_eq!(body["spec"]["capacity"]["storage"], "1536Mi");
        assert_eq!(body["spec"]["accessModes"], json!(["ReadWriteMany"]));
        assert_eq!(
            (&body["spec"]["storageClassName"], &body["spec"]["claimRef"]["uid"]),
            (&json!("dirs"), &json!("u-1"))
        );
        let annotations = body["metadata"]["annotations"].as_object().expect("annotations");
        assert_eq!(annotations.len(), 3, "created by, bound by the controller, provisioned by");
        assert_eq!(body["metadata"]["finalizers"], json!([api::keys::finalizer::PV_CONTROLLER.text()]));
        fs::write(path.join("file"), "x").expect("a file");
        let volume: Volume = read(body);
        assert!(plugins.of(&volume).is_some_and(|of| of.name() == plugin.name()));
        plugin.recycle(&volume).await.expect("no node: it is emptied here");
        assert!(path.is_dir() && path.read_dir().expect("a directory").next().is_none());
        plugin.delete(&volume).await.expect("it is deleted");
        plugin.delete(&volume).await.expect("gone is deleted");
        assert!(!path.exists());
    });
}

/// Rule: BIND-4.9
#[test]
fn what_a_directory_cannot_be_is_refused() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    with_plugins(&dir.path().join("pvs"), async |plugins: &Plugins| {
        let plugin = plugins.named(api::keys::provisioner::HOST_PATH).expect("it is there");
        let source = json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "other"}});
        for (claim, class) in [
            (source, json!({})),
            (json!({"volumeMode": "Block"}), json!({})),
            (json!({}), json!({"mountOptions": ["ro"]})),
        ] {
            let refused = plugin.provision(&wish(claim, class)).await;
            assert!(matches!(refused, Err(PluginError::Refused { .. })), "{refused:?}");
        }
        let retain = plugin.provision(&wish(json!({}), json!({"reclaimPolicy": "Retain"}))).await.expect("it is made");
        assert_eq!(retain["metadata"]["finalizers"], json!([]), "nothing to delete, nothing to wait for");
    });
    assert!(fs::read_dir(dir.path().join("pvs")).expect("the root").count() == 1, "only the last one made something");
}

/// Rule: BIND-4.10
#[test]
fn only_what_is_below_the_root_is_deleted() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let precious = dir.path().join("precious");
    fs::create_dir(&precious).expect("a directory");
    with_plugins(&dir.path().join("pvs"), async |plugins: &Plugins| {
        let plugin = plugins.named(api::keys::provisioner::HOST_PATH).expect("it is there");
        for path in [precious.clone(), dir.path().join("pvs/../precious"), dir.path().join("pvs")] {
            let volume: Volume = read(json!({"metadata": {"name": "v"}, "spec": {"hostPath": {"path": path}}}));
            assert!(plugin.delete(&volume).await.is_err(), "{}", path.display());
            assert!(plugin.recycle(&volume).await.is_err(), "{}", path.display());
        }
    });
    assert!(precious.is_dir());
}

/// Rule: BIND-P5
#[test]
fn plugins_can_do_what_they_say_and_local_volumes_have_none() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    with_plugins(dir.path(), async |plugins: &Plugins| {
        let nfs = plugins.named(api::keys::provisioner::NFS).expect("it is there");
        assert_eq!(nfs.capabilities(), Capabilities { recycles: true, ..Capabilities::default() });
        let volume: Volume = read(export("v"));
        assert!(matches!(nfs.provision(&wish(json!({}), json!({}))).await, Err(PluginError::Unsupported { .. })));
        assert!(matches!(nfs.delete(&volume).await, Err(PluginError::Unsupported { .. })));
        assert!(plugins.named(api::keys::provisioner::NONE).is_none());
        let local: Volume = read(json!({"metadata": {"name": "l"}, "spec": {"local": {"path": "/mnt/disk"}}}));
        assert!(matches!(local.source, Source::Local { .. }) && plugins.of(&local).is_none());
        let known: Vec<_> = plugins.known().iter().map(|plugin| (plugin.deletes, plugin.recycles)).collect();
        assert_eq!(known, [(true, true), (false, true)]);
        assert_eq!(Template::default(), Options::default().nfs_recycling.template);
    });
}

#[test]
fn with_a_node_a_directory_is_emptied_by_a_pod_where_the_data_is() {
    play(recycling, Fair, async |user: &User| {
        user.create(Kind::NODE, json!({"metadata": {"name": "node"}})).await;
        let mut volume = export("v");
        volume["spec"].as_object_mut().expect("an object").remove("nfs");
        volume["spec"]["hostPath"] = json!({"path": "/tmp/data"});
        tokio::time::sleep(Duration::from_secs(1)).await;
        user.create(Kind::VOLUME, volume).await;
        user.until_there(Kind::POD, &recycler()).await;
        let pod = user.get(Kind::POD, &recycler()).await.expect("it is there");
        assert_eq!(pod["spec"]["volumes"][0]["hostPath"]["path"], "/tmp/data");
        node(user).await;
    });
}
