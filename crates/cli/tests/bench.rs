//! `orlop bench` as a process on the embedded API: what it says, what it refuses, and that it leaves nothing.
//!
//! Help is compared with the files in `tests/golden`; run the test with `UPDATE_GOLDEN=1` to write them anew.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says why by panicking")]

mod api_rig;
#[path = "bench/cluster.rs"]
mod cluster;
#[path = "bench/pods.rs"]
mod pods;

use std::io::{BufRead as _, BufReader};
use std::process::{Output, Stdio};

use cluster::Cluster;
use serde_json::{Value, json};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn claims_and_volumes_made_by_hand_are_counted_and_nothing_is_left() {
    let cluster = Cluster::start().await;
    let output = cluster.bench("claims", &["--static", "-n", "20", "--volumes", "30", "-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["claims"], &report["volumes"]), (&json!(20), &json!(30)));
    for (step, count) in [("bound", 20), ("claims_gone", 20), ("volumes_gone", 30)] {
        assert_eq!(report[step]["count"], json!(count), "{step}");
        assert!(report[step]["p99_ms"].as_f64() >= report[step]["p50_ms"].as_f64(), "{step}: {report}");
    }
    // A claim of its own for each: the volume's pointer, its phase, the claim's pointer, its phase.
    let writes = &report["bind_writes"]["done"];
    assert_eq!(writes["PATCH persistentvolumeclaims"], json!(20), "{report}");
    assert_eq!(writes["POST persistentvolumeclaims"], Value::Null, "those are the bench's own");
    cluster.assert_empty().await;
}

#[tokio::test]
async fn an_interrupted_run_takes_away_what_it_made() {
    let cluster = Cluster::start().await;
    let mut command = cluster.bench("claims", &["--static", "-n", "10", "--pause"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    // Everything is there, and nobody presses Enter.
    assert!(lines.next().unwrap().unwrap().contains("press Enter"));
    assert_eq!(cluster.names("/api/v1/persistentvolumeclaims").await.len(), 10);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(lines.next().unwrap().unwrap().contains("interrupted; everything this run made was taken away"));
    cluster.assert_empty().await;
}

#[tokio::test]
async fn classes_that_would_make_it_wait_or_leave_data_are_refused() {
    let cluster = Cluster::start().await;
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    let class = |name: &str, mode: &str, policy: &str| json!({"metadata": {"name": name}, "provisioner": "x.example", "volumeBindingMode": mode, "reclaimPolicy": policy});
    cluster.create(classes, class("late", "WaitForFirstConsumer", "Delete")).await;
    cluster.create(classes, class("kept", "Immediate", "Retain")).await;
    for (args, wanted) in [
        (&["--class", "late"][..], "its claims wait for a pod"),
        (&["--class", "kept"], "its volumes would stay (reclaimPolicy Retain)"),
        (&["--class", "none"], "there is no such StorageClass"),
        (&["--static", "-n", "5", "--volumes", "4"], "--volumes must be at least --count (5)"),
        (&["--static", "--size", "much"], "--size \"much\""),
    ] {
        let output = cluster.bench("claims", args).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(said(&output).contains(wanted), "{args:?}: {}", said(&output));
    }
    let output = cluster.bench("claims", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "one way to get volumes must be chosen: {}", said(&output));
    cluster.assert_empty().await;
}
