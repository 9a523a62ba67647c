//! `orlop bench claims` as a process on the embedded API: what it says, what it refuses, and that it leaves nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says why by panicking")]

mod api_rig;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use api_rig::{Server, ask, client};
use serde_json::{Value, json};

/// Long enough for a busy machine; nothing is asserted about it.
const PATIENCE: Duration = Duration::from_secs(120);

/// An API server with our controllers. Dropping it ends both.
struct Cluster {
    client: kube::Client,
    kubeconfig: PathBuf,
    controllers: Child,
    _server: Server,
    _folder: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut server = Server::spawn(&data);
        let address = server.address().await;
        let kubeconfig = data.with_extension("kubeconfig");
        let client = client(&kubeconfig, &address).await;
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(["controllers", "--log-level", "warn", "--kubeconfig"]).arg(&kubeconfig);
        let controllers = command.stdout(Stdio::null()).spawn().unwrap();
        Self { client, kubeconfig, controllers, _server: server, _folder: folder }
    }

    fn bench(&self, args: &[&str]) -> Command {
        bench(&self.kubeconfig, args)
    }

    async fn create(&self, path: &str, body: Value) {
        let (code, answer) = ask(&self.client, ("POST", path), Some(&body)).await.unwrap();
        assert_eq!(code, 201, "{answer}");
    }

    /// Names of what there is, without what every server has.
    async fn names(&self, path: &str) -> Vec<String> {
        let (code, list) = ask(&self.client, ("GET", path), None).await.unwrap();
        assert_eq!(code, 200, "{list}");
        let names = list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap());
        names.filter(|name| name.contains("bench") || name.contains("claim")).map(str::to_owned).collect()
    }

    /// Waits until nothing of a run is left. A namespace takes its time to go.
    async fn assert_empty(&self) {
        let paths = [
            "/api/v1/persistentvolumeclaims",
            "/api/v1/persistentvolumes",
            "/apis/storage.k8s.io/v1/storageclasses",
            "/api/v1/namespaces",
        ];
        for path in paths {
            let gone = async {
                while !self.names(path).await.is_empty() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            if tokio::time::timeout(PATIENCE, gone).await.is_err() {
                panic!("left of {path}: {:?}", self.names(path).await);
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.controllers.kill();
        let _ = self.controllers.wait();
    }
}

fn bench(kubeconfig: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["bench", "claims"]).args(args).arg("--kubeconfig").arg(kubeconfig);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn claims_and_volumes_made_by_hand_are_counted_and_nothing_is_left() {
    let cluster = Cluster::start().await;
    let output = cluster.bench(&["--static", "-n", "20", "--volumes", "30", "-o", "json"]).output().unwrap();
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
    let mut command = cluster.bench(&["--static", "-n", "10", "--pause"]);
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
        let output = cluster.bench(args).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(said(&output).contains(wanted), "{args:?}: {}", said(&output));
    }
    let output = cluster.bench(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "one way to get volumes must be chosen: {}", said(&output));
    cluster.assert_empty().await;
}
