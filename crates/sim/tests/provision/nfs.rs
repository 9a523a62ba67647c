//! The example that is no CSI driver: directories on a share.

#[path = "../../../control/examples/nfs_client/share.rs"]
mod share;

use std::path::Path;
use std::sync::Arc;

use api::{Source, Uid, Volume};
use control::provision::{Engine, Options};
use runtime::Stop;
use serde_json::{Value, json};
use sim::Process;
use sim::faults::{Fair, Fates};
use tokio::time::sleep;

use crate::rig::{MINUTE, NAMESPACE, Rig, at_write, play};
use share::Share;

const NAME: &str = "example.org/nfs";

/// A process of the example for a minute, or until it dies.
async fn live(rig: &Rig, root: &Path, fates: impl Fates + 'static, life: u64) {
    let component = rig.world.component("nfs", fates);
    let process = Process::new(&rig.world, &component, life);
    let share = Arc::new(Share::new(NAME, root, "nfs.example.org", "/srv/share/"));
    let engine = Engine::new(&process.context, share, Options::new("nfs", NAMESPACE));
    let stop = Stop::never();
    let work = async {
        tokio::select! {
            () = sleep(MINUTE) => {}
            () = engine.run(&stop) => {}
        }
    };
    component.run(process.run(&stop, work)).await;
}

async fn class(rig: &Rig, parameters: Value) {
    rig.delete_class("fast").await;
    rig.class("fast", json!({"provisioner": NAME, "parameters": parameters})).await;
}

async fn claim(rig: &Rig, name: &str) -> Uid {
    rig.claim_with(name, json!({api::keys::annotation::STORAGE_PROVISIONER.text(): NAME})).await
}

/// What is on the share, records apart.
fn listed(root: &Path) -> Vec<String> {
    let names = std::fs::read_dir(root).expect("the share is there").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

fn path(volume: &Volume) -> &str {
    match &volume.source {
        Source::Nfs { server, path } if **server == *"nfs.example.org" => path,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_claim_gets_a_directory_and_the_directory_is_archived_in_the_end() {
    for (parameters, left) in
        [(json!({}), 1), (json!({"archiveOnDelete": "false"}), 0), (json!({"onDelete": "retain"}), 1)]
    {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        play(async |rig| {
            class(&rig, parameters.clone()).await;
            let uid = claim(&rig, "c").await;
            live(&rig, root, Fair, 1).await;
            let volume = rig.volume(&uid).await.expect("it was made");
            let directory = format!("default-c-pvc-{uid}");
            assert_eq!(path(&volume), format!("/srv/share/{directory}"));
            assert_eq!(listed(root), [directory]);
            rig.delete_claim("c").await;
            rig.release(volume.name()).await;
            live(&rig, root, Fair, 2).await;
            assert!(rig.volume(&uid).await.is_none());
            let kept = listed(root);
            assert_eq!(kept.len(), left, "{parameters}: {kept:?}");
            let archived = parameters == json!({});
            assert!(kept.iter().all(|name| name.starts_with("archived-") == archived));
            assert_eq!(rig.intents().await, []);
        });
    }
}

#[test]
fn a_pattern_names_directories_and_none_is_given_twice() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    play(async |rig| {
        class(&rig, json!({"pathPattern": "${.PVC.namespace}/data${.PVC.annotations.part}"})).await;
        let (first, second) = (claim(&rig, "first").await, claim(&rig, "second").await);
        live(&rig, root, Fair, 1).await;
        let made = [rig.volume(&first).await, rig.volume(&second).await];
        let made: Vec<Volume> = made.into_iter().flatten().collect();
        assert_eq!(made.iter().map(path).collect::<Vec<_>>(), ["/srv/share/default/data"]);
        class(&rig, json!({"pathPattern": "${.PVC.namespace}/../../${.PVC.name}"})).await;
        let outside = claim(&rig, "outside").await;
        live(&rig, root, Fair, 2).await;
        assert!(rig.volume(&outside).await.is_none());
        assert_eq!(rig.events("outside").await, ["Provisioning", "ProvisioningFailed"]);
    });
}

#[test]
fn directories_survive_a_crash_at_every_write() {
    for write in 1..=3 {
        for fate in [sim::faults::Fate::CrashBefore, sim::faults::Fate::CrashAfter] {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path();
            play(async |rig| {
                class(&rig, json!({})).await;
                let uid = claim(&rig, "c").await;
                live(&rig, root, at_write(write, fate.clone()), 1).await;
                rig.delete_claim("c").await;
                live(&rig, root, Fair, 2).await;
                assert_eq!(listed(root).len(), rig.volumes().await.len(), "each directory has its object");
                if let Some(volume) = rig.volume(&uid).await {
                    rig.release_for_good(&volume).await;
                }
                live(&rig, root, Fair, 3).await;
                assert!(listed(root).iter().all(|name| name.starts_with("archived-")));
                assert_eq!((rig.volumes().await.len(), rig.intents().await.len()), (0, 0));
            });
        }
    }
}
