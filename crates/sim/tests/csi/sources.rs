//! Clones and restores, and what guards their sources: PROVISION-2.8.

use api::Kind;
use api::keys::finalizer;
use runtime::client::Preconditions;
use serde_json::{Value, json};
use tonic::Code;

use crate::driver::{Create, NAME};
use crate::stage::{Stage, claim, class, mishaps, options, play};

fn clone_of(name: &str, source: &str) -> Value {
    claim(name, json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": source}}))
}

fn restore_of(name: &str, snapshot: &str) -> Value {
    let source = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot});
    claim(name, json!({"dataSource": source}))
}

/// A snapshot that is ready, and its content.
async fn make_snapshot(stage: &Stage, name: &str) {
    let api_version = "snapshot.storage.k8s.io/v1";
    let content = format!("content-{name}");
    let snapshot = stage
        .make(&json!({"apiVersion": api_version, "kind": "VolumeSnapshot",
            "metadata": {"namespace": "default", "name": name},
            "spec": {"source": {"volumeSnapshotContentName": content}}}))
        .await;
    let uid = &snapshot["metadata"]["uid"];
    stage
        .make(&json!({"apiVersion": api_version, "kind": "VolumeSnapshotContent", "metadata": {"name": content},
            "spec": {"driver": NAME, "deletionPolicy": "Delete", "source": {"snapshotHandle": "handle"},
                "volumeSnapshotRef": {"namespace": "default", "name": name, "uid": uid}}}))
        .await;
    stage.change(Kind::SNAPSHOT_CONTENT, &content, json!({"status": {"snapshotHandle": "handle"}})).await;
    let status = json!({"boundVolumeSnapshotContentName": content, "readyToUse": true, "restoreSize": "1Gi"});
    stage.change(Kind::SNAPSHOT, name, json!({"status": status})).await;
}

async fn is_guarded(stage: &Stage, name: &str) -> bool {
    stage.holds(Kind::SNAPSHOT, name, finalizer::SNAPSHOT_SOURCE_PROTECTION).await
}

async fn is_cloned(stage: &Stage, name: &str) -> bool {
    stage.holds(Kind::CLAIM, name, finalizer::CLONING_PROTECTION).await
}

async fn prepare(stage: &Stage) {
    stage.make(&class(json!({}))).await;
    stage.make(&claim("src", json!({}))).await;
    stage.until("the source is bound", async |stage| stage.is_bound("src").await).await;
}

