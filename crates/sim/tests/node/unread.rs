//! What cannot be read yet, or not at all: NODE-21, NODE-31.1, NODE-31.8, NODE-31.21.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::Kind;
use serde_json::json;
use sim::faults::{Ask, Fate, Refusal, Verdict};
use tokio::time::{Instant, sleep};

use crate::stage::{Play, ROOT, Rig, play};

/// Whatever a volume's metadata said is lost, and so is its object in the cluster.
async fn lose(rig: &Rig, uid: &str) {
    let published = format!("{ROOT}/pods/{uid}/volumes/kubernetes.io~csi/v/vol_data.json");
    let staged = rig.staged_directory("v").join("vol_data.json");
    rig.machine.with_kernel(|kernel| {
        kernel.write(published.as_ref(), b"", 0o600).expect("the directory is there");
        kernel.write(&staged, b"{", 0o600).expect("the directory is there");
    });
}

fn counted(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
}

/// Rule: NODE-31.8
#[test]
fn what_nobody_knows_is_told_counted_and_tried_again_until_somebody_does() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        rig.kill().await;
        lose(rig, &uid).await;
        rig.end_pod("p").await;
        let volume = rig.take_volume("v").await;
        rig.start();
        rig.until("it is told", async || rig.events("VolumeUnknown").await.len() == 2).await;
        let told = rig.events("VolumeUnknown").await;
        assert!(told.iter().any(|message| message.contains(&uid)), "{told:?}");
        sleep(Duration::from_secs(600)).await;
        assert!(rig.is_mounted(&uid, "v"), "what may be mounted is not touched on a guess");
        assert_eq!(rig.events("VolumeUnknown").await.len(), 2, "once is enough");
        let text = rig.metrics();
        assert_eq!(counted(&text, "reconstruct_volume_operations_total"), 2);
        assert_eq!(counted(&text, "reconstruct_volume_operations_errors_total"), 2);
        let tries = counted(&text, "force_cleaned_failed_volume_operation_errors_total");
        assert!((20..40).contains(&tries), "less and less often: {tries}");
        assert_eq!(counted(&text, "force_cleaned_failed_volume_operations_total"), tries);
        // The object is back: no backoff is waited for.
        let began = Instant::now();
        rig.create(Kind::VOLUME, volume).await;
        rig.until_clean().await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!((rig.doorman.count("unpublish"), rig.doorman.count("unstage")), (1, 1));
    });
}

/// Rule: NODE-13.2
#[test]
fn a_stage_whose_metadata_somebody_removed_is_found_by_its_mount_and_unstaged() {
    play(Play::default(), async |rig| {
        rig.volume("v", json!({})).await;
        let uid = rig.pod("p", &["v"]).await;
        rig.until_ready("p").await;
        rig.kill().await;
        let staged = rig.staged_directory("v").join("vol_data.json");
        rig.machine.with_kernel(|kernel| kernel.remove_file(&staged)).unwrap();
        rig.end_pod("p").await;
        // Only what the pod's own file says is left to know it by.
        rig.take_volume("v").await;
        rig.start();
        rig.until_clean().await;
        assert!(!rig.is_mounted(&uid, "v"));
        assert_eq!((rig.doorman.count("unpublish"), rig.doorman.count("unstage")), (1, 1));
    });
}

/// Rule: NODE-17.4
#[test]
fn directories_that_nothing_was_ever_asked_for_go_at_the_start() {
    play(Play::default(), async |rig| {
        rig.kill().await;
        let blocks = format!("{ROOT}/plugins/{}/volumeDevices", api::keys::plugin::CSI);
        let staged = rig.staged_directory("v").join("globalmount");
        rig.machine.with_kernel(|kernel| {
            kernel.make_directory(format!("{blocks}/v/data").as_ref(), 0o750).unwrap();
            kernel.make_directory(format!("{blocks}/staging/v").as_ref(), 0o750).unwrap();
            kernel.make_directory(&staged, 0o750).unwrap();
        });
        rig.start();
        rig.until("they are gone", async || !rig.exists(&format!("{blocks}/v")) && rig.children(&blocks) > 0).await;
        rig.until_clean().await;
        assert_eq!(rig.children(&format!("{blocks}/staging")), 0);
        assert!(rig.events("VolumeUnknown").await.is_empty() && rig.doorman.calls().is_empty());
    });
}

/// Rule: NODE-31.1
#[test]
fn an_inline_volume_is_known_by_its_pod_when_its_metadata_is_lost() {
    let driver = json!({"volumeLifecycleModes": ["Persistent", "Ephemeral"]});
    let mut setup = Play::with_driver(driver);
    setup.habits.staging = sim::driver::Staging::Not;
    play(setup, async |rig| {
        // A PersistentVolume that is called as the pod calls its own volume is another one.
        rig.volume("scratch", json!({})).await;
        let inline = json!([{"name": "scratch", "csi": {"driver": rig.model.name()}}]);
        let uid = rig.pod_with("p", inline, json!({})).await;
        rig.until("it is asked for", async || rig.doorman.count("publish") > 0).await;
        let handle = rig.doorman.publish().volume_id;
        rig.model.tamper(|state| state.put(&handle, 1 << 30));
        rig.until_ready("p").await;
        rig.kill().await;
        let metadata = format!("{ROOT}/pods/{uid}/volumes/kubernetes.io~csi/scratch/vol_data.json");
        rig.machine.with_kernel(|kernel| kernel.write(metadata.as_ref(), b"", 0o600)).unwrap();
        rig.delete_pod("p").await;
        rig.start();
        rig.until_gone("p").await;
        rig.until_clean().await;
        assert_eq!(rig.doorman.unpublish().volume_id, handle);
    });
}

/// Rule: NODE-31.21
#[test]
fn nothing_is_mounted_on_terms_that_are_only_guessed() {
    let dark = Arc::new(AtomicBool::new(true));
    let refused = dark.clone();
    let script = move |ask: &Ask<'_>| -> Verdict {
        match ask.path.ends_with("/csidrivers") && refused.load(Ordering::Relaxed) {
            true => Fate::Refused(Refusal::Unavailable { seconds: 1 }).into(),
            false => Fate::Answered.into(),
        }
    };
    let play_dark = Play { api: Box::new(script), ..Play::with_driver(json!({"podInfoOnMount": true})) };
    play(play_dark, async |rig| {
        rig.volume("v", json!({})).await;
        rig.pod("p", &["v"]).await;
        rig.until_said("p", "DriverUnread").await;
        sleep(Duration::from_secs(300)).await;
        assert_eq!(rig.doorman.calls(), [] as [&str; 0], "not even staged: it may have to be attached");
        dark.store(false, Ordering::Relaxed);
        rig.until_ready("p").await;
        let context = rig.doorman.publish().volume_context;
        assert!(context.contains_key(api::keys::context::POD_NAME), "as the object says");
    });
}
