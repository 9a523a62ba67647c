//! `orlop bench pods` and `orlop bench attach`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::api_rig::ask;
use crate::cluster::Cluster;
use crate::said;

/// The name of the driver that benches have.
const DRIVER: &str = "bench.orlop.dev";
const PODS: &str = "/api/v1/pods";

/// A node's agent without a machine: every pod's volumes are ready at once, and pods that are to go are gone.
async fn play_agent(client: &kube::Client) {
    loop {
        let (_, list) = ask(client, ("GET", PODS), None).await.unwrap();
        for pod in list["items"].as_array().unwrap() {
            let (namespace, name) = (&pod["metadata"]["namespace"], &pod["metadata"]["name"]);
            let path = format!("/api/v1/namespaces/{}/pods/{}", namespace.as_str().unwrap(), name.as_str().unwrap());
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                ask(client, ("DELETE", &path), Some(&json!({"gracePeriodSeconds": 0}))).await.unwrap();
            } else if pod["status"]["conditions"].as_array().is_none_or(Vec::is_empty) {
                let mut pod = pod.clone();
                pod["status"]["conditions"] = json!([{"type": "orlop.dev/VolumesReady", "status": "True"}]);
                ask(client, ("PUT", &format!("{path}/status")), Some(&pod)).await.unwrap();
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn check_span(report: &Value, step: &str, count: usize) {
    assert_eq!(report[step]["count"], json!(count), "{step}: {report}");
    assert!(report[step]["p99_ms"].as_f64() >= report[step]["p50_ms"].as_f64(), "{step}: {report}");
}

#[tokio::test]
async fn pods_are_counted_until_their_volumes_are_gone_and_nothing_is_left() {
    let cluster = Cluster::with_driver().await;
    let args = ["--provisioner", DRIVER, "--node", "n1", "--node", "n2", "-n", "12", "-o", "json"];
    let mut bench = cluster.bench("pods", &args);
    let output = tokio::select! {
        output = tokio::task::spawn_blocking(move || bench.output()) => output.unwrap().unwrap(),
        () = play_agent(&cluster.client) => unreachable!("an agent has no end"),
    };
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["pods"], &report["nodes"]), (&json!(12), &json!({"named": ["n1", "n2"]})));
    for step in ["bound", "ready", "ready_after_bound", "pods_gone", "volumes_gone"] {
        check_span(&report, step, 12);
    }
    assert_eq!(report["detached"], Value::Null, "there are no such nodes, so nothing was attached: {report}");
    assert_eq!(report["ready_writes"]["done"]["POST pods"], Value::Null, "those are the bench's own");
    cluster.assert_empty().await;
}

#[tokio::test]
async fn pods_that_could_never_become_ready_are_refused_before_they_are_made() {
    let cluster = Cluster::start().await;
    let class =
        json!({"metadata": {"name": "late"}, "provisioner": "x.example", "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.create("/apis/storage.k8s.io/v1/storageclasses", class).await;
    for (args, wanted) in [
        (&["--provisioner", DRIVER][..], "no CSINode has driver bench.orlop.dev; register it"),
        (&["--class", "late", "--node", "n1"], "its claims wait for a pod that is scheduled"),
        (&["--provisioner", DRIVER, "--size", "much"], "--size \"much\""),
    ] {
        let output = cluster.bench("pods", args).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(said(&output).contains(wanted), "{args:?}: {}", said(&output));
    }
    cluster.assert_empty().await;
}

/// The bench plays the agents' side of the handshake, or nothing would ever be detached.
/// Rule: ATTACH-6.7
#[tokio::test]
async fn volumes_go_to_played_nodes_and_back_and_nothing_is_left() {
    let cluster = Cluster::with_driver().await;
    let output = cluster.bench("attach", &["-n", "20", "--nodes", "3", "-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    check_span(&report, "attached", 20);
    check_span(&report, "detached", 20);
    assert!(report["pairs_per_second"].as_f64().unwrap() > 0.0, "{report}");
    let writes = |step: &str, what: &str| report[step]["done"][what].clone();
    assert_eq!(writes("attach_writes", "POST volumeattachments"), json!(20), "{report}");
    assert_eq!(writes("detach_writes", "DELETE volumeattachments"), json!(20), "{report}");
    assert_eq!(writes("attach_writes", "POST pods"), Value::Null, "those are the bench's own");
    cluster.assert_empty().await;
}

#[tokio::test]
async fn an_interrupted_run_lets_go_of_what_is_attached() {
    let cluster = Cluster::with_driver().await;
    let mut command = cluster.bench("attach", &["-n", "6", "--nodes", "2", "--pause"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    // Everything is attached, and nobody presses Enter.
    assert!(lines.next().unwrap().unwrap().contains("6 volumes are attached; press Enter"));
    assert_eq!(cluster.names("/apis/storage.k8s.io/v1/volumeattachments").await.len(), 6);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(lines.next().unwrap().unwrap().contains("interrupted; everything this run made was taken away"));
    cluster.assert_empty().await;
}

#[test]
fn the_help_of_the_benches_reads_as_agreed() {
    for what in ["claims", "pods", "attach"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        // Help wraps to the width of the terminal.
        let output =
            command.args(["bench", what, "--help"]).env("COLUMNS", "100").env_remove("KUBECONFIG").output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let got = String::from_utf8_lossy(&output.stdout).into_owned();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/bench_{what}_help.txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&file, &got).unwrap();
            continue;
        }
        let want = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(got == want, "help differs from {}; to accept it, set UPDATE_GOLDEN=1. Now:\n{got}", file.display());
    }
}