/// Rule: PROVISION-2.8
#[test]
fn a_clone_waits_for_its_source_and_takes_its_handle() {
    play(&options(), None, async |stage: Stage| {
        stage.make(&class(json!({}))).await;
        stage.make(&clone_of("copy", "src")).await;
        stage.wait().await;
        assert!(stage.driver.with().creates.is_empty());
        stage.make(&claim("src", json!({}))).await;
        let before = tokio::time::Instant::now();
        stage.until("the copy is bound", async |stage| stage.is_bound("copy").await).await;
        assert!(before.elapsed().as_secs() < 10, "the backoff was {:?}", before.elapsed());
        let source = stage.volume_of("src").await.expect("it is bound");
        let request = stage.driver.with().creates.pop().expect("it was called");
        let content = request.volume_content_source.expect("it has a source");
        let asked = format!("{:?}", content.r#type);
        assert!(asked.contains(source["spec"]["csi"]["volumeHandle"].as_str().expect("it has a handle")), "{asked}");
    });
}

/// Rule: SIDECAR-P11
#[test]
fn a_clones_source_is_guarded_before_the_call_and_until_the_last_user_is_served() {
    play(&options(), None, async |stage: Stage| {
        prepare(&stage).await;
        stage.driver.with().script.extend([Create::MadeBut(Code::Unavailable), Create::MadeBut(Code::Unavailable)]);
        stage.make(&clone_of("copy", "src")).await;
        stage.until("it was called", async |stage| stage.driver.with().creates.len() > 1).await;
        assert!(is_cloned(&stage, "src").await, "before the call");
        stage.drop_claim("src").await;
        assert!(stage.get(Kind::CLAIM, "src").await.is_some(), "it stays while it is copied");
        stage.until("the copy is bound", async |stage| stage.is_bound("copy").await).await;
        stage.until("the source is gone", async |stage| stage.get(Kind::CLAIM, "src").await.is_none()).await;
        stage.wait().await;
        stage.assert_volumes(1).await;
    });
}

/// Rule: PROVISION-2.8
#[test]
fn a_source_that_nobody_deletes_keeps_its_guard_and_costs_no_more_writes() {
    play(&options(), None, async |stage: Stage| {
        prepare(&stage).await;
        stage.make(&clone_of("copy", "src")).await;
        stage.until("the copy is bound", async |stage| stage.is_bound("copy").await).await;
        stage.wait().await;
        assert!(is_cloned(&stage, "src").await, "PROVISION-2.8: only a source that is asked to go is looked at");
        let patches = stage.writes().iter().filter(|write| write.ends_with("/src")).count();
        stage.make(&clone_of("second", "src")).await;
        stage.until("the second is bound", async |stage| stage.is_bound("second").await).await;
        assert_eq!(stage.writes().iter().filter(|write| write.ends_with("/src")).count(), patches);
    });
}

/// A claim is cloned and goes. Gives how many writes came before the clone, and how many in all.
async fn cloned(stage: Stage) -> (usize, usize) {
    prepare(&stage).await;
    stage.wait().await;
    let before = stage.writes().len();
    stage.make(&clone_of("copy", "src")).await;
    stage.wait().await;
    assert!(stage.is_bound("copy").await, "{:?}", stage.writes());
    stage.assert_volumes(2).await;
    stage.drop_claim("src").await;
    stage.wait().await;
    assert!(stage.get(Kind::CLAIM, "src").await.is_none(), "the guard is off: {:?}", stage.writes());
    stage.assert_volumes(1).await;
    (before, stage.writes().len())
}

#[test]
fn every_mishap_at_every_write_of_a_clone_ends_right() {
    let (before, all) = play(&options(), None, cloned);
    println!("{before} writes before, {all} in all");
    for mishap in mishaps(all).into_iter().filter(|mishap| mishap.write > before) {
        println!("{mishap:?}");
        play(&options(), Some(mishap), cloned);
    }
}

/// Rule: PROVISION-2.8
#[test]
fn a_restore_takes_the_snapshots_handle_and_frees_the_snapshot_afterwards() {
    play(&options(), None, async |stage: Stage| {
        stage.make(&class(json!({}))).await;
        make_snapshot(&stage, "s").await;
        stage.driver.with().script.extend(vec![Create::MadeBut(Code::DeadlineExceeded); 4]);
        stage.make(&restore_of("data", "s")).await;
        stage.until("it was called", async |stage| !stage.driver.with().creates.is_empty()).await;
        assert!(is_guarded(&stage, "s").await, "before the call");
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        let request = stage.driver.with().creates.remove(0);
        assert!(format!("{request:?}").contains("handle"), "{request:?}");
        stage.until("the guard is off", async |stage| !is_guarded(stage, "s").await).await;
    });
}

/// Rule: PROVISION-2.8
#[test]
fn a_snapshot_that_becomes_ready_wakes_its_restore() {
    play(&options(), None, async |stage: Stage| {
        stage.make(&class(json!({}))).await;
        make_snapshot(&stage, "s").await;
        stage.change(Kind::SNAPSHOT, "s", json!({"status": {"readyToUse": false}})).await;
        stage.make(&restore_of("data", "s")).await;
        stage.wait().await;
        let events = stage.events().await;
        assert!(events.iter().any(|event| event.contains("not ready to use")), "{events:?}");
        stage.change(Kind::SNAPSHOT, "s", json!({"status": {"readyToUse": true}})).await;
        let before = tokio::time::Instant::now();
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        assert!(before.elapsed().as_secs() < 10, "the backoff was {:?}", before.elapsed());
    });
}

/// Rule: SIDECAR-P12
#[test]
fn the_first_of_two_restores_does_not_free_the_snapshot() {
    play(&options(), None, async |stage: Stage| {
        stage.make(&class(json!({}))).await;
        make_snapshot(&stage, "s").await;
        stage.make(&restore_of("first", "s")).await;
        stage.until("the first is bound", async |stage| stage.is_bound("first").await).await;
        stage.driver.with().script.extend(vec![Create::MadeBut(Code::Unavailable); 4]);
        let called = stage.driver.with().creates.len();
        stage.make(&restore_of("second", "s")).await;
        stage.until("it was called", async |stage| stage.driver.with().creates.len() > called).await;
        let key = api::Key::namespaced("default", "s");
        stage.client.delete::<api::Snapshot>(&key, &Preconditions::default()).await.expect("it can be deleted");
        assert!(is_guarded(&stage, "s").await, "the second restore uses it");
        stage.until("the second is bound", async |stage| stage.is_bound("second").await).await;
        stage.until("the snapshot is gone", async |stage| stage.get(Kind::SNAPSHOT, "s").await.is_none()).await;
    });
}

/// Rule: SIDECAR-P12
#[test]
fn a_restore_whose_claim_is_gone_still_guards_its_snapshot_until_it_ended() {
    play(&options(), None, async |stage: Stage| {
        stage.make(&class(json!({}))).await;
        make_snapshot(&stage, "s").await;
        stage.driver.with().script.extend(vec![Create::MadeBut(Code::Unavailable); 5]);
        stage.make(&restore_of("data", "s")).await;
        stage.until("it was called", async |stage| !stage.driver.with().creates.is_empty()).await;
        stage.drop_claim("data").await;
        let key = api::Key::namespaced("default", "s");
        stage.client.delete::<api::Snapshot>(&key, &Preconditions::default()).await.expect("it can be deleted");
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        assert!(is_guarded(&stage, "s").await, "an open plan uses it");
        stage.wait().await;
        assert!(stage.get(Kind::SNAPSHOT, "s").await.is_none());
        stage.assert_volumes(0).await;
    });
}

/// A snapshot is restored. Gives how many writes that took.
async fn restored(stage: Stage) -> usize {
    stage.make(&class(json!({}))).await;
    make_snapshot(&stage, "s").await;
    stage.make(&restore_of("data", "s")).await;
    stage.wait().await;
    assert!(stage.is_bound("data").await, "{:?}", stage.writes());
    assert!(!is_guarded(&stage, "s").await, "{:?}", stage.writes());
    stage.assert_volumes(1).await;
    stage.writes().len()
}

#[test]
fn every_mishap_at_every_write_of_a_restore_ends_right() {
    let writes = play(&options(), None, restored);
    println!("{writes} writes");
    for mishap in mishaps(writes) {
        println!("{mishap:?}");
        play(&options(), Some(mishap), restored);
    }
}

/// Rule: PROVISION-2.8
#[test]
fn a_volume_without_its_content_is_deleted_and_made_again() {
    play(&options(), None, async |stage: Stage| {
        stage.make(&class(json!({}))).await;
        make_snapshot(&stage, "s").await;
        stage.driver.with().script.push_back(Create::Empty);
        stage.make(&restore_of("data", "s")).await;
        stage.until("it is bound", async |stage| stage.is_bound("data").await).await;
        assert_eq!(stage.driver.counts(), (1, 2));
        stage.assert_volumes(1).await;
    });
}

/// Rule: PROVISION-2.8
#[test]
fn a_guard_that_somebody_left_behind_is_taken_off() {
    play(&options(), None, async |stage: Stage| {
        make_snapshot(&stage, "s").await;
        let guard = json!({"metadata": {"finalizers": [finalizer::SNAPSHOT_SOURCE_PROTECTION.text()]}});
        stage.change(Kind::SNAPSHOT, "s", guard).await;
        stage.until("the guard is off", async |stage| !is_guarded(stage, "s").await).await;
    });
}
